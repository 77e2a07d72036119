//! Certificates that an authority issues by ACME (RFC 8555): orders and renewals on a thread of their own, proofs by
//! TLS-ALPN-01 and HTTP-01, and the folder in which accounts and certificates are kept.

mod authority;
mod proofs;
mod renewal;
mod store;

use std::path::PathBuf;
use std::sync::Arc;

pub use authority::OrderError;
pub use proofs::Proofs;
pub use renewal::{Event, Renewal};
pub use store::{StateError, Store};

/// An authority and how to deal with it. Only one process at a time uses `state`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// URL of the directory.
    pub directory: String,
    /// Authorities that may have issued the certificate of the directory's server, in DER.
    pub authorities: Arc<[Vec<u8>]>,
    /// Mail address that the authority gets.
    pub contact: Option<String>,
    pub external_account: Option<ExternalAccount>,
    pub challenge: Challenge,
    /// Folder for accounts and certificates.
    pub state: PathBuf,
}

/// An account at the authority outside of ACME, to which that of ACME is bound (RFC 8555, section 7.3.4).
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    pub id: String,
    /// The key of the MAC.
    pub key: Vec<u8>,
}

/// Method by which this server proves that it answers for a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Challenge {
    /// In TLS handshakes, on port 443 (RFC 8737).
    #[default]
    TlsAlpn01,
    /// By a response over HTTP, on port 80 (RFC 8555, section 8.3).
    Http01,
}

impl std::fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExternalAccount").field("id", &self.id).finish_non_exhaustive()
    }
}
