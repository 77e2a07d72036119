//! Requests as endpoints see them: target, query, headers and body, and their errors.

use std::borrow::Cow;
use std::error::Error as _;
use std::fmt;

use percent_encoding::percent_decode_str;
use tollgate_http1::{BodyDecoder, BodyFraming, Headers, ParseError, RequestHead};
use tollgate_http2::Fields;

/// A request without its body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) query: Query<'a>,
    /// Never empty.
    pub(crate) host: Option<&'a str>,
    pub(crate) headers: RequestHeaders<'a>,
}

impl<'a> Request<'a> {
    pub(crate) fn new(head: &RequestHead<'a>) -> Self {
        let (path, query) = split_target(head.target_parts.path_and_query);
        Self {
            method: head.method,
            path,
            query: Query(query),
            // RFC 9112, section 3.2.2: the target takes precedence over Host.
            host: head.target_parts.authority.or(head.host).filter(|host| !host.is_empty()),
            headers: RequestHeaders::Http1(head.headers),
        }
    }

    /// The request whose head is in `fields`.
    pub(crate) fn http2(fields: &'a Fields) -> Self {
        // A CONNECT has no path.
        let (path, query) = split_target(fields.path().unwrap_or(""));
        let headers = RequestHeaders::Http2(fields);
        let host = || headers.first("host").and_then(|host| std::str::from_utf8(host).ok());
        Self {
            method: fields.method(),
            path,
            query: Query(query),
            host: fields.authority().or_else(host).filter(|host| !host.is_empty()),
            headers,
        }
    }
}

/// Headers in the order received, with duplicates.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestHeaders<'a> {
    Http1(Headers<'a>),
    Http2(&'a Fields),
}

impl<'a> RequestHeaders<'a> {
    /// Returns names as received, and values. Of HTTP/2, `:authority` is `host`, which it replaces; the other
    /// pseudo-fields are no headers.
    pub(crate) fn iter(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let (http1, http2) = match self {
            Self::Http1(headers) => (Some(headers.iter()), None),
            Self::Http2(fields) => {
                let authority = fields.authority().map(|host| ("host", host.as_bytes()));
                let headers = fields.headers().filter_map(move |field| {
                    let name = std::str::from_utf8(field.name).ok()?;
                    let is_repeated = name == "host" && authority.is_some();
                    (!is_repeated).then_some((name, field.value))
                });
                (None, Some(authority.into_iter().chain(headers)))
            }
        };
        http1.into_iter().flatten().chain(http2.into_iter().flatten())
    }

    /// Returns the values of all headers of this name, which is compared without case.
    pub(crate) fn all(self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.iter()
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    pub(crate) fn first(self, name: &str) -> Option<&'a [u8]> {
        self.all(name).next()
    }
}

/// Returns the path, `/` if there is none, and the query.
pub(crate) fn split_target(path_and_query: &str) -> (&str, &str) {
    let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
    (if path.is_empty() { "/" } else { path }, query)
}

/// Percent-decodes a path. `None` if nothing is encoded, or the result is not UTF-8.
pub(crate) fn decode_path(path: &str) -> Option<Cow<'_, str>> {
    if !path.contains('%') {
        return None;
    }
    percent_decode_str(path).decode_utf8().ok()
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    pub(crate) fn as_str(self) -> &'a str {
        self.0
    }

    /// Returns the value of the first parameter of this name, not decoded; empty for one without a
    /// value.
    pub(crate) fn get(self, name: &str) -> Option<&'a str> {
        self.0.split('&').find_map(|parameter| {
            let (found, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            (found == name).then_some(value)
        })
    }

    /// Parses a whole number within the limits of `allowed`.
    pub(crate) fn integer(
        self,
        name: &'static str,
        default: u64,
        allowed: Allowed,
    ) -> Result<u64, RequestError<'a>> {
        let Some(value) = self.get(name) else {
            return Ok(default);
        };
        let (min, max) = match allowed {
            Allowed::Bytes { min, max } => (min, max),
            Allowed::ZeroOrOne => (0, 1),
            _ => (0, u64::MAX),
        };
        let error = |is_too_large| RequestError::Parameter { name, value, allowed, is_too_large };
        // `parse` alone would accept a sign.
        if !is_digits(value) {
            return Err(error(false));
        }
        match value.parse() {
            Ok(number) if number < min => Err(error(false)),
            Ok(number) if number <= max => Ok(number),
            // Numbers above 64 bits do not parse.
            _ => Err(error(true)),
        }
    }

    /// Parses a decimal number, such as `2` or `0.25`, up to the maximum of `allowed`.
    pub(crate) fn decimal(
        self,
        name: &'static str,
        default: f64,
        allowed: Allowed,
    ) -> Result<f64, RequestError<'a>> {
        let Some(value) = self.get(name) else {
            return Ok(default);
        };
        let max = match allowed {
            Allowed::Seconds { max } | Allowed::Milliseconds { max } => f64::from(max),
            _ => 1.0,
        };
        let error = |is_too_large| RequestError::Parameter { name, value, allowed, is_too_large };
        let (integer, fraction) = value.split_once('.').unwrap_or((value, "0"));
        match value.parse::<f64>() {
            Ok(number) if is_digits(integer) && is_digits(fraction) && number <= max => Ok(number),
            Ok(_) if is_digits(integer) && is_digits(fraction) => Err(error(true)),
            _ => Err(error(false)),
        }
    }
}

