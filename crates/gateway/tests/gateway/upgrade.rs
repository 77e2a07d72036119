//! Connections that switch to another protocol.

use std::time::{Duration, Instant};

use tollgate_gateway::config::Timeouts;
use tungstenite::{Message, accept, client};

use crate::support::{
    Backend, GET, OK, Peer, TestGateway, ThreadedBackend, closed_port, config, connect,
};

const REQUEST: &str =
    "GET /a HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
const SWITCH: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";

/// Both ends of a tunnel.
fn tunnel(backend: &Backend, gateway: &TestGateway) -> (Peer, Peer) {
    let mut client = gateway.client();
    client.send(REQUEST);
    let mut upstream = backend.accept();
    upstream.expect(REQUEST);
    upstream.send(SWITCH);
    client.expect(SWITCH);
    (client, upstream)
}

#[test]
fn tunnel_forwards_both_directions_and_ends_each_on_its_own() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    client.send(format!("{REQUEST}early"));
    let mut upstream = backend.accept();
    upstream.expect(REQUEST);
    upstream.send(format!("{SWITCH}\0first"));
    client.expect(format!("{SWITCH}\0first"));
    upstream.expect("early");
    client.send("GET / HTTP/1.1\r\n\r\n");
    upstream.expect("GET / HTTP/1.1\r\n\r\n");
    client.finish();
    upstream.expect_to_end("");
    upstream.send("last");
    drop(upstream);
    client.expect_to_end("last");
}

/// More than all buffers between two peers hold.
const ENDLESS_BYTES: usize = 256 << 20;

#[test]
fn client_that_resets_ends_a_tunnel_whose_backend_takes_no_more() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let (mut client, _upstream) = tunnel(&backend, &gateway);
    assert!(client.send_until_blocked(&vec![0; ENDLESS_BYTES]) < ENDLESS_BYTES);
    client.reset();
    gateway.expect_metric("client_connections", 0);
}

#[test]
fn client_that_resets_after_its_end_ends_the_tunnel() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let (client, mut upstream) = tunnel(&backend, &gateway);
    client.finish();
    upstream.expect_to_end("");
    client.reset();
    gateway.expect_metric("client_connections", 0);
}

#[test]
fn backend_that_resets_after_its_end_ends_the_tunnel() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let (mut client, upstream) = tunnel(&backend, &gateway);
    upstream.finish();
    client.expect_to_end("");
    upstream.reset();
    gateway.expect_metric("client_connections", 0);
}

#[test]
fn last_bytes_of_a_client_that_closes_are_forwarded_to_a_slow_backend() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let (mut client, mut upstream) = tunnel(&backend, &gateway);
    upstream.finish();
    client.expect_to_end("");
    let sent = client.send_until_blocked(&vec![0; ENDLESS_BYTES]);
    // Both directions have ended, while the gateway holds bytes of one.
    drop(client);
    gateway.turn();
    assert_eq!(upstream.read_to_close().len(), sent);
}

#[test]
fn tunnel_has_a_timeout_of_its_own() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    let short = Duration::from_millis(500);
    config.timeouts = Timeouts { idle: short, body: short, response: short, ..config.timeouts };
    let gateway = TestGateway::start(&config);
    let (mut client, mut upstream) = tunnel(&backend, &gateway);
    // An idle connection is closed by its timeout, and the older tunnel is not.
    gateway.client().expect_closed();
    client.send("still");
    upstream.expect("still");
    // Bytes of either direction restart the timeout of both.
    let timeout = Duration::from_secs(2);
    config.timeouts.tunnel = timeout;
    config.timeouts.idle = Duration::from_secs(60);
    gateway.reload(config);
    let reloaded_at = Instant::now();
    while reloaded_at.elapsed() < timeout + timeout / 2 {
        std::thread::sleep(timeout / 8);
        upstream.send("there");
        client.expect("there");
    }
    client.expect_closed();
    upstream.expect_closed();
}

#[test]
fn drain_waits_for_a_tunnel_within_its_timeout() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    let timeout = Duration::from_secs(2);
    config.timeouts.drain = timeout;
    let gateway = TestGateway::start(&config);
    let (mut client, mut upstream) = tunnel(&backend, &gateway);
    let started_at = Instant::now();
    gateway.drain();
    client.send("still");
    upstream.expect("still");
    gateway.join();
    assert!(started_at.elapsed() >= timeout);
    client.expect_closed();
    upstream.expect_closed();
}

