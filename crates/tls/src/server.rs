//! Server: certificates by name, session tickets and versions.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, VerifierBuilderError,
    WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, ServerConnection, SignatureScheme};
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::session::TlsSession;
use crate::{TlsError, TlsVersion, pair_error, read_certificates, read_identity};

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
    key: Arc<CertifiedKey>,
    /// DNS names in lower case, also with a wildcard: `*.example.org`.
    names: Vec<String>,
    warnings: Vec<CertificateWarning>,
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

    pub(crate) fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        now: SystemTime,
    ) -> Result<Self, TlsError> {
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider());
        let key = key.map_err(pair_error)?;
        let parsed = key.end_entity_cert().map_err(TlsError::Pair)?;
        let parsed = x509_cert::Certificate::from_der(parsed).map_err(TlsError::Syntax)?;
        let parsed = parsed.tbs_certificate;
        let mut warnings = Vec::new();
        if parsed.validity.not_after.to_system_time() < now {
            warnings.push(CertificateWarning::Expired(parsed.validity.not_after.to_string()));
        }
        if parsed.validity.not_before.to_system_time() > now {
            warnings.push(CertificateWarning::NotYetValid(parsed.validity.not_before.to_string()));
        }
        let names = match parsed.get::<SubjectAltName>().map_err(TlsError::Syntax)? {
            Some((_, names)) => names.0.iter().filter_map(dns_name).collect(),
            None => Vec::new(),
        };
        Ok(Self { key: Arc::new(key), names, warnings })
    }

    pub fn warnings(&self) -> &[CertificateWarning] {
        &self.warnings
    }
}

fn dns_name(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(name.as_str().to_ascii_lowercase()),
        _ => None,
    }
}

/// Options of the TLS handshake of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerOptions<'a> {
    /// With 1.2, versions and cipher suites are those of Mozilla's intermediate profile, without finite-field
    /// Diffie-Hellman; with 1.3, those of the modern one.
    pub min_version: TlsVersion,
    /// Lets clients resume sessions by tickets. Their key is replaced after 6 hours and opens tickets for another 6.
    /// Sessions are resumed by tickets only.
    pub tickets: bool,
    /// Protocols of ALPN, in order of preference.
    pub protocols: &'a [&'a [u8]],
    /// PEM file with authorities. Clients need a certificate that one of them has issued, which is not checked again when a session is
    /// resumed. `None`: they need none.
    pub client_authorities: Option<&'a Path>,
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("no certificate given")]
    NoCertificate,
    /// Indexes of both certificates.
    #[error("two certificates have the name `{name}` and the same type of key; remove one of them")]
    DuplicateName { name: String, first: usize, second: usize },
    /// Index of the certificate.
    #[error(
        "no client would get this certificate, since it has no DNS name; only the first one may be without"
    )]
    NoName(usize),
    #[error("cannot read the certificates of the authorities of clients; expected a PEM file")]
    Authorities(#[source] pem::Error),
    #[error("cannot use the certificate of an authority of clients")]
    Authority(#[source] rustls::Error),
    #[error("cannot use the certificates of the authorities of clients")]
    Verifier(#[source] VerifierBuilderError),
    #[error("cannot use TLS with these options")]
    Options(#[source] rustls::Error),
}

/// Creates TLS sessions for connections of clients. Clones share their session tickets.
#[derive(Clone)]
pub struct TlsServer {
    config: Arc<ServerConfig>,
    /// Authorities of clients.
    authorities: Vec<CertificateDer<'static>>,
}

impl TlsServer {
    /// The first certificate is the default, for clients that send no name or an unknown one.
    pub fn new(
        certificates: Vec<Certificate>,
        options: &ServerOptions<'_>,
    ) -> Result<Self, ServerError> {
        let versions = match options.min_version {
            TlsVersion::Tls12 => &[&TLS13, &TLS12][..],
            TlsVersion::Tls13 => &[&TLS13],
        };
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(ServerError::Options)?;
        let certificates = Arc::new(Certificates::new(certificates)?);
        let authorities = options.client_authorities.map(read_certificates).transpose();
        let authorities = authorities.map_err(ServerError::Authorities)?;
        let builder = match &authorities {
            None => builder.with_no_client_auth(),
            Some(authorities) => {
                let mut roots = RootCertStore::empty();
                for authority in authorities {
                    roots.add(authority.clone()).map_err(ServerError::Authority)?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().map_err(ServerError::Verifier)?)
            }
        };
        let mut config = builder.with_cert_resolver(certificates);
        config.alpn_protocols = options.protocols.iter().map(|name| name.to_vec()).collect();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        if options.tickets {
            config.ticketer = ring::Ticketer::new().map_err(ServerError::Options)?;
        }
        Ok(Self { config: Arc::new(config), authorities: authorities.unwrap_or_default() })
    }

    /// Continues with the ticket keys of another server, so that its clients can resume their sessions. Does nothing if clients need
    /// other certificates now.
    pub fn inherit_tickets(&mut self, old: &Self) {
        let has_both = self.config.ticketer.enabled() && old.config.ticketer.enabled();
        if has_both && self.authorities == old.authorities {
            Arc::make_mut(&mut self.config).ticketer = Arc::clone(&old.config.ticketer);
        }
    }

    /// Starts the session of a client's connection.
    pub fn accept(&self) -> io::Result<TlsSession> {
        let connection =
            ServerConnection::new(Arc::clone(&self.config)).map_err(io::Error::other)?;
        Ok(TlsSession::new(connection.into()))
    }
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServer").finish_non_exhaustive()
    }
}

impl PartialEq for TlsServer {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config)
    }
}

