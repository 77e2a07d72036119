//! TLS to backends, by the server of rustls. Foreign servers are in `e2e`.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;
use tempfile::TempDir;
use tollgate_gateway::Config;
use tollgate_gateway::config::{AccessLog, LogFormat, LogTarget};

use crate::support::{Backend, DEADLINE, GET, OK, TestGateway, ThreadedBackend, closed_port, poll};
use crate::tls::{certificate_file, long_body};

/// Server of a backend with the certificate of this name. Asks for a certificate of the client if `asks`.
pub(crate) fn server(name: &str, asks: bool) -> Arc<ServerConfig> {
    let pem = |file: &str| certificate_file(file);
    let chain = vec![CertificateDer::from_pem_file(pem(&format!("{name}.pem"))).unwrap()];
    let key = PrivateKeyDer::from_pem_file(pem(&format!("{name}.key"))).unwrap();
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = if asks {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(pem("ca.pem")).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.ticketer = ring::Ticketer::new().unwrap();
    Arc::new(config)
}

/// One end of a connection from the gateway.
struct TlsPeer(StreamOwned<ServerConnection, TcpStream>);

impl TlsPeer {
    fn new(stream: TcpStream, config: &Arc<ServerConfig>) -> Self {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        Self(StreamOwned::new(ServerConnection::new(Arc::clone(config)).unwrap(), stream))
    }

    fn accept(backend: &Backend, config: &Arc<ServerConfig>) -> Self {
        Self::new(backend.accept().into_stream(), config)
    }

    fn head(&mut self) -> io::Result<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        Ok(String::from_utf8(head).unwrap())
    }

    #[track_caller]
    fn expect(&mut self, expected: &str) {
        let mut received = vec![0; expected.len()];
        self.0.read_exact(&mut received).unwrap();
        assert_eq!(String::from_utf8_lossy(&received), expected);
    }

    #[track_caller]
    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }
}

/// Serves [`OK`] over TLS.
fn serving(config: Arc<ServerConfig>) -> ThreadedBackend {
    ThreadedBackend::start(move |peer| {
        let mut peer = TlsPeer::new(peer.into_stream(), &config);
        while peer.head().is_ok() && peer.0.write_all(OK.as_bytes()).is_ok() {}
    })
}

/// A configuration with these keys of a pool, which are read in the folder of the certificates, and an access log.
fn config(backends: &[SocketAddr], pool: &str, log: &Path) -> Config {
    let backends: Vec<String> =
        backends.iter().map(|address| format!("{{ address: \"{address}\" }}")).collect();
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]\npools:\n  - name: a\n    backends: [{}]\n    {pool}\n\
         admin: 127.0.0.1:0\nforwarded: {{ via: null, x_forwarded: false }}\n",
        backends.join(", ")
    );
    let mut config = Config::parse(&text, &certificate_file("gateway.yaml")).unwrap();
    config.timeouts.abandoned = DEADLINE;
    let to = LogTarget::File(log.to_owned());
    config.access_log = Some(AccessLog { to, format: LogFormat::Json });
    config
}

/// A gateway with one backend, and its access log in a folder.
fn gateway(backend: SocketAddr, pool: &str) -> (TestGateway, TempDir) {
    let folder = TempDir::new().unwrap();
    let config = config(&[backend], pool, &folder.path().join("log"));
    (TestGateway::start(&config), folder)
}

/// The reason of the only response in the access log, which is written after it is sent.
fn logged_reason(folder: &TempDir) -> Value {
    poll(|| {
        let text = fs::read_to_string(folder.path().join("log")).unwrap();
        let line = text.lines().next().ok_or("no line in the access log")?;
        Ok(serde_json::from_str::<Value>(line).unwrap()["reason"].clone())
    })
}

/// Name of a sample of `backend_tls_handshakes_total`.
fn handshakes(backend: SocketAddr, result: &str) -> String {
    format!("backend_tls_handshakes_total{{pool=\"a\",backend=\"{backend}\",result=\"{result}\"}}")
}

