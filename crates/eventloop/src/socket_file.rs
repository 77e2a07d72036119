//! The file of a unix-domain socket that is listened on.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::{Socket, listen_unix};

/// A socket in the file system that is removed when this is dropped, if it is still the same.
#[derive(Debug)]
pub struct SocketFile {
    /// Who says so when it stays.
    program: &'static str,
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// Listens at `path`, in the place of a socket that nobody listens on any more if there is one.
    /// `program` is who says so when the file cannot be removed at the end.
    ///
    /// # Errors
    ///
    /// `AddrInUse`: somebody listens there. `AlreadyExists`: there is something else than a socket.
    /// Others are those of making a socket there.
    pub fn listen(path: &Path, backlog: i32, program: &'static str) -> io::Result<(OwnedFd, Self)> {
        let _alone = lock_folder(path)?;
        let listener = match listen_unix(path, backlog) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                remove_stale(path)?;
                listen_unix(path, backlog)?
            }
            listening => listening?,
        };
        let made = std::fs::symlink_metadata(path)?;
        let file = Self { program, path: path.to_owned(), device: made.dev(), inode: made.ino() };
        Ok((listener, file))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody else may have put theirs in its place, which is not ours to remove; nor may they
        // do so between the look and the removal.
        let _alone = lock_folder(&self.path);
        let is_ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode));
        if is_ours && let Err(error) = std::fs::remove_file(&self.path) {
            eprintln!("{}: the socket {} stays: {error}", self.program, self.path.display());
        }
    }
}

/// Keeps other programs of ours from making or removing a socket in the folder of `path`, until it is dropped:
/// one that is made but not listened on yet looks as if nobody listened on it any more.
fn lock_folder(path: &Path) -> io::Result<File> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => File::open(folder)?,
        _ => File::open(".")?,
    };
    // Others hold it for less than a millisecond. Whoever else may lock a folder is not waited for
    // without end.
    for _ in 0..LOCK_TRIES {
        match folder.try_lock() {
            Ok(()) => return Ok(folder),
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::new(ErrorKind::ResourceBusy, "another process has locked the folder"))
}

const LOCK_TRIES: usize = 1_000;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// Removes a socket that nobody listens on.
fn remove_stale(path: &Path) -> io::Result<()> {
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    match Socket::connect_unix(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        // A listener that has no room just now is one all the same.
        Ok(_) => Err(ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(ErrorKind::AddrInUse.into()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = "test";

    #[test]
    fn a_stale_socket_is_replaced_and_one_in_use_is_not() {
        let path = std::env::temp_dir().join(format!("tollgate-file-{}", std::process::id()));
        let stale = listen_unix(&path, 1).unwrap();
        drop(stale);
        let (_listener, file) = SocketFile::listen(&path, 1, PROGRAM).unwrap();
        let again = SocketFile::listen(&path, 1, PROGRAM).map(|_| ()).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AddrInUse);
        drop(file);
        assert!(!path.exists());
        std::fs::write(&path, "a file").unwrap();
        let other = SocketFile::listen(&path, 1, PROGRAM).map(|_| ()).unwrap_err();
        assert_eq!(other.kind(), ErrorKind::AlreadyExists);
        std::fs::remove_file(&path).unwrap();
    }
}
