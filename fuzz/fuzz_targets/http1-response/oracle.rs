//! Second implementation of RFC 9112, section 6.3, based on httparse only: one function per rule, all bytes at hand, as
//! lenient as the RFC allows.

use httparse::Status;
use tollgate_http1::{
    MAX_CHUNK_LINE_BYTES, MAX_HEAD_BYTES, MAX_HEADERS, MAX_TRAILER_BYTES, ParseError, Response,
};

use crate::Scanned;

/// More headers than any input contains.
const HEADERS_MAX: usize = 4096;

/// One response at the start of bytes.
struct Message<'a> {
    /// Heads of interim responses, then of the final one.
    heads: Vec<Head<'a>>,
    status: u16,
    body: Body,
}

struct Head<'a> {
    starts_with_line_end: bool,
    status: u16,
    header_count: usize,
    lengths: Vec<&'a [u8]>,
    codings: Vec<&'a [u8]>,
}

/// Payload of a body, and its end, counted from the first byte of the response.
enum Body {
    Ended { payload: Vec<u8>, end: usize },
    UntilClose { payload: Vec<u8> },
    Truncated,
    Invalid,
}

/// Checks that the scanner's responses are those of the oracle, and that its error, if any, is an error of the oracle or a
/// rule on which the scanner is stricter.
pub(crate) fn check(
    bytes: &[u8],
    to_head: bool,
    responses: &[Scanned],
    close: &Result<Option<Response>, ParseError>,
) {
    let mut from = 0;
    for ours in responses {
        let Ok(Some(theirs)) = message(&bytes[from..], to_head) else {
            panic!("the oracle has no head at {from}, the scanner has {ours:?}");
        };
        assert_eq!(ours.response.status, theirs.status, "status of the response at {from}");
        match theirs.body {
            Body::Ended { payload, end } => {
                assert_eq!(ours.payload, payload, "body at {from}");
                assert_eq!(ours.end, from + end, "end of the response at {from}");
            }
            Body::Invalid if is_more_lenient(&bytes[from..ours.end]) => {}
            Body::UntilClose { .. } | Body::Truncated | Body::Invalid => {
                panic!("the oracle has no end of the response at {from}, the scanner has {ours:?}")
            }
        }
        from = ours.end;
    }
    check_close(&bytes[from..], to_head, close);
}

fn check_close(bytes: &[u8], to_head: bool, close: &Result<Option<Response>, ParseError>) {
    let theirs = message(bytes, to_head);
    match (close, theirs) {
        (Ok(None), Ok(None)) => assert!(bytes.is_empty(), "bytes are left over"),
        (Ok(Some(ours)), Ok(Some(Message { status, body: Body::UntilClose { payload }, .. }))) => {
            assert_eq!(ours.status, status, "until close");
            assert_eq!(ours.body_bytes, payload.len() as u64, "until close");
            assert!(!ours.keep_alive, "a closed connection");
        }
        (Err(ParseError::ClosedMidResponse), Ok(Some(Message { body: Body::Truncated, .. }))) => {}
        (Err(ParseError::ClosedMidResponse), Ok(Some(Message { body: Body::Invalid, .. })))
            if is_more_lenient(bytes) => {}
        (Err(error), Ok(Some(theirs))) => {
            let both =
                matches!(theirs.body, Body::Invalid) && *error != ParseError::ClosedMidResponse;
            assert!(
                both || is_stricter(bytes, &theirs, error),
                "only the scanner rejects: {error:?}"
            );
        }
        // An error before the final head, possibly in an interim one.
        (Err(_), Ok(None)) => {}
        (Err(error), Err(_)) => {
            assert_ne!(*error, ParseError::ClosedMidResponse, "only the oracle rejects");
        }
        (Ok(ours), theirs) => {
            let heads = theirs.map(|message| message.map(|message| message.heads.len()));
            panic!("at the close the scanner has {ours:?}, the oracle {heads:?} heads")
        }
    }
}

/// Reads interim responses and the final one; `None` if the bytes end before its body.
fn message(bytes: &[u8], to_head: bool) -> Result<Option<Message<'_>>, httparse::Error> {
    let mut heads = Vec::new();
    let mut at = 0;
    loop {
        let mut headers = vec![httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        // As RFC 9112 asks of clients.
        let mut config = httparse::ParserConfig::default();
        config.allow_obsolete_multiline_headers_in_responses(true);
        let (Status::Complete(length), Some(status)) =
            (config.parse_response(&mut response, &bytes[at..])?, response.code)
        else {
            return Ok(None);
        };
        let head = Head {
            starts_with_line_end: matches!(bytes[at], b'\r' | b'\n'),
            status,
            header_count: response.headers.len(),
            lengths: elements(response.headers, "content-length"),
            codings: elements(response.headers, "transfer-encoding"),
        };
        at += length;
        if status == 100 || (102..200).contains(&status) {
            heads.push(head);
            continue;
        }
        let body = body(&bytes[at..], at, &head, to_head);
        heads.push(head);
        return Ok(Some(Message { heads, status, body }));
    }
}

/// Returns the elements of a list, possibly spread over several headers.
fn elements<'a>(headers: &[httparse::Header<'a>], name: &str) -> Vec<&'a [u8]> {
    let named = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
    named
        .flat_map(|header| header.value.split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .collect()
}

