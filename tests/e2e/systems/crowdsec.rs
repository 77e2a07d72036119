//! CrowdSec's AppSec: its virtual patches, and what it lets through when it is not set up.

use super::{answers, assert_refused, assert_sound, check, workspace};
use crate::experiment::Experiment;
use crate::support::{flat, stderr, stdout, told};

/// A patch of our own, and a request that it has to match beside one that it has not.
const PATCH: &str = r#"
name: tollgate/shell-in-x
rules:
  - and:
    - zones: [URI]
      match: {type: contains, value: "/x.php"}
    - zones: [ARGS]
      variables: [cmd]
      match: {type: regex, value: "[;|]"}
"#;
const PATCHED: &str = r#"
title   = "A patch"
headers = ["Host: shop.example", "User-Agent: curl/8.0", "Connection: keep-alive"]

[[template]]
name   = "near-miss"
class  = "benign"
weight = 1
path   = "/x.php?cmd=ls"

[[template]]
name   = "match"
class  = "malicious"
weight = 1
path   = "/x.php?cmd=ls%3Bid"
"#;

/// The same for a value in JSON.
const PATCH_IN_JSON: &str = r#"
name: tollgate/shell-in-json
rules:
  - zones: [BODY_ARGS]
    variables: [json.cmd]
    match: {type: regex, value: "[;|]"}
"#;
const PATCHED_IN_JSON: &str = r#"
title   = "A patch"
headers = [
    "Host: shop.example", "User-Agent: curl/8.0", "Content-Type: application/json", "Connection: keep-alive",
]

[[template]]
name   = "near-miss"
class  = "benign"
weight = 1
method = "POST"
path   = "/upload"
body   = '{"cmd": "ls"}'

[[template]]
name   = "match"
class  = "malicious"
weight = 1
method = "POST"
path   = "/upload"
body   = '{"cmd": "ls;id"}'
"#;

#[test]
fn virtual_patches_of_a_folder_block_what_they_match() {
    let workspace = workspace();
    workspace.write("patches/one.yaml", PATCH);
    workspace.write("patched.toml", PATCHED);
    let patches = format!("patches={}", workspace.path("patches").display());
    for bouncer in ["bouncer=caddy", "bouncer=nginx"] {
        let with = [bouncer, "in_band=vpatch", &patches, "out_of_band=crs", "routines=2"];
        assert_sound(&workspace, "crowdsec-appsec", &with, "patched.toml");
    }
}

#[test]
fn each_virtual_patch_blocks_its_attack_and_lets_its_near_miss_through() {
    let workspace = workspace();
    for mix in ["vpatch/attacks", "vpatch/near-misses"] {
        assert_sound(&workspace, "crowdsec-appsec", &["in_band=vpatch"], mix);
    }
    let with = ["in_band=vpatch", "bouncer=nginx"];
    assert_sound(&workspace, "crowdsec-appsec", &with, "vpatch/near-misses");
    let output = check(&workspace, "crowdsec-appsec", &with, "vpatch/attacks");
    let answers = answers(&output);
    assert_eq!(answers.len(), 100, "{}", told(&output));
    for (attack, status) in answers {
        let owed = if CLIMBING.contains(&attack.as_str()) { 400 } else { 403 };
        assert_eq!(status, owed, "{attack}: {}", told(&output));
    }
}

/// Attacks whose path climbs out of the root: nginx refuses these by itself, before it asks anybody.
const CLIMBING: [&str; 3] = ["CVE-2021-41773", "CVE-2019-11510", "CVE-2021-43798"];

