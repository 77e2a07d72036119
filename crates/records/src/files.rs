//! Files on disk: atomic writes, hashes, and append-only logs of records.

use crate::error::io_error;
use anyhow::Context;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Creates or replaces a file and syncs it to disk. On an error, and after a crash, the file has its old or its new
/// contents, never a part of them.
pub fn write_atomic(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut draft = OsString::from(path);
    draft.push(".new");
    let draft = PathBuf::from(draft);
    let written = write_synced(&draft, text).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // The first error is the cause; there may be no draft.
        fs::remove_file(&draft).ok();
    }
    written.map_err(io_error("write", path))
}

/// Writes a value as JSON, as [`write_atomic`].
pub fn write_json(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    write_atomic(path, &json(value)?)
}

/// Formats a value as indented JSON, with a line break at the end.
pub fn json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value).context("cannot write JSON")? + "\n")
}

fn write_synced(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// SHA-256 of a file, in hexadecimal.
pub fn hash_file(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    io::copy(&mut File::open(path)?, &mut HashWriter(&mut hasher))?;
    Ok(hex(&hasher.finalize()))
}

/// SHA-256 of a text, in hexadecimal.
pub fn hash_text(text: &str) -> String {
    hex(&Sha256::digest(text))
}

/// Formats bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        write!(text, "{byte:02x}").ok();
        text
    })
}

/// Returns the paths of all files below a folder, relative to it and sorted. Follows links.
pub fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(relative) = open.pop() {
        let path = folder.join(&relative);
        let cannot =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        for entry in fs::read_dir(&path).map_err(cannot)? {
            let relative = relative.join(entry?.file_name());
            if folder.join(&relative).is_dir() { open.push(relative) } else { found.push(relative) }
        }
    }
    found.sort();
    Ok(found)
}

/// Removes a folder with its contents, if it exists.
pub fn remove_folder(folder: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(io_error("remove", folder)),
    }
}

struct HashWriter<'a>(&'a mut Sha256);

impl Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An append-only file of records, one JSON value per line.
///
/// Each record is written by one call and synced, so that a crash leaves at most one incomplete line, the last one.
/// [`Log::repair`] removes it.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// Creates a log that must not exist.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::open_with(path, OpenOptions::new().create_new(true))
    }

    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_with(path, &mut OpenOptions::new())
    }

    pub fn open_or_create(path: &Path) -> io::Result<Self> {
        Self::open_with(path, OpenOptions::new().create(true))
    }

    fn open_with(path: &Path, options: &mut OpenOptions) -> io::Result<Self> {
        let file = options.append(true).open(path)?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Locks the file until this is dropped.
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        self.file.try_lock()
    }

    /// Removes an incomplete last line and returns the other lines.
    pub fn repair(&mut self) -> io::Result<Vec<u8>> {
        let mut text = fs::read(&self.path)?;
        text.truncate(complete_bytes(&text));
        self.file.set_len(text.len() as u64)?;
        self.file.sync_all()?;
        Ok(text)
    }

    /// Appends a record and syncs it to disk.
    pub fn append(&mut self, record: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_data()
    }
}

/// Splits the contents of a log, which another process may be writing, into complete lines with their numbers from 1.
/// Also returns true if an incomplete line follows.
pub fn complete_lines(text: &[u8]) -> (impl Iterator<Item = (usize, &[u8])>, bool) {
    let (complete, rest) = text.split_at(complete_bytes(text));
    let lines = complete.split_inclusive(|byte| *byte == b'\n');
    ((1..).zip(lines), !rest.is_empty())
}

/// Length of all complete lines. The incomplete one may end inside of a character.
fn complete_bytes(text: &[u8]) -> usize {
    text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomic_write_replaces_a_file_and_leaves_no_draft() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.md");
        write_atomic(&path, "one").unwrap();
        write_atomic(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn failed_atomic_write_changes_nothing_and_leaves_no_draft() {
        let dir = tempfile::tempdir().unwrap();
        // A file cannot replace a folder.
        let path = dir.path().join("report.md");
        fs::create_dir(&path).unwrap();
        write_atomic(&path, "one").unwrap_err();
        assert!(path.is_dir());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn repair_removes_an_incomplete_last_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.ndjson");
        Log::create(&path).unwrap().append(&"one").unwrap();
        assert!(Log::create(&path).is_err());
        // Cut inside of a character.
        let torn = b"\"one\"\n\"tw\xc3";
        fs::write(&path, torn).unwrap();
        let (lines, is_cut_off) = complete_lines(torn);
        assert_eq!(lines.collect::<Vec<_>>(), [(1, &b"\"one\"\n"[..])]);
        assert!(is_cut_off);
        let mut log = Log::open(&path).unwrap();
        assert_eq!(log.repair().unwrap(), b"\"one\"\n");
        log.append(&"three").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "\"one\"\n\"three\"\n");
    }

    #[test]
    fn empty_log_has_no_lines() {
        let (lines, is_cut_off) = complete_lines(b"");
        assert_eq!((lines.count(), is_cut_off), (0, false));
    }
}
