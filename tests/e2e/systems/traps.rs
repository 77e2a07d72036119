//! What `tollgate systems check` refuses: what is not there, and what is not really on.

use super::{assert_refused, assert_sound, check, workspace};
use crate::support::{flat, stderr, stdout, told};

#[test]
fn an_attack_in_json_that_nobody_parses_is_told() {
    let workspace = workspace();
    let with = ["rules=crs", "crs=packaged"];
    assert_sound(&workspace, "nginx-modsecurity", &with, "bodies.toml");
    workspace.copy_recipe("nginx-modsecurity");
    let rules = "systems/nginx-modsecurity/modsecurity-full.conf";
    workspace.change(rules, "@beginsWith application/json", "@beginsWith application/nothing");
    let output = check(&workspace, "nginx-modsecurity", &with, "bodies.toml");
    assert_refused(&output, "1 of 2 attacks were let through");
    assert!(flat(&stdout(&output)).contains("FAIL json-attack attack 200"), "{}", told(&output));
}

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

    workspace.copy_recipe("nginx-modsecurity");
    let engine = "systems/nginx-modsecurity/modsecurity-light.conf";
    workspace.change(engine, "SecRuleEngine On", "SecRuleEngine DetectionOnly");
    let with = ["rules=crs", "crs=packaged"];
    assert_refused(
        &check(&workspace, "nginx-modsecurity", &with, "browse"),
        "4 of 4 attacks were let through",
    );
    workspace.assert_nothing_runs();
}
