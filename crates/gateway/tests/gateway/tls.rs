//! Clients over TLS, by the client of rustls. Foreign clients are in `e2e`.
//!
//! `certificates/` has self-signed certificates for `localhost` and their keys. They are valid until 2120.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};
use tempfile::TempDir;
use tollgate_gateway::Config;
use tollgate_gateway::TlsIdentity;
use tollgate_gateway::config::{AccessLog, Address, Listener, LogFormat, LogTarget};

use crate::support::{Backend, GET, OK, TestGateway, any_port, closed_port, config, connect};

pub(crate) fn certificate_file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/gateway/certificates").join(name)
}

fn tls(name: &str) -> Option<TlsIdentity> {
    let file = |end: &str| certificate_file(&format!("{name}.{end}"));
    Some(TlsIdentity::read(&file("pem"), &file("key")).unwrap())
}

/// A configuration that listens for TLS on this address, and forwards which protocol a client used.
pub(crate) fn tls_config(backend: &Backend, address: Address) -> Config {
    let mut config = config(&[backend.addr()]);
    config.listeners = vec![Listener { tls: tls("site"), ..Listener::new(address) }];
    config.forwarded.x_forwarded = true;
    config
}

type TlsClient = StreamOwned<ClientConnection, TcpStream>;

/// Connects to `localhost`, and trusts only the certificate of this name.
fn tls_client(
    gateway: &TestGateway,
    name: &str,
    version: &'static SupportedProtocolVersion,
) -> TlsClient {
    let certificate = certificate_file(&format!("{name}.pem"));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let mut config = builder
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap());
    StreamOwned::new(connection.unwrap(), connect(gateway.address()).unwrap())
}

#[track_caller]
fn expect(client: &mut TlsClient, expected: &str) {
    let mut received = vec![0; expected.len()];
    client.read_exact(&mut received).unwrap();
    assert_eq!(String::from_utf8_lossy(&received), expected);
}

/// More than socket buffers hold, without repetitions of the size of a TLS record.
pub(crate) fn long_body() -> Vec<u8> {
    (0..16_000_000_u32).map(|at| (at % 251) as u8).collect()
}

/// Responds to one request with its body. Returns its header section.
pub(crate) fn echo_body_once(backend: &Backend, length: usize) -> String {
    let mut upstream = backend.accept();
    let head = upstream.head().unwrap();
    let body = upstream.read(length);
    upstream.send(format!("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: {length}\r\n\r\n"));
    upstream.send(body);
    head
}

#[test]
fn plain_http_on_a_tls_port_gets_400_in_plain() {
    let backend = Backend::start();
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("access.log");
    let mut config = tls_config(&backend, any_port());
    let to = LogTarget::File(log.clone());
    config.access_log = Some(AccessLog { to, format: LogFormat::Combined });
    let gateway = TestGateway::start(&config);
    // Whole, and in pieces of which the first is shorter than the header of a record.
    for pieces in [&[GET][..], &["GET", " /a HTTP/1.1\r\n\r\n"]] {
        let mut client = gateway.client();
        for piece in pieces {
            client.send(piece);
            // The client is not finished yet.
            gateway.expect_metric("client_connections", 1);
        }
        let response = client.expect_local_response(400);
        assert!(response.text().contains("plain HTTP"), "{response:?}");
        client.finish();
        client.expect_closed();
        gateway.expect_metric("client_connections", 0);
    }
    // Others still get an alert.
    let mut client = gateway.client();
    client.send([0, 1, 2, 3, 4, 5]);
    client.finish();
    assert_eq!(client.read_to_close().first(), Some(&21));
    backend.expect_no_connection(&gateway);
    let text = fs::read_to_string(&log).unwrap();
    assert_eq!(text.matches("\"plain-on-tls-port\"\n").count(), 2, "{text}");
}

#[test]
fn long_bodies_pass_in_both_directions_and_versions() {
    let body = long_body();
    // The end of the connection must not cut off buffered bytes.
    for (version, connection) in [(&TLS12, "keep-alive"), (&TLS13, "close")] {
        let backend = Backend::start();
        let gateway = TestGateway::start(&tls_config(&backend, any_port()));
        let mut client = tls_client(&gateway, "site", version);
        let length = body.len();
        let received = thread::scope(|scope| {
            let head = scope.spawn(|| echo_body_once(&backend, length));
            write!(
                client,
                "POST /a HTTP/1.1\r\nHost: x\r\nConnection: {connection}\r\nContent-Length: {length}\r\n\r\n"
            )
            .unwrap();
            client.write_all(&body).unwrap();
            expect(&mut client, "HTTP/1.1 200 OK\r\n");
            let mut received = Vec::new();
            if connection == "close" {
                client.read_to_end(&mut received).unwrap();
            } else {
                let head_bytes = format!("Date: d\r\nContent-Length: {length}\r\n\r\n").len();
                received.resize(head_bytes + length, 0);
                client.read_exact(&mut received).unwrap();
            }
            let head = head.join().unwrap();
            assert!(head.contains("\r\nX-Forwarded-Proto: https\r\n"), "{head}");
            received
        });
        assert!(received.ends_with(&body), "{} bytes are not the body", received.len());
    }
}

