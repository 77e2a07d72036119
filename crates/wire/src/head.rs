//! Parsing the head of a request.

use std::mem::MaybeUninit;

use httparse::{Header, Status};
use memchr::memchr_iter;

use crate::error::ParseError;
use crate::framing::{BodyFraming, Fields};
use crate::headers::Headers;
use crate::target::Target;

/// The longest head, in bytes, that is read, of a request or a response.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;

/// How many headers a head may have.
pub const MAX_HEADERS: usize = 100;

/// A version of HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: a connection carries one request unless both sides say otherwise.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// The head of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead<'a> {
    /// The method, as sent.
    pub method: &'a str,
    /// The request target, as sent: not decoded, with its query.
    pub target: &'a str,
    /// The same in its parts.
    pub target_parts: Target<'a>,
    /// The version.
    pub version: Version,
    /// Whether the client wants to send more requests on the connection.
    pub keep_alive: bool,
    /// Where the body ends; never [`BodyFraming::UntilClose`].
    pub body: BodyFraming,
    /// Whether the client waits for a `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// The host that the request is for; HTTP/1.1 has one always, though it may be empty.
    pub host: Option<&'a str>,
    /// The headers, for who needs others than these.
    pub headers: Headers<'a>,
    /// The length of the head in bytes, with the empty line that ends it.
    pub len: usize,
}

/// Parses the head at the start of `bytes`; `None` when more bytes are needed. Empty lines before it
/// are passed over (RFC 9112, section 2.2).
///
/// # Errors
///
/// The bytes are no head of an HTTP/1 request, its target, framing or host is faulty, or it exceeds a limit.
/// What two servers might read in two ways is refused, also where RFC 9112 leaves a choice: lines that
/// end in LF alone, a length that is there twice, codings other than `chunked`.
pub fn parse_request_head(bytes: &[u8]) -> Result<Option<RequestHead<'_>>, ParseError> {
    let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    let parsed = match request.parse_with_uninit_headers(bytes, &mut headers) {
        Err(httparse::Error::Version) if names_later_version(bytes) => {
            return Err(ParseError::Version);
        }
        parsed => parsed?,
    };
    let Some(len) = head_len(parsed, bytes.len())? else {
        return Ok(None);
    };
    let (Some(method), Some(target), Some(version)) =
        (request.method, request.path, request.version)
    else {
        return Ok(None);
    };
    if has_bare_line_feed(&bytes[..len]) {
        return Err(ParseError::BareLineFeed);
    }
    let target_parts = Target::read(method, target)?;
    let version = Version::from_minor(version);
    let fields = Fields::read(request.headers)?;
    let body = fields.framing(version)?.unwrap_or(BodyFraming::Empty);
    Ok(Some(RequestHead {
        method,
        target,
        target_parts,
        version,
        keep_alive: fields.keep_alive(version),
        body,
        host: fields.request_host(version)?,
        headers: Headers::of_parsed_head(&bytes[..len]),
        // RFC 9110, section 10.1.1: the expectation of an HTTP/1.0 client is ignored.
        expects_continue: fields.expects_continue && version == Version::Http11,
        len,
    }))
}

/// The head of one answer, interim ones (1xx) included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerHead<'a> {
    /// The status code, 100 to 999.
    pub status: u16,
    /// The words after it, as sent; empty where they are missing or not ASCII.
    pub reason: &'a str,
    /// The version.
    pub version: Version,
    /// Whether the server keeps the connection open for another request.
    pub keep_alive: bool,
    /// Where the body ends.
    pub body: BodyFraming,
    /// The `Content-Length`, which in the answer to a HEAD, and in a 304, is not that of the body.
    pub content_length: Option<u64>,
    /// Whether the last transfer coding is `chunked`, though there may be no body.
    pub is_chunked: bool,
    /// Whether there is another transfer coding besides.
    pub has_other_coding: bool,
    /// The headers.
    pub headers: Headers<'a>,
    /// The length of the head in bytes, with the empty line that ends it.
    pub len: usize,
}

/// Parses the head of an answer at the start of `bytes`; `None` when more bytes are needed. `to_head`:
/// it answers a HEAD request. Lines may end in LF alone, which no peer of ours takes for anything else.
///
/// # Errors
///
/// The bytes are no head of an HTTP/1 answer, its framing is faulty, or it exceeds a limit.
pub fn parse_answer_head(
    bytes: &[u8],
    to_head: bool,
) -> Result<Option<AnswerHead<'_>>, ParseError> {
    // The parser skips empty lines, which only servers should do (RFC 9112, section 2.2).
    if matches!(bytes.first(), Some(b'\r' | b'\n')) {
        return Err(ParseError::EmptyLineBeforeAnswer);
    }
    let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        bytes,
        &mut headers,
    )?;
    let Some(len) = head_len(parsed, bytes.len())? else {
        return Ok(None);
    };
    let (Some(status), Some(version)) = (response.code, response.version) else {
        return Ok(None);
    };
    if status < 100 {
        return Err(ParseError::Status(status));
    }
    let version = Version::from_minor(version);
    let fields = Fields::read(response.headers)?;
    let body = match status {
        100..=199 => BodyFraming::Empty,
        _ if to_head || matches!(status, 204 | 304) => {
            fields.check_framing(version)?;
            BodyFraming::Empty
        }
        _ => fields.framing(version)?.unwrap_or(BodyFraming::UntilClose),
    };
    Ok(Some(AnswerHead {
        status,
        reason: response.reason.unwrap_or_default(),
        version,
        keep_alive: fields.keep_alive(version) && body != BodyFraming::UntilClose,
        body,
        content_length: fields.content_length(),
        is_chunked: fields.is_chunked(),
        has_other_coding: fields.has_other_coding(),
        headers: Headers::of_parsed_head(&bytes[..len]),
        len,
    }))
}

/// What a response's head says that the scanner needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    pub(crate) keep_alive: bool,
    pub(crate) body: BodyFraming,
    pub(crate) len: usize,
}

/// Parses the head of a response at the start of `bytes`; `to_head`: it answers a HEAD request.
pub(crate) fn parse_response_head(
    bytes: &[u8],
    to_head: bool,
) -> Result<Option<ResponseHead>, ParseError> {
    let head = parse_answer_head(bytes, to_head)?;
    Ok(head.map(|AnswerHead { status, keep_alive, body, len, .. }| ResponseHead {
        status,
        keep_alive,
        body,
        len,
    }))
}

/// Whether the request line says HTTP/2 or later where its version belongs. What comes after the digit
/// may be missing still, and is not looked at.
fn names_later_version(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).find(|line| !line.is_empty());
    let version = line.and_then(|line| line.splitn(3, |byte| *byte == b' ').nth(2));
    matches!(version, Some([b'H', b'T', b'T', b'P', b'/', b'2'..=b'9', ..]))
}

impl Version {
    fn from_minor(minor: u8) -> Self {
        // The parser accepts 0 and 1 only.
        if minor == 0 { Self::Http10 } else { Self::Http11 }
    }
}

fn has_bare_line_feed(head: &[u8]) -> bool {
    memchr_iter(b'\n', head).any(|at| at == 0 || head[at - 1] != b'\r')
}

fn head_len(parsed: Status<usize>, available: usize) -> Result<Option<usize>, ParseError> {
    match parsed {
        Status::Complete(len) if len <= MAX_HEAD_BYTES => Ok(Some(len)),
        Status::Partial if available < MAX_HEAD_BYTES => Ok(None),
        Status::Complete(_) | Status::Partial => Err(ParseError::HeadTooLong),
    }
}
