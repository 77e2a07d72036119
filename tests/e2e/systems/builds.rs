//! Builds of systems, and the Go toolchain that makes them.

use super::workspace;
use crate::support::{Experiment, Workspace, flat, show, stderr, stdout};
use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[test]
fn missing_naxsi_is_skipped() {
    let workspace = workspace();
    let experiment = Experiment {
        title: "What does naxsi cost?",
        load: r#"connections = 4, rate = 200, duration = "300ms", warmup = "50ms""#,
        subjects: &[
            ("nginx", "nginx", ""),
            ("haproxy", "haproxy", ""),
            ("naxsi", "nginx-naxsi", r#"module = "/no/such/module.so""#),
        ],
        blocks: 1,
    };
    // A mix with attacks that naxsi must block; other mixes are invalid for a WAF.
    let mix = experiment.text().replace("mix  = \"browse\"", "mix  = \"realistic\"");
    workspace.write("naxsi.toml", &mix);
    let output = workspace.run(&["run", "naxsi.toml", "--out", "out"]);
    let message = flat(&stderr(&output));
    for words in [
        "naxsi is skipped: no file /no/such/module.so",
        "Debian has no naxsi package",
        "In its place, `tollgate-waf` with rules = \"naxsi\" evaluates rules of naxsi",
    ] {
        assert!(message.contains(words), "no {words:?}: {}", show(&output));
    }
    let report = workspace.json("out/report.json");
    let standing = |name: &str| {
        let subjects = report["cases"][0]["subjects"].as_array().expect("subjects");
        subjects.iter().find(|one| one["name"] == name).expect("the subject")["status"].clone()
    };
    assert_eq!(standing("naxsi"), "skipped", "{}", show(&output));
    assert_eq!(standing("haproxy"), "measured", "{}", show(&output));
}

#[test]
fn build_of_a_system_that_cannot_be_built_says_how_to_get_it() {
    let workspace = workspace();
    workspace.copy_recipe("nginx-naxsi");
    let recipe = "systems/nginx-naxsi/system.toml";
    workspace.change(recipe, "'/usr/lib/nginx/modules/ngx_http_naxsi_module.so'", "'/no/such'");
    workspace.change(recipe, "'/usr/*/nginx/modules/ngx_http_naxsi_module.so'", "'/no/such'");
    workspace.change(recipe, "'/usr/local/*/modules/ngx_http_naxsi_module.so'", "'/no/such'");
    let output = workspace.run(&["systems", "build", "nginx-naxsi"]);
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    let message = flat(&stderr(&output));
    for words in ["nothing to build", "no file /no/such", "Debian has no naxsi package"] {
        assert!(message.contains(words), "no {words:?}: {}", show(&output));
    }
}

#[test]
fn installed_system_is_not_installed_again() {
    let workspace = workspace();
    let output = workspace.run(&["systems", "install", "haproxy"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    assert!(stderr(&output).contains("already installed: haproxy"), "{}", show(&output));
    assert!(stdout(&output).contains("installed: HAProxy version "), "{}", show(&output));
    let hashed = Command::new("sha256sum").arg("/usr/sbin/haproxy").output().expect("coreutils");
    let hash = stdout(&hashed).split_whitespace().next().expect("a hash").to_owned();
    let line = format!("  sha256  {hash} /usr/sbin/haproxy\n");
    assert!(stdout(&output).contains(&line), "{}", show(&output));
    let output = workspace.run(&["systems", "build", "haproxy"]);
    assert!(stderr(&output).contains("nothing to build"), "{}", show(&output));
}

#[test]
fn doctor_reports_invalid_build_and_continues() {
    let workspace = workspace();
    let code = workspace.run(&["doctor"]).status.code();
    workspace.write("builds/b/build.toml", "title = 'A build'\nprogramms = {}\n");
    let output = workspace.run(&["doctor"]);
    let found = flat(&stdout(&output));
    let words = ["poor builds ", "builds/b/build.toml:2:1: ", "systems that need it are skipped"];
    for words in words {
        assert!(found.contains(words), "no {words:?}: {}", show(&output));
    }
    // The rest of the output and the exit code are the same.
    assert!(found.contains("Systems: ") && found.contains("ok builds "), "{}", show(&output));
    assert_eq!(output.status.code(), code, "{}", show(&output));
}

#[test]
fn missing_build_is_reported_with_command() {
    let workspace = workspace();
    let mut command = workspace.command(&["systems", "check", "caddy"]);
    let output = command.env("XDG_CACHE_HOME", workspace.path("empty")).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    assert!(stderr(&output).contains("tollgate systems build caddy"), "{}", show(&output));
    // Without Go, no result is left.
    let mut command = workspace.command(&["systems", "build", "caddy"]);
    command.env("XDG_CACHE_HOME", workspace.path("empty")).env("PATH", workspace.path("nothing"));
    let output = command.output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    assert!(stderr(&output).contains("install Go"), "{}", show(&output));
    assert!(!workspace.path("empty/tollgate/builds").exists());
}

#[test]
fn list_asks_versions_once_and_concurrently() {
    let workspace = workspace();
    // The version commands of the two systems wait for each other.
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
    for name in ["0-first", "0-second"] {
        let line = format!("{name:<21}installed  A system\n");
        assert!(listed.contains(&line), "no {line}: {}", show(&output));
    }
    assert_eq!(workspace.read("first"), "asked\n");
    assert_eq!(workspace.read("second"), "asked\n");
    for name in ["0-first", "0-second"] {
        let output = workspace.run(&["systems", "show", name]);
        let shown = stdout(&output);
        let expected = format!(
            "{name:<21}A system\n{:21}installed: part 1, kind one\n{:21}kind = \"three\": kind three\n\
             {:21}kind = \"two\": kind two\n  kind               which (",
            "", "", ""
        );
        assert!(shown.contains(&expected), "no {expected}: {}", show(&output));
    }
}

#[test]
fn list_has_one_short_line_for_a_broken_system() {
    let workspace = workspace();
    let recipe = "title = 'a'\nversion = [['sh', '-c', 'echo no such library: libmine.so.3 >&2; \
                  echo and more >&2; exit 3']]\n[[process]]\nname = 'a'\ncommand = ['false']\n";
    workspace.write("systems/0-mine/system.toml", recipe);
    let output = workspace.run(&["systems", "list"]);
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    let listed = stdout(&output);
    let line = listed.lines().find(|line| line.starts_with("0-mine")).expect("a line");
    assert!(line.contains(" broken     cannot get the version of system `0-mine`"), "{line}");
    assert!(line.chars().count() <= 80, "{line}");
    // `show` has the reason.
    let shown = workspace.run(&["systems", "show", "0-mine"]);
    assert!(stderr(&shown).contains("no such library: libmine.so.3\nand more"), "{}", show(&shown));
}

/// A Go toolchain that reports the release in `$RELEASE`, and builds programs that write it to a file.
const GO: &str = r#"#!/bin/sh
case $1 in
version) [ -n "$RELEASE" ] || exit 3; echo "go version go$RELEASE linux/amd64" ;;
env)
    [ "$2" = -json ] || { echo "${GOTOOLCHAIN-local}"; exit; }
    printf '{"GOFLAGS": "%s", "GOTOOLCHAIN": "%s"}' "$GOFLAGS" "${GOTOOLCHAIN-local}" ;;
build)
    [ "$GOTOOLCHAIN" != auto ] || { echo "go: download go1.25: no network" >&2; exit 1; }
    while [ "$1" != -o ]; do shift; done
    printf '#!/bin/sh\necho "made by %s" >made' "$RELEASE" >"$2"
    chmod 755 "$2" ;;
