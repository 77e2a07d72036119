//! Rewriting of chunked bodies and trailers.

use proptest::prelude::*;

use super::*;

/// Space in front of a piece and behind it.
const ROOM: usize = TAIL_BYTES_MAX;

/// Takes and frames a piece. Returns what is forwarded.
fn take(body: &mut Body, piece: &[u8]) -> Result<(Vec<u8>, Taken), ParseError> {
    let mut buffer = vec![b'!'; ROOM + piece.len() + ROOM];
    let end = ROOM + piece.len();
    buffer[ROOM..end].copy_from_slice(piece);
    let taken = body.take(&mut buffer[ROOM..end], |_| {})?;
    let framed = body.frame(&mut buffer, ROOM..ROOM + taken.kept, &HeaderEdits::default());
    Ok((buffer[framed].to_vec(), taken))
}

/// Forwards `bytes` in pieces cut at `cuts`. Returns the forwarded bytes and how many were consumed.
fn forward(bytes: &[u8], is_chunked: bool, cuts: &[usize]) -> Result<(Vec<u8>, usize), ParseError> {
    let mut body = Body::new(BodyFraming::Chunked, MessageForm::Text, is_chunked);
    let mut out = Vec::new();
    let mut consumed = 0;
    for cut in cuts.iter().copied().chain([bytes.len()]) {
        let (framed, taken) = take(&mut body, &bytes[consumed..cut.max(consumed)])?;
        out.extend_from_slice(&framed);
        consumed += taken.consumed;
        if taken.done {
            break;
        }
    }
    Ok((out, consumed))
}

/// The list of these fields, as a stream has them.
fn list(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut list = Vec::new();
    for (name, value) in fields {
        FieldList::push(&mut list, name.as_bytes(), value.as_bytes());
    }
    list
}

/// The fields of a list, as lines.
fn lines(list: FieldList<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    list.iter().map(|field| format!("{}: {}\n", text(field.name), text(field.value))).collect()
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
    let mut body = Body::new(BodyFraming::Length(5), MessageForm::Text, true);
    let mut bytes = *b"abcdefg";
    let taken = body.take(&mut bytes[..3], |_| {}).unwrap();
    assert_eq!(taken, Taken { consumed: 3, kept: 3, payload_bytes: 3, done: false });
    let taken = body.take(&mut bytes[3..], |_| {}).unwrap();
    assert_eq!(taken, Taken { consumed: 2, kept: 2, payload_bytes: 2, done: true });
    assert!(body.trailers().is_empty());
}

#[test]
fn body_of_a_stream_gets_chunks() {
    let mut body = Body::new(BodyFraming::Chunked, MessageForm::Fields, true);
    assert_eq!(take(&mut body, b"0123456789abcdefg").unwrap().0, b"11\r\n0123456789abcdefg\r\n");
    assert_eq!(take(&mut body, b"").unwrap().0, b"");
    assert!(!body.is_done());
    let trailers = list(&[("x-sum", "9"), ("content-length", "3")]);
    body.end(FieldList::new(&trailers)).unwrap();
    let (framed, taken) = take(&mut body, b"end").unwrap();
    assert_eq!(framed, b"3\r\nend\r\n0\r\nx-sum: 9\r\n\r\n");
    assert_eq!(taken, Taken { consumed: 3, kept: 3, payload_bytes: 3, done: true });
}

#[test]
fn body_between_streams_is_its_payload() {
    let mut body = Body::new(BodyFraming::Chunked, MessageForm::Fields, false);
    assert_eq!(take(&mut body, b"abc").unwrap().0, b"abc");
    let trailers = list(&[("x-sum", "9"), ("te", "trailers")]);
    body.end(FieldList::new(&trailers)).unwrap();
    assert_eq!(take(&mut body, b"").unwrap().0, b"");
    assert_eq!(lines(body.trailers()), "x-sum: 9\n");
}

#[test]
fn trailers_for_a_stream_are_in_lower_case() {
    let mut body = Body::new(BodyFraming::Chunked, MessageForm::Text, false);
    let (framed, taken) = take(&mut body, b"1\r\nx\r\n0\r\nX-Sum:9\r\nVia: a\r\n\r\n").unwrap();
    assert_eq!((framed, taken.done), (b"x".to_vec(), true));
    assert_eq!(lines(body.trailers()), "x-sum: 9\n");
}

#[test]
fn trailers_of_a_stream_have_the_limits_of_chunks() {
    let end = |trailers: &[u8]| {
        let mut body = Body::new(BodyFraming::Chunked, MessageForm::Fields, false);
        body.end(FieldList::new(trailers))
    };
    assert_eq!(end(&list(&[("x", "y"); TRAILERS_MAX])), Ok(()));
    assert_eq!(end(&list(&[("x", "y"); TRAILERS_MAX + 1])), Err(ParseError::TooManyHeaders));
    let value = |bytes: usize| "y".repeat(bytes);
    let max = MAX_TRAILER_BYTES - "x: \r\n".len();
    assert_eq!(end(&list(&[("x", &value(max))])), Ok(()));
    assert_eq!(end(&list(&[("x", &value(max + 1))])), Err(ParseError::TrailerTooLong));
}

#[test]
fn forbidden_trailers_are_dropped_in_any_spelling() {
    let section = b"Server-Timing: a;dur=1\r\nContent-Length: 5\r\nX-Sum:  ab \r\n\
        X-Forwarded-For: 1.2.3.4\r\nif-match: *\r\nTRANSFER-ENCODING: chunked\r\n\
        X_Forwarded_For: 1.2.3.4\r\nContent_Length: 5\r\n\r\n";
    let kept = parse_trailers(section, Coding::Kept).unwrap();
    assert_eq!(lines(FieldList::new(&kept)), "Server-Timing: a;dur=1\nX-Sum: ab\n");
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
        let kept = parse_trailers(section.as_bytes(), Coding::Kept).unwrap();
        assert_eq!(lines(FieldList::new(&kept)), "ETag: \"a\"\n", "{name}");
    }
}

#[test]
fn edited_headers_are_dropped_from_trailers() {
    let mut body = Body::new(BodyFraming::Chunked, MessageForm::Text, true);
    let mut section = b"0\r\nX-User: evil\r\nX-Sum: 9:9\r\nx-debug: a\r\n\r\n".to_vec();
    assert!(body.take(&mut section, |_| {}).unwrap().done);
    body.edit_trailers(&HeaderEdits::default());
    assert_eq!(lines(body.trailers()), "X-User: evil\nX-Sum: 9:9\nx-debug: a\n");
    let edits = HeaderEdits {
        templates: Vec::new(),
        set: vec![("x-user".into(), "me".into())],
        remove: vec!["x-debug".into()],
    };
    body.edit_trailers(&edits);
    assert_eq!(lines(body.trailers()), "X-Sum: 9:9\n");
}

#[test]
fn malformed_trailers_are_errors() {
    for section in
        [&b"no colon\r\n\r\n"[..], b"a b: c\r\n\r\n", b"a: b\0\r\n\r\n", b" a: b\r\n\r\n"]
    {
        assert!(parse_trailers(section, Coding::Kept).is_err(), "{}", section.escape_ascii());
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
