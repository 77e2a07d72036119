//! Requests and responses: heads, bodies, trailers and windows.

use super::{OK, OK_TEXT, accept, client, pairs, scene, scene_with};
use crate::support::GET;
use crate::support::http2::{
    ACK, END_HEADERS, END_STREAM, HEADERS, Http2Peer, INITIAL_WINDOW_SIZE, PING, WINDOW_UPDATE,
    block,
};

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
    assert!(upstream.wait(1, |received| received.has_ended).body.is_empty());
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
    assert_eq!(upstream.wait(1, |received| received.body.len() == 5).body, b"hello");
    client.request(1, true, &[("x-sum", "2"), ("content-length", "9")]);
    let request = upstream.wait(1, |received| received.has_ended);
    assert_eq!(pairs(&request.trailers), [("x-sum", "2")]);
    // The head, the body and the trailers of a response without length arrive at once.
    upstream.respond(1, &[(":status", "200"), ("date", "d")], None);
    upstream.data(1, false, b"hi");
    assert_eq!(client.wait(1, |received| received.body.len() == 2).status, "200");
    upstream.request(1, true, &[("x-sum", "3"), ("set-cookie", "a")]);
    let response = client.response(1);
    assert_eq!((pairs(&response.trailers), response.reset), (vec![("x-sum", "3")], None));
}

#[test]
fn trailers_behind_bodies_with_a_length_pass() {
    let (gateway, backend) = scene_with(|config| config.listeners[0].http2 = true);
    let mut client = Http2Peer::connect(gateway.address());
    let post = [(":method", "POST"), (":scheme", "http"), (":path", "/a"), (":authority", "x")];
    let head = [&post[..], &[("te", "trailers"), ("content-length", "5")]].concat();
    client.request(1, false, &head);
    client.data(1, false, b"hello");
    client.request(1, true, &[("x-sum", "2"), ("content-length", "9")]);
    let mut upstream = accept(&backend, &[]);
    let request = upstream.wait(1, |received| received.has_ended);
    assert_eq!(
        (request.body.as_slice(), pairs(&request.trailers)),
        (&b"hello"[..], vec![("x-sum", "2")])
    );
    upstream.respond(1, OK, None);
    upstream.data(1, false, b"hi");
    upstream.request(1, true, &[("grpc-status", "0"), ("set-cookie", "a")]);
    let response = client.response(1);
    assert_eq!((response.text(), response.reset), (("200", "hi"), None));
    assert_eq!(pairs(&response.trailers), [("grpc-status", "0")]);
}

#[test]
fn fields_that_must_not_be_indexed_keep_their_mark() {
    let (gateway, backend) = scene_with(|config| config.listeners[0].http2 = true);
    // RFC 7541, section 6.2.3. The texts are shorter than in Huffman's code.
    let secret = |name, value| {
        let mut literal = block(&[(name, value)]);
        literal[0] = 0x10;
        literal
    };
    let others = [(":method", "GET"), (":scheme", "http"), (":authority", "x"), ("~|", "{}")];
    let crumbs = [secret("cookie", "~~~~~~~~~"), block(&[("cookie", "~~~~~~~~~")])].concat();
    let request = [secret(":path", "/~~"), block(&others), secret("~~", "{}"), crumbs].concat();
    let mut client = Http2Peer::connect(gateway.address());
    client.frame(HEADERS, END_HEADERS | END_STREAM, 1, &request);
    let mut upstream = accept(&backend, &[]);
    let forwarded = |peer: &mut Http2Peer, expected: &[&[u8]]| {
        let head = loop {
            let frame = peer.turn().expect("a frame");
            if frame.kind == HEADERS {
                break frame.payload;
            }
        };
        for field in expected {
            let is_there = head.windows(field.len()).any(|window| window == *field);
            assert!(is_there, "{} in {}", field.escape_ascii(), head.escape_ascii());
        }
    };
    let plain = b"\x40\x02~|\x02{}";
    let marked = b"\x10\x02~~\x02{}";
    forwarded(&mut upstream, &[b"\x14\x03/~~", plain, marked, b"\x1f\x11\x14~~~~~~~~~; ~~~~~~~~~"]);
    let response = [block(&[(":status", "200"), ("~|", "{}")]), secret("~~", "{}")].concat();
    upstream.frame(HEADERS, END_HEADERS, 1, &response);
    forwarded(&mut client, &[plain, marked]);
    upstream.frame(HEADERS, END_HEADERS | END_STREAM, 1, &secret("~-", "{}"));
    forwarded(&mut client, &[b"\x10\x02~-\x02{}"]);
}

