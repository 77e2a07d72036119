use tollgate_http2::{Encoder, Field, FieldLimits, Limits, Role};

use crate::{GET, Side, data, headers, reset};

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    let mut encoder = Encoder::new(0);
    for (name, value) in fields {
        encoder.encode(name.as_bytes(), value.as_bytes(), false, &mut block);
    }
    block
}

/// A GET with other fields behind or, if the name is a pseudo-field, in place of its own.
fn request(fields: &[(&str, &str)]) -> Vec<u8> {
    let own = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    let is_replaced = |name| fields.iter().any(|(other, _)| *other == name);
    let mut all: Vec<_> = own.into_iter().filter(|(name, _)| !is_replaced(*name)).collect();
    let pseudo = |(name, _): &&(&str, &str)| name.starts_with(':');
    all.extend(fields.iter().filter(|field| pseudo(field) && field.1 != "-"));
    all.extend(fields.iter().filter(|field| !pseudo(field)));
    block(&all)
}

/// Result of a request without a body.
fn is_accepted(block: &[u8]) -> bool {
    let limits = Limits { extended_connect: true, ..Limits::default() };
    let mut server = Side::new(Role::Server, limits);
    let events = server.receive(&headers(1, true, block)).unwrap();
    let sent = server.sent();
    match events[0].split_whitespace().next() {
        Some("Request") => assert_eq!(sent, []),
        Some("Refused") => assert_eq!(sent, [reset(1, 1)]),
        other => panic!("{other:?}"),
    }
    events[0].starts_with("Request")
}

#[test]
fn valid_requests_are_accepted() {
    let valid: &[&[(&str, &str)]] = &[
        &[],
        &[(":path", "*"), (":method", "OPTIONS")],
        &[(":path", "/ü?q")],
        &[(":authority", "[::1]:8080")],
        &[(":authority", "-"), ("host", "a")],
        &[("host", "A")],
        &[("te", "trailers")],
        &[("cookie", "a=b"), ("cookie", "c=d")],
        &[("x", "a\tb c")],
        &[("x", "")],
        &[("content-length", "0")],
        &[(":method", "CONNECT"), (":scheme", "-"), (":path", "-"), (":authority", "a:443")],
        &[(":method", "CONNECT"), (":protocol", "websocket")],
    ];
    for fields in valid {
        assert!(is_accepted(&request(fields)), "{fields:?}");
    }
}

#[test]
fn malformed_requests_are_refused() {
    let malformed: &[&[(&str, &str)]] = &[
        &[(":method", "-")],
        &[(":scheme", "-")],
        &[(":path", "-")],
        &[(":path", "")],
        &[(":path", "*")],
        &[(":path", "a")],
        &[(":path", "/a b")],
        &[(":method", "G T")],
        &[(":method", "")],
        &[(":scheme", "")],
        &[(":scheme", "1a")],
        &[(":authority", "")],
        &[(":authority", "u@a")],
        &[(":authority", "a/")],
        &[("host", "b")],
        &[("host", "a"), ("host", "a")],
        &[(":authority", "-"), ("host", "u@a")],
        &[(":status", "200")],
        &[(":unknown", "a")],
        &[(":path", "/"), (":path", "/")],
        &[("X", "a")],
        &[("", "a")],
        &[("a b", "a")],
        &[("a:", "a")],
        &[("x", "a\r\nb")],
        &[("x", "a\0")],
        &[("x", "a\nb")],
        &[("x", " a")],
        &[("x", "a\t")],
        &[("connection", "close")],
        &[("keep-alive", "a")],
        &[("proxy-connection", "a")],
        &[("transfer-encoding", "chunked")],
        &[("upgrade", "h2c")],
        &[("te", "gzip")],
        &[("content-length", "1")],
        &[("content-length", "-1")],
        &[("content-length", "0"), ("content-length", "0")],
        &[(":protocol", "websocket")],
        &[(":method", "CONNECT")],
        &[(":method", "CONNECT"), (":scheme", "-"), (":path", "-"), (":authority", "-")],
        &[(":method", "CONNECT"), (":protocol", "websocket"), (":path", "-")],
        &[(":method", "CONNECT"), (":protocol", "")],
    ];
    for fields in malformed {
        assert!(!is_accepted(&request(fields)), "{fields:?}");
    }
    // A pseudo-field after a header.
    let late = [(":method", "GET"), (":scheme", "http"), ("x", "y"), (":path", "/")];
    assert!(!is_accepted(&block(&late)));
}

