//! Debian packages: which of them are not installed, and installing them without starting what they bring.

mod policy;
mod turn;

use crate::interrupt::{Interrupt, Interrupted};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use policy::Policy;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{io, thread};
use thiserror::Error;
use turn::Turn;

/// Why packages are not installed.
#[derive(Debug, Error)]
pub enum PackageError {
    /// The machine has another kind of packages, or none.
    #[error(
        "there is no `{program}`: this is no Debian; install by hand what {packages} would bring"
    )]
    NoDebian {
        /// The program that is not there.
        program: &'static str,
        /// The packages.
        packages: String,
        /// Why it cannot be run.
        source: io::Error,
    },
    /// It takes rights that this user does not have.
    #[error("installing packages takes root. To do it, type:\n    sudo {0}")]
    NoRoot(String),
    /// A program cannot be run.
    #[error("running `{command}`")]
    Run {
        /// The program and its arguments.
        command: String,
        /// Why not.
        source: io::Error,
    },
    /// A program failed; what it had to say is on standard error.
    #[error("`{command}` failed ({status})")]
    Failed {
        /// The program and its arguments.
        command: String,
        /// How it ended.
        status: String,
    },
    /// Starting services cannot be forbidden.
    #[error("writing {POLICY}, which keeps the packages' services from being started")]
    Policy(#[source] io::Error),
    /// The lock cannot be taken.
    #[error("taking {LOCK}, which keeps two from installing packages side by side")]
    Turn(#[source] io::Error),
    /// Somebody else is at it.
    #[error(
        "packages are being installed already, by another `tollgate systems install` or by \
         scripts/setup (`lslocks` tells which process holds {LOCK}): try again when that has ended"
    )]
    Busy,
    /// It was asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// Those of the packages that are not installed.
///
/// # Errors
///
/// This is no Debian.
pub fn missing<'a>(packages: &[&'a str]) -> Result<Vec<&'a str>, PackageError> {
    let mut missing = Vec::new();
    for package in packages {
        let mut query = Command::new("dpkg-query");
        query.args(["-W", "-f=${db:Status-Status}", package]).stderr(Stdio::null());
        let output = query.output().map_err(|source| PackageError::NoDebian {
            program: "dpkg-query",
            packages: packages.join(" "),
            source,
        })?;
        // One that dpkg never heard of is told by its exit code; one that was removed, by its state.
        if output.stdout != b"installed" {
            missing.push(*package);
        }
    }
    Ok(missing)
}

/// Installs packages. Their services are not started: the lab starts each server itself, on loopback.
/// What the tools print goes to standard error. A wish to stop is passed on to the package manager, which
/// ends what it may not leave half done; then nothing of this is left either.
///
/// # Errors
///
/// This user may not, the package manager fails, or it was asked to stop.
pub fn install(packages: &[&str], interrupt: &Interrupt) -> Result<(), PackageError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(PackageError::NoRoot(install_line(APT_GET, packages).join(" ")));
    }
    let machine = Machine { apt_get: APT_GET, policy: Path::new(POLICY), lock: Path::new(LOCK) };
    install_on(&machine, packages, interrupt)
}

const APT_GET: &str = "apt-get";

fn install_line<'a>(apt_get: &'a str, packages: &[&'a str]) -> Vec<&'a str> {
    [&[apt_get, "install", "-y", "--no-install-recommends"], packages].concat()
}

/// Debian asks this file before it starts a service.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Who holds this installs; `scripts/setup` takes it too.
const LOCK: &str = "/run/tollgate-install.lock";

/// Where packages are installed, and by what.
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
    let turn = Turn::take(machine.lock).map_err(PackageError::Turn)?.ok_or(PackageError::Busy)?;
    // Dropped before the lock is: the next one finds no policy that is still to go.
    let _policy = Policy::forbid(machine.policy).map_err(PackageError::Policy)?;
    run(&[machine.apt_get, "update"], &turn, interrupt)?;
    run(&install_line(machine.apt_get, packages), &turn, interrupt)
}

fn run(words: &[&str], turn: &Turn, interrupt: &Interrupt) -> Result<(), PackageError> {
    interrupt.check()?;
    let command = words.join(" ");
    let failed = |source| PackageError::Run { command: command.clone(), source };
    let (program, arguments) = words.split_first().map_or(("", &[][..]), |(p, a)| (*p, a));
    let mut child = Command::new(program);
    child.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").env(policy::FORBIDS, "1");
    // In a group of its own: Ctrl-C goes to all of a terminal's group, and would cut off dpkg too.
    let child = child.stdin(turn.held_by_child().map_err(PackageError::Turn)?);
    let child = child.stdout(io::stderr()).process_group(0);
    let mut child = child.spawn().map_err(failed)?;
    let Some(status) = ended(&mut child, interrupt).map_err(failed)? else {
        return Err(Interrupted.into());
    };
    match status.success() {
        true => Ok(()),
        false => Err(PackageError::Failed { command, status: status.to_string() }),
    }
}

