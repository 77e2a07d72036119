//! The program for hosts, checked by its hash.

use anyhow::Context;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use tollgate_records::files::hash_file;

/// The program that agents run: the file of the running program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binary {
    pub path: PathBuf,
    pub bytes: u64,
    /// In hexadecimal.
    pub sha256: String,
}

impl Binary {
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("cannot read the program {}", path.display());
        let bytes = path.metadata().with_context(cannot)?.len();
        Ok(Self { path: path.to_owned(), bytes, sha256: hash_file(path).with_context(cannot)? })
    }

    /// Copies the program to a pipe.
    pub(crate) fn send(&self, pipe: &mut impl Write) -> io::Result<()> {
        // A file that has grown since would shift the frames after it.
        let mut file = File::open(&self.path)?.take(self.bytes);
        let sent = io::copy(&mut file, pipe)?;
        if sent != self.bytes {
            return Err(io::Error::other("the program has changed since its start"));
        }
        pipe.flush()
    }
}
