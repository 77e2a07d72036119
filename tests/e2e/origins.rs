//! Cases with several origins, and the experiments that our own proxy is in.

use crate::support::{Workspace, flat, stderr, stdout, told};
use serde_json::Value;

/// The last case of `vitrix` in small: two origins behind each proxy, connections kept and not. It is sent
/// as often as that experiment sends it, and nothing here depends on how busy the machine is.
const TWO_ORIGINS: &str = r#"
title    = "Does each origin get its half?"
baseline = "nginx"

[[case]]
name    = "kept"
mix     = "vitrix"
only    = ["payload-500"]
origins = 2
load    = { connections = 50, requests = 1000, warmup = "50ms" }

[[case]]
name    = "close"
mix     = "vitrix"
only    = ["payload-500"]
origins = 2
load    = { connections = 50, keepalive = false, requests = 1000, warmup = "50ms" }

[[subject]]
name   = "nginx"
system = "nginx"

[[subject]]
name   = "haproxy"
system = "haproxy"

[[subject]]
name   = "gateway"
system = "tollgate-gateway"

[design]
blocks = 1

[limits]
steal       = "100%"
foreign_cpu = "100%"
halt        = "100%"
skew        = "100%"
"#;

fn records(workspace: &Workspace) -> Vec<Value> {
    let text = workspace.read("out/trials.ndjson");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn each_of_two_origins_gets_its_half_behind_each_proxy() {
    let workspace = Workspace::beside_others();
    workspace.write("two.toml", TWO_ORIGINS);
    let output = workspace.run(&["run", "two.toml", "--seed", "3", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    assert!(
        flat(&stdout(&output)).contains("closed loop, 50 connections, one request each, 2 origins"),
        "{}",
        told(&output)
    );
    let records = records(&workspace);
    assert_eq!(records.len(), 6, "two cases of three subjects");
    for record in &records {
        let measured = &record["outcome"]["measured"];
        let asked = measured["origin_requests"].as_array().expect("what each origin was asked");
        let asked: Vec<u64> = asked.iter().filter_map(Value::as_u64).collect();
        assert_eq!((asked.len(), asked.iter().sum()), (2, 1_000), "{record:#}");
        assert!(asked.iter().all(|asked| (480..=520).contains(asked)), "{record:#}");
        assert_eq!(measured["invalid"], Value::Array(vec![]), "{record:#}");
    }
    // Each has a log of its own.
    for log in ["001-kept-gateway-origin.log", "001-kept-gateway-origin-2.log"] {
        assert!(workspace.path("out/logs").join(log).is_file(), "{log}");
    }
    workspace.assert_nothing_runs();
}

#[test]
fn a_trial_in_which_one_origin_got_everything_does_not_count() {
    let workspace = Workspace::beside_others();
    workspace.write("two.toml", TWO_ORIGINS);
    workspace.copy_recipe("nginx");
    workspace.change(
        "systems/nginx/nginx.conf",
        "{% for origin in origins %}",
        "{% for origin in [origin] %}",
    );
    let run = ["run", "two.toml", "--only", "nginx", "--out", "out"];
    let output = workspace.run(&run);
    assert_eq!(output.status.code(), Some(4), "{}", told(&output));
    for record in records(&workspace) {
        let measured = &record["outcome"]["measured"];
        assert_eq!(measured["origin_requests"], serde_json::json!([1_000, 0]), "{record:#}");
        // Both are as far from an even part; the second one is told.
        let invalid = &measured["invalid"][0];
        assert_eq!(invalid["rule"], "uneven", "{record:#}");
        assert_eq!([&invalid["percent"], &invalid["even_percent"]], [0.0, 50.0]);
    }
    let told = flat(&stdout(&output));
    assert!(told.contains("requests were not spread evenly over the origins"), "{told}");
    workspace.assert_nothing_runs();
}

#[test]
fn where_the_baseline_is_not_installed_another_subject_takes_its_place() {
    let workspace = Workspace::beside_others();
    workspace.copy_recipe("nginx");
    workspace.change(
        "systems/nginx/system.toml",
        "program = \"nginx\"",
        "program = \"no-such-nginx\"",
    );
    let run =
        ["run", "--quick", "--blocks", "1", "--only", "gateway", "--seed", "7", "--out", "out"];
    // Whether the trials count is of no interest here.
    let output = workspace.command(&run).output().expect("the binary runs");
    let told = flat(&stderr(&output));
    assert!(
        told.contains("nginx is the baseline, and not here (no program `no-such-nginx`"),
        "{told}"
    );
    assert!(told.contains("prices are over direct"), "{told}");
    let report = workspace.json("out/report.json");
    assert_eq!(report["baseline"], "direct");
    let names = report["cases"][0]["subjects"].as_array().expect("subjects").iter();
    let names: Vec<&Value> = names.map(|subject| &subject["name"]).collect();
    assert_eq!(names, ["direct", "gateway"]);
    // The command that repeats it says so, whatever is installed by then.
    let command = report["command"].as_str().expect("a command");
    assert!(
        command.ends_with(
            "run first-look --seed 7 --quick --blocks 1 --only gateway --baseline direct"
        ),
        "{command}"
    );
    workspace.assert_nothing_runs();
}
