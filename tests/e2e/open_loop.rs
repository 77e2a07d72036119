//! Experiments in an open loop: the same rate for every subject, whether it can hold it or not.

use crate::experiment::two_subjects;
use crate::support::{Workspace, flat, stdout, told};
use serde_json::Value;

#[test]
fn a_rate_that_follows_from_another_case_is_found_by_its_slowest_subject() {
    let workspace = Workspace::new();
    let latency = r#"[[case]]
name    = "latency"
mix     = "browse"
rate_of = { case = "browse", share = "20%" }
load    = { connections = 4, connections_max = 40, duration = "500ms", warmup = "50ms" }

[[subject]]"#;
    workspace.write("two.toml", &two_subjects().replacen("[[subject]]", latency, 1));
    let output =
        workspace.run(&["run", "two.toml", "--blocks", "2", "--seed", "3", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));

    let mut held = Vec::new();
    let mut rates = Vec::new();
    for line in workspace.read("out/trials.ndjson").lines() {
        let record: Value = serde_json::from_str(line).expect("JSON");
        let measured = &record["outcome"]["measured"];
        if record["case"] == "latency" {
            rates.push(measured["open_loop"]["rate_per_s"].as_f64().expect("a rate"));
        } else if record["block"] == 1 && measured["invalid"] == Value::Array(vec![]) {
            assert!(rates.is_empty(), "the case that it follows from comes first");
            held.push(measured["throughput_per_s"].as_f64().expect("a throughput"));
        }
    }
    let slowest = held.into_iter().reduce(f64::min).expect("a trial that counts");
    assert!(rates.len() >= 4, "{}", told(&output));
    assert!(rates.iter().all(|rate| *rate == (0.2 * slowest).floor()), "{rates:?} of {slowest}");
    let line = format!("open loop, {}/s (20 % of what the slowest holds in browse)", rates[0]);
    assert!(flat(&stdout(&output)).contains(&line), "{}", told(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn every_subject_gets_the_same_rate_and_one_that_cannot_hold_it_says_so() {
    let workspace = Workspace::new();
    let open = "connections = 20, connections_max = 40, rate = 3000, spacing = \"poisson\"";
    workspace.write("two.toml", &two_subjects().replace("connections = 4", open));
    let output =
        workspace.run(&["run", "two.toml", "--blocks", "2", "--seed", "3", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));

    let table = flat(&stdout(&output));
    let line = "open loop, 3000/s, Poisson, 20 to 40 connections, kept alive; 2 blocks";
    assert!(table.contains(line), "{table}");
    assert!(table.contains("full did not hold the rate in "), "{table}");
    assert!(!table.contains("saturated"), "{table}");

    let text = workspace.read("out/trials.ndjson");
    let mut valid = [0, 0];
    for record in text.lines() {
        let record: Value = serde_json::from_str(record).expect("JSON");
        let measured = &record["outcome"]["measured"];
        if measured["invalid"] != Value::Array(vec![]) {
            // The machine disturbed it, and it was tried again.
            continue;
        }
        let open_loop = &measured["open_loop"];
        assert_eq!(open_loop["rate_per_s"], 3000.0);
        assert_eq!(open_loop["spacing"], "poisson");
        // Half a second of a Poisson process: 1,500, with a deviation of 39.
        let due = open_loop["due"].as_u64().expect("a count");
        assert!((1_200..=1_800).contains(&due), "{due}");
        let latency = |record: &Value| record["p50_ms"].as_f64().expect("a latency");
        let scheduled = latency(&measured["latency"]);
        let sent = latency(&open_loop["latency_from_send"]);
        let overdue = open_loop["overdue"].as_u64().expect("a count");
        if record["subject"] == "full" {
            // It holds less than half of that, so most requests wait for a connection, and that is
            // what the system does.
            assert!(overdue > due / 10, "{overdue} of {due}");
            assert!(scheduled > 2.0 * sent, "{scheduled} ms, {sent} ms from the send");
            valid[1] += 1;
        } else {
            // It holds twenty times that, but a busy machine may halt it for a moment.
            assert!(overdue <= due / 20, "{overdue} of {due}");
            assert!(scheduled >= sent, "{scheduled} ms, {sent} ms from the send");
            valid[0] += 1;
        }
    }
    assert!(valid[0] > 0 && valid[1] > 0, "{}", told(&output));
    workspace.assert_nothing_runs();
}
