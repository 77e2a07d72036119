//! The Go tool chain that makes the builds: told when it is too old, and never mistaken for another one.

use super::workspace;
use crate::support::{Workspace, flat, stderr, stdout, told, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

/// Says that it is the release that it is told to be, and makes programs that write down which one made
/// them.
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

/// What this kind of tool chain makes: one program, which is run and taken away, so that what it wrote is left.
const BUILD: &str = "title = 'A build'\nthen = [['./a'], ['rm', 'a']]\n[programs]\na = '.'\n";
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

/// Its programs come first, and the cache is the workspace's own.
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
fn a_go_that_is_too_old_is_told_with_what_is_needed() {
    let workspace = with_fake_go();
    let lack = "Go 1.19.8 is here, and Go 1.25 or newer is needed";
    let mend = "install Go 1.25 or newer, and put it first on the PATH";
    for (arguments, words) in [
        (&["systems", "build", "a"][..], vec![lack, mend]),
        (&["systems", "check", "a"], vec![lack, mend, "then: tollgate systems build a"]),
        (&["systems", "list"], vec![lack, mend]),
        (&["doctor"], vec![lack, mend]),
    ] {
        let output = run(&workspace, arguments, "1.19.8", &[]);
        let said = flat(&told(&output));
        for words in words {
            assert!(said.contains(words), "{arguments:?}: no {words:?} in {said}");
        }
        if arguments[0] == "systems" && arguments[1] != "list" {
            assert_eq!(output.status.code(), Some(1), "{said}");
        }
    }
    assert!(!workspace.path("cache/tollgate/builds").exists());
    let doctor = run(&workspace, &["doctor"], "1.25.1", &[]);
    assert!(
        flat(&stdout(&doctor)).contains("ok builds Go 1.25.1; needed: 1.25"),
        "{}",
        told(&doctor)
    );
}

#[test]
fn a_newer_go_that_could_not_be_fetched_is_told() {
    let workspace = with_fake_go();
    let output = run(&workspace, &["systems", "build", "a"], "1.22.4", &[("GOTOOLCHAIN", "auto")]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    let said = flat(&stderr(&output));
    let words =
        "Go 1.22.4 is here and had to fetch a newer one: where it cannot, install Go 1.25 or newer";
    assert!(said.contains("no network") && said.contains(words), "{said}");
}

#[test]
fn setup_tells_a_go_that_is_too_old() {
    let workspace = with_fake_go();
    // Everything else is there, whatever this machine has.
    workspace.write("bin/dpkg-query", "#!/bin/sh\nprintf installed\n");
    workspace.write("bin/cargo", "#!/bin/sh\n");
    for program in ["bin/dpkg-query", "bin/cargo"] {
        make_executable(&workspace.path(program));
    }
    let setup_with = |release: &str, env: &[(&str, &str)]| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/setup");
        let mut command = Command::new(script);
        let command = set_up(&workspace, command.arg("go"), release).envs(env.iter().copied());
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
        flat(&stderr(&output))
    };
    let setup = |release: &str| setup_with(release, &[]);
    assert!(setup("1.19.8").contains("Go 1.19.8 is here"), "{}", setup("1.19.8"));
    assert!(setup("1.19.8").contains("or newer is needed"), "{}", setup("1.19.8"));
    assert_eq!(setup("1.99.0"), "");
    // One that fetches a newer one does, unless it is bound to a release.
    assert_eq!(setup_with("1.22.4", &[("GOTOOLCHAIN", "go1.22.4+auto")]), "");
    let bound = setup_with("1.22.4", &[("GOTOOLCHAIN", "go1.22.4")]);
    assert!(bound.contains("Go 1.22.4 is here"), "{bound}");
    // One that fails to say what it is ends nothing.
    assert!(setup("").contains("Go of unknown version is here"), "{}", setup(""));
}

#[test]
fn another_tool_chain_makes_another_build() {
    let workspace = with_fake_go();
    let build = |release: &str, flags: &str| {
        let output = run(&workspace, &["systems", "build", "a"], release, &[("GOFLAGS", flags)]);
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
        let out = stdout(&output);
        assert!(out.contains("  module  b.example/b v1.2.3\n"), "{out}");
        let folder =
            out.lines().find_map(|line| line.trim().strip_prefix("in ")).expect("a folder");
        let made = fs::read_to_string(Path::new(folder.trim()).join("made")).expect("a result");
        (made, stderr(&output).contains("built already"))
    };
    assert_eq!(build("1.25.1", ""), ("made by 1.25.1\n".to_owned(), false));
    assert_eq!(build("1.25.2", ""), ("made by 1.25.2\n".to_owned(), false));
    assert_eq!(build("1.25.2", "-race"), ("made by 1.25.2\n".to_owned(), false));
    // And none of them takes the place of another.
    assert_eq!(build("1.25.1", ""), ("made by 1.25.1\n".to_owned(), true));
    assert_eq!(build("1.25.2", "-race"), ("made by 1.25.2\n".to_owned(), true));
}

#[test]
fn without_go_results_of_several_tool_chains_are_named() {
    let workspace = with_fake_go();
    for release in ["1.25.1", "1.25.2"] {
        let output = run(&workspace, &["systems", "build", "a"], release, &[]);
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    }
    let results = results(&workspace);
    assert_eq!(results.len(), 2);
    let check = || {
        let mut command = workspace.command(&["systems", "check", "a"]);
        set_up(&workspace, &mut command, "").env("PATH", workspace.path("nothing"));
        command.output().expect("it runs")
    };
    let output = check();
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    let said = flat(&stderr(&output));
    let names: Vec<String> = results.iter().map(|path| path.display().to_string()).collect();
    let words = format!(
        "A build was built by several tool chains, and nothing says which result is meant \
         (there is no Go here): {}. To mend this: install Go 1.25 or newer, and put it first on the \
         PATH; or remove all of these folders but one",
        names.join(", ")
    );
    assert!(said.contains(&words), "{said}");
    fs::remove_dir_all(&names[0]).expect("a folder");
    // What is left is taken: its system is started, which only says that it fails.
    let output = check();
    assert!(stdout(&output).contains(&names[1]), "{}", told(&output));
}

/// Two checkouts have other sources of one build, and one cache.
#[test]
fn results_stay_for_other_checkouts_until_nothing_has_used_them_for_long() {
    let workspace = with_fake_go();
    let output = |arguments: &[&str]| {
        let arguments = [&["systems", "build", "a"][..], arguments].concat();
        run(&workspace, &arguments, "1.25.1", &[])
    };
    let build = |arguments: &[&str]| {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
        stderr(&output)
    };
    build(&[]);
    let first = results(&workspace).remove(0);
    // Made before tool chains were told apart, and what somebody keeps there.
    workspace.write("cache/tollgate/builds/a/0123456789ab/made", "");
    workspace.write("cache/tollgate/builds/a/notes/text", "");
    let begun = workspace.path("begun");
    let system = format!(
        "title = 'A system'\n[[need]]\nbuild = 'a'\n[[process]]\nname = 'a'\n\
         command = ['sh', '-c', 'echo >{}; exec sleep 60']\n",
        begun.display()
    );
    workspace.write("systems/a/system.toml", &system);
    let mut check = workspace.command(&["systems", "check", "a"]);
    set_up(&workspace, &mut check, "1.25.1").stdout(Stdio::null()).stderr(Stdio::null());
    let mut check = check.spawn().expect("it runs");
    assert!(wait_until(Duration::from_secs(20), || begun.exists()), "it never began");
    let refused = output(&["--again"]);
    assert_eq!(refused.status.code(), Some(1), "{}", told(&refused));
    let words = format!("{} is in use by another process", first.display());
    assert!(flat(&stderr(&refused)).contains(&words), "{}", told(&refused));
    // The other checkout.
    workspace.write("builds/a/main.go", "package main\n");
    let said = build(&[]);
    assert!(!said.contains("removed "), "{said}");
    for result in results(&workspace) {
        unused_since(&result, LONG);
    }
    let said = build(&["--again"]);
    let old = workspace.path("cache/tollgate/builds/a/0123456789ab");
    let words =
        |folder: &Path| format!("removed {}, which nothing had used for 90 days", folder.display());
    assert!(said.contains(&words(&old)), "{said}");
    assert_eq!(said.matches("removed ").count(), 1, "{said}");
    assert!(first.join("made").exists(), "removed under a check: {said}");
    kill(Pid::from_raw(check.id().cast_signed()), Signal::SIGTERM).expect("it is there");
    check.wait().expect("its end");
    // The first one is in use again, if only for a moment.
    fs::remove_file(workspace.path("builds/a/main.go")).expect("a source");
    assert!(build(&[]).contains("built already"));
    workspace.write("builds/a/main.go", "package main\n");
    assert!(!build(&["--again"]).contains("removed "));
    unused_since(&first, LONG);
    let said = build(&["--again"]);
    assert!(said.contains(&words(&first)), "{said}");
    let left = results(&workspace);
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left[0].join("made").exists() && left[1].ends_with("notes"), "{left:?}");
    workspace.assert_nothing_runs();
}

const LONG: Duration = Duration::from_secs(91 * 24 * 3600);

fn unused_since(result: &Path, before: Duration) {
    let folder = fs::File::open(result).expect("a folder");
    folder.set_modified(SystemTime::now() - before).expect("its time");
}

/// The folders with what was built, by name.
fn results(workspace: &Workspace) -> Vec<PathBuf> {
    let entries = fs::read_dir(workspace.path("cache/tollgate/builds/a")).expect("the folder");
    let mut results: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    results.sort();
    results
}

#[test]
fn what_a_build_that_was_killed_left_is_gone_after_the_next_one() {
    let workspace = with_fake_go();
    // No process has such a number: it is more than the kernel gives.
    workspace.write("cache/tollgate/builds/a/unfinished-4194305/source/main.go", "");
    let output = run(&workspace, &["systems", "build", "a"], "1.25.1", &[]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    assert_eq!(results(&workspace).len(), 1, "the result alone");
}
