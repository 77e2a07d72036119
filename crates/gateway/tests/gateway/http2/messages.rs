//! Requests and responses: heads, bodies, trailers and windows.

use std::fs;
use std::num::NonZeroU32;

use tempfile::TempDir;
use tollgate_gateway::config::{AccessLog, LogFormat, LogTarget};

use super::{scene, scene_with};
use crate::support::http2::{
    CANCEL, GET_FIELDS, HEADERS, Http2Peer, INITIAL_WINDOW_SIZE, INTERNAL_ERROR, NO_ERROR,
    PROTOCOL_ERROR, WINDOW_UPDATE, block,
};
use crate::support::{Backend, GET, OK, TestGateway};

fn post<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let post = [(":method", "POST"), (":scheme", "http"), (":path", "/a"), (":authority", "x")];
    [&post, more].concat()
}

const CHUNKED_POST: &str = "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn request_and_response_are_translated() {
    let (_gateway, mut client, backend) = scene();
    let fields =
        [GET_FIELDS, &[("accept", "*/*"), ("cookie", "a=1"), ("x-y", "z"), ("cookie", "b=2")]];
    client.request(1, true, &fields.concat());
    let mut upstream = backend.accept();
    upstream
        .expect("GET /a HTTP/1.1\r\nHost: x\r\naccept: */*\r\nx-y: z\r\ncookie: a=1; b=2\r\n\r\n");
    upstream.send(
        "HTTP/1.1 200 OK\r\nDate: d\r\nX-Name:  Value \r\nKeep-Alive: timeout=5\r\n\
         Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nContent-Length: 2\r\n\r\nhi",
    );
    let response = client.response(1);
    assert_eq!(response.text(), ("200", "hi"));
    let headers: Vec<_> =
        response.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(headers, [("date", "d"), ("x-name", "Value"), ("content-length", "2")]);
    // The connection to the backend is used again.
    client.request(3, true, GET_FIELDS);
    upstream.expect(GET);
    upstream.send(OK);
    assert_eq!(client.response(3).text(), ("200", "hi"));
}

#[test]
fn host_takes_the_place_of_a_missing_authority() {
    let (_gateway, mut client, backend) = scene();
    client.request(
        1,
        true,
        &[(":method", "GET"), (":scheme", "http"), (":path", "/a"), ("host", "x")],
    );
    backend.accept().expect(GET);
}

#[test]
fn requests_of_one_connection_are_answered_in_any_order() {
    let (_gateway, mut client, backend) = scene();
    for stream in [1, 3, 5] {
        let path = format!("/{stream}");
        let fields = [GET_FIELDS, &[]].concat();
        let fields: Vec<_> = fields
            .into_iter()
            .map(|(name, value)| (name, if name == ":path" { path.as_str() } else { value }))
            .collect();
        client.request(stream, true, &fields);
    }
    let mut upstreams: Vec<_> = (0..3).map(|_| backend.accept()).collect();
    for upstream in upstreams.iter_mut().rev() {
        let head = upstream.head().unwrap();
        let path = head.split(' ').nth(1).unwrap();
        let body = format!("of {path}");
        upstream.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    }
    for stream in [1, 3, 5] {
        assert_eq!(client.response(stream).text(), ("200", format!("of /{stream}").as_str()));
    }
}

