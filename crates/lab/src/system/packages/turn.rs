//! Who installs packages: one at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::process::Stdio;

/// The right to install, until it is dropped and every package manager that was given it has ended. Of two
/// that install side by side, the first to end would allow services while the other still brings some.
#[derive(Debug)]
pub(super) struct Turn(File);

impl Turn {
    /// Takes it; none where somebody else has it.
    pub(super) fn take(lock: &Path) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        // Never shortened: nothing is ever written to it.
        let file = options.read(true).write(true).create(true).truncate(false).open(lock)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// The standard input of a package manager, which finds nothing there: it holds the lock as long as
    /// that runs, and so does not free it where this process is killed before.
    pub(super) fn held_by_child(&self) -> io::Result<Stdio> {
        Ok(self.0.try_clone()?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::soon;
    use std::process::Command;

    #[test]
    fn there_is_one_at_a_time_and_a_child_holds_it_to_its_own_end() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("lock");
        let turn = Turn::take(&lock).unwrap().unwrap();
        assert!(Turn::take(&lock).unwrap().is_none());
        let held = turn.held_by_child().unwrap();
        let mut child = Command::new("sleep").arg("60").stdin(held).spawn().unwrap();
        drop(turn);
        assert!(Turn::take(&lock).unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(soon(|| Turn::take(&lock).unwrap().is_some()));
        // It finds nothing to read.
        let turn = Turn::take(&dir.path().join("another")).unwrap().unwrap();
        let read = Command::new("cat").stdin(turn.held_by_child().unwrap()).output().unwrap();
        assert_eq!((read.status.success(), read.stdout), (true, Vec::new()));
    }
}
