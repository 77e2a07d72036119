//! Both roles over socket pairs. The certificates are those of the gateway's tests.

use std::io::Write as _;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use tollgate_net::Socket;

use super::*;
use crate::{
    CertificateFiles, ClientOptions, ManagedCertificate, Rejection, SelfSigned, TlsClient,
    TlsError, Trust, certificate_rejection, read_certificates, read_identity,
};

fn file(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    folder.join("../gateway/tests/gateway/certificates").join(name)
}

/// The start of a year, roughly.
fn year(year: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs((year - 1970) * 31_556_952)
}

fn read(certificate: &str, key: &str) -> Result<Certificate, TlsError> {
    read_at(certificate, key, year(2100))
}

fn read_at(certificate: &str, key: &str, now: SystemTime) -> Result<Certificate, TlsError> {
    let (certificate, key) = (file(certificate), file(key));
    Certificate::read(&CertificateFiles { certificate: &certificate, key: &key }, now)
}

fn server(min_version: TlsVersion, tickets: bool) -> TlsServer {
    let site = read("site.pem", "site.key").unwrap();
    let shop = read("shop.pem", "shop.key").unwrap();
    let options = ServerOptions {
        min_version,
        tickets,
        protocols: &[b"http/1.1"],
        client_authorities: None,
        proofs: None,
    };
    TlsServer::new(vec![site, shop], &options).unwrap()
}

fn client(name: &str, authority: &str, version: Option<TlsVersion>) -> TlsClient {
    let options = ClientOptions {
        trust: &Trust::File(file(authority)),
        name,
        identity: None,
        version,
        resume: true,
        protocols: &[b"http/1.1"],
    };
    TlsClient::new(&options).unwrap()
}

/// The server's and the client's session after a handshake, and the client's socket.
fn connect(server: &TlsServer, client: &TlsClient) -> io::Result<(TlsSession, TlsSession)> {
    let (near, far) = UnixStream::pair().unwrap();
    let [near, far] = [near, far].map(|stream| {
        stream.set_nonblocking(true).unwrap();
        Socket::from(OwnedFd::from(stream))
    });
    let (mut server, mut client) = (server.accept().unwrap(), client.connect().unwrap());
    // Nothing is sent in a handshake, and nothing is lost by trying.
    assert_eq!(client.send(&far, b"early").unwrap(), 0);
    loop {
        let is_client_done = client.handshake(&far)?;
        if server.handshake(&near)? && is_client_done {
            break;
        }
    }
    assert_eq!(client.send(&far, b"ping").unwrap(), 4);
    let mut received = [0; 8];
    assert_eq!(server.receive(&near, &mut received, false).unwrap(), (4, false));
    assert_eq!(&received[..4], b"ping");
    // Session tickets come before the first response.
    server.send(&near, b"pong").unwrap();
    assert_eq!(client.receive(&far, &mut received, false).unwrap().0, 4);
    Ok((server, client))
}

fn is_resumed(server: &TlsServer, client: &TlsClient) -> bool {
    let (server, client) = connect(server, client).unwrap();
    assert_eq!(server.is_resumed(), client.is_resumed());
    client.is_resumed()
}

#[test]
fn name_selects_certificate() {
    let server = server(TlsVersion::Tls12, true);
    // A client accepts only the certificate of its name and authority.
    for (name, authority, expected) in [
        ("localhost", "site.pem", None),
        ("shop.example", "ca.pem", None),
        ("A.SHOP.example", "ca.pem", None),
        // A wildcard stands for one label.
        ("b.a.shop.example", "ca.pem", Some(Rejection::Untrusted)),
        ("b.a.shop.example", "site.pem", Some(Rejection::NameOrTime)),
        ("other.example", "site.pem", Some(Rejection::NameOrTime)),
    ] {
        let result = connect(&server, &client(name, authority, None));
        let rejection = result.as_ref().err().map(|error| certificate_rejection(error).unwrap());
        assert_eq!(rejection, expected, "{name}");
        if let Ok((server, client)) = result {
            let facts = server.facts().unwrap();
            assert_eq!(facts.server_name, Some(name.to_ascii_lowercase().as_str()));
            assert_eq!((facts.version, client.facts().unwrap().version), ("TLSv1.3", "TLSv1.3"));
        }
    }
}

