//! Server: certificates by name, session tickets and versions.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, pem};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, VerifierBuilderError,
    WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, ServerConnection, SignatureScheme};

use crate::certificate::Certificate;
use crate::proofs::{AlpnProofs, Asked};
use crate::session::TlsSession;
use crate::{TlsVersion, read_certificates};

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
    /// Proofs of names, for connections that ask for them. A listener with `client_authorities` refuses these.
    pub proofs: Option<&'a Arc<AlpnProofs>>,
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
        let certificates = Certificates::new(certificates, options.proofs.cloned())?;
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
        let mut config = builder.with_cert_resolver(Arc::new(certificates));
        let proofs = options.proofs.map(|_| &AlpnProofs::PROTOCOL);
        config.alpn_protocols =
            options.protocols.iter().chain(proofs).map(|name| name.to_vec()).collect();
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
    proofs: Option<Arc<AlpnProofs>>,
}

impl Certificates {
    fn new(all: Vec<Certificate>, proofs: Option<Arc<AlpnProofs>>) -> Result<Self, ServerError> {
        let (mut exact, mut wildcard) = (HashMap::new(), HashMap::new());
        let algorithm = |index: usize| all[index].key.algorithm();
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
        Ok(Self { all, exact, wildcard, proofs })
    }

    /// An exact name has precedence over a wildcard, which stands for one label (RFC 9525, section 6.3). Of several
    /// certificates, the first one that has been issued and that the client can verify.
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
        let fits = |index: &&usize| {
            let key = self.all[**index].key.current();
            key.is_some_and(|key| key.key.choose_scheme(schemes).is_some())
        };
        let index = indexes.iter().find(fits).or(indexes.first());
        &self.all[index.copied().unwrap_or(0)]
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        match self.proofs.as_ref().map(|proofs| proofs.of_client(&hello)) {
            Some(Asked::Proof(proof)) => proof,
            Some(Asked::Certificate) | None => {
                self.select(hello.server_name(), hello.signature_schemes()).key.current()
            }
        }
    }
}

#[cfg(test)]
mod tests;
