//! What a subject may do wrong: missing, refused, rejected, dead. Each is told in one clear line,
//! and the other subjects still run.

use crate::experiment::two_subjects;
use crate::support::{Workspace, flat, stderr, stdout, told};
use serde_json::Value;
use std::net::TcpListener;

fn standing(workspace: &Workspace, name: &str) -> (String, String) {
    let report = workspace.json("out/report.json");
    let subjects = report["cases"][0]["subjects"].as_array().expect("subjects").clone();
    let subject = subjects.iter().find(|subject| subject["name"] == name).expect("the subject");
    let kind = subject["standing"].as_str().expect("a standing").to_owned();
    (kind, subject["reason"].to_string().trim_matches('"').replace("\\\"", "\""))
}

fn workspace() -> Workspace {
    let workspace = Workspace::beside_others();
    workspace.write("two.toml", &two_subjects());
    workspace
}

#[test]
fn a_waf_without_rules_is_refused_and_not_priced() {
    let workspace = workspace();
    workspace.copy_recipe("nginx-modsecurity");
    let config = "systems/nginx-modsecurity/modsecurity-full.conf";
    workspace.change(config, "Include {{ path }}", "# {{ path }}");
    let output = workspace.run(&["run", "two.toml", "--out", "out"]);
    assert_eq!(output.status.code(), Some(4), "no subject has a price: {}", told(&output));
    let refused = "refused: 4 of 4 attacks were let through";
    assert!(flat(&stdout(&output)).contains(&format!("full was {refused}")), "{}", told(&output));
    assert!(
        stderr(&output).contains("full is left out of the rest of the run"),
        "{}",
        told(&output)
    );
    let expected = ("refused".to_owned(), "4 of 4 attacks were let through".to_owned());
    assert_eq!(standing(&workspace, "full"), expected);
    assert_eq!(standing(&workspace, "nginx").0, "baseline");
    workspace.assert_nothing_runs();
}

#[test]
fn errors_of_a_live_proxy_are_no_attacks_let_through() {
    let workspace = workspace();
    workspace.copy_recipe("nginx");
    // It answers the probe, and most of the load with 502.
    let limit = "limit_req_zone $binary_remote_addr zone=all:1m rate=50r/s;
    limit_req zone=all burst=20 nodelay;
    limit_req_status 502;
    access_log off;";
    workspace.change("systems/nginx/nginx.conf", "access_log off;", limit);
    let output = workspace.run(&["run", "two.toml", "--blocks", "1", "--out", "out"]);
    let note = "nginx answered ";
    let rest = "requests neither as blocked nor as let through";
    let said = flat(&stdout(&output));
    assert!(said.contains(note) && said.contains(rest), "{}", told(&output));
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
        assert!(failed > passed, "{template}: {}", told(&output));
        let count = |name: &str| template[name].as_u64().expect("a count");
        assert_eq!(
            [count("blocked"), count("let_through"), count("other"), count("answered")],
            [0, passed, failed, passed + failed],
            "{template}"
        );
    }
    workspace.assert_nothing_runs();
}

#[test]
fn a_waf_that_only_detects_is_refused() {
    let workspace = workspace();
    workspace.copy_recipe("nginx-modsecurity");
    let config = "systems/nginx-modsecurity/modsecurity-light.conf";
    workspace.change(config, "SecRuleEngine On", "SecRuleEngine DetectionOnly");
    let output = workspace.run(&["run", "two.toml", "--blocks", "1", "--out", "out"]);
    assert_eq!(standing(&workspace, "full").0, "refused", "{}", told(&output));
}

#[test]
fn a_subject_whose_system_is_missing_is_skipped_with_the_line_to_type() {
    let workspace = workspace();
    workspace.copy_recipe("nginx-modsecurity");
    let recipe = "systems/nginx-modsecurity/system.toml";
    workspace.change(recipe, "ngx_http_modsecurity_module.so", "ngx_http_no_such_module.so");
    let output = workspace.run(&["run", "two.toml", "--blocks", "1", "--out", "out"]);
    let line = "apt-get install -y nginx libnginx-mod-http-modsecurity modsecurity-crs";
    assert!(stderr(&output).contains(line), "{}", told(&output));
    assert!(stdout(&output).contains(line), "{}", told(&output));
    assert_eq!(standing(&workspace, "full").0, "skipped");
    assert_eq!(standing(&workspace, "nginx").0, "baseline");
    assert_eq!(output.status.code(), Some(4), "a baseline alone has no price");
}

