//! Requests that are received in full before they occupy a backend, and responses that wait for their clients.

use std::num::NonZeroU32;

use tollgate_gateway::Config;

use crate::support::http2::{GET_FIELDS, Http2Peer};
use crate::support::{Backend, GET, OK, Peer, TestGateway, config};

const BOUND: usize = 64 << 10;

/// A backend of one connection, and the default bound.
fn one_connection(backend: &Backend) -> Config {
    let mut config = config(&[backend.addr()]);
    config.pools[0].buffer_request = BOUND as u64;
    config.pools[0].connections_max = NonZeroU32::new(1);
    config
}

fn post(length: usize) -> String {
    format!("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n")
}

#[test]
fn slow_upload_does_not_occupy_the_only_connection() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&one_connection(&backend));
    let (mut slow, mut other) = (gateway.client(), gateway.client());
    let body = "b".repeat(BOUND);
    slow.send(post(BOUND) + &body[1..]);
    gateway.turn();
    other.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(OK);
    other.expect(OK);
    // The bytes behind it are the next request.
    slow.send(format!("b{GET}"));
    upstream.expect(post(BOUND) + &body);
    upstream.send(OK);
    slow.expect(OK);
    upstream.expect(GET);
    upstream.send(OK);
    slow.expect(OK);
    gateway.expect_metric("buffered_total{pool=\"default\"}", 1);
    gateway.expect_metric("queued_total{pool=\"default\"}", 0);
}

#[test]
fn slow_upload_over_http2_does_not_occupy_the_only_connection() {
    let backend = Backend::start();
    let mut config = one_connection(&backend);
    config.listeners[0].http2 = true;
    let gateway = TestGateway::start(&config);
    let mut client = Http2Peer::connect(gateway.address());
    let fields = [&[(":method", "POST")], &GET_FIELDS[1..], &[("content-length", "4")]].concat();
    client.request(1, false, &fields);
    client.data(1, false, b"abc");
    client.round_trip();
    client.request(3, true, GET_FIELDS);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(OK);
    assert_eq!(client.response(3).text(), ("200", "hi"));
    client.data(1, true, b"d");
    upstream.expect("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nabcd");
    upstream.send(OK);
    assert_eq!(client.response(1).text(), ("200", "hi"));
}

#[test]
fn longer_and_chunked_requests_are_forwarded_as_they_arrive() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&one_connection(&backend));
    for head in [
        post(BOUND + 1),
        "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
    ] {
        let mut client = gateway.client();
        client.send(&head);
        backend.accept().expect(&head);
    }
    gateway.expect_metric("buffered_total{pool=\"default\"}", 0);
}

#[test]
fn memory_is_bounded_and_given_back() {
    let backend = Backend::start();
    let mut config = one_connection(&backend);
    config.pools[0].connections_max = None;
    config.limits.held_body_bytes = 2 * BOUND - 1;
    let gateway = TestGateway::start(&config);
    // Also after clients that leave within their bodies.
    for buffered in 1..=5 {
        let mut client = gateway.client();
        client.send(post(BOUND) + "b");
        gateway.expect_metric("buffered_total{pool=\"default\"}", buffered);
        let mut streamed = gateway.client();
        streamed.send(post(BOUND));
        backend.accept().expect(post(BOUND));
        client.reset();
        drop(streamed);
        gateway.expect_metric("client_connections", 0);
    }
    gateway.expect_metric("buffered_total{pool=\"default\"}", 5);
    gateway.expect_metric("bugs_total", 0);
}

#[test]
fn client_that_waits_for_100_continue_gets_it() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&one_connection(&backend));
    let mut client = gateway.client();
    let head = "POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    client.send(head);
    client.expect("HTTP/1.1 100 Continue\r\n\r\n");
    backend.expect_no_connection(&gateway);
    client.send("ab");
    let mut upstream = backend.accept();
    upstream.expect(format!("{head}ab"));
    upstream.send(OK);
    client.expect(OK);
}

#[test]
fn truncated_request_reaches_no_backend() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&one_connection(&backend));
    let mut client = gateway.client();
    client.send(post(10) + "abc");
    client.finish();
    client.expect_local_response(400);
    backend.expect_no_connection(&gateway);
}

