//! Server: a certificate and its key.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};

use crate::session::TlsSession;
use crate::{TlsError, read_identity};

/// A certificate chain and its private key.
#[derive(Clone)]
pub struct TlsIdentity(Arc<ServerConfig>);

impl TlsIdentity {
    /// Reads the certificate chain and the key from PEM files. Offers HTTP/1.1 by ALPN.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let (chain, key) = read_identity(certificate, key)?;
        Self::new(chain, key)
    }

    pub(crate) fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, TlsError> {
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let mut config = builder
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(TlsError::Pair)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// Offers these protocols by ALPN, the preferred one first, and resumes sessions by tickets. Their key is replaced
    /// after 6 hours and opens tickets for another 6.
    pub fn with_protocols(mut self, protocols: &[&[u8]]) -> Result<Self, TlsError> {
        let config = Arc::make_mut(&mut self.0);
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        config.ticketer = ring::Ticketer::new().map_err(TlsError::Pair)?;
        Ok(self)
    }

    /// Starts the session of a client's connection.
    pub fn accept(&self) -> io::Result<TlsSession> {
        let connection = ServerConnection::new(Arc::clone(&self.0)).map_err(io::Error::other)?;
        Ok(TlsSession::new(connection.into()))
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsIdentity").finish_non_exhaustive()
    }
}

impl PartialEq for TlsIdentity {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for TlsIdentity {}
