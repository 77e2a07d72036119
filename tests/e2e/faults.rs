//! Subjects that are missing, refused, rejected or dead. Each is reported, and the other subjects run.

use crate::support::{Workspace, flat, show, stderr, stdout};
use serde_json::Value;
use std::net::TcpListener;
use std::process::Command;

fn subject_status(workspace: &Workspace, name: &str) -> (String, String) {
    let report = workspace.json("out/report.json");
    let subjects = report["cases"][0]["subjects"].as_array().expect("subjects").clone();
    let subject = subjects.iter().find(|subject| subject["name"] == name).expect("the subject");
    let kind = subject["status"].as_str().expect("a standing").to_owned();
    (kind, subject["reason"].to_string().trim_matches('"').replace("\\\"", "\""))
}

fn workspace() -> Workspace {
    Workspace::concurrent().with_two_subjects()
}

#[test]
fn waf_without_rules_is_refused() {
    let workspace = workspace();
    workspace.copy_recipe("nginx-modsecurity");
    let config = "systems/nginx-modsecurity/modsecurity-full.conf";
    workspace.change(config, "Include {{ path }}", "# {{ path }}");
    let output = workspace.run(&["run", "two.toml", "--out", "out"]);
    assert_eq!(output.status.code(), Some(4), "{}", show(&output));
    let refused = "refused: 4 of 4 attacks passed";
    assert!(flat(&stdout(&output)).contains(&format!("full was {refused}")), "{}", show(&output));
    assert!(
        stderr(&output).contains("full is skipped in the rest of the run"),
        "{}",
        show(&output)
    );
    let expected = ("refused".to_owned(), "4 of 4 attacks passed".to_owned());
    assert_eq!(subject_status(&workspace, "full"), expected);
    assert_eq!(subject_status(&workspace, "nginx").0, "baseline");
    workspace.assert_nothing_runs();
}

#[test]
fn proxy_errors_are_neither_blocked_nor_passed() {
    let workspace = workspace();
    workspace.copy_recipe("nginx");
    // The proxy passes the probe and responds to most of the load with 502.
    let limit = "limit_req_zone $binary_remote_addr zone=all:1m rate=10r/s;
    limit_req zone=all burst=10 nodelay;
    limit_req_status 502;
    access_log off;";
    workspace.change("systems/nginx/nginx.conf", "access_log off;", limit);
    let output = workspace.run(&["run", "two.toml", "--blocks", "1", "--out", "out"]);
    let note = "nginx sent ";
    let rest = "responses that count neither as blocked nor as passed";
    let message = flat(&stdout(&output));
    assert!(message.contains(note) && message.contains(rest), "{}", show(&output));
    let report = workspace.json("out/report.json");
    let subjects = report["cases"][0]["subjects"].as_array().expect("subjects");
    let nginx = subjects.iter().find(|subject| subject["name"] == "nginx").expect("nginx");
    let records: Vec<Value> = workspace
        .read("out/trials.ndjson")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .filter(|record: &Value| record["subject"] == "nginx")
        .collect();
    for template in nginx["templates"].as_array().expect("templates") {
        let of_status = |status: &str| -> u64 {
            let templates = records.iter().flat_map(|record| {
                record["outcome"]["measured"]["templates"].as_array().expect("templates")
            });
            let of_name = templates.filter(|one| one["name"] == template["name"]);
            of_name.map(|one| one["statuses"][status].as_u64().unwrap_or(0)).sum()
        };
        let (passed, failed) = (of_status("200"), of_status("502"));
        assert!(failed > passed, "{template}: {}", show(&output));
        let count = |name: &str| template[name].as_u64().expect("a count");
        assert_eq!(
            [count("blocked"), count("passed"), count("other"), count("responses")],
            [0, passed, failed, passed + failed],
            "{template}"
        );
    }
    workspace.assert_nothing_runs();
}

#[test]
fn waf_in_detection_mode_is_refused() {
    let workspace = workspace();
    workspace.copy_recipe("nginx-modsecurity");
    let config = "systems/nginx-modsecurity/modsecurity-light.conf";
    workspace.change(config, "SecRuleEngine On", "SecRuleEngine DetectionOnly");
    let output = workspace.run(&["run", "two.toml", "--blocks", "1", "--out", "out"]);
    assert_eq!(subject_status(&workspace, "full").0, "refused", "{}", show(&output));
}

#[test]
fn missing_system_is_skipped_with_install_command() {
    let workspace = workspace();
    workspace.copy_recipe("nginx-modsecurity");
    let recipe = "systems/nginx-modsecurity/system.toml";
    workspace.change(recipe, "ngx_http_modsecurity_module.so", "ngx_http_no_such_module.so");
    let output = workspace.run(&["run", "two.toml", "--blocks", "1", "--out", "out"]);
    let line = "apt-get install -y nginx libnginx-mod-http-modsecurity modsecurity-crs";
    assert!(stderr(&output).contains(line), "{}", show(&output));
    assert!(stdout(&output).contains(line), "{}", show(&output));
    assert_eq!(subject_status(&workspace, "full").0, "skipped");
    assert_eq!(subject_status(&workspace, "nginx").0, "baseline");
    assert_eq!(output.status.code(), Some(4), "a baseline has no price");
}

