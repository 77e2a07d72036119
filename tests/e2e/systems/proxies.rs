//! What is passed on, and what is blocked, by all of them.

use super::{assert_sound, workspace};

#[test]
fn proxies_pass_on_what_they_are_sent() {
    let workspace = workspace();
    for system in ["nginx", "haproxy", "apache", "tollgate-gateway"] {
        assert_sound(&workspace, system, &[], "browse");
    }
}

/// As for the history of the gateway, each commit of which is a binary of its own.
#[test]
fn the_gateway_may_be_that_of_another_tollgate() {
    let workspace = workspace();
    let used = workspace.path("used");
    let other = workspace.path("other-tollgate");
    let script = format!(
        "#!/bin/sh\necho \"$1\" >>'{}'\nexec '{}' \"$@\"\n",
        used.display(),
        assert_cmd::cargo::cargo_bin!("tollgate").display()
    );
    std::fs::write(&other, script).expect("a script");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&other, mode).expect("a program");
    let binary = format!("binary={}", other.display());
    assert_sound(&workspace, "tollgate-gateway", &[&binary], "browse");
    let used = std::fs::read_to_string(used).expect("it was used");
    let asked = |word: &str| used.lines().any(|line| line == word);
    assert!(asked("--version") && asked("gateway"), "{used}");
}

#[test]
fn an_engine_without_rules_lets_everything_through() {
    let workspace = workspace();
    for engine in ["engine=off", "engine=on"] {
        assert_sound(&workspace, "apache-modsecurity", &[engine], "bodies.toml");
    }
}

#[test]
fn both_generations_of_modsecurity_block_with_the_same_core_rule_set() {
    let workspace = workspace();
    for system in ["nginx-modsecurity", "apache-modsecurity"] {
        for mix in ["browse", "bodies.toml"] {
            assert_sound(&workspace, system, &["rules=crs"], mix);
        }
    }
}

#[test]
fn engines_in_go_block_with_the_same_core_rule_set() {
    let workspace = workspace();
    for (system, with) in [
        ("caddy-coraza", &["rules=crs"][..]),
        ("crowdsec-appsec", &["in_band=crs"]),
        ("crowdsec-appsec", &["in_band=crs", "bouncer=nginx"]),
    ] {
        for mix in ["browse", "bodies.toml"] {
            assert_sound(&workspace, system, with, mix);
        }
    }
}

#[test]
fn caddy_and_its_engines_without_rules_let_everything_through() {
    let workspace = workspace();
    assert_sound(&workspace, "caddy", &[], "bodies.toml");
    for engine in ["engine=off", "engine=on"] {
        assert_sound(&workspace, "caddy-coraza", &[engine], "bodies.toml");
    }
    for bouncer in ["bouncer=caddy", "bouncer=nginx"] {
        assert_sound(&workspace, "crowdsec-appsec", &[bouncer], "bodies.toml");
        // What is checked out of band blocks nothing.
        assert_sound(&workspace, "crowdsec-appsec", &[bouncer, "out_of_band=crs"], "bodies.toml");
    }
}
