//! Clients over TLS, by the client of rustls. Foreign clients are in `e2e`.
//!
//! `certificates/` has two self-signed certificates for `localhost` (`site` and `next`), those of an authority, and keys.
//! They are valid until 2120.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned,
    SupportedProtocolVersion,
};
use serde_json::Value;
use tempfile::TempDir;
use tollgate_gateway::Config;
use tollgate_gateway::config::{AccessLog, Address, Listener, LogFormat, LogTarget};
use tollgate_tls::TlsServer;

use crate::support::http2::{GET_FIELDS, Http2Peer};
use crate::support::{
    Backend, GET, OK, Peer, TestGateway, ThreadedBackend, any_port, closed_port, config, connect,
};

pub(crate) fn certificate_file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/gateway/certificates").join(name)
}

/// A listener with these keys in its `tls`, which are read in the folder of the certificates.
fn parse(tls: &str) -> Config {
    let text = format!(
        "listeners:\n  - address: 127.0.0.1:0\n    tls:\n      {tls}\n\
         pools: [{{ name: a, backends: [{{ address: \"127.0.0.1:1\" }}] }}]\n"
    );
    Config::parse(&text, &certificate_file("gateway.yaml")).unwrap()
}

/// TLS with the certificates of these names.
fn tls_of(names: &[&str], keys: &str) -> Option<TlsServer> {
    let file = |name: &&str| format!("{{ certificate: {name}.pem, key: {name}.key }}");
    let files: Vec<String> = names.iter().map(file).collect();
    let keys = format!("certificates: [{}]\n      {keys}\n    http2: false", files.join(", "));
    let config = parse(&keys);
    config.listeners[0].tls.clone()
}

/// A listener with the keys `certificates` and `address` alone.
pub(crate) fn default_listener(address: Address) -> Listener {
    let parsed = parse("certificates: [{ certificate: site.pem, key: site.key }]");
    Listener { address, ..parsed.listeners[0].clone() }
}

fn tls(name: &str) -> Option<TlsServer> {
    tls_of(&[name], "")
}

/// A configuration that listens for TLS on this address, and forwards which protocol a client used.
pub(crate) fn tls_config(backend: &Backend, address: Address) -> Config {
    let mut config = config(&[backend.addr()]);
    config.listeners = vec![Listener { tls: tls("site"), ..Listener::new(address) }];
    config.forwarded.x_forwarded = true;
    config
}

pub(crate) type TlsClient = StreamOwned<ClientConnection, TcpStream>;

/// Connects to `localhost`, and trusts only the certificate of this name.
fn tls_client(
    gateway: &TestGateway,
    name: &str,
    version: &'static SupportedProtocolVersion,
) -> TlsClient {
    connect_to(gateway, "localhost", &client_config(name, version))
}

/// Trusts only the certificate of this name, or those that it has issued.
fn client_config(trusted: &str, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    let certificate = certificate_file(&format!("{trusted}.pem"));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let mut config = builder
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// Likewise with the certificate `site`, and presents the certificate of this name, with this key.
fn identified(
    name: &str,
    key: &str,
    version: &'static SupportedProtocolVersion,
) -> Arc<ClientConfig> {
    let chain = CertificateDer::pem_file_iter(certificate_file(&format!("{name}.pem"))).unwrap();
    let key = PrivateKeyDer::from_pem_file(certificate_file(&format!("{key}.key"))).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate_file("site.pem")).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_protocol_versions(&[version]).unwrap();
    let builder = builder.with_root_certificates(roots);
    let chain = chain.map(Result::unwrap).collect();
    Arc::new(builder.with_client_auth_cert(chain, key).unwrap())
}

/// Connects to `localhost`, and offers these protocols by ALPN.
pub(crate) fn connect_offering(gateway: &TestGateway, protocols: &[&[u8]]) -> TlsClient {
    let mut config = client_config("site", &TLS13);
    Arc::make_mut(&mut config).alpn_protocols =
        protocols.iter().map(|name| name.to_vec()).collect();
    connect_to(gateway, "localhost", &config)
}

fn connect_to(gateway: &TestGateway, name: &str, config: &Arc<ClientConfig>) -> TlsClient {
    secure_with(connect(gateway.address()).unwrap(), name, config)
}

/// Begins TLS with `localhost` on a connection.
pub(crate) fn secure(stream: TcpStream) -> TlsClient {
    secure_with(stream, "localhost", &client_config("site", &TLS13))
}

