//! Client: trust in certificates, versions, ALPN and resumption.

use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName, UnixTime, pem};
use rustls::server::ParsedCertificate;
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme, StreamOwned,
};
use serde::{Deserialize, Serialize};
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::BasicConstraints;
use x509_cert::{TbsCertificate, Version};

use crate::session::TlsSession;
use crate::{TlsError, pair_error, read_certificates, read_identity};

/// Options of the TLS handshake of a client.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions<'a> {
    pub trust: &'a Trust,
    /// Host name or address that the certificate must have. A name is also sent (SNI).
    pub name: &'a str,
    /// Certificate chain and key of the client, in PEM files.
    pub identity: Option<(&'a Path, &'a Path)>,
    /// `None`: 1.2 and 1.3.
    pub version: Option<TlsVersion>,
    /// True to resume sessions by tickets.
    pub resume: bool,
    /// Protocols of ALPN, in order of preference.
    pub protocols: &'a [&'a [u8]],
}

/// Certificates that a client accepts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Certificates issued by the system's authorities.
    System,
    /// Certificates issued by the authorities in a PEM file, and those in the file.
    File(PathBuf),
    /// Any certificate; name and chain are not checked.
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    Tls12,
    Tls13,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Identity(#[from] TlsError),
    #[error("cannot read the certificates of authorities; expected a PEM file")]
    Authorities(#[source] pem::Error),
    #[error("cannot use the certificate of an authority")]
    Authority(#[source] Error),
    #[error("cannot use the certificates of authorities")]
    Verifier(#[source] VerifierBuilderError),
    #[error("no certificates of authorities found; install ca-certificates")]
    NoAuthorities(#[source] Option<rustls_native_certs::Error>),
    #[error("not a host name or address")]
    Name(#[source] InvalidDnsNameError),
    #[error("cannot use this version of TLS")]
    Version(#[source] Error),
}

/// Creates TLS sessions for connections to one server. Clones share the sessions to resume.
#[derive(Clone, Debug)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    resumes: bool,
}

impl PartialEq for TlsClient {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config) && self.name == other.name
    }
}

impl Eq for TlsClient {}

impl TlsClient {
    pub fn new(options: &ClientOptions<'_>) -> Result<Self, ClientError> {
        let name = ServerName::try_from(options.name.to_owned()).map_err(ClientError::Name)?;
        let provider = Arc::new(ring::default_provider());
        let versions = match options.version {
            None => &[&TLS13, &TLS12][..],
            Some(TlsVersion::Tls12) => &[&TLS12],
            Some(TlsVersion::Tls13) => &[&TLS13],
        };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(ClientError::Version)?;
        let builder = match options.trust {
            Trust::System => builder.with_root_certificates(system_roots()?),
            Trust::File(path) => {
                let accepted = Accepted::file(path, &provider)?;
                let verifier = Arc::new(Verifier { accepted, provider });
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
            Trust::All => {
                let verifier = Arc::new(Verifier { accepted: Accepted::All, provider });
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
        };
        let mut config = match options.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let (chain, key) = read_identity(certificate, key)?;
                builder.with_client_auth_cert(chain, key).map_err(pair_error)?
            }
        };
        config.alpn_protocols = options.protocols.iter().map(|name| name.to_vec()).collect();
        if !options.resume {
            config.resumption = Resumption::disabled();
        }
        Ok(Self { config: Arc::new(config), name, resumes: options.resume })
    }

    /// The same options for another server of this name or address, whose sessions are separate.
    pub fn for_server(&self, name: &str) -> Result<Self, ClientError> {
        let name = ServerName::try_from(name.to_owned()).map_err(ClientError::Name)?;
        Ok(Self { name, ..self.with_own_sessions() })
    }

    /// The same options for another server of the same name.
    pub fn with_own_sessions(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        if self.resumes {
            config.resumption = Resumption::default();
        }
        Self { config: Arc::new(config), name: self.name.clone(), resumes: self.resumes }
    }

    /// True if sessions are resumed.
    pub fn resumes(&self) -> bool {
        self.resumes
    }

    /// Starts the session of a connection.
    pub fn connect(&self) -> io::Result<TlsSession> {
        let connection = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        Ok(TlsSession::new(connection.map_err(io::Error::other)?.into()))
    }

    /// Performs a handshake on a blocking stream. The result reads and writes plain bytes; a read fails with
    /// `UnexpectedEof` if the stream ends without `close_notify`.
    pub fn stream<S: Read + Write>(&self, mut stream: S) -> io::Result<impl Read + Write + use<S>> {
        let mut connection = ClientConnection::new(Arc::clone(&self.config), self.name.clone())
            .map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(StreamOwned::new(connection, stream))
    }

    /// Performs a handshake on a blocking stream, then sends `close_notify`. Returns the protocol that the server chooses by
    /// ALPN. `awaits_end`: reads to the end of the stream, as servers over TLS 1.3 reject the client only after its
    /// handshake is complete. An alert is an error of the kind `InvalidData`.
    pub fn handshake(
        &self,
        mut stream: impl Read + Write,
        awaits_end: bool,
    ) -> io::Result<Option<Vec<u8>>> {
        let mut connection = ClientConnection::new(Arc::clone(&self.config), self.name.clone())
            .map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        connection.send_close_notify();
        let sent = connection.write_tls(&mut stream);
        if awaits_end {
            read_to_end(&mut connection, &mut stream)?;
        }
        sent?;
        Ok(connection.alpn_protocol().map(<[u8]>::to_vec))
    }
}

/// Reads to the end of the stream, its time limit or the limit of unread plain bytes. Fails on an alert.
fn read_to_end(connection: &mut ClientConnection, stream: &mut impl Read) -> io::Result<()> {
    while connection.read_tls(stream).is_ok_and(|bytes| bytes > 0) {
        let processed = connection.process_new_packets();
        let state = processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        if state.peer_has_closed() {
            break;
        }
    }
    Ok(())
}

/// The certificates of authorities in a PEM file, or those that the system trusts, in DER.
pub fn authorities(file: Option<&Path>) -> Result<Vec<Vec<u8>>, ClientError> {
    let certificates = match file {
        Some(path) => read_certificates(path).map_err(ClientError::Authorities)?,
        None => system_authorities()?,
    };
    Ok(certificates.into_iter().map(|certificate| certificate.to_vec()).collect())
}

fn system_authorities() -> Result<Vec<CertificateDer<'static>>, ClientError> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        return Err(ClientError::NoAuthorities(found.errors.into_iter().next()));
    }
    Ok(found.certs)
}

fn system_roots() -> Result<RootCertStore, ClientError> {
    let mut roots = RootCertStore::empty();
    // Skips certificates that rustls cannot parse.
    roots.add_parsable_certificates(system_authorities()?);
    if roots.is_empty() {
        return Err(ClientError::NoAuthorities(None));
    }
    Ok(roots)
}

/// Reason why a server's certificate was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// It is for another name or time.
    NameOrTime,
    /// No trusted authority has issued it, or it cannot be checked.
    Untrusted,
}