pub(crate) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A request body being received; every piece is passed on once.
pub(crate) struct RequestBody {
    decoder: BodyDecoder,
    bytes_max: u64,
    received_bytes: u64,
}

impl RequestBody {
    /// Fails if `Content-Length` is above the limit.
    pub(crate) fn new(framing: BodyFraming, bytes_max: u64) -> Result<Self, RequestError<'static>> {
        match framing {
            BodyFraming::Length(bytes) if bytes > bytes_max => {
                Err(RequestError::BodyTooLarge { bytes_max })
            }
            _ => Ok(Self { decoder: BodyDecoder::new(framing), bytes_max, received_bytes: 0 }),
        }
    }

    /// Decodes the part of `input` that belongs to the body and passes its payload to `receive`,
    /// up to the limit. Returns the number of bytes consumed, and true if the body is complete.
    pub(crate) fn read(
        &mut self,
        input: &[u8],
        mut receive: impl FnMut(&[u8]),
    ) -> Result<(usize, bool), RequestError<'static>> {
        let Self { decoder, bytes_max, received_bytes } = self;
        let progress = decoder
            .feed(input, |piece| {
                *received_bytes += piece.len() as u64;
                if *received_bytes <= *bytes_max {
                    receive(piece);
                }
            })
            .map_err(RequestError::Malformed)?;
        // The size line of a chunk is enough to reject it.
        if self.received_bytes.saturating_add(self.decoder.remaining()) > self.bytes_max {
            return Err(RequestError::BodyTooLarge { bytes_max: self.bytes_max });
        }
        Ok((progress.consumed, progress.done))
    }

    pub(crate) fn received_bytes(&self) -> u64 {
        self.received_bytes
    }
}

/// Reason to answer a request with an error. The text is sent to the client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RequestError<'a> {
    Parameter {
        name: &'static str,
        value: &'a str,
        allowed: Allowed,
        is_too_large: bool,
    },
    UnknownMethod(&'a str),
    NotAnUpload {
        method: &'a str,
    },
    Malformed(ParseError),
    BodyTooLarge {
        bytes_max: u64,
    },
    Multipart {
        reason: String,
        is_too_large: bool,
    },
    PreconditionFailed {
        etag: u64,
    },
    RangeNotSatisfiable {
        size: u64,
    },
    /// Over a connection that has to use TLS.
    PlainHttp,
    TimedOut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    Bytes { min: u64, max: u64 },
    Seconds { max: u32 },
    Milliseconds { max: u32 },
    Probability,
    Distribution,
    Seed,
    Status,
    ZeroOrOne,
    PayloadType,
}

/// Longest part of an invalid value that is quoted, in characters.
const QUOTED_CHARS_MAX: usize = 64;

impl RequestError<'_> {
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Malformed(ParseError::HeadTooLong | ParseError::TooManyHeaders) => 431,
            Self::Malformed(ParseError::UnknownCoding(_)) | Self::UnknownMethod(_) => 501,
            Self::Malformed(ParseError::Version) => 505,
            // Neither is an amount.
            Self::Parameter { allowed: Allowed::ZeroOrOne | Allowed::Probability, .. } => 400,
            Self::Parameter { is_too_large: true, .. }
            | Self::Multipart { is_too_large: true, .. }
            | Self::BodyTooLarge { .. } => 413,
            Self::Parameter { .. }
            | Self::Malformed(_)
            | Self::Multipart { .. }
            | Self::PlainHttp => 400,
            Self::NotAnUpload { .. } => 405,
            Self::TimedOut => 408,
            Self::PreconditionFailed { .. } => 412,
            Self::RangeNotSatisfiable { .. } => 416,
        }
    }
}

