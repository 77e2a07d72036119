//! Installing packages, by a package manager that only says what it is asked.

use super::workspace;
use crate::support::{Workspace, stderr, told, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Output, Stdio};
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

fn install_and(signal: Signal) -> (Workspace, Output) {
    let workspace = workspace();
    for (program, script) in [("apt-get", APT_GET), ("dpkg-query", "#!/bin/sh\nexit 1\n")] {
        workspace.write(&format!("bin/{program}"), script);
        let path = workspace.path(&format!("bin/{program}"));
        fs::set_permissions(path, Permissions::from_mode(0o755)).expect("a program");
    }
    let path = std::env::var("PATH").expect("a PATH");
    let mut command = workspace.command(&["systems", "install", "haproxy"]);
    command.env("PATH", format!("{}:{path}", workspace.path("bin").display()));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    if geteuid().is_root() {
        let begun = || workspace.path("begun").exists();
        assert!(wait_until(Duration::from_secs(30), begun), "it never began");
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
        } else {
            assert_eq!(output.status.code(), Some(1), "{}", told(&output));
            let line = "sudo apt-get install -y --no-install-recommends haproxy";
            assert!(stderr(&output).contains(line), "{}", told(&output));
        }
        assert_eq!(fs::read(POLICY).ok(), before, "{signal}");
        workspace.assert_nothing_runs();
    }
}
