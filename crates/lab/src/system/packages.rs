//! Debian packages: which of them are not installed, and installing them without starting what they bring.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, io};
use thiserror::Error;

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
/// What the tools print goes to standard error.
///
/// # Errors
///
/// This user may not, or the package manager fails.
pub fn install(packages: &[&str]) -> Result<(), PackageError> {
    let install = [&["apt-get", "install", "-y", "--no-install-recommends"], packages].concat();
    if !nix::unistd::geteuid().is_root() {
        return Err(PackageError::NoRoot(install.join(" ")));
    }
    let _policy = Policy::forbid()?;
    run(&["apt-get", "update"])?;
    run(&install)
}

/// Debian asks this file before it starts a service.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Forbids the start of services until it is dropped, where nobody else does.
struct Policy {
    ours: bool,
}

impl Policy {
    fn forbid() -> Result<Self, PackageError> {
        use std::os::unix::fs::PermissionsExt;
        if Path::new(POLICY).exists() {
            return Ok(Self { ours: false });
        }
        fs::write(POLICY, "#!/bin/sh\nexit 101\n").map_err(PackageError::Policy)?;
        let policy = Self { ours: true };
        fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755))
            .map_err(PackageError::Policy)?;
        Ok(policy)
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        if self.ours {
            // There is nobody to tell; a file that stays keeps services from being started, no more.
            fs::remove_file(POLICY).ok();
        }
    }
}

fn run(words: &[&str]) -> Result<(), PackageError> {
    let command = words.join(" ");
    let (program, arguments) = words.split_first().map_or(("", &[][..]), |(p, a)| (*p, a));
    let mut child = Command::new(program);
    child.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    let status = child.stdin(Stdio::null()).stdout(io::stderr()).status();
    let status = status.map_err(|source| PackageError::Run { command: command.clone(), source })?;
    match status.success() {
        true => Ok(()),
        false => Err(PackageError::Failed { command, status: status.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dpkg_does_not_know_is_missing() {
        // On another kind of system there is nothing to ask, and that is told.
        match missing(&["dpkg", "no-such-package-as-this"]) {
            Ok(missing) => assert_eq!(missing, ["no-such-package-as-this"]),
            Err(error) => assert!(matches!(error, PackageError::NoDebian { .. }), "{error}"),
        }
    }
}
