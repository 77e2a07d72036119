//! Backends over HTTP/2.

use tollgate_gateway::Config;
use tollgate_gateway::config::Protocol;
use tungstenite::handshake::derive_accept_key;

use super::{CONNECT, ENABLE_CONNECT_PROTOCOL};
use crate::support::http2::{
    CANCEL, DATA, END_STREAM, HEADERS, Http2Peer, INTERNAL_ERROR, NO_ERROR, PROTOCOL_ERROR,
    RST_STREAM, block, frame,
};
use crate::support::{Backend, GET, Peer, TestGateway, config};

/// The key of RFC 6455, section 1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const OPENED: &[(&str, &str)] = &[(":status", "200")];

fn upgrade() -> String {
    format!(
        "GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\
         Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
}

fn scene_with(change: impl FnOnce(&mut Config)) -> (TestGateway, Backend) {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.listeners[0].http2 = true;
    config.pools[0].protocol = Protocol::Http2 { streams_max: 100 };
    change(&mut config);
    (TestGateway::start(&config), backend)
}

fn scene() -> (TestGateway, Backend) {
    scene_with(|_| {})
}

/// Accepts a connection of the gateway, and announces extended CONNECT.
#[track_caller]
fn accept(backend: &Backend) -> Http2Peer {
    let mut peer = Http2Peer::serve(backend.accept().into_stream());
    peer.settings(&[(ENABLE_CONNECT_PROTOCOL, 1)]);
    peer
}

/// Opens a WebSocket of a client over HTTP/1.1, on stream 1 of the backend.
#[track_caller]
fn open(gateway: &TestGateway, backend: &Backend) -> (Peer, Http2Peer) {
    let mut client = gateway.client();
    client.send(upgrade());
    let mut upstream = accept(backend);
    upstream.head(1);
    upstream.request(1, false, OPENED);
    assert!(client.head().unwrap().starts_with("HTTP/1.1 101 "));
    (client, upstream)
}

/// Opens a WebSocket over HTTP/2 on both sides, on stream 1.
#[track_caller]
fn open_http2(gateway: &TestGateway, backend: &Backend) -> (Http2Peer, Http2Peer) {
    let mut client = Http2Peer::connect(gateway.address());
    client.request(1, false, CONNECT);
    let mut upstream = accept(backend);
    upstream.head(1);
    upstream.request(1, false, OPENED);
    client.wait(1, |received| received.status == "200");
    (client, upstream)
}

fn failures(gateway: &TestGateway, backend: &Backend) -> u64 {
    let labels = format!("pool=\"default\",backend=\"{}\"", backend.addr());
    gateway.metric(&format!("backend_failures_total{{{labels}}}"))
}

#[test]
fn upgrade_becomes_an_extended_connect_and_200_becomes_101() {
    let (gateway, backend) = scene();
    let mut client = gateway.client();
    client.send(upgrade());
    let mut upstream = accept(&backend);
    let head = upstream.head(1);
    let fields: Vec<_> = head.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        fields,
        [
            (":method", "CONNECT"),
            (":scheme", "http"),
            (":path", "/a"),
            (":protocol", "websocket"),
            (":authority", "x"),
            ("sec-websocket-version", "13"),
        ]
    );
    // 2xx opens it. Some servers send a length, which has no meaning.
    let opened = [(":status", "201"), ("content-length", "0"), ("sec-websocket-protocol", "chat")];
    upstream.request(1, false, &opened);
    upstream.data(1, false, b"first");
    let accept = derive_accept_key(KEY.as_bytes());
    client.expect(format!(
        "HTTP/1.1 101 Switching Protocols\r\nsec-websocket-protocol: chat\r\n\
         sec-websocket-accept: {accept}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nfirst"
    ));
    client.send("GET / HTTP/1.1\r\n\r\n");
    let received = upstream.wait(1, |received| received.body.len() == 18);
    assert_eq!((&received.body[..], received.has_ended), (&b"GET / HTTP/1.1\r\n\r\n"[..], false));
}

