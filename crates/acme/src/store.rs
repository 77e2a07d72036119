//! The folder with the account at an authority and the certificates that it has issued.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use instant_acme::AccountCredentials;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
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
    #[error("cannot read or write the account; report this bug")]
    Credentials(#[source] serde_json::Error),
}

/// An account with what it was made for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredAccount {
    pub(crate) contact: Option<String>,
    /// As instant-acme writes it, with the key.
    pub(crate) credentials: Value,
}

impl StoredAccount {
    pub(crate) fn new(
        contact: Option<String>,
        credentials: &AccountCredentials,
    ) -> Result<Self, StateError> {
        let credentials = serde_json::to_value(credentials).map_err(StateError::Credentials)?;
        Ok(Self { contact, credentials })
    }

    pub(crate) fn parse(&self) -> Result<AccountCredentials, StateError> {
        AccountCredentials::deserialize(&self.credentials).map_err(StateError::Credentials)
    }
}

const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_');

impl Store {
    /// Each authority has a folder of its own, so that a change of the authority uses no certificate of the other one.
    pub fn new(settings: &Settings) -> Self {
        let url = &*settings.directory;
        let url = url.strip_prefix("https://").unwrap_or(url);
        Self { folder: settings.state.join(utf8_percent_encode(url, PLAIN).to_string()) }
    }

    /// Makes the folder and checks that files can be written to it.
    pub fn prepare(&self) -> Result<(), StateError> {
        let prepared = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .and_then(|()| NamedTempFile::new_in(&self.folder).map(drop));
        prepared.map_err(|source| StateError::Write { path: self.folder.clone(), source })
    }

    /// Puts the stored certificate in its place, or, without one, another with a name in common.
    pub fn load(&self, certificate: &ManagedCertificate) -> Result<(), StateError> {
        let names = certificate.names();
        let path = self.certificate_path(names);
        if let Some(pem) = read(&path)? {
            let set = certificate.set(&pem);
            return set.map(drop).map_err(|source| StateError::Certificate { path, source });
        }
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let others = files.map(|file| file.path());
        for other in others.filter(|path| path.extension().is_some_and(|kind| kind == "pem")) {
            let found = ManagedCertificate::new(names.to_vec());
            let facts = read(&other)?.and_then(|pem| found.set(&pem).ok());
            if facts.is_some_and(|facts| names.iter().any(|name| facts.names.contains(name))) {
                certificate.inherit(&found);
                return Ok(());
            }
        }
        Ok(())
    }

    /// `pem`: the private key, the certificate and its chain.
    pub(crate) fn keep(&self, names: &[String], pem: &str) -> Result<(), StateError> {
        self.write(&self.certificate_path(names), pem.as_bytes())
    }

    pub(crate) fn account(&self) -> Result<Option<StoredAccount>, StateError> {
        let path = self.account_path();
        let Some(json) = read(&path)? else { return Ok(None) };
        let account = serde_json::from_slice(&json);
        account.map(Some).map_err(|source| StateError::Account { path, source })
    }

    pub(crate) fn keep_account(&self, account: &StoredAccount) -> Result<(), StateError> {
        let json = serde_json::to_vec(account).map_err(StateError::Credentials)?;
        self.write(&self.account_path(), &json)
    }

    /// No two certificates of a configuration have a name in common.
    fn certificate_path(&self, names: &[String]) -> PathBuf {
        let name = names.first().map_or("", String::as_str);
        self.folder.join(format!("{name}.pem"))
    }

    pub(crate) fn account_path(&self) -> PathBuf {
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
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(|source| StateError::Write { path: path.to_owned(), source })
    }
}

/// `None`: the file does not exist.
fn read(path: &Path) -> Result<Option<Vec<u8>>, StateError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StateError::Read { path: path.to_owned(), source }),
    }
}