#[test]
fn protocol_of_connect_needs_the_setting() {
    let mut server = Side::server();
    let block = request(&[(":method", "CONNECT"), (":protocol", "websocket")]);
    let events = server.receive(&headers(1, true, &block)).unwrap();
    assert_eq!(events, ["Refused { stream: 1, error: Malformed(PseudoField) }"]);
}

#[test]
fn connected_stream_takes_no_further_fields() {
    let connect = block(&[(":method", "CONNECT"), (":authority", "a:443")]);
    let mut server = Side::server();
    server.receive(&headers(1, false, &connect)).unwrap();
    let events = server.receive(&headers(1, true, &block(&[("x", "y")]))).unwrap();
    let error = "cause: Error(Malformed(HeadersInTunnel))";
    assert_eq!(events, [format!("Reset {{ stream: 1, token: 0, {error} }}")]);
    assert_eq!(server.sent(), [reset(1, 1)]);
    // A rejected CONNECT has a response like others.
    for (status, expected) in [("200", "Reset"), ("403", "Trailers")] {
        let mut client = Side::client();
        let fields = [Field::new(b":method", b"CONNECT"), Field::new(b":authority", b"a:443")];
        client.connection.send_request(fields, false, 7, &mut client.out).unwrap();
        client.receive(&headers(1, false, &block(&[(":status", status)]))).unwrap();
        let events = client.receive(&headers(1, true, &block(&[("x", "y")]))).unwrap();
        assert!(events[0].starts_with(expected), "{events:?}");
    }
}

#[test]
fn any_success_connects() {
    for status in ["200", "204", "299"] {
        let mut client = Side::client();
        let fields = [Field::new(b":method", b"CONNECT"), Field::new(b":authority", b"a:443")];
        client.connection.send_request(fields, false, 7, &mut client.out).unwrap();
        client.receive(&headers(1, false, &block(&[(":status", status)]))).unwrap();
        let events = client.receive(&data(1, false, b"a")).unwrap();
        assert_eq!(events, ["Data { stream: 1, token: 7, data: [97], end_stream: false }"]);
    }
}

#[test]
fn pseudo_fields_are_found() {
    let mut server = Side::server();
    let block =
        request(&[(":method", "POST"), (":path", "/p?q"), ("content-length", "12"), ("x", "y")]);
    server.receive(&headers(1, false, &block)).unwrap();
    let fields = &server.fields;
    assert_eq!((fields.method(), fields.path()), ("POST", Some("/p?q")));
    assert_eq!(
        (fields.scheme(), fields.authority(), fields.protocol()),
        (Some("http"), Some("a"), None)
    );
    assert_eq!(fields.content_length(), Some(12));
    let headers: Vec<_> = fields.headers().map(|field| (field.name, field.value)).collect();
    assert_eq!(headers, [(&b"content-length"[..], &b"12"[..]), (b"x", b"y")]);
}

