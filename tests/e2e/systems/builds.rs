//! Getting a system: what is there, what can be built, and what is told where it cannot be had.

use super::workspace;
use crate::experiment::Experiment;
use crate::support::{flat, stderr, stdout, told};
use std::process::Command;

#[test]
fn naxsi_that_cannot_be_had_is_skipped_and_spoils_nothing() {
    let workspace = workspace();
    let experiment = Experiment {
        title: "What does naxsi cost?",
        load: r#"connections = 4, duration = "300ms", warmup = "50ms""#,
        subjects: &[
            ("nginx", "nginx", ""),
            ("haproxy", "haproxy", ""),
            ("naxsi", "nginx-naxsi", r#"module = "/no/such/module.so""#),
        ],
        blocks: 1,
    };
    // It has attacks that naxsi is sure to block: a WAF that nothing could prove to be on is refused as bad input.
    let mix = experiment.text().replace("mix  = \"browse\"", "mix  = \"realistic\"");
    workspace.write("naxsi.toml", &mix);
    let output = workspace.run(&["run", "naxsi.toml", "--out", "out"]);
    let said = flat(&stderr(&output));
    for words in ["naxsi is skipped: no file /no/such/module.so", "no Debian package has naxsi"] {
        assert!(said.contains(words), "no {words:?}: {}", told(&output));
    }
    let report = workspace.json("out/report.json");
    let standing = |name: &str| {
        let subjects = report["cases"][0]["subjects"].as_array().expect("subjects");
        subjects.iter().find(|one| one["name"] == name).expect("it")["standing"].clone()
    };
    assert_eq!(standing("naxsi"), "skipped", "{}", told(&output));
    assert_eq!(standing("haproxy"), "measured", "{}", told(&output));
}

#[test]
fn what_is_installed_is_not_installed_again() {
    let workspace = workspace();
    let output = workspace.run(&["systems", "install", "haproxy"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    assert!(stderr(&output).contains("installed already: haproxy"), "{}", told(&output));
    assert!(stdout(&output).contains("installed: HAProxy version "), "{}", told(&output));
    let hashed = Command::new("sha256sum").arg("/usr/sbin/haproxy").output().expect("coreutils");
    let hash = stdout(&hashed).split_whitespace().next().expect("a hash").to_owned();
    let line = format!("  sha256  {hash} /usr/sbin/haproxy\n");
    assert!(stdout(&output).contains(&line), "{}", told(&output));
    let output = workspace.run(&["systems", "build", "haproxy"]);
    assert!(stderr(&output).contains("there is nothing to build"), "{}", told(&output));
}

#[test]
fn doctor_tells_a_build_that_is_wrong_and_goes_on() {
    let workspace = workspace();
    let code = workspace.run(&["doctor"]).status.code();
    workspace.write("builds/b/build.toml", "title = 'A build'\nprogramms = {}\n");
    let output = workspace.run(&["doctor"]);
    let found = flat(&stdout(&output));
    let words =
        ["poor builds ", "builds/b/build.toml:2:1: ", "the systems that need it are left out"];
    for words in words {
        assert!(found.contains(words), "no {words:?}: {}", told(&output));
    }
    // All else is told as without it, and it is no reason not to run.
    assert!(found.contains("Systems: ") && found.contains("ok builds "), "{}", told(&output));
    assert_eq!(output.status.code(), code, "{}", told(&output));
}

#[test]
fn a_build_that_is_not_there_is_told_with_the_line_that_makes_it() {
    let workspace = workspace();
    let mut command = workspace.command(&["systems", "check", "caddy"]);
    let output = command.env("XDG_CACHE_HOME", workspace.path("empty")).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(stderr(&output).contains("tollgate systems build caddy"), "{}", told(&output));
    // Without Go there is no build, and nothing is left that looks like one.
    let mut command = workspace.command(&["systems", "build", "caddy"]);
    command.env("XDG_CACHE_HOME", workspace.path("empty")).env("PATH", workspace.path("nothing"));
    let output = command.output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(stderr(&output).contains("install Go"), "{}", told(&output));
    assert!(!workspace.path("empty/tollgate/builds").exists());
}

#[test]
fn what_is_there_is_listed_by_asking_each_part_once_and_several_at_a_time() {
    let workspace = workspace();
    // Each of the two ends only beside the other, and the first has one part whatever its option is.
    let recipe = |own: &str, other: &str| {
        format!(
            "title = 'A system'\n\
             version = [['sh', '-c', 'echo asked >>{own}; until [ -e {other} ]; do sleep 0.01; done; echo part 1'], \
                        ['echo', 'kind', '{{{{ kind }}}}']]\n\
             [option.kind]\nabout = 'which'\ndefault = 'one'\nvalues = ['one', 'two', 'three']\n\
             [[process]]\nname = 'a'\ncommand = ['false']\n"
        )
    };
    workspace.write("systems/0-first/system.toml", &recipe("first", "second"));
    workspace.write("systems/0-second/system.toml", &recipe("second", "first"));
    let output = workspace.run(&["systems", "list"]);
    let listed = stdout(&output);
    for name in ["0-first ", "0-second"] {
        let expected = format!(
            "{name:<21}A system\n{:21}installed: part 1, kind one\n{:21}kind = \"three\": kind three\n\
             {:21}kind = \"two\": kind two\n  kind               which (",
            "", "", ""
        );
        assert!(listed.contains(&expected), "no {expected}: {}", told(&output));
    }
    assert_eq!(workspace.read("first"), "asked\n");
    assert_eq!(workspace.read("second"), "asked\n");
}