#[test]
fn requests_share_a_verified_connection() {
    // The name in the configuration, and the name that the backend is sent: no IP address.
    for (keys, sent) in [
        ("tls: { ca: ca.pem }", None),
        ("tls: { ca: ca.pem, server_name: backend.example }", Some("backend.example")),
        ("tls: { verify: false, server_name: any.example }", Some("any.example")),
    ] {
        let (backend, server) = (Backend::start(), server("backend", false));
        let (gateway, _folder) = gateway(backend.addr(), keys);
        let mut client = gateway.client();
        client.send(GET);
        let mut upstream = TlsPeer::accept(&backend, &server);
        upstream.expect(GET);
        assert_eq!(upstream.0.conn.server_name(), sent);
        assert_eq!(upstream.0.conn.alpn_protocol(), None);
        upstream.send(OK);
        client.expect(OK);
        // Messages of TLS on an idle connection do not end it.
        upstream.0.conn.refresh_traffic_keys().unwrap();
        upstream.0.flush().unwrap();
        gateway.turn();
        client.send(GET);
        upstream.expect(GET);
        upstream.send(OK);
        client.expect(OK);
        assert_eq!(gateway.metric(&handshakes(backend.addr(), "full")), 1);
        // The end of the session ends the connection.
        upstream.0.conn.send_close_notify();
        upstream.0.flush().unwrap();
        let closed = "backend_connections{pool=\"a\",backend=\"".to_owned();
        gateway.expect_metric(&format!("{closed}{}\"}}", backend.addr()), 0);
    }
}

#[test]
fn new_connections_resume_the_session() {
    let server = server("backend", false);
    let backend = Backend::start();
    let (gateway, _folder) = gateway(backend.addr(), "tls: { ca: ca.pem }\n    keepalive_max: 0");
    for resumed in 0..3 {
        let mut client = gateway.client();
        client.send(GET);
        let mut upstream = TlsPeer::accept(&backend, &server);
        upstream.expect(GET);
        upstream.send(OK);
        client.expect(OK);
        assert_eq!(gateway.metric(&handshakes(backend.addr(), "full")), 1);
        assert_eq!(gateway.metric(&handshakes(backend.addr(), "resumed")), resumed);
    }
}

#[test]
fn backend_with_bad_certificate_gets_no_request() {
    // Signed by another authority, for another name, and expired.
    for (name, keys) in [
        ("site", "tls: { ca: ca.pem, server_name: localhost }"),
        ("backend", "tls: { ca: ca.pem, server_name: other.example }"),
        ("shop", "tls: { ca: ca.pem }"),
        ("backend", "tls: { ca: site.pem }"),
        ("backend", "tls: {}"),
    ] {
        let backend = serving(server(name, false));
        let (gateway, folder) = gateway(backend.addr(), keys);
        let mut client = gateway.client();
        client.send(GET);
        client.expect_local_response(502);
        assert_eq!(logged_reason(&folder), "tls-certificate", "{name} {keys}");
        assert_eq!(gateway.metric(&handshakes(backend.addr(), "failed")), 1);
        let failures = format!("{{pool=\"a\",backend=\"{}\"}}", backend.addr());
        assert_eq!(gateway.metric(&format!("backend_failures_total{failures}")), 1);
    }
}