/// Returns why a certificate was not accepted, if that is the cause of a failed handshake.
pub fn certificate_rejection(error: &io::Error) -> Option<Rejection> {
    match error.get_ref()?.downcast_ref()? {
        Error::InvalidCertificate(reason) => Some(match reason {
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }
            | CertificateError::NotValidForName
            | CertificateError::NotValidForNameContext { .. } => Rejection::NameOrTime,
            _ => Rejection::Untrusted,
        }),
        _ => None,
    }
}

/// Describes why a handshake failed.
pub fn describe_failure(error: &io::Error) -> String {
    let rustls_error: Option<&Error> = error.get_ref().and_then(|source| source.downcast_ref());
    match rustls_error {
        // The second: an authority of the same name has another kind of key.
        Some(Error::InvalidCertificate(
            CertificateError::UnknownIssuer
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. },
        )) => "no trusted authority has issued the certificate of the peer".to_owned(),
        Some(Error::InvalidCertificate(CertificateError::Other(other)))
            if format!("{other:?}").contains("CaUsedAsEndEntity") =>
        {
            "the certificate of the peer is self-signed, or that of an authority".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Checks certificates in place of rustls's own verifier. The server always proves that it has the key.
#[derive(Debug)]
struct Verifier {
    accepted: Accepted,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug)]
enum Accepted {
    All,
    /// These, and those issued by the authorities among them, if there are any.
    File {
        certificates: Vec<CertificateDer<'static>>,
        issued: Option<Arc<WebPkiServerVerifier>>,
    },
}

impl Accepted {
    fn file(path: &Path, provider: &Arc<CryptoProvider>) -> Result<Self, ClientError> {
        let certificates = read_certificates(path).map_err(ClientError::Authorities)?;
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            if is_authority(certificate).map_err(|error| ClientError::Authority(error.into()))? {
                roots.add(certificate.clone()).map_err(ClientError::Authority)?;
            }
        }
        let issued = if roots.is_empty() {
            None
        } else {
            let provider = Arc::clone(provider);
            let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
            Some(builder.build().map_err(ClientError::Verifier)?)
        };
        Ok(Self::File { certificates, issued })
    }
}

impl ServerCertVerifier for Verifier {
    /// A certificate of a file needs no issuer, and may be that of an authority, as `openssl req -x509` makes it.
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Accepted::File { certificates, issued } = &self.accepted else {
            return Ok(ServerCertVerified::assertion());
        };
        if certificates.contains(end_entity) {
            check_validity(end_entity, now)?;
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        match issued {
            Some(issued) => issued.verify_server_cert(end_entity, intermediates, name, ocsp, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn parse(certificate: &CertificateDer<'_>) -> Result<TbsCertificate, CertificateError> {
    match x509_cert::Certificate::from_der(certificate) {
        Ok(parsed) => Ok(parsed.tbs_certificate),
        Err(_) => Err(CertificateError::BadEncoding),
    }
}

/// Returns true if a certificate may issue others. Those of versions 1 and 2 do not say.
fn is_authority(certificate: &CertificateDer<'_>) -> Result<bool, CertificateError> {
    let parsed = parse(certificate)?;
    match parsed.get::<BasicConstraints>() {
        Ok(Some((_, constraints))) => Ok(constraints.ca),
        Ok(None) => Ok(parsed.version != Version::V3),
        Err(_) => Err(CertificateError::BadEncoding),
    }
}

fn check_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), CertificateError> {
    let validity = parse(certificate)?.validity;
    if now.as_secs() < validity.not_before.to_unix_duration().as_secs() {
        return Err(CertificateError::NotValidYet);
    }
    if now.as_secs() > validity.not_after.to_unix_duration().as_secs() {
        return Err(CertificateError::Expired);
    }
    Ok(())
}
