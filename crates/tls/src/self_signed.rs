//! Self-signed certificates, for servers that are started for a test or a measurement.

use std::path::Path;
use std::time::SystemTime;
use std::{fs, io};

use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::{Certificate, TlsError};

/// A self-signed certificate and its key (ECDSA on P-256), both in PEM.
///
/// Clients accept it if they trust the certificate itself, or check none.
#[derive(Clone, Debug)]
pub struct SelfSigned {
    pub certificate: String,
    pub key: String,
}

#[derive(Debug, thiserror::Error)]
pub enum SelfSignedError {
    #[error("cannot make a self-signed certificate; give a certificate and its key instead")]
    Make(#[from] rcgen::Error),
    #[error("cannot use the self-signed certificate")]
    Use(#[source] TlsError),
}

impl SelfSigned {
    /// Makes a certificate for these names and addresses. The first one is also its common name.
    pub fn new(names: &[&str]) -> Result<Self, SelfSignedError> {
        let key = KeyPair::generate()?;
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut parameters = CertificateParams::new(names.clone())?;
        if let Some(name) = names.first() {
            parameters.distinguished_name.push(DnType::CommonName, name);
        }
        let certificate = parameters.self_signed(&key)?;
        Ok(Self { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Writes the certificate to `PATH.pem` and the key to `PATH.key`.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path.with_extension("pem"), &self.certificate)?;
        fs::write(path.with_extension("key"), &self.key)
    }

    /// The certificate for a server.
    pub fn for_server(&self) -> Result<Certificate, SelfSignedError> {
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes())
            .map_err(|error| SelfSignedError::Use(TlsError::Certificate(error)))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())
            .map_err(|error| SelfSignedError::Use(TlsError::Key(error)))?;
        Certificate::new(vec![certificate], key, SystemTime::now()).map_err(SelfSignedError::Use)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use rcgen::{BasicConstraints, IsCa, Issuer, date_time_ymd};
    use tollgate_net::{Events, Interest, Poller, Socket};

    use super::*;
    use crate::{
        CertificateFiles, ClientOptions, Rejection, ServerOptions, TlsClient, TlsServer,
        TlsVersion, Trust, certificate_rejection, describe_failure,
    };

    /// Returns the result of a handshake with a server that has the certificate.
    fn handshake(
        certificate: &SelfSigned,
        trust: &Trust,
        name: &str,
    ) -> io::Result<Option<Vec<u8>>> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let server = Socket::from(std::os::fd::OwnedFd::from(server));
        let options = ServerOptions {
            min_version: TlsVersion::Tls12,
            tickets: true,
            protocols: &[b"h2", b"http/1.1"],
            client_authorities: None,
            proofs: None,
        };
        let tls = TlsServer::new(vec![certificate.for_server().unwrap()], &options).unwrap();
        let server = thread::spawn(move || {
            let mut session = tls.accept().unwrap();
            let poller = Poller::new().unwrap();
            poller.add(&server, 0, Interest::Readable).unwrap();
            let mut buffer = [0; 64];
            loop {
                match session.receive(&server, &mut buffer, false) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    _ => return,
                }
                poller.wait(&mut Events::with_capacity(1), None).unwrap();
            }
        });
        let options = ClientOptions {
            trust,
            name,
            identity: None,
            version: None,
            resume: false,
            protocols: &[b"http/1.1", b"h2"],
        };
        let chosen = TlsClient::new(&options).unwrap().handshake(stream, false);
        server.join().unwrap();
        chosen
    }

    /// A certificate as `openssl req -x509` makes it, valid until the end of a year.
    fn authority(name: &str, year: i32) -> SelfSigned {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.not_after = date_time_ymd(year, 12, 31);
        let certificate = parameters.self_signed(&key).unwrap();
        SelfSigned { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    #[test]
    fn certificate_of_an_authority_is_accepted_for_itself_if_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("site.pem");
        let trusted = |certificate: &SelfSigned, name: &str| {
            certificate.write(&file).unwrap();
            handshake(certificate, &Trust::File(file.clone()), name)
        };
        let valid = authority("site.test", 4000);
        trusted(&valid, "site.test").unwrap();
        for (certificate, name) in
            [(&valid, "other.test"), (&authority("site.test", 2020), "site.test")]
        {
            let error = trusted(certificate, name).unwrap_err();
            assert_eq!(certificate_rejection(&error), Some(Rejection::NameOrTime), "{name}");
        }
        // The same names and another key.
        valid.write(&file).unwrap();
        let result = handshake(&authority("site.test", 4000), &Trust::File(file), "site.test");
        let error = result.unwrap_err();
        assert_eq!(certificate_rejection(&error), Some(Rejection::Untrusted));
        assert_eq!(
            describe_failure(&error),
            "the certificate of the peer is self-signed, or that of an authority"
        );
    }

    #[test]
    fn only_authorities_of_a_file_issue_certificates() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("issuer.pem");
        let untrusted = Some(Rejection::Untrusted);
        for (is_ca, rejection) in [
            (IsCa::Ca(BasicConstraints::Unconstrained), None),
            (IsCa::NoCa, untrusted),
            (IsCa::ExplicitNoCa, untrusted),
        ] {
            let key = KeyPair::generate().unwrap();
            let mut parameters = CertificateParams::new(vec!["issuer.test".to_owned()]).unwrap();
            parameters.is_ca = is_ca;
            fs::write(&file, parameters.self_signed(&key).unwrap().pem()).unwrap();
            let issuer = Issuer::new(parameters, key);
            let key = KeyPair::generate().unwrap();
            let parameters = CertificateParams::new(vec!["site.test".to_owned()]).unwrap();
            let certificate = parameters.signed_by(&key, &issuer).unwrap().pem();
            let site = SelfSigned { certificate, key: key.serialize_pem() };
            let result = handshake(&site, &Trust::File(file.clone()), "site.test");
            assert_eq!(
                result.err().map(|error| certificate_rejection(&error)),
                rejection.map(Some)
            );
        }
    }

    #[test]
    fn client_that_trusts_the_certificate_accepts_its_names() {
        let dir = tempfile::tempdir().unwrap();
        let certificate = SelfSigned::new(&["site.test", "127.0.0.1"]).unwrap();
        certificate.write(&dir.path().join("site")).unwrap();
        let file = dir.path().join("site.pem");
        let trust = Trust::File(file.clone());
        for name in ["site.test", "127.0.0.1"] {
            // The preferred protocol is the server's.
            let chosen = handshake(&certificate, &trust, name).unwrap();
            assert_eq!(chosen.as_deref(), Some(&b"h2"[..]), "{name}");
        }
        let error = handshake(&certificate, &trust, "other.test").unwrap_err();
        assert_eq!(certificate_rejection(&error), Some(Rejection::NameOrTime));
        let other = SelfSigned::new(&["site.test"]).unwrap();
        let error = handshake(&other, &trust, "site.test").unwrap_err();
        assert_eq!(certificate_rejection(&error), Some(Rejection::Untrusted));
        // The files can be read.
        let key = dir.path().join("site.key");
        let files = CertificateFiles { certificate: &file, key: &key };
        let read = Certificate::read(&files, SystemTime::now()).unwrap();
        assert_eq!(read.warnings(), []);
    }
}
