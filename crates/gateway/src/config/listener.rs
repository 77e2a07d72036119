//! Where clients are listened for, and what backends are reached at.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An address to listen at or to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// An address and port of TCP.
    Tcp(SocketAddr),
    /// A Unix domain socket of this path.
    Unix(PathBuf),
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
    /// The certificate that is shown. None: clients speak in the clear.
    pub tls: Option<Tls>,
}

impl Listener {
    /// Listens there in the clear, with the usual backlog.
    #[must_use]
    pub fn new(address: Address) -> Self {
        Self { address, backlog: Self::BACKLOG, tls: None }
    }

    /// The backlog of a listener that does not name one.
    pub const BACKLOG: u32 = 4096;
}

/// The files of a listener that speaks TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate and what it is signed by, as PEM.
    pub certificate: PathBuf,
    /// Its private key, as PEM.
    pub key: PathBuf,
}