#[test]
fn other_rule_set_version_is_skipped() {
    let workspace = workspace();
    workspace.copy_recipe("nginx-modsecurity");
    let recipe = "systems/nginx-modsecurity/system.toml";
    workspace.change(recipe, "contains = \"OWASP_CRS/3.3.4\"", "contains = \"OWASP_CRS/9.9.9\"");
    workspace.change("two.toml", "crs = \"packaged\"", "crs = \"3.3.4\"");
    let output = workspace.run(&["run", "two.toml", "--blocks", "1", "--out", "out"]);
    let (status, reason) = subject_status(&workspace, "full");
    assert_eq!(status, "skipped", "{}", show(&output));
    assert!(reason.contains("OWASP_CRS/9.9.9"), "{reason}");
}

#[test]
fn rejected_config_is_reported_with_nginx_error() {
    let workspace = workspace();
    workspace.copy_recipe("nginx-modsecurity");
    let config = "systems/nginx-modsecurity/nginx.conf";
    workspace.change(
        config,
        "modsecurity {{ engine }};",
        "modsecurity {{ engine }}; no_such_directive on;",
    );
    let output = workspace.run(&["run", "two.toml", "--out", "out"]);
    let (status, reason) = subject_status(&workspace, "full");
    assert_eq!(status, "failed", "{}", show(&output));
    for word in
        ["unknown directive \"no_such_directive\"", "configs/full/nginx.conf:", "`nginx` ended"]
    {
        assert!(reason.contains(word), "no {word:?} in {reason}");
        assert!(stderr(&output).contains(word), "no {word:?} in {}", stderr(&output));
    }
    assert_eq!(output.status.code(), Some(4), "{}", show(&output));
}

#[test]
fn template_error_names_file_and_variable() {
    let workspace = workspace();
    workspace.copy_recipe("nginx-modsecurity");
    let config = "systems/nginx-modsecurity/nginx.conf";
    workspace.change(config, "modsecurity {{ engine }};", "modsecurity {{ enginee }};");
    let output = workspace.run(&["run", "two.toml", "--blocks", "1", "--out", "out"]);
    assert_eq!(output.status.code(), Some(4), "{}", show(&output));
    let message = stderr(&output);
    for word in ["enginee", "nginx.conf", "nginx-modsecurity", "only the baseline"] {
        assert!(message.contains(word), "no {word:?} in {message}");
    }
}

#[test]
fn port_in_use_is_reported() {
    let workspace = workspace();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    workspace.copy_recipe("nginx-modsecurity");
    workspace.copy_recipe("nginx");
    // Only the subject `full` uses the port; other subjects keep the original template.
    workspace.change(
        "systems/nginx-modsecurity/nginx.conf",
        "nginx/nginx.conf",
        "nginx/taken.conf",
    );
    let config = workspace.read("systems/nginx/nginx.conf");
    workspace.write("systems/nginx/taken.conf", &config.replace("{{ listen.address }}", &address));
    let output = workspace.run(&["run", "two.toml", "--blocks", "1", "--out", "out"]);
    let (status, reason) = subject_status(&workspace, "full");
    assert_eq!(status, "failed", "{}", show(&output));
    assert!(stderr(&output).contains("Address already in use"), "{reason}\n{}", show(&output));
    assert_eq!(subject_status(&workspace, "nginx").0, "baseline");
    drop(taken);
    workspace.assert_nothing_runs();
}

#[test]
fn trial_of_crashed_system_is_invalid() {
    let workspace = workspace();
    // The server responds to the probe and ends during the measurement.
    workspace.copy_recipe("nginx-modsecurity");
    let recipe = "systems/nginx-modsecurity/system.toml";
    let from = r#"command = ["{{ programs.nginx }}", "#;
    let to = r#"command = ["timeout", "--signal=KILL", "1.5", "{{ programs.nginx }}", "#;
    workspace.change(recipe, from, to);
    workspace.change("two.toml", "500ms", "3s");
    let output =
        workspace.run(&["run", "two.toml", "--blocks", "1", "--only", "full", "--out", "out"]);
    let table = flat(&stdout(&output));
    assert!(
        table.contains("`nginx` ended (signal: 9 (SIGKILL)) during the measurement"),
        "{}",
        show(&output)
    );
    workspace.assert_nothing_runs();
}

#[test]
fn partial_prices_exit_with_3() {
    let workspace = workspace();
    workspace.copy_recipe("nginx-modsecurity");
    // Only a subject with rules includes the invalid file.
    let config = "systems/nginx-modsecurity/modsecurity-full.conf";
    workspace.change(config, "# Parses JSON", "NoSuchDirective\n# Parses JSON");
    workspace.change(
        "two.toml",
        "[design]",
        "[[subject]]\nname = \"light\"\nsystem = \"nginx-modsecurity\"\n\n[design]",
    );
    let output = workspace.run(&["run", "two.toml", "--out", "out"]);
    assert_eq!(output.status.code(), Some(3), "{}", show(&output));
    let (status, reason) = subject_status(&workspace, "full");
    assert_eq!(status, "failed");
    assert!(reason.contains("modsecurity-full.conf. Line: "), "{reason}");
    assert_eq!(subject_status(&workspace, "light").0, "measured");
}

#[test]
fn too_few_open_files_end_a_run_before_its_first_trial() {
    let workspace = workspace();
    let run = workspace.command(&["run", "two.toml", "--out", "out"]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 40 && exec \"$@\"", "sh"]).arg(run.get_program());
    let output = limited.args(run.get_args()).current_dir(workspace.path(".")).output();
    let output = output.expect("a shell");
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    // 4 connections, 32 files of the process and 5 of its thread.
    let reason = "case browse: 4 connections need 41 open files, but the limit is 40";
    assert!(flat(&stderr(&output)).contains(reason), "{}", show(&output));
    assert!(!workspace.path("out").exists());
}
