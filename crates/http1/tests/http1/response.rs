use proptest::prelude::*;
use tollgate_http1::{
    HeadFaults, MAX_HEAD_BYTES, MAX_HEADERS, ParseError, Response, ResponseHeadCache,
    ResponseScanner, Scan, reason_phrase,
};

fn response(status: u16, body_bytes: u64, keep_alive: bool) -> Response {
    Response { status, body_bytes, keep_alive, faults: HeadFaults::default() }
}

/// Feeds with an empty cache and ignores the payload.
fn feed(scanner: &mut ResponseScanner, bytes: &[u8], to_head: bool) -> Result<Scan, ParseError> {
    scanner.feed(bytes, to_head, &mut ResponseHeadCache::default(), |_| {})
}

/// Feeds `bytes` in pieces of at most `step`. Returns each response with its end.
fn scan(bytes: &[u8], step: usize, to_head: bool) -> Result<Vec<(Response, usize)>, ParseError> {
    let mut scanner = ResponseScanner::default();
    let mut responses = Vec::new();
    let mut from = 0;
    while from < bytes.len() {
        let piece = &bytes[from..bytes.len().min(from + step)];
        match feed(&mut scanner, piece, to_head)? {
            Scan::Partial => from += piece.len(),
            Scan::Complete { response, consumed } => {
                from += consumed;
                responses.push((response, from));
            }
        }
    }
    Ok(responses)
}

/// Returns the only response in `text`, which must not depend on how the bytes are split.
fn one(text: &str, to_head: bool) -> Response {
    let bytes = text.as_bytes();
    let whole = scan(bytes, bytes.len(), to_head).unwrap();
    for step in 1..bytes.len() {
        assert_eq!(scan(bytes, step, to_head).unwrap(), whole, "in pieces of {step}: {text:?}");
    }
    assert_eq!(whole.len(), 1, "{text:?}");
    assert_eq!(whole[0].1, bytes.len(), "{text:?}");
    whole[0].0
}

fn error(text: &str) -> ParseError {
    let bytes = text.as_bytes();
    let whole = scan(bytes, bytes.len(), false).unwrap_err();
    assert_eq!(scan(bytes, 1, false), Err(whole.clone()), "byte by byte: {text:?}");
    whole
}

#[test]
fn body_by_length() {
    assert_eq!(
        one("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false),
        response(200, 5, true)
    );
    assert_eq!(one("HTTP/1.1 404\r\ncontent-length:0\r\n\r\n", false), response(404, 0, true));
    assert_eq!(
        one("HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno", false),
        response(403, 2, false)
    );
    assert_eq!(
        one("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", false),
        response(200, 1, false)
    );
    assert_eq!(
        one("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx", false),
        response(200, 1, true)
    );
}

#[test]
fn body_by_chunks() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(one(&format!("{head}0\r\n\r\n"), false), response(200, 0, true));
    let body = "4\r\nwiki\r\n5;x=y\r\npedia\r\n0\r\nT: 1\r\n\r\n";
    assert_eq!(one(&format!("{head}{body}"), false), response(200, 9, true));
}

#[test]
fn responses_without_body() {
    let length = "Content-Length: 7\r\n\r\n";
    assert_eq!(one(&format!("HTTP/1.1 200 OK\r\n{length}"), true), response(200, 0, true));
    assert_eq!(
        one(&format!("HTTP/1.1 304 Not Modified\r\n{length}"), false),
        response(304, 0, true)
    );
    assert_eq!(one("HTTP/1.1 204 No Content\r\n\r\n", false), response(204, 0, true));
    assert_eq!(one("HTTP/1.1 200 OK\r\n\r\n", true), response(200, 0, true));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(one(chunked, true), response(200, 0, true));
}

#[test]
fn skips_interim_responses() {
    let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
                HTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(one(text, false), response(201, 1, true));
    assert_eq!(
        one("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", true),
        response(200, 0, true)
    );
}

#[test]
fn pipelined_responses_end_one_by_one() {
    let text = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabHTTP/1.1 204 No Content\r\n\r\n\
                 HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
    // 40 bytes, then 27, then 48 of head and 11 of chunks.
    let expected =
        [(response(200, 2, true), 40), (response(204, 0, true), 67), (response(500, 1, true), 127)];
    for step in 1..=text.len() {
        assert_eq!(scan(text, step, false).unwrap(), expected, "in pieces of {step}");
    }
}

#[test]
fn passes_payload_without_framing() {
    let cases = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""),
        ("HTTP/1.1 200 OK\r\n\r\nhello", "hello"),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
             2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nT: 1\r\n\r\n",
            "hello",
        ),
    ];
    for (text, expected) in cases {
        for step in 1..=text.len() {
            let mut scanner = ResponseScanner::default();
            let mut payload = Vec::new();
            for piece in text.as_bytes().chunks(step) {
                let keep = |bytes: &[u8]| {
                    assert!(!bytes.is_empty());
                    payload.extend_from_slice(bytes);
                };
                scanner.feed(piece, false, &mut ResponseHeadCache::default(), keep).unwrap();
            }
            assert_eq!(payload, expected.as_bytes(), "in pieces of {step}: {text:?}");
        }
    }
}