#[test]
fn tunnel_ends_each_direction_on_its_own() {
    let (gateway, backend) = scene();
    let (mut client, mut upstream) = open(&gateway, &backend);
    client.finish();
    assert!(upstream.wait(1, |received| received.has_ended).body.is_empty());
    upstream.data(1, false, b"la");
    client.expect("la");
    upstream.data(1, true, b"st");
    client.expect_to_end("st");

    let (gateway, backend) = scene();
    let (mut client, mut upstream) = open(&gateway, &backend);
    upstream.data(1, true, b"last");
    client.expect_to_end("last");
    client.send("still");
    upstream.wait(1, |received| received.body == b"still");
    client.finish();
    assert_eq!(upstream.response(1).reset, None);
    upstream.round_trip();
    assert_eq!(upstream.response(1).reset, None);
}

#[test]
fn reset_of_either_side_ends_the_other() {
    let (gateway, backend) = scene();
    let (mut client, mut upstream) = open(&gateway, &backend);
    upstream.reset(1, INTERNAL_ERROR);
    client.expect_closed();

    let (gateway, backend) = scene();
    let (client, mut upstream) = open(&gateway, &backend);
    client.reset();
    assert_eq!(upstream.response(1).reset, Some(CANCEL));
    // The connection takes further requests.
    let mut other = gateway.client();
    other.send(GET);
    upstream.head(3);
}

#[test]
fn client_that_resets_ends_a_tunnel_whose_backend_gives_no_credit() {
    let (gateway, backend) = scene();
    let (mut client, mut upstream) = open(&gateway, &backend);
    let bytes = vec![0; 256 << 20];
    assert!(client.send_until_blocked(&bytes) < bytes.len());
    client.reset();
    assert_eq!(upstream.response(1).reset, Some(CANCEL));
}

#[test]
fn failure_of_the_backend_after_its_end_ends_the_tunnel() {
    let (gateway, backend) = scene();
    let (mut client, mut upstream) = open_http2(&gateway, &backend);
    upstream.data(1, true, b"last");
    assert_eq!(client.wait(1, |received| received.has_ended).body, b"last");
    upstream.reset(1, INTERNAL_ERROR);
    assert_eq!(client.wait(1, |received| received.reset.is_some()).reset, Some(NO_ERROR));

    // The same, of a whole connection.
    let (gateway, backend) = scene();
    let (mut client, mut upstream) = open_http2(&gateway, &backend);
    upstream.data(1, true, b"last");
    assert_eq!(client.wait(1, |received| received.has_ended).body, b"last");
    drop(upstream);
    assert_eq!(client.wait(1, |received| received.reset.is_some()).reset, Some(NO_ERROR));
}

#[test]
fn end_before_a_reset_in_the_same_segment_is_forwarded() {
    let last =
        [frame(DATA, END_STREAM, 1, b"last"), frame(RST_STREAM, 0, 1, &NO_ERROR.to_be_bytes())]
            .concat();
    let (gateway, backend) = scene();
    let (mut client, mut upstream) = open_http2(&gateway, &backend);
    upstream.send(&last);
    let response = client.wait(1, |received| received.reset.is_some());
    assert_eq!((response.text(), response.has_ended), (("200", "last"), true));

    // Also while the backend takes no more.
    let (gateway, backend) = scene();
    let (mut client, mut upstream) = open_http2(&gateway, &backend);
    for _ in 0..4 {
        client.data(1, false, &[0; 16 << 10]);
    }
    upstream.wait(1, |received| received.body.len() == 65_535);
    client.round_trip();
    upstream.send(&last);
    let response = client.wait(1, |received| received.reset.is_some());
    assert_eq!((response.text(), response.has_ended), (("200", "last"), true));
}

#[test]
fn response_without_content_opens_a_tunnel_that_carries_bytes() {
    let (gateway, backend) = scene();
    let mut client = gateway.client();
    client.send(upgrade());
    let mut upstream = accept(&backend);
    upstream.head(1);
    upstream.request(1, false, &[(":status", "204")]);
    assert!(client.head().unwrap().starts_with("HTTP/1.1 101 "));
    upstream.data(1, false, b"down");
    client.expect("down");
    client.send("up");
    upstream.wait(1, |received| received.body == b"up");
}

