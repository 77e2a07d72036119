//! `tollgate run`: prices, records, cases, several origins.

use crate::support::{
    Experiment, NO_LIMITS, Workspace, flat, show, stderr, stdout, two_subjects, without_limits,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;

fn subject<'a>(report: &'a Value, name: &str) -> &'a Value {
    let subjects = report["cases"][0]["subjects"].as_array().expect("subjects");
    subjects.iter().find(|subject| subject["name"] == name).expect("the subject")
}

fn mix_text(manifest: &Value) -> String {
    let mixes = manifest["experiment"]["mixes"].as_object().expect("mixes");
    let texts: Vec<&str> = mixes.values().map(|text| text.as_str().expect("a text")).collect();
    texts.concat()
}

#[test]
fn first_look_prices_six_subjects() {
    // A response of `full` that takes longer than half of a window makes its trial invalid.
    let workspace = Workspace::exclusive();
    let run = without_limits(&["run", "--quick", "--blocks", "6", "--seed", "7", "--out", "out"]);
    let output = workspace.run(&run);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let table = stdout(&output);
    for word in ["What does ModSecurity cost?", "direct", "light", "full", "100 %", "out"] {
        assert!(table.contains(word), "no {word:?} in:\n{table}");
    }
    // The command that repeats the run is never wrapped, so that it can be copied.
    let fits = |line: &str| line.starts_with("To repeat it: ") || line.chars().count() <= 80;
    assert!(table.lines().all(fits), "{table}");

    let report = workspace.json("out/report.json");
    assert_eq!(report["seed"], 7);
    let price = |name: &str| subject(&report, name)["prices"]["cpu_us_per_request"].clone();
    let ratio = |name: &str| price(name)["ratio"]["estimate"].as_f64().expect("a ratio");
    assert!(ratio("light") > 1.5, "{report:#}");
    assert!(ratio("full") > 10.0, "{report:#}");
    assert!(ratio("gateway") < ratio("light"), "{report:#}");
    assert!(ratio("waf") < ratio("full"), "{report:#}");
    assert!(price("direct")["ratio"].is_null(), "`direct` has no ratio");
    assert!(price("direct")["difference"]["estimate"].as_f64().expect("a difference") < 0.0);
    for firewall in ["full", "waf"] {
        assert_eq!(subject(&report, firewall)["figures"]["detection_rate"], 1.0);
        assert_eq!(subject(&report, firewall)["figures"]["false_positive_rate"], 0.0);
    }
    assert_eq!(subject(&report, "nginx")["figures"]["detection_rate"], 0.0);
    assert!(subject(&report, "full")["figures"]["memory_peak_bytes"].as_f64() > Some(10e6));

    let manifest = workspace.json("out/manifest.json");
    let nproc = std::process::Command::new("nproc").arg("--all").output().expect("nproc");
    assert_eq!(manifest["environment"]["cpus"].to_string(), stdout(&nproc).trim());
    let mix = mix_text(&manifest);
    assert!(mix.contains("payload=100"), "{mix}");
    assert_eq!(manifest["experiment"]["name"], "first-look");
    let full = manifest["experiment"]["subjects"][3].clone();
    assert_eq!(full["state"]["state"], "present");
    assert!(full["state"]["referenced"].as_object().expect("rule files").len() > 20);
    let config = workspace.read("out/configs/full/nginx.conf");
    assert!(config.contains("modsecurity_rules_file"), "{config}");
    assert!(!workspace.path("out/configs/full/tmp-body").exists());
    let logs = fs::read_dir(workspace.path("out/logs")).expect("logs").count();
    // In each block, one of each server and one of each subject's origin.
    assert!(logs >= 6 * (5 + 6), "{logs} logs");
    workspace.assert_nothing_runs();

    // Reports of the same records have the same bytes.
    for (format, file) in [
        ("markdown", "report.md"),
        ("csv", "report.csv"),
        ("json", "report.json"),
        ("html", "report.html"),
    ] {
        let again = workspace.run(&["report", "out", "--format", format]);
        assert_eq!(again.status.code(), Some(0), "{}", show(&again));
        assert_eq!(stdout(&again), workspace.read(&format!("out/{file}")), "{format}");
    }
    let again = workspace.run(&["report", "out"]);
    assert!(table.starts_with(&stdout(&again)), "{}\n---\n{table}", stdout(&again));
}

