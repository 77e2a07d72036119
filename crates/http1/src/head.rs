//! Parsing the heads of requests and responses.

use std::mem::MaybeUninit;

use httparse::{Header, Status};
use memchr::memchr_iter;

use crate::error::{MAX_HEAD_BYTES, MAX_HEADERS, ParseError};
use crate::field_list::{FieldList, ListedField};
use crate::headers::{BodyFraming, FramingHeaders, Headers, Version, excerpt, parse_host};
use crate::status::reason_phrase;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead<'a> {
    pub method: &'a str,
    /// Request target with its query, as sent, not decoded.
    pub target: &'a str,
    /// The same target, split.
    pub target_parts: Target<'a>,
    /// The target was received as a field that must not be indexed.
    pub is_target_sensitive: bool,
    pub version: Version,
    /// True if the client keeps the connection open for another request.
    pub keep_alive: bool,
    /// Framing of the body; never [`BodyFraming::UntilClose`].
    pub body: BodyFraming,
    /// True if the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// True if there is an expectation other than `100-continue`.
    pub has_other_expectation: bool,
    /// Value of `Host`. Always present in HTTP/1.1, but possibly empty.
    pub host: Option<&'a str>,
    pub headers: Headers<'a>,
    pub header_count: usize,
    /// Length of the head in bytes, with its end.
    pub len: usize,
    /// Length that the head has in HTTP/1.1, for limits.
    pub text_len: usize,
}

/// Head of a response, which may be interim (1xx).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead<'a> {
    /// Status code, 100 to 999.
    pub status: u16,
    /// Reason phrase, as sent; empty if it is missing or not ASCII.
    pub reason: &'a str,
    pub version: Version,
    /// True if the server keeps the connection open for another request.
    pub keep_alive: bool,
    pub body: BodyFraming,
    /// Value of `Content-Length`. In a 304 and in a response to HEAD it is not the length of the body.
    pub content_length: Option<u64>,
    /// True if the last transfer coding is `chunked`, even where no body follows.
    pub is_chunked: bool,
    /// True if there is another transfer coding.
    pub has_other_coding: bool,
    /// None unless the head was parsed for a client.
    pub faults: HeadFaults,
    /// Of a folded value, the first line.
    pub headers: Headers<'a>,
    pub header_count: usize,
    /// Length of the head in bytes, with its end.
    pub len: usize,
}

/// Faults of a response head that clients accept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadFaults {
    /// A header line continues the one before (RFC 9112, section 5.2).
    pub is_folded: bool,
    /// `Content-Length` stands beside a transfer coding, which overrides it (RFC 9112, section 6.3).
    pub has_two_framings: bool,
}

/// Part of a response head that [`ResponseScanner`](crate::ResponseScanner) needs.
#[derive(Clone, Copy, Debug)]
pub struct ResponseSummary {
    pub(crate) status: u16,
    pub(crate) keep_alive: bool,
    pub(crate) body: BodyFraming,
    pub(crate) faults: HeadFaults,
    pub(crate) len: usize,
}

/// Request target, split (RFC 9112, section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// Host and port of a target in absolute form, or of a CONNECT.
    pub authority: Option<&'a str>,
    /// Path and query, as sent. Empty for a CONNECT and for an absolute form without path; `*` for the asterisk
    /// form.
    pub path_and_query: &'a str,
}

/// Parses the request head at the start of `bytes`. Returns `None` if more bytes are needed. Skips leading empty
/// lines (RFC 9112, section 2.2).
///
/// # Errors
///
/// The bytes are not an HTTP/1 request, target, framing or host are invalid, or a limit is exceeded. Also rejects
/// ambiguities that RFC 9112 leaves open: lines that end in LF alone, a repeated length, codings other than `chunked`.
pub fn parse_request_head(bytes: &[u8]) -> Result<Option<RequestHead<'_>>, ParseError> {
    let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    let parsed = match request.parse_with_uninit_headers(bytes, &mut headers) {
        Err(httparse::Error::Version) if has_later_version(bytes) => {
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
    let parts = RequestParts {
        method,
        target,
        version: Version::from_minor(version),
        headers: Headers::of_parsed_head(&bytes[..len]),
        header_count: request.headers.len(),
        len,
        text_len: len,
    };
    parts.check(&FramingHeaders::of_parsed(request.headers)?).map(Some)
}

/// Parts of a request head, from text or from fields, before the checks that both have in common.
struct RequestParts<'a> {
    method: &'a str,
    target: &'a str,
    version: Version,
    headers: Headers<'a>,
    header_count: usize,
    len: usize,
    text_len: usize,
}

