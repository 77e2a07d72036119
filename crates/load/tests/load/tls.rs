use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use tollgate_http2::Limits;
use tollgate_load::{Generator, Plan};
use tollgate_tls::{ClientOptions, TlsClient, TlsVersion, Trust};
use tollgate_traffic::load_shape::Protocol;

use crate::http2::Streams;
use crate::server::{
    DEADLINE, GET, LAST, OK, Peer, Server, plan, post, request, run, scheduled, set_connections,
    set_connections_max, with, workload,
};

/// Self-signed certificate for `localhost` of the tests of the gateway.
fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    folder.join("../gateway/tests/gateway/certificates").join(name)
}

fn config(protocol: &[u8]) -> ServerConfig {
    let chain = CertificateDer::pem_file_iter(file("site.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(file("site.key")).unwrap();
    let provider = Arc::new(ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    config
}

pub(crate) fn server(
    protocol: &[u8],
    script: impl Fn(&mut Peer) + Send + Sync + 'static,
) -> Server {
    Server::start_tls(config(protocol), script)
}

fn echo(peer: &mut Peer) {
    while peer.request().is_some() {
        peer.send(OK);
    }
}

pub(crate) const TRUSTING: ClientOptions<'_> = ClientOptions {
    trust: &Trust::All,
    name: "localhost",
    identity: None,
    version: None,
    resume: false,
    protocols: &[b"http/1.1"],
};

pub(crate) fn over_tls(options: &ClientOptions<'_>, plan: Plan) -> Plan {
    Plan { tls: Some(TlsClient::new(options).unwrap()), ..plan }
}

#[test]
fn requests_are_sent_after_the_handshake() {
    let server = server(b"http/1.1", echo);
    let trust = Trust::File(file("site.pem"));
    let trusted = ClientOptions { trust: &trust, ..TRUSTING };
    for (version, name) in
        [(None, "TLSv1.3 TLS_AES_"), (Some(TlsVersion::Tls12), "TLSv1.2 TLS_ECDHE_")]
    {
        let options = ClientOptions { version, ..trusted };
        let plan = with(plan(server.address, 40), |plan| set_connections(plan, 2));
        let summary = run(over_tls(&options, plan));
        assert_eq!((summary.responses, summary.connects), (40, 2), "{summary:?}");
        let handshakes = summary.handshake_time.unwrap();
        assert_eq!((handshakes.count(), summary.resumed_handshakes), (2, 0));
        assert!(summary.tls.unwrap().starts_with(name));
        assert_eq!(summary.bytes_sent, 40 * GET.len() as u64);
    }
}

#[test]
fn sessions_are_resumed_if_asked() {
    let server = server(b"http/1.1", |peer| {
        peer.request();
        peer.send(LAST);
    });
    for (resume, resumed) in [(true, 19), (false, 0)] {
        let options = ClientOptions { resume, ..TRUSTING };
        let plan =
            with(plan(server.address, 20), |plan| plan.clients.protocol = Protocol::Http1Close);
        let summary = run(over_tls(&options, plan));
        assert_eq!((summary.responses, summary.connects), (20, 20), "{summary:?}");
        let handshakes = summary.handshake_time.clone().unwrap();
        assert_eq!(handshakes.count(), 20);
        assert_eq!(summary.resumed_handshakes, resumed);
        // The latency of a new connection includes its handshake.
        assert!(summary.latency.min_ns() > handshakes.min_ns(), "{summary:?}");
    }
}

#[test]
fn handshakes_are_complete_without_a_request() {
    let server = server(b"http/1.1", |peer| assert!(peer.request().is_none()));
    for (version, resume) in [
        (TlsVersion::Tls13, true),
        (TlsVersion::Tls13, false),
        (TlsVersion::Tls12, true),
        (TlsVersion::Tls12, false),
    ] {
        let options = ClientOptions { resume, version: Some(version), ..TRUSTING };
        let closed =
            with(plan(server.address, 20), |plan| plan.clients.protocol = Protocol::Handshakes);
        // One connection, so that each handshake starts with the tickets of the one before.
        let arrivals = scheduled(server.address, 1, 500.0).arrivals;
        let open = with(closed.clone(), |plan| {
            plan.arrivals = arrivals;
            set_connections_max(plan, 1);
        });
        for plan in [closed, open] {
            let generator = Generator::start(over_tls(&options, plan)).unwrap();
            assert!(generator.wait(DEADLINE));
            let summary = generator.finish().unwrap();
            assert_eq!((summary.sent, summary.responses), (20, 20), "{summary:?}");
            assert_eq!((summary.connects, summary.latency.count()), (20, 20));
            assert_eq!((summary.failures.total(), summary.force_closed), (0, 0), "{summary:?}");
            let handshakes = summary.handshake_time.as_ref().unwrap();
            assert_eq!(handshakes.count(), 20);
            let (resumed, rate) = if resume { (19, 0.95) } else { (0, 0.0) };
            assert_eq!(summary.resumed_handshakes, resumed, "{version:?}");
            assert_eq!(summary.resumption_rate, Some(rate));
            // The latency includes the connect.
            assert!(summary.latency.max_ns() > handshakes.max_ns());
            assert!(summary.statuses().is_empty());
        }
    }
    assert_eq!(server.requests(), 0);
}

#[test]
fn handshakes_wait_for_whole_tickets() {
    let config = Arc::new(config(b"http/1.1"));
    let server = Server::start(move |peer| {
        let mut tls = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut unsent = Vec::new();
        while tls.is_handshaking() {
            peer.send(&std::mem::take(&mut unsent));
            let Some(received) = peer.receive() else { return };
            let mut unread = &received[..];
            while !unread.is_empty() {
                tls.read_tls(&mut unread).unwrap();
                tls.process_new_packets().unwrap();
            }
            while tls.wants_write() {
                tls.write_tls(&mut unsent).unwrap();
            }
        }
        let (start, rest) = unsent.split_at(20);
        peer.send(start);
        peer.sleep(Duration::from_millis(20));
        peer.send(rest);
        while peer.receive().is_some() {}
    });
    let options = ClientOptions { resume: true, version: Some(TlsVersion::Tls13), ..TRUSTING };
    let plan = with(plan(server.address, 5), |plan| plan.clients.protocol = Protocol::Handshakes);
    let generator = Generator::start(over_tls(&options, plan)).unwrap();
    assert!(generator.wait(DEADLINE));
    let summary = generator.finish().unwrap();
    assert_eq!((summary.responses, summary.resumed_handshakes), (5, 4), "{summary:?}");
}

#[test]
fn bytes_on_the_wire_include_handshakes_and_records() {
    let server = server(b"http/1.1", echo);
    let bytes = |count| {
        let summary = run(over_tls(&TRUSTING, plan(server.address, count)));
        (summary.tls_bytes_received.unwrap(), summary.tls_bytes_sent.unwrap())
    };
    let ((received, sent), (more_received, more_sent)) = (bytes(10), bytes(110));
    // Each message is a record of TLS 1.3: 5 bytes of header, 1 of its type, 16 of authentication.
    // The length of the signature in the handshake varies by some bytes.
    let expected = 100 * (OK.len() as u64 + 22);
    assert!((more_received - received).abs_diff(expected) <= 8, "{received} {more_received}");
    assert_eq!(more_sent - sent, 100 * (GET.len() as u64 + 22));
    // Hello, certificate, and signature.
    assert!(received > 10 * (OK.len() as u64 + 22) + 500, "{received}");
    assert!(sent > 10 * (GET.len() as u64 + 22) + 200, "{sent}");
    assert_eq!(run(plan(Server::responding(OK).address, 1)).tls_bytes_sent, None);
}

#[test]
fn bodies_and_pipelines_are_sent_in_records() {
    let server = server(b"http/1.1", echo);
    for (protocol, request, count) in [
        (Protocol::Http1 { pipeline: 1 }, post(3_000_000), 3),
        (Protocol::Http1 { pipeline: 8 }, request(GET), 80),
    ] {
        let plan = with(plan(server.address, count), |plan| {
            plan.clients.protocol = protocol;
            plan.workload = workload(vec![request]);
        });
        let summary = run(over_tls(&TRUSTING, plan));
        assert_eq!((summary.responses, summary.connects), (count, 1), "{summary:?}");
    }
    assert_eq!(server.requests(), 83);
}

#[test]
fn http2_is_chosen_by_alpn() {
    let options = ClientOptions { protocols: &[b"h2"], ..TRUSTING };
    let http2 = |server: &Server| {
        let protocol = Protocol::Http2 { streams: 4 };
        over_tls(&options, with(plan(server.address, 40), |plan| plan.clients.protocol = protocol))
    };
    let speaks = server(b"h2", |peer| {
        let mut streams = Streams::new(peer, Limits::default());
        while let Some(received) = streams.request() {
            streams.respond(received.stream);
        }
    });
    let summary = run(http2(&speaks));
    assert_eq!((summary.responses, summary.connects), (40, 1), "{summary:?}");
    // A server without a common protocol ends the handshake.
    let silent = server(b"http/1.1", echo);
    let summary = run(http2(&silent));
    assert_eq!((summary.responses, summary.failures.total()), (0, 40), "{summary:?}");
}

#[test]
fn unknown_certificate_fails_requests() {
    let server = server(b"http/1.1", echo);
    let [site, next] = ["site.pem", "next.pem"].map(|name| Trust::File(file(name)));
    for options in [
        ClientOptions { trust: &next, ..TRUSTING },
        ClientOptions { trust: &site, name: "other.test", ..TRUSTING },
    ] {
        let summary = run(over_tls(&options, plan(server.address, 3)));
        assert_eq!((summary.responses, summary.failures.other), (0, 3), "{summary:?}");
        let example = summary.failures.other_example.unwrap();
        assert!(example.contains("certificate"), "{example}");
    }
}

#[test]
fn handshake_has_the_time_limit_of_connects() {
    let server = Server::start(|peer| peer.hang());
    let connect_timeout = Duration::from_millis(50);
    let plan = with(plan(server.address, 3), |plan| plan.clients.connect_timeout = connect_timeout);
    let summary = run(over_tls(&TRUSTING, plan));
    assert_eq!((summary.responses, summary.failures.connect_timeout), (0, 3), "{summary:?}");
}

#[test]
fn server_without_tls_fails_requests() {
    let server = Server::start(|peer| peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
    let summary = run(over_tls(&TRUSTING, plan(server.address, 3)));
    assert_eq!((summary.responses, summary.failures.total()), (0, 3), "{summary:?}");
}
