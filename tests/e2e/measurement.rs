//! Measurement of trials: fixed rates, warm-up, a known price.

use crate::support::{Experiment, Workspace, flat, show, stderr, stdout, two_subjects, wait_until};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn rate_follows_slowest_subject_of_other_case() {
    let workspace = Workspace::quiet();
    let latency = r#"[[case]]
name    = "latency"
mix     = "browse"
rate_of = { case = "browse", share = "20%" }
load    = { connections = 4, connections_max = 40, duration = "500ms", warmup = "50ms" }

[[subject]]"#;
    workspace.write("two.toml", &two_subjects().replacen("[[subject]]", latency, 1));
    let output =
        workspace.run(&["run", "two.toml", "--blocks", "2", "--seed", "3", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));

    let mut throughputs = Vec::new();
    let mut rates = Vec::new();
    for record in workspace.records() {
        let measured = &record["outcome"]["measured"];
        if record["case"] == "latency" {
            rates.push(measured["open_loop"]["rate_per_s"].as_f64().expect("a rate"));
        } else if record["block"] == 1 && measured["invalid"] == Value::Array(vec![]) {
            assert!(rates.is_empty(), "the other case runs first");
            throughputs.push(measured["throughput_per_s"].as_f64().expect("a throughput"));
        }
    }
    let slowest = throughputs.into_iter().reduce(f64::min).expect("a valid trial");
    assert!(rates.len() >= 4, "{}", show(&output));
    assert!(rates.iter().all(|rate| *rate == (0.2 * slowest).floor()), "{rates:?} of {slowest}");
    let line = format!(
        "open loop, {}/s (20 % of the throughput of the slowest subject in browse)",
        rates[0]
    );
    assert!(flat(&stdout(&output)).contains(&line), "{}", show(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn fixed_rate_is_same_for_all_subjects() {
    let workspace = Workspace::exclusive();
    let open = "connections = 20, connections_max = 40, rate = 3000, spacing = \"poisson\"";
    workspace.write("two.toml", &two_subjects().replace("connections = 4", open));
    let output =
        workspace.run(&["run", "two.toml", "--blocks", "2", "--seed", "3", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));

    let table = flat(&stdout(&output));
    let line = "open loop, 3000/s, Poisson, 20 to 40 connections, keep-alive; 2 blocks";
    assert!(table.contains(line), "{table}");
    assert!(table.contains("full did not hold the rate in "), "{table}");
    assert!(!table.contains("saturated"), "{table}");

    let mut valid = [0, 0];
    for record in workspace.records() {
        let measured = &record["outcome"]["measured"];
        if measured["invalid"] != Value::Array(vec![]) {
            // Repeated.
            continue;
        }
        let open_loop = &measured["open_loop"];
        assert_eq!(open_loop["rate_per_s"], 3000.0);
        assert_eq!(open_loop["spacing"], "poisson");
        // Half a second of a Poisson process: 1,500, standard deviation 39.
        let due = open_loop["due"].as_u64().expect("a count");
        assert!((1_200..=1_800).contains(&due), "{due}");
        let latency = |record: &Value| record["p50_ms"].as_f64().expect("a latency");
        let scheduled = latency(&measured["latency"]);
        let sent = latency(&open_loop["uncorrected_latency"]);
        let unsent = open_loop["unsent"].as_u64().expect("a count");
        if record["subject"] == "full" {
            // The system handles less than half of the rate, so most requests wait for a connection.
            assert!(unsent > due / 10, "{unsent} of {due}");
            assert!(scheduled > 2.0 * sent, "{scheduled} ms, {sent} ms from the send");
            valid[1] += 1;
        } else {
            // The system handles twenty times the rate, but a busy machine may pause it.
            assert!(unsent <= due / 20, "{unsent} of {due}");
            assert!(scheduled >= sent, "{scheduled} ms, {sent} ms from the send");
            valid[0] += 1;
        }
    }
    assert!(valid[0] > 0 && valid[1] > 0, "{}", show(&output));
    workspace.assert_nothing_runs();
}

/// Runs one trial of a server that executes `lua` for each request. Returns the record, the table and the
/// messages.
fn warmed_up(workspace: &Workspace, lua: &str, longest: &str) -> (Value, String, String) {
    workspace.copy_recipe("nginx-known-cost");
    let config = "systems/nginx-known-cost/nginx.conf";
    workspace.change(config, "burn.spin({{ burn_us }})", lua);
    let load = format!(
        r#"connections = 8, duration = "200ms", warmup = "steady", warmup_max = "{longest}""#
    );
    let experiment = Experiment {
        title: "Is it steady?",
        load: &load,
        subjects: &[("server", "nginx-known-cost", "")],
        blocks: 1,
    };
    workspace.write("steady.toml", &experiment.text());
    let output = workspace.run(&["run", "steady.toml", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    // An invalid trial is repeated.
    let records = workspace.read("out/trials.ndjson");
    let line = records.lines().last().expect("a record");
    let record: Value = serde_json::from_str(line).expect("JSON");
    workspace.assert_nothing_runs();
    (record["outcome"]["measured"].clone(), flat(&stdout(&output)), stderr(&output))
}

#[test]
fn warm_up_lasts_until_server_is_steady() {
    let workspace = Workspace::exclusive();
    // Half a millisecond for each of the first thousand requests.
    let lua = "burn.seen = (burn.seen or 0) + 1; burn.spin(burn.seen <= 1000 and 500 or 0)";
    let (measured, table, _) = warmed_up(&workspace, lua, "8s");
    let duration_s = measured["warm_up"]["duration_s"].as_f64().expect("a length");
    // Two and a half slow slices of 200 ms, then five that agree.
    assert!(duration_s >= 1.5, "{measured:#}");
    // On a busy machine, figures may never be steady.
    let is_steady = measured["warm_up"]["steady"] == true;
    assert!(is_steady || duration_s >= 8.0, "{measured:#}");
    let responses = measured["responses"].as_f64().expect("a count");
    let cpu = &measured["cpu"]["system"];
    let us = |part: &str| cpu[part].as_f64().expect("microseconds");
    assert!((us("user_us") + us("system_us")) / responses < 250.0, "{measured:#}");
    let note = "Warm-up until steady, at most 8.00 s: server ";
    assert!(table.contains(note), "{table}");
}

#[test]
fn warm_up_of_unsteady_server_ends_with_note() {
    let workspace = Workspace::exclusive();
    // The cost changes every 0.7 seconds, so that no five slices of 200 ms agree.
    let lua = "burn.spin(math.floor(ngx.now() / 0.7) % 2 * 500)";
    let (measured, table, log) = warmed_up(&workspace, lua, "2s");
    assert_eq!(measured["warm_up"]["steady"], false, "{measured:#}");
    assert!(measured["warm_up"]["duration_s"].as_f64() >= Some(2.0), "{measured:#}");
    assert!(log.contains("not steady after a warm-up of 2."), "{log}");
    let note = "server was not yet steady at the end of the warm-up in 1 of 1 trials; they are";
    assert!(table.contains(note), "{table}");
}

#[test]
fn finds_known_cost_of_50_us() {
    let workspace = Workspace::exclusive();
    let experiment = Experiment {
        title: "Are 50 µs found?",
        load: r#"connections = 1, rate = 4000, busy_poll = true, idle_poll = true, duration = "300ms", warmup = "150ms""#,
        subjects: &[
            ("burn-0", "nginx-known-cost", ""),
            ("burn-50", "nginx-known-cost", "burn_us = 50"),
        ],
        blocks: 6,
    };
    workspace.write("known.toml", &experiment.text());
    let output = workspace.run(&["run", "known.toml", "--seed", "3", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let report = workspace.json("out/report.json");
    let price = &report["cases"][0]["subjects"][1]["prices"]["cpu_us_per_request"];
    let us = |end: &str| price["difference"][end].as_f64().expect("a difference");
    let contains = us("low") <= 50.0 && 50.0 <= us("high");
    // On a busy machine a narrow interval may miss; then the estimate must be near.
    assert!(contains || (40.0..60.0).contains(&us("estimate")), "{price:#}");
    assert_eq!(price["verdict"], "costs-more", "{price:#}");

    // The server logs what it burned, which is never less.
    let log = workspace.read("out/logs/001-browse-burn-50-nginx.log");
    let burned = log.lines().find_map(|line| line.strip_prefix("burned ")).expect("a figure");
    let burned_us: f64 = burned.split(' ').next().and_then(|us| us.parse().ok()).expect("a number");
    assert!(burned_us >= 50.0, "{log}");
    workspace.assert_nothing_runs();
}

/// Threads that take nearly all CPUs until they are dropped, or a time limit.
struct Disturbance {
    is_over: Arc<AtomicBool>,
}

impl Disturbance {
    fn begin() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let end = Instant::now() + Duration::from_secs(30);
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        for _ in 0..cpus * 10 {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) && Instant::now() < end {
                    std::hint::spin_loop();
                }
            });
        }
        Self { is_over }
    }
}

impl Drop for Disturbance {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

#[test]
fn disturbed_blocks_are_replaced_by_extra_blocks() {
    let workspace = Workspace::exclusive();
    let experiment = Experiment {
        title: "Does a disturbed run end with its planned blocks?",
        load: r#"connections = 4, duration = "200ms", warmup = "20ms", busy_poll = true"#,
        subjects: &[("nginx", "nginx", ""), ("gateway", "tollgate-gateway", "")],
        blocks: 4,
    };
    // Between what the disturbance takes, at least 87 %, and what compilers beside the test take.
    let limit = experiment.text().replace("background_cpu = \"100%\"", "background_cpu = \"80%\"");
    workspace.write("disturbed.toml", &limit);
    let run = workspace.start(&["run", "disturbed.toml", "--seed", "3", "--out", "out"]);
    let has = |trials| wait_until(Duration::from_secs(30), || workspace.trials() >= trials);
    let is_begun = has(2);
    let disturbance = Disturbance::begin();
    // The trials of the second block, and the one repetition that it is allowed.
    let is_disturbed = has(5);
    drop(disturbance);
    let output = run.wait_with_output().expect("the run ends");
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    assert!(is_begun && is_disturbed);

    let mut second_block = Vec::new();
    let mut valid: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for record in workspace.records() {
        let invalid = &record["outcome"]["measured"]["invalid"];
        let block = record["block"].as_u64().expect("a block");
        if block == 2 {
            second_block.push(invalid[0]["rule"].clone());
        }
        if invalid == &Value::Array(vec![]) {
            let subject = record["subject"].as_str().expect("a name").to_owned();
            valid.entry(subject).or_default().insert(block);
        }
    }
    assert_eq!(second_block, ["background-cpu"; 3], "{}", show(&output));
    let named = workspace.records().iter().any(|record| {
        let invalid = &record["outcome"]["measured"]["invalid"];
        invalid[0]["heaviest"]["pid"].as_u64() == Some(std::process::id().into())
    });
    assert!(named, "{}", show(&output));
    let both: BTreeSet<u64> = valid["nginx"].intersection(&valid["gateway"]).copied().collect();
    assert_eq!(both.len(), 4, "{valid:?}");
    assert!(both.last() > Some(&4), "an extra block: {valid:?}");
    let report = workspace.json("out/report.json");
    assert_eq!(report["ended_by"], "blocks");
    workspace.assert_nothing_runs();
}
