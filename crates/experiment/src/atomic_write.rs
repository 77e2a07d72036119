//! Files that are there whole or not at all: a full disk or a kill leaves no half of one.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes a file, in the place of one that may be there. It is on disk when this returns.
///
/// # Errors
///
/// It cannot be written; then what was there before still is.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let draft = draft(path);
    let written = write_draft(&draft, text).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // What is told is why it cannot be written; there may be no draft at all.
        fs::remove_file(&draft).ok();
    }
    written
}

fn write_draft(draft: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// The file beside it that is renamed once it is whole.
fn draft(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".new");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_leaves_no_draft() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.md");
        write(&path, "one").unwrap();
        write(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_written_leaves_what_was_there_and_no_draft() {
        let dir = tempfile::tempdir().unwrap();
        // A folder cannot be replaced by a file.
        let path = dir.path().join("report.md");
        fs::create_dir(&path).unwrap();
        write(&path, "one").unwrap_err();
        assert!(path.is_dir());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
