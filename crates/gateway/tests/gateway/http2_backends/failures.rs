//! Backends that refuse, fail, leave, or break rules, and clients that leave.

use std::net::Shutdown;
use std::os::unix::net::UnixListener;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use tempfile::TempDir;
use tollgate_gateway::config::{Address, Backend as ConfigBackend};

use super::{OK, OK_TEXT, POST, accept, client, http2_config, log_to, logged, scene, scene_with};
use crate::support::http2::{
    CANCEL, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, Http2Peer, NO_ERROR,
    PROTOCOL_ERROR, REFUSED_STREAM, SETTINGS, block, frame,
};
use crate::support::{Backend, DEADLINE, GET, TestGateway, is_disconnect};

#[test]
fn request_that_the_backend_has_not_processed_is_resent() {
    // A second refusal ends it.
    for refusals in [1, 2] {
        let (gateway, backend) = scene();
        let mut client = client(&gateway, POST);
        for _ in 0..refusals {
            let mut upstream = accept(&backend, &[]);
            upstream.wait(1, |received| received.has_ended);
            upstream.reset(1, REFUSED_STREAM);
            // The connection stays open, but the request goes to a new one.
            upstream.round_trip();
        }
        if refusals == 2 {
            client.expect_local_response(502);
            continue;
        }
        let mut upstream = accept(&backend, &[]);
        assert_eq!(upstream.wait(1, |received| received.has_ended).body, b"hi");
        upstream.respond(1, OK, Some("hi"));
        client.expect(OK_TEXT);
    }
}

#[test]
fn refusal_of_a_request_that_cannot_be_resent_is_no_failure() {
    // An upload that is too long to be retained, and one that the backend has begun to take.
    for (length, interim) in [(50_000, false), (2, true)] {
        let (gateway, backend) = scene();
        let mut client = gateway.client();
        let body = "u".repeat(length);
        client
            .send(format!("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"));
        let mut upstream = accept(&backend, &[]);
        upstream.wait(1, |received| received.has_ended);
        if interim {
            upstream.respond(1, &[(":status", "100")], None);
            client.expect("HTTP/1.1 100 \r\n\r\n");
        }
        upstream.reset(1, REFUSED_STREAM);
        client.expect_local_response(502);
        let failures =
            format!("backend_failures_total{{pool=\"default\",backend=\"{}\"}}", backend.addr());
        assert_eq!(gateway.metric(&failures), 0);
    }
}

#[test]
fn going_backend_finishes_its_requests_and_others_go_to_a_new_connection() {
    let (gateway, backend) = scene();
    let mut first = client(&gateway, POST);
    let mut upstream = accept(&backend, &[]);
    upstream.wait(1, |received| received.has_ended);
    let mut second = client(&gateway, POST);
    upstream.wait(3, |received| received.has_ended);
    upstream.frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
    let mut other = accept(&backend, &[]);
    assert_eq!(other.wait(1, |received| received.has_ended).body, b"hi");
    upstream.respond(1, OK, Some("hi"));
    first.expect(OK_TEXT);
    other.respond(1, OK, Some("hi"));
    second.expect(OK_TEXT);
    // It is closed after its last request.
    while upstream.turn().is_some() {}
    let failures =
        format!("backend_failures_total{{pool=\"default\",backend=\"{}\"}}", backend.addr());
    assert_eq!(gateway.metric(&failures), 0);
}

#[test]
fn broken_request_goes_to_another_backend_only_if_that_is_safe() {
    for request in [GET, POST] {
        let backends = [Backend::start(), Backend::start()];
        let gateway = TestGateway::start(&http2_config(&[&backends[0], &backends[1]]));
        let mut client = client(&gateway, request);
        let mut upstream = accept(&backends[0], &[]);
        upstream.wait(1, |received| received.has_ended);
        upstream.reset(1, CANCEL);
        if request == POST {
            client.expect_local_response(502);
            continue;
        }
        let mut other = accept(&backends[1], &[]);
        other.head(1);
        other.respond(1, OK, Some("hi"));
        client.expect(OK_TEXT);
    }
}

#[test]
fn idle_connection_may_close_at_any_time() {
    for request in [GET, POST] {
        let (gateway, backend) = scene();
        let mut client = client(&gateway, request);
        let mut upstream = accept(&backend, &[]);
        upstream.wait(1, |received| received.has_ended);
        upstream.respond(1, OK, Some("hi"));
        client.expect(OK_TEXT);
        upstream.tcp().shutdown(Shutdown::Both).unwrap();
        client.send(request);
        let mut upstream = accept(&backend, &[]);
        upstream.wait(1, |received| received.has_ended);
        upstream.respond(1, OK, Some("hi"));
        client.expect(OK_TEXT);
    }
}

