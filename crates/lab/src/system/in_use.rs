//! Results of builds that are in use. Each process holds those that it has found for as long as it lives: a
//! server may be started from them again in every trial.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// What this process holds. A lock goes with its file, so these stay open to the end.
static HELD: Mutex<BTreeMap<PathBuf, File>> = Mutex::new(BTreeMap::new());

/// Holds a folder until this process ends. Tells whether it is there to be held.
pub(super) fn hold(folder: &Path) -> bool {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    if !held.contains_key(folder) {
        let Ok(opened) = File::open(folder) else { return false };
        match opened.try_lock_shared() {
            // It is being removed.
            Err(TryLockError::WouldBlock) => return false,
            // On a file system without locks nobody gets the one that removing takes.
            Ok(()) | Err(TryLockError::Error(_)) => held.insert(folder.to_owned(), opened),
        };
    }
    // It may have been removed just before it was locked.
    folder.is_dir()
}

/// Removes a folder that nobody holds. Tells whether it did. On the way it has another name beside its own, so
/// that what is cut off leaves no half of it under that.
///
/// # Errors
///
/// It cannot be locked or removed.
pub(super) fn remove(folder: &Path, on_the_way: &Path) -> io::Result<bool> {
    let opened = File::open(folder)?;
    match opened.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    fs::rename(folder, on_the_way)?;
    fs::remove_dir_all(on_the_way)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::soon;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn what_a_process_holds_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["mine", "theirs", "nobodys"] {
            fs::create_dir_all(at(name).join("rules")).unwrap();
        }
        let holder =
            ["-F", "-s", at("theirs").to_str().unwrap(), "sh", "-c", "echo held; exec sleep 60"]
                .map(str::to_owned);
        let mut holder = Command::new("flock").args(holder).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert!(hold(&at("mine")) && hold(&at("mine")));
        let removed = |name: &str| remove(&at(name), &at("unfinished-1")).unwrap();
        assert_eq!(["mine", "theirs", "nobodys"].map(removed), [false, false, true]);
        assert_eq!(
            ["mine", "theirs", "nobodys"].map(|name| at(name).is_dir()),
            [true, true, false]
        );
        assert!(!hold(&at("nobodys")) && !at("unfinished-1").exists());
        // Of two who use it, each may end without the other.
        assert!(hold(&at("theirs")));
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert!(!removed("theirs"));
    }

    #[test]
    fn what_is_being_removed_is_not_there_to_be_held() {
        let dir = tempfile::tempdir().unwrap();
        let opened = File::open(dir.path()).unwrap();
        opened.try_lock().unwrap();
        assert!(!hold(dir.path()));
        drop(opened);
        assert!(soon(|| hold(dir.path())));
    }
}
