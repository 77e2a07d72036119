//! Backends over HTTP/2, by literal frames. Foreign servers are in `e2e`.

use std::fs;
use std::net::Shutdown;
use std::num::NonZeroU32;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustls::{ServerConnection, StreamOwned};
use serde_json::Value;
use tempfile::TempDir;
use tollgate_gateway::Config;
use tollgate_gateway::config::{
    AccessLog, Address, Backend as ConfigBackend, HealthCheck, LogFormat, LogTarget, Protocol,
};

use crate::support::http2::{
    CANCEL, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, GET_FIELDS, HEADERS, Http2Peer,
    INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, NO_ERROR, PROTOCOL_ERROR, REFUSED_STREAM,
    SETTINGS, WINDOW_UPDATE, block, frame,
};
use crate::support::{Backend, DEADLINE, GET, Peer, TestGateway, config, is_disconnect, poll};
use crate::tls::certificate_file;

const STREAMS_MAX: u32 = 100;

/// A request that may have side effects.
const POST: &str = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";

const OK: &[(&str, &str)] = &[(":status", "200"), ("date", "d"), ("content-length", "2")];
/// Response to a client for [`OK`] with the body `hi`.
const OK_TEXT: &str = "HTTP/1.1 200 \r\ndate: d\r\nContent-Length: 2\r\n\r\nhi";

fn http2_config(backends: &[&Backend]) -> Config {
    let addresses: Vec<_> = backends.iter().map(|backend| backend.addr()).collect();
    let mut config = config(&addresses);
    config.pools[0].protocol = Protocol::Http2 { streams_max: STREAMS_MAX };
    config
}

fn scene() -> (TestGateway, Backend) {
    scene_with(|_| {})
}

fn scene_with(change: impl FnOnce(&mut Config)) -> (TestGateway, Backend) {
    let backend = Backend::start();
    let mut config = http2_config(&[&backend]);
    change(&mut config);
    (TestGateway::start(&config), backend)
}

/// Accepts a connection of the gateway and sends settings.
#[track_caller]
fn accept(backend: &Backend, settings: &[(u16, u32)]) -> Http2Peer {
    let mut peer = Http2Peer::serve(backend.accept().into_stream());
    peer.settings(settings);
    peer
}

