use tollgate_http1::{
    BodyFraming, FieldList, HeadFaults, MAX_HEAD_BYTES, MAX_HEADERS, ParseError, RequestHead,
    ResponseHead, Target, Version, header_lines, parse_request_head, parse_response_head,
    parse_response_head_for_client,
};

fn parse(text: &str) -> RequestHead<'_> {
    parse_request_head(text.as_bytes()).unwrap().unwrap()
}

/// Returns a request with these header lines.
fn post(lines: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

fn error(text: &str) -> ParseError {
    parse_request_head(text.as_bytes()).unwrap_err()
}

#[test]
fn parses_plain_get() {
    let text = "GET /a?b=c HTTP/1.1\r\nHost: a\r\n\r\n";
    let head = parse(text);
    assert_eq!((head.method, head.target, head.version), ("GET", "/a?b=c", Version::Http11));
    assert!(head.keep_alive && !head.expects_continue);
    assert_eq!((head.body, head.host, head.len), (BodyFraming::Empty, Some("a"), 32));
    assert_eq!(parse(&format!("{text}GET /next HTTP/1.1\r\n")), head);
}

#[test]
fn headers_keep_order_and_duplicates() {
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
fn header_lines_end_at_the_empty_line() {
    let section = b"A: 1\r\nb:\t2 \nno colon\r\n: 3\r\nC::4\r\n\r\nD: 5\r\n";
    let lines: Vec<(&[u8], &[u8])> = header_lines(section).collect();
    assert_eq!(lines, [(&b"A"[..], &b"1"[..]), (b"b", b"2"), (b"", b"3"), (b"C", b":4")]);
    assert_eq!(header_lines(b"\r\nA: 1\r\n").count(), 0);
    assert_eq!(header_lines(b"A: 1").count(), 1);
    assert_eq!(header_lines(b"").count(), 0);
}

#[test]
fn every_shorter_prefix_needs_more_bytes() {
    let text = post("Content-Length: 5\r\nExpect: 100-continue\r\n");
    for len in 0..text.len() {
        assert_eq!(parse_request_head(&text.as_bytes()[..len]), Ok(None), "{len} bytes");
    }
    assert_eq!(parse(&text).len, text.len());
}

#[test]
fn keep_alive_depends_on_version_and_connection_header() {
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
fn later_version_is_distinguished_from_malformed_line() {
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
fn framing_by_content_length() {
    let max = i64::MAX as u64;
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
fn framing_by_transfer_encoding() {
    for lines in ["Transfer-Encoding: chunked\r\n", "transfer-encoding:Chunked \r\n"] {
        assert_eq!(parse(&post(lines)).body, BodyFraming::Chunked, "{lines}");
    }
}

#[test]
fn rejects_ambiguous_requests() {
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
        (post("").replace("Host: a\r\n", ""), ParseError::HostCount(0)),
        (post("hOST: a\r\n"), ParseError::HostCount(2)),
        (post("Host: a\r\n").replace("1.1", "1.0"), ParseError::HostCount(2)),
        (post("").replace("Host: a", "Host: a b"), ParseError::Host("a b".to_owned())),
        (post("").replace("Host: a", "Host: \u{e9}/"), ParseError::Host("\\xc3\\xa9/".to_owned())),
    ] {
        assert_eq!(error(&text), expected, "{text:?}");
    }
}

#[test]
fn host_may_be_empty_and_http_1_0_may_omit_it() {
    assert_eq!(parse("GET / HTTP/1.1\r\nHost:\r\n\r\n").host, Some(""));
    assert_eq!(parse("GET / HTTP/1.0\r\n\r\n").host, None);
    assert_eq!(parse("GET / HTTP/1.1\r\nHost: [::1]:8000\r\n\r\n").host, Some("[::1]:8000"));
}

#[test]
fn rejects_invalid_framing() {
    let length = |text: &str| ParseError::ContentLength(text.to_owned());
    let coding = |text: &str| ParseError::TransferEncoding(text.to_owned());
    let cases = [
        ("Content-Length: \r\n", length("")),
        ("Content-Length: -1\r\n", length("-1")),
        ("Content-Length: +1\r\n", length("+1")),
        ("Content-Length: 1 2\r\n", length("1 2")),
        ("Content-Length: 0x10\r\n", length("0x10")),
        ("Content-Length: 99999999999999999999\r\n", length("99999999999999999999")),
        // 2^63 and 2^64.
        ("Content-Length: 9223372036854775808\r\n", length("9223372036854775808")),
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
fn error_shows_the_start_of_a_long_value() {
    let lines = format!("Content-Length: {}\r\n", "x".repeat(1000));
    assert_eq!(error(&post(&lines)), ParseError::ContentLength("x".repeat(64)));
}

#[test]
fn ignores_expect_continue_in_http_1_0() {
    assert!(parse(&post("Expect: 100-Continue\r\n")).expects_continue);
    assert!(!parse("POST / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n").expects_continue);
}

#[test]
fn recognizes_other_expectations() {
    let has_other = |lines: &str| parse(&post(lines)).has_other_expectation;
    assert!(!has_other("") && !has_other("Expect: 100-continue\r\n"));
    for lines in
        ["Expect: a\r\n", "Expect: 100-continue, a\r\n", "Expect: 100-continue\r\nexpect:\r\n"]
    {
        assert!(has_other(lines), "{lines}");
    }
    assert!(!parse("POST / HTTP/1.0\r\nExpect: a\r\n\r\n").has_other_expectation);
}

#[test]
fn host_is_a_name_or_an_address_with_optional_port() {
    let host = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    for valid in [
        "",
        "a",
        "a.",
        "a_b.c",
        "a:80",
        "a:",
        "127.0.0.1:65535",
        "[::1]",
        "[::1]:80",
        "[::ffff:192.0.2.1]",
        "a%2Db",
        "a,b",
    ] {
        assert_eq!(parse(&host(valid)).host, Some(valid));
    }
    for invalid in [
        "a:80:90",
        "[::1",
        "][",
        "[]",
        "[a]",
        "::1",
        ":80",
        ":",
        "a:x",
        "a:+1",
        "a:65536",
        "a:000000000080x",
        "[::1]80",
        "[::1]:x",
        "[::1]]",
        "[[::1]]",
        "[::1%25eth0]",
        "[v1.a]",
        "a]",
        "a[",
        "a%",
        "a%2",
        "a%zz",
    ] {
        assert_eq!(error(&host(invalid)), ParseError::Host(invalid.to_owned()));
    }
}

#[test]
fn rejects_malformed_heads() {
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
fn limits_length_and_number_of_headers() {
    let with = |count| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(count - 1));
    assert_eq!(parse(&with(MAX_HEADERS)).len, 16 + 9 + 6 * (MAX_HEADERS - 1) + 2);
    assert_eq!(error(&with(MAX_HEADERS + 1)), ParseError::TooManyHeaders);
    assert_eq!(parse(&with(7)).header_count, 7);

    // "GET /" and " HTTP/1.0\r\n\r\n" are 18 bytes.
    let long = |len: usize| format!("GET /{} HTTP/1.0\r\n\r\n", "x".repeat(len - 18));
    assert_eq!(parse(&long(MAX_HEAD_BYTES)).len, 65_536);
    assert_eq!(error(&long(MAX_HEAD_BYTES + 1)), ParseError::HeadTooLong);
    let endless = "x".repeat(MAX_HEAD_BYTES);
    assert_eq!(parse_request_head(&endless.as_bytes()[1..]), Ok(None));
    assert_eq!(error(&endless), ParseError::HeadTooLong);
}
#[test]
fn response_head_with_lf_line_end_and_repeated_length() {
    let bytes = b"HTTP/1.0 404 Not Here\nContent-Length: 5, 5\r\nConnection: keep-alive\r\nX: y \r\n\r\nbody!";
    let head = parse_response_head(bytes, false).unwrap().unwrap();
    assert_eq!((head.status, head.reason, head.version), (404, "Not Here", Version::Http10));
    assert!(head.keep_alive);
    assert_eq!((head.body, head.content_length), (BodyFraming::Length(5), Some(5)));
    assert_eq!((head.is_chunked, head.has_other_coding), (false, false));
    assert_eq!(head.headers.first("x"), Some(&b"y"[..]));
    assert_eq!(&bytes[head.len..], b"body!");
}

#[test]
fn response_without_body_keeps_length_and_coding() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
    let head = parse_response_head(bytes, true).unwrap().unwrap();
    assert_eq!((head.body, head.content_length), (BodyFraming::Empty, Some(9)));
    let bytes = b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: gzip, chunked\r\n\r\n";
    let head = parse_response_head(bytes, false).unwrap().unwrap();
    assert_eq!((head.body, head.content_length), (BodyFraming::Empty, None));
    assert_eq!((head.is_chunked, head.has_other_coding), (true, true));
}

#[test]
fn rejects_contradictory_framing_of_response_without_body() {
    let old = b"HTTP/1.0 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(parse_response_head(old, false), Err(ParseError::TransferEncodingInHttp10));
    let both = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(parse_response_head(both, true), Err(ParseError::TwoFramings));
}

#[test]
fn parses_interim_response_head() {
    let bytes = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\n\r\n";
    let head = parse_response_head(bytes, false).unwrap().unwrap();
    assert_eq!((head.status, head.body), (101, BodyFraming::Empty));
}

#[test]
fn incomplete_and_invalid_response_heads() {
    assert_eq!(parse_response_head(b"HTTP/1.1 200 OK\r\nA: b\r\n", false), Ok(None));
    let empty_line = Err(ParseError::EmptyLineBeforeResponse);
    assert_eq!(parse_response_head(b"\r\nHTTP/1.1 200 OK\r\n\r\n", false), empty_line);
    assert_eq!(parse_response_head(b"HTTP/1.1 099 OK\r\n\r\n", false), Err(ParseError::Status(99)));
    let two = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n";
    assert_eq!(parse_response_head(two, false), Err(ParseError::ContentLengths(1, 2)));
}

#[test]
fn splits_each_form_of_target() {
    for (method, text, authority, path_and_query) in [
        ("GET", "/", None, "/"),
        ("GET", "//a?b", None, "//a?b"),
        ("PUT", "http://localhost", Some("localhost"), ""),
        ("GET", "HTTP://b/method", Some("b"), "/method"),
        ("GET", "hTTps://a:80?x/y", Some("a:80"), "?x/y"),
        ("GET", "http://[::1]:8/a//b", Some("[::1]:8"), "/a//b"),
        ("OPTIONS", "*", None, "*"),
        ("CONNECT", "a:443", Some("a:443"), ""),
    ] {
        let target = Target { authority, path_and_query };
        assert_eq!(Target::parse(method, text), Ok(target), "{method} {text}");
    }
}

#[test]
fn rejects_other_forms_of_target() {
    for (method, text) in [
        ("GET", "*"),
        ("OPTIONS", "*a"),
        ("GET", "a"),
        ("GET", "a/b"),
        ("GET", "?a"),
        ("GET", "a:80"),
        ("GET", "ftp://a/"),
        ("GET", "http:/a"),
        ("GET", "http:"),
        ("GET", "http://"),
        ("GET", "http:///a"),
        ("GET", "http://:80/a"),
        ("GET", "http://a@b/"),
        ("GET", "http://a:80:90/"),
        ("GET", "http://[::1/"),
        ("GET", "http://a\\b/"),
        ("GET", "htt\u{e9}://a/"),
        ("CONNECT", "a/b"),
    ] {
        let escaped = text.as_bytes().escape_ascii().to_string();
        assert_eq!(
            Target::parse(method, text),
            Err(ParseError::Target(escaped)),
            "{method} {text}"
        );
    }
}

#[test]
fn clients_accept_folded_lines_and_a_length_that_a_coding_overrides() {
    let folded = b"HTTP/1.1 200 OK\r\nX: a,\r\n\tb: c\r\nContent-Length: 3\r\n\r\n";
    let head = parse_response_head_for_client(folded, false).unwrap().unwrap();
    assert_eq!(head.faults, HeadFaults { is_folded: true, has_two_framings: false });
    assert_eq!((head.body, head.len), (BodyFraming::Length(3), folded.len()));
    let headers: Vec<_> = head.headers.iter().collect();
    assert_eq!(headers, [("X", &b"a,"[..]), ("Content-Length", b"3")]);
    let both = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    let head = parse_response_head_for_client(both, false).unwrap().unwrap();
    assert_eq!(head.faults, HeadFaults { is_folded: false, has_two_framings: true });
    assert_eq!((head.body, head.keep_alive), (BodyFraming::Chunked, true));
    // A program that forwards responses must reject them.
    assert!(matches!(parse_response_head(folded, false), Err(ParseError::Head(_))));
    assert_eq!(parse_response_head(both, false), Err(ParseError::TwoFramings));
    let neither = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n";
    let head = parse_response_head_for_client(neither, false).unwrap().unwrap();
    assert_eq!((head.faults, head.body), (HeadFaults::default(), BodyFraming::Length(1)));
}

type Fields<'a> = &'a [(&'a str, &'a str)];

/// The list of a start line's fields and of headers.
fn list(start: Fields<'_>, headers: Fields<'_>) -> Vec<u8> {
    let mut list = Vec::new();
    for (name, value) in start.iter().chain(headers) {
        FieldList::push(&mut list, name.as_bytes(), value.as_bytes());
    }
    FieldList::end(&mut list);
    list
}

fn lines(headers: Fields<'_>) -> String {
    headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect()
}

const HOST: (&str, &str) = ("host", "a");

#[test]
fn fields_of_a_request_pass_the_checks_of_text() {
    let cases: &[(&str, &str, Fields<'_>)] = &[
        ("GET", "/a?b", &[HOST, ("x", "1"), ("x", "2")]),
        ("GET", "http://b/", &[HOST]),
        ("GET", "*", &[HOST]),
        ("OPTIONS", "*", &[HOST]),
        ("CONNECT", "a:1", &[HOST]),
        ("CONNECT", "/a", &[HOST]),
        ("GET", "a", &[HOST]),
        ("GET", "/", &[]),
        ("GET", "/", &[HOST, HOST]),
        ("GET", "/", &[("host", "a b")]),
        ("GET", "/", &[("host", "")]),
        ("POST", "/", &[HOST, ("content-length", "3")]),
        ("POST", "/", &[HOST, ("content-length", "3, 3")]),
        ("POST", "/", &[HOST, ("content-length", "+3")]),
        ("POST", "/", &[HOST, ("content-length", "3"), ("content-length", "4")]),
        ("POST", "/", &[HOST, ("transfer-encoding", "chunked")]),
        ("POST", "/", &[HOST, ("transfer-encoding", "gzip, chunked")]),
        ("POST", "/", &[HOST, ("transfer-encoding", "chunked"), ("content-length", "3")]),
        ("POST", "/", &[HOST, ("expect", "100-continue")]),
        ("POST", "/", &[HOST, ("expect", "more")]),
        ("GET", "/", &[HOST, ("connection", "close")]),
    ];
    for &(method, target, headers) in cases {
        let text = format!("{method} {target} HTTP/1.1\r\n{}\r\n", lines(headers));
        let fields = list(&[(":method", method), (":path", target)], headers);
        let parsed = parse_request_head(text.as_bytes()).map(Option::unwrap);
        let checked = RequestHead::of_fields(&fields);
        match (parsed, checked) {
            (Ok(parsed), Ok(checked)) => {
                assert!(checked.headers.iter().eq(parsed.headers.iter()), "{text}");
                assert_eq!((checked.version, checked.len), (Version::Http2, fields.len()));
                let headers = parsed.headers;
                let (version, len) = (parsed.version, parsed.len);
                assert_eq!(RequestHead { headers, version, len, ..checked }, parsed);
            }
            (parsed, checked) => assert_eq!(checked.unwrap_err(), parsed.unwrap_err(), "{text}"),
        }
    }
}

#[test]
fn target_of_fields_has_no_spaces_and_controls() {
    for target in ["/a HTTP/1.1", "/a\tb", "/a\r\nX: y", "/a\x7f"] {
        let fields = list(&[(":method", "GET"), (":path", target)], &[HOST]);
        assert!(matches!(RequestHead::of_fields(&fields), Err(ParseError::Target(_))), "{target}");
    }
}

#[test]
fn incomplete_fields_are_no_request() {
    let start = [(":method", "GET"), (":path", "/")];
    for start in [&start[..1], &start[1..], &[start[1], start[0]]] {
        let fields = list(start, &[HOST]);
        assert_eq!(RequestHead::of_fields(&fields), Err(ParseError::FieldList));
    }
    let fields = list(&start, &[HOST]);
    assert!(RequestHead::of_fields(&fields).is_ok());
    assert_eq!(RequestHead::of_fields(&fields[..fields.len() - 1]), Err(ParseError::FieldList));
}

#[test]
fn fields_of_a_response_pass_the_checks_of_text() {
    let cases: &[(&str, Fields<'_>)] = &[
        ("200", &[("content-length", "3"), ("x", "y")]),
        ("200", &[("content-length", "3"), ("content-length", "3")]),
        ("200", &[("content-length", "3"), ("content-length", "4")]),
        ("200", &[("transfer-encoding", "chunked")]),
        ("200", &[("transfer-encoding", "chunked"), ("content-length", "3")]),
        ("204", &[("content-length", "3")]),
        ("103", &[("link", "l")]),
        ("099", &[]),
    ];
    for &(status, headers) in cases {
        for to_head in [false, true] {
            let text = format!("HTTP/1.1 {status} \r\n{}\r\n", lines(headers));
            let fields = list(&[(":status", status)], headers);
            let parsed = parse_response_head(text.as_bytes(), to_head).map(Option::unwrap);
            let checked = ResponseHead::of_fields(&fields, to_head).map(Option::unwrap);
            match (parsed, checked) {
                (Ok(parsed), Ok(checked)) => {
                    assert!(checked.headers.iter().eq(parsed.headers.iter()), "{text}");
                    assert_eq!((checked.version, checked.len), (Version::Http2, fields.len()));
                    let headers = parsed.headers;
                    let (version, len) = (parsed.version, parsed.len);
                    assert_eq!(ResponseHead { headers, version, len, ..checked }, parsed);
                }
                (parsed, checked) => {
                    assert_eq!(checked.unwrap_err(), parsed.unwrap_err(), "{text}");
                }
            }
        }
    }
    let fields = list(&[(":status", "200")], &[]);
    assert_eq!(ResponseHead::of_fields(&fields[..fields.len() - 1], false), Ok(None));
}
