use tollgate_wire::{
    BodyFraming, MAX_HEAD_BYTES, MAX_HEADERS, ParseError, RequestHead, Version, parse_request_head,
};

fn parse(text: &str) -> RequestHead<'_> {
    parse_request_head(text.as_bytes()).unwrap().unwrap()
}

/// A request with these header lines.
fn post(lines: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

fn error(text: &str) -> ParseError {
    parse_request_head(text.as_bytes()).unwrap_err()
}

#[test]
fn a_plain_get() {
    let text = "GET /a?b=c HTTP/1.1\r\nHost: a\r\n\r\n";
    let head = parse(text);
    assert_eq!((head.method, head.target, head.version), ("GET", "/a?b=c", Version::Http11));
    assert!(head.keep_alive && !head.expects_continue);
    assert_eq!((head.body, head.host, head.len), (BodyFraming::Empty, Some("a"), 32));
    assert_eq!(parse(&format!("{text}GET /next HTTP/1.1\r\n")), head);
}

#[test]
fn headers_come_in_order_with_their_duplicates() {
    let text =
        "\r\n\r\nGET / HTTP/1.1\r\nHost: a:80\r\nX-A:  b: c \t\r\nx-a:\r\nY: \u{e9}\r\n\r\nZ: no";
    let headers = parse(text).headers;
    let all: Vec<(&str, &[u8])> = headers.iter().collect();
    let expected: [(&str, &[u8]); 4] =
        [("Host", b"a:80"), ("X-A", b"b: c"), ("x-a", b""), ("Y", "\u{e9}".as_bytes())];
    assert_eq!(all, expected);
    assert_eq!(headers.all("x-A").collect::<Vec<_>>(), [&b"b: c"[..], b""]);
    assert_eq!((headers.first("X-a"), headers.first("Z")), (Some(&b"b: c"[..]), None));
}

#[test]
fn every_shorter_prefix_needs_more() {
    let text = post("Content-Length: 5\r\nExpect: 100-continue\r\n");
    for len in 0..text.len() {
        assert_eq!(parse_request_head(&text.as_bytes()[..len]), Ok(None), "{len} bytes");
    }
    assert_eq!(parse(&text).len, text.len());
}

#[test]
fn keep_alive_by_version_and_connection() {
    let cases = [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "connection: Upgrade, CLOSE\r\n", false),
        ("1.1", "Connection: keep-alive\r\nConnection: close\r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ];
    for (version, lines, keep_alive) in cases {
        let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{lines}\r\n");
        assert_eq!(parse(&text).keep_alive, keep_alive, "{text}");
    }
}

#[test]
fn a_later_version_is_told_from_what_is_none() {
    for version in ["HTTP/2.0", "HTTP/2", "HTTP/3.0", "HTTP/9x"] {
        for lines in ["", "\r\n", "\r\nHost: a\r\n\r\n"] {
            assert_eq!(error(&format!("GET / {version}{lines}")), ParseError::Version);
            assert_eq!(error(&format!("\r\nGET / {version}{lines}")), ParseError::Version);
        }
    }
    for text in [
        "GET / HTTP/1.2\r\n",
        "GET / HTTP/0.9\r\n",
        "GET / http/2.0\r\n",
        "GET / X\r\nHTTP/2.0",
        "GET / a HTTP/2.0\r\n",
    ] {
        assert!(matches!(error(text), ParseError::Head(_)), "{text}");
    }
    assert_eq!(parse_request_head(b"GET / HTTP/"), Ok(None));
}

#[test]
fn framing_by_length() {
    let max = u64::MAX;
    let cases = [
        ("content-length: 0\r\n", 0),
        ("CONTENT-LENGTH:  007 \r\n", 7),
        (&format!("Content-Length: {max}\r\n"), max),
    ];
    for (lines, length) in cases {
        assert_eq!(parse(&post(lines)).body, BodyFraming::Length(length), "{lines}");
    }
}

#[test]
fn framing_by_coding() {
    for lines in ["Transfer-Encoding: chunked\r\n", "transfer-encoding:Chunked \r\n"] {
        assert_eq!(parse(&post(lines)).body, BodyFraming::Chunked, "{lines}");
    }
}

#[test]
fn what_two_servers_may_read_in_two_ways_is_an_error() {
    let unknown = |text: &str| ParseError::UnknownCoding(text.to_owned());
    for (text, expected) in [
        (post("Content-Length: 5\r\nContent-Length: 5\r\n"), ParseError::ContentLengths(5, 5)),
        (post("Content-Length: 5, 5\r\n"), ParseError::ContentLengths(5, 5)),
        (post("Transfer-Encoding: gzip, Chunked\r\n"), unknown("gzip")),
        (post("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"), unknown("gzip")),
        (post("").replace("Host: a\r\n", "Host: a\n"), ParseError::BareLineFeed),
        (post("").replace("1.1\r\n", "1.1\n"), ParseError::BareLineFeed),
        (post("X: y\r\n").replace("y\r\n\r\n", "y\r\n\n"), ParseError::BareLineFeed),
        (format!("\n{}", post("")), ParseError::BareLineFeed),
        (post("").replace("Host: a\r\n", ""), ParseError::Hosts(0)),
        (post("hOST: a\r\n"), ParseError::Hosts(2)),
        (post("Host: a\r\n").replace("1.1", "1.0"), ParseError::Hosts(2)),
        (post("").replace("Host: a", "Host: a b"), ParseError::Host("a b".to_owned())),
        (post("").replace("Host: a", "Host: \u{e9}/"), ParseError::Host("\\xc3\\xa9/".to_owned())),
    ] {
        assert_eq!(error(&text), expected, "{text:?}");
    }
}

#[test]
fn a_host_may_be_empty_and_an_old_client_need_not_name_one() {
    assert_eq!(parse("GET / HTTP/1.1\r\nHost:\r\n\r\n").host, Some(""));
    assert_eq!(parse("GET / HTTP/1.0\r\n\r\n").host, None);
    assert_eq!(parse("GET / HTTP/1.1\r\nHost: [::1]:8000\r\n\r\n").host, Some("[::1]:8000"));
}

#[test]
fn faulty_framing_is_an_error() {
    let length = |text: &str| ParseError::ContentLength(text.to_owned());
    let coding = |text: &str| ParseError::TransferEncoding(text.to_owned());
    let cases = [
        ("Content-Length: \r\n", length("")),
        ("Content-Length: -1\r\n", length("-1")),
        ("Content-Length: +1\r\n", length("+1")),
        ("Content-Length: 1 2\r\n", length("1 2")),
        ("Content-Length: 0x10\r\n", length("0x10")),
        ("Content-Length: 99999999999999999999\r\n", length("99999999999999999999")),
        // One more than 64 bits hold.
        ("Content-Length: 18446744073709551616\r\n", length("18446744073709551616")),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", ParseError::ContentLengths(5, 6)),
        ("Content-Length: 5, 6\r\n", ParseError::ContentLengths(5, 6)),
        ("Transfer-Encoding: gzip\r\n", coding("gzip")),
        ("Transfer-Encoding: chunked, gzip\r\n", coding("chunked, gzip")),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", coding("chunked")),
        ("Transfer-Encoding: \r\n", coding("")),
        ("Transfer-Encoding: xchunked\r\n", coding("xchunked")),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", ParseError::TwoFramings),
    ];
    for (lines, expected) in cases {
        assert_eq!(error(&post(lines)), expected, "{lines}");
    }
    assert_eq!(
        error("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ParseError::TransferEncodingInHttp10
    );
}

#[test]
fn a_long_faulty_value_is_shown_in_part() {
    let lines = format!("Content-Length: {}\r\n", "x".repeat(1000));
    assert_eq!(error(&post(&lines)), ParseError::ContentLength("x".repeat(64)));
}

#[test]
fn only_http_1_1_waits_for_continue() {
    assert!(parse(&post("Expect: 100-Continue\r\n")).expects_continue);
    assert!(!parse("POST / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n").expects_continue);
}

#[test]
fn what_is_not_http_is_an_error() {
    for text in [
        "\x16\x03\x01",
        "GET\r\n",
        "GET / HTTP/1.2\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
    ] {
        assert!(matches!(error(text), ParseError::Head(_)), "{text:?}");
    }
}

#[test]
fn a_head_ends_within_its_limits() {
    let with = |count| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(count - 1));
    assert_eq!(parse(&with(MAX_HEADERS)).len, 16 + 9 + 6 * 99 + 2);
    assert_eq!(error(&with(MAX_HEADERS + 1)), ParseError::TooManyHeaders);

    // "GET /" and " HTTP/1.0\r\n\r\n" are 18 bytes.
    let long = |len: usize| format!("GET /{} HTTP/1.0\r\n\r\n", "x".repeat(len - 18));
    assert_eq!(parse(&long(MAX_HEAD_BYTES)).len, 65_536);
    assert_eq!(error(&long(MAX_HEAD_BYTES + 1)), ParseError::HeadTooLong);
    let endless = "x".repeat(MAX_HEAD_BYTES);
    assert_eq!(parse_request_head(&endless.as_bytes()[1..]), Ok(None));
    assert_eq!(error(&endless), ParseError::HeadTooLong);
}