/// How a package manager ended; none where it was asked to.
fn ended(child: &mut Child, interrupt: &Interrupt) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if interrupt.sleep(POLL).is_err() {
            break;
        }
    }
    // apt-get heeds this except while dpkg is at work, which is then ended as it should be.
    let pid = Pid::from_raw(child.id().cast_signed());
    kill(pid, Signal::SIGINT)?;
    let deadline = Instant::now() + PATIENCE;
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
/// How long dpkg may take for what it has begun, before it is killed after all.
const PATIENCE: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::soon;
    use std::fs;
    use std::sync::atomic::Ordering;

    /// Installs by a package manager that is this script, which knows the file as `$POLICY`, and is asked to
    /// stop once that has written `begun`. Tells what came of it, and whether the file is left.
    fn install(script: &str, before: Option<&str>) -> (Result<(), String>, Option<String>, String) {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let (policy, apt_get) = (at("policy-rc.d"), at("apt-get"));
        let head = format!("#!/bin/sh\nPOLICY={}\ncd {}\n", policy.display(), dir.path().display());
        fs::write(at("script"), head + script).unwrap();
        // Made by another process: what this one has open for writing while a thread starts something else
        // is busy, and cannot be run.
        let made =
            Command::new("install").args(["-m", "755"]).arg(at("script")).arg(&apt_get).status();
        assert!(made.unwrap().success());
        if let Some(text) = before {
            fs::write(&policy, text).unwrap();
        }
        let interrupt = Interrupt::default();
        let (wish, begun) = (interrupt.flag(), at("begun"));
        let asker = thread::spawn(move || {
            let deadline = Instant::now() + Duration::from_secs(30);
            while !begun.exists() && Instant::now() < deadline {
                thread::sleep(POLL);
            }
            wish.store(begun.exists(), Ordering::Relaxed);
        });
        let lock = at("lock");
        let machine = Machine { apt_get: apt_get.to_str().unwrap(), policy: &policy, lock: &lock };
        let installed = install_on(&machine, &["a", "b"], &interrupt);
        assert!(soon(|| Turn::take(&lock).unwrap().is_some()), "the next one cannot install");
        // One that nobody asked to stop lets the asker go.
        let said = fs::read_to_string(at("said")).unwrap_or_default();
        fs::write(at("begun"), "").unwrap();
        asker.join().unwrap();
        let installed = installed
            .map_err(|error| error.to_string().replace(&dir.path().display().to_string(), "HERE"));
        (installed, fs::read_to_string(policy).ok(), said)
    }

    #[test]
    fn services_are_forbidden_while_packages_are_installed_and_no_longer() {
        let asks = "sh \"$POLICY\"; echo \"$* $?\" >>said\n";
        let (installed, left, said) = install(asks, None);
        assert_eq!((installed, left), (Ok(()), None));
        assert_eq!(said, "update 101\ninstall -y --no-install-recommends a b 101\n");
        let (failed, left, _) = install("[ $1 = update ]", None);
        assert_eq!(
            failed.unwrap_err(),
            "`HERE/apt-get install -y --no-install-recommends a b` failed (exit status: 1)"
        );
        assert_eq!(left, None);
    }

    #[test]
    fn a_wish_to_stop_waits_for_the_package_manager_and_leaves_nothing() {
        // As apt-get does while dpkg is at work: it goes on to the end of that.
        let finishes = "trap '' INT; echo >begun; sleep 0.3; sh \"$POLICY\"; echo \"$?\" >said\n";
        let interrupted = Err("interrupted".to_owned());
        assert_eq!(install(finishes, None), (interrupted.clone(), None, "101\n".to_owned()));
        // As it does while it fetches.
        let heeds = "trap 'echo heeded >said; kill $!; exit 1' INT; sleep 60 & echo >begun; wait\n";
        assert_eq!(install(heeds, None), (interrupted.clone(), None, "heeded\n".to_owned()));
        let theirs = "#!/bin/sh\nexit 101\n";
        assert_eq!(
            install(finishes, Some(theirs)),
            (interrupted, Some(theirs.to_owned()), "101\n".to_owned())
        );
    }

    #[test]
    fn a_second_one_beside_the_first_is_refused_and_the_first_goes_on() {
        // It asks for a turn as another process would, and finds that there is none.
        let second = "flock -n lock true; echo \"$1 $?\" >>said\n";
        let (installed, _, said) = install(second, None);
        assert_eq!((installed, said.as_str()), (Ok(()), "update 1\ninstall 1\n"));
        let dir = tempfile::tempdir().unwrap();
        let (lock, policy) = (dir.path().join("lock"), dir.path().join("policy-rc.d"));
        let _first = Turn::take(&lock).unwrap().unwrap();
        let machine = Machine { apt_get: "false", policy: &policy, lock: &lock };
        let refused = install_on(&machine, &["a"], &Interrupt::default()).unwrap_err();
        assert!(matches!(refused, PackageError::Busy), "{refused}");
        assert!(!policy.exists());
    }

    #[test]
    fn what_dpkg_does_not_know_is_missing() {
        // On another kind of system there is nothing to ask, and that is told.
        match missing(&["dpkg", "no-such-package-as-this"]) {
            Ok(missing) => assert_eq!(missing, ["no-such-package-as-this"]),
            Err(error) => assert!(matches!(error, PackageError::NoDebian { .. }), "{error}"),
        }
    }
}
