//! `tollgate compare`, `--threshold` and `tollgate search`.

use crate::support::{Workspace, flat, show, stderr, stdout, two_subjects, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::time::Duration;

#[test]
fn search_finds_rate_and_report_repeats_it() {
    let workspace = Workspace::exclusive().with_two_subjects();
    let output = workspace.run(&[
        "search",
        "two.toml",
        "--goal",
        "p90<50ms",
        "--only",
        "full",
        "--start",
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
    // On a busy machine, trials may contradict each other and leave an interval wider than requested.
    let is_settled = output.status.code() == Some(0);
    assert!(is_settled || output.status.code() == Some(3), "{}", show(&output));
    let table = stdout(&output);
    assert_eq!(is_settled, !table.contains("not settled"), "{table}");
    // On a busy machine the generator may be late, and the rate is a lower bound.
    let summary = "p90<50ms,errors<1% is met by full up to";
    assert!(flat(&table).contains(summary), "{}", show(&output));

    let report = workspace.json("out/report.json");
    assert_eq!(report["parameters"]["ended_by"], "complete");
    let subjects = report["cases"][0]["subjects"].as_array().expect("subjects");
    assert_eq!(subjects.len(), 1, "only the selected subject");
    let full = &subjects[0];
    let rate = |end: &str| full[end]["rate_per_s"].as_f64().expect("a rate");
    // The full rule set takes 0.2 to 20 ms per request. On a busy machine a trial may fail at any rate.
    assert!(0.0 < rate("passed") && rate("passed") < rate("failed"), "{full:#}");
    assert!(rate("failed") <= 10_000.0, "{full:#}");
    for end in ["passed", "failed"] {
        assert_eq!(full[end]["trials"], 2, "{full:#}");
    }

    // Each trial is recorded, at the rate in the report.
    let records = workspace.records();
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
    assert_eq!(csv.status.code(), Some(2), "{}", show(&csv));
    assert!(stderr(&csv).contains("out contains a search: --format must be table or json"));
    let resumed = workspace.run(&["run", "--resume", "out"]);
    assert_eq!(resumed.status.code(), Some(2), "{}", show(&resumed));
    assert!(
        stderr(&resumed).contains("out is the directory of a search, not of a run"),
        "{}",
        show(&resumed)
    );
    workspace.assert_nothing_runs();
}

#[test]
fn search_keeps_trials_after_ctrl_c() {
    let workspace = Workspace::concurrent().with_two_subjects();
    let child = workspace.start(&["search", "two.toml", "--goal", "p90<50ms", "--out", "out"]);
    let records = || {
        let text = std::fs::read_to_string(workspace.path("out/trials.ndjson"));
        text.map_or(0, |text| text.lines().count())
    };
    assert!(wait_until(Duration::from_secs(60), || records() >= 2));
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).expect("it runs");
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130), "{}", show(&output));
    assert!(flat(&stdout(&output)).contains("not settled"), "{}", show(&output));
    assert_eq!(workspace.json("out/report.json")["parameters"]["ended_by"], "interrupted");
    workspace.assert_nothing_runs();
}