/// RFC 9112, section 6.3, rule by rule.
fn body(rest: &[u8], head_end: usize, head: &Head<'_>, to_head: bool) -> Body {
    // 1. and 2.
    if to_head || matches!(head.status, 100..=199 | 204 | 304) {
        return Body::Ended { payload: Vec::new(), end: head_end };
    }
    // 3. and 4.
    if let Some(last) = head.codings.last() {
        return if last.eq_ignore_ascii_case(b"chunked") {
            chunked(rest, head_end)
        } else {
            Body::UntilClose { payload: rest.to_vec() }
        };
    }
    // 8.
    let Some(first) = head.lengths.first() else {
        return Body::UntilClose { payload: rest.to_vec() };
    };
    // 5. and 6.
    let Some(length) = decimal(first) else { return Body::Invalid };
    if head.lengths.iter().any(|other| decimal(other) != Some(length)) {
        return Body::Invalid;
    }
    match usize::try_from(length) {
        Ok(taken) if taken <= rest.len() => {
            Body::Ended { payload: rest[..taken].to_vec(), end: head_end + taken }
        }
        _ => Body::Truncated,
    }
}

/// Larger lengths and chunk sizes are rejected, since many servers use signed numbers.
const LENGTH_MAX: u64 = i64::MAX as u64;

fn decimal(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    // The standard parser accepts a plus sign.
    let length = if text.starts_with('+') { None } else { text.parse().ok() };
    length.filter(|length| *length <= LENGTH_MAX)
}

/// RFC 9112, section 7.1.
fn chunked(rest: &[u8], head_end: usize) -> Body {
    let mut at = 0;
    let mut payload = Vec::new();
    loop {
        // httparse accepts a size without digits as 0.
        if rest.get(at).is_some_and(|first| !first.is_ascii_hexdigit()) {
            return Body::Invalid;
        }
        let (line, size) = match httparse::parse_chunk_size(&rest[at..]) {
            Ok(Status::Complete(parsed)) => parsed,
            Ok(Status::Partial) => return Body::Truncated,
            Err(httparse::InvalidChunkSize) => return Body::Invalid,
        };
        if size > LENGTH_MAX {
            return Body::Invalid;
        }
        at += line;
        if size == 0 {
            break;
        }
        let Some(after) = usize::try_from(size).ok().and_then(|size| at.checked_add(size)) else {
            return Body::Truncated;
        };
        match rest.get(after..) {
            Some([b'\r', b'\n', ..]) => {}
            None | Some([] | [b'\r']) => return Body::Truncated,
            Some(_) => return Body::Invalid,
        }
        payload.extend_from_slice(&rest[at..after]);
        at = after + 2;
    }
    // The trailer: lines up to an empty one.
    loop {
        let Some(line) = rest[at..].windows(2).position(|end| end == b"\r\n") else {
            return Body::Truncated;
        };
        at += line + 2;
        if line == 0 {
            return Body::Ended { payload, end: head_end + at };
        }
    }
}

/// Returns true where the scanner is more lenient than the oracle: a chunk size with leading zeros and more than 16
/// digits, the limit of httparse.
fn is_more_lenient(message: &[u8]) -> bool {
    message.windows(17).any(|digits| digits[0] == b'0' && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Returns true if the scanner has its own reason to reject.
fn is_stricter(bytes: &[u8], message: &Message<'_>, error: &ParseError) -> bool {
    let any_head = |holds: fn(&Head<'_>) -> bool| message.heads.iter().any(holds);
    match error {
        // Limits.
        ParseError::HeadTooLong => bytes.len() > MAX_HEAD_BYTES,
        ParseError::TooManyHeaders => any_head(|head| head.header_count > MAX_HEADERS),
        ParseError::ChunkLineTooLong => bytes.len() > MAX_CHUNK_LINE_BYTES,
        ParseError::TrailerTooLong => bytes.len() > MAX_TRAILER_BYTES,
        // Only servers may skip an empty line before a message.
        ParseError::EmptyLineBeforeResponse => any_head(|head| head.starts_with_line_end),
        // No class of status codes.
        ParseError::Status(_) => any_head(|head| head.status < 100),
        // No request asked for it.
        ParseError::SwitchesProtocols => message.status == 101,
        // An invalid length is an error even if no body follows or the codings override it.
        ParseError::ContentLength(_) | ParseError::ContentLengths(..) => {
            any_head(|head| !head.lengths.is_empty())
        }
        // The RFC allows clients to guess.
        ParseError::TwoFramings => {
            any_head(|head| !head.codings.is_empty() && !head.lengths.is_empty())
        }
        ParseError::TransferEncoding(_) | ParseError::TransferEncodingInHttp10 => {
            any_head(|head| !head.codings.is_empty())
        }
        // A bare CR or LF in an extension or in the trailer, or a NUL in an extension.
        ParseError::ChunkEnd => has_bare_line_end(bytes) || bytes.contains(&0),
        ParseError::Head(_) | ParseError::ChunkSize | ParseError::ClosedMidResponse => false,
        // Requests only.
        ParseError::BareLineFeed
        | ParseError::HostCount(_)
        | ParseError::Host(_)
        | ParseError::Target(_)
        | ParseError::UnknownCoding(_)
        | ParseError::Version
        // Lists of HTTP/2 only.
        | ParseError::FieldList => false,
    }
}

fn has_bare_line_end(bytes: &[u8]) -> bool {
    let returns = bytes.iter().filter(|byte| **byte == b'\r').count();
    let feeds = bytes.iter().filter(|byte| **byte == b'\n').count();
    let pairs = bytes.windows(2).filter(|pair| pair == b"\r\n").count();
    returns > pairs || feeds > pairs
}
