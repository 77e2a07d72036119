//! Results of builds that are in use. Each process holds those that it has found for as long as it lives: a
//! server may be started from them again in every trial.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// What this process holds. A lock goes with its file, so these stay open to the end.
static HELD: Mutex<BTreeMap<PathBuf, File>> = Mutex::new(BTreeMap::new());

/// Holds a folder until this process ends, and marks it as used now. Tells whether it is there to be held.
pub(super) fn hold(folder: &Path) -> bool {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    if !held.contains_key(folder) {
        let Ok(opened) = File::open(folder) else { return false };
        match opened.try_lock_shared() {
            // It is being removed.
            Err(TryLockError::WouldBlock) => return false,
            // On a file system without locks nobody gets the one that removing takes.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        // It may have been removed or replaced just before it was locked.
        if !is_at(&opened, folder).unwrap_or(false) {
            return false;
        }
        // What belongs to another user is marked by that one alone.
        opened.set_modified(SystemTime::now()).ok();
        held.insert(folder.to_owned(), opened);
    }
    // It may have been removed by hand.
    folder.is_dir()
}

/// Whether a process holds a folder.
///
/// # Errors
///
/// It cannot be locked.
pub(super) fn is_held(folder: &Path) -> io::Result<bool> {
    Ok(alone(folder)?.is_none())
}

/// Removes a folder that nobody holds. Tells whether it did. On the way it has another name beside its own, so
/// that what is cut off leaves no half of it under that.
///
/// # Errors
///
/// It cannot be locked or removed.
pub(super) fn remove(folder: &Path, on_the_way: &Path) -> io::Result<bool> {
    let Some(_lock) = alone(folder)? else { return Ok(false) };
    fs::rename(folder, on_the_way)?;
    fs::remove_dir_all(on_the_way)?;
    Ok(true)
}

/// Puts another folder into the place of one that nobody holds, which gets another name. Tells whether it did.
///
/// # Errors
///
/// It cannot be locked, or one of the two cannot be moved.
pub(super) fn replace(folder: &Path, by: &Path, replaced: &Path) -> io::Result<bool> {
    let Some(_lock) = alone(folder)? else { return Ok(false) };
    fs::rename(folder, replaced)?;
    fs::rename(by, folder)?;
    Ok(true)
}

/// Keeps others from holding a folder for as long as the file is open; none where somebody holds it.
fn alone(folder: &Path) -> io::Result<Option<File>> {
    let opened = File::open(folder)?;
    match opened.try_lock() {
        Ok(()) => Ok(Some(opened)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn is_at(opened: &File, folder: &Path) -> io::Result<bool> {
    let (opened, there) = (opened.metadata()?, fs::metadata(folder)?);
    Ok((opened.dev(), opened.ino()) == (there.dev(), there.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::soon;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    use std::time::Duration;

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
    fn what_is_held_is_marked_as_used_and_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let make = |name: &str, text: &str| {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("made"), text).unwrap();
        };
        make("result", "one");
        make("new", "two");
        let old = SystemTime::now() - Duration::from_secs(3600);
        File::open(at("result")).unwrap().set_modified(old).unwrap();
        assert!(!is_held(&at("result")).unwrap());
        assert!(soon(|| hold(&at("result"))));
        let used = fs::metadata(at("result")).unwrap().modified().unwrap();
        assert!(used > old + Duration::from_secs(1800), "{used:?}");
        assert!(is_held(&at("result")).unwrap());
        let replaced = || replace(&at("result"), &at("new"), &at("aside")).unwrap();
        let made = |name: &str| fs::read_to_string(at(name).join("made")).unwrap();
        assert!(!replaced());
        assert_eq!((made("result"), made("new")), ("one".to_owned(), "two".to_owned()));
        HELD.lock().unwrap().remove(&at("result"));
        assert!(soon(replaced));
        assert_eq!((made("result"), made("aside")), ("two".to_owned(), "one".to_owned()));
        // What is held from then on is the new one.
        assert!(hold(&at("result")) && !remove(&at("result"), &at("gone")).unwrap());
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