#[test]
fn another_backend_takes_a_web_socket_that_one_does_not_take() {
    let (plain, backend) = (Backend::start(), Backend::start());
    let mut config = config(&[plain.addr(), backend.addr()]);
    config.listeners[0].http2 = true;
    config.pools[0].protocol = Protocol::Http2 { streams_max: 100 };
    let gateway = TestGateway::start(&config);
    let mut client = Http2Peer::connect(gateway.address());
    client.request(1, false, CONNECT);
    let mut other = Http2Peer::serve(plain.accept().into_stream());
    other.settings(&[]);
    let mut upstream = accept(&backend);
    upstream.head(1);
    upstream.request(1, false, OPENED);
    assert_eq!(client.wait(1, |received| !received.status.is_empty()).status, "200");
    assert_eq!(failures(&gateway, &plain), 0);
    assert!(!other.has_received(1));
}

#[test]
fn http2_on_both_sides_has_no_key() {
    let (gateway, backend) = scene();
    let mut client = Http2Peer::connect(gateway.address());
    client.request(1, false, CONNECT);
    let mut upstream = accept(&backend);
    let head = upstream.head(1);
    let mut names: Vec<_> = head.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, [":authority", ":method", ":path", ":protocol", ":scheme"]);
    upstream.request(1, false, OPENED);
    upstream.data(1, false, b"first");
    let opened = client.wait(1, |received| received.body.len() == 5);
    assert_eq!((opened.text(), &opened.headers[..]), (("200", "first"), &[][..]));
    client.data(1, true, b"bye");
    assert_eq!(upstream.wait(1, |received| received.has_ended).body, b"bye");
    upstream.data(1, true, b"last");
    let response = client.response(1);
    assert_eq!((response.text(), response.reset), (("200", "firstlast"), None));

    client.request(3, false, CONNECT);
    upstream.head(3);
    upstream.request(3, false, OPENED);
    client.wait(3, |received| received.status == "200");
    upstream.reset(3, INTERNAL_ERROR);
    assert_eq!(client.response(3).reset, Some(CANCEL));
}

#[test]
fn headers_within_a_tunnel_reset_it() {
    let (gateway, backend) = scene();
    let (mut client, mut upstream) = open(&gateway, &backend);
    // Without the check of pseudo-fields in a head that the test sends.
    upstream.frame(HEADERS, 5, 1, &block(&[("x-sum", "1")]));
    assert_eq!(upstream.response(1).reset, Some(PROTOCOL_ERROR));
    client.expect_closed();
}

#[test]
fn backend_without_the_setting_gets_no_web_socket() {
    let (gateway, backend) = scene();
    let mut client = gateway.client();
    client.send(upgrade());
    let mut upstream = Http2Peer::serve(backend.accept().into_stream());
    upstream.settings(&[]);
    client.expect_local_response(502);
    // Other requests get through, also on the same connection.
    client.send(GET);
    upstream.head(1);
    upstream.respond(1, &[(":status", "200"), ("date", "d")], Some("hi"));
    assert_eq!(client.response().unwrap().text(), "hi");
    assert_eq!(failures(&gateway, &backend), 0);

    let mut client = Http2Peer::connect(gateway.address());
    client.request(1, false, CONNECT);
    let response = client.response(1);
    assert_eq!((&*response.status, response.has_ended), ("502", true));
    assert_eq!(failures(&gateway, &backend), 0);
}

#[test]
fn refusal_of_the_backend_is_forwarded() {
    let (gateway, backend) = scene();
    let mut client = gateway.client();
    client.send(upgrade());
    let mut upstream = accept(&backend);
    upstream.head(1);
    upstream.respond(1, &[(":status", "403"), ("date", "d")], Some("nope"));
    assert_eq!(client.response().unwrap().status, 403);
}

#[test]
fn upgrade_without_a_valid_key_is_a_request_like_others() {
    for change in [
        (KEY, "c2hvcnQ="),
        ("Sec-WebSocket-Key", "X-Key"),
        ("Upgrade: WebSocket", "Upgrade: mqtt"),
        ("GET /a", "POST /a"),
    ] {
        let (gateway, backend) = scene();
        let mut client = gateway.client();
        client.send(upgrade().replacen(change.0, change.1, 1));
        let mut upstream = accept(&backend);
        let head = upstream.head(1);
        let method = head.iter().find(|(name, _)| name == ":method").unwrap();
        assert_eq!(method.1, if change.0 == "GET /a" { "POST" } else { "GET" }, "{change:?}");
        assert!(head.iter().all(|(name, _)| name != ":protocol"), "{head:?}");
    }
}