#[test]
fn peer_that_does_not_speak_tls_is_a_failed_handshake() {
    let closing = ThreadedBackend::start(|mut peer| {
        // It closes after the hello, whose length is in its header.
        let header = peer.read(5);
        peer.read(usize::from(u16::from_be_bytes([header[3], header[4]])));
    });
    let speaking = ThreadedBackend::start(|mut peer| {
        peer.read(5);
        peer.try_send("HTTP/1.1 400 Bad Request\r\n\r\n").ok();
    });
    for backend in [&closing, &speaking] {
        let (gateway, folder) = gateway(backend.addr(), "tls: { ca: ca.pem }");
        let mut client = gateway.client();
        client.send(GET);
        client.expect_local_response(502);
        assert_eq!(logged_reason(&folder), "tls-handshake");
        assert_eq!(gateway.metric(&handshakes(backend.addr(), "failed")), 1);
    }
    // A failed connection is not a failed handshake.
    let refusing = closed_port();
    let (gateway, folder) = gateway(refusing, "tls: { ca: ca.pem }");
    let mut client = gateway.client();
    client.send(GET);
    client.expect_local_response(502);
    assert_eq!(logged_reason(&folder), "connect-failed");
    assert_eq!(gateway.metric(&handshakes(refusing, "failed")), 0);
}

#[test]
fn handshake_has_the_timeout_of_connecting() {
    let backend = Backend::start();
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("log");
    let mut config = config(&[backend.addr()], "tls: { ca: ca.pem }", &log);
    config.timeouts.connect = Duration::from_millis(300);
    config.timeouts.response = DEADLINE;
    let gateway = TestGateway::start(&config);
    let mut client = gateway.client();
    client.send(GET);
    // It accepts and never answers.
    let upstream = backend.accept();
    client.expect_local_response(504);
    assert_eq!(logged_reason(&folder), "connect-timeout");
    drop(upstream);
}

#[test]
fn request_is_retried_after_a_failed_handshake() {
    let (bad, good) = (serving(server("shop", false)), serving(server("backend", false)));
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("log");
    let config = config(&[bad.addr(), good.addr()], "tls: { ca: ca.pem }", &log);
    let gateway = TestGateway::start(&config);
    for _ in 0..4 {
        let mut client = gateway.client();
        // A request that may not be repeated, since none of it was sent.
        client.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
        client.expect(OK);
    }
    assert!(gateway.metric(&handshakes(bad.addr(), "failed")) > 0);
    assert_eq!(
        gateway.metric("retries_total{pool=\"a\"}"),
        gateway.metric(&handshakes(bad.addr(), "failed"))
    );
}

#[test]
fn backend_gets_the_certificate_of_the_gateway() {
    let backend = serving(server("backend", true));
    let with = "tls: { ca: ca.pem, certificate: client.pem, key: client.key }";
    let (with, _folder) = gateway(backend.addr(), with);
    let mut client = with.client();
    client.send(GET);
    client.expect(OK);
    let (without, folder) = gateway(backend.addr(), "tls: { ca: ca.pem }");
    let mut client = without.client();
    client.send(GET);
    client.expect_local_response(502);
    // In TLS 1.3 the client learns of it after its handshake.
    let reason = logged_reason(&folder);
    assert!(reason == "backend-closed" || reason == "tls-handshake", "{reason}");
}

#[test]
fn health_checks_use_tls() {
    let backend = serving(server("backend", false));
    let health = "health: { path: /up, interval: 50ms, rise: 1, fall: 1 }";
    for (keys, is_up) in [("ca: ca.pem", true), ("ca: site.pem", false)] {
        let (gateway, _folder) =
            gateway(backend.addr(), &format!("tls: {{ {keys} }}\n    {health}"));
        let up = format!("backend_up{{pool=\"a\",backend=\"{}\"}}", backend.addr());
        if is_up {
            let checked = backend.connections() + 3;
            poll(|| {
                let count = backend.connections();
                if count >= checked { Ok(()) } else { Err(format!("{count} checks")) }
            });
        }
        gateway.expect_metric(&up, u64::from(is_up));
    }
}

