//! SHA-256 of texts and files, in hex.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

/// The SHA-256 of a file, in hex.
///
/// # Errors
///
/// The file cannot be read.
pub fn hash_file(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    io::copy(&mut fs::File::open(path)?, &mut HashWriter(&mut hasher))?;
    Ok(hex(&hasher.finalize()))
}

/// The SHA-256 of a text, in hex.
pub fn hash_text(text: &str) -> String {
    hex(&Sha256::digest(text))
}

/// Bytes as lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        write!(text, "{byte:02x}").ok();
        text
    })
}

struct HashWriter<'a>(&'a mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