#[test]
fn body_with_a_length_is_forwarded_as_it_is() {
    let (_gateway, mut client, backend) = scene();
    client.request(1, false, &post(&[("content-length", "5")]));
    client.data(1, false, b"he");
    client.data(1, true, b"llo");
    let mut upstream = backend.accept();
    upstream.expect("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    upstream.send(OK);
    assert_eq!(client.response(1).text(), ("200", "hi"));
}

#[test]
fn body_without_length_is_chunked_and_keeps_its_trailers() {
    let (_gateway, mut client, backend) = scene();
    client.request(1, false, &post(&[]));
    let mut upstream = backend.accept();
    upstream.expect(CHUNKED_POST);
    client.data(1, false, b"hello");
    upstream.expect("5\r\nhello\r\n");
    client.request(1, true, &[("x-sum", "1"), ("content-length", "9"), ("host", "y")]);
    // Fields that concern framing or routing are dropped.
    upstream.expect("0\r\nx-sum: 1\r\n\r\n");
    upstream.send(
        "HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n\
         2\r\nhi\r\n0\r\nX-Sum: 2\r\n\r\n",
    );
    let response = client.response(1);
    assert_eq!(response.text(), ("200", "hi"));
    assert_eq!(response.headers, [("date".to_owned(), "d".to_owned())]);
    assert_eq!(response.trailers, [("x-sum".to_owned(), "2".to_owned())]);
}

#[test]
fn empty_bodies_have_no_chunks() {
    let (_gateway, mut client, backend) = scene();
    client.request(1, true, &post(&[]));
    let mut upstream = backend.accept();
    upstream.expect("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    upstream.send(OK);
    client.response(1);
    client.request(3, false, &post(&[]));
    upstream.expect(CHUNKED_POST);
    client.data(3, true, b"");
    upstream.expect("0\r\n\r\n");
}

#[test]
fn responses_without_body_end_with_their_head() {
    let (_gateway, mut client, backend) = scene();
    let head: Vec<_> = GET_FIELDS
        .iter()
        .map(|&(name, value)| (name, if name == ":method" { "HEAD" } else { value }))
        .collect();
    client.request(1, true, &head);
    let mut upstream = backend.accept();
    upstream.expect("HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n");
    upstream.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 99\r\n\r\n");
    let response = client.response(1);
    assert_eq!((response.text(), response.header("content-length")), (("200", ""), Some("99")));
    for (stream, response) in [
        (3, "HTTP/1.1 204 No Content\r\nDate: d\r\n\r\n"),
        (5, "HTTP/1.1 304 Not Modified\r\nDate: d\r\nContent-Length: 5\r\n\r\n"),
        (7, "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 0\r\n\r\n"),
    ] {
        client.request(stream, true, GET_FIELDS);
        upstream.expect(GET);
        upstream.send(response);
        let received = client.response(stream);
        assert_eq!(received.text(), (&response[9..12], ""));
        assert_eq!(received.reset, None);
    }
}

#[test]
fn body_that_ends_with_the_backends_connection_is_complete() {
    let (_gateway, mut client, backend) = scene();
    client.request(1, true, GET_FIELDS);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send("HTTP/1.1 200 OK\r\nDate: d\r\n\r\nall of it");
    drop(upstream);
    let response = client.response(1);
    assert_eq!((response.text(), response.has_ended), (("200", "all of it"), true));
    // The client's connection continues.
    client.round_trip();
}

#[test]
fn broken_off_response_resets_its_stream() {
    let (_gateway, mut client, backend) = scene();
    client.request(1, true, GET_FIELDS);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 9\r\n\r\nhalf");
    drop(upstream);
    let response = client.response(1);
    assert_eq!((response.has_ended, response.reset), (false, Some(INTERNAL_ERROR)));
    client.round_trip();
}

#[test]
fn interim_responses_precede_the_final_one() {
    let (_gateway, mut client, backend) = scene();
    client.request(1, false, &post(&[("expect", "100-continue"), ("content-length", "2")]));
    let mut upstream = backend.accept();
    upstream
        .expect("POST /a HTTP/1.1\r\nHost: x\r\nexpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    upstream.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: l\r\n\r\n");
    assert_eq!(client.wait(1, |received| received.interim.len() == 2).interim, ["100", "103"]);
    client.data(1, true, b"ok");
    upstream.expect("ok");
    upstream.send(OK);
    assert_eq!(client.response(1).text(), ("200", "hi"));
}

#[test]
fn response_obeys_both_windows() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&super::http2_config(&backend));
    let mut client = Http2Peer::with_settings(gateway.address(), &[(INITIAL_WINDOW_SIZE, 10)]);
    client.request(1, true, GET_FIELDS);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    let body = "x".repeat(100_000);
    upstream.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{body}"));
    assert_eq!(client.wait(1, |received| received.body.len() >= 10).body.len(), 10);
    client.round_trip();
    assert_eq!(client.wait(1, |_| true).body.len(), 10);
    // The window of the connection is 65,535 bytes.
    client.window_update(1, 200_000);
    client.wait(1, |received| received.body.len() >= 65_535);
    client.round_trip();
    assert_eq!(client.wait(1, |_| true).body.len(), 65_535);
    client.window_update(0, 200_000);
    let response = client.response(1);
    assert!(response.body == body.as_bytes() && response.has_ended);
}