/// There is one for each of thousands of connections.
#[test]
fn scanner_is_small() {
    assert!(size_of::<ResponseScanner>() <= 80, "{} bytes", size_of::<ResponseScanner>());
}

#[test]
fn body_until_close() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\n\r\nhello";
    for step in 1..=bytes.len() {
        let mut scanner = ResponseScanner::default();
        for piece in bytes.chunks(step) {
            assert_eq!(feed(&mut scanner, piece, false), Ok(Scan::Partial));
        }
        assert_eq!(scanner.close(), Ok(Some(response(200, 5, false))));
        assert_eq!(scanner.close(), Ok(None));
    }
}

#[test]
fn close_in_the_middle_of_a_response_is_an_error() {
    let text = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
    assert_eq!(ResponseScanner::default().close(), Ok(None));
    for len in 1..text.len() {
        let mut scanner = ResponseScanner::default();
        assert_eq!(feed(&mut scanner, &text[..len], false), Ok(Scan::Partial));
        assert_eq!(scanner.close(), Err(ParseError::ClosedMidResponse), "after {len} bytes");
    }
    let mut scanner = ResponseScanner::default();
    assert!(matches!(feed(&mut scanner, text, false), Ok(Scan::Complete { .. })));
    assert_eq!(scanner.close(), Ok(None));
}

#[test]
fn reset_discards_the_state_of_the_connection() {
    let starts: [&[u8]; 3] = [
        b"HTTP/1.1 2",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx",
    ];
    for bytes in starts {
        let mut scanner = ResponseScanner::default();
        assert_eq!(feed(&mut scanner, bytes, false), Ok(Scan::Partial));
        scanner.reset();
        assert_eq!(scanner.close(), Ok(None));
        assert_eq!(
            feed(&mut scanner, b"HTTP/1.1 204 No Content\r\n\r\n", false),
            Ok(Scan::Complete { response: response(204, 0, true), consumed: 27 })
        );
    }
}

#[test]
fn invalid_responses_are_errors_with_their_reason() {
    let cases = [
        ("HTTP/1.1 099 Low\r\n\r\n", ParseError::Status(99)),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", ParseError::SwitchesProtocols),
        ("\r\nHTTP/1.1 200 OK\r\n\r\n", ParseError::EmptyLineBeforeResponse),
        ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", ParseError::ContentLength("x".to_owned())),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            ParseError::ContentLengths(1, 2),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            ParseError::TransferEncoding("gzip".to_owned()),
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz", ParseError::ChunkSize),
    ];
    for (text, expected) in cases {
        assert_eq!(error(text), expected, "{text:?}");
    }
    for text in [
        "HTTP/2 200 OK\r\n\r\n",
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/1.1 20x OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nNo colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: \0\r\n\r\n",
    ] {
        assert!(matches!(error(text), ParseError::Head(_)), "{text:?}");
    }
}

#[test]
fn limits_head_that_arrives_in_any_pieces() {
    // "HTTP/1.1 200 " and "\r\n\r\n" are 17 bytes.
    let head = |len: usize| format!("HTTP/1.1 200 {}\r\n\r\n", "x".repeat(len - 17));
    for step in [1, 1000, usize::MAX / 2] {
        let longest = head(MAX_HEAD_BYTES);
        let ended = scan(longest.as_bytes(), step, true).unwrap();
        assert_eq!(ended, [(response(200, 0, true), 65_536)]);
        let over = head(MAX_HEAD_BYTES + 1);
        assert_eq!(scan(over.as_bytes(), step, true), Err(ParseError::HeadTooLong));
        let endless = format!("HTTP/1.1 200 {}", "x".repeat(MAX_HEAD_BYTES));
        assert_eq!(scan(endless.as_bytes(), step, true), Err(ParseError::HeadTooLong));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(MAX_HEADERS + 1));
        assert_eq!(scan(many.as_bytes(), step, true), Err(ParseError::TooManyHeaders));
    }
}

proptest! {
    #[test]
    fn any_bytes_do_not_panic(
        head in prop_oneof![
            Just(""),
            Just("HTTP/1.1 200 OK\r\n"),
            Just("HTTP/1.1 100 Continue\r\n\r\n"),
            Just("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ],
        tail in proptest::collection::vec(any::<u8>(), 0..60),
        step in 1_usize..20,
    ) {
        let bytes = [head.as_bytes(), &tail].concat();
        let mut scanner = ResponseScanner::default();
        for piece in bytes.chunks(step) {
            match feed(&mut scanner, piece, false) {
                Ok(Scan::Complete { consumed, .. }) => prop_assert!(consumed <= piece.len()),
                Ok(Scan::Partial) => {}
                Err(_) => break,
            }
        }
    }
}

#[test]
fn reason_phrases_are_those_of_the_registry() {
    for (status, phrase) in [
        (100, "Continue"),
        (200, "OK"),
        (413, "Content Too Large"),
        (422, "Unprocessable Content"),
        (505, "HTTP Version Not Supported"),
        (299, ""),
        (306, ""),
        (600, ""),
    ] {
        assert_eq!(reason_phrase(status), phrase, "{status}");
    }
}
