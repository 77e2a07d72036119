//! Debian packages: finds missing ones and installs them without starting their services.

use crate::process::{Interrupt, command};
use anyhow::{Context, bail};
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub fn missing<'a>(packages: &[&'a str]) -> anyhow::Result<Vec<&'a str>> {
    let mut missing = Vec::new();
    for package in packages {
        let mut query = Command::new("dpkg-query");
        query.args(["-W", "-f=${db:Status-Status}", package]);
        let output = command::run(&mut query, QUERY_TIMEOUT, &Interrupt::default());
        let output = output.map_err(|error| match error.downcast_ref::<io::Error>() {
            Some(cause) if cause.kind() == io::ErrorKind::NotFound => error.context(format!(
                "not a Debian system; install the equivalents of these packages: {}",
                packages.join(" ")
            )),
            _ => error,
        })?;
        // An unknown package is a failure, a removed one has another status.
        if output.stdout != b"installed" {
            missing.push(*package);
        }
    }
    Ok(missing)
}

/// Installs packages without starting their services. The tools print to standard error. On interruption the package
/// manager gets SIGINT and may finish uninterruptible steps.
pub fn install(packages: &[&str], interrupt: &Interrupt) -> anyhow::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        let command = install_command("apt-get", packages).join(" ");
        bail!("installing packages requires root; run:\n    sudo {command}");
    }
    let machine = Machine { apt_get: "apt-get", policy: Path::new(POLICY), lock: Path::new(LOCK) };
    install_on(&machine, packages, interrupt)
}

fn install_command<'a>(apt_get: &'a str, packages: &[&'a str]) -> Vec<&'a str> {
    [&[apt_get, "install", "-y", "--no-install-recommends"], packages].concat()
}

const QUERY_TIMEOUT: Duration = Duration::from_secs(20);
/// Debian runs this file before it starts a service, and does not start it after the exit code 101.
const POLICY: &str = "/usr/sbin/policy-rc.d";
/// Held during an installation.
const LOCK: &str = "/run/tollgate-install.lock";
/// Set for the package manager. The policy denies services only where it is set.
const VARIABLE: &str = "TOLLGATE_INSTALLS";

struct Machine<'a> {
    apt_get: &'a str,
    policy: &'a Path,
    lock: &'a Path,
}

fn install_on(
    machine: &Machine<'_>,
    packages: &[&str],
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    let policy = ServicePolicy::create(machine)?;
    run(&[machine.apt_get, "update"], &policy, interrupt)?;
    run(&install_command(machine.apt_get, packages), &policy, interrupt)
}

fn run(words: &[&str], policy: &ServicePolicy, interrupt: &Interrupt) -> anyhow::Result<()> {
    interrupt.check()?;
    let (program, arguments) = words.split_first().map_or(("", &[][..]), |(p, a)| (*p, a));
    let mut command = Command::new(program);
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").env(VARIABLE, "1");
    // The empty lock file, so that the package manager holds the lock if this process is killed.
    command.stdin(policy.lock.try_clone().with_context(policy_failure)?);
    // Ctrl-C of a terminal would also interrupt dpkg. apt-get ignores SIGINT while dpkg runs, which then finishes.
    command::foreground(command.process_group(0), interrupt)
}

/// Keeps the package manager from starting services until dropped. Does not replace a foreign policy file.
///
/// The file of a killed process has no effect on others: it denies services only to the package manager of tollgate,
/// and removes itself when anything else runs it.
#[derive(Debug)]
struct ServicePolicy {
    /// `None` for a foreign file.
    created: Option<PathBuf>,
    lock: File,
}

impl ServicePolicy {
    fn create(machine: &Machine<'_>) -> anyhow::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let lock = options.open(machine.lock).with_context(policy_failure)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(
                "packages are being installed by another `tollgate systems install` (`lslocks` shows the process \
                 that holds {LOCK}); try again when it has ended"
            ),
            Err(TryLockError::Error(error)) => return Err(error).with_context(policy_failure),
        }
        let script = script(machine);
        // Not readable as text: a foreign file.
        let is_foreign = machine.policy.exists()
            && fs::read_to_string(machine.policy).ok().as_ref() != Some(&script);
        let mut policy = Self { created: None, lock };
        if !is_foreign {
            // From here on removed on drop, even if writing fails.
            policy.created = Some(machine.policy.to_owned());
            fs::write(machine.policy, script)
                .and_then(|()| fs::set_permissions(machine.policy, Permissions::from_mode(0o755)))
                .with_context(policy_failure)?;
        }
        Ok(policy)
    }
}

impl Drop for ServicePolicy {
    fn drop(&mut self) {
        if let Some(path) = &self.created {
            // A file that remains has no effect.
            fs::remove_file(path).ok();
        }
    }
}

fn policy_failure() -> String {
    format!("cannot write {POLICY}, which prevents the start of services, or lock {LOCK}")
}

