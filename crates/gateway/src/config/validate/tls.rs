//! TLS of listeners and pools: reads certificates, keys and authorities.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tollgate_config::gateway::{PoolTlsFile, TlsFile, TlsVersionFile};
use tollgate_config::{InvalidValue, Located};
use tollgate_tls::{
    Certificate, CertificateFiles, ClientError, ClientOptions, HttpProtocol, ServerError,
    ServerOptions, TlsClient, TlsError, TlsServer, TlsVersion, Trust,
};

use super::acme::Orders;
use super::resources::Resources;
use crate::config::pool::{Protocol, Target};
use tollgate_net::Address;

pub(super) const HTTP1: &[u8] = HttpProtocol::Http1.alpn();
const HTTP2: &[u8] = HttpProtocol::Http2.alpn();

/// Reads the certificates of a listener. Collects what prevents their use.
pub(super) fn listener_tls(
    file: &TlsFile,
    http2: bool,
    mut orders: Option<&mut Orders<'_>>,
    resources: &mut Resources<'_>,
) -> Result<Option<TlsServer>, InvalidValue> {
    let now = SystemTime::now();
    let mut proofs = None;
    let mut certificates = Vec::with_capacity(file.certificates.len());
    for entry in file.certificates.iter() {
        let (path, key) = match (&entry.certificate, &entry.key, &entry.acme) {
            (Some(certificate), Some(key), None) => (certificate, key),
            (None, None, Some(names)) => {
                let Some(orders) = orders.as_deref_mut() else {
                    let message = "`acme` needs an authority, which `tollgate gateway` has in a top-level `acme: { agree_to_terms: true, state: FOLDER }`; add it, or write `certificate` and `key`";
                    return Err(InvalidValue::at(names, message));
                };
                let shown = orders.proofs(names, file.client_ca.is_some());
                proofs = resources.collect(shown).flatten();
                let place = orders.place(names, resources);
                let Some(place) = resources.collect(place) else { continue };
                let certificate = Certificate::managed(&place, now);
                for warning in certificate.warnings() {
                    resources.warnings.push(InvalidValue::at(names, warning.to_string()));
                }
                certificates.push(certificate);
                continue;
            }
            _ => {
                let message =
                    "a certificate has either `certificate` and `key`, or `acme` with its names";
                return Err(InvalidValue::at(entry, message));
            }
        };
        let certificate = read_certificate(path, key, resources.folder, now);
        let Some(certificate) = resources.collect(certificate) else { continue };
        for warning in certificate.warnings() {
            resources.warnings.push(InvalidValue::at(path, warning.to_string()));
        }
        certificates.push(certificate);
    }
    if certificates.len() < file.certificates.len() {
        return Ok(None);
    }
    let client_ca = file.client_ca.as_ref().map(|name| resources.folder.join(&**name));
    let options = ServerOptions {
        min_version: match file.min_version {
            None | Some(TlsVersionFile::Tls12) => TlsVersion::Tls12,
            Some(TlsVersionFile::Tls13) => TlsVersion::Tls13,
        },
        tickets: file.tickets.unwrap_or(true),
        protocols: if http2 { &[HTTP2, HTTP1] } else { &[HTTP1] },
        client_authorities: client_ca.as_deref(),
        proofs: proofs.as_ref(),
    };
    let server = TlsServer::new(certificates, &options);
    let server = server.map_err(|error| invalid_server(file, error));
    Ok(resources.collect(server))
}

fn read_certificate(
    certificate: &Located<String>,
    key: &Located<String>,
    folder: &Path,
    now: SystemTime,
) -> Result<Certificate, InvalidValue> {
    let paths = (folder.join(&**certificate), folder.join(&**key));
    let files = CertificateFiles { certificate: &paths.0, key: &paths.1 };
    Certificate::read(&files, now).map_err(|error| invalid_file(error, certificate, key))
}

/// Names the file that an error is about.
fn invalid_file(
    error: TlsError,
    certificate: &Located<String>,
    key: &Located<String>,
) -> InvalidValue {
    let at = match &error {
        TlsError::Certificate(_) | TlsError::Syntax(_) => certificate,
        TlsError::Key(_) | TlsError::Mismatch(_) | TlsError::Pair(_) | TlsError::KeyType => key,
    };
    let invalid = InvalidValue::at(at, format!("`{}`: {error}", **at));
    match error {
        TlsError::Certificate(source) | TlsError::Key(source) => invalid.with_source(source),
        TlsError::Mismatch(source) | TlsError::Pair(source) => invalid.with_source(source),
        TlsError::Syntax(source) => invalid.with_source(source),
        TlsError::KeyType => invalid,
    }
}

