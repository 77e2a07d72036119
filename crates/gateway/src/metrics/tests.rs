//! The page, parsed by a strict parser of the text format.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use super::*;
use crate::config::{Address, Backend, Config, Ejection};
use crate::counters::{Counters, GenerationCounters};

/// Parses samples by their names and labels, as written. Panics on a sample without TYPE and HELP before it, a family
/// in two places, a duplicate sample, an invalid name, an unclosed label value, or a value that is not a number.
fn parse(page: &str) -> BTreeMap<String, f64> {
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
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(helped.contains(name) && kinds.insert(name, kind).is_none(), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            current = name;
        } else {
            let name_end = line.find(['{', ' ']).unwrap();
            let (name, rest) = line.split_at(name_end);
            let of_histogram = if kinds[current] == "histogram" { HISTOGRAM } else { &[""] };
            let suffix = name.strip_prefix(current).unwrap_or_else(|| panic!("{line}"));
            assert!(of_histogram.contains(&suffix), "{line}");
            let is_allowed =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            assert!(name.bytes().all(is_allowed), "{line}");
            let value = rest.strip_prefix('{').map_or(rest, after_labels);
            let value: f64 = value.strip_prefix(' ').unwrap().parse().unwrap();
            let key = &line[..line.rfind(' ').unwrap()];
            assert!(samples.insert(key.to_owned(), value).is_none(), "{line}");
        }
    }
    samples
}

/// Endings of the names of samples.
const HISTOGRAM: &[&str] = &["_bucket", "_sum", "_count"];

/// The rest of a sample behind its labels.
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
fn page_has_counters_and_health() {
    let address = |port| Address::Tcp(([127, 0, 0, 1], port).into());
    let mut config = Config::new(address(80), address(9001));
    config.pools[0].name = "a \"pool\" of \\".to_owned();
    config.pools[0].backends.push(Backend::new(Address::Unix("/b".into())));
    let eject = Some(Ejection { failures: 1, duration: Duration::from_secs(9) });
    let counters = Counters::new(1);
    let generation = Arc::new(GenerationCounters::new(&config));
    counters.add_generation(Arc::clone(&generation));
    counters.clients(0).accepted.add(5);
    counters.clients(0).closed.add(2);
    counters.clients(0).sent_bytes.add(1 << 40);
    counters.clients(0).dropped_lines.add(9);
    counters.clients(0).count_local_response(502);
    counters.clients(0).count_exhaustion(&LOCAL_RESOURCES[4]);
    generation.of(0, 0).count_response(404);
    generation.of(0, 0).retries.add(3);
    for us in [0, 100, 101, 9_000_000, 10_000_001] {
        generation.of(0, 0).request_durations.add_us(us);
    }
    generation.of(0, 0).upstream_durations.add_us(3_000);
    generation.of(0, 0).backends[1].connects.add(4);
    generation.of(0, 0).backends[1].closed.add(1);
    let now = Instant::now();
    config.pools[0].eject = eject;
    let health = PoolHealth::new(&config.pools[0], now);
    assert!(health.record_failure(1, now).ejects);
    let names = vec!["a.example".to_owned(), "b.example".to_owned()];
    let process = Process {
        reloads: Reloads { applied: 2, rejected: 1 },
        orders: Orders { issued: 3, failed: 4 },
        certificates: &[Arc::new(ManagedCertificate::new(names))],
    };
    let page = render(
        &counters,
        &config.pools.iter().zip([&health]),
        process,
        now,
        UNIX_EPOCH + Duration::from_millis(1_500),
    );
    let samples = parse(&page);
    let sample = |rest: &str| samples[&format!("tollgate_gateway_{rest}")];
    let pool = "pool=\"a \\\"pool\\\" of \\\\\"";
    assert_eq!(sample("client_connections_total"), 5.0);
    assert_eq!(sample("client_connections"), 3.0);
    assert_eq!(sample("client_sent_bytes_total"), 1_099_511_627_776.0);
    assert_eq!(sample("access_log_dropped_lines_total"), 9.0);
    assert_eq!(sample("local_responses_total{status=\"502\"}"), 1.0);
    assert_eq!(sample("local_responses_total{status=\"503\"}"), 0.0);
    assert_eq!(sample("resource_exhaustion_total{error=\"EADDRNOTAVAIL\"}"), 1.0);
    assert_eq!(sample("resource_exhaustion_total{error=\"EMFILE\"}"), 0.0);
    assert_eq!(sample(&format!("responses_total{{{pool},class=\"4xx\"}}")), 1.0);
    assert_eq!(sample(&format!("retries_total{{{pool}}}")), 3.0);
    assert_eq!(sample(&format!("backend_connections{{{pool},backend=\"unix:/b\"}}")), 3.0);
    assert_eq!(sample(&format!("backend_up{{{pool},backend=\"127.0.0.1:9001\"}}")), 1.0);
    assert_eq!(sample(&format!("backend_ejected{{{pool},backend=\"unix:/b\"}}")), 1.0);
    assert_eq!(sample(&format!("backend_ejections_total{{{pool},backend=\"unix:/b\"}}")), 1.0);
    assert_eq!(sample("reloads_total{result=\"rejected\"}"), 1.0);
    assert_eq!(sample("certificate_orders_total{result=\"failed\"}"), 4.0);
    let expiry = "certificate_expiry_timestamp_seconds{names=\"a.example,b.example\"}";
    assert_eq!(sample(expiry), 0.0);
    for (bound, count) in
        [("0.0001", 2.0), ("0.00025", 3.0), ("5", 3.0), ("10", 4.0), ("+Inf", 5.0)]
    {
        let bucket = format!("request_duration_seconds_bucket{{{pool},le=\"{bound}\"}}");
        assert_eq!(sample(&bucket), count, "{bound}");
    }
    assert_eq!(sample(&format!("request_duration_seconds_sum{{{pool}}}")), 19.000202);
    assert_eq!(sample(&format!("request_duration_seconds_count{{{pool}}}")), 5.0);
    let bucket = |bound| format!("upstream_duration_seconds_bucket{{{pool},le=\"{bound}\"}}");
    assert_eq!((sample(&bucket("0.0025")), sample(&bucket("0.005"))), (0.0, 1.0));
    let version = env!("CARGO_PKG_VERSION");
    let arch = std::env::consts::ARCH;
    let build = format!("tollgate_build_info{{version=\"{version}\",arch=\"{arch}\"}}");
    assert_eq!(samples[&build], 1.0);
    assert_eq!(samples["process_start_time_seconds"], 1.5);
    assert!(samples["process_cpu_seconds_total"] >= 0.0);
    assert!(samples["process_resident_memory_bytes"] > 1e6);
    // Standard input and output at least.
    assert!(samples["process_open_fds"] >= 3.0);
    assert!(samples["process_max_fds"] >= samples["process_open_fds"]);
}
