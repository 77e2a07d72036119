//! Debian packages: finds missing ones and installs them without starting their services.

use crate::interrupt::{Interrupt, Interrupted};
use crate::process::command::{self, CommandError};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum PackageError {
    #[error(
        "not a Debian system (no `{program}`); install the equivalents of these packages: {packages}"
    )]
    NotDebian { program: &'static str, packages: String, source: CommandError },
    #[error("installing packages requires root; run:\n    sudo {0}")]
    NotRoot(String),
    #[error("cannot run `{command}`")]
    Run { command: String, source: io::Error },
    /// Details are on standard error.
    #[error("`{command}` failed ({status})")]
    Failed { command: String, status: String },
    #[error("cannot write {POLICY}, which prevents the start of services")]
    Policy(#[source] io::Error),
    #[error("cannot lock {LOCK}, which prevents two installations at the same time")]
    Lock(#[source] io::Error),
    #[error(
        "packages are being installed by another `tollgate systems install` or by scripts/setup \
         (`lslocks` shows the process that holds {LOCK}); try again when it has ended"
    )]
    Busy,
    #[error(transparent)]
    Query(CommandError),
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// Returns the packages that are not installed.
pub fn missing<'a>(packages: &[&'a str]) -> Result<Vec<&'a str>, PackageError> {
    let mut missing = Vec::new();
    for package in packages {
        let mut query = Command::new("dpkg-query");
        query.args(["-W", "-f=${db:Status-Status}", package]);
        let output = command::run(&mut query, QUERY_TIMEOUT, &Interrupt::default());
        let output = output.map_err(|error| match error {
            CommandError::Run { .. } => PackageError::NotDebian {
                program: "dpkg-query",
                packages: packages.join(" "),
                source: error,
            },
            error => PackageError::Query(error),
        })?;
        // An unknown package is a failure, a removed one has another status.
        if output.stdout != b"installed" {
            missing.push(*package);
        }
    }
    Ok(missing)
}

/// Installs packages without starting their services. The output of the tools goes to standard error. On interruption
/// the package manager gets SIGINT and may finish what must not be interrupted.
pub fn install(packages: &[&str], interrupt: &Interrupt) -> Result<(), PackageError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(PackageError::NotRoot(install_command(APT_GET, packages).join(" ")));
    }
    let machine = Machine { apt_get: APT_GET, policy: Path::new(POLICY), lock: Path::new(LOCK) };
    install_on(&machine, packages, interrupt)
}

const APT_GET: &str = "apt-get";

fn install_command<'a>(apt_get: &'a str, packages: &[&'a str]) -> Vec<&'a str> {
    [&[apt_get, "install", "-y", "--no-install-recommends"], packages].concat()
}

/// Debian runs this file before it starts a service.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Held during an installation; `scripts/setup` uses it too.
const LOCK: &str = "/run/tollgate-install.lock";

/// Paths of the machine, replaced in tests.
struct Machine<'a> {
    apt_get: &'a str,
    policy: &'a Path,
    lock: &'a Path,
}

fn install_on(
    machine: &Machine<'_>,
    packages: &[&str],
    interrupt: &Interrupt,
) -> Result<(), PackageError> {
    let lock =
        InstallLock::take(machine.lock).map_err(PackageError::Lock)?.ok_or(PackageError::Busy)?;
    // Dropped before the lock, so that the next installation does not find it.
    let _policy = ServicePolicy::create(machine.policy).map_err(PackageError::Policy)?;
    run(&[machine.apt_get, "update"], &lock, interrupt)?;
    run(&install_command(machine.apt_get, packages), &lock, interrupt)
}

fn run(words: &[&str], lock: &InstallLock, interrupt: &Interrupt) -> Result<(), PackageError> {
    interrupt.check()?;
    let command = words.join(" ");
    let failed = |source| PackageError::Run { command: command.clone(), source };
    let (program, arguments) = words.split_first().map_or(("", &[][..]), |(p, a)| (*p, a));
    let mut child = Command::new(program);
    child.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").env(POLICY_VARIABLE, "1");
    let child = child.stdin(lock.as_stdin().map_err(PackageError::Lock)?);
    // In its own process group, because Ctrl-C of a terminal would also interrupt dpkg.
    let child = child.stdout(io::stderr()).process_group(0);
    let mut child = child.spawn().map_err(failed)?;
    let Some(status) = wait(&mut child, interrupt).map_err(failed)? else {
        return Err(Interrupted.into());
    };
    match status.success() {
        true => Ok(()),
        false => Err(PackageError::Failed { command, status: status.to_string() }),
    }
}

/// Returns `None` after an interruption.
fn wait(child: &mut Child, interrupt: &Interrupt) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if interrupt.sleep(POLL).is_err() {
            break;
        }
    }
    // apt-get ignores this while dpkg runs, which then finishes properly.
    let pid = Pid::from_raw(child.id().cast_signed());
    kill(pid, Signal::SIGINT)?;
    let deadline = Instant::now() + DPKG_TIMEOUT;
    while child.try_wait()?.is_none() {
        if Instant::now() >= deadline {
            killpg(pid, Signal::SIGKILL)?;
            child.wait()?;
        }
        thread::sleep(POLL);
    }
    Ok(None)
}

const POLL: Duration = Duration::from_millis(20);
const QUERY_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for dpkg to finish after an interruption before it is killed.
const DPKG_TIMEOUT: Duration = Duration::from_secs(600);

/// Lock on installations, held until this is dropped and every package manager that inherited it has ended. Without
/// it, the first of two installations to end would allow services while the other one still brings some.
#[derive(Debug)]
struct InstallLock(File);