impl fmt::Display for RequestError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameter { name, value, allowed, .. } => {
                let end =
                    value.char_indices().nth(QUOTED_CHARS_MAX).map_or(value.len(), |(at, _)| at);
                write!(f, "invalid {name} `{}`: must be {allowed}", &value[..end])
            }
            Self::UnknownMethod(method) => write!(
                f,
                "method `{method}` is not supported: must be GET, HEAD, POST, PUT, PATCH, DELETE \
                 or OPTIONS"
            ),
            Self::NotAnUpload { method } => {
                write!(f, "method `{method}` is not allowed: must be POST or PUT")
            }
            Self::Malformed(error) => match error.source() {
                Some(cause) => write!(f, "malformed request: {error}: {cause}"),
                None => write!(f, "malformed request: {error}"),
            },
            Self::BodyTooLarge { bytes_max } => {
                write!(f, "request body too large: the limit is {bytes_max} bytes")
            }
            Self::Multipart { reason, .. } => write!(f, "malformed multipart/form-data: {reason}"),
            Self::PreconditionFailed { etag } => {
                write!(f, "precondition failed: the ETag is \"{etag}\"")
            }
            Self::RangeNotSatisfiable { size } => {
                write!(f, "range not satisfiable: the size is {size} bytes")
            }
            Self::PlainHttp => write!(f, "plain HTTP sent where TLS is expected: use https"),
            Self::TimedOut => write!(f, "request timed out"),
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes { min, max } => write!(f, "a whole number of bytes from {min} to {max}"),
            Self::Seconds { max } => write!(f, "a number of seconds from 0 to {max}"),
            Self::Milliseconds { max } => write!(f, "a number of milliseconds from 0 to {max}"),
            Self::Probability => write!(f, "a number from 0 to 1"),
            Self::Distribution => write!(f, "fixed, bimodal or exponential"),
            Self::Seed => write!(f, "a whole number from 0 to {}", u64::MAX),
            Self::Status => write!(f, "a whole number from 200 to 599"),
            Self::ZeroOrOne => write!(f, "0 or 1"),
            Self::PayloadType => write!(f, "html or json"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_splits_into_path_and_query() {
        for (target, parts) in [
            ("/", ("/", "")),
            ("/?", ("/", "")),
            ("/foo/bar?payload=abc", ("/foo/bar", "payload=abc")),
            ("/foo?a?b", ("/foo", "a?b")),
            ("//?payload=5", ("//", "payload=5")),
            ("", ("/", "")),
            ("?a=b", ("/", "a=b")),
            ("*", ("*", "")),
        ] {
            assert_eq!(split_target(target), parts, "{target}");
        }
    }

    #[test]
    fn query_finds_first_parameter_by_exact_name() {
        let query = Query("q=size=5&xsize=1&flag&size=2&size=3&empty=");
        assert_eq!(query.get("size"), Some("2"));
        assert_eq!((query.get("flag"), query.get("empty")), (Some(""), Some("")));
        assert_eq!(query.get("siz"), None);
    }

    fn is_too_large<T: fmt::Debug>(parsed: Result<T, RequestError<'_>>) -> bool {
        match parsed {
            Err(RequestError::Parameter { is_too_large, .. }) => is_too_large,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn integers_are_digits_within_limits() {
        fn size(query: &str) -> Result<u64, RequestError<'_>> {
            Query(query).integer("size", 7, Allowed::Bytes { min: 1, max: 100 })
        }
        assert_eq!((size(""), size("size=1"), size("size=0100")), (Ok(7), Ok(1), Ok(100)));
        for value in ["", "abc", "-1", "+1", "1.5", "1e3", "0x10", " 1", "0"] {
            assert!(!is_too_large(size(&format!("size={value}"))), "{value}");
        }
        for query in ["size=101", "size=99999999999999999999999"] {
            assert!(is_too_large(size(query)), "{query}");
        }
    }

    #[test]
    fn decimals_have_digits_on_both_sides_of_the_point() {
        let time = |query| Query(query).decimal("time", 1.0, Allowed::Seconds { max: 60 });
        for (query, number) in
            [("", 1.0), ("time=0", 0.0), ("time=0.25", 0.25), ("time=60.0", 60.0)]
        {
            assert_eq!(time(query), Ok(number), "{query}");
        }
        for query in
            ["time", "time=", "time=-1", "time=.5", "time=5.", "time=1e1", "time=inf", "time=NaN"]
        {
            assert!(!is_too_large(time(query)), "{query}");
        }
        for query in ["time=60.000001", "time=999999999999999999999999999999"] {
            assert!(is_too_large(time(query)), "{query}");
        }
    }

    #[test]
    fn parameter_error_quotes_start_of_value() {
        let error = |value, is_too_large| RequestError::Parameter {
            name: "size",
            value,
            allowed: Allowed::Bytes { min: 0, max: 67_108_864 },
            is_too_large,
        };
        assert_eq!(
            error("abc", false).to_string(),
            "invalid size `abc`: must be a whole number of bytes from 0 to 67108864"
        );
        assert_eq!((error("", false).status(), error("9", true).status()), (400, 413));
        let long = "\u{e9}".repeat(65);
        let text = error(&long, false).to_string();
        assert!(text.starts_with(&format!("invalid size `{}`:", "\u{e9}".repeat(64))), "{text}");
    }
}
