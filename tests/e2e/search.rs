//! `tollgate search` on real nginx.

use crate::experiment::two_subjects;
use crate::support::{Workspace, flat, stderr, stdout, told, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::time::Duration;

fn workspace() -> Workspace {
    with_two_subjects(Workspace::beside_others())
}

fn with_two_subjects(workspace: Workspace) -> Workspace {
    workspace.write("two.toml", &two_subjects());
    workspace
}

#[test]
fn a_search_ends_in_an_interval_that_its_records_give_again() {
    let workspace = with_two_subjects(Workspace::new());
    let output = workspace.run(&[
        "search",
        "two.toml",
        "--slo",
        "p90<50ms",
        "--only",
        "full",
        "--from",
        "400",
        "--width",
        "60%",
        "--confirm",
        "1",
        "--seed",
        "5",
        "--out",
        "out",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let table = stdout(&output);
    // On a busy machine the generator may be late, and what is found is a lower bound.
    let answer = "p90<50ms,errors<1% is kept by full up to";
    assert!(flat(&table).contains(answer), "{}", told(&output));

    let report = workspace.json("out/report.json");
    assert_eq!(report["terms"]["ended_by"], "found");
    let subjects = report["cases"][0]["subjects"].as_array().expect("subjects");
    assert_eq!(subjects.len(), 1, "the baseline was not asked for");
    let full = &subjects[0];
    let rate = |end: &str| full[end]["rate_per_s"].as_f64().expect("a rate");
    // The full rule set takes between 0.2 and 20 ms a request, whatever the machine.
    assert!(50.0 <= rate("kept") && rate("kept") < rate("broken"), "{full:#}");
    assert!(rate("broken") <= 10_000.0, "{full:#}");
    for end in ["kept", "broken"] {
        assert_eq!(full[end]["trials"], 2, "{full:#}");
    }

    // Each trial is on record, at the rate that the report tells.
    let text = workspace.read("out/trials.ndjson");
    let records: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let trials = full["trials"].as_array().expect("trials");
    assert_eq!(records.len(), trials.len());
    for (record, trial) in records.iter().zip(trials) {
        assert_eq!(record["block"], trial["step"]);
        assert_eq!(record["outcome"]["measured"]["open_loop"]["rate_per_s"], trial["rate_per_s"]);
    }

    let again = workspace.run(&["report", "out"]);
    assert!(table.starts_with(&stdout(&again)), "{}\n---\n{table}", stdout(&again));
    let json = workspace.run(&["report", "out", "--format", "json"]);
    assert_eq!(stdout(&json), workspace.read("out/report.json"));
    let csv = workspace.run(&["report", "out", "--format", "csv"]);
    assert_eq!(csv.status.code(), Some(2), "{}", told(&csv));
    assert!(stderr(&csv).contains("out holds a search: --format is table or json"));
    let resumed = workspace.run(&["run", "--resume", "out"]);
    assert_eq!(resumed.status.code(), Some(2), "{}", told(&resumed));
    assert!(stderr(&resumed).contains("out holds a search, not a run"), "{}", told(&resumed));
    workspace.assert_nothing_runs();
}

#[test]
fn ctrl_c_keeps_what_was_tried() {
    let workspace = workspace();
    let child = workspace.start(&["search", "two.toml", "--slo", "p90<50ms", "--out", "out"]);
    let records = || {
        let text = std::fs::read_to_string(workspace.path("out/trials.ndjson"));
        text.map_or(0, |text| text.lines().count())
    };
    assert!(wait_until(Duration::from_secs(60), || records() >= 2));
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).expect("it runs");
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130), "{}", told(&output));
    assert!(flat(&stdout(&output)).contains("not settled"), "{}", told(&output));
    assert_eq!(workspace.json("out/report.json")["terms"]["ended_by"], "interrupted");
    workspace.assert_nothing_runs();
}