fn secure_with(stream: TcpStream, name: &str, config: &Arc<ClientConfig>) -> TlsClient {
    let name = name.to_owned().try_into().unwrap();
    let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    StreamOwned::new(connection, stream)
}

/// Sends a request that gets a local response, whose head it reads.
fn ask(client: &mut TlsClient) {
    client.write_all(b"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    expect(client, "HTTP/1.1 405 Method Not Allowed\r\n");
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
fn gateway_reports_the_protocols_of_listeners() {
    let backend = Backend::start();
    let mut config = tls_config(&backend, any_port());
    config.listeners.push(Listener::new(Address::Tcp(([127, 0, 0, 2], 0).into())));
    let gateway = TestGateway::start(&config);
    let schemes: Vec<_> = gateway.addresses().iter().map(|at| gateway.scheme(at)).collect();
    assert_eq!(schemes, ["https", "http"]);
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

/// A gateway on a port that a reload can keep.
fn tls_gateway(tls: Option<TlsServer>) -> (TestGateway, Config) {
    let mut config = config(&[closed_port()]);
    config.listeners = vec![Listener { tls, ..Listener::new(Address::Tcp(closed_port())) }];
    (TestGateway::start(&config), config)
}

/// Name of a sample of `tls_handshakes_total`.
fn handshakes(gateway: &TestGateway, result: &str) -> u64 {
    let listener = gateway.addr();
    gateway.metric(&format!("tls_handshakes_total{{listener=\"{listener}\",result=\"{result}\"}}"))
}

#[test]
fn name_of_the_client_selects_the_certificate() {
    let (gateway, _) = tls_gateway(tls_of(&["site", "shop"], ""));
    for (name, trusted) in
        [("localhost", "site"), ("shop.example", "ca"), ("www.shop.example", "ca")]
    {
        let mut client = connect_to(&gateway, name, &client_config(trusted, &TLS13));
        ask(&mut client);
    }
    // An unknown name and an address, which is not sent, get the first certificate.
    for name in ["www.example", "127.0.0.1"] {
        let mut client = connect_to(&gateway, name, &client_config("site", &TLS13));
        let error = client.conn.complete_io(&mut client.sock).unwrap_err();
        assert!(error.to_string().contains("not valid for name"), "{error}");
    }
}

#[test]
fn session_tickets_survive_a_reload_and_are_shared_by_threads() {
    for version in [&TLS12, &TLS13] {
        let (gateway, mut config) = tls_gateway(tls("site"));
        let of_client = client_config("site", version);
        let ask_new = || ask(&mut connect_to(&gateway, "localhost", &of_client));
        ask_new();
        ask_new();
        // The certificate is read again and has a new key.
        config.listeners[0].tls = tls("next");
        gateway.reload(config.clone());
        ask_new();
        assert_eq!((handshakes(&gateway, "full"), handshakes(&gateway, "resumed")), (1, 2));
        config.listeners[0].tls = tls_of(&["site"], "tickets: false");
        gateway.reload(config);
        gateway.turn();
        ask_new();
        ask_new();
        assert_eq!((handshakes(&gateway, "full"), handshakes(&gateway, "resumed")), (3, 2));
    }
    // With two threads, any of them resumes.
    let mut config = config(&[closed_port()]);
    config.threads = 2.try_into().unwrap();
    let address = Address::Tcp(closed_port());
    config.listeners = vec![Listener { tls: tls("site"), ..Listener::new(address) }];
    let gateway = TestGateway::start(&config);
    let of_client = client_config("site", &TLS13);
    for _ in 0..20 {
        ask(&mut connect_to(&gateway, "localhost", &of_client));
    }
    assert_eq!((handshakes(&gateway, "full"), handshakes(&gateway, "resumed")), (1, 19));
}

#[test]
fn minimum_version_refuses_older_clients_and_failures_are_counted() {
    let (gateway, _) = tls_gateway(tls_of(&["site"], "min_version: \"1.3\""));
    ask(&mut tls_client(&gateway, "site", &TLS13));
    let mut old = tls_client(&gateway, "site", &TLS12);
    assert!(old.conn.complete_io(&mut old.sock).is_err());
    // A client that leaves within its handshake, and one that speaks no TLS; but not one that sends nothing.
    let mut client = gateway.client();
    client.send([22, 3, 1]);
    client.finish();
    client.expect_closed();
    let mut plain = gateway.client();
    plain.send(GET);
    plain.expect_local_response(400);
    plain.finish();
    plain.expect_closed();
    gateway.turn();
    gateway.expect_metric("client_connections", 0);
    let counts = ["full", "resumed", "failed"].map(|result| handshakes(&gateway, result));
    assert_eq!(counts, [1, 0, 3]);
}

#[test]
fn access_log_in_json_has_version_cipher_and_name() {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("access.log");
    let (gateway, mut config) = tls_gateway(tls("site"));
    let to = LogTarget::File(log.clone());
    config.access_log = Some(AccessLog { to, format: LogFormat::Json });
    gateway.reload(config);
    gateway.turn();
    ask(&mut tls_client(&gateway, "site", &TLS12));
    ask(&mut tls_client(&gateway, "site", &TLS13));
    // Lines are written after the responses are sent.
    gateway.turn();
    let text = fs::read_to_string(&log).unwrap();
    let entries: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (entry, version, cipher) in [
        (&entries[0], "TLSv1.2", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
        (&entries[1], "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
    ] {
        assert_eq!(entry["tls"], version);
        assert_eq!(entry["cipher"], cipher);
        assert_eq!(entry["sni"], "localhost");
    }
}

#[test]
fn clients_need_a_certificate_of_the_authority() {
    for version in [&TLS12, &TLS13] {
        let backend = Backend::start();
        let mut config = tls_config(&backend, any_port());
        config.listeners[0].tls = tls_of(&["site"], "client_ca: ca.pem");
        let gateway = TestGateway::start(&config);
        let mut known = connect_to(&gateway, "localhost", &identified("client", "client", version));
        ask(&mut known);
        for refused in [client_config("site", version), identified("next", "next", version)] {
            let mut client = connect_to(&gateway, "localhost", &refused);
            // Over TLS 1.3 the client learns of it after its handshake.
            let sent = client.write_all(b"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n");
            let mut received = [0; 1];
            assert!(sent.and_then(|()| client.read_exact(&mut received)).is_err());
        }
        backend.expect_no_connection(&gateway);
        gateway.expect_metric("bugs_total", 0);
    }
}

#[test]
fn request_headers_have_the_certificate_of_the_client() {
    let backend = ThreadedBackend::start(|mut peer| {
        while let Ok(head) = peer.head() {
            let names = ["Client-Cert", "X-Subject", "X-Fingerprint"];
            let is_identity =
                |line: &&str| names.iter().any(|name| line.starts_with(&format!("{name}: ")));
            let found: Vec<&str> = head.lines().filter(is_identity).collect();
            let body = found.join("\n");
            let length = body.len();
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: {length}\r\n\r\n{body}"
            ));
        }
    });
    let text = format!(
        "listeners:\n  - address: 127.0.0.1:0\n    tls: {{ client_ca: ca.pem, certificates: [\
         {{ certificate: site.pem, key: site.key }}] }}\n  - address: 127.0.0.1:0\n\
         forwarded: {{ via: null }}\npools: [{{ name: a, backends: [{{ address: \"{}\" }}] }}]\n\
         routes:\n  - path: /\n    pool: a\n    request_headers:\n      set:\n\
         \x20       Client-Cert: \"${{client_certificate}}\"\n        X-Subject: \"${{client_subject}}\"\n\
         \x20       X-Fingerprint: \"${{client_fingerprint}}\"\n",
        backend.addr()
    );
    let config = Config::parse(&text, &certificate_file("g.yaml")).unwrap();
    let gateway = TestGateway::start(&config);
    // Without a certificate they are empty.
    let plain = gateway.addresses()[1].clone();
    let mut client = Peer::connect(&plain);
    client.send("GET / HTTP/1.1\r\nHost: x\r\nX-Subject: CN=admin\r\n\r\n");
    let empty = "Client-Cert: \nX-Fingerprint: \nX-Subject: ";
    assert_eq!(client.response().unwrap().text(), empty);
    // As `openssl x509 -fingerprint -sha256` prints it.
    let clients = [
        ("client", "d163a686b64991afa4dddd61dfe9efa9db0d93b07100c5cbd11531d21dbe6caf"),
        ("other", "fdba323f537c2b2739f0c19e02ea851329d60e85c92b6688a0fb11fc50c13c60"),
    ];
    for (version, (name, fingerprint)) in
        [&TLS12, &TLS13].into_iter().flat_map(|version| clients.map(|client| (version, client)))
    {
        let file = certificate_file(&format!("{name}.pem"));
        let encoded = STANDARD.encode(CertificateDer::from_pem_file(file).unwrap());
        let body =
            format!("Client-Cert: :{encoded}:\nX-Fingerprint: {fingerprint}\nX-Subject: CN={name}");
        let mut config = identified(name, "client", version);
        for handshake in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let mut client = connect_to(&gateway, "localhost", &config);
            for spoofed in ["", "X-Subject: CN=admin\r\nClient-Cert: :AA==:\r\n"] {
                write!(client, "GET / HTTP/1.1\r\nHost: x\r\n{spoofed}\r\n").unwrap();
                let length = body.len();
                let head =
                    format!("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: {length}\r\n\r\n");
                expect(&mut client, &head);
                expect(&mut client, &body);
                assert_eq!(client.conn.handshake_kind(), Some(handshake));
            }
        }
        Arc::make_mut(&mut config).alpn_protocols = vec![b"h2".to_vec()];
        let mut client = Http2Peer::over(connect_to(&gateway, "localhost", &config), &[]);
        client.request(1, true, GET_FIELDS);
        assert_eq!(client.response(1).text(), ("200", &*body));
    }
}

#[test]
fn unusable_certificates_are_errors_with_their_line() {
    let error = |tls: &str| {
        let text = format!(
            "listeners:\n  - address: 127.0.0.1:0\n    tls:\n      certificates:\n{tls}\
             pools: [{{ name: a, backends: [{{ address: \"127.0.0.1:1\" }}] }}]\n"
        );
        let error = Config::parse(&text, &certificate_file("g.yaml")).unwrap_err();
        error.to_string().rsplit_once("g.yaml:").unwrap().1.to_owned()
    };
    let one = |certificate: &str, key: &str, more: &str| {
        error(&format!("        - {{ certificate: {certificate}, key: {key}{more} }}\n"))
    };
    let no_certificate = "cannot read the certificate; expected a PEM file with the certificate, followed by its chain";
    assert_eq!(one("none.pem", "site.key", ""), format!("5:26: `none.pem`: {no_certificate}"));
    assert_eq!(one("site.key", "site.key", ""), format!("5:26: `site.key`: {no_certificate}"));
    assert_eq!(
        one("site.pem", "site.pem", ""),
        "5:41: `site.pem`: cannot read the key; expected a PEM file with a private key without passphrase"
    );
    assert_eq!(
        one("site.pem", "next.key", ""),
        "5:41: `next.key`: the key does not belong to the certificate; name the key that it was issued for"
    );
    assert_eq!(
        one("shop.pem", "shop.key", ", ocsp: shop.ocsp"),
        "5:51: `ocsp` is gone: stapling has been removed, as authorities end OCSP; remove the key"
    );
    let two = |first: &str, second: &str| {
        let entry = |name: &str, key: &str| {
            format!("        - {{ certificate: {name}.pem, key: {key}.key }}\n")
        };
        error(
            &[entry(first, first), entry(second, if second == "next" { "next" } else { "shop" })]
                .concat(),
        )
    };
    assert_eq!(
        two("site", "next"),
        "6:26: the certificate has the name `localhost`, as that in line 5, and a key of the same type; remove one of them"
    );
    assert_eq!(
        two("site", "unnamed"),
        "6:26: no client would get this certificate, since it has no DNS name; only the first one may be without"
    );
    let with = "        - { certificate: site.pem, key: site.key }\n      client_ca: site.key\n";
    assert_eq!(
        error(with),
        "6:18: `site.key`: cannot read the certificates of the authorities of clients; expected a PEM file"
    );
    assert_eq!(
        error("        []\n"),
        "5:9: `certificates` is empty; add a certificate and its key"
    );
}

#[test]
fn certificates_by_acme_that_could_not_be_issued_are_refused() {
    let error = |listeners: &str, acme: &str| {
        let text = format!(
            "listeners:\n{listeners}{acme}pools: [{{ name: a, backends: [{{ address: \"127.0.0.1:1\" }}] }}]\n"
        );
        let error = Config::parse(&text, &certificate_file("g.yaml")).unwrap_err().to_string();
        error.split_once("g.yaml:").unwrap().1.to_owned()
    };
    let listener = |certificates: &str| {
        format!("  - {{ address: 127.0.0.1:0, tls: {{ certificates: [{certificates}] }} }}\n")
    };
    let one = listener("{ acme: [a.test] }");
    let acme = |keys: &str| format!("acme: {{ agree_to_terms: true, state: absent{keys} }}\n");
    for (listeners, acme, expected) in [
        (
            &one,
            String::new(),
            "2:59: `acme` needs an authority, which `tollgate gateway` has in a top-level `acme: { agree_to_terms: true, state: FOLDER }`; add it, or write `certificate` and `key`",
        ),
        (
            &one,
            "acme: { agree_to_terms: false, state: a }\n".to_owned(),
            "3:25: certificates are issued only to those who agree to the authority's terms of service: write `true`, or remove `acme`",
        ),
        (
            &one,
            "acme: { agree_to_terms: true, state: '' }\n".to_owned(),
            "3:38: `state` is empty; name a folder",
        ),
        (
            &one,
            acme(", directory: 'http://a.test/dir'"),
            "3:57: `http://a.test/dir` is not a URL with https and a host",
        ),
        (
            &one,
            acme(", contact: 'mailto:a@a.test'"),
            "3:55: `mailto:a@a.test` is not an address such as admin@example.org",
        ),
        (
            &one,
            acme(", ca: site.key"),
            "3:50: `site.key`: cannot read the certificates of authorities; expected a PEM file",
        ),
        (
            &one,
            acme(", external_account: { id: a, key: site.pem }"),
            "3:78: `site.pem`: expected a key in base64url",
        ),
        (
            &one,
            acme(", challenge: http-01"),
            "3:57: the authority asks over plain HTTP, on port 80, and no listener is without `tls`; add one",
        ),
        (
            &one.replace("a.test] }]", "a.test] }], client_ca: ca.pem"),
            acme(""),
            "2:59: the authority has no certificate for `client_ca`, so that it cannot check these names; set `challenge: http-01` in `acme`",
        ),
        (
            &listener("{ acme: [\"*.a.test\"] }"),
            acme(""),
            "2:60: a wildcard can only be proved in the DNS, which this gateway does not change; list the names, or order the certificate by another program",
        ),
        (&listener("{ acme: [192.0.2.1] }"), acme(""), "2:60: `192.0.2.1` is not a DNS name"),
        (&listener("{ acme: [] }"), acme(""), "2:59: expected 1 to 100 names, not 0"),
        (
            &listener("{ acme: [a.test, A.test] }"),
            acme(""),
            "2:68: duplicate name `a.test`; remove one",
        ),
        (
            &(listener("{ acme: [a.test, b.test] }") + &listener("{ acme: [c.test, b.test] }")),
            acme(""),
            "3:68: another certificate has the name `b.test`, too; a name is in one certificate, which listeners may share by the same list",
        ),
        (
            &listener("{ certificate: site.pem, acme: [a.test] }"),
            acme(""),
            "2:51: a certificate has either `certificate` and `key`, or `acme` with its names",
        ),
        (
            &listener("{ certificate: site.pem }"),
            String::new(),
            "2:51: a certificate has either `certificate` and `key`, or `acme` with its names",
        ),
    ] {
        assert_eq!(error(listeners, &acme), expected, "{listeners}{acme}");
    }
}

#[test]
fn all_unusable_certificates_are_reported_and_expired_ones_are_warnings() {
    let file = |name: &str, key: &str| format!("{{ certificate: {name}.pem, key: {key}.key }}");
    let text = |files: &[String]| {
        format!(
            "listeners: [{{ address: 127.0.0.1:0, tls: {{ certificates: [\n{}] }} }}]\n\
             pools: [{{ name: a, backends: [{{ address: \"127.0.0.1:1\" }}] }}]\n",
            files.join(",\n")
        )
    };
    let parse = |files: &[String]| Config::parse(&text(files), &certificate_file("g.yaml"));
    let error = parse(&[file("site", "next"), file("none", "site")]).unwrap_err().to_string();
    let lines: Vec<&str> =
        error.lines().map(|line| line.split_once("g.yaml:").unwrap().1).collect();
    assert!(lines[0].starts_with("2:") && lines[1].starts_with("3:"), "{error}");

    let config = parse(&[file("site", "site"), file("expired", "shop")]).unwrap();
    let warnings: Vec<&str> =
        config.warnings.iter().map(|warning| warning.split_once("g.yaml:").unwrap().1).collect();
    let expected = "3:16: the certificate has expired at 2021-01-01T00:00:00Z; renew it";
    assert_eq!(warnings, [expected]);
}