#[test]
fn exact_name_has_precedence_over_wildcard() {
    let named = |names: &[&str]| Certificate {
        names: names.iter().map(|&name| name.to_owned()).collect(),
        ..read("site.pem", "site.key").unwrap()
    };
    let chosen =
        |certificates: &Certificates, name| certificates.select(name, &[]).names[0].clone();
    let of =
        |all: &[&[&str]]| Certificates::new(all.iter().map(|names| named(names)).collect(), None);
    let certificates = of(&[&["default"], &["*.a.b"], &["x.a.b"], &["y.a.b", "*.b"]]).unwrap();
    for (name, expected) in [
        (None, "default"),
        (Some("z.a.b"), "*.a.b"),
        (Some("x.a.b"), "x.a.b"),
        (Some("a.b"), "y.a.b"),
        (Some("b"), "default"),
        (Some("x.z.a.b"), "default"),
    ] {
        assert_eq!(chosen(&certificates, name), expected, "{name:?}");
    }
    let error = of(&[&["a", "*.a"], &["b", "*.a"]]).unwrap_err();
    assert!(
        matches!(&error, ServerError::DuplicateName { name, first: 0, second: 1 } if name == "*.a")
    );
    // One certificate may repeat a name, and an exact name may also match a wildcard.
    of(&[&["a", "a"], &["*.b", "x.b"]]).unwrap();
    assert!(matches!(of(&[&[], &["a"], &[]]), Err(ServerError::NoName(2))));
    assert!(matches!(of(&[]), Err(ServerError::NoCertificate)));
}

#[test]
fn unusable_files_are_errors() {
    let error = |certificate, key| read(certificate, key).unwrap_err();
    assert!(matches!(error("none.pem", "site.key"), TlsError::Certificate(_)));
    assert!(matches!(error("site.key", "site.key"), TlsError::Certificate(_)));
    assert!(matches!(error("site.pem", "site.pem"), TlsError::Key(_)));
    assert!(matches!(error("site.pem", "shop.key"), TlsError::Mismatch(_)));
}

#[test]
fn certificate_outside_its_time_is_a_warning() {
    let warnings = |now| {
        let certificate = read_at("shop.pem", "shop.key", year(now)).unwrap();
        certificate.warnings().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(warnings(2100).is_empty());
    assert_eq!(
        warnings(2000),
        ["the certificate is not valid before 2020-01-01T00:00:00Z; check the clock"]
    );
    assert_eq!(warnings(2200), ["the certificate has expired at 2120-01-01T00:00:00Z; renew it"]);
}

#[test]
fn tickets_resume_sessions_in_both_versions() {
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let client = client("localhost", "site.pem", Some(version));
        let server = server(TlsVersion::Tls12, true);
        assert!(!is_resumed(&server, &client));
        assert!(is_resumed(&server, &client));
        // Another server has other keys.
        let without = self::server(TlsVersion::Tls12, true);
        assert!(!is_resumed(&without, &client));
        assert!(is_resumed(&without, &client));
        let mut reloaded = self::server(TlsVersion::Tls12, true);
        reloaded.inherit_tickets(&without);
        assert!(is_resumed(&reloaded, &client));
        assert!(!is_resumed(&reloaded, &client.with_own_sessions()));
    }
}