/// A case of each protocol for these subjects.
fn protocols(subjects: &str) -> String {
    let case = |(protocol, load): (&str, &str)| {
        format!(
            "[[case]]\nname = \"{protocol}\"\nmix = \"get\"\nprotocol = \"{protocol}\"\n\
             load = {{ connections = 4, duration = \"400ms\", warmup = \"50ms\", rate = 200, busy_poll = false{load} }}\n"
        )
    };
    let cases: String =
        [("h1", ""), ("h2", ", streams = 10"), ("https", ""), ("https-h2", ", streams = 10")]
            .map(case)
            .concat();
    let subject = |name: &str| format!("[[subject]]\nname = \"{name}\"\nsystem = \"{name}\"\n");
    let subjects: String = subjects.split(' ').map(subject).collect();
    let resumed = "[[case]]\nname = \"resumed\"\nmix = \"get\"\nprotocol = \"https\"\n\
        load = { connections = 4, duration = \"400ms\", rate = 200, busy_poll = false, keepalive = false, tls_resume = true }\n";
    format!(
        "title = \"x\"\nbaseline = \"direct\"\n{cases}{resumed}{subjects}[design]\nblocks = 1\n{NO_LIMITS}"
    )
}

#[test]
fn every_protocol_reaches_the_systems_that_offer_it() {
    let workspace = Workspace::long();
    workspace.write(
        "protocols.toml",
        &protocols("direct nginx haproxy apache caddy envoy traefik tollgate-gateway"),
    );
    let run = without_limits(&["run", "protocols.toml", "--out", "out"]);
    let output = workspace.run(&run);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let table = flat(&stdout(&output));
    for words in [
        "HTTP/2 in the clear, 10 streams each",
        "HTTP/1.1 over TLS",
        "HTTP/2 over TLS",
        "resumed sessions",
    ] {
        assert!(table.contains(words), "no {words:?} in:\n{table}");
    }
    let records = workspace.records();
    assert_eq!(records.len(), 5 * 8, "{}", show(&output));
    for record in &records {
        let measurement = &record["outcome"]["measured"];
        assert!(measurement["responses"].as_u64() > Some(0), "{record:#}");
        assert_eq!(measurement["unexpected"], 0, "{record:#}");
    }
    let manifest = workspace.json("out/manifest.json");
    let cases = manifest["experiment"]["cases"].as_array().expect("cases");
    let loads: Vec<Value> = cases
        .iter()
        .map(|case| json!([case["load"]["clients"]["protocol"], case["load"]["tls"]]))
        .collect();
    let (http1, http2) =
        (json!({ "http1": { "pipeline": 1 } }), json!({ "http2": { "streams": 10 } }));
    assert_eq!(
        loads,
        [
            json!([http1, "off"]),
            json!([http2, "off"]),
            json!([http1, "new"]),
            json!([http2, "new"]),
            json!(["http1_close", "resumed"])
        ]
    );
    let certificate = workspace.read("out/configs/nginx/certificate.pem");
    assert!(certificate.contains("PRIVATE KEY"), "{certificate}");
    workspace.assert_nothing_runs();
}