#[test]
fn backend_that_does_not_switch_responds_as_usual() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    client.send(REQUEST);
    let mut upstream = backend.accept();
    upstream.expect(REQUEST);
    upstream.send(OK);
    client.expect(OK);
    client.send(GET);
    upstream.expect(GET);
}

#[test]
fn request_with_length_zero_is_upgraded() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    client.send(
        "GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nContent-Length: 0\r\nUpgrade: websocket\r\n\r\nearly",
    );
    let mut upstream = backend.accept();
    upstream.expect(
        "GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    );
    upstream.send(format!("{SWITCH}first"));
    client.expect(format!("{SWITCH}first"));
    upstream.expect("early");
}

#[test]
fn post_is_upgraded_to_an_allowed_protocol() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.requests.upgrades = vec!["websocket".to_owned(), "tcp".to_owned()];
    let gateway = TestGateway::start(&config);
    for length in ["", "Content-Length: 0\r\n"] {
        let request = format!(
            "POST /attach HTTP/1.1\r\nHost: x\r\n{length}Connection: upgrade\r\nUpgrade: tcp\r\n\r\n"
        );
        let switch =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: tcp\r\n\r\n";
        let mut client = gateway.client();
        client.send(&request);
        let mut upstream = backend.accept();
        upstream.expect(&request);
        upstream.send(switch);
        client.expect(switch);
        client.send("GET / HTTP/1.1\r\n\r\n");
        upstream.expect("GET / HTTP/1.1\r\n\r\n");
    }
}

#[test]
fn request_with_a_body_is_not_upgraded() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.requests.upgrades = vec!["websocket".to_owned(), "tcp".to_owned()];
    let gateway = TestGateway::start(&config);
    for (method, protocol, framing) in [
        ("GET", "websocket", "Content-Length: 5\r\n\r\nhello"),
        ("GET", "websocket", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("POST", "tcp", "Content-Length: 5\r\n\r\nhello"),
        ("POST", "tcp", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        ("POST", "websocket", "Content-Length: 0\r\n\r\n"),
    ] {
        let mut client = gateway.client();
        client.send(format!(
            "{method} /a HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: {protocol}\r\n{framing}"
        ));
        let mut upstream = backend.accept();
        upstream.expect(format!("{method} /a HTTP/1.1\r\nHost: x\r\n{framing}"));
        // It was not asked to.
        upstream.send(SWITCH);
        assert!(client.head().unwrap().starts_with("HTTP/1.1 502 "), "{method} {framing:?}");
    }
}

#[test]
fn web_socket_of_another_implementation_works_to_its_close() {
    let backend = ThreadedBackend::start(|peer| {
        let mut socket = accept(peer.into_stream()).unwrap();
        while let Ok(message) = socket.read() {
            if message.is_text() || message.is_binary() {
                socket.send(message).unwrap();
            }
        }
    });
    let gateway = TestGateway::on_unix_socket(config(&[backend.addr()]));
    let stream = connect(gateway.address()).unwrap();
    let (mut socket, response) = client("ws://a/socket", stream).unwrap();
    assert_eq!(response.status(), 101);
    let long = "long ".repeat(100_000);
    for text in ["short", &long] {
        socket.send(Message::text(text)).unwrap();
        assert!(socket.read().unwrap().into_text().unwrap() == text);
    }
    let bytes: Vec<u8> = (0..=255).collect();
    socket.send(Message::binary(bytes.clone())).unwrap();
    assert_eq!(socket.read().unwrap().into_data(), bytes);

    socket.close(None).unwrap();
    assert!(socket.read().unwrap().is_close());
    let end = socket.read().unwrap_err();
    assert!(matches!(end, tungstenite::Error::ConnectionClosed), "{end}");
}

#[test]
fn web_socket_handshake_with_a_closed_backend_fails_with_502() {
    let gateway = TestGateway::start(&config(&[closed_port()]));
    let stream = connect(gateway.address()).unwrap();
    let tungstenite::HandshakeError::Failure(tungstenite::Error::Http(response)) =
        client("ws://a/socket", stream).unwrap_err()
    else {
        panic!("not an HTTP response");
    };
    assert_eq!(response.status(), 502);
}
