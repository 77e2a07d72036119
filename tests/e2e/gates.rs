//! `--threshold`: runs that a build passes or fails by.

use crate::experiment::two_subjects;
use crate::support::{Workspace, stderr, stdout, told};

#[test]
fn gates_are_held_broken_or_not_settled() {
    let workspace = Workspace::new();
    workspace.write("two.toml", &two_subjects().replace("500ms", "300ms"));
    let run = ["run", "two.toml", "--blocks", "6", "--out", "out"];
    let held = ["--threshold", "cpu(full/nginx)>2", "--threshold", "caught(full @ browse)>=100%"];
    let output = workspace.run(&[&run[..], &held].concat());
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let table = stdout(&output);
    for gate in ["cpu(full/nginx)>2", "caught(full @ browse)>=100%"] {
        let line = table.lines().find(|line| line.starts_with(gate));
        assert!(line.is_some_and(|line| line.ends_with(" held")), "{gate}: {table}");
    }

    // The estimate lies in its own interval, which is not a single point on a real machine.
    let report = workspace.json("out/report.json");
    let subjects = report["cases"][0]["subjects"].as_array().expect("subjects");
    let full = subjects.iter().find(|subject| subject["name"] == "full").expect("full");
    let ratio = &full["prices"]["cpu_us_per_request"]["ratio"];
    let open = format!("cpu(full/nginx)<{}", ratio["estimate"]);
    for (gates, code, outcome) in [
        (vec!["cpu(full/nginx)<2"], 99, "broken"),
        (vec![open.as_str()], 75, "not settled"),
        (vec![open.as_str(), "cpu(full/nginx)<2"], 99, "broken"),
        (vec!["startup(nginx)<10s", "memory(nginx/full)<1"], 0, "held"),
    ] {
        let thresholds = gates.iter().flat_map(|gate| ["--threshold", gate]);
        let arguments: Vec<&str> = ["report", "out"].into_iter().chain(thresholds).collect();
        let output = workspace.run(&arguments);
        assert_eq!(output.status.code(), Some(code), "{gates:?}: {}", told(&output));
        assert!(stdout(&output).contains(outcome), "{gates:?}: {}", told(&output));
    }

    // What programs read stays what it is without gates.
    let output =
        workspace.run(&["report", "out", "--format", "json", "--threshold", "cpu(full/nginx)<2"]);
    assert_eq!(output.status.code(), Some(99), "{}", told(&output));
    assert_eq!(stdout(&output), workspace.read("out/report.json"));
    assert!(stderr(&output).contains("broken"), "{}", told(&output));
    workspace.assert_nothing_runs();
}
