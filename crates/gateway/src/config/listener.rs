//! Where clients are listened for, and what backends are reached at.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use crate::tls::{Identity, IdentityError};

/// An address to listen at or to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// An address and port of TCP.
    Tcp(SocketAddr),
    /// A Unix domain socket of this path.
    Unix(PathBuf),
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has to be an address and a port, such as 127.0.0.1:8080, or unix:/path/of/a/socket")]
pub struct AddressParseError;

impl FromStr for Address {
    type Err = AddressParseError;

    fn from_str(text: &str) -> Result<Self, AddressParseError> {
        match text.strip_prefix("unix:") {
            Some("") => Err(AddressParseError),
            Some(path) => Ok(Self::Unix(PathBuf::from(path))),
            None => text.parse().map(Self::Tcp).or(Err(AddressParseError)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(out),
            Self::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

/// One place where clients are listened for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Where.
    pub address: Address,
    /// How many connections the kernel keeps that were not accepted yet.
    pub backlog: u32,
    /// Whether a connection is accepted only once its first bytes are there. Over TCP alone.
    pub defer_accept: bool,
    /// The certificate that is shown. None: clients speak in the clear.
    pub tls: Option<Tls>,
}

impl Listener {
    /// Listens there in the clear, with the usual backlog.
    #[must_use]
    pub fn new(address: Address) -> Self {
        Self { address, backlog: Self::BACKLOG, defer_accept: false, tls: None }
    }

    /// The backlog of a listener that does not name one.
    pub const BACKLOG: u32 = 4096;

    /// The backlog, as the kernel takes it.
    pub(crate) fn backlog(&self) -> i32 {
        self.backlog.try_into().unwrap_or(i32::MAX)
    }
}

/// What a listener that speaks TLS shows its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    identity: Identity,
}

impl Tls {
    /// Reads the certificate, with what it is signed by, and its private key from files of PEM.
    ///
    /// # Errors
    ///
    /// [`IdentityError`]: which of them cannot be used.
    pub fn read(certificate: PathBuf, key: PathBuf) -> Result<Self, IdentityError> {
        let identity = Identity::read(&certificate, &key)?;
        Ok(Self { certificate, key, identity })
    }

    /// What its clients are shown.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }
}
