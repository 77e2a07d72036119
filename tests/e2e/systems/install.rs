//! Installation of packages, and the examples of the help.

use super::{SOUND, workspace};
use crate::support::{Workspace, show, stderr, stdout, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use std::collections::BTreeSet;
use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

/// An apt-get that ignores signals until it is done.
const APT_GET: &str = r#"#!/bin/sh
trap '' INT TERM
cat /usr/sbin/policy-rc.d >policy
echo >started
sleep 1
echo >ended
"#;

const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Time limit for a program to start.
const LIMIT: Duration = Duration::from_secs(30);

fn write_program(workspace: &Workspace, name: &str, script: &str) {
    workspace.write(&format!("bin/{name}"), script);
    let path = workspace.path(&format!("bin/{name}"));
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("a program");
}

/// Puts programs of the workspace first.
fn path_of(workspace: &Workspace) -> String {
    let path = env::var("PATH").expect("a PATH");
    format!("{}:{path}", workspace.path("bin").display())
}

fn start_install(workspace: &Workspace) -> Child {
    let mut command = workspace.command(&["systems", "install", "haproxy"]);
    command.env("PATH", path_of(workspace)).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it runs")
}

fn install_and(signal: Signal) -> (Workspace, Output) {
    let workspace = workspace();
    write_program(&workspace, "apt-get", APT_GET);
    write_program(&workspace, "dpkg-query", "#!/bin/sh\nexit 1\n");
    let child = start_install(&workspace);
    if geteuid().is_root() {
        let started = || workspace.path("started").exists();
        assert!(wait_until(LIMIT, started), "apt-get did not start");
        let second = start_install(&workspace).wait_with_output().expect("its end");
        assert_eq!(second.status.code(), Some(1), "{}", show(&second));
        let refused = "packages are being installed by another";
        assert!(stderr(&second).contains(refused), "{}", show(&second));
        kill(Pid::from_raw(child.id().cast_signed()), signal).expect("it is there");
    }
    let output = child.wait_with_output().expect("its end");
    (workspace, output)
}

#[test]
fn stopped_install_restores_service_policy() {
    let before = fs::read(POLICY).ok();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let (workspace, output) = install_and(signal);
        if geteuid().is_root() {
            assert_eq!(output.status.code(), Some(130), "{}", show(&output));
            assert!(workspace.path("ended").exists(), "the package manager was cut off");
            assert!(workspace.read("policy").contains("exit 101"), "services may start");
            let words = "stopping after the current package operation\nstopped\n";
            assert!(stderr(&output).ends_with(words), "{}", show(&output));
        } else {
            assert_eq!(output.status.code(), Some(1), "{}", show(&output));
            let line = "sudo apt-get install -y --no-install-recommends haproxy";
            assert!(stderr(&output).contains(line), "{}", show(&output));
        }
        assert_eq!(fs::read(POLICY).ok(), before, "{signal}");
        workspace.assert_nothing_runs();
    }
}

/// Returns the commands in a help text, without their descriptions.
fn examples(help: &str) -> BTreeSet<String> {
    let lines = help.lines().filter_map(|line| line.strip_prefix("  tollgate "));
    let commands = lines.map(|line| line.split("   ").next().unwrap_or(line));
    let each = commands.flat_map(|line| line.split("&& tollgate "));
    each.map(|line| line.trim().to_owned()).collect()
}

fn all_examples(workspace: &Workspace) -> BTreeSet<String> {
    let pages = [&["systems", "--help"][..], &["systems", "list", "--help"]];
    let further =
        ["show", "install", "build", "check"].map(|command| ["systems", command, "--help"]);
    let further = further.iter().map(<[&str; 3]>::as_slice);
    let pages = pages.into_iter().chain(further).map(|page| {
        let output = workspace.run(page);
        assert_eq!(output.status.code(), Some(0), "{}", show(&output));
        stdout(&output)
    });
    pages.flat_map(|page| examples(&page)).collect()
}

#[test]
fn examples_are_parsed_from_help() {
    let help = "Examples:\n  tollgate a b      says this\n                    and that\n  tollgate c && tollgate d\n";
    assert_eq!(examples(help), ["a b", "c", "d"].map(str::to_owned).into());
}

#[test]
fn examples_of_help_work() {
    let workspace = workspace();
    // All packages count as installed, so that none is installed.
    workspace.write("bin/dpkg-query", "#!/bin/sh\nprintf installed\n");
    let query = workspace.path("bin/dpkg-query");
    fs::set_permissions(query, Permissions::from_mode(0o755)).expect("a program");
    let path = env::var("PATH").expect("a PATH");
    let path = format!("{}:{path}", workspace.path("bin").display());
    let examples = all_examples(&workspace);
    for command in ["list", "show", "install", "build", "check"] {
        let begin = format!("systems {command}");
        assert!(examples.iter().any(|line| line.starts_with(&begin)), "{examples:?}");
    }
    for example in &examples {
        let words: Vec<&str> = example.split_whitespace().collect();
        let mut command = workspace.command(&words);
        command.env("PATH", &path);
        if words == ["systems", "clean"] {
            // Other tests use the real cache.
            workspace.write("cache/tollgate/builds/old/file", "");
            command.env("XDG_CACHE_HOME", workspace.path("cache"));
        }
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "tollgate {example}: {}", show(&output));
    }
    assert!(
        !workspace.path("cache/tollgate/builds/old").exists(),
        "`systems clean` removes builds"
    );
    workspace.assert_nothing_runs();
}

#[test]
fn recipe_of_the_manual_is_installed_and_responds() {
    let workspace = workspace();
    let manual = include_str!("../../../docs/systems.md");
    for file in ["systems/lighttpd/system.toml", "systems/lighttpd/lighttpd.conf"] {
        let block = manual.split(&format!("\n`{file}`\n\n```")).nth(1).expect("the file");
        let text = block.split_once('\n').and_then(|(_, text)| text.split_once("```"));
        workspace.write(file, text.expect("a block").0);
    }
    workspace.run(&["systems", "install", "lighttpd"]);
    let output = workspace.run(&["systems", "check", "lighttpd"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    assert!(stdout(&output).contains(SOUND), "{}", show(&output));
}