fn pairs(fields: &[(String, String)]) -> Vec<(&str, &str)> {
    fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// A client that has sent these bytes.
fn client(gateway: &TestGateway, request: &str) -> Peer {
    let mut client = gateway.client();
    client.send(request);
    client
}

fn log_to(config: &mut Config, folder: &TempDir) {
    let to = LogTarget::File(folder.path().join("log"));
    config.access_log = Some(AccessLog { to, format: LogFormat::Json });
}

/// The first entry of the access log, which is written after its response is sent.
fn logged(folder: &Path) -> Value {
    poll(|| {
        let text = fs::read_to_string(folder.join("log")).unwrap();
        let line = text.lines().next().ok_or("no line in the access log")?;
        Ok(serde_json::from_str(line).unwrap())
    })
}

#[test]
fn request_and_response_are_translated() {
    let (gateway, backend) = scene_with(|config| config.forwarded.via = Some("gate".to_owned()));
    let mut client = client(
        &gateway,
        "GET /a?b HTTP/1.1\r\nHost: x:1\r\nX-Name:  Value \r\nConnection: X-Hop\r\nX-Hop: 1\r\n\
         Keep-Alive: 5\r\nCookie: a=1\r\nCookie: b=2\r\n\r\n",
    );
    let mut upstream = accept(&backend, &[]);
    assert_eq!(
        pairs(&upstream.head(1)),
        [
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/a?b"),
            (":authority", "x:1"),
            ("x-name", "Value"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
            ("via", "1.1 gate"),
        ]
    );
    assert!(upstream.wait(1, |it| it.has_ended).body.is_empty());
    let head = [OK, &[("set-cookie", "a=1"), ("set-cookie", "b=2")]].concat();
    upstream.respond(1, &head, Some("hi"));
    client.expect(
        "HTTP/1.1 200 \r\ndate: d\r\nset-cookie: a=1\r\nset-cookie: b=2\r\nContent-Length: 2\r\n\
         Via: 2.0 gate\r\n\r\nhi",
    );
}

#[test]
fn clients_over_http2_and_their_trailers_reach_backends_over_http2() {
    let (gateway, backend) = scene_with(|config| config.listeners[0].http2 = true);
    let mut client = Http2Peer::connect(gateway.address());
    let post = [(":method", "POST"), (":scheme", "http"), (":path", "/a"), (":authority", "x")];
    client.request(1, false, &[&post[..], &[("te", "trailers"), ("x-a", "1")]].concat());
    let mut upstream = accept(&backend, &[]);
    let head = upstream.head(1);
    assert_eq!(pairs(&head)[4..], [("x-a", "1"), ("te", "trailers")]);
    client.data(1, false, b"hello");
    assert_eq!(upstream.wait(1, |it| it.body.len() == 5).body, b"hello");
    client.request(1, true, &[("x-sum", "2"), ("content-length", "9")]);
    let request = upstream.wait(1, |it| it.has_ended);
    assert_eq!(pairs(&request.trailers), [("x-sum", "2")]);
    // The head, the body and the trailers of a response without length arrive at once.
    upstream.respond(1, &[(":status", "200"), ("date", "d")], None);
    upstream.data(1, false, b"hi");
    assert_eq!(client.wait(1, |it| it.body.len() == 2).status, "200");
    upstream.request(1, true, &[("x-sum", "3"), ("set-cookie", "a")]);
    let response = client.response(1);
    assert_eq!((pairs(&response.trailers), response.reset), (vec![("x-sum", "3")], None));
}

#[test]
fn requests_share_a_connection_as_far_as_the_backend_allows() {
    let (gateway, backend) = scene();
    let mut first = client(&gateway, GET);
    let mut upstream = accept(&backend, &[(MAX_CONCURRENT_STREAMS, 2)]);
    upstream.head(1);
    let mut second = client(&gateway, GET);
    upstream.head(3);
    // It needs another connection.
    let mut third = client(&gateway, GET);
    let mut other = accept(&backend, &[(MAX_CONCURRENT_STREAMS, 2)]);
    other.head(1);
    upstream.respond(3, OK, Some("hi"));
    second.expect(OK_TEXT);
    other.respond(1, OK, Some("hi"));
    third.expect(OK_TEXT);
    upstream.respond(1, OK, Some("hi"));
    first.expect(OK_TEXT);
    // All three connections of clients are kept, and the first to the backend is used again.
    third.send(GET);
    upstream.head(5);
    upstream.respond(5, OK, Some("hi"));
    third.expect(OK_TEXT);
    let connects =
        format!("backend_connections_total{{pool=\"default\",backend=\"{}\"}}", backend.addr());
    assert_eq!(gateway.metric(&connects), 2);
}

#[test]
fn requests_beyond_the_first_settings_get_another_connection() {
    let (gateway, backend) = scene();
    let mut clients: Vec<_> = (0..3).map(|_| client(&gateway, GET)).collect();
    gateway.turn();
    let mut upstreams = vec![accept(&backend, &[(MAX_CONCURRENT_STREAMS, 1)])];
    // The limit is known for them.
    upstreams.extend((0..2).map(|_| accept(&backend, &[(MAX_CONCURRENT_STREAMS, 1)])));
    for upstream in &mut upstreams {
        upstream.head(1);
        upstream.respond(1, OK, Some("hi"));
    }
    clients.iter_mut().for_each(|client| client.expect(OK_TEXT));
}

#[test]
fn backend_that_allows_no_stream_gets_no_request() {
    let (gateway, backend) = scene();
    let mut client = client(&gateway, GET);
    for _ in 0..2 {
        let mut upstream = accept(&backend, &[(MAX_CONCURRENT_STREAMS, 0)]);
        assert_eq!(upstream.expect_end(), NO_ERROR);
    }
    client.expect_local_response(502);
}

#[test]
fn connections_have_at_most_the_configured_streams() {
    let (gateway, backend) = scene_with(|config| {
        config.pools[0].protocol = Protocol::Http2 { streams_max: 1 };
    });
    let _clients = [client(&gateway, GET), client(&gateway, GET)];
    accept(&backend, &[]).head(1);
    accept(&backend, &[]).head(1);
}

#[test]
fn limit_of_connections_counts_requests() {
    let (gateway, backend) =
        scene_with(|config| config.pools[0].connections_max = NonZeroU32::new(1));
    let mut first = client(&gateway, GET);
    let mut upstream = accept(&backend, &[]);
    upstream.head(1);
    let mut second = client(&gateway, GET);
    gateway.expect_metric("queued_total{pool=\"default\"}", 1);
    upstream.respond(1, OK, Some("hi"));
    first.expect(OK_TEXT);
    upstream.head(3);
    upstream.respond(3, OK, Some("hi"));
    second.expect(OK_TEXT);
}

#[test]
fn no_request_is_sent_before_the_settings_of_the_backend() {
    let (gateway, backend) = scene_with(|config| {
        config.timeouts.connect = Duration::from_millis(300);
        config.pools[0].retries = 0;
    });
    let mut client = client(&gateway, POST);
    let mut upstream = Http2Peer::serve(backend.accept().into_stream());
    client.expect_local_response(504);
    let mut kinds = Vec::new();
    while let Some(frame) = upstream.read_frame() {
        kinds.push(frame.kind);
    }
    assert_eq!(kinds, [SETTINGS, WINDOW_UPDATE, 7]);
}

#[test]
fn bodies_obey_the_windows_of_the_backend() {
    let (gateway, backend) = scene();
    let mut client = gateway.client();
    client.send("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    let body = "u".repeat(100_000);
    client.send(format!("{:x}\r\n{body}\r\n0\r\nX-Sum: 1\r\n\r\n", body.len()));
    let mut upstream = accept(&backend, &[(INITIAL_WINDOW_SIZE, 10)]);
    assert_eq!(upstream.wait(1, |it| it.body.len() >= 10).body.len(), 10);
    upstream.round_trip();
    assert_eq!(upstream.wait(1, |_| true).body.len(), 10);
    // The window of the connection is 65,535 bytes.
    upstream.window_update(1, 200_000);
    upstream.wait(1, |it| it.body.len() >= 65_535);
    upstream.round_trip();
    assert_eq!(upstream.wait(1, |_| true).body.len(), 65_535);
    upstream.window_update(0, 200_000);
    let request = upstream.wait(1, |it| it.has_ended);
    assert!(request.body == body.as_bytes());
    assert_eq!(pairs(&request.trailers), [("x-sum", "1")]);
    upstream.respond(1, OK, Some("hi"));
    client.expect(OK_TEXT);
}

#[test]
fn upload_without_window_does_not_delay_other_requests() {
    let (gateway, backend) = scene();
    let mut uploading = gateway.client();
    // More than the window of the connection, 65,535 bytes.
    let body = "u".repeat(100_000);
    uploading.send(format!("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{body}"));
    let mut upstream = Http2Peer::serve(backend.accept().into_stream());
    gateway.turn();
    let mut other = client(&gateway, GET);
    gateway.turn();
    upstream.settings(&[(INITIAL_WINDOW_SIZE, 200_000)]);
    upstream.head(1);
    upstream.head(3);
    upstream.respond(3, OK, Some("hi"));
    other.expect(OK_TEXT);
    upstream.window_update(0, 200_000);
    assert!(upstream.wait(1, |it| it.has_ended).body == body.as_bytes());
    upstream.respond(1, OK, Some("hi"));
    uploading.expect(OK_TEXT);
}

#[test]
fn settings_with_a_larger_window_continue_an_upload() {
    let (gateway, backend) = scene();
    let mut client = gateway.client();
    client.send(format!("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{:1000}", ""));
    let mut upstream = accept(&backend, &[(INITIAL_WINDOW_SIZE, 10)]);
    assert_eq!(upstream.wait(1, |it| it.body.len() >= 10).body.len(), 10);
    upstream.round_trip();
    upstream.settings(&[(INITIAL_WINDOW_SIZE, 100_000)]);
    assert_eq!(upstream.wait(1, |it| it.has_ended).body.len(), 1000);
    upstream.respond(1, OK, Some("hi"));
    client.expect(OK_TEXT);
}

#[test]
fn slow_client_stops_only_its_own_stream() {
    let (gateway, backend) = scene();
    let mut slow = client(&gateway, GET);
    let mut upstream = accept(&backend, &[]);
    upstream.head(1);
    upstream.respond(1, &[(":status", "200"), ("content-length", "50000000")], None);
    // Sends until the gateway gives no more credit for this stream.
    let (mut window, mut sent) = (65_536_usize, 0);
    let is_blocked = |upstream: &mut Http2Peer, window: &mut usize| {
        upstream.frame(6, 0, 0, b"windows?");
        while let Some(frame) = upstream.turn() {
            match frame.kind {
                WINDOW_UPDATE if frame.stream == 1 => {
                    *window += u32::from_be_bytes(frame.payload.try_into().unwrap()) as usize;
                }
                6 => break,
                _ => {}
            }
        }
        *window == 0
    };
    let mut blocked = 0;
    while blocked < 3 {
        let count = window.min(16_384);
        if count > 0 {
            upstream.data(1, false, &vec![b'x'; count]);
            (window, sent) = (window - count, sent + count);
        }
        blocked = if is_blocked(&mut upstream, &mut window) { blocked + 1 } else { 0 };
        assert!(sent < 40_000_000, "the gateway gives credit for what its client does not take");
    }
    let mut other = client(&gateway, GET);
    upstream.head(3);
    upstream.respond(3, OK, Some("hi"));
    other.expect(OK_TEXT);
    // The slow one continues.
    slow.expect("HTTP/1.1 200 \r\n");
    slow.read(sent);
    while is_blocked(&mut upstream, &mut window) {}
}

#[test]
fn responses_may_end_in_a_frame_of_their_own() {
    let (gateway, backend) = scene();
    let mut client = gateway.client();
    let mut upstream = None;
    for (at, (method, head, body, expected)) in [
        ("HEAD", OK, "", "HTTP/1.1 200 \r\ndate: d\r\nContent-Length: 2\r\n\r\n"),
        ("GET", &[(":status", "204"), ("date", "d")], "", "HTTP/1.1 204 \r\ndate: d\r\n\r\n"),
        ("GET", &[(":status", "304"), ("date", "d")], "", "HTTP/1.1 304 \r\ndate: d\r\n\r\n"),
        ("GET", OK, "hi", OK_TEXT),
        (
            "GET",
            &[(":status", "200"), ("date", "d"), ("content-length", "0")],
            "",
            "HTTP/1.1 200 \r\ndate: d\r\nContent-Length: 0\r\n\r\n",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        client.send(format!("{method} /a HTTP/1.1\r\nHost: x\r\n\r\n"));
        let upstream = upstream.get_or_insert_with(|| accept(&backend, &[]));
        let stream = 2 * at as u32 + 1;
        assert_eq!(upstream.head(stream)[0].1, method);
        upstream.respond(stream, head, None);
        if !body.is_empty() {
            upstream.data(stream, false, body.as_bytes());
        }
        upstream.round_trip();
        upstream.data(stream, true, b"");
        client.expect(expected);
        // No stream was reset, as none had to be cancelled.
        upstream.round_trip();
        assert_eq!(upstream.wait(stream, |_| true).reset, None);
    }
}

#[test]
fn response_without_body_and_length_has_length_zero() {
    let (gateway, backend) = scene();
    let mut client = client(&gateway, GET);
    let mut upstream = accept(&backend, &[]);
    upstream.head(1);
    upstream.request(1, true, &[(":status", "200"), ("date", "d")]);
    client.expect("HTTP/1.1 200 \r\ndate: d\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn interim_responses_precede_the_final_one() {
    let (gateway, backend) = scene();
    let mut client = gateway.client();
    client.send("POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    let mut upstream = accept(&backend, &[]);
    let head = upstream.head(1);
    assert_eq!(pairs(&head)[4..], [("expect", "100-continue"), ("content-length", "2")]);
    upstream.respond(1, &[(":status", "100")], None);
    client.expect("HTTP/1.1 100 \r\n\r\n");
    client.send("ok");
    assert_eq!(upstream.wait(1, |it| it.has_ended).body, b"ok");
    upstream.respond(1, &[(":status", "103"), ("link", "l")], None);
    client.expect("HTTP/1.1 103 \r\nlink: l\r\n\r\n");
    upstream.respond(1, OK, Some("hi"));
    client.expect(OK_TEXT);
}

#[test]
fn request_that_the_backend_has_not_processed_is_resent() {
    // A second refusal ends it.
    for refusals in [1, 2] {
        let (gateway, backend) = scene();
        let mut client = client(&gateway, POST);
        for _ in 0..refusals {
            let mut upstream = accept(&backend, &[]);
            upstream.wait(1, |it| it.has_ended);
            upstream.reset(1, REFUSED_STREAM);
            // The connection stays open, but the request goes to a new one.
            upstream.round_trip();
        }
        if refusals == 2 {
            client.expect_local_response(502);
            continue;
        }
        let mut upstream = accept(&backend, &[]);
        assert_eq!(upstream.wait(1, |it| it.has_ended).body, b"hi");
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
        upstream.wait(1, |it| it.has_ended);
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
    upstream.wait(1, |it| it.has_ended);
    let mut second = client(&gateway, POST);
    upstream.wait(3, |it| it.has_ended);
    upstream.frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
    let mut other = accept(&backend, &[]);
    assert_eq!(other.wait(1, |it| it.has_ended).body, b"hi");
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
        upstream.wait(1, |it| it.has_ended);
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
        upstream.wait(1, |it| it.has_ended);
        upstream.respond(1, OK, Some("hi"));
        client.expect(OK_TEXT);
        drop(upstream);
        client.send(request);
        let mut upstream = accept(&backend, &[]);
        upstream.wait(1, |it| it.has_ended);
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
    assert_eq!(upstream.wait(1, |it| it.reset.is_some()).reset, Some(CANCEL));
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
    upstream.wait(1, |it| it.body == b"half");
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
        let reset = upstream.wait(stream, |it| it.reset.is_some()).reset;
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
    let reset = upstream.wait(1, |it| it.reset.is_some()).reset;
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
        upstream.wait(stream, |it| it.reset.is_some());
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
    upstream.wait(3, |it| it.has_ended);
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

#[test]
fn upgrades_are_not_forwarded() {
    let (gateway, backend) = scene();
    let _client = client(
        &gateway,
        "GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    );
    let mut upstream = accept(&backend, &[]);
    assert_eq!(upstream.head(1).len(), 4);
}

#[test]
fn idle_connections_are_limited_and_time_out() {
    let (gateway, backend) = scene_with(|config| config.pools[0].keepalive_max = 0);
    let mut client = client(&gateway, GET);
    let mut upstream = accept(&backend, &[]);
    upstream.head(1);
    upstream.respond(1, OK, Some("hi"));
    client.expect(OK_TEXT);
    assert_eq!(upstream.expect_end(), NO_ERROR);

    let (gateway, backend) = scene_with(|config| config.timeouts.idle = Duration::from_millis(100));
    let mut client = self::client(&gateway, GET);
    let mut upstream = accept(&backend, &[]);
    upstream.head(1);
    upstream.respond(1, OK, Some("hi"));
    client.expect(OK_TEXT);
    assert_eq!(upstream.expect_end(), NO_ERROR);
}

#[test]
fn reload_keeps_streams_and_closes_their_connection_after_them() {
    let backend = Backend::start();
    let config = http2_config(&[&backend]);
    let gateway = TestGateway::start(&config);
    let mut old = client(&gateway, GET);
    let mut upstream = accept(&backend, &[]);
    upstream.head(1);
    gateway.reload(config);
    let mut new = client(&gateway, GET);
    let mut other = accept(&backend, &[]);
    other.head(1);
    other.respond(1, OK, Some("hi"));
    new.expect(OK_TEXT);
    upstream.respond(1, OK, Some("hi"));
    old.expect(OK_TEXT);
    assert_eq!(upstream.expect_end(), NO_ERROR);
}

#[test]
fn drain_waits_for_streams() {
    let (gateway, backend) = scene();
    let mut client = client(&gateway, GET);
    let mut upstream = accept(&backend, &[]);
    upstream.head(1);
    gateway.drain();
    upstream.respond(1, OK, Some("hi"));
    assert_eq!(client.response().unwrap().status, 200);
    assert_eq!(upstream.expect_end(), NO_ERROR);
    gateway.join();
}

#[test]
fn silent_connection_gets_no_further_request() {
    let (gateway, backend) =
        scene_with(|config| config.timeouts.response = Duration::from_millis(200));
    let mut late = client(&gateway, GET);
    let mut upstream = accept(&backend, &[]);
    upstream.head(1);
    late.expect_local_response(504);
    assert_eq!(upstream.wait(1, |it| it.reset.is_some()).reset, Some(CANCEL));
    let _other = client(&gateway, GET);
    accept(&backend, &[]).head(1);
}

#[test]
fn health_checks_speak_http2() {
    let (gateway, backend) = scene_with(|config| {
        config.pools[0].health = Some(HealthCheck {
            path: "/up".to_owned(),
            interval: Duration::from_millis(10),
            timeout: DEADLINE,
            rise: 1,
            fall: 1,
        });
    });
    let up = format!("backend_up{{pool=\"default\",backend=\"{}\"}}", backend.addr());
    for (status, is_up) in [("204", 1), ("500", 0), ("302", 1)] {
        let mut check = accept(&backend, &[]);
        let fields = check.head(1);
        let expected = [
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", &backend.addr().to_string()),
            (":path", "/up"),
            ("user-agent", "tollgate-gateway"),
        ];
        assert_eq!(pairs(&fields), expected);
        check.request(1, true, &[(":status", status)]);
        gateway.expect_metric(&up, is_up);
    }
}

/// A configuration whose backend is reached by TLS.
fn tls_config(backend: &Backend, folder: &TempDir) -> Config {
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]\npools:\n  - name: a\n    protocol: h2\n    \
         tls: {{ ca: ca.pem }}\n    backends: [{{ address: \"{}\" }}]\nadmin: 127.0.0.1:0\n",
        backend.addr()
    );
    let mut config = Config::parse(&text, &certificate_file("gateway.yaml")).unwrap();
    config.timeouts.abandoned = DEADLINE;
    log_to(&mut config, folder);
    config
}

#[test]
fn tls_must_agree_on_http2() {
    for (protocols, is_ok) in [(vec![b"h2".to_vec()], true), (Vec::new(), false)] {
        let (backend, folder) = (Backend::start(), TempDir::new().unwrap());
        let gateway = TestGateway::start(&tls_config(&backend, &folder));
        let mut server = (*crate::tls_backends::server("backend", false)).clone();
        server.alpn_protocols = protocols;
        let mut client = client(&gateway, GET);
        let stream = backend.accept().into_stream();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut stream = StreamOwned::new(ServerConnection::new(Arc::new(server)).unwrap(), stream);
        if is_ok {
            let mut upstream = Http2Peer::serve(stream);
            upstream.settings(&[]);
            assert_eq!(pairs(&upstream.head(1))[1], (":scheme", "https"));
            upstream.respond(1, OK, Some("hi"));
            client.expect("HTTP/1.1 200 \r\ndate: d\r\nContent-Length: 2\r\n");
        } else {
            // It sees the end of the connection.
            std::io::Read::read_to_end(&mut stream, &mut Vec::new()).ok();
            client.expect_local_response(502);
            assert_eq!(logged(folder.path())["reason"], "tls-handshake");
        }
    }
}

#[test]
fn requests_of_one_http2_client_are_answered_in_any_order() {
    let (gateway, backend) = scene_with(|config| config.listeners[0].http2 = true);
    let mut client = Http2Peer::connect(gateway.address());
    for stream in [1, 3, 5] {
        client.request(stream, true, GET_FIELDS);
    }
    let mut upstream = accept(&backend, &[]);
    for stream in [5, 1, 3] {
        upstream.head(stream);
        upstream.respond(stream, OK, Some("hi"));
        assert_eq!(client.response(stream).text(), ("200", "hi"));
    }
}
