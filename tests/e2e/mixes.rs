//! The built-in mixes: requests get the expected responses from the origin, a proxy and a WAF.

use crate::origin::OriginProcess;
use crate::support::{NO_LIMITS, Workspace, show, stdout};
use serde_json::json;

/// Requests that send each template of every mix at least once.
const REQUESTS: &str = "4500";

#[test]
fn origin_gives_expected_responses_to_mixes() {
    let workspace = Workspace::concurrent();
    let origin = OriginProcess::start(&workspace, &["127.0.0.1:0"]);
    for mix in
        ["get", "post-10", "get-10-malicious", "post-10-malicious", "realistic", "naxsi-bench"]
    {
        let (code, result) =
            workspace.load(&[&origin.listens_on, "--mix", mix, "-c", "4", "-n", REQUESTS]);
        assert_eq!((code, &result["unexpected"]), (Some(0), &json!(0)), "{mix}: {result}");
        let templates = result["templates"].as_array().expect("templates");
        let unsent = templates.iter().filter(|template| template["statuses"] == json!({}));
        let mut unsent: Vec<&str> =
            unsent.filter_map(|template| template["name"].as_str()).collect();
        unsent.sort_unstable();
        assert_eq!(unsent, probe_only(mix), "{mix}");
    }
    origin.stop();
}

/// Templates of weight 0, which are sent by the probe only.
fn probe_only(mix: &str) -> Vec<&'static str> {
    let in_targets = [
        "CVE-2022-46169",
        "sql-tautology",
        "xss-script",
        "traversal-dots",
        "include-passwd",
        "include-url",
        "command-semicolon",
        "code-php",
        "log4shell-argument",
        "scanner-sqlmap",
    ];
    let in_bodies = [
        "CVE-2018-7600",
        "form-sql",
        "json-sql",
        "form-xss",
        "json-xss",
        "form-command",
        "json-log4shell",
    ];
    let mut names: Vec<&str> = match mix {
        "get" => in_targets.to_vec(),
        "post-10" => in_targets.into_iter().chain(in_bodies).collect(),
        "naxsi-bench" => vec!["sql-injection", "xss", "remote-inclusion"],
        _ => Vec::new(),
    };
    names.sort_unstable();
    names
}

const REALISTIC: &str = r#"
title    = "What is blocked of a realistic mix?"
baseline = "nginx"

[[case]]
name = "realistic"
mix  = "realistic"
load = { connections = 4, duration = "2s", warmup = "0s" }

[[subject]]
name   = "nginx"
system = "nginx"

[[subject]]
name   = "full"
system = "nginx-modsecurity"
with   = { rules = "crs", crs = "packaged" }

[design]
blocks = 1
"#;

#[test]
fn proxy_passes_and_waf_blocks_realistic_mix() {
    let workspace = Workspace::quiet();
    workspace.write("realistic.toml", &format!("{REALISTIC}{NO_LIMITS}"));
    let output = workspace.run(&["run", "realistic.toml", "--seed", "5", "--out", "out"]);
    let mut seen = Vec::new();
    for record in workspace.records() {
        let measured = &record["outcome"]["measured"];
        // One unexpected response to the probe would refuse the subject.
        assert_eq!(measured["unexpected"], 0, "{}: {record}", show(&output));
        let templates = measured["templates"].as_array().expect("templates");
        let blocked = |class: &str| -> u64 {
            let some = templates.iter().filter(|template| template["class"] == class);
            some.filter_map(|template| template["blocked"].as_u64()).sum()
        };
        if record["subject"] == "full" {
            assert!(blocked("malicious") > 0, "{record}");
            assert!(templates.iter().all(|template| template["family"].is_string()), "{record}");
        } else {
            assert_eq!((blocked("malicious"), blocked("benign")), (0, 0), "{record}");
        }
        seen.push(record["subject"].as_str().expect("a name").to_owned());
    }
    assert!(["nginx", "full"].iter().all(|name| seen.iter().any(|one| one == name)), "{seen:?}");
    let report = workspace.run(&["report", "out"]);
    assert!(stdout(&report).contains("full passed attacks: "), "{}", show(&report));
    workspace.assert_nothing_runs();
}