#[test]
fn rules_of_crowdsec_that_were_not_loaded_are_told() {
    let workspace = workspace();
    workspace.copy_recipe("crowdsec-appsec");
    // A pattern instead of the names: AppSec logs one error, and lets everything through.
    let rules = "systems/crowdsec-appsec/appsec-rules/crs.yaml";
    workspace.change(rules, r#"{{ path|replace(folder ~ "/rules/", "") }}"#, r#""*.conf""#);
    for bouncer in ["bouncer=caddy", "bouncer=nginx"] {
        let output = check(&workspace, "crowdsec-appsec", &["in_band=crs", bouncer], "browse");
        assert_refused(&output, "4 of 4 attacks were let through");
    }
    // The mixes without attacks have some for the probe; one is for virtual patches alone.
    let with = ["in_band=crs", "bouncer=nginx"];
    let output = check(&workspace, "crowdsec-appsec", &with, "get");
    assert_refused(&output, "9 of 10 attacks were let through");
    let output = check(&workspace, "crowdsec-appsec", &with, "post-10");
    assert_refused(&output, "15 of 17 attacks were let through");
}

#[test]
fn a_wrong_key_of_a_bouncer_is_told() {
    let workspace = workspace();
    workspace.copy_recipe("crowdsec-appsec");
    let config = "systems/crowdsec-appsec/Caddyfile";
    workspace.change(config, "api_key tollgate", "api_key wrong");
    let output = check(&workspace, "crowdsec-appsec", &["in_band=crs"], "browse");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(stderr(&output).contains("access forbidden"), "{}", told(&output));
    // Unless it is told to fail then, Caddy's bouncer lets everything through.
    workspace.change(config, "enable_hard_fails", "");
    let output = check(&workspace, "crowdsec-appsec", &["in_band=crs"], "browse");
    assert_refused(&output, "4 of 4 attacks were let through");
    // The handler of nginx lets nothing through then, and it does not become ready.
    let config = "systems/crowdsec-appsec/nginx.conf";
    workspace.change(
        config,
        "X-Crowdsec-Appsec-Api-Key tollgate",
        "X-Crowdsec-Appsec-Api-Key wrong",
    );
    let recipe = "systems/crowdsec-appsec/system.toml";
    workspace.change(recipe, "within = \"60s\"", "within = \"8s\"");
    let with = ["in_band=crs", "bouncer=nginx"];
    let output = check(&workspace, "crowdsec-appsec", &with, "browse");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(stderr(&output).contains("it answers 502"), "{}", told(&output));
}

#[test]
fn an_attack_in_json_that_crowdsec_does_not_parse_is_told() {
    let workspace = workspace();
    workspace.write("patches/one.yaml", PATCH_IN_JSON);
    workspace.write("patched.toml", PATCHED_IN_JSON);
    let patches = format!("patches={}", workspace.path("patches").display());
    let with = ["in_band=vpatch", &patches];
    assert_sound(&workspace, "crowdsec-appsec", &with, "patched.toml");
    // The rule that has JSON parsed is not there any more.
    let processors = include_str!("../../../mixes/vpatch/body-processors.yaml");
    let without: Vec<&str> =
        processors.lines().filter(|line| !line.contains("requestBodyProcessor=JSON")).collect();
    assert!(without.len() < processors.lines().count(), "{processors}");
    workspace.write("mixes/vpatch/body-processors.yaml", &without.join("\n"));
    let output = check(&workspace, "crowdsec-appsec", &with, "patched.toml");
    assert_refused(&output, "1 of 1 attacks were let through");
}

#[test]
fn rules_out_of_band_that_were_not_loaded_are_told() {
    let workspace = workspace();
    workspace.copy_recipe("crowdsec-appsec");
    for bouncer in ["bouncer=caddy", "bouncer=nginx"] {
        let with = ["out_of_band=crs", "routines=2", bouncer];
        assert_sound(&workspace, "crowdsec-appsec", &with, "browse");
    }
    let patches = ["in_band=crs", "out_of_band=vpatch"];
    assert_sound(&workspace, "crowdsec-appsec", &patches, "realistic");
    let found = |who: &str, count: &str| {
        format!("the {who} out-of-band found {count} attacks, by cs_appsec_rule_hits on /metrics")
    };
    // One file is not there.
    let rules = "systems/crowdsec-appsec/appsec-rules/crs.yaml";
    let files = r#"in files(folder ~ "/rules/*.conf") %}"#;
    let without_java = r#"in files(folder ~ "/rules/*.conf") if "-944-" not in path %}"#;
    workspace.change(rules, files, without_java);
    let output = check(&workspace, "crowdsec-appsec", &["out_of_band=crs"], "browse");
    assert_refused(&output, &found("Core Rule Set", "5 of 6"));
    workspace.change(rules, without_java, files);
    // A pattern instead of the names: no request is answered otherwise than with all of the rules, and a mix
    // without attacks tells it as well.
    workspace.change(rules, r#"{{ path|replace(folder ~ "/rules/", "") }}"#, r#""*.conf""#);
    for (bouncer, mix) in [("bouncer=caddy", "browse"), ("bouncer=nginx", "get")] {
        let output = check(&workspace, "crowdsec-appsec", &["out_of_band=crs", bouncer], mix);
        assert_refused(&output, &found("Core Rule Set", "0 of 6"));
    }
    // Rules of another name, where those in-band do what they should.
    let config = "systems/crowdsec-appsec/appsec-configs/tollgate.yaml";
    workspace.change(config, "else patch_names }}", "else 'tollgate/body-processors' }}");
    let output = check(&workspace, "crowdsec-appsec", &["out_of_band=vpatch"], "browse");
    assert_refused(&output, &found("virtual patches", "0 of 4"));
}

#[test]
fn a_run_with_rules_out_of_band_that_were_not_loaded_is_not_measured() {
    let workspace = workspace();
    workspace.copy_recipe("crowdsec-appsec");
    let rules = "systems/crowdsec-appsec/appsec-rules/crs.yaml";
    workspace.change(rules, r#"{{ path|replace(folder ~ "/rules/", "") }}"#, r#""*.conf""#);
    let experiment = Experiment {
        title: "Rules out-of-band",
        load: r#"connections = 4, duration = "1s", warmup = "50ms""#,
        subjects: &[
            ("nginx", "nginx", ""),
            ("silent", "crowdsec-appsec", r#"out_of_band = "crs""#),
        ],
        blocks: 1,
    };
    workspace.write("silent.toml", &experiment.text());
    let output = workspace.run(&["run", "silent.toml", "--out", "out"]);
    let words = "silent was refused: the Core Rule Set out-of-band found 0 of 6 attacks";
    assert!(flat(&stdout(&output)).contains(words), "{}", told(&output));
    workspace.assert_nothing_runs();
}
