//! `tollgate run` and `tollgate report` from end to end.

use crate::experiment::two_subjects;
use crate::support::{Workspace, flat, stdout, told};
use serde_json::Value;
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
fn the_first_look_prices_five_subjects() {
    let workspace = Workspace::new();
    let output = workspace.run(&["run", "--quick", "--seed", "7", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let table = stdout(&output);
    for word in ["What does ModSecurity cost?", "direct", "light", "full", "100 %", "out"] {
        assert!(table.contains(word), "no {word:?} in:\n{table}");
    }
    // The command that repeats the run is there to be copied: it names the program by its path,
    // however long that is, and is never broken.
    let fits = |line: &str| line.starts_with("To repeat it: ") || line.chars().count() <= 80;
    assert!(table.lines().all(fits), "{table}");

    let report = workspace.json("out/report.json");
    assert_eq!(report["seed"], 7);
    let price = |name: &str| subject(&report, name)["prices"]["cpu_us_per_request"].clone();
    let ratio = |name: &str| price(name)["ratio"]["estimate"].as_f64().expect("a ratio");
    assert!(ratio("light") > 1.5, "{report:#}");
    assert!(ratio("full") > 10.0, "{report:#}");
    assert!(ratio("gateway") > 0.1, "{report:#}");
    assert!(price("direct")["ratio"].is_null(), "no proxy has no ratio");
    assert!(price("direct")["difference"]["estimate"].as_f64().expect("a difference") < 0.0);
    assert_eq!(subject(&report, "full")["figures"]["attacks_blocked"], 1.0);
    assert_eq!(subject(&report, "full")["figures"]["harmless_blocked"], 0.0);
    assert_eq!(subject(&report, "nginx")["figures"]["attacks_blocked"], 0.0);
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
    let logs = fs::read_dir(workspace.path("out/logs")).expect("logs").count();
    assert!(logs >= 8 * (5 + 4), "an origin each and four systems a block: {logs}");
    workspace.assert_nothing_runs();

    // A report is made from the records: the same bytes whenever it is asked for.
    for (format, file) in [
        ("markdown", "report.md"),
        ("csv", "report.csv"),
        ("json", "report.json"),
        ("html", "report.html"),
    ] {
        let again = workspace.run(&["report", "out", "--format", format]);
        assert_eq!(again.status.code(), Some(0), "{}", told(&again));
        assert_eq!(stdout(&again), workspace.read(&format!("out/{file}")), "{format}");
    }
    let again = workspace.run(&["report", "out"]);
    assert!(table.starts_with(&stdout(&again)), "{}\n---\n{table}", stdout(&again));
}

#[test]
fn a_record_holds_all_that_a_trial_measured() {
    let workspace = Workspace::new();
    let output =
        workspace.run(&["run", "--quick", "--blocks", "1", "--only", "full", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    assert!(stdout(&output).contains("n too small"), "{}", stdout(&output));
    let records: Vec<Value> = workspace
        .read("out/trials.ndjson")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(records.len(), 2, "the baseline runs too");
    let measured = |record: &Value| record["outcome"]["measured"].clone();
    for record in &records {
        assert!(record["startup_ms"].as_f64() > Some(0.0));
        let record = measured(record);
        let answered = record["answered"].as_u64().expect("a count");
        assert!(answered > 0);
        let templates = record["templates"].as_array().expect("templates");
        let counted: u64 = templates
            .iter()
            .flat_map(|template| template["statuses"].as_object().expect("statuses").values())
            .map(|count| count.as_u64().expect("a count"))
            .sum();
        assert_eq!(counted, answered, "every answer is counted under its template");
        for role in ["system", "origin", "generator"] {
            let cpu = &record["cpu"][role];
            let spent = cpu["user_us"].as_u64().zip(cpu["system_us"].as_u64());
            assert!(spent.is_some_and(|(user, system)| user + system > 0), "{role}: {cpu}");
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
fn the_modsecurity_benchmark_sums_up_each_location() {
    let workspace = Workspace::new();
    let output = workspace.run(&["run", "modsecurity", "--quick", "--blocks", "2", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let table = stdout(&output);
    for word in ["requests/s", "latency ms", "worker user ms", "median", "st. dev."] {
        assert!(table.contains(word), "no {word:?} in:\n{table}");
    }
    let report = workspace.json("out/report.json");
    for (name, least) in [("light", 1.2), ("full", 8.0)] {
        let ratio = &subject(&report, name)["prices"]["cpu_us_per_request"]["ratio"];
        assert!(ratio["estimate"].as_f64() > Some(least), "{name}: {ratio}");
        assert_eq!(ratio["interval"], false, "two blocks have no interval");
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
fn without_a_proxy_as_baseline_the_proxy_has_a_price_in_microseconds() {
    let workspace = Workspace::beside_others();
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
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let answer = flat(&stdout(&output));
    let told = "direct runs nothing that costs CPU; what nginx takes is not settled (";
    assert!(answer.contains(told), "{answer}");
}

#[test]
fn a_directory_with_a_space_is_as_good_as_any() {
    let workspace = Workspace::beside_others();
    workspace.write("two.toml", &two_subjects());
    let output = workspace.run(&["run", "two.toml", "--out", "my runs/one {2};"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
}

#[test]
fn a_reader_that_has_seen_enough_does_not_stop_the_run() {
    let workspace = Workspace::new();
    workspace.write("two.toml", &two_subjects());
    let mut child = workspace.start(&["run", "two.toml", "--out", "out"]);
    drop(child.stderr.take());
    drop(child.stdout.take());
    let status = child.wait().expect("an end");
    assert_eq!(status.code(), Some(0));
    assert_eq!(workspace.read("out/trials.ndjson").lines().count(), 8);
    assert!(workspace.path("out/report.md").is_file());
}

#[test]
fn an_experiment_runs_without_root() {
    let workspace = Workspace::beside_others();
    workspace.write("two.toml", &two_subjects());
    let mut command = workspace.command_as_nobody(&["run", "two.toml", "--out", "out"]);
    let output = command.output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    workspace.assert_nothing_runs();
}