#[test]
fn length_of_the_body_is_enforced() {
    let post = |length| request(&[(":method", "POST"), ("content-length", length)]);
    let trailers = || headers(1, true, &block(&[("t", "v")]));
    for (length, frames, is_valid) in [
        ("3", vec![data(1, true, b"abc")], true),
        ("3", vec![data(1, false, b"ab"), data(1, false, b"c"), data(1, true, b"")], true),
        ("3", vec![data(1, false, b"abc"), trailers()], true),
        ("0", vec![data(1, true, b"")], true),
        ("3", vec![data(1, true, b"ab")], false),
        ("3", vec![data(1, false, b"ab"), data(1, false, b"cd")], false),
        ("3", vec![data(1, false, b"ab"), data(1, true, b"")], false),
        ("3", vec![data(1, false, b"ab"), trailers()], false),
        ("0", vec![data(1, false, b"a")], false),
    ] {
        let mut server = Side::server();
        server.receive(&headers(1, false, &post(length))).unwrap();
        let events = server.receive(&frames.concat()).unwrap();
        let reset_event = "Reset { stream: 1, token: 0, cause: Error(Malformed(BodyLength)) }";
        assert_eq!(
            events.last().is_some_and(|event| event == reset_event),
            !is_valid,
            "{length} {frames:?}"
        );
        assert_eq!(server.sent(), if is_valid { vec![] } else { vec![reset(1, 1)] });
    }
}

#[test]
fn malformed_responses_reset_their_stream() {
    for (fields, is_valid) in [
        (&[(":status", "200")][..], true),
        (&[(":status", "999"), ("te", "trailers")], true),
        (&[(":status", "101")], false),
        (&[(":status", "099")], false),
        (&[(":status", "20")], false),
        (&[(":status", "2000")], false),
        (&[("x", "y")], false),
        (&[(":status", "200"), (":status", "200")], false),
        (&[(":status", "200"), (":path", "/")], false),
        (&[(":status", "200"), ("connection", "close")], false),
        (&[(":status", "200"), ("content-length", "x")], false),
        (&[(":status", "200"), ("content-length", "1")], false),
        (&[(":status", "103")], false),
    ] {
        let mut client = Side::client();
        client.request("GET", true);
        client.sent();
        let events = client.receive(&headers(1, true, &block(fields))).unwrap();
        assert_eq!(events[0].starts_with("Response"), is_valid, "{fields:?}");
        assert_eq!(client.sent(), if is_valid { vec![] } else { vec![reset(1, 1)] });
    }
    let mut client = Side::client();
    client.request("GET", true);
    let events = client.receive(&data(1, true, b"early")).unwrap();
    assert_eq!(events, ["Reset { stream: 1, token: 7, cause: Error(Malformed(BodyBeforeHead)) }"]);
}

#[test]
fn responses_without_body_have_none() {
    for (method, status, body, is_valid) in [
        ("HEAD", "200", "", true),
        ("HEAD", "200", "a", false),
        ("GET", "304", "", true),
        ("GET", "204", "abc", false),
        ("GET", "200", "abc", true),
        ("GET", "200", "ab", false),
    ] {
        let mut client = Side::client();
        client.request(method, true);
        let head = block(&[(":status", status), ("content-length", "3")]);
        let events =
            client.receive(&[headers(1, false, &head), data(1, true, body.as_bytes())].concat());
        let last = events.unwrap().pop().unwrap();
        assert_eq!(last.starts_with("Data"), is_valid, "{method} {status} {body}: {last}");
    }
}

#[test]
fn large_heads_can_be_answered() {
    let fields = FieldLimits { bytes: 1000, fields: 100 };
    let mut server = Side::new(Role::Server, Limits { fields, ..Limits::default() });
    let long = "x".repeat(1000);
    let events = server.receive(&headers(1, true, &request(&[("x", &long)]))).unwrap();
    assert!(events[0].starts_with("HeadTooLarge { stream: 1, token: 0, end_stream: true }"));
    assert_eq!(server.fields.method(), "");
    assert_eq!(server.connection.send_response(1, 431, [], true, &mut server.out), Ok(()));
    server.connection.release(1, &mut server.out);
    assert_eq!(server.receive(&headers(3, true, GET)).unwrap().len(), 1);
}
