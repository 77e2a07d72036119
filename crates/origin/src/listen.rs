//! Where an origin listens: an address, or the path of a unix-domain socket.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use tollgate_eventloop::{Socket, listen_unix};

/// Where an origin listens. As text: `127.0.0.1:8000`, `[::1]:8000` or `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An address; port 0 asks for any free one.
    Tcp(SocketAddr),
    /// The path of a socket, which is made, and removed at the end. One that nobody listens on any
    /// more is replaced.
    Unix(PathBuf),
}

/// A text that says nowhere to listen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has to be an address and a port, such as 127.0.0.1:8000, or unix:/path/of/a/socket")]
pub struct ListenParseError;

impl FromStr for Listen {
    type Err = ListenParseError;

    fn from_str(text: &str) -> Result<Self, ListenParseError> {
        match text.strip_prefix("unix:") {
            Some("") => Err(ListenParseError),
            Some(path) => Ok(Self::Unix(PathBuf::from(path))),
            None => text.parse().map(Self::Tcp).or(Err(ListenParseError)),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => write!(f, "{addr}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A socket in the file system that is removed when this is dropped, if it is still the same.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// Listens at `path`, in the place of a socket that nobody listens on any more if there is one.
    ///
    /// # Errors
    ///
    /// `AddrInUse`: somebody listens there. `AlreadyExists`: there is something else than a socket.
    /// Others are those of making a socket there.
    pub(crate) fn listen(path: &Path, backlog: i32) -> io::Result<(OwnedFd, Self)> {
        let _alone = lock_folder(path)?;
        let listener = match listen_unix(path, backlog) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                remove_stale(path)?;
                listen_unix(path, backlog)?
            }
            listening => listening?,
        };
        let made = std::fs::symlink_metadata(path)?;
        Ok((listener, Self { path: path.to_owned(), device: made.dev(), inode: made.ino() }))
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
            eprintln!("tollgate origin: the socket {} stays: {error}", self.path.display());
        }
    }
}

/// Keeps other origins from making or removing a socket in the folder of `path`, until it is dropped:
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

    #[test]
    fn a_place_to_listen_reads_as_it_prints() {
        for text in ["127.0.0.1:8000", "[::1]:0", "unix:/run/a b.sock", "unix:here"] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        for text in ["", "8000", "localhost:8000", "127.0.0.1", "unix:", "UNIX:/a"] {
            assert_eq!(text.parse::<Listen>(), Err(ListenParseError), "{text}");
        }
    }
}