#[test]
fn trailers_need_no_window() {
    let (_gateway, mut client, backend) = scene();
    client.request(1, true, GET_FIELDS);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    // The window of the connection is as long as the body.
    let body = "x".repeat(65_535);
    upstream
        .send(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n{body}\r\n"));
    client.wait(1, |received| received.body.len() == 65_535);
    upstream.send("0\r\nX-Sum: 2\r\n\r\n");
    let response = client.response(1);
    assert!(response.body == body.as_bytes() && response.has_ended);
    assert_eq!(response.trailers, [("x-sum".to_owned(), "2".to_owned())]);
}

#[test]
fn settings_with_a_larger_window_continue_a_response() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&super::http2_config(&backend));
    let mut client = Http2Peer::with_settings(gateway.address(), &[(INITIAL_WINDOW_SIZE, 10)]);
    client.request(1, true, GET_FIELDS);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{:1000}", ""));
    assert_eq!(client.wait(1, |received| received.body.len() >= 10).body.len(), 10);
    client.round_trip();
    client.settings(&[(INITIAL_WINDOW_SIZE, 100_000)]);
    let response = client.response(1);
    assert_eq!((response.body.len(), response.has_ended), (1000, true));
}

#[test]
fn stream_without_window_does_not_delay_others() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&super::http2_config(&backend));
    let mut client = Http2Peer::with_settings(gateway.address(), &[(INITIAL_WINDOW_SIZE, 1000)]);
    client.request(1, true, GET_FIELDS);
    let mut blocked = backend.accept();
    blocked.expect(GET);
    blocked.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
    // The gateway takes one piece of it.
    let sent = blocked.send_until_blocked(&vec![b'x'; 100_000_000]);
    assert!(sent < 50_000_000, "{sent}");
    client.wait(1, |received| received.body.len() == 1000);
    client.request(3, true, GET_FIELDS);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(OK);
    assert_eq!(client.response(3).text(), ("200", "hi"));
}

#[test]
fn long_upload_gets_credit_as_the_backend_takes_it() {
    let (_gateway, mut client, backend) = scene();
    client.request(1, false, &post(&[("content-length", "300000")]));
    let mut upstream = backend.accept();
    upstream.expect("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n");
    let mut window = 65_536;
    let mut sent = 0;
    while sent < 300_000 {
        while window == 0 {
            let frame = client.turn().unwrap();
            if frame.kind == WINDOW_UPDATE && frame.stream == 1 {
                window += u32::from_be_bytes(frame.payload.try_into().unwrap());
            }
        }
        let count = window.min(300_000 - sent).min(16_384);
        (window, sent) = (window - count, sent + count);
        client.data(1, sent == 300_000, &vec![b'u'; count as usize]);
        upstream.expect(vec![b'u'; count as usize]);
    }
    upstream.send(OK);
    assert_eq!(client.response(1).text(), ("200", "hi"));
}

#[test]
fn upload_without_a_backend_that_takes_it_gets_no_credit() {
    let (gateway, mut client, backend) = scene_with(|config| {
        config.pools[0].connections_max = NonZeroU32::new(1);
    });
    client.request(1, true, GET_FIELDS);
    let mut busy = backend.accept();
    busy.expect(GET);
    // It waits in the queue of the pool.
    client.request(3, false, &post(&[("content-length", "65536")]));
    for at in 1..=4 {
        client.data(3, at == 4, &[b'u'; 16_384]);
    }
    gateway.turn();
    client.frame(6, 0, 0, b"12345678");
    loop {
        let frame = client.turn().unwrap();
        assert!(frame.kind != WINDOW_UPDATE || frame.stream != 3, "credit for a queued request");
        if frame.kind == 6 {
            break;
        }
    }
    busy.send(OK);
    client.response(1);
    busy.expect("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 65536\r\n\r\n");
    busy.expect(vec![b'u'; 65_536]);
}