#[test]
fn clients_need_certificates_of_their_authorities() {
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let server = |authorities: &str| {
            let site = read("site.pem", "site.key").unwrap();
            let authorities = file(authorities);
            let options = ServerOptions {
                min_version: version,
                tickets: true,
                protocols: &[b"http/1.1"],
                client_authorities: Some(&authorities),
                proofs: None,
            };
            TlsServer::new(vec![site], &options).unwrap()
        };
        let client = |identity: Option<(&Path, &Path)>| {
            let trust = Trust::File(file("site.pem"));
            let options = ClientOptions {
                trust: &trust,
                name: "localhost",
                identity,
                version: Some(version),
                resume: true,
                protocols: &[b"http/1.1"],
            };
            TlsClient::new(&options).unwrap()
        };
        let [certificate, key, other, other_key] =
            ["client.pem", "client.key", "next.pem", "next.key"].map(file);
        let first = server("ca.pem");
        let known = client(Some((&certificate, &key)));
        assert!(!is_resumed(&first, &known));
        assert!(is_resumed(&first, &known));
        for refused in [client(None), client(Some((&other, &other_key)))] {
            assert!(connect(&first, &refused).is_err(), "{version:?}");
        }
        // A ticket is no certificate of another authority.
        let mut reloaded = server("ca.pem");
        reloaded.inherit_tickets(&first);
        assert!(is_resumed(&reloaded, &known));
        let mut replaced = server("next.pem");
        replaced.inherit_tickets(&first);
        assert!(connect(&replaced, &known).is_err(), "{version:?}");
        let mut opened = self::server(version, true);
        opened.inherit_tickets(&first);
        assert!(!is_resumed(&opened, &known));
    }
}

#[test]
fn clients_of_tls_13_count_tickets() {
    for (version, has_tickets, is_counted) in [
        (TlsVersion::Tls13, true, true),
        (TlsVersion::Tls13, false, false),
        (TlsVersion::Tls12, true, false),
    ] {
        let client = client("localhost", "site.pem", Some(version));
        let (server, client) = connect(&server(TlsVersion::Tls12, has_tickets), &client).unwrap();
        assert_eq!((server.tickets(), client.tickets() > 0), (0, is_counted), "{version:?}");
    }
}

#[test]
fn server_without_tickets_resumes_nothing() {
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let client = client("localhost", "site.pem", Some(version));
        let with = server(TlsVersion::Tls12, true);
        assert!(!is_resumed(&with, &client));
        let mut without = server(TlsVersion::Tls12, false);
        without.inherit_tickets(&with);
        for _ in 0..2 {
            assert!(!is_resumed(&without, &client));
        }
    }
}

#[test]
fn session_is_not_resumed_under_another_name() {
    let server = server(TlsVersion::Tls12, true);
    let client = client("shop.example", "ca.pem", None);
    assert!(!is_resumed(&server, &client));
    assert!(!is_resumed(&server, &client.for_server("a.shop.example").unwrap()));
    assert!(is_resumed(&server, &client));
}

#[test]
fn minimum_version_refuses_older_clients() {
    let old = client("localhost", "site.pem", Some(TlsVersion::Tls12));
    let server_12 = server(TlsVersion::Tls12, true);
    assert_eq!(connect(&server_12, &old).unwrap().0.facts().unwrap().version, "TLSv1.2");
    assert!(connect(&server(TlsVersion::Tls13, true), &old).is_err());
}

#[test]
fn handshake_with_peer_that_closes_or_speaks_plain_text_fails() {
    for (answer, expected) in [
        (&b""[..], io::ErrorKind::UnexpectedEof),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", io::ErrorKind::InvalidData),
    ] {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        far.write_all(answer).unwrap();
        far.shutdown(Shutdown::Write).unwrap();
        let mut session = client("localhost", "site.pem", None).connect().unwrap();
        let error = session.handshake(&Socket::from(OwnedFd::from(near))).unwrap_err();
        assert_eq!(error.kind(), expected, "{error}");
    }
}

#[test]
fn handshake_that_awaits_the_end_reports_a_late_rejection() {
    let provider = || Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(read_certificates(&file("ca.pem")).unwrap().remove(0)).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    let (chain, key) = read_identity(&file("site.pem"), &file("site.key")).unwrap();
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(chain, key)
        .unwrap();
    let config = Arc::new(config);
    let client = client("localhost", "site.pem", Some(TlsVersion::Tls13));
    for (awaits_end, is_rejected) in [(true, true), (false, false)] {
        let (mut near, far) = UnixStream::pair().unwrap();
        far.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let config = Arc::clone(&config);
        let server = thread::spawn(move || {
            let mut connection = ServerConnection::new(config).unwrap();
            // Fails after it has sent an alert.
            while connection.is_handshaking() && connection.complete_io(&mut near).is_ok() {}
            near
        });
        let result = client.handshake(far, awaits_end);
        assert_eq!(result.is_err(), is_rejected, "{result:?}");
        if let Err(error) = result {
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(error.to_string().contains("CertificateRequired"), "{error}");
        }
        drop(server.join().unwrap());
    }
}