impl<'a> RequestParts<'a> {
    fn check(self, framing_headers: &FramingHeaders<'a>) -> Result<RequestHead<'a>, ParseError> {
        let Self { method, target, version, headers, header_count, len, text_len } = self;
        let target_parts = Target::parse(method, target)?;
        let body = framing_headers.framing(version)?.unwrap_or(BodyFraming::Empty);
        // RFC 9110, section 10.1.1: the expectation of an HTTP/1.0 client is ignored.
        let has_expectations = version != Version::Http10;
        Ok(RequestHead {
            method,
            target,
            target_parts,
            is_target_sensitive: false,
            version,
            keep_alive: framing_headers.keep_alive(version),
            body,
            host: framing_headers.request_host(version)?,
            headers,
            header_count,
            expects_continue: framing_headers.expects_continue && has_expectations,
            has_other_expectation: framing_headers.has_other_expectation && has_expectations,
            len,
            text_len,
        })
    }
}

impl<'a> RequestHead<'a> {
    /// Checks the head of a request as [`parse_request_head`] does: the [`FieldList`] at the start of `bytes`, which begins with
    /// `:method` and `:path`, and has the headers of the request in HTTP/1.1: `host`, and for a body `content-length` or
    /// `transfer-encoding`.
    ///
    /// # Errors
    ///
    /// As [`parse_request_head`], but for the limits of a head; and if the list has no end. Names and values must be those of
    /// checked fields.
    pub fn of_fields(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let mut fields = FieldList::new(bytes);
        let len = fields.len().ok_or(ParseError::FieldList)?;
        let method = take_field(&mut fields, b":method")?;
        let path = take_field(&mut fields, b":path")?;
        let (Ok(method), Ok(target)) = (str::from_utf8(method.value), str::from_utf8(path.value))
        else {
            return Err(ParseError::Target(excerpt(path.value)));
        };
        // As the parser of text has it.
        if !target.bytes().all(|byte| byte > b' ' && byte != 0x7f) {
            return Err(ParseError::Target(excerpt(target.as_bytes())));
        }
        let line_bytes =
            |field: ListedField<'_>| field.name.len() + field.value.len() + ": \r\n".len();
        let lines = fields.iter().map(line_bytes).sum::<usize>();
        let text_len = method.len() + target.len() + "  HTTP/1.1\r\n\r\n".len() + lines;
        let headers = Headers::of_fields(fields);
        let version = Version::Http2;
        let parts = RequestParts {
            method,
            target,
            version,
            headers,
            header_count: fields.iter().count(),
            len,
            text_len,
        };
        let head = parts.check(&FramingHeaders::of_fields(fields)?)?;
        Ok(Self { is_target_sensitive: path.is_sensitive, ..head })
    }
}

fn take_field<'a>(fields: &mut FieldList<'a>, name: &[u8]) -> Result<ListedField<'a>, ParseError> {
    fields.next_field().filter(|field| field.name == name).ok_or(ParseError::FieldList)
}

/// Parses the response head at the start of `bytes`. Returns `None` if more bytes are needed. `to_head` is true for
/// the response to a HEAD request. Lines may end in LF alone.
///
/// # Errors
///
/// The bytes are not an HTTP/1 response, its framing is invalid, or a limit is exceeded.
pub fn parse_response_head(
    bytes: &[u8],
    to_head: bool,
) -> Result<Option<ResponseHead<'_>>, ParseError> {
    parse_response(bytes, to_head, false)
}

/// As [`parse_response_head`], for a client that forwards nothing: it accepts [`HeadFaults`].
///
/// # Errors
///
/// As [`parse_response_head`].
pub fn parse_response_head_for_client(
    bytes: &[u8],
    to_head: bool,
) -> Result<Option<ResponseHead<'_>>, ParseError> {
    parse_response(bytes, to_head, true)
}

fn parse_response(
    bytes: &[u8],
    to_head: bool,
    is_client: bool,
) -> Result<Option<ResponseHead<'_>>, ParseError> {
    // The parser skips empty lines, which RFC 9112, section 2.2, allows for requests only.
    if matches!(bytes.first(), Some(b'\r' | b'\n')) {
        return Err(ParseError::EmptyLineBeforeResponse);
    }
    let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    let mut config = httparse::ParserConfig::default();
    config.allow_obsolete_multiline_headers_in_responses(is_client);
    let parsed = config.parse_response_with_uninit_headers(&mut response, bytes, &mut headers)?;
    let Some(len) = head_len(parsed, bytes.len())? else {
        return Ok(None);
    };
    let (Some(status), Some(version)) = (response.code, response.version) else {
        return Ok(None);
    };
    let mut framing_headers = FramingHeaders::of_parsed(response.headers)?;
    let mut faults = HeadFaults::default();
    if is_client {
        faults.is_folded = response.headers.iter().any(|header| header.value.contains(&b'\n'));
        faults.has_two_framings = framing_headers.drop_overridden_length();
    }
    let parts = ResponseParts {
        status,
        // The parser leaves it out if it is not ASCII.
        reason: response.reason.unwrap_or(""),
        version: Version::from_minor(version),
        faults,
        headers: Headers::of_parsed_head(&bytes[..len]),
        header_count: response.headers.len(),
        len,
    };
    parts.check(&framing_headers, to_head).map(Some)
}