#[test]
fn response_before_the_end_of_an_upload_stops_it() {
    let (_gateway, mut client, backend) = scene();
    client.request(1, false, &post(&[("content-length", "100")]));
    let mut upstream = backend.accept();
    upstream.expect("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n");
    upstream.send("HTTP/1.1 403 Forbidden\r\nDate: d\r\nContent-Length: 2\r\n\r\nno");
    let response = client.wait(1, |received| received.reset.is_some());
    assert_eq!(response.text(), ("403", "no"));
    assert_eq!((response.has_ended, response.reset), (true, Some(NO_ERROR)));
    client.round_trip();
}

#[test]
fn reset_by_the_client_cancels_the_request_at_the_backend() {
    let (gateway, mut client, backend) = scene();
    client.request(1, true, GET_FIELDS);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    client.reset(1, CANCEL);
    upstream.expect_closed();
    gateway.expect_metric("client_http2_streams_reset_total", 1);
    client.request(3, true, GET_FIELDS);
    backend.accept().expect(GET);
}

#[test]
fn local_responses_leave_the_connection_open() {
    let (_gateway, mut client, backend) = scene_with(|config| {
        config.routes[0].path_prefix = "/in".to_owned();
        config.limits.body_bytes = Some(5);
        config.limits.header_bytes = 1024;
        config.limits.headers = 20;
    });
    let get = |path: &'static str| {
        [(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", path)]
    };
    let long = "l".repeat(2000);
    let huge = "h".repeat(9000);
    let many = [("x", "y"); 30];
    let upload = [(":method", "POST"), ("content-length", "6")];
    for (at, (status, fields)) in [
        ("404", get("/out").to_vec()),
        ("431", [&get("/in")[..], &[("x-long", long.as_str())]].concat()),
        ("431", [&get("/in")[..], &[("x-huge", huge.as_str())]].concat()),
        ("431", [&get("/in")[..], &many].concat()),
        ("417", [&get("/in")[..], &[("expect", "more")]].concat()),
        ("413", [&upload[..1], &get("/in")[1..], &upload[1..]].concat()),
        ("405", [&[(":method", "TRACE")], &get("/in")[1..]].concat()),
    ]
    .into_iter()
    .enumerate()
    {
        let stream = 2 * at as u32 + 1;
        client.request(stream, status != "413", &fields);
        let response = client.response(stream);
        assert_eq!(response.status, status);
        assert_eq!(response.header("connection"), None);
        assert!(response.has_ended, "{status}");
    }
    client.request(101, true, &get("/in"));
    backend.accept().expect("GET /in HTTP/1.1\r\nHost: x\r\n\r\n");
}

#[test]
fn log_and_via_name_the_version() {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("access.log");
    let (gateway, mut client, backend) = scene_with(|config| {
        config.forwarded.via = Some("gate".to_owned());
        let to = LogTarget::File(log.clone());
        config.access_log = Some(AccessLog { to, format: LogFormat::Combined });
    });
    client.request(1, true, &[GET_FIELDS, &[("user-agent", "frames")]].concat());
    let mut upstream = backend.accept();
    upstream.expect("GET /a HTTP/1.1\r\nHost: x\r\nuser-agent: frames\r\nVia: 2.0 gate\r\n\r\n");
    upstream.send(OK);
    assert_eq!(client.response(1).header("via"), Some("1.1 gate"));
    gateway.drain();
    drop(client);
    gateway.join();
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains("\"GET /a HTTP/2.0\" 200 2 \"-\" \"frames\""), "{text}");
}

#[test]
fn head_in_continuation_frames_is_one_head() {
    let (_gateway, mut client, backend) = scene();
    let block = block(GET_FIELDS);
    let (first, rest) = block.split_at(7);
    client.frame(HEADERS, 1, 1, first);
    client.frame(9, 0, 1, &rest[..3]);
    client.frame(9, 4, 1, &rest[3..]);
    backend.accept().expect(GET);
}