impl Eq for TlsServer {}

/// Certificates by the name that a client sends (SNI).
#[derive(Debug)]
struct Certificates {
    /// At least one; the first one is the default.
    all: Vec<Certificate>,
    /// Indexes by name. Those of one name have different types of keys.
    exact: HashMap<String, Vec<usize>>,
    /// Indexes by the parent of the name: `example.org` for `*.example.org`.
    wildcard: HashMap<String, Vec<usize>>,
}

impl Certificates {
    fn new(all: Vec<Certificate>) -> Result<Self, ServerError> {
        let (mut exact, mut wildcard) = (HashMap::new(), HashMap::new());
        let algorithm = |index: usize| all[index].key.key.algorithm();
        if all.is_empty() {
            return Err(ServerError::NoCertificate);
        }
        for (index, certificate) in all.iter().enumerate() {
            if certificate.names.is_empty() && index > 0 {
                return Err(ServerError::NoName(index));
            }
            for name in &certificate.names {
                let same: &mut Vec<usize> = match name.strip_prefix("*.") {
                    Some(parent) => wildcard.entry(parent.to_owned()).or_default(),
                    None => exact.entry(name.clone()).or_default(),
                };
                if same.contains(&index) {
                    continue;
                }
                let is_same_type = |first: &&usize| algorithm(**first) == algorithm(index);
                if let Some(&first) = same.iter().find(is_same_type) {
                    let name = name.clone();
                    return Err(ServerError::DuplicateName { name, first, second: index });
                }
                same.push(index);
            }
        }
        Ok(Self { all, exact, wildcard })
    }

    /// An exact name has precedence over a wildcard, which stands for one label (RFC 9525, section 6.3). Of several
    /// certificates, the first one that the client can verify.
    fn select(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> &Certificate {
        if self.all.len() == 1 {
            return &self.all[0];
        }
        let of_name = |name: &str| {
            let of_parent = || self.wildcard.get(name.split_once('.')?.1);
            self.exact.get(name).or_else(of_parent)
        };
        // The default may have one of another type beside it.
        let default = || {
            let name = self.all[0].names.first()?;
            match name.strip_prefix("*.") {
                Some(parent) => self.wildcard.get(parent),
                None => self.exact.get(name),
            }
        };
        let indexes = name.and_then(of_name).or_else(default).map_or(&[0][..], Vec::as_slice);
        let fits = |index: &&usize| self.all[**index].key.key.choose_scheme(schemes).is_some();
        let index = indexes.iter().find(fits).or(indexes.first());
        &self.all[index.copied().unwrap_or(0)]
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certificate = self.select(hello.server_name(), hello.signature_schemes());
        Some(Arc::clone(&certificate.key))
    }
}

#[cfg(test)]
mod tests;
