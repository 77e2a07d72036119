//! Files to which the processes of a server append.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A file that was renamed or removed is opened again after at most this time.
const REOPEN_AFTER: Duration = Duration::from_secs(1);

/// An open log. Processes that fork share it: each entry is one write to a file that is opened for appending.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    mode: u32,
    open: Mutex<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    checked_at: Instant,
}

impl LogFile {
    /// Opens a log, and creates it with a mode.
    pub(crate) fn open(path: PathBuf, mode: u32) -> io::Result<Self> {
        let file = open_for_appending(&path, mode)?;
        Ok(Self { path, mode, open: Mutex::new(OpenFile { file, checked_at: Instant::now() }) })
    }

    pub(crate) fn append(&self, text: &[u8]) -> io::Result<()> {
        self.append_at(Instant::now(), text)
    }

    fn append_at(&self, now: Instant, text: &[u8]) -> io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(open.checked_at) >= REOPEN_AFTER {
            open.checked_at = now;
            let is_same = |there: std::fs::Metadata, here: std::fs::Metadata| {
                (there.dev(), there.ino()) == (here.dev(), here.ino())
            };
            let is_moved = match std::fs::metadata(&self.path) {
                Ok(there) => !is_same(there, open.file.metadata()?),
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            };
            // A worker that may not open the new file continues with the old one.
            if is_moved && let Ok(file) = open_for_appending(&self.path, self.mode) {
                open.file = file;
            }
        }
        open.file.write_all(text)
    }
}

pub(crate) fn open_for_appending(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(mode).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_that_was_moved_is_opened_again() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let (path, moved) = (folder.path().join("log"), folder.path().join("log.1"));
        let log = LogFile::open(path.clone(), 0o640)?;
        log.append(b"first\n")?;
        std::fs::rename(&path, &moved)?;
        let last_check =
            log.open.lock().map(|open| open.checked_at).map_err(|error| error.to_string())?;
        log.append_at(last_check + REOPEN_AFTER, b"second\n")?;
        assert_eq!(std::fs::read(&path)?, b"second\n");
        assert_eq!(std::fs::read(&moved)?, b"first\n");
        Ok(())
    }
}
