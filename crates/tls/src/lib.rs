//! TLS by rustls for both roles: certificates, trust, sessions between a socket and plain bytes, and transports: sockets
//! with or without such a session.

mod certificate;
mod client;
mod client_certificate;
mod proofs;
mod protocol;
mod self_signed;
mod server;
mod session;
mod transport;

use std::path::Path;

use rustls::InconsistentKeys;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub use certificate::{
    Certificate, CertificateFacts, CertificateFiles, CertificateWarning, ManagedCertificate,
};
pub use client::{
    ClientError, ClientOptions, Rejection, TlsClient, TlsVersion, Trust, authorities,
    certificate_rejection, describe_failure,
};
pub use client_certificate::ClientCertificate;
pub use proofs::AlpnProofs;
pub use protocol::{HttpProtocol, is_plain_http};
pub use self_signed::{SelfSigned, SelfSignedError};
pub use server::{ServerError, ServerOptions, TlsServer};
pub use session::{SessionFacts, StreamEnd, TlsSession, WireBytes};
pub use transport::{Received, Transport};

/// Error in reading a certificate chain or its key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error(
        "cannot read the certificate; expected a PEM file with the certificate, followed by its chain"
    )]
    Certificate(#[source] pem::Error),
    #[error("cannot read the key; expected a PEM file with a private key without passphrase")]
    Key(#[source] pem::Error),
    #[error("the key does not belong to the certificate; name the key that it was issued for")]
    Mismatch(#[source] rustls::Error),
    #[error(
        "cannot use the certificate with this key; check that they have a supported type: RSA, ECDSA or Ed25519"
    )]
    Pair(#[source] rustls::Error),
    #[error("cannot parse the certificate; issue it again")]
    Syntax(#[source] x509_cert::der::Error),
    #[error("the key is not of the type ECDSA")]
    KeyType,
}

fn pair_error(error: rustls::Error) -> TlsError {
    match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsError::Mismatch(error),
        error => TlsError::Pair(error),
    }
}

/// Reads the certificates in a PEM file; fails if there are none.
fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)?.collect::<Result<_, _>>()?;
    if certificates.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(certificates) }
}

/// A certificate chain and its private key.
type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Parses a certificate chain and its private key in one PEM text.
fn parse_identity(pem: &[u8]) -> Result<Identity, TlsError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(TlsError::Certificate)?;
    if chain.is_empty() {
        return Err(TlsError::Certificate(pem::Error::NoItemsFound));
    }
    Ok((chain, PrivateKeyDer::from_pem_slice(pem).map_err(TlsError::Key)?))
}

/// Reads a certificate chain and its private key from PEM files.
fn read_identity(certificate: &Path, key: &Path) -> Result<Identity, TlsError> {
    let chain = read_certificates(certificate).map_err(TlsError::Certificate)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(TlsError::Key)?;
    Ok((chain, key))
}
