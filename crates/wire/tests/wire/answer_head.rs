use tollgate_wire::{BodyFraming, ParseError, Version, parse_answer_head};

#[test]
fn a_head_says_what_who_passes_it_on_needs() {
    let bytes = b"HTTP/1.0 404 Not Here\nContent-Length: 5, 5\r\nConnection: keep-alive\r\nX: y \r\n\r\nbody!";
    let head = parse_answer_head(bytes, false).unwrap().unwrap();
    assert_eq!((head.status, head.reason, head.version), (404, "Not Here", Version::Http10));
    assert!(head.keep_alive);
    assert_eq!((head.body, head.content_length), (BodyFraming::Length(5), Some(5)));
    assert_eq!((head.is_chunked, head.has_other_coding), (false, false));
    assert_eq!(head.headers.first("x"), Some(&b"y"[..]));
    assert_eq!(&bytes[head.len..], b"body!");
}

#[test]
fn without_a_body_the_length_and_the_coding_are_told_all_the_same() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
    let head = parse_answer_head(bytes, true).unwrap().unwrap();
    assert_eq!((head.body, head.content_length), (BodyFraming::Empty, Some(9)));
    let bytes = b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: gzip, chunked\r\n\r\n";
    let head = parse_answer_head(bytes, false).unwrap().unwrap();
    assert_eq!((head.body, head.content_length), (BodyFraming::Empty, None));
    assert_eq!((head.is_chunked, head.has_other_coding), (true, true));
}

#[test]
fn what_contradicts_itself_is_an_error_without_a_body_as_well() {
    let old = b"HTTP/1.0 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(parse_answer_head(old, false), Err(ParseError::TransferEncodingInHttp10));
    let both = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(parse_answer_head(both, true), Err(ParseError::TwoFramings));
}

#[test]
fn interim_answers_are_heads_as_others_are() {
    let bytes = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\n\r\n";
    let head = parse_answer_head(bytes, false).unwrap().unwrap();
    assert_eq!((head.status, head.body), (101, BodyFraming::Empty));
}

#[test]
fn a_part_is_none_and_what_is_no_head_an_error() {
    assert_eq!(parse_answer_head(b"HTTP/1.1 200 OK\r\nA: b\r\n", false), Ok(None));
    let empty_line = Err(ParseError::EmptyLineBeforeAnswer);
    assert_eq!(parse_answer_head(b"\r\nHTTP/1.1 200 OK\r\n\r\n", false), empty_line);
    assert_eq!(parse_answer_head(b"HTTP/1.1 099 OK\r\n\r\n", false), Err(ParseError::Status(99)));
    let two = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n";
    assert_eq!(parse_answer_head(two, false), Err(ParseError::ContentLengths(1, 2)));
}