#[test]
fn response_that_ends_with_the_connection_needs_the_end_of_the_session() {
    let response = "HTTP/1.1 200 OK\r\nDate: d\r\nConnection: close\r\n\r\nbody";
    for is_complete in [true, false] {
        let (backend, server) = (Backend::start(), server("backend", false));
        let (gateway, _folder) = gateway(backend.addr(), "tls: { ca: ca.pem }");
        let mut client = gateway.client();
        client.send(GET);
        let mut upstream = TlsPeer::accept(&backend, &server);
        upstream.expect(GET);
        upstream.send(response);
        client.expect(response);
        if is_complete {
            upstream.0.conn.send_close_notify();
            upstream.0.flush().unwrap();
            client.expect_to_end("");
        } else {
            upstream.0.sock.shutdown(Shutdown::Write).unwrap();
            let error = client.into_stream().read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
    }
}

#[test]
fn long_bodies_pass_in_both_directions() {
    let body = long_body();
    let length = body.len();
    let (backend, server) = (Backend::start(), server("backend", false));
    let (gateway, _folder) = gateway(backend.addr(), "tls: { ca: ca.pem }");
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut upstream = TlsPeer::accept(&backend, &server);
            upstream.head().unwrap();
            let mut received = vec![0; length];
            upstream.0.read_exact(&mut received).unwrap();
            upstream
                .send(format!("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: {length}\r\n\r\n"));
            upstream.send(received);
        });
        let mut client = gateway.client();
        client.send(format!("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"));
        client.send(&body);
        client.head().unwrap();
        assert!(client.read(length) == body);
    });
}

#[test]
fn tunnel_passes_through_tls() {
    let upgrade = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let switch =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let (backend, server) = (Backend::start(), server("backend", false));
    let (gateway, _folder) = gateway(backend.addr(), "tls: { ca: ca.pem }");
    let mut client = gateway.client();
    client.send(format!("{upgrade}early"));
    let mut upstream = TlsPeer::accept(&backend, &server);
    upstream.expect(upgrade);
    upstream.send(format!("{switch}first"));
    client.expect(format!("{switch}first"));
    upstream.expect("early");
    client.send("more");
    upstream.expect("more");
    client.finish();
    // The end of one direction is the end of its session.
    assert_eq!(upstream.0.read(&mut [0]).unwrap(), 0);
    upstream.send("last");
    upstream.0.conn.send_close_notify();
    upstream.0.flush().unwrap();
    drop(upstream);
    client.expect_to_end("last");
}

#[test]
fn invalid_tls_of_a_pool_is_an_error_with_its_line() {
    let error = |backend: &str, tls: &str| {
        let text = format!(
            "listeners: [{{ address: 127.0.0.1:0 }}]\npools:\n  - name: a\n    backends: [{{ address: {backend} }}]\n    \
             tls: {{ {tls} }}\n"
        );
        let error = Config::parse(&text, &certificate_file("g.yaml")).unwrap_err();
        error.to_string().rsplit_once("g.yaml:").unwrap().1.to_owned()
    };
    let tcp = "127.0.0.1:1";
    for (backend, tls, expected) in [
        (
            tcp,
            "ca: none.pem",
            "5:16: `none.pem`: cannot read the certificates of authorities; expected a PEM file",
        ),
        (
            tcp,
            "ca: ca.pem, verify: false",
            "5:16: `ca` has no effect with `verify: false`; remove one of them",
        ),
        (tcp, "certificate: client.pem", "5:25: `certificate` without `key`; add its private key"),
        (tcp, "key: client.key", "5:17: `key` without `certificate`; add the certificate"),
        (
            tcp,
            "certificate: client.pem, key: shop.key",
            "5:42: `shop.key`: the key does not belong to the certificate; name the key that it was issued for",
        ),
        (tcp, "server_name: \"a b\"", "5:25: `a b` is not a host name or address"),
        (
            "unix:/a",
            "verify: false",
            "4:27: a Unix socket has no name that certificates could have; set `server_name` in the `tls` of its pool",
        ),
        (
            tcp,
            "cafile: ca.pem",
            "5:12: unknown key `cafile`; expected one of `verify`, `ca`, `server_name`, `certificate`, `key`",
        ),
    ] {
        assert_eq!(error(backend, tls), expected, "{tls}");
    }
}