#[test]
fn backend_that_ends_its_receiving_side_gets_no_further_request() {
    let folder = TempDir::new().unwrap();
    let address = Address::Unix(folder.path().join("backend"));
    let Address::Unix(path) = &address else { unreachable!() };
    let listener = UnixListener::bind(path).unwrap();
    set_socket_timeout(&listener, Timeout::Recv, Some(DEADLINE)).unwrap();
    let accept = || {
        let (stream, _) = listener.accept().expect("a connection of the gateway");
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut upstream = Http2Peer::serve(stream.try_clone().unwrap());
        upstream.settings(&[]);
        (upstream, stream)
    };
    let mut config = http2_config(&[&Backend::start()]);
    config.pools[0].backends = vec![ConfigBackend::new(address.clone())];
    let gateway = TestGateway::start(&config);
    let mut client = client(&gateway, GET);
    let (mut upstream, stream) = accept();
    upstream.head(1);
    upstream.respond(1, OK, Some("hi"));
    client.expect(OK_TEXT);
    stream.shutdown(Shutdown::Read).unwrap();
    // The next send fails, but reading finds neither an end nor an error.
    client.send(GET);
    let (mut upstream, _stream) = accept();
    upstream.head(1);
    upstream.respond(1, OK, Some("hi"));
    client.expect(OK_TEXT);
}

#[test]
fn departed_client_cancels_its_stream() {
    let (gateway, backend) = scene();
    let leaving = client(&gateway, GET);
    let mut upstream = accept(&backend, &[]);
    upstream.head(1);
    leaving.reset();
    assert_eq!(upstream.wait(1, |received| received.reset.is_some()).reset, Some(CANCEL));
    // The connection continues.
    let mut other = client(&gateway, GET);
    upstream.head(3);
    upstream.respond(3, OK, Some("hi"));
    other.expect(OK_TEXT);
}