#[test]
fn record_is_complete() {
    let workspace = Workspace::exclusive();
    let run = ["run", "--quick", "--blocks", "1", "--only", "full", "--out", "out"];
    let output = workspace.run(&without_limits(&run));
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    assert!(stdout(&output).contains("n too small"), "{}", stdout(&output));
    let records = workspace.records();
    let measured = |record: &Value| record["outcome"]["measured"].clone();
    // The baseline runs too. A disturbed trial is repeated.
    let is_valid = |record: &&Value| measured(record)["invalid"] == Value::Array(vec![]);
    assert_eq!(records.iter().filter(is_valid).count(), 2, "{}", show(&output));
    for record in &records {
        assert!(record["startup_ms"].as_f64() > Some(0.0));
        let record = measured(record);
        let responses = record["responses"].as_u64().expect("a count");
        assert!(responses > 0);
        let templates = record["templates"].as_array().expect("templates");
        let counted: u64 = templates
            .iter()
            .flat_map(|template| template["statuses"].as_object().expect("statuses").values())
            .map(|count| count.as_u64().expect("a count"))
            .sum();
        assert_eq!(counted, responses, "every response is counted for its template");
        for role in ["system", "origin", "generator"] {
            let cpu = &record["cpu"][role];
            let spent = cpu["user_us"].as_u64().zip(cpu["system_us"].as_u64());
            assert!(spent.is_some_and(|(user, system)| user + system > 0), "{role}: {cpu}");
        }
        // Generator and origin poll by default.
        for (role, polled) in [("generator", "generator_polled_us"), ("origin", "origin_polled_us")]
        {
            let (cpu, polled_us) = (&record["cpu"][role], record["cpu"][polled].as_u64());
            let spent_us = cpu["user_us"].as_u64().zip(cpu["system_us"].as_u64());
            let spent_us = spent_us.map(|(user, system)| user + system);
            assert!(polled_us > Some(0) && polled_us <= spent_us, "{role}: {}", record["cpu"]);
        }
        assert!(record["memory_peak_bytes"].as_u64() > Some(1_000_000));
        assert!(
            !record["latency"]["histogram_v2_base64"].as_str().expect("a histogram").is_empty()
        );
        assert!(record["noise"]["steal_percent"].is_number());
        assert!(record["bottleneck"].is_string());
        assert_eq!(record["unexpected"], 0);
    }
    let full = records.iter().find(|record| record["subject"] == "full").expect("full");
    let full = measured(full);
    let templates = full["templates"].as_array().expect("templates");
    let attacks: Vec<&Value> =
        templates.iter().filter(|template| template["class"] == "malicious").collect();
    assert_eq!(attacks.len(), 4);
    for attack in attacks {
        let statuses = attack["statuses"].as_object().expect("statuses");
        assert!(statuses.keys().all(|status| status == "403"), "{attack}");
    }
}

#[test]
fn modsecurity_benchmark_reports_each_location() {
    let workspace = Workspace::quiet();
    let run = ["run", "modsecurity", "--quick", "--blocks", "2", "--out", "out"];
    let output = workspace.run(&without_limits(&run));
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let table = stdout(&output);
    for word in ["requests/s", "latency ms", "worker user ms", "median", "st. dev."] {
        assert!(table.contains(word), "no {word:?} in:\n{table}");
    }
    let report = workspace.json("out/report.json");
    for (name, least) in [("light", 1.2), ("full", 8.0)] {
        let ratio = &subject(&report, name)["prices"]["cpu_us_per_request"]["ratio"];
        assert!(ratio["estimate"].as_f64() > Some(least), "{name}: {ratio}");
        assert_eq!(ratio["interval"], false, "two blocks give no interval");
    }
    let manifest = workspace.json("out/manifest.json");
    let mix = mix_text(&manifest);
    for header in [
        "Host",
        "User-Agent",
        "Accept",
        "Accept-Language",
        "Accept-Encoding",
        "Accept-Charset",
        "Keep-Alive",
        "Connection",
        "Cookie",
        "Pragma",
        "Cache-Control",
    ] {
        assert!(mix.contains(&format!("\"{header}: ")), "no {header} in {mix}");
    }
    let config = workspace.read("out/configs/full/nginx.conf");
    for location in ["/modsec-off/", "/modsec-light/", "/modsec-full/"] {
        assert!(config.contains(&format!("location {location} ")), "{config}");
    }
}