esac
"#;

/// A build with one program, which is run and removed, so that its file is left.
const BUILD: &str = "title = 'A build'\npost_build = [['./a'], ['rm', 'a']]\n[programs]\na = '.'\n";
const MODULE: &str = "module a\n\ngo 1.25\n\nrequire b.example/b v1.2.3\n";
const RECIPE: &str =
    "title = 'A system'\n[[need]]\nbuild = 'a'\n[[process]]\nname = 'a'\ncommand = ['false']\n";

fn with_fake_go() -> Workspace {
    let workspace = workspace();
    workspace.write("bin/go", GO);
    make_executable(&workspace.path("bin/go"));
    workspace.write("systems/a/system.toml", RECIPE);
    workspace.write("builds/a/build.toml", BUILD);
    workspace.write("builds/a/go.mod", MODULE);
    workspace
}

fn make_executable(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("a program");
}

/// Puts programs of the workspace first on the PATH, and the cache into the workspace.
fn set_up<'a>(workspace: &Workspace, command: &'a mut Command, release: &str) -> &'a mut Command {
    let path = env::var("PATH").expect("a PATH");
    let path = format!("{}:{path}", workspace.path("bin").display());
    command
        .env("PATH", path)
        .env("RELEASE", release)
        .env_remove("GOFLAGS")
        .env_remove("GOTOOLCHAIN");
    command.env("XDG_CACHE_HOME", workspace.path("cache"))
}

fn run(workspace: &Workspace, arguments: &[&str], release: &str, env: &[(&str, &str)]) -> Output {
    let mut command = workspace.command(arguments);
    set_up(workspace, &mut command, release).envs(env.iter().copied());
    command.output().expect("it runs")
}