impl InstallLock {
    /// Returns `None` if another process holds the lock.
    fn take(path: &Path) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// The empty lock file as standard input of a package manager, which so keeps the lock if this process is killed.
    fn as_stdin(&self) -> io::Result<Stdio> {
        Ok(self.0.try_clone()?.into())
    }
}

/// Set in the environment of the package manager. The policy denies services only where it is set.
const POLICY_VARIABLE: &str = "TOLLGATE_INSTALLS";

/// Denies the start of services until dropped. Keeps a policy file of someone else.
///
/// The file of a killed process remains: it still denies the services of the package manager that this process
/// started, removes itself when anything else runs it, and is replaced by the next installation.
#[derive(Debug)]
struct ServicePolicy {
    created: Option<PathBuf>,
}

impl ServicePolicy {
    fn create(path: &Path) -> io::Result<Self> {
        if is_stale(path)? {
            fs::remove_file(path)?;
        }
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).mode(0o755).open(path) {
            Ok(mut file) => {
                // From here on the file is removed on drop, even if writing fails.
                let policy = Self { created: Some(path.to_owned()) };
                file.write_all(policy_script(process::id()).as_bytes())?;
                Ok(policy)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(Self { created: None })
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for ServicePolicy {
    fn drop(&mut self) {
        if let Some(path) = &self.created {
            // A file that remains has no effect after this process.
            fs::remove_file(path).ok();
        }
    }
}

/// Shell script that Debian runs. `scripts/setup` writes it too.
const POLICY_TEMPLATE: &str = include_str!("packages/policy-rc.d");
/// Placeholder of the process id.
const OWNER: &str = "OWNER";

fn policy_script(owner: u32) -> String {
    POLICY_TEMPLATE.replace(OWNER, &owner.to_string())
}

/// True if a file was written by a process that has ended.
fn is_stale(path: &Path) -> io::Result<bool> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&text);
    let own = POLICY_TEMPLATE.split_once(OWNER).and_then(|(header, _)| text.strip_prefix(header));
    let owner = own.and_then(|rest| rest.lines().next()?.parse::<u32>().ok());
    Ok(owner.is_some_and(|owner| !Path::new(&format!("/proc/{owner}")).exists()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    /// Greater than any process id.
    const NO_PROCESS: u32 = 4_194_305;

    /// Polls: a process started by another test holds inherited locks until its exec.
    fn becomes_free(lock: &Path) -> bool {
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if InstallLock::take(lock).unwrap().is_some() {
                return true;
            }
            thread::sleep(POLL);
        }
        false
    }

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
        assert!(becomes_free(&lock));
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
            "`DIR/apt-get install -y --no-install-recommends a b` failed (exit status: 1)"
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

    #[test]
    fn refuses_concurrent_installation() {
        // The script tries to lock as another process would.
        let (result, _, log) = install("flock -n lock true; echo \"$1 $?\" >>log\n", None);
        assert_eq!((result, log.as_str()), (Ok(()), "update 1\ninstall 1\n"));
        let dir = tempfile::tempdir().unwrap();
        let (lock, policy) = (dir.path().join("lock"), dir.path().join("policy-rc.d"));
        let _first = InstallLock::take(&lock).unwrap().unwrap();
        let machine = Machine { apt_get: "false", policy: &policy, lock: &lock };
        let error = install_on(&machine, &["a"], &Interrupt::default()).unwrap_err();
        assert!(matches!(error, PackageError::Busy), "{error}");
        assert!(!policy.exists());
    }

    #[test]
    fn child_process_keeps_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = InstallLock::take(&path).unwrap().unwrap();
        let stdin = lock.as_stdin().unwrap();
        let mut child = Command::new("sleep").arg("60").stdin(stdin).spawn().unwrap();
        drop(lock);
        assert!(InstallLock::take(&path).unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(becomes_free(&path));
    }

    #[test]
    fn package_unknown_to_dpkg_is_missing() {
        match missing(&["dpkg", "no-such-package-as-this"]) {
            Ok(missing) => assert_eq!(missing, ["no-such-package-as-this"]),
            // On other systems.
            Err(error) => assert!(matches!(error, PackageError::NotDebian { .. }), "{error}"),
        }
    }

    fn exit_code(policy: &Path, env: &[(&str, &str)]) -> Option<i32> {
        let mut command = Command::new("sh");
        let command = command.arg(policy).env_remove(POLICY_VARIABLE).envs(env.iter().copied());
        command.status().unwrap().code()
    }

    #[test]
    fn policy_denies_own_services_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("policy-rc.d");
        let policy = ServicePolicy::create(&path).unwrap();
        assert_eq!(exit_code(&path, &[(POLICY_VARIABLE, "1")]), Some(101));
        assert_eq!(exit_code(&path, &[]), Some(0));
        // A second policy does not remove the first.
        drop(ServicePolicy::create(&path).unwrap());
        assert!(path.exists());
        drop(policy);
        assert!(!path.exists());
        let other = "#!/bin/sh\nexit 101\n";
        fs::write(&path, other).unwrap();
        drop(ServicePolicy::create(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), other);
    }

    #[test]
    fn policy_of_killed_process_removes_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("policy-rc.d");
        fs::write(&path, policy_script(NO_PROCESS)).unwrap();
        // The package manager of the killed process may still run.
        assert_eq!(exit_code(&path, &[(POLICY_VARIABLE, "1")]), Some(101));
        assert!(path.exists());
        assert_eq!(exit_code(&path, &[]), Some(0));
        assert!(!path.exists());
        fs::write(&path, policy_script(NO_PROCESS)).unwrap();
        drop(ServicePolicy::create(&path).unwrap());
        assert!(!path.exists());
    }
}
