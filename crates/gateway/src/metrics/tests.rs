//! The page, read by a strict reader of the text format.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::*;
use crate::config::{Address, Backend, Config, Ejection};
use crate::counters::{Counters, PoolTallies};

/// A page as Prometheus has it: samples by their name and labels, as written. What the format forbids
/// panics: a sample without a TYPE and a HELP before it, a family in two places, a sample twice, an odd
/// name, a label's value that is not closed, a value that is no number.
fn read(page: &str) -> BTreeMap<String, f64> {
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    let mut helped = BTreeSet::new();
    let mut current = "";
    let mut samples = BTreeMap::new();
    assert!(page.ends_with('\n'));
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap();
            assert!(text.ends_with('.') && helped.insert(name), "{line}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            assert!(helped.contains(name) && kinds.insert(name, kind).is_none(), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            current = name;
        } else {
            let name_end = line.find(['{', ' ']).unwrap();
            let (name, rest) = line.split_at(name_end);
            assert_eq!(name, current, "{line}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
            let value = rest.strip_prefix('{').map_or(rest, after_labels);
            let value: f64 = value.strip_prefix(' ').unwrap().parse().unwrap();
            let key = &line[..line.rfind(' ').unwrap()];
            assert!(samples.insert(key.to_owned(), value).is_none(), "{line}");
        }
    }
    samples
}

/// What comes after the labels of a sample.
fn after_labels(mut rest: &str) -> &str {
    loop {
        let (label, value) = rest.split_once("=\"").unwrap();
        assert!(label.bytes().all(|byte| byte.is_ascii_lowercase()), "{label}");
        let mut is_escaped = false;
        let end = value.find(|c: char| {
            let is_end = c == '"' && !is_escaped;
            assert!(!is_escaped || "\\\"n".contains(c), "{value}");
            is_escaped = c == '\\' && !is_escaped;
            is_end
        });
        rest = &value[end.unwrap() + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return rest.strip_prefix('}').unwrap(),
        }
    }
}

#[test]
fn a_page_tells_what_was_counted_and_what_is_known() {
    let address = |port| Address::Tcp(([127, 0, 0, 1], port).into());
    let mut config = Config::new(address(80), address(9001));
    config.pools[0].name = "a \"pool\" of \\".to_owned();
    config.pools[0].backends.push(Backend::new(Address::Unix("/b".into())));
    let eject = Some(Ejection { failures: 1, for_time: std::time::Duration::from_secs(9) });
    let counters = Counters::new(1);
    let tallies = Arc::new(PoolTallies::new(&config));
    counters.begin(Arc::clone(&tallies));
    counters.clients(0).accepted.add(5);
    counters.clients(0).closed.add(2);
    counters.clients(0).sent_bytes.add(1 << 40);
    counters.clients(0).lost_lines.add(9);
    counters.clients(0).answered_itself(502);
    counters.clients(0).ran_out(Shortage::Ports);
    tallies.of(0, 0).answered(404);
    tallies.of(0, 0).retries.add(3);
    tallies.of(0, 0).backends[1].connects.add(4);
    tallies.of(0, 0).backends[1].closed.add(1);
    let now = Instant::now();
    let health = PoolHealth::new(2, None, eject, now);
    assert!(health.failed(1, now));
    let page = render(
        &counters.totals(),
        &config.pools.iter().zip([&health]),
        Reloads { done: 2, refused: 1 },
        now,
    );
    let samples = read(&page);
    let sample = |rest: &str| samples[&format!("tollgate_gateway_{rest}")];
    let pool = "pool=\"a \\\"pool\\\" of \\\\\"";
    assert_eq!(sample("client_connections_total"), 5.0);
    assert_eq!(sample("client_connections"), 3.0);
    assert_eq!(sample("client_sent_bytes_total"), 1_099_511_627_776.0);
    assert_eq!(sample("access_log_lost_lines_total"), 9.0);
    assert_eq!(sample("own_answers_total{status=\"502\"}"), 1.0);
    assert_eq!(sample("own_answers_total{status=\"503\"}"), 0.0);
    assert_eq!(sample("shortages_total{error=\"EADDRNOTAVAIL\"}"), 1.0);
    assert_eq!(sample("shortages_total{error=\"EMFILE\"}"), 0.0);
    assert_eq!(sample(&format!("answers_total{{{pool},class=\"4xx\"}}")), 1.0);
    assert_eq!(sample(&format!("retries_total{{{pool}}}")), 3.0);
    assert_eq!(sample(&format!("backend_connections{{{pool},backend=\"unix:/b\"}}")), 3.0);
    assert_eq!(sample(&format!("backend_up{{{pool},backend=\"127.0.0.1:9001\"}}")), 1.0);
    assert_eq!(sample(&format!("backend_ejected{{{pool},backend=\"unix:/b\"}}")), 1.0);
    assert_eq!(sample(&format!("backend_ejections_total{{{pool},backend=\"unix:/b\"}}")), 1.0);
    assert_eq!(sample("reloads_total{result=\"refused\"}"), 1.0);
}