/// A client over HTTP/2 that takes no body, and has sent a request on stream 1.
fn client_without_window(gateway: &TestGateway) -> Http2Peer {
    const INITIAL_WINDOW_SIZE: u16 = 4;
    let mut client = Http2Peer::with_settings(gateway.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
    client.request(1, true, GET_FIELDS);
    client
}

/// Opens its windows for a body.
fn take_body(client: &mut Http2Peer, length: usize) {
    client.window_update(0, length as u32);
    client.window_update(1, length as u32);
    assert_eq!(client.response(1).body.len(), length);
}

/// A client that takes no body, the only connection to its backend, and another client whose request waits for that.
fn two_clients(buffer_response: usize) -> (TestGateway, Http2Peer, Peer, Peer) {
    let backend = Backend::start();
    let mut config = one_connection(&backend);
    config.listeners[0].http2 = true;
    config.pools[0].buffer_response = buffer_response as u64;
    let gateway = TestGateway::start(&config);
    let slow = client_without_window(&gateway);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    let mut other = gateway.client();
    other.send(GET);
    gateway.expect_metric("queued_total{pool=\"default\"}", 1);
    (gateway, slow, upstream, other)
}

fn response(length: usize) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n") + &"b".repeat(length)
}

#[test]
fn slow_download_does_not_occupy_the_only_connection() {
    let chunk = format!("7800\r\n{}\r\n", "b".repeat(0x7800));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
    let chunked = chunked + &chunk.repeat(4) + "0\r\n\r\n";
    for (sent, length) in [(response(BOUND), BOUND), (chunked, 4 * 0x7800)] {
        let (gateway, mut slow, mut upstream, mut other) = two_clients(length);
        upstream.send(sent);
        upstream.expect(GET);
        upstream.send(OK);
        other.expect(OK);
        gateway.expect_metric("buffered_responses_total{pool=\"default\"}", 1);
        take_body(&mut slow, length);
    }
}

#[test]
fn longer_responses_and_those_that_stream_are_received_as_the_client_takes_them() {
    let events =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9000\r\n\r\n";
    let events = events.to_owned() + &"b".repeat(9_000);
    for (sent, length, limit) in [
        (response(BOUND + 1), BOUND + 1, BOUND),
        (response(9_000), 9_000, 0),
        (events, 9_000, BOUND),
    ] {
        let (gateway, mut slow, mut upstream, mut other) = two_clients(limit);
        // All of it: the end of a response that does not wait stays in the sockets.
        upstream.send(&sent[..sent.len() - 1]);
        slow.wait(1, |received| !received.status.is_empty());
        upstream.send("b");
        slow.round_trip();
        upstream.expect_nothing_yet();
        gateway.expect_metric("buffered_responses_total{pool=\"default\"}", 0);
        take_body(&mut slow, length);
        upstream.expect(GET);
        upstream.send(OK);
        other.expect(OK);
    }
}

#[test]
fn memory_of_responses_is_bounded_and_given_back() {
    let backend = Backend::start();
    let mut config = one_connection(&backend);
    config.pools[0].connections_max = None;
    config.listeners[0].http2 = true;
    config.limits.held_body_bytes = 2 * BOUND - 1;
    let gateway = TestGateway::start(&config);
    for buffered in 1..=3 {
        let mut slow = client_without_window(&gateway);
        let mut upstream = backend.accept();
        upstream.expect(GET);
        upstream.send(response(BOUND));
        gateway.expect_metric("buffered_responses_total{pool=\"default\"}", buffered);
        let mut streamed = client_without_window(&gateway);
        upstream.expect(GET);
        upstream.send(response(BOUND));
        streamed.wait(1, |received| !received.status.is_empty());
        streamed.round_trip();
        gateway.expect_metric("buffered_responses_total{pool=\"default\"}", buffered);
        // One that has received it, and one that leaves.
        if buffered == 1 {
            take_body(&mut slow, BOUND);
        }
        drop((slow, streamed));
        gateway.expect_metric("client_connections", 0);
    }
    gateway.expect_metric("bugs_total", 0);
}