#[test]
fn another_core_rule_set_than_the_one_asked_for_is_not_taken_for_it() {
    let workspace = workspace();
    workspace.copy_recipe("nginx-modsecurity");
    let recipe = "systems/nginx-modsecurity/system.toml";
    workspace.change(recipe, "contains = \"OWASP_CRS/3.3.4\"", "contains = \"OWASP_CRS/9.9.9\"");
    workspace.change("two.toml", "crs = \"packaged\"", "crs = \"3.3.4\"");
    let output = workspace.run(&["run", "two.toml", "--blocks", "1", "--out", "out"]);
    let (standing, reason) = standing(&workspace, "full");
    assert_eq!(standing, "skipped", "{}", told(&output));
    assert!(reason.contains("OWASP_CRS/9.9.9"), "{reason}");
}

#[test]
fn a_config_that_nginx_rejects_is_told_in_nginx_s_words_with_file_and_line() {
    let workspace = workspace();
    workspace.copy_recipe("nginx-modsecurity");
    let config = "systems/nginx-modsecurity/nginx.conf";
    workspace.change(
        config,
        "modsecurity {{ engine }};",
        "modsecurity {{ engine }}; no_such_directive on;",
    );
    let output = workspace.run(&["run", "two.toml", "--out", "out"]);
    let (standing, reason) = standing(&workspace, "full");
    assert_eq!(standing, "failed", "{}", told(&output));
    for word in
        ["unknown directive \"no_such_directive\"", "configs/full/nginx.conf:", "`nginx` ended"]
    {
        assert!(reason.contains(word), "no {word:?} in {reason}");
        assert!(stderr(&output).contains(word), "no {word:?} in {}", stderr(&output));
    }
    assert_eq!(output.status.code(), Some(4), "{}", told(&output));
}

#[test]
fn a_template_that_cannot_be_rendered_names_its_file_and_line() {
    let workspace = workspace();
    workspace.copy_recipe("nginx-modsecurity");
    let config = "systems/nginx-modsecurity/nginx.conf";
    workspace.change(config, "modsecurity {{ engine }};", "modsecurity {{ enginee }};");
    let output = workspace.run(&["run", "two.toml", "--blocks", "1", "--out", "out"]);
    let (standing, reason) = standing(&workspace, "full");
    assert_eq!(standing, "failed", "{}", told(&output));
    for word in ["enginee", "nginx.conf", "nginx-modsecurity"] {
        assert!(reason.contains(word), "no {word:?} in {reason}");
    }
}

#[test]
fn a_port_in_use_is_told_by_the_system_that_meets_it() {
    let workspace = workspace();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    workspace.copy_recipe("nginx-modsecurity");
    workspace.copy_recipe("nginx");
    // Only the subject `full` has the port; the template that it extends stays as it is.
    workspace.change(
        "systems/nginx-modsecurity/nginx.conf",
        "nginx/nginx.conf",
        "nginx/taken.conf",
    );
    let config = workspace.read("systems/nginx/nginx.conf");
    workspace.write("systems/nginx/taken.conf", &config.replace("{{ listen.address }}", &address));
    let output = workspace.run(&["run", "two.toml", "--blocks", "1", "--out", "out"]);
    let (standing, reason) = standing(&workspace, "full");
    assert_eq!(standing, "failed", "{}", told(&output));
    assert!(stderr(&output).contains("Address already in use"), "{reason}\n{}", told(&output));
    assert_eq!(self::standing(&workspace, "nginx").0, "baseline");
    drop(taken);
    workspace.assert_nothing_runs();
}

#[test]
fn a_system_that_dies_under_load_does_not_count() {
    let workspace = workspace();
    // A server that answers the probe and then ends by itself in the middle of the window.
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
        told(&output)
    );
    workspace.assert_nothing_runs();
}

#[test]
fn prices_for_some_subjects_exit_with_3() {
    let workspace = workspace();
    workspace.copy_recipe("nginx-modsecurity");
    // Only a subject with rules has the broken file.
    let config = "systems/nginx-modsecurity/modsecurity-full.conf";
    workspace.change(config, "# JSON and XML", "NoSuchDirective\n# JSON and XML");
    workspace.change(
        "two.toml",
        "[design]",
        "[[subject]]\nname = \"light\"\nsystem = \"nginx-modsecurity\"\n\n[design]",
    );
    let output = workspace.run(&["run", "two.toml", "--out", "out"]);
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    let (standing, reason) = standing(&workspace, "full");
    assert_eq!(standing, "failed");
    assert!(reason.contains("modsecurity-full.conf. Line: "), "{reason}");
    assert_eq!(self::standing(&workspace, "light").0, "measured");
}