#[test]
fn early_response_ends_the_upload() {
    let (gateway, backend) = scene();
    let mut client = gateway.client();
    client.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf");
    let mut upstream = accept(&backend, &[]);
    upstream.wait(1, |received| received.body == b"half");
    upstream.respond(1, &[(":status", "403"), ("date", "d"), ("content-length", "2")], Some("no"));
    upstream.reset(1, NO_ERROR);
    client.expect("HTTP/1.1 403 \r\ndate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
    upstream.round_trip();
}

#[test]
fn malformed_responses_are_bad_gateways() {
    let field = |name, value| block(&[(":status", "200"), (name, value)]);
    let heads = [
        ("no status", block(&[("date", "d")])),
        ("two statuses", block(&[(":status", "200"), (":status", "200")])),
        ("status of two digits", block(&[(":status", "20")])),
        ("switched protocols", block(&[(":status", "101")])),
        ("pseudo-field of a request", field(":path", "/")),
        ("late pseudo-field", block(&[("date", "d"), (":status", "200")])),
        ("upper case", field("Date", "d")),
        ("connection", field("connection", "close")),
        ("transfer-encoding", field("transfer-encoding", "chunked")),
        ("upgrade", field("upgrade", "websocket")),
        ("line break in a value", field("x", "a\r\nset-cookie: b")),
        ("line break in a name", field("x: a\r\nset-cookie", "b")),
        ("zero byte", field("x", "a\0b")),
        ("space in a name", field("x y", "a")),
        ("space around a value", field("x", " a")),
        ("sign in a length", field("content-length", "+2")),
        (
            "two lengths",
            block(&[(":status", "200"), ("content-length", "2"), ("content-length", "2")]),
        ),
        ("too many fields", block(&[&[(":status", "200")][..], &[("x", "y"); 300]].concat())),
    ];
    let folder = TempDir::new().unwrap();
    let (gateway, backend) = scene_with(|config| log_to(config, &folder));
    let mut upstream = None;
    let mut streams = (1..).step_by(2);
    for (name, head) in heads {
        let mut client = client(&gateway, GET);
        let upstream = upstream.get_or_insert_with(|| accept(&backend, &[]));
        let stream = streams.next().unwrap();
        upstream.head(stream);
        upstream.send(&frame(1, 4, stream, &head));
        let response = client.response().unwrap();
        assert_eq!(response.status, 502, "{name}");
        // The connection continues; one stream was reset.
        let expected = if name == "too many fields" { CANCEL } else { PROTOCOL_ERROR };
        let reset = upstream.wait(stream, |received| received.reset.is_some()).reset;
        assert_eq!(reset, Some(expected), "{name}");
    }
    assert_eq!(logged(folder.path())["reason"], "invalid-response");
}

#[test]
fn memory_of_interim_responses_is_bounded() {
    let (gateway, backend) = scene();
    let mut client = client(&gateway, "GET /a HTTP/1.0\r\nHost: x\r\n\r\n");
    let mut upstream = accept(&backend, &[]);
    upstream.head(1);
    // A field of 4,000 bytes that enters the dynamic table; later heads have 14 references to it, in 25 bytes or so.
    let status = block(&[(":status", "103")]);
    let mut first = [&status[..], &[0x40, 1, b'x', 127, 0xa1, 30]].concat();
    first.extend([b'y'; 4_000]);
    let mut frames = frame(HEADERS, END_HEADERS, 1, &first);
    let next = [&status[..], &[0xbe; 14]].concat();
    frames.extend(frame(HEADERS, END_HEADERS, 1, &next).repeat(1_000));
    upstream.send(&frames);
    client.expect_local_response(502);
    let reset = upstream.wait(1, |received| received.reset.is_some()).reset;
    assert_eq!(reset, Some(ENHANCE_YOUR_CALM));
}

#[test]
fn bodies_of_a_wrong_length_do_not_look_complete() {
    /// Payload, and the end of the stream.
    type DataFrame = (&'static [u8], bool);
    // The frames after the head that announces two bytes.
    let frames: [(&str, &[DataFrame]); 5] = [
        ("no byte", &[(b"", true)]),
        ("one byte", &[(b"h", true)]),
        ("three bytes", &[(b"hi!", true)]),
        ("three bytes in two frames", &[(b"hi", false), (b"!", true)]),
        ("empty frame between", &[(b"h", false), (b"", false), (b"i!", true)]),
    ];
    let (gateway, backend) = scene();
    let mut upstream = None;
    for (at, (name, frames)) in frames.into_iter().enumerate() {
        let mut client = client(&gateway, GET);
        let upstream = upstream.get_or_insert_with(|| accept(&backend, &[]));
        let stream = 2 * at as u32 + 1;
        upstream.head(stream);
        upstream.respond(stream, OK, None);
        for (bytes, ends) in frames {
            upstream.data(stream, *ends, bytes);
        }
        // Either nothing of it was forwarded yet, or the connection ends within its body.
        match client.response() {
            Ok(response) => assert_eq!(response.status, 502, "{name}"),
            Err(error) => assert!(is_disconnect(&error), "{name}: {error}"),
        }
        upstream.wait(stream, |received| received.reset.is_some());
    }
}

#[test]
fn data_before_the_head_is_a_bad_gateway() {
    let (gateway, backend) = scene();
    let mut client = client(&gateway, GET);
    let mut upstream = accept(&backend, &[]);
    upstream.head(1);
    upstream.frame(DATA, END_STREAM, 1, b"hi");
    client.expect_local_response(502);
}

#[test]
fn connection_with_invalid_frames_ends_all_its_requests() {
    let (gateway, backend) = scene();
    let mut clients = [client(&gateway, GET), client(&gateway, POST)];
    let mut upstream = accept(&backend, &[]);
    upstream.wait(3, |received| received.has_ended);
    // SETTINGS on a stream.
    upstream.frame(SETTINGS, 0, 1, b"");
    for client in &mut clients {
        client.expect_local_response(502);
    }
    assert_eq!(upstream.expect_end(), PROTOCOL_ERROR);
}

#[test]
fn backend_that_speaks_http1_is_a_bad_gateway() {
    let folder = TempDir::new().unwrap();
    let (gateway, backend) = scene_with(|config| log_to(config, &folder));
    let mut client = client(&gateway, POST);
    let mut upstream = backend.accept();
    upstream.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    client.expect_local_response(502);
    assert_eq!(logged(folder.path())["reason"], "invalid-response");
    let sent = upstream.read_to_close();
    assert!(!sent.windows(2).any(|bytes| bytes == b"hi"), "{}", sent.escape_ascii());
}

#[test]
fn broken_off_response_does_not_look_complete() {
    let (gateway, backend) = scene();
    let mut client = client(&gateway, GET);
    let mut upstream = accept(&backend, &[]);
    upstream.head(1);
    upstream.respond(1, &[(":status", "200"), ("date", "d")], None);
    upstream.data(1, false, b"half");
    client.expect("HTTP/1.1 200 \r\ndate: d\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n");
    drop(upstream);
    client.expect_closed();
}
