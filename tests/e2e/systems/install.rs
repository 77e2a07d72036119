//! Installation of packages, and the examples of the help.

use super::workspace;
use crate::support::{Workspace, show, stderr, stdout, wait_until};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, geteuid};
use std::collections::BTreeSet;
use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
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

/// An apt-get that records whether services are suppressed, and whether it holds the lock. Hangs if the file
/// `hang` exists.
const APT_GET_OF_SETUP: &str = r#"#!/bin/sh
sh policy-rc.d; forbidden=$?
flock -n lock true; echo "$1 $forbidden $?" >>log
[ ! -e hang ] || { echo >started; sleep 60; }
"#;

/// Returns a command that runs `scripts/setup` with one recipe, and with the policy and the lock in the workspace.
fn setup_of(workspace: &Workspace) -> Command {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(project.join("scripts/setup")).expect("the script");
    let [policy, lock] = ["policy-rc.d", "lock"].map(|name| workspace.path(name));
    let moved = [(POLICY, policy), ("/run/tollgate-install.lock", lock)];
    let text = moved.iter().fold(text, |text, (name, here)| {
        assert_eq!(text.matches(name).count(), 1, "{name}");
        text.replace(name, &here.display().to_string())
    });
    workspace.write("scripts/setup", &text);
    let policy_text = "crates/runner/src/system/packages/policy-rc.d";
    let of_project = fs::read_to_string(project.join(policy_text)).expect("the text");
    workspace.write(policy_text, &of_project);
    workspace.write("systems/a/system.toml", "apt = [\"made-up\"]\n");
    for (name, script) in [
        ("apt-get", APT_GET_OF_SETUP),
        ("cargo", "#!/bin/sh\n"),
        ("cc", "#!/bin/sh\n"),
        ("dpkg-query", "#!/bin/sh\nexit 1\n"),
        // Installs nothing, so any user will do.
        ("id", "#!/bin/sh\necho 0\n"),
    ] {
        write_program(workspace, name, script);
    }
    let mut command = Command::new("bash");
    command.arg(workspace.path("scripts/setup")).env("PATH", path_of(workspace));
    command.env_remove("TOLLGATE_INSTALLS").stderr(Stdio::piped());
    command
}

fn run_policy(policy: &Path, installs: &[(&str, &str)]) -> Option<i32> {
    let mut command = Command::new("sh");
    command.arg(policy).env_remove("TOLLGATE_INSTALLS").envs(installs.iter().copied());
    command.status().expect("a shell").code()
}

#[test]
fn setup_suppresses_services_only_while_installing() {
    let workspace = workspace();
    let policy = workspace.path("policy-rc.d");
    let output = setup_of(&workspace).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    assert!(stderr(&output).contains("setup: installing made-up"), "{}", show(&output));
    assert_eq!(workspace.read("log"), "update 101 1\ninstall 101 1\n");
    assert!(!policy.exists(), "services stay suppressed");

    // A killed script leaves a policy that allows services of others, and removes itself on the next use.
    let mut setup = setup_of(&workspace);
    workspace.write("hang", "");
    let mut child = setup.process_group(0).spawn().expect("it runs");
    let started = || workspace.path("started").exists();
    assert!(wait_until(LIMIT, started), "apt-get did not start");
    killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL).expect("it is there");
    child.wait().expect("its end");
    let gone = || run_policy(&policy, &[]) == Some(0) && !policy.exists();
    assert_eq!(run_policy(&policy, &[("TOLLGATE_INSTALLS", "1")]), Some(101));
    let left = fs::read(&policy).expect("what it left");
    assert!(wait_until(LIMIT, gone), "services stay suppressed");

    // If it was not used meanwhile, the next run replaces it.
    fs::remove_file(workspace.path("hang")).expect("a file");
    fs::remove_file(workspace.path("log")).expect("a file");
    let mut setup = setup_of(&workspace);
    fs::write(&policy, left).expect("a file");
    assert_eq!(setup.output().expect("it runs").status.code(), Some(0));
    assert_eq!(workspace.read("log"), "update 101 1\ninstall 101 1\n");
    assert!(!policy.exists(), "services stay suppressed");
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
    let further = ["install", "build", "check"].map(|command| ["systems", command, "--help"]);
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
    for command in ["list", "install", "build", "check"] {
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
