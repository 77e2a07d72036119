//! Reading a configuration from a file.

use std::path::Path;

use super::error::{ConfigError, Fault};
use super::file::ConfigFile;
use super::{Config, check};

/// The longest file that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;

impl Config {
    /// Reads the configuration in `path`, and checks it.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Read`], or [`ConfigError::Wrong`] for the first thing in it that cannot be.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = read_text(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// The configuration that `text` asks for, which is that of the file `path`.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Wrong`], for the first thing in it that cannot be.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let file: Result<ConfigFile, Fault> = serde_saphyr::from_str(text).map_err(Fault::from);
        file.and_then(|file| check::check(&file, folder))
            .map_err(|fault| fault.in_file(&path.display().to_string()))
    }
}

fn read_text(path: &Path) -> std::io::Result<String> {
    use std::io::{Error, ErrorKind, Read};

    let mut text = String::new();
    let read_bytes =
        std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if read_bytes as u64 > FILE_BYTES_MAX {
        return Err(Error::new(ErrorKind::FileTooLarge, "it has more than 4 MiB"));
    }
    Ok(text)
}
