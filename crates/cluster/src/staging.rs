//! Files for hosts: the program itself and inputs, checked by their hashes.

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use thiserror::Error;
use tollgate_experiment::files::{hash_file, hex};

/// Limit of a staged file, which travels in one frame.
pub const MAX_FILE_BYTES: usize = 64 << 20;

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

#[derive(Debug, Error)]
pub enum StoreError {
    #[error("invalid file name `{0}`: it must be a name without a folder")]
    Name(String),
    #[error("cannot decode `{name}`")]
    Base64 { name: String, source: base64::DecodeError },
    #[error("`{name}` has the hash {found} instead of {expected}")]
    Hash { name: String, found: String, expected: String },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Content and hash of a file, as [`store`] takes them.
pub(crate) fn encode(content: &[u8]) -> (String, String) {
    (STANDARD.encode(content), hex(&Sha256::digest(content)))
}

/// Writes a file into a folder, readable by its user alone. A file with this content is kept.
pub(crate) fn store(
    folder: &Path,
    name: &str,
    content_base64: &str,
    sha256: &str,
) -> Result<PathBuf, StoreError> {
    let is_name = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
    if !is_name {
        return Err(StoreError::Name(name.to_owned()));
    }
    let decoded = STANDARD.decode(content_base64);
    let content = decoded.map_err(|source| StoreError::Base64 { name: name.to_owned(), source })?;
    let found = hex(&Sha256::digest(&content));
    if found != sha256 {
        let (name, expected) = (name.to_owned(), sha256.to_owned());
        return Err(StoreError::Hash { name, found, expected });
    }
    let path = folder.join(name);
    if fs::read(&path).is_ok_and(|known| known == content) {
        return Ok(path);
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(&path).and_then(|mut file| file.write_all(&content));
    match written {
        Ok(()) => Ok(path),
        Err(source) => Err(StoreError::Write { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn stored_file_is_checked_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let (content, hash) = encode(b"abc");
        // FIPS 180-2, appendix B.1.
        assert_eq!(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let path = store(folder.path(), "a.pem", &content, &hash).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abc");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let error = store(folder.path(), "a.pem", &content, "00").unwrap_err().to_string();
        assert!(error.ends_with("instead of 00"), "{error}");
    }

    #[test]
    fn file_outside_of_the_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (content, hash) = encode(b"abc");
        for name in ["../a", "/a", "..", "", "a/b"] {
            let error = store(folder.path(), name, &content, &hash).unwrap_err();
            assert!(matches!(error, StoreError::Name(_)), "{name}: {error}");
        }
    }
}