#[test]
fn outdated_go_is_reported() {
    let workspace = with_fake_go();
    let lack = "Go 1.19.8 is installed; Go 1.25 or newer is needed";
    let hint = "install Go 1.25 or newer and put it first on the PATH";
    for (arguments, words) in [
        (&["systems", "build", "a"][..], vec![lack, hint]),
        (&["systems", "check", "a"], vec![lack, hint, "then: tollgate systems build a"]),
        (&["systems", "show", "a"], vec![lack, hint]),
        (&["doctor"], vec![lack, hint]),
    ] {
        let output = run(&workspace, arguments, "1.19.8", &[]);
        let message = flat(&show(&output));
        for words in words {
            assert!(message.contains(words), "{arguments:?}: no {words:?} in {message}");
        }
        if arguments[0] == "systems" && arguments[1] != "show" {
            assert_eq!(output.status.code(), Some(1), "{message}");
        }
    }
    assert!(!workspace.path("cache/tollgate/builds").exists());
    let doctor = run(&workspace, &["doctor"], "1.25.1", &[]);
    assert!(
        flat(&stdout(&doctor)).contains("ok builds Go 1.25.1; needed: 1.25"),
        "{}",
        show(&doctor)
    );
}

#[test]
fn failed_toolchain_download_is_reported() {
    let workspace = with_fake_go();
    let output = run(&workspace, &["systems", "build", "a"], "1.22.4", &[("GOTOOLCHAIN", "auto")]);
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    let message = flat(&stderr(&output));
    let words = "Go 1.22.4 is installed and has to fetch a newer release; if it cannot, install Go 1.25 or newer";
    assert!(message.contains("no network") && message.contains(words), "{message}");
}

#[test]
fn toolchains_have_separate_builds() {
    let workspace = with_fake_go();
    let build = |release: &str, flags: &str| {
        let output = run(&workspace, &["systems", "build", "a"], release, &[("GOFLAGS", flags)]);
        assert_eq!(output.status.code(), Some(0), "{}", show(&output));
        let out = stdout(&output);
        assert!(out.contains("  module  b.example/b v1.2.3\n"), "{out}");
        let folder =
            out.lines().find_map(|line| line.trim().strip_prefix("in ")).expect("a folder");
        let made = fs::read_to_string(Path::new(folder.trim()).join("made")).expect("a result");
        (made, stderr(&output).contains("already built"))
    };
    assert_eq!(build("1.25.1", ""), ("made by 1.25.1\n".to_owned(), false));
    assert_eq!(build("1.25.2", ""), ("made by 1.25.2\n".to_owned(), false));
    assert_eq!(build("1.25.2", "-race"), ("made by 1.25.2\n".to_owned(), false));
    // Each result is kept.
    assert_eq!(build("1.25.1", ""), ("made by 1.25.1\n".to_owned(), true));
    assert_eq!(build("1.25.2", "-race"), ("made by 1.25.2\n".to_owned(), true));
}

#[test]
fn ambiguous_builds_without_go_are_reported() {
    let workspace = with_fake_go();
    for release in ["1.25.1", "1.25.2"] {
        let output = run(&workspace, &["systems", "build", "a"], release, &[]);
        assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    }
    let results = results(&workspace);
    assert_eq!(results.len(), 2);
    let check = || {
        let mut command = workspace.command(&["systems", "check", "a"]);
        set_up(&workspace, &mut command, "").env("PATH", workspace.path("nothing"));
        command.output().expect("it runs")
    };
    let output = check();
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    let message = flat(&stderr(&output));
    let names: Vec<String> = results.iter().map(|path| path.display().to_string()).collect();
    let words = format!(
        "A build was built by several tool chains, and without Go it is unknown which result to \
         use (Go is not installed): {}. To fix this: install Go 1.25 or newer and put it first on the \
         PATH; or remove all of these folders but one",
        names.join(", ")
    );
    assert!(message.contains(&words), "{message}");
    fs::remove_dir_all(&names[0]).expect("a folder");
    // The remaining result is used; its system fails to start.
    let output = check();
    assert!(stdout(&output).contains(&names[1]), "{}", show(&output));
}

/// Two checkouts have different sources of one build, and share the cache.
#[test]
fn builds_of_several_checkouts_stay_until_clean() {
    let workspace = with_fake_go();
    let systems = |arguments: &[&str]| {
        let output = run(&workspace, &[&["systems"][..], arguments].concat(), "1.25.1", &[]);
        assert_eq!(output.status.code(), Some(0), "{}", show(&output));
        stderr(&output)
    };
    systems(&["build", "a"]);
    let first = results(&workspace).remove(0);
    workspace.write("builds/a/main.go", "package main\n");
    systems(&["build", "a"]);
    assert_eq!(results(&workspace).len(), 2);
    assert!(systems(&["build", "a"]).contains("already built"));
    assert!(systems(&["build", "a", "--rebuild"]).contains("built in"));
    assert_eq!(results(&workspace).len(), 2, "an unfinished build is left");
    assert!(first.join("made").exists());
    let cache = workspace.path("cache/tollgate");
    let words = format!("removed {}: 1 MiB freed", cache.display());
    let message = flat(&systems(&["clean"]));
    assert!(message.contains(&words), "{message}");
    assert!(!cache.exists());
    assert!(systems(&["clean"]).contains("nothing to remove"));
}

/// Returns the folders of all results, by name.
fn results(workspace: &Workspace) -> Vec<PathBuf> {
    let entries = fs::read_dir(workspace.path("cache/tollgate/builds/a")).expect("the folder");
    let mut results: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    results.sort();
    results
}
