//! A file to which a line is added for each thing that happened. A line that a kill cut off is as if it
//! had not been.

use super::{BatchError, io_error};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A journal that can be added to.
#[derive(Debug)]
pub(super) struct Journal<T> {
    path: PathBuf,
    file: File,
    /// Its lines, in their order.
    lines: Vec<T>,
}

impl<T: Serialize + DeserializeOwned> Journal<T> {
    /// Opens a journal, which may not be there yet, and removes what was cut off.
    pub(super) fn open(path: &Path) -> Result<Self, BatchError> {
        let failed = io_error("opening", path);
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(&failed)?;
        let text = fs::read(path).map_err(&failed)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        file.set_len(whole as u64).map_err(failed)?;
        Ok(Self { path: path.to_owned(), file, lines: parse(path, &text[..whole])? })
    }

    /// Its lines, in their order.
    pub(super) fn lines(&self) -> &[T] {
        &self.lines
    }

    /// Adds a line; when this returns, it is on disk.
    pub(super) fn add(&mut self, value: T) -> Result<(), BatchError> {
        let failed = io_error("adding to", &self.path);
        let mut line = serde_json::to_vec(&value).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(&failed)?;
        self.file.sync_data().map_err(failed)?;
        self.lines.push(value);
        Ok(())
    }
}

/// The whole lines of a journal that somebody else may be adding to.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, BatchError> {
    if !path.is_file() {
        return Ok(Vec::new());
    }
    let text = fs::read(path).map_err(io_error("reading", path))?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    parse(path, &text[..whole])
}

fn parse<T: DeserializeOwned>(path: &Path, whole: &[u8]) -> Result<Vec<T>, BatchError> {
    let lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    (1..)
        .zip(lines)
        .map(|(line, text)| {
            let malformed = |source| BatchError::Malformed { path: path.to_owned(), line, source };
            serde_json::from_slice(text).map_err(malformed)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_off_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("builds.ndjson");
        let mut journal: Journal<String> = Journal::open(&path).unwrap();
        journal.add("one".to_owned()).unwrap();
        fs::write(&path, "\"one\"\n\"tw").unwrap();
        assert_eq!(read::<String>(&path).unwrap(), ["one"]);
        let mut journal: Journal<String> = Journal::open(&path).unwrap();
        journal.add("three".to_owned()).unwrap();
        assert_eq!(journal.lines(), ["one", "three"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "\"one\"\n\"three\"\n");
    }

    #[test]
    fn a_line_that_is_damaged_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("builds.ndjson");
        fs::write(&path, "\"one\"\n{\n\"two\"\n").unwrap();
        let error = Journal::<String>::open(&path).unwrap_err().to_string();
        assert!(error.contains("builds.ndjson:2 is not what"), "{error}");
    }
}
