//! The mixes in the binary: each request gets the answer that its template expects, from the origin by
//! itself, through a proxy, and from a WAF, as far as it is not left open there.

use crate::origin::Started;
use crate::support::{Workspace, stdout, told};
use serde_json::{Value, json};

/// The size of the largest deck: of every mix, each template is sent at least once.
const DECK: &str = "4500";

#[test]
fn every_request_gets_its_answer_from_the_origin() {
    let workspace = Workspace::beside_others();
    let origin = Started::new(&workspace, &["127.0.0.1:0"]);
    for mix in
        ["get", "post-10", "get-10-malicious", "post-10-malicious", "realistic", "naxsi-bench"]
    {
        let (code, result) =
            workspace.load(&[&origin.listens_on, "--mix", mix, "-c", "4", "-n", DECK]);
        assert_eq!((code, &result["unexpected"]), (Some(0), &json!(0)), "{mix}: {result}");
        let templates = result["templates"].as_array().expect("templates");
        let unsent = templates.iter().filter(|template| template["statuses"] == json!({}));
        let mut unsent: Vec<&str> =
            unsent.filter_map(|template| template["name"].as_str()).collect();
        unsent.sort_unstable();
        assert_eq!(unsent, by_the_probe_alone(mix), "{mix}");
    }
    origin.stop();
}

/// The attacks of weight 0 in the mixes that would have none: they prove that a WAF is on.
fn by_the_probe_alone(mix: &str) -> Vec<&'static str> {
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
fn a_proxy_lets_all_through_and_a_waf_blocks_what_it_has_to() {
    let workspace = Workspace::new();
    workspace.write("realistic.toml", REALISTIC);
    // Whether the trials count is up to the machine, and does not matter here.
    let output =
        workspace.command(&["run", "realistic.toml", "--seed", "5", "--out", "out"]).output();
    let output = output.expect("the binary runs");
    let mut seen = Vec::new();
    for record in workspace.read("out/trials.ndjson").lines() {
        let record: Value = serde_json::from_str(record).expect("JSON");
        let measured = &record["outcome"]["measured"];
        // It is refused, and not measured, where the probe finds one wrong answer.
        assert_eq!(measured["unexpected"], 0, "{}: {record}", told(&output));
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
    let report = workspace.command(&["report", "out"]).output().expect("the binary runs");
    assert!(stdout(&report).contains("full let attacks through: "), "{}", told(&report));
    workspace.assert_nothing_runs();
}