fn script(machine: &Machine<'_>) -> String {
    format!(
        "#!/bin/sh\n# Written by `tollgate systems install`, for its own package manager.\n\
         [ -z \"${VARIABLE}\" ] || exit 101\nflock -n '{}' rm -f \"$0\"\nexit 0\n",
        machine.lock.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;
    use std::thread;
    use std::time::Instant;

    const POLL: Duration = Duration::from_millis(20);

    /// Installs with a script as package manager, which finds the policy file as `$POLICY`. Interrupts it once the
    /// script has written the file `started`. Returns the result, the policy file afterwards, and the file `log`.
    fn install(script: &str, policy: Option<&str>) -> (Result<(), String>, Option<String>, String) {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let (policy_path, apt_get) = (at("policy-rc.d"), at("apt-get"));
        let head =
            format!("#!/bin/sh\nPOLICY={}\ncd {}\n", policy_path.display(), dir.path().display());
        fs::write(at("script"), head + script).unwrap();
        // Copied by another process: a file that a concurrent test inherited open for writing cannot be executed.
        let copied =
            Command::new("install").args(["-m", "755"]).arg(at("script")).arg(&apt_get).status();
        assert!(copied.unwrap().success());
        if let Some(text) = policy {
            fs::write(&policy_path, text).unwrap();
        }
        let interrupt = Interrupt::default();
        let (flag, started) = (interrupt.flag(), at("started"));
        let interrupter = thread::spawn(move || {
            let deadline = Instant::now() + Duration::from_secs(30);
            while !started.exists() && Instant::now() < deadline {
                thread::sleep(POLL);
            }
            flag.store(started.exists(), Ordering::Relaxed);
        });
        let lock = at("lock");
        let machine =
            Machine { apt_get: apt_get.to_str().unwrap(), policy: &policy_path, lock: &lock };
        let result = install_on(&machine, &["a", "b"], &interrupt);
        let log = fs::read_to_string(at("log")).unwrap_or_default();
        // Ends the interrupter of a script that was not to be interrupted.
        fs::write(at("started"), "").unwrap();
        interrupter.join().unwrap();
        let result = result
            .map_err(|error| error.to_string().replace(&dir.path().display().to_string(), "DIR"));
        (result, fs::read_to_string(policy_path).ok(), log)
    }

    #[test]
    fn denies_services_during_installation_only() {
        let (result, policy, log) = install("sh \"$POLICY\"; echo \"$* $?\" >>log\n", None);
        assert_eq!((result, policy), (Ok(()), None));
        assert_eq!(log, "update 101\ninstall -y --no-install-recommends a b 101\n");
        let (result, policy, _) = install("[ $1 = update ]", None);
        assert_eq!(
            result.unwrap_err(),
            "`DIR/apt-get install -y --no-install-recommends a b` failed: exit status: 1"
        );
        assert_eq!(policy, None);
    }

    #[test]
    fn interruption_waits_for_the_package_manager() {
        let interrupted = Err("interrupted".to_owned());
        // Ignores SIGINT, as apt-get does while dpkg runs.
        let script = "trap '' INT; echo >started; sleep 0.3; sh \"$POLICY\"; echo \"$?\" >log\n";
        assert_eq!(install(script, None), (interrupted.clone(), None, "101\n".to_owned()));
        let other = "#!/bin/sh\nexit 101\n";
        assert_eq!(
            install(script, Some(other)),
            (interrupted.clone(), Some(other.to_owned()), "101\n".to_owned())
        );
        // Ends at once, as apt-get does while it downloads.
        let script =
            "trap 'echo ended >log; kill $!; exit 1' INT; sleep 60 & echo >started; wait\n";
        assert_eq!(install(script, None), (interrupted, None, "ended\n".to_owned()));
    }

    /// Runs the policy as Debian does.
    fn exit_code(policy: &Path, env: &[(&str, &str)]) -> Option<i32> {
        let mut command = Command::new("sh");
        let command = command.arg(policy).env_remove(VARIABLE).envs(env.iter().copied());
        command.status().unwrap().code()
    }

    const BUSY: &str = "packages are being installed by another";

    #[test]
    fn second_installation_is_refused_and_others_may_start_services() {
        let dir = tempfile::tempdir().unwrap();
        let (policy, lock) = (dir.path().join("policy-rc.d"), dir.path().join("lock"));
        let machine = Machine { apt_get: "false", policy: &policy, lock: &lock };
        let first = ServicePolicy::create(&machine).unwrap();
        let error = install_on(&machine, &["a"], &Interrupt::default()).unwrap_err();
        assert!(error.to_string().starts_with(BUSY), "{error}");
        assert_eq!(exit_code(&policy, &[(VARIABLE, "1")]), Some(101));
        assert_eq!(exit_code(&policy, &[]), Some(0));
        assert!(policy.exists(), "the installation continues");
        // The package manager of a killed process holds the lock.
        let mut child = Command::new("sleep");
        let mut child = child.arg("60").stdin(first.lock.try_clone().unwrap()).spawn().unwrap();
        drop(first);
        assert!(!policy.exists());
        let second = ServicePolicy::create(&machine);
        assert!(second.unwrap_err().to_string().starts_with(BUSY));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn policy_of_killed_process_removes_itself_or_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (policy, lock) = (dir.path().join("policy-rc.d"), dir.path().join("lock"));
        let machine = Machine { apt_get: "false", policy: &policy, lock: &lock };
        fs::write(&lock, "").unwrap();
        fs::write(&policy, script(&machine)).unwrap();
        // Its package manager may still run.
        assert_eq!(exit_code(&policy, &[(VARIABLE, "1")]), Some(101));
        assert!(policy.exists());
        assert_eq!(exit_code(&policy, &[]), Some(0));
        assert!(!policy.exists());
        fs::write(&policy, script(&machine)).unwrap();
        // A process started by another test holds inherited locks until its exec.
        let deadline = Instant::now() + Duration::from_secs(30);
        while let Err(error) = ServicePolicy::create(&machine) {
            assert!(Instant::now() < deadline, "{error}");
            thread::sleep(POLL);
        }
        assert!(!policy.exists());
    }

    #[test]
    fn package_unknown_to_dpkg_is_missing() {
        match missing(&["dpkg", "no-such-package-as-this"]) {
            Ok(missing) => assert_eq!(missing, ["no-such-package-as-this"]),
            // On other systems.
            Err(error) => assert!(error.to_string().starts_with("not a Debian"), "{error}"),
        }
    }
}
