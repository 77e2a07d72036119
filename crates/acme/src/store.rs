//! The folder with the account at an authority and the certificates that it has issued.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use instant_acme::AccountCredentials;
use tempfile::NamedTempFile;
use tollgate_tls::{ManagedCertificate, TlsError};

use crate::Settings;

/// Files of one authority. They have keys, so that only their owner can read them.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error(
        "cannot write to `{path}`, where certificates are kept; let the user of this process write there"
    )]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read `{path}`; let the user of this process read it")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot use the certificate in `{path}`; remove the file, so that a new one is issued")]
    Certificate { path: PathBuf, source: TlsError },
    #[error("cannot use the account in `{path}`; remove the file, so that a new one is made")]
    Account { path: PathBuf, source: serde_json::Error },
}

impl Store {
    /// Each authority has a folder of its own, so that a change of the authority uses no certificate of the other one.
    pub fn new(settings: &Settings) -> Self {
        let url =
            settings.directory.split_once("://").map_or(&*settings.directory, |(_, rest)| rest);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '.';
        let name: String = url.chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
        Self { folder: settings.state.join(name.trim_matches(['.', '-'])) }
    }

    /// Makes the folder and checks that files can be written to it.
    pub fn prepare(&self) -> Result<(), StateError> {
        let prepared = fs::create_dir_all(&self.folder)
            .and_then(|()| NamedTempFile::new_in(&self.folder).map(drop));
        prepared.map_err(|source| StateError::Write { path: self.folder.clone(), source })
    }

    /// Puts the stored certificate, if there is one, in its place.
    pub fn load(&self, certificate: &ManagedCertificate) -> Result<(), StateError> {
        let path = self.certificate_path(certificate.names());
        let Some(pem) = read(&path)? else { return Ok(()) };
        let set = certificate.set(&pem);
        set.map(drop).map_err(|source| StateError::Certificate { path, source })
    }

    /// `pem`: the private key, the certificate and its chain.
    pub(crate) fn keep(&self, names: &[String], pem: &str) -> Result<(), StateError> {
        self.write(&self.certificate_path(names), pem.as_bytes())
    }

    pub(crate) fn account(&self) -> Result<Option<AccountCredentials>, StateError> {
        let path = self.account_path();
        let Some(json) = read(&path)? else { return Ok(None) };
        let account = serde_json::from_slice(&json);
        account.map(Some).map_err(|source| StateError::Account { path, source })
    }

    pub(crate) fn keep_account(&self, account: &AccountCredentials) -> Result<(), StateError> {
        let path = self.account_path();
        let json = serde_json::to_vec(account)
            .map_err(|source| StateError::Account { path: path.clone(), source })?;
        self.write(&path, &json)
    }

    /// No two certificates of a configuration have a name in common.
    fn certificate_path(&self, names: &[String]) -> PathBuf {
        let name = names.first().map_or("", String::as_str);
        self.folder.join(format!("{name}.pem"))
    }

    fn account_path(&self) -> PathBuf {
        self.folder.join("account.json")
    }

    /// Replaces a file by a complete one, which survives a power failure.
    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), StateError> {
        let write = || {
            // Only its owner can read a temporary file.
            let mut file = NamedTempFile::new_in(&self.folder)?;
            file.write_all(bytes)?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            fs::File::open(&self.folder)?.sync_all()
        };
        write().map_err(|source| StateError::Write { path: path.to_owned(), source })
    }
}

/// `None`: there is no such file.
fn read(path: &Path) -> Result<Option<Vec<u8>>, StateError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StateError::Read { path: path.to_owned(), source }),
    }
}