#[test]
fn gateway_reports_which_listeners_use_tls() {
    let backend = Backend::start();
    let mut config = tls_config(&backend, any_port());
    config.listeners.push(Listener::new(Address::Tcp(([127, 0, 0, 2], 0).into())));
    let gateway = TestGateway::start(&config);
    let uses_tls: Vec<bool> = gateway.addresses().iter().map(|at| gateway.is_tls(at)).collect();
    assert_eq!(uses_tls, [true, false]);
}

#[test]
fn reload_replaces_the_certificate_for_new_connections() {
    let backend = Backend::start();
    // A listener with the same address stays open.
    let mut config = tls_config(&backend, Address::Tcp(closed_port()));
    let gateway = TestGateway::start(&config);
    let mut old = tls_client(&gateway, "site", &TLS13);
    old.write_all(GET.as_bytes()).unwrap();
    let mut upstream = backend.accept();
    upstream.head().unwrap();
    upstream.send(OK);
    expect(&mut old, OK);
    config.listeners[0].tls = tls("next");
    gateway.reload(config);
    let mut new = tls_client(&gateway, "next", &TLS13);
    // The reload has closed the idle connection.
    upstream.expect_closed();
    new.write_all(GET.as_bytes()).unwrap();
    let mut upstream = backend.accept();
    upstream.head().unwrap();
    upstream.send(OK);
    expect(&mut new, OK);
    old.write_all(GET.as_bytes()).unwrap();
    upstream.head().unwrap();
    upstream.send(OK);
    expect(&mut old, OK);
}

#[test]
fn tls_connection_keeps_its_protocol_when_its_listener_becomes_plain() {
    let backend = Backend::start();
    let mut config = tls_config(&backend, Address::Tcp(closed_port()));
    let gateway = TestGateway::start(&config);
    let mut client = tls_client(&gateway, "site", &TLS13);
    client.write_all(GET.as_bytes()).unwrap();
    let mut upstream = backend.accept();
    assert!(upstream.head().unwrap().contains("\r\nX-Forwarded-Proto: https\r\n"));
    upstream.send(OK);
    expect(&mut client, OK);

    config.listeners[0].tls = None;
    gateway.reload(config);
    // The reload closes idle connections to backends.
    upstream.expect_closed();
    let mut plain = gateway.client();
    plain.send(GET);
    let mut upstream = backend.accept();
    assert!(upstream.head().unwrap().contains("\r\nX-Forwarded-Proto: http\r\n"));
    upstream.send(OK);
    plain.expect(OK);
    client.write_all(GET.as_bytes()).unwrap();
    assert!(upstream.head().unwrap().contains("\r\nX-Forwarded-Proto: https\r\n"));
    upstream.send(OK);
    expect(&mut client, OK);
}

#[test]
fn unusable_certificate_files_are_errors_with_their_line() {
    let folder = TempDir::new().unwrap();
    for name in ["site.pem", "site.key", "next.key"] {
        fs::copy(certificate_file(name), folder.path().join(name)).unwrap();
    }
    fs::write(folder.path().join("empty.pem"), "").unwrap();
    let error = |certificate: &str, key: &str| {
        let text = format!(
            "listeners:\n  - address: 127.0.0.1:0\n    tls:\n      certificate: {certificate}\n      \
             key: {key}\npools: [{{ name: a, backends: [{{ address: 127.0.0.1:1 }}] }}]\n"
        );
        let error = Config::parse(&text, &folder.path().join("g.yaml")).unwrap_err();
        assert!(std::error::Error::source(&error).is_some());
        let text = error.to_string();
        text.strip_prefix(&format!("{}/", folder.path().display())).unwrap().to_owned()
    };
    let no_certificate = "cannot read the certificate; expected a PEM file with the certificate, followed by its chain";
    assert_eq!(error("none.pem", "site.key"), format!("g.yaml:4:20: {no_certificate}"));
    assert_eq!(error("empty.pem", "site.key"), format!("g.yaml:4:20: {no_certificate}"));
    assert_eq!(
        error("site.pem", "empty.pem"),
        "g.yaml:5:12: cannot read the key; expected a PEM file with a private key without passphrase"
    );
    assert_eq!(
        error("site.pem", "next.key"),
        "g.yaml:5:12: cannot use the certificate with this key; check that they belong together and have a \
         supported type"
    );
}