#[test]
fn managed_certificate_is_refused_until_it_is_issued_and_changes_for_new_connections() {
    let place = Arc::new(ManagedCertificate::new(vec!["site.test".to_owned()]));
    let proofs = Arc::new(AlpnProofs::default());
    let options = ServerOptions {
        min_version: TlsVersion::Tls12,
        tickets: true,
        protocols: &[b"http/1.1"],
        client_authorities: None,
        proofs: Some(&proofs),
    };
    let server = TlsServer::new(vec![Certificate::managed(&place, year(2100))], &options).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trusted.pem");
    let client_with = |version, trusted: &SelfSigned, protocols: &[&[u8]]| {
        trusted.write(&path).unwrap();
        let options = ClientOptions {
            trust: &Trust::File(path.clone()),
            name: "site.test",
            identity: None,
            version,
            resume: false,
            protocols,
        };
        TlsClient::new(&options).unwrap()
    };
    let client = |trusted: &SelfSigned, protocols: &[&[u8]]| client_with(None, trusted, protocols);
    let pem = |issued: &SelfSigned| (issued.key.clone() + &issued.certificate).into_bytes();
    let [first, second, proof] = [(); 3].map(|()| SelfSigned::new(&["site.test"]).unwrap());
    let http: &[&[u8]] = &[b"http/1.1"];
    assert_eq!(place.facts(), None);
    connect(&server, &client(&first, http)).unwrap_err();
    for issued in [&first, &second] {
        let facts = place.set(&pem(issued)).unwrap();
        assert_eq!(place.facts().unwrap(), facts);
        assert_eq!(facts.names, ["site.test"]);
        connect(&server, &client(issued, http)).unwrap();
    }
    connect(&server, &client(&first, http)).unwrap_err();
    // Another type of key would be for other clients.
    let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let certificate = CertificateParams::new(["site.test".to_owned()]).unwrap().self_signed(&key);
    let other = key.serialize_pem() + &certificate.unwrap().pem();
    assert!(matches!(place.set(other.as_bytes()), Err(TlsError::KeyType)));
    assert!(matches!(place.set(first.key.as_bytes()), Err(TlsError::Certificate(_))));
    let mixed = first.key.clone() + &second.certificate;
    assert!(matches!(place.set(mixed.as_bytes()), Err(TlsError::Mismatch(_))));
    connect(&server, &client(&second, http)).unwrap();

    // A proof is for those who ask for nothing else.
    let asking: &[&[u8]] = &[AlpnProofs::PROTOCOL];
    let both: &[&[u8]] = &[AlpnProofs::PROTOCOL, b"http/1.1"];
    connect(&server, &client(&second, asking)).unwrap_err();
    proofs.insert("Site.test", &pem(&proof)).unwrap();
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let client = client_with(Some(version), &proof, asking);
        let (session, _) = connect(&server, &client).unwrap();
        assert!(session.is_for_proof());
        // A server that closes before the end of the handshake would fail it.
        let (near, far) = UnixStream::pair().unwrap();
        let [near, far] = [near, far].map(|stream| {
            stream.set_nonblocking(true).unwrap();
            Socket::from(OwnedFd::from(stream))
        });
        let (mut session, mut client) = (server.accept().unwrap(), client.connect().unwrap());
        assert!(!client.handshake(&far).unwrap());
        assert!(!session.handshake(&near).unwrap() && !session.is_for_proof());
    }
    let (session, _) = connect(&server, &client(&second, both)).unwrap();
    assert!(!session.is_for_proof());
    // Another server continues with the proofs, and a proof ends.
    let next = AlpnProofs::default();
    next.inherit(&proofs);
    proofs.clear();
    connect(&server, &client(&proof, asking)).unwrap_err();
    proofs.inherit(&next);
    connect(&server, &client(&proof, asking)).unwrap();
}