/// Parts of a response head, from text or from fields, before the checks that both have in common.
struct ResponseParts<'a> {
    status: u16,
    reason: &'a str,
    version: Version,
    faults: HeadFaults,
    headers: Headers<'a>,
    header_count: usize,
    len: usize,
}

impl<'a> ResponseParts<'a> {
    fn check(
        self,
        framing_headers: &FramingHeaders<'a>,
        to_head: bool,
    ) -> Result<ResponseHead<'a>, ParseError> {
        let Self { status, reason, version, faults, headers, header_count, len } = self;
        if status < 100 {
            return Err(ParseError::Status(status));
        }
        let body = match status {
            100..=199 => BodyFraming::Empty,
            _ if to_head || matches!(status, 204 | 304) => {
                framing_headers.check_framing(version)?;
                BodyFraming::Empty
            }
            _ => framing_headers.framing(version)?.unwrap_or(BodyFraming::UntilClose),
        };
        Ok(ResponseHead {
            status,
            reason,
            version,
            keep_alive: framing_headers.keep_alive(version) && body != BodyFraming::UntilClose,
            body,
            content_length: framing_headers.content_length,
            is_chunked: framing_headers.is_chunked(),
            has_other_coding: framing_headers.other_coding.is_some(),
            faults,
            headers,
            header_count,
            len,
        })
    }
}

impl<'a> ResponseHead<'a> {
    /// Checks the head of a response as [`parse_response_head`] does: the [`FieldList`] at the start of `bytes`, which begins
    /// with `:status`, and has the headers of the response in HTTP/1.1. Returns `None` if the list has no end.
    ///
    /// # Errors
    ///
    /// As [`parse_response_head`], but for the limits of a head. Names and values must be those of checked fields.
    pub fn of_fields(bytes: &'a [u8], to_head: bool) -> Result<Option<Self>, ParseError> {
        let mut fields = FieldList::new(bytes);
        let Some(len) = fields.len() else { return Ok(None) };
        let status = take_field(&mut fields, b":status")?;
        let status = str::from_utf8(status.value).ok().and_then(|digits| digits.parse().ok());
        let status = status.ok_or(ParseError::FieldList)?;
        let parts = ResponseParts {
            status,
            // HTTP/2 has none; that of an upgrade is usual.
            reason: if status == 101 { reason_phrase(status) } else { "" },
            version: Version::Http2,
            faults: HeadFaults::default(),
            headers: Headers::of_fields(fields),
            header_count: fields.iter().count(),
            len,
        };
        parts.check(&FramingHeaders::of_fields(fields)?, to_head).map(Some)
    }
}

/// As [`parse_response_head_for_client`], reduced to the fields for the scanner.
pub(crate) fn parse_response_summary(
    bytes: &[u8],
    to_head: bool,
) -> Result<Option<ResponseSummary>, ParseError> {
    let head = parse_response_head_for_client(bytes, to_head)?;
    Ok(head.map(|ResponseHead { status, keep_alive, body, faults, len, .. }| ResponseSummary {
        status,
        keep_alive,
        body,
        faults,
        len,
    }))
}

/// Returns true if the request line has version HTTP/2 or later. The line may be incomplete after it.
fn has_later_version(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).find(|line| !line.is_empty());
    let version = line.and_then(|line| line.splitn(3, |byte| *byte == b' ').nth(2));
    matches!(version, Some([b'H', b'T', b'T', b'P', b'/', b'2'..=b'9', ..]))
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

impl<'a> Target<'a> {
    /// Splits the request target `text`.
    pub fn parse(method: &str, text: &'a str) -> Result<Self, ParseError> {
        // The common form first.
        if text.starts_with('/') {
            return Ok(Self { authority: None, path_and_query: text });
        }
        let invalid = || ParseError::Target(excerpt(text.as_bytes()));
        let (authority, path_and_query) = match strip_scheme(text) {
            Some(rest) => rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())),
            None if text == "*" && method == "OPTIONS" => {
                return Ok(Self { authority: None, path_and_query: text });
            }
            None if method == "CONNECT" => (text, ""),
            None => return Err(invalid()),
        };
        // RFC 9110, section 4.2.1: the host of an absolute form is not empty.
        let has_host = !authority.is_empty() && !authority.starts_with(':');
        if !has_host || parse_host(authority.as_bytes()).is_err() {
            return Err(invalid());
        }
        Ok(Self { authority: Some(authority), path_and_query })
    }
}

/// Strips `http://` or `https://`, compared without case.
fn strip_scheme(text: &str) -> Option<&str> {
    ["http://", "https://"].into_iter().find_map(|scheme| {
        let (found, rest) = text.split_at_checked(scheme.len())?;
        found.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}