#[test]
fn proxy_over_direct_baseline_has_difference_only() {
    let workspace = Workspace::concurrent();
    workspace.write(
        "two.toml",
        &two_subjects().replace("baseline = \"nginx\"", "baseline = \"direct\""),
    );
    workspace.change(
        "two.toml",
        "[design]",
        "[[subject]]\nname = \"direct\"\nsystem = \"direct\"\n[design]",
    );
    let output = workspace.run(&["run", "two.toml", "--only", "nginx", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let table = flat(&stdout(&output));
    let message = "direct uses no CPU; nginx costs ";
    assert!(table.contains(message), "{table}");
}

#[test]
fn directory_name_may_have_spaces() {
    let workspace = Workspace::concurrent().with_two_subjects();
    let output = workspace.run(&["run", "two.toml", "--out", "my runs/one {2};"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
}

#[test]
fn closed_output_does_not_stop_run() {
    let workspace = Workspace::concurrent().with_two_subjects();
    let mut child = workspace.start(&["run", "two.toml", "--out", "out"]);
    drop(child.stderr.take());
    drop(child.stdout.take());
    let status = child.wait().expect("an end");
    assert_eq!(status.code(), Some(0));
    assert_eq!(workspace.read("out/trials.ndjson").lines().count(), 8);
    assert!(workspace.path("out/report.md").is_file());
}

#[test]
fn runs_without_root() {
    let workspace = Workspace::concurrent().with_two_subjects();
    let mut command = workspace.unprivileged_command(&["run", "two.toml", "--out", "out"]);
    let output = command.output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    workspace.assert_nothing_runs();
}

/// Two cases of three subjects: 500 requests for all, 300 for the baseline and the last.
fn limited_cases() -> String {
    let experiment = Experiment {
        title: "Does it stop after the last request?",
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

/// Returns block, case, subject and number of responses of each record.
fn summaries(records: &[Value]) -> BTreeSet<String> {
    let key = |record: &Value| {
        let measured = &record["outcome"]["measured"];
        assert_eq!(measured["in_flight"], 0, "{record:#}");
        let parts = [&record["block"], &record["case"], &record["subject"], &measured["responses"]];
        parts.map(ToString::to_string).join(" ")
    };
    records.iter().map(key).collect()
}

#[test]
fn case_limits_requests_and_subjects() {
    let workspace = Workspace::concurrent();
    workspace.write("counted.toml", &limited_cases());
    let output = workspace.run(&["run", "counted.toml", "--seed", "3", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let expected = |block: u32| {
        let browse = ["nginx", "other", "haproxy"]
            .map(|subject| format!("{block} \"browse\" \"{subject}\" 500"));
        let short =
            ["nginx", "haproxy"].map(|subject| format!("{block} \"short\" \"{subject}\" 300"));
        browse.into_iter().chain(short)
    };
    let whole = workspace.records();
    assert_eq!(whole.len(), 10);
    assert_eq!(summaries(&whole), expected(1).chain(expected(2)).collect());

    let report = workspace.json("out/report.json");
    assert_eq!(report["ended_by"], "blocks");
    for (case, requests, names) in
        [(0, 500, &["nginx", "other", "haproxy"][..]), (1, 300, &["nginx", "haproxy"][..])]
    {
        let case = &report["cases"][case];
        assert_eq!(case["load"]["window"]["requests"]["requests"], requests);
        let subjects = case["subjects"].as_array().expect("subjects").iter();
        assert!(subjects.map(|subject| &subject["name"]).eq(names), "{case:#}");
    }
    let table = stdout(&output);
    assert!(table.contains("500 requests per trial") && table.contains("P90"), "{table}");

    // A run that ended in the middle of a block resumes with the next trial.
    let text = workspace.read("out/trials.ndjson");
    let cut: String = text.lines().take(7).map(|line| format!("{line}\n")).collect();
    workspace.write("out/trials.ndjson", &cut);
    let output = workspace.run(&["run", "--resume", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let place = |record: &Value| ["block", "case", "subject"].map(|key| record[key].to_string());
    let order = |records: &[Value]| records.iter().map(place).collect::<Vec<_>>();
    assert_eq!(order(&workspace.records()), order(&whole));
    workspace.assert_nothing_runs();
}

#[test]
fn trial_with_unfinished_requests_is_invalid() {
    let workspace = Workspace::quiet();
    let load = r#"connections = 1, requests = 1000000, duration_max = "200ms", warmup = "0s""#;
    let experiment =
        Experiment { title: "Does it end?", load, subjects: &[("nginx", "nginx", "")], blocks: 1 };
    workspace.write("long.toml", &experiment.text());
    let output = workspace.run(&["run", "long.toml", "--out", "out"]);
    let all = workspace.records();
    // The trial is repeated once in its block and once in an extra block.
    assert_eq!(all.len(), 3, "{}", show(&output));
    for record in &all {
        let measured = &record["outcome"]["measured"];
        let rules: Vec<&Value> = measured["invalid"]
            .as_array()
            .expect("reasons")
            .iter()
            .map(|one| &one["rule"])
            .collect();
        assert_eq!(rules, ["unfinished"], "{measured:#}");
        assert!(measured["responses"].as_u64() > Some(0), "{measured:#}");
    }
    let why = "not all requests finished within 0.2 s";
    assert!(workspace.read("out/report.md").contains(why), "{}", show(&output));
    workspace.assert_nothing_runs();
}

/// A small version of the last case of `vitrix`: two origins, with and without keep-alive.
const TWO_ORIGINS: &str = r#"
title    = "Does each origin get half of the requests?"
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
"#;

#[test]
fn proxies_balance_two_origins() {
    let workspace = Workspace::concurrent();
    workspace.write("two.toml", &format!("{TWO_ORIGINS}{NO_LIMITS}"));
    let output = workspace.run(&["run", "two.toml", "--seed", "3", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    assert!(
        flat(&stdout(&output))
            .contains("closed loop, 50 connections, one request per connection, 2 origins"),
        "{}",
        show(&output)
    );
    let records = workspace.records();
    assert_eq!(records.len(), 6, "two cases of three subjects");
    for record in &records {
        let measured = &record["outcome"]["measured"];
        let counts = measured["origin_requests"].as_array().expect("counts");
        let counts: Vec<u64> = counts.iter().filter_map(Value::as_u64).collect();
        assert_eq!((counts.len(), counts.iter().sum()), (2, 1_000), "{record:#}");
        assert!(counts.iter().all(|count| (480..=520).contains(count)), "{record:#}");
        assert_eq!(measured["invalid"], Value::Array(vec![]), "{record:#}");
    }
    // Each origin has its own log.
    for log in ["001-kept-gateway-origin.log", "001-kept-gateway-origin-2.log"] {
        assert!(workspace.path("out/logs").join(log).is_file(), "{log}");
    }
    workspace.assert_nothing_runs();
}

#[test]
fn trial_with_unbalanced_origins_is_invalid() {
    let workspace = Workspace::concurrent();
    workspace.write("two.toml", &format!("{TWO_ORIGINS}{NO_LIMITS}"));
    workspace.copy_recipe("nginx");
    workspace.change(
        "systems/nginx/nginx.conf",
        "{% for origin in origins %}",
        "{% for origin in [origin] %}",
    );
    let run = ["run", "two.toml", "--only", "nginx", "--out", "out"];
    let output = workspace.run(&run);
    assert_eq!(output.status.code(), Some(4), "{}", show(&output));
    for record in workspace.records() {
        let measured = &record["outcome"]["measured"];
        assert_eq!(measured["origin_requests"], serde_json::json!([1_000, 0]), "{record:#}");
        // Both deviate equally; the second one is reported.
        let invalid = &measured["invalid"][0];
        assert_eq!(invalid["rule"], "imbalance", "{record:#}");
        assert_eq!([&invalid["percent"], &invalid["even_percent"]], [0.0, 50.0]);
    }
    let message = flat(&stdout(&output));
    assert!(message.contains("requests were not balanced over the origins"), "{message}");
    workspace.assert_nothing_runs();
}

#[test]
fn missing_baseline_without_fallback_ends_the_run_at_its_start() {
    let workspace = Workspace::concurrent();
    workspace.copy_recipe("nginx");
    let (program, missing) = ("program = \"nginx\"", "program = \"no-such-nginx\"");
    workspace.change("systems/nginx/system.toml", program, missing);
    workspace.write("two.toml", &two_subjects());
    let output = workspace.command(&["run", "two.toml", "--out", "out"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(4), "{}", show(&output));
    let message = "the baseline nginx is not installed: no program `no-such-nginx`";
    assert!(flat(&stderr(&output)).contains(message), "{}", show(&output));
    assert!(!workspace.path("out").exists());
}

#[test]
fn busy_machine_ends_run_after_first_block_with_reports() {
    let workspace = Workspace::long().with_two_subjects();
    // Runs for some ten milliseconds, a tick of the accounting, several times in each trial.
    let mut other = std::process::Command::new("sh");
    let busy =
        ["-c", "while sleep 0.05; do i=0; while [ $i -lt 10000 ]; do i=$((i+1)); done; done"];
    let mut other = other.args(busy).spawn().expect("a shell");
    let run = ["run", "two.toml", "--only", "nginx", "--limit", "background_cpu=0.001%"];
    let waiting = workspace.command(&[&run[..], &["--out", "out"]].concat()).output();
    let limited = [&run[..], &["--blocks", "2", "--budget", "1s", "--out", "limited"]].concat();
    let limited = workspace.command(&limited).output();
    other.kill().and_then(|()| other.wait()).expect("the shell ends");
    let (waiting, limited) = (waiting.expect("the binary runs"), limited.expect("the binary runs"));
    assert_eq!(waiting.status.code(), Some(4), "{}", show(&waiting));
    let message = flat(&stderr(&waiting));
    assert!(message.contains("waiting up to 60 s for a quiet machine"), "{message}");
    assert!(message.contains("no trial of the first block is valid: other processes"), "{message}");
    assert!(message.contains("run --resume out` continues the run"), "{message}");
    assert!(workspace.json("out/report.json")["cases"].is_array());
    // A budget ends the run anyway.
    assert_eq!(limited.status.code(), Some(4), "{}", show(&limited));
    assert!(!stderr(&limited).contains("waiting up to"), "{}", show(&limited));
    workspace.assert_nothing_runs();
}

#[test]
fn missing_baseline_is_replaced() {
    let workspace = Workspace::concurrent();
    workspace.copy_recipe("nginx");
    workspace.change(
        "systems/nginx/system.toml",
        "program = \"nginx\"",
        "program = \"no-such-nginx\"",
    );
    let run =
        ["run", "--quick", "--blocks", "1", "--only", "gateway", "--seed", "7", "--out", "out"];
    let output = workspace.command(&without_limits(&run)).output().expect("the binary runs");
    let message = flat(&stderr(&output));
    assert!(
        message.contains("the baseline nginx is not installed (no program `no-such-nginx`"),
        "{message}"
    );
    assert!(message.contains("prices are over direct"), "{message}");
    let report = workspace.json("out/report.json");
    assert_eq!(report["baseline"], "direct");
    let names = report["cases"][0]["subjects"].as_array().expect("subjects").iter();
    let names: Vec<&Value> = names.map(|subject| &subject["name"]).collect();
    assert_eq!(names, ["direct", "gateway"]);
    // The command that repeats the run names the new baseline.
    let command = report["command"].as_str().expect("a command");
    assert!(command.contains(" run --quick --blocks 1 --only gateway "), "{command}");
    assert!(command.ends_with(" --seed 7 --baseline direct first-look"), "{command}");
    workspace.assert_nothing_runs();
}
