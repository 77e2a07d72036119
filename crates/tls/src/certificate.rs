//! Certificates of servers: in files, or at places where they change while the server runs.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::SignatureAlgorithm;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::time::Validity;

use crate::{TlsError, pair_error, parse_identity, read_identity};

/// Files of a server's certificate.
#[derive(Clone, Copy, Debug)]
pub struct CertificateFiles<'a> {
    /// PEM, with the chain behind the certificate.
    pub certificate: &'a Path,
    /// PEM, without passphrase.
    pub key: &'a Path,
}

/// A certificate chain and its private key.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub(crate) key: Key,
    /// DNS names in lower case, also with a wildcard: `*.example.org`.
    pub(crate) names: Vec<String>,
    pub(crate) warnings: Vec<CertificateWarning>,
}

/// Names and validity of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// DNS names in lower case, also with a wildcard: `*.example.org`.
    pub names: Vec<String>,
    validity: Validity,
}

impl CertificateFacts {
    pub fn not_before(&self) -> SystemTime {
        self.validity.not_before.to_system_time()
    }

    pub fn not_after(&self) -> SystemTime {
        self.validity.not_after.to_system_time()
    }

    fn warnings(&self, now: SystemTime) -> Vec<CertificateWarning> {
        let mut warnings = Vec::new();
        if self.not_after() < now {
            warnings.push(CertificateWarning::Expired(self.validity.not_after.to_string()));
        }
        if self.not_before() > now {
            warnings.push(CertificateWarning::NotYetValid(self.validity.not_before.to_string()));
        }
        warnings
    }
}

/// Condition under which clients may reject a certificate that can be used. Times are in UTC.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateWarning {
    #[error("the certificate has expired at {0}; renew it")]
    Expired(String),
    #[error("the certificate is not valid before {0}; check the clock")]
    NotYetValid(String),
}

impl Certificate {
    /// Reads a certificate. `now` decides what has expired.
    pub fn read(files: &CertificateFiles<'_>, now: SystemTime) -> Result<Self, TlsError> {
        let (chain, key) = read_identity(files.certificate, files.key)?;
        Self::new(chain, key, now)
    }

    /// The certificate that is at this place at the time of a handshake.
    pub fn managed(place: &Arc<ManagedCertificate>, now: SystemTime) -> Self {
        let names = place.names().to_vec();
        let facts = place.facts();
        let warnings = facts.map(|facts| facts.warnings(now)).unwrap_or_default();
        Self { key: Key::Managed(Arc::clone(place)), names, warnings }
    }

    pub(crate) fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        now: SystemTime,
    ) -> Result<Self, TlsError> {
        let (key, facts) = certified_key(chain, key)?;
        let warnings = facts.warnings(now);
        Ok(Self { key: Key::Fixed(key), names: facts.names, warnings })
    }

    pub fn warnings(&self) -> &[CertificateWarning] {
        &self.warnings
    }
}

/// Checks that a key belongs to a certificate, and reads that.
fn certified_key(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<(Arc<CertifiedKey>, CertificateFacts), TlsError> {
    let key = CertifiedKey::from_der(chain, key, &ring::default_provider());
    let key = key.map_err(pair_error)?;
    let parsed = key.end_entity_cert().map_err(TlsError::Pair)?;
    let parsed = x509_cert::Certificate::from_der(parsed).map_err(TlsError::Syntax)?;
    let parsed = parsed.tbs_certificate;
    let names = match parsed.get::<SubjectAltName>().map_err(TlsError::Syntax)? {
        Some((_, names)) => names.0.iter().filter_map(dns_name).collect(),
        None => Vec::new(),
    };
    Ok((Arc::new(key), CertificateFacts { names, validity: parsed.validity }))
}

fn dns_name(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(name.as_str().to_ascii_lowercase()),
        _ => None,
    }
}

/// A place for a certificate with an ECDSA key. While it is empty, clients that would get the certificate are refused.
#[derive(Debug)]
pub struct ManagedCertificate {
    names: Vec<String>,
    issued: RwLock<Option<Issued>>,
}

#[derive(Clone, Debug)]
struct Issued {
    key: Arc<CertifiedKey>,
    facts: CertificateFacts,
}

impl ManagedCertificate {
    const ALGORITHM: SignatureAlgorithm = SignatureAlgorithm::ECDSA;

    /// `names`: DNS names of the clients that get the certificate, in lower case.
    pub fn new(names: Vec<String>) -> Self {
        Self { names, issued: RwLock::default() }
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Changes the certificate, for new connections. `pem` has the private key, the certificate and its chain.
    pub fn set(&self, pem: &[u8]) -> Result<CertificateFacts, TlsError> {
        let (chain, key) = parse_identity(pem)?;
        let (key, facts) = certified_key(chain, key)?;
        if key.key.algorithm() != Self::ALGORITHM {
            return Err(TlsError::KeyType);
        }
        self.put(Issued { key, facts: facts.clone() });
        Ok(facts)
    }

    /// Takes over the certificate of another place, if it has one.
    pub fn inherit(&self, other: &Self) {
        if let Some(issued) = other.get(Issued::clone) {
            self.put(issued);
        }
    }

    /// `None`: no certificate has been issued yet.
    pub fn facts(&self) -> Option<CertificateFacts> {
        self.get(|issued| issued.facts.clone())
    }

    fn put(&self, issued: Issued) {
        *self.issued.write().unwrap_or_else(PoisonError::into_inner) = Some(issued);
    }

    fn get<T>(&self, read: impl FnOnce(&Issued) -> T) -> Option<T> {
        self.issued.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(read)
    }
}

/// A certificate chain with its key.
#[derive(Clone, Debug)]
pub(crate) enum Key {
    Fixed(Arc<CertifiedKey>),
    Managed(Arc<ManagedCertificate>),
}

impl Key {
    pub(crate) fn algorithm(&self) -> SignatureAlgorithm {
        match self {
            Self::Fixed(key) => key.key.algorithm(),
            Self::Managed(_) => ManagedCertificate::ALGORITHM,
        }
    }

    /// `None`: the certificate has not been issued yet.
    pub(crate) fn current(&self) -> Option<Arc<CertifiedKey>> {
        match self {
            Self::Fixed(key) => Some(Arc::clone(key)),
            Self::Managed(place) => place.get(|issued| Arc::clone(&issued.key)),
        }
    }
}