/// The authority is a target and a host at once.
#[test]
fn longest_heads_of_the_highest_limit_are_answered() {
    let (_gateway, mut client, backend) = scene_with(|config| {
        config.limits.header_bytes = 65_536;
        config.limits.headers = 256;
    });
    let mut stream = 1;
    for length in [40_000, 65_000, 70_000, 74_500, 80_000, 90_000] {
        let authority = "a".repeat(length);
        let connect = [(":method", "CONNECT"), (":authority", authority.as_str())];
        let long_host = [GET_FIELDS, &[("x-long", authority.as_str())]].concat();
        for fields in [&connect[..], &long_host] {
            let block = block(fields);
            let mut pieces = block.chunks(16_000).peekable();
            let mut kind = HEADERS;
            while let Some(piece) = pieces.next() {
                let end_headers = if pieces.peek().is_none() { 4 } else { 0 };
                let end_stream = u8::from(kind == HEADERS);
                client.frame(kind, end_headers | end_stream, stream, piece);
                kind = 9;
            }
            if length <= 65_000 && fields.len() > 2 {
                backend.accept();
            } else {
                let response = client.response(stream);
                assert!(
                    response.status.starts_with('4') || response.status == "501",
                    "{length}: {}",
                    response.status
                );
            }
            stream += 2;
        }
    }
}

#[test]
fn malformed_requests_are_logged() {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("access.log");
    let (gateway, mut client, backend) = scene_with(|config| {
        let to = LogTarget::File(log.clone());
        config.access_log = Some(AccessLog { to, format: LogFormat::Json });
    });
    client.request(1, true, &[GET_FIELDS, &[("X-Upper", "1")]].concat());
    assert_eq!(client.response(1).reset, Some(PROTOCOL_ERROR));
    client.request(3, false, &post(&[("content-length", "9")]));
    let mut upstream = backend.accept();
    upstream.expect("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n");
    client.data(3, true, b"short");
    assert_eq!(client.response(3).reset, Some(PROTOCOL_ERROR));
    upstream.expect_closed();
    gateway.drain();
    drop(client);
    gateway.join();
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let reasons: Vec<_> = lines.iter().map(|line| &line["reason"]).collect();
    assert_eq!(reasons, ["malformed", "malformed"]);
    assert_eq!(lines[0]["status"], 400);
}

#[test]
fn window_of_an_upload_grows_while_the_backend_keeps_up() {
    let (_gateway, mut client, backend) = scene();
    client.request(1, false, &post(&[]));
    let mut upstream = backend.accept();
    let reading = std::thread::spawn(move || upstream.read_to_close());
    // From 128 KiB to a quarter of the connection's window, with credit for half of the former.
    client.send_until_credit(1, 192 << 10);
    client.reset(1, CANCEL);
    reading.join().unwrap();
}

#[test]
fn streams_and_windows_of_clients_are_configured() {
    const STREAMS: u32 = 120;
    let (_gateway, mut client, backend) = scene_with(|config| {
        config.limits.http2_streams = STREAMS;
        config.limits.http2_stream_window = 300_000;
        config.limits.http2_connection_window = 500_000;
    });
    let settings = client.read_frame().unwrap();
    let values: Vec<(u16, u32)> = settings
        .payload
        .chunks_exact(6)
        .map(|setting| {
            let (parameter, value) = setting.split_at(2);
            (
                u16::from_be_bytes(parameter.try_into().unwrap()),
                u32::from_be_bytes(value.try_into().unwrap()),
            )
        })
        .collect();
    assert!(values.contains(&(3, STREAMS)) && values.contains(&(4, 300_000)), "{values:?}");
    let window = client.read_frame().unwrap();
    assert_eq!((window.kind, window.stream), (WINDOW_UPDATE, 0));
    assert_eq!(window.payload, (500_000_u32 - 65_535).to_be_bytes());
    // All are in progress at once.
    for at in 0..STREAMS {
        client.request(2 * at + 1, true, GET_FIELDS);
    }
    let upstreams: Vec<_> = (0..STREAMS)
        .map(|_| {
            let mut upstream = backend.accept();
            upstream.expect(GET);
            upstream
        })
        .collect();
    for mut upstream in upstreams {
        upstream.send(OK);
    }
    for at in 0..STREAMS {
        assert_eq!(client.response(2 * at + 1).text(), ("200", "hi"));
    }
}