fn invalid_server(file: &TlsFile, error: ServerError) -> InvalidValue {
    let files = &file.certificates;
    let at = |index: usize, message: String| match &files[index].certificate {
        Some(path) => InvalidValue::at(path, message),
        None => InvalidValue::at(&files[index], message),
    };
    let of_authorities = || match &file.client_ca {
        Some(name) => InvalidValue::at(name, format!("`{}`: {error}", **name)),
        None => InvalidValue::at(files, error.to_string()),
    };
    match &error {
        ServerError::Authorities(_) | ServerError::Authority(_) | ServerError::Verifier(_) => {
            let invalid = of_authorities();
            invalid.with_source(error)
        }
        ServerError::NoCertificate => {
            InvalidValue::at(files, "`certificates` is empty; add a certificate and its key")
        }
        ServerError::DuplicateName { name, first, second } => {
            let line = files[*first].line();
            let message = format!(
                "the certificate has the name `{name}`, as that in line {line}, and a key of the same type; remove one of them"
            );
            at(*second, message)
        }
        ServerError::NoName(index) => at(*index, error.to_string()),
        ServerError::Options(source) => {
            InvalidValue::at(files, error.to_string()).with_source(source.clone())
        }
    }
}

/// TLS with the backends of a pool.
pub(super) struct PoolTls<'a> {
    /// For a backend of any name, unless `server_name` is given.
    client: TlsClient,
    server_name: Option<&'a Located<String>>,
}

/// Stands for the names of the backends.
const ANY_NAME: &str = "backend.invalid";

impl<'a> PoolTls<'a> {
    /// Reads the certificates of a pool. Collects what prevents their use.
    pub(super) fn read(
        file: &'a Located<PoolTlsFile>,
        protocol: Protocol,
        resources: &mut Resources<'_>,
    ) -> Option<Self> {
        let client = pool_client(file, protocol, resources.folder);
        let client = resources.collect(client)?;
        Some(Self { client, server_name: file.server_name.as_ref() })
    }

    /// TLS with a backend whose address is written as `text`.
    pub(super) fn client(
        &self,
        target: &Target,
        text: &Located<String>,
    ) -> Result<TlsClient, InvalidValue> {
        let name = match target {
            _ if self.server_name.is_some() => return Ok(self.client.clone()),
            Target::Name(name, _) => name.host.trim_end_matches('.').to_owned(),
            Target::Address(Address::Tcp(address)) => address.ip().to_string(),
            Target::Address(Address::Unix(_)) => {
                let message = "a Unix socket has no name that certificates could have; set `server_name` in the \
                               `tls` of its pool";
                return Err(InvalidValue::at(text, message));
            }
        };
        self.client.for_server(&name).map_err(|error| {
            let message =
                format!("`{name}` cannot be the name in a certificate; set `server_name`");
            InvalidValue::at(text, message).with_source(error)
        })
    }
}

fn pool_client(
    file: &Located<PoolTlsFile>,
    protocol: Protocol,
    folder: &Path,
) -> Result<TlsClient, InvalidValue> {
    let identity = match (&file.certificate, &file.key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (Some(one), None) => {
            return Err(InvalidValue::at(one, "`certificate` without `key`; add its private key"));
        }
        (None, Some(one)) => {
            return Err(InvalidValue::at(one, "`key` without `certificate`; add the certificate"));
        }
        (None, None) => None,
    };
    let trust = match &file.ca {
        Some(at) if file.verify.as_deref() == Some(&false) => {
            let message = "`ca` has no effect with `verify: false`; remove one of them";
            return Err(InvalidValue::at(at, message));
        }
        _ if file.verify.as_deref() == Some(&false) => Trust::All,
        Some(ca) => Trust::File(folder.join(&**ca)),
        None => Trust::System,
    };
    let paths = identity.map(|(certificate, key)| -> (PathBuf, PathBuf) {
        (folder.join(&**certificate), folder.join(&**key))
    });
    let options = ClientOptions {
        trust: &trust,
        name: file.server_name.as_ref().map_or(ANY_NAME, |name| name.as_str()),
        identity: paths.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path())),
        version: None,
        resume: true,
        protocols: match protocol {
            Protocol::Http1 => &[HTTP1],
            Protocol::Http2 { .. } => &[HTTP2],
        },
    };
    TlsClient::new(&options).map_err(|error| match (error, identity) {
        (ClientError::Identity(error), Some((certificate, key))) => {
            invalid_file(error, certificate, key)
        }
        (error, _) => {
            let message = error.to_string();
            let invalid = match (&error, &file.ca, &file.server_name) {
                (ClientError::Authorities(_) | ClientError::Authority(_), Some(ca), _) => {
                    InvalidValue::at(ca, format!("`{}`: {message}", **ca))
                }
                (ClientError::Name(_), _, Some(name)) => {
                    InvalidValue::at(name, format!("`{}` is {message}", **name))
                }
                _ => InvalidValue::at(file, message),
            };
            invalid.with_source(error)
        }
    })
}
