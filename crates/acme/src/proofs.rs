//! Proofs for an authority that this server answers for a name.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use instant_acme::KeyAuthorization;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use tollgate_tls::{AlpnProofs, TlsError};

use crate::Challenge;

/// Start of the paths of requests for a proof over HTTP; the token follows.
const HTTP_PROOF_PATH: &str = "/.well-known/acme-challenge/";

/// The proofs of the order that is being checked.
#[derive(Debug, Default)]
pub struct Proofs {
    alpn: Arc<AlpnProofs>,
    /// Of responses over HTTP, by token.
    bodies: RwLock<HashMap<String, Arc<[u8]>>>,
}

#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    #[error("cannot make the certificate of a proof")]
    Make(#[from] rcgen::Error),
    #[error("cannot use the certificate of a proof")]
    Use(#[from] TlsError),
}

impl Proofs {
    /// For the listeners with TLS.
    pub fn alpn(&self) -> &Arc<AlpnProofs> {
        &self.alpn
    }

    /// The body of the response to a GET of this path. Inlined, since this crate is compiled without optimisation.
    #[inline]
    pub fn http(&self, path: &str) -> Option<Arc<[u8]>> {
        let token = path.strip_prefix(HTTP_PROOF_PATH)?;
        self.bodies.read().unwrap_or_else(PoisonError::into_inner).get(token).map(Arc::clone)
    }

    pub(crate) fn show(
        &self,
        challenge: Challenge,
        name: &str,
        token: &str,
        answer: &KeyAuthorization,
    ) -> Result<(), ProofError> {
        match challenge {
            Challenge::TlsAlpn01 => self.alpn.insert(name, alpn_proof(name, answer)?.as_bytes())?,
            Challenge::Http01 => {
                self.bodies().insert(token.to_owned(), answer.as_str().as_bytes().into());
            }
        }
        Ok(())
    }

    /// Adds the proofs of another configuration.
    pub(crate) fn inherit(&self, other: &Self) {
        self.alpn.inherit(&other.alpn);
        let others = other.bodies().clone();
        self.bodies().extend(others);
    }

    pub(crate) fn clear(&self) {
        self.alpn.clear();
        self.bodies().clear();
    }

    fn bodies(&self) -> RwLockWriteGuard<'_, HashMap<String, Arc<[u8]>>> {
        self.bodies.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A self-signed certificate with the answer, and its key (RFC 8737, section 3).
fn alpn_proof(name: &str, answer: &KeyAuthorization) -> Result<String, ProofError> {
    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::new([name.to_owned()])?;
    parameters.distinguished_name = DistinguishedName::new();
    let digest = answer.digest();
    parameters.custom_extensions.push(CustomExtension::new_acme_identifier(digest.as_ref()));
    Ok(key.serialize_pem() + &parameters.self_signed(&key)?.pem())
}
