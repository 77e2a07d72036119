//! What `tollgate systems check` refuses: what is not there, and what is not really on.

use super::{assert_refused, assert_sound, check, workspace};
use crate::support::{flat, stderr, stdout, told};

#[test]
fn an_attack_in_json_that_nobody_parses_is_told() {
    let workspace = workspace();
    for (system, with) in PARSERS {
        assert_sound(&workspace, system, &with, "bodies.toml");
    }
    workspace.copy_recipe("nginx-modsecurity");
    let rules = "systems/nginx-modsecurity/modsecurity-full.conf";
    workspace.change(rules, "@beginsWith application/json", "@beginsWith application/nothing");
    for (system, with) in PARSERS {
        let output = check(&workspace, system, &with, "bodies.toml");
        assert_refused(&output, "1 of 2 attacks were let through");
        let answers = flat(&stdout(&output));
        assert!(answers.contains("FAIL json-attack attack 200"), "{system}: {}", told(&output));
    }
}

#[test]
fn rules_that_only_detect_are_told() {
    let workspace = workspace();
    workspace.copy_recipe("nginx-modsecurity");
    let engine = "systems/nginx-modsecurity/modsecurity-light.conf";
    workspace.change(engine, "SecRuleEngine On", "SecRuleEngine DetectionOnly");
    for (system, with) in ENGINES {
        let output = check(&workspace, system, &with, "browse");
        assert_refused(&output, "4 of 4 attacks were let through");
    }
    workspace.assert_nothing_runs();
}

/// All take the text of their engine's settings from the first one's folder.
const ENGINES: [(&str, [&str; 1]); 4] = [
    ("nginx-modsecurity", ["rules=crs"]),
    ("apache-modsecurity", ["rules=crs"]),
    ("caddy-coraza", ["rules=crs"]),
    ("crowdsec-appsec", ["in_band=crs"]),
];

/// Those who let it through then. Coraza, and CrowdSec with it, block this very attack without that rule all the same;
/// of CrowdSec, `an_attack_in_json_that_crowdsec_does_not_parse_is_told` shows it with a patch.
const PARSERS: [(&str, [&str; 1]); 2] = [ENGINES[0], ENGINES[1]];

#[test]
fn a_check_tells_what_is_not_there_and_what_is_not_on() {
    let workspace = workspace();
    let output = check(&workspace, "nginx-naxsi", &["module=/no/such/module.so"], "browse");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(
        stderr(&output).contains("nginx-naxsi is not installed: no file "),
        "{}",
        told(&output)
    );

    let output = check(&workspace, "haprox", &[], "browse");
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(stderr(&output).contains("haproxy"), "{}", told(&output));

    let output = check(&workspace, "haproxy", &["threads=many"], "browse");
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(stderr(&output).contains("a whole number from 1 to 64"), "{}", told(&output));

    workspace.assert_nothing_runs();
}
