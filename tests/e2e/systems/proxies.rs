//! What is passed on, and what is blocked, by all of them.

use super::{assert_sound, workspace};

#[test]
fn proxies_pass_on_what_they_are_sent() {
    let workspace = workspace();
    for system in ["nginx", "haproxy", "apache", "tollgate-gateway"] {
        assert_sound(&workspace, system, &[], "browse");
    }
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
