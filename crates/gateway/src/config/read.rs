//! Reads files that operators write.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Larger files are refused.
const FILE_BYTES_MAX: u64 = 4 << 20;

pub(super) fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 4 MiB"));
    }
    Ok(text)
}