#[test]
fn thresholds_pass_fail_or_are_not_settled() {
    let workspace = Workspace::quiet();
    workspace.write("two.toml", &two_subjects().replace("500ms", "300ms"));
    let run = ["run", "two.toml", "--blocks", "6", "--out", "out"];
    let passing =
        ["--threshold", "cpu(full/nginx)>2", "--threshold", "detection_rate(full @ browse)>=100%"];
    let output = workspace.run(&[&run[..], &passing].concat());
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let table = stdout(&output);
    for text in ["cpu(full/nginx)>2", "detection_rate(full @ browse)>=100%"] {
        let line = table.lines().find(|line| line.starts_with(text));
        assert!(line.is_some_and(|line| line.ends_with(" pass")), "{text}: {table}");
    }

    // The interval contains its estimate and is wider than one point on a real machine.
    let report = workspace.json("out/report.json");
    let subjects = report["cases"][0]["subjects"].as_array().expect("subjects");
    let full = subjects.iter().find(|subject| subject["name"] == "full").expect("full");
    let ratio = &full["prices"]["cpu_us_per_request"]["ratio"];
    let open = format!("cpu(full/nginx)<{}", ratio["estimate"]);
    for (texts, code, outcome) in [
        (vec!["cpu(full/nginx)<2"], 99, "fail"),
        (vec![open.as_str()], 75, "not settled"),
        (vec![open.as_str(), "cpu(full/nginx)<2"], 99, "fail"),
        (vec!["startup(nginx)<10s", "memory(nginx/full)<1"], 0, "pass"),
    ] {
        let thresholds = texts.iter().flat_map(|text| ["--threshold", text]);
        let arguments: Vec<&str> = ["report", "out"].into_iter().chain(thresholds).collect();
        let output = workspace.run(&arguments);
        assert_eq!(output.status.code(), Some(code), "{texts:?}: {}", show(&output));
        assert!(stdout(&output).contains(outcome), "{texts:?}: {}", show(&output));
    }

    // Thresholds do not change the output for programs.
    let output =
        workspace.run(&["report", "out", "--format", "json", "--threshold", "cpu(full/nginx)<2"]);
    assert_eq!(output.status.code(), Some(99), "{}", show(&output));
    assert_eq!(stdout(&output), workspace.read("out/report.json"));
    assert!(stderr(&output).contains("fail"), "{}", show(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn compares_two_runs_and_their_differences() {
    let workspace = Workspace::quiet();
    workspace.write("two.toml", &two_subjects().replace("500ms", "300ms"));
    let output = workspace.run(&["run", "two.toml", "--out", "old"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    // The second run has a different configuration of nginx.
    workspace.copy_recipe("nginx");
    workspace.change("systems/nginx/nginx.conf", "sendfile on;", "sendfile off;");
    let output = workspace.run(&["run", "two.toml", "--out", "new"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));

    let output = workspace.run(&["compare", "old", "new"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let table = stdout(&output);
    assert!(table.contains("subject nginx, config nginx.conf: "), "{table}");
    assert!(!table.contains("machine, "), "the machine is the same:\n{table}");
    assert!(stderr(&output).contains("between the fingerprints"), "{}", show(&output));

    let output = workspace.run(&["compare", "old", "new", "--format", "json"]);
    let json: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let subjects = json["cases"][0]["subjects"].as_array().expect("subjects");
    let full = subjects.iter().find(|subject| subject["name"] == "full").expect("full");
    let change = &full["changes"]["cpu_us_per_request"];
    let ratio = change["ratio"]["estimate"].as_f64().expect("a ratio");
    assert!((0.3..3.0).contains(&ratio), "{json:#}");
    assert_eq!(change["ratio"]["interval"], true, "{change}");
    assert_eq!((&change["n_old"], &change["n_new"]), (&4.into(), &4.into()), "{change}");
    for (threshold, code, outcome) in
        [("cpu(full)<500%", 0, "pass"), ("cpu(full/nginx)<1%", 99, "fail")]
    {
        let output = workspace.run(&["compare", "old", "new", "--threshold", threshold]);
        assert_eq!(output.status.code(), Some(code), "{}", show(&output));
        let table = stdout(&output);
        let line = table.lines().find(|line| line.starts_with(threshold)).expect(threshold);
        assert!(line.ends_with(outcome), "{line}");
    }
    let over = workspace.run(&["compare", "old", "new", "--baseline", "full"]);
    assert!(stdout(&over).contains("old × full [95 %]"), "{}", show(&over));
    let markdown = workspace.run(&["compare", "old", "new", "--format", "markdown"]);
    assert!(stdout(&markdown).contains("\n| full | "), "{}", show(&markdown));
    workspace.assert_nothing_runs();
}
