//! A lock that one measuring process of a user holds at a time: two runs on one machine disturb each other.

use super::{Interrupt, Interrupted};
use std::env;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The lock. The kernel releases it when the process ends, however it ends; the file stays.
#[derive(Debug)]
pub struct MachineLock {
    _file: File,
}

impl MachineLock {
    /// Waits for the lock. Calls `on_wait` once if another process has it.
    pub fn wait(
        interrupt: &Interrupt,
        on_wait: &mut dyn FnMut(&str),
    ) -> io::Result<Result<Self, Interrupted>> {
        Self::wait_for(&path(), interrupt, on_wait)
    }

    fn wait_for(
        path: &Path,
        interrupt: &Interrupt,
        on_wait: &mut dyn FnMut(&str),
    ) -> io::Result<Result<Self, Interrupted>> {
        let mut options = OpenOptions::new();
        // In a folder for all users, another one could have put a link there.
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.custom_flags(nix::libc::O_NOFOLLOW).open(path)?;
        let mut is_reported = false;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
            if !is_reported {
                let mut pid = String::new();
                file.rewind()?;
                file.read_to_string(&mut pid)?;
                // Empty for a moment, until the other process has written it.
                if let Some(pid) = pid.strip_suffix('\n') {
                    on_wait(&format!(
                        "another tollgate (pid {pid}) is measuring; waiting for its end (Ctrl-C stops)"
                    ));
                    is_reported = true;
                }
            }
            if let Err(interrupted) = interrupt.sleep(POLL) {
                return Ok(Err(interrupted));
            }
        }
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Ok(Self { _file: file }))
    }
}

const POLL: Duration = Duration::from_millis(100);

/// Returns the path of the lock file: in `$XDG_RUNTIME_DIR`, or in the folder for temporary files with the user's number.
fn path() -> PathBuf {
    match env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir()) {
        Some(folder) => folder.join("tollgate.lock"),
        None => env::temp_dir().join(format!("tollgate-{}.lock", nix::unistd::geteuid())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn second_process_waits_and_names_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let interrupt = Interrupt::default();
        let mut silent = |text: &str| panic!("{text}");
        let first = MachineLock::wait_for(&path, &interrupt, &mut silent).unwrap().unwrap();
        let mut said = Vec::new();
        // Interrupts its own wait, which would not end.
        let mut stop = |text: &str| {
            said.push(text.to_owned());
            interrupt.flag().store(true, Ordering::Relaxed);
        };
        let second = MachineLock::wait_for(&path, &interrupt, &mut stop).unwrap();
        assert!(second.is_err());
        let pid = std::process::id();
        let expected = format!(
            "another tollgate (pid {pid}) is measuring; waiting for its end (Ctrl-C stops)"
        );
        assert_eq!(said, [expected]);
        drop(first);
        // The file is still there, and not locked.
        assert!(path.exists());
        assert!(MachineLock::wait_for(&path, &Interrupt::default(), &mut silent).unwrap().is_ok());
    }
}
