//! Installing packages, by a package manager that only says what it is asked.

use super::workspace;
use crate::support::{Workspace, stderr, told, wait_until};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, geteuid};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// As apt-get is while dpkg is at work: it goes on to the end of that, whatever it is asked.
const APT_GET: &str = r#"#!/bin/sh
trap '' INT TERM
cat /usr/sbin/policy-rc.d >policy
echo >begun
sleep 1
echo >ended
"#;

const POLICY: &str = "/usr/sbin/policy-rc.d";

/// How long a program may take to begin.
const LIMIT: Duration = Duration::from_secs(30);

fn write_program(workspace: &Workspace, name: &str, script: &str) {
    workspace.write(&format!("bin/{name}"), script);
    let path = workspace.path(&format!("bin/{name}"));
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("a program");
}

/// The workspace's own programs come first.
fn path_of(workspace: &Workspace) -> String {
    let path = std::env::var("PATH").expect("a PATH");
    format!("{}:{path}", workspace.path("bin").display())
}

fn begin_install(workspace: &Workspace) -> Child {
    let mut command = workspace.command(&["systems", "install", "haproxy"]);
    command.env("PATH", path_of(workspace)).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it runs")
}

fn install_and(signal: Signal) -> (Workspace, Output) {
    let workspace = workspace();
    write_program(&workspace, "apt-get", APT_GET);
    write_program(&workspace, "dpkg-query", "#!/bin/sh\nexit 1\n");
    let child = begin_install(&workspace);
    if geteuid().is_root() {
        let begun = || workspace.path("begun").exists();
        assert!(wait_until(LIMIT, begun), "it never began");
        let second = begin_install(&workspace).wait_with_output().expect("its end");
        assert_eq!(second.status.code(), Some(1), "{}", told(&second));
        let refused = "packages are being installed already";
        assert!(stderr(&second).contains(refused), "{}", told(&second));
        kill(Pid::from_raw(child.id().cast_signed()), signal).expect("it is there");
    }
    let output = child.wait_with_output().expect("its end");
    (workspace, output)
}

#[test]
fn an_install_that_is_stopped_leaves_services_as_they_were() {
    let before = fs::read(POLICY).ok();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let (workspace, output) = install_and(signal);
        if geteuid().is_root() {
            assert_eq!(output.status.code(), Some(130), "{}", told(&output));
            assert!(workspace.path("ended").exists(), "the package manager was cut off");
            assert!(workspace.read("policy").contains("exit 101"), "services may start");
            let words = "stopping once the package manager has ended what it has begun\nstopped\n";
            assert!(stderr(&output).ends_with(words), "{}", told(&output));
        } else {
            assert_eq!(output.status.code(), Some(1), "{}", told(&output));
            let line = "sudo apt-get install -y --no-install-recommends haproxy";
            assert!(stderr(&output).contains(line), "{}", told(&output));
        }
        assert_eq!(fs::read(POLICY).ok(), before, "{signal}");
        workspace.assert_nothing_runs();
    }
}

/// Says whether services are forbidden, to it and to others, and that nobody else may install; and goes on
/// until it is killed where it is told to.
const APT_GET_OF_SETUP: &str = r#"#!/bin/sh
sh policy-rc.d; forbidden=$?
flock -n lock true; echo "$1 $forbidden $?" >>said
[ ! -e hang ] || { echo >begun; sleep 60; }
"#;

/// `scripts/setup` with a recipe of its own to install, and with files here in the place of the machine's.
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
    let policy_text = "crates/lab/src/system/packages/policy-rc.d";
    let of_project = fs::read_to_string(project.join(policy_text)).expect("the text");
    workspace.write(policy_text, &of_project);
    workspace.write("systems/a/system.toml", "apt = [\"made-up\"]\n");
    for (name, script) in [
        ("apt-get", APT_GET_OF_SETUP),
        ("cargo", "#!/bin/sh\n"),
        ("cc", "#!/bin/sh\n"),
        ("dpkg-query", "#!/bin/sh\nexit 1\n"),
        // It installs nothing here, so it may be anybody.
        ("id", "#!/bin/sh\necho 0\n"),
    ] {
        write_program(workspace, name, script);
    }
    let mut command = Command::new("bash");
    command.arg(workspace.path("scripts/setup")).env("PATH", path_of(workspace));
    command.env_remove("TOLLGATE_INSTALLS").stderr(Stdio::piped());
    command
}

fn answer(policy: &Path, installs: &[(&str, &str)]) -> Option<i32> {
    let mut command = Command::new("sh");
    command.arg(policy).env_remove("TOLLGATE_INSTALLS").envs(installs.iter().copied());
    command.status().expect("a shell").code()
}

#[test]
fn setup_forbids_services_for_its_own_packages_and_not_for_good() {
    let workspace = workspace();
    let policy = workspace.path("policy-rc.d");
    let output = setup_of(&workspace).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    assert!(stderr(&output).contains("setup: installing made-up"), "{}", told(&output));
    assert_eq!(workspace.read("said"), "update 101 1\ninstall 101 1\n");
    assert!(!policy.exists(), "services stay forbidden");

    // Killed with all that it had started, it leaves what forbids nothing to others, and goes when asked.
    let mut setup = setup_of(&workspace);
    workspace.write("hang", "");
    let mut child = setup.process_group(0).spawn().expect("it runs");
    let begun = || workspace.path("begun").exists();
    assert!(wait_until(LIMIT, begun), "it never began");
    killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL).expect("it is there");
    child.wait().expect("its end");
    let gone = || answer(&policy, &[]) == Some(0) && !policy.exists();
    assert_eq!(answer(&policy, &[("TOLLGATE_INSTALLS", "1")]), Some(101));
    let left = fs::read(&policy).expect("what it left");
    assert!(wait_until(LIMIT, gone), "services stay forbidden");

    // And the next one takes its place where nobody asked meanwhile.
    fs::remove_file(workspace.path("hang")).expect("it is there");
    fs::remove_file(workspace.path("said")).expect("it is there");
    let mut setup = setup_of(&workspace);
    fs::write(&policy, left).expect("a file");
    assert_eq!(setup.output().expect("it runs").status.code(), Some(0));
    assert_eq!(workspace.read("said"), "update 101 1\ninstall 101 1\n");
    assert!(!policy.exists(), "services stay forbidden");
}
