//! Rewriting of chunked bodies and trailers.

use proptest::prelude::*;

use super::*;

/// Forwards `bytes` in pieces cut at `cuts`. Returns the forwarded bytes and how many were consumed.
fn forward(
    bytes: &[u8],
    keeps_coding: bool,
    cuts: &[usize],
) -> Result<(Vec<u8>, usize), ParseError> {
    let mut body = Body::new(BodyFraming::Chunked, keeps_coding);
    let mut out = Vec::new();
    let mut consumed = 0;
    for cut in cuts.iter().copied().chain([bytes.len()]) {
        let mut piece = bytes[consumed..cut.max(consumed)].to_vec();
        let taken = body.take(&mut piece, |_| {})?;
        out.extend_from_slice(&piece[..taken.kept]);
        consumed += taken.consumed;
        if taken.done {
            break;
        }
    }
    if body.is_done() {
        out.extend_from_slice(&body.tail(&HeaderEdits::default()));
    }
    Ok((out, consumed))
}

fn whole(bytes: &[u8]) -> Result<(Vec<u8>, usize), ParseError> {
    forward(bytes, true, &[])
}

#[test]
fn plain_chunks_are_unchanged() {
    let body = b"5\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\n";
    assert_eq!(whole(body), Ok((body.to_vec(), body.len())));
    let with_next = [&body[..], b"GET"].concat();
    assert_eq!(whole(&with_next), Ok((body.to_vec(), body.len())));
}

#[test]
fn padding_zeros_and_extensions_are_dropped() {
    let body = b"0005 \t;a=\"b;c\";d\r\nhello\r\n00;last\r\n\r\n";
    assert_eq!(whole(body), Ok((b"5\r\nhello\r\n0\r\n\r\n".to_vec(), body.len())));
    assert_eq!(forward(body, false, &[]), Ok((b"hello".to_vec(), body.len())));
}

#[test]
fn trailers_are_forwarded_filtered() {
    let body = b"1\r\nx\r\n0\r\nX-Sum:9\r\nContent-Length: 3\r\n\r\n";
    assert_eq!(whole(body), Ok((b"1\r\nx\r\n0\r\nX-Sum: 9\r\n\r\n".to_vec(), body.len())));
    assert_eq!(forward(body, false, &[]), Ok((b"x".to_vec(), body.len())));
}

#[test]
fn nothing_is_forwarded_of_malformed_chunks() {
    for body in [&b"1\r\nxy"[..], b"5;a\nb\r\n", b"0\r\nno colon\r\n\r\n"] {
        assert!(whole(body).is_err(), "{}", body.escape_ascii());
    }
    let endless = [&b"0\r\na: "[..], &[b'a'; 20_000]].concat();
    assert_eq!(whole(&endless), Err(ParseError::TrailerTooLong));
}

#[test]
fn body_with_length_ends_at_its_length() {
    let mut body = Body::new(BodyFraming::Length(5), true);
    let mut bytes = *b"abcdefg";
    let taken = body.take(&mut bytes[..3], |_| {}).unwrap();
    assert_eq!(taken, Taken { consumed: 3, kept: 3, payload_bytes: 3, done: false });
    let taken = body.take(&mut bytes[3..], |_| {}).unwrap();
    assert_eq!(taken, Taken { consumed: 2, kept: 2, payload_bytes: 2, done: true });
    assert_eq!(body.tail(&HeaderEdits::default()), &b""[..]);
}

#[test]
fn forbidden_trailers_are_dropped_in_any_spelling() {
    let section = b"Server-Timing: a;dur=1\r\nContent-Length: 5\r\nX-Sum:  ab \r\n\
        X-Forwarded-For: 1.2.3.4\r\nif-match: *\r\nTRANSFER-ENCODING: chunked\r\n\
        X_Forwarded_For: 1.2.3.4\r\nContent_Length: 5\r\n\r\n";
    let kept = filter_trailers(section).unwrap();
    assert_eq!(kept, b"0\r\nServer-Timing: a;dur=1\r\nX-Sum: ab\r\n\r\n");
}

#[test]
fn all_forbidden_trailers_of_rfc_9110_are_dropped() {
    // By the kinds of RFC 7230, section 4.1.2, which RFC 9110, section 6.5.1, sums up.
    for name in [
        "Transfer-Encoding",
        "Content-Length",
        "Host",
        "Cache-Control",
        "Expect",
        "Max-Forwards",
        "Pragma",
        "Range",
        "TE",
        "If-None-Match",
        "If-Range",
        "WWW-Authenticate",
        "Authorization",
        "Proxy-Authenticate",
        "Proxy-Authorization",
        "Cookie",
        "Set-Cookie",
        "Age",
        "Expires",
        "Date",
        "Location",
        "Retry-After",
        "Vary",
        "Warning",
        "Content-Encoding",
        "Content-Type",
        "Content-Range",
        "Trailer",
        "Connection",
        "Keep-Alive",
        "Upgrade",
    ] {
        let section = format!("{name}: x\r\nETag: \"a\"\r\n\r\n");
        let kept = filter_trailers(section.as_bytes()).unwrap();
        assert_eq!(kept, b"0\r\nETag: \"a\"\r\n\r\n", "{name}");
    }
}

#[test]
fn edited_headers_are_dropped_from_trailers() {
    let kept = filter_trailers(b"X-User: evil\r\nX-Sum: 9:9\r\nx-debug: a\r\n\r\n").unwrap();
    assert_eq!(edit_tail(&kept, &HeaderEdits::default()), &kept[..]);
    let edits =
        HeaderEdits { set: vec![("x-user".into(), "me".into())], remove: vec!["x-debug".into()] };
    assert_eq!(edit_tail(&kept, &edits), &b"0\r\nX-Sum: 9:9\r\n\r\n"[..]);
}

#[test]
fn malformed_trailers_are_errors() {
    for section in
        [&b"no colon\r\n\r\n"[..], b"a b: c\r\n\r\n", b"a: b\0\r\n\r\n", b" a: b\r\n\r\n"]
    {
        assert!(filter_trailers(section).is_err(), "{}", section.escape_ascii());
    }
}

proptest! {
    #[test]
    fn cuts_do_not_change_what_is_forwarded(
        chunks in prop::collection::vec((1_usize..40, 0_usize..3, prop::bool::ANY), 0..6),
        has_trailer in prop::bool::ANY,
        mut cuts in prop::collection::vec(0_usize..400, 0..12),
    ) {
        let mut body = Vec::new();
        let mut payload = Vec::new();
        for (bytes, zeros, is_extended) in chunks {
            let data: Vec<u8> = (0..bytes).map(|at| b"\r\n0;ab"[at % 6]).collect();
            body.extend_from_slice("0".repeat(zeros).as_bytes());
            body.extend_from_slice(format!("{bytes:x}{}\r\n", if is_extended { ";x" } else { "" }).as_bytes());
            body.extend_from_slice(&data);
            body.extend_from_slice(b"\r\n");
            payload.extend_from_slice(&data);
        }
        body.extend_from_slice(b"0\r\n");
        if has_trailer {
            body.extend_from_slice(b"a: b\r\n");
        }
        body.extend_from_slice(b"\r\nrest");
        let end = body.len() - 4;
        cuts.retain(|cut| *cut <= body.len());
        cuts.sort_unstable();
        prop_assert_eq!(forward(&body, true, &cuts).unwrap(), whole(&body).unwrap());
        let (stripped, consumed) = forward(&body, false, &cuts).unwrap();
        prop_assert_eq!(stripped, payload);
        prop_assert_eq!(consumed, end);
    }
}
