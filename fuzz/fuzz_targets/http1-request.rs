//! Request heads: agreement with httparse, and independence of what follows the head.
//!
//! Input: one byte, which decides the length of the first piece, then the request.

#![no_main]

use httparse::Status;
use libfuzzer_sys::fuzz_target;
use tollgate_http1::{
    BodyFraming, MAX_HEADERS, ParseError, RequestHead, Version, parse_request_head,
};

/// More headers than any input contains.
const HEADERS_MAX: usize = 4096;

fuzz_target!(|input: &[u8]| {
    let Some((cut, bytes)) = input.split_first() else { return };
    let ours = parse_request_head(bytes);
    check(bytes, &ours);

    let first = &bytes[..usize::from(*cut) * bytes.len() / 256];
    match (parse_request_head(first), &ours) {
        // A head does not depend on what follows it.
        (Ok(Some(head)), ours) => assert_eq!(Ok(Some(head)), *ours),
        // More bytes do not undo an error.
        (Err(error), ours) => assert_eq!(Err(error), *ours),
        (Ok(None), Ok(Some(head))) => assert!(first.len() < head.len),
        (Ok(None), _) => {}
    }
});

fn check(bytes: &[u8], ours: &Result<Option<RequestHead<'_>>, ParseError>) {
    let mut headers = vec![httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let theirs = request.parse(bytes);
    match (ours, theirs) {
        (Ok(Some(head)), Ok(Status::Complete(len))) => {
            assert_eq!(head.len, len);
            assert_eq!(Some(head.method), request.method);
            assert_eq!(Some(head.target), request.path);
            let minor = if head.version == Version::Http10 { 0 } else { 1 };
            assert_eq!(Some(minor), request.version);
            check_target(head);
            check_body(head, request.headers);
            check_headers(head, request.headers);
            assert!(!has_bare_line_feed(&bytes[..len]));
            let hosts = hosts(request.headers);
            assert!(hosts.len() == 1 || (hosts.is_empty() && minor == 0));
            assert_eq!(head.host.map(str::as_bytes), hosts.first().copied());
        }
        (Ok(None), Ok(Status::Partial)) | (Err(ParseError::Head(_)), Err(_)) => {}
        (Err(ParseError::Version), Err(error)) => {
            assert_eq!(error, httparse::Error::Version);
            let later = (b'2'..=b'9').map(|digit| [b" HTTP/", &[digit][..]].concat());
            let is_there = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
            assert!(later.into_iter().any(|text| is_there(&text)));
        }
        (Err(ParseError::TooManyHeaders), theirs) => {
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
            assert!(lines > MAX_HEADERS, "{theirs:?}");
        }
        (Err(ParseError::BareLineFeed), Ok(Status::Complete(len))) => {
            assert!(has_bare_line_feed(&bytes[..len]));
        }
        (Err(ParseError::Target(_)), Ok(Status::Complete(_))) => {
            assert!(!request.path.is_some_and(|target| target.starts_with('/')));
        }
        (Err(ParseError::HostCount(count)), Ok(Status::Complete(_))) => {
            assert_eq!(hosts(request.headers).len(), *count);
            assert!(*count > 1 || (*count == 0 && request.version == Some(1)));
        }
        (Err(ParseError::Host(_)), Ok(Status::Complete(_))) => {
            // A name of plain characters, alone or with a short port, is valid.
            let is_plain = |host: &&[u8]| {
                let end = host.iter().position(|byte| *byte == b':').unwrap_or(host.len());
                let (name, port) = host.split_at(end);
                let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b".-".contains(byte);
                (!name.is_empty() || port.is_empty())
                    && name.iter().all(is_name)
                    && port.len() <= 5
                    && port.iter().skip(1).all(u8::is_ascii_digit)
            };
            assert!(!hosts(request.headers).iter().all(is_plain));
        }
        // Invalid or ambiguous framing in a valid head.
        (
            Err(
                ParseError::ContentLength(_)
                | ParseError::ContentLengths(..)
                | ParseError::TwoFramings
                | ParseError::TransferEncoding(_)
                | ParseError::UnknownCoding(_)
                | ParseError::TransferEncodingInHttp10,
            ),
            Ok(Status::Complete(_)),
        ) => {
            assert!(
                request.headers.iter().any(|header| is_framing(header.name)),
                "no framing header: {ours:?}"
            );
        }
        (ours, theirs) => panic!("ours is {ours:?}, theirs is {theirs:?}"),
    }
}

/// The parts of the target add up to what was sent, in one of the allowed forms.
fn check_target(head: &RequestHead<'_>) {
    let parts = head.target_parts;
    let before = head.target.strip_suffix(parts.path_and_query).expect("its own end");
    match parts.authority {
        Some(authority) => {
            assert!(!authority.is_empty() && !authority.contains(['/', '?', '@']));
            let scheme = before.strip_suffix(authority).expect("its own host").to_lowercase();
            let is_tunnel = scheme.is_empty() && head.method == "CONNECT";
            assert!(is_tunnel || ["http://", "https://"].contains(&scheme.as_str()));
        }
        None => {
            let is_star = head.target == "*" && head.method == "OPTIONS";
            assert!(before.is_empty() && (head.target.starts_with('/') || is_star));
        }
    }
}

/// RFC 9112, section 6.3, for requests; ambiguous heads are rejected.
fn check_body(head: &RequestHead<'_>, headers: &[httparse::Header<'_>]) {
    let mut framing = headers.iter().filter(|header| is_framing(header.name)).peekable();
    match head.body {
        BodyFraming::Empty => assert!(framing.peek().is_none(), "body not found"),
        BodyFraming::Length(length) => {
            let header = framing.next().expect("a framing header");
            assert!(header.name.eq_ignore_ascii_case("content-length"));
            let value = std::str::from_utf8(header.value).expect("digits");
            assert_eq!(value.trim().parse(), Ok(length));
            assert!(framing.next().is_none(), "second framing header");
        }
        BodyFraming::Chunked => {
            assert_eq!(head.version, Version::Http11);
            let header = framing.next().expect("a framing header");
            assert!(header.name.eq_ignore_ascii_case("transfer-encoding"));
            assert!(header.value.eq_ignore_ascii_case(b"chunked"));
            assert!(framing.next().is_none(), "second framing header");
        }
        BodyFraming::UntilClose => panic!("request until close"),
    }
}

/// The headers found by look-up are those that were parsed.
fn check_headers(head: &RequestHead<'_>, headers: &[httparse::Header<'_>]) {
    let theirs: Vec<_> = headers.iter().map(|header| (header.name, header.value)).collect();
    assert_eq!(head.headers.iter().collect::<Vec<_>>(), theirs);
}

fn hosts<'a>(headers: &[httparse::Header<'a>]) -> Vec<&'a [u8]> {
    let hosts = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    hosts.map(|header| header.value).collect()
}

fn has_bare_line_feed(head: &[u8]) -> bool {
    head.iter().enumerate().any(|(at, byte)| *byte == b'\n' && (at == 0 || head[at - 1] != b'\r'))
}

fn is_framing(name: &str) -> bool {
    name.eq_ignore_ascii_case("content-length") || name.eq_ignore_ascii_case("transfer-encoding")
}
