//! Proofs to authorities that a server answers for its names.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use rustls::crypto::ring::sign::any_supported_type;
use rustls::server::ClientHello;
use rustls::sign::CertifiedKey;

use crate::{TlsError, parse_identity};

/// Request of a client in its handshake.
pub(crate) enum Asked {
    Certificate,
    /// `None`: there is no proof of this name.
    Proof(Option<Arc<CertifiedKey>>),
}

/// Certificates that prove to an authority of ACME that this server answers for their names, by the method TLS-ALPN-01
/// (RFC 8737).
#[derive(Debug, Default)]
pub struct AlpnProofs(RwLock<HashMap<String, Arc<CertifiedKey>>>);

impl AlpnProofs {
    /// The protocol of connections that ask for a proof.
    pub const PROTOCOL: &[u8] = b"acme-tls/1";

    /// Adds the proof of a DNS name. `pem` has a private key and the certificate.
    pub fn insert(&self, name: &str, pem: &[u8]) -> Result<(), TlsError> {
        let (chain, key) = parse_identity(pem)?;
        let key = any_supported_type(&key).map_err(TlsError::Pair)?;
        // rustls cannot compare it with the certificate, whose critical extension it does not know.
        let key = Arc::new(CertifiedKey::new(chain, key));
        self.write().insert(name.to_ascii_lowercase(), key);
        Ok(())
    }

    /// Adds the proofs of another server.
    pub fn inherit(&self, other: &Self) {
        let others = other.write().clone();
        self.write().extend(others);
    }

    pub fn clear(&self) {
        self.write().clear();
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<String, Arc<CertifiedKey>>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn of_client(&self, hello: &ClientHello<'_>) -> Asked {
        // Only connections for a proof offer this protocol, and no other (RFC 8737, section 3).
        let mut offered = hello.alpn().into_iter().flatten();
        if offered.next() != Some(Self::PROTOCOL) || offered.next().is_some() {
            return Asked::Certificate;
        }
        let proofs = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Asked::Proof(hello.server_name().and_then(|name| proofs.get(name)).map(Arc::clone))
    }
}
