//! What forbids the start of services while packages are installed.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;

/// Set in the environment of what installs packages: only for that are services forbidden.
pub(super) const FORBIDS: &str = "TOLLGATE_INSTALLS";

/// Forbids the start of services until it is dropped, where nobody else does.
///
/// Nothing can remove the file of a process that is killed. So the file forbids nothing but what that process
/// had begun, whatever becomes of it, and goes when it is asked for anything else or when the next one comes.
#[derive(Debug)]
pub(super) struct Policy {
    ours: Option<PathBuf>,
}

impl Policy {
    pub(super) fn forbid(file: &Path) -> io::Result<Self> {
        if is_left_behind(file)? {
            fs::remove_file(file)?;
        }
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).mode(0o755).open(file) {
            Ok(mut opened) => {
                // From here on it is removed, be it written or not.
                let policy = Self { ours: Some(file.to_owned()) };
                opened.write_all(script(process::id()).as_bytes())?;
                Ok(policy)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Self { ours: None }),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        if let Some(file) = &self.ours {
            // There is nobody to tell; one that stays forbids nothing any more.
            fs::remove_file(file).ok();
        }
    }
}

/// What Debian runs. It asks for [`FORBIDS`]; `scripts/setup` writes it too.
const TEXT: &str = include_str!("policy-rc.d");
/// What stands in it for the number of the process.
const OWNER: &str = "OWNER";

fn script(owner: u32) -> String {
    TEXT.replace(OWNER, &owner.to_string())
}

/// Whether a file is that of a process which is gone.
fn is_left_behind(file: &Path) -> io::Result<bool> {
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&text);
    let ours = TEXT.split_once(OWNER).and_then(|(header, _)| text.strip_prefix(header));
    let owner = ours.and_then(|rest| rest.lines().next()?.parse::<u32>().ok());
    Ok(owner.is_some_and(|owner| !Path::new(&format!("/proc/{owner}")).exists()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// No process has such a number: it is more than the kernel gives.
    const GONE: u32 = 4_194_305;

    fn answer(file: &Path, env: &[(&str, &str)]) -> Option<i32> {
        let mut command = Command::new("sh");
        command.arg(file).env_remove(FORBIDS).envs(env.iter().copied()).status().unwrap().code()
    }

    #[test]
    fn what_is_installed_here_starts_nothing_and_others_are_not_hindered() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy-rc.d");
        let policy = Policy::forbid(&file).unwrap();
        assert_eq!(answer(&file, &[(FORBIDS, "1")]), Some(101));
        assert_eq!(answer(&file, &[]), Some(0));
        // A second one leaves the first one's alone.
        drop(Policy::forbid(&file).unwrap());
        assert!(file.exists());
        drop(policy);
        assert!(!file.exists());
    }

    #[test]
    fn what_a_killed_process_left_holds_for_its_own_and_goes_then() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy-rc.d");
        drop(Policy::forbid(&file).unwrap());
        let mut options = OpenOptions::new();
        let mut left = options.write(true).create_new(true).mode(0o755).open(&file).unwrap();
        left.write_all(script(GONE).as_bytes()).unwrap();
        drop(left);
        // Its package manager may go on without it.
        assert_eq!(answer(&file, &[(FORBIDS, "1")]), Some(101));
        assert!(file.exists());
        assert_eq!(answer(&file, &[]), Some(0));
        assert!(!file.exists());
        // The next one takes the place of one that nobody asked.
        fs::write(&file, script(GONE)).unwrap();
        drop(Policy::forbid(&file).unwrap());
        assert!(!file.exists());
    }

    #[test]
    fn what_somebody_else_forbids_stays_forbidden() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy-rc.d");
        fs::write(&file, "#!/bin/sh\nexit 101\n").unwrap();
        drop(Policy::forbid(&file).unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "#!/bin/sh\nexit 101\n");
    }
}