#[test]
fn bodies_obey_the_windows_of_the_backend() {
    let (gateway, backend) = scene();
    let mut client = gateway.client();
    client.send("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    let body = "u".repeat(100_000);
    client.send(format!("{:x}\r\n{body}\r\n0\r\nX-Sum: 1\r\n\r\n", body.len()));
    let mut upstream = accept(&backend, &[(INITIAL_WINDOW_SIZE, 10)]);
    assert_eq!(upstream.wait(1, |received| received.body.len() >= 10).body.len(), 10);
    upstream.round_trip();
    assert_eq!(upstream.wait(1, |_| true).body.len(), 10);
    // The window of the connection is 65,535 bytes.
    upstream.window_update(1, 200_000);
    upstream.wait(1, |received| received.body.len() >= 65_535);
    upstream.round_trip();
    assert_eq!(upstream.wait(1, |_| true).body.len(), 65_535);
    upstream.window_update(0, 200_000);
    let request = upstream.wait(1, |received| received.has_ended);
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
    assert!(upstream.wait(1, |received| received.has_ended).body == body.as_bytes());
    upstream.respond(1, OK, Some("hi"));
    uploading.expect(OK_TEXT);
}

#[test]
fn settings_with_a_larger_window_continue_an_upload() {
    let (gateway, backend) = scene();
    let mut client = gateway.client();
    client.send(format!("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{:1000}", ""));
    let mut upstream = accept(&backend, &[(INITIAL_WINDOW_SIZE, 10)]);
    assert_eq!(upstream.wait(1, |received| received.body.len() >= 10).body.len(), 10);
    upstream.round_trip();
    upstream.settings(&[(INITIAL_WINDOW_SIZE, 100_000)]);
    assert_eq!(upstream.wait(1, |received| received.has_ended).body.len(), 1000);
    upstream.respond(1, OK, Some("hi"));
    client.expect(OK_TEXT);
}

#[test]
fn window_of_a_response_grows_while_its_client_keeps_up() {
    let (gateway, backend) = scene();
    let mut client = client(&gateway, GET);
    let mut upstream = accept(&backend, &[]);
    upstream.head(1);
    upstream.respond(1, &[(":status", "200"), ("content-length", "50000000")], None);
    let reading = std::thread::spawn(move || client.read_to_close());
    // From 128 KiB to the default of 256 KiB, with credit for half of the former.
    upstream.send_until_credit(1, 192 << 10);
    drop(upstream);
    reading.join().unwrap();
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
        upstream.frame(PING, 0, 0, b"windows?");
        while let Some(frame) = upstream.turn() {
            match frame.kind {
                WINDOW_UPDATE if frame.stream == 1 => {
                    *window += u32::from_be_bytes(frame.payload.try_into().unwrap()) as usize;
                }
                PING if frame.flags & ACK != 0 => break,
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
    assert_eq!(upstream.wait(1, |received| received.has_ended).body, b"ok");
    upstream.respond(1, &[(":status", "103"), ("link", "l")], None);
    client.expect("HTTP/1.1 103 \r\nlink: l\r\n\r\n");
    upstream.respond(1, OK, Some("hi"));
    client.expect(OK_TEXT);
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
fn requests_of_one_http2_client_are_answered_in_any_order() {
    let (gateway, backend) = scene_with(|config| config.listeners[0].http2 = true);
    let mut client = Http2Peer::connect(gateway.address());
    for (stream, path) in [(1, "/1"), (3, "/3"), (5, "/5")] {
        let fields =
            [(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", path)];
        client.request(stream, true, &fields);
    }
    let mut upstream = accept(&backend, &[]);
    // A request that arrives together with the settings of the backend may precede those that wait for them.
    let mut forwarded = [1, 3, 5].map(|stream| {
        let head = upstream.head(stream);
        let path =
            pairs(&head).into_iter().find_map(|(name, value)| (name == ":path").then_some(value));
        (path.unwrap()[1..].parse().unwrap(), stream)
    });
    forwarded.sort_unstable();
    let [first, second, third] = forwarded;
    for (stream, forwarded) in [third, first, second] {
        upstream.respond(forwarded, OK, Some("hi"));
        assert_eq!(client.response(stream).text(), ("200", "hi"));
    }
}
