//! Cases that are measured over a number of requests, and cases that are for some of the subjects.

use crate::experiment::Experiment;
use crate::support::{Workspace, stdout, told};
use serde_json::Value;
use std::collections::BTreeSet;

/// Two cases of three subjects: 500 requests for all of them, 300 for the baseline and the last.
fn counted() -> String {
    let experiment = Experiment {
        title: "Does it stop at the last one?",
        load: r#"connections = 4, requests = 500, warmup = "50ms""#,
        subjects: &[("nginx", "nginx", ""), ("other", "nginx", ""), ("haproxy", "haproxy", "")],
        blocks: 2,
    };
    let short = r#"[[case]]
name     = "short"
mix      = "get"
subjects = ["haproxy"]
load     = { connections = 3, threads = 2, keepalive = false, requests = 300, warmup = "50ms" }

[[subject]]"#;
    let text = experiment.text().replacen("[[subject]]", short, 1);
    text.replace("baseline = ", "latency = true\nbaseline = ")
}

fn records(workspace: &Workspace) -> Vec<Value> {
    let text = workspace.read("out/trials.ndjson");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Block, case, subject and how many requests were answered, of each record.
fn told_of(records: &[Value]) -> BTreeSet<String> {
    let key = |record: &Value| {
        let measured = &record["outcome"]["measured"];
        assert_eq!(measured["unanswered"], 0, "{record:#}");
        let parts = [&record["block"], &record["case"], &record["subject"], &measured["answered"]];
        parts.map(ToString::to_string).join(" ")
    };
    records.iter().map(key).collect()
}

#[test]
fn a_trial_is_as_many_requests_as_its_case_says_for_the_subjects_that_it_names() {
    let workspace = Workspace::new();
    workspace.write("counted.toml", &counted());
    let output = workspace.run(&["run", "counted.toml", "--seed", "3", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let expected = |block: u32| {
        let browse = ["nginx", "other", "haproxy"]
            .map(|subject| format!("{block} \"browse\" \"{subject}\" 500"));
        let short =
            ["nginx", "haproxy"].map(|subject| format!("{block} \"short\" \"{subject}\" 300"));
        browse.into_iter().chain(short)
    };
    let whole = records(&workspace);
    assert_eq!(whole.len(), 10);
    assert_eq!(told_of(&whole), expected(1).chain(expected(2)).collect());

    let report = workspace.json("out/report.json");
    assert_eq!(report["ended_by"], "blocks");
    for (case, requests, names) in
        [(0, 500, &["nginx", "other", "haproxy"][..]), (1, 300, &["nginx", "haproxy"][..])]
    {
        let case = &report["cases"][case];
        assert_eq!(case["requests"], requests);
        let subjects = case["subjects"].as_array().expect("subjects").iter();
        assert!(subjects.map(|subject| &subject["name"]).eq(names), "{case:#}");
    }
    let table = stdout(&output);
    assert!(table.contains("500 requests a trial") && table.contains("P90"), "{table}");

    // Cut off in the middle of a block, it goes on with the trial that was next.
    let text = workspace.read("out/trials.ndjson");
    let cut: String = text.lines().take(7).map(|line| format!("{line}\n")).collect();
    workspace.write("out/trials.ndjson", &cut);
    let output = workspace.run(&["run", "--resume", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let place = |record: &Value| ["block", "case", "subject"].map(|key| record[key].to_string());
    let order = |records: &[Value]| records.iter().map(place).collect::<Vec<_>>();
    assert_eq!(order(&records(&workspace)), order(&whole));
    workspace.assert_nothing_runs();
}

#[test]
fn requests_that_take_too_long_do_not_count() {
    let workspace = Workspace::new();
    let load = r#"connections = 1, requests = 1000000, duration_max = "200ms", warmup = "0s""#;
    let experiment = Experiment {
        title: "Is there an end?",
        load,
        subjects: &[("nginx", "nginx", "")],
        blocks: 1,
    };
    workspace.write("long.toml", &experiment.text());
    let output = workspace.run(&["run", "long.toml", "--out", "out"]);
    let all = records(&workspace);
    // It is tried once more.
    assert_eq!(all.len(), 2, "{}", told(&output));
    for record in &all {
        let measured = &record["outcome"]["measured"];
        let rules: Vec<&Value> = measured["invalid"]
            .as_array()
            .expect("reasons")
            .iter()
            .map(|one| &one["rule"])
            .collect();
        assert_eq!(rules, ["unfinished"], "{measured:#}");
        assert!(measured["answered"].as_u64() > Some(0), "{measured:#}");
    }
    let why = "the requests were not all answered within 0.2 s";
    assert!(workspace.read("out/report.md").contains(why), "{}", told(&output));
    workspace.assert_nothing_runs();
}
