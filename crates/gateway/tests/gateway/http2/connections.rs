//! Connections: protocol selection, idle time, drain and reload.

use std::io::{Read, Write};
use std::time::Duration;

use super::{http2_config, scene, scene_with};
use crate::support::http2::{GET_FIELDS, Http2Peer, NO_ERROR, PING};
use crate::support::{Backend, GET, OK, TestGateway, any_port, config, connect};
use crate::tls::{connect_offering, default_listener};

/// Last stream of the first of two GOAWAY frames.
const ALL_STREAMS: u32 = (1 << 31) - 1;

#[test]
fn preface_in_pieces_selects_http2_and_other_bytes_http1() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&http2_config(&backend));
    let mut http1 = gateway.client();
    http1.send(&GET[..1]);
    gateway.turn();
    http1.send(&GET[1..]);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(OK);
    http1.expect(OK);

    let mut raw = connect(gateway.address()).unwrap();
    for piece in [&b"P"[..], b"RI * HTTP/2.0\r\n\r\n", b"SM\r\n\r", b"\n\0\0\0\x04\0\0\0\0\0"] {
        raw.write_all(piece).unwrap();
        gateway.turn();
    }
    let mut header = [0; 9];
    raw.read_exact(&mut header).unwrap();
    assert_eq!(header[3], 4, "SETTINGS");
}

#[test]
fn preface_is_an_invalid_request_where_http2_is_off() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    client.expect_local_response(505);
}

#[test]
fn alpn_selects_the_protocol() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.listeners = vec![default_listener(any_port())];
    config.forwarded.x_forwarded = true;
    let gateway = TestGateway::start(&config);
    let stream = connect_offering(&gateway, &[b"h2", b"http/1.1"]);
    let mut client = Http2Peer::over(stream, &[]);
    client.request(1, true, GET_FIELDS);
    let mut upstream = backend.accept();
    let head = upstream.head().unwrap();
    assert!(head.contains("X-Forwarded-Proto: https\r\n"), "{head}");
    upstream.send(OK);
    assert_eq!(client.response(1).text(), ("200", "hi"));
    for offered in [&[&b"http/1.1"[..]][..], &[]] {
        let mut stream = connect_offering(&gateway, offered);
        stream.write_all(GET.as_bytes()).unwrap();
        upstream.head().unwrap();
        upstream.send(OK);
        let mut received = vec![0; OK.len()];
        stream.read_exact(&mut received).unwrap();
        assert_eq!(received, OK.as_bytes());
    }
}

#[test]
fn idle_connection_ends_with_go_away() {
    let (_gateway, mut client, backend) =
        scene_with(|config| config.timeouts.idle = Duration::from_millis(300));
    client.request(1, true, GET_FIELDS);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    // Not while a request is in flight, which takes longer.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(900));
            upstream.send(OK);
        });
        assert_eq!(client.response(1).text(), ("200", "hi"));
    });
    assert_eq!(client.expect_end(), NO_ERROR);
    assert_eq!(client.go_aways, [(1, NO_ERROR)]);
}

#[test]
fn drain_announces_the_end_and_serves_requests_underway() {
    let (gateway, mut client, backend) = scene();
    client.request(1, true, GET_FIELDS);
    let mut first = backend.accept();
    first.expect(GET);
    gateway.drain();
    // Until the client acknowledges the PING that follows, its requests are served.
    while !matches!(client.read_frame(), Some(frame) if frame.kind == PING) {}
    client.request(3, true, GET_FIELDS);
    let mut second = backend.accept();
    second.expect(GET);
    client.frame(PING, 1, 0, b"draining");
    while client.go_aways.is_empty() {
        client.turn().unwrap();
    }
    assert_eq!(client.go_aways, [(3, NO_ERROR)]);
    // Not accepted any more, without an answer.
    client.request(5, true, GET_FIELDS);
    first.send(OK);
    second.send(OK);
    assert_eq!(client.response(1).text(), ("200", "hi"));
    assert_eq!(client.response(3).text(), ("200", "hi"));
    client.expect_end();
    gateway.join();
}

#[test]
fn drain_ends_idle_connections_in_two_steps() {
    let (gateway, mut client, _backend) = scene();
    client.round_trip();
    gateway.drain();
    assert_eq!(client.expect_end(), NO_ERROR);
    assert_eq!(client.go_aways, [(ALL_STREAMS, NO_ERROR), (0, NO_ERROR)]);
    gateway.join();
}

#[test]
fn reload_keeps_connections_unless_their_listener_ends() {
    let backend = Backend::start();
    let mut config = http2_config(&backend);
    let gateway = TestGateway::start(&config);
    let mut client = Http2Peer::connect(gateway.address());
    client.round_trip();
    config.routes[0].request_headers.set = vec![("X-New".to_owned(), "1".to_owned())];
    gateway.reload(config.clone());
    client.round_trip();
    client.request(1, true, GET_FIELDS);
    let mut upstream = backend.accept();
    upstream.expect("GET /a HTTP/1.1\r\nHost: x\r\nX-New: 1\r\n\r\n");
    upstream.send(OK);
    client.response(1);
    config.listeners[0].http2 = false;
    gateway.reload(config);
    assert_eq!(client.expect_end(), NO_ERROR);
}

#[test]
fn streams_count_as_one_connection() {
    let (gateway, mut client, backend) = scene_with(|config| {
        config.limits.connections = 2;
        config.limits.connections_per_client = Some(2);
    });
    let upstreams: Vec<_> = (0..10)
        .map(|at| {
            client.request(2 * at + 1, true, GET_FIELDS);
            backend.accept()
        })
        .collect();
    let mut other = gateway.client();
    other.send(GET);
    backend.accept().expect(GET);
    assert_eq!(upstreams.len(), 10);
}
