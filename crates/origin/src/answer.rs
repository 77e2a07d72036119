//! What the origin answers to a request: from method and target to an answer, without I/O.

use std::error::Error;
use std::fmt;

use tollgate_wire::ParseError;

/// The largest payload that can be asked for.
const MAX_PAYLOAD_BYTES: u64 = 64 << 20;

/// What a request is answered with.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer<'a> {
    /// So many bytes of filler.
    Payload(u64),
    /// One line that names the path that was asked for.
    Path(&'a str),
    /// Why the request is not answered as it asks.
    Refusal(Refusal<'a>),
}

impl Answer<'_> {
    /// The status code and its reason phrase.
    pub(crate) fn status(&self) -> &'static str {
        match self {
            Self::Payload(_) | Self::Path(_) => "200 OK",
            Self::Refusal(Refusal::Malformed(
                ParseError::HeadTooLong | ParseError::TooManyHeaders,
            )) => "431 Request Header Fields Too Large",
            Self::Refusal(Refusal::Payload(_) | Refusal::Malformed(_)) => "400 Bad Request",
            Self::Refusal(Refusal::BodyTooLarge { .. }) => "413 Content Too Large",
            Self::Refusal(Refusal::Method(_)) => "501 Not Implemented",
        }
    }
}

/// Why a request is not answered as it asks. Its text tells the client.
#[derive(Debug, PartialEq)]
pub(crate) enum Refusal<'a> {
    /// `payload` is not a size, or is too large.
    Payload(&'a str),
    /// The method is not one of the usual.
    Method(&'a str),
    /// The request is not HTTP/1, or its head is too large.
    Malformed(ParseError),
    /// The body is longer than the origin reads.
    BodyTooLarge {
        /// The most that it reads.
        max: u64,
    },
}

impl fmt::Display for Refusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Payload(value) => write!(
                f,
                "payload is \"{}\"; it may be a whole number of bytes from 0 to {MAX_PAYLOAD_BYTES}",
                value.as_bytes().escape_ascii()
            ),
            Self::Method(method) => write!(
                f,
                "the method is {method}; it may be GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS"
            ),
            Self::Malformed(error) => match error.source() {
                Some(cause) => write!(f, "the request is malformed: {error}: {cause}"),
                None => write!(f, "the request is malformed: {error}"),
            },
            Self::BodyTooLarge { max } => {
                write!(f, "the request body is too large; it may have {max} bytes")
            }
        }
    }
}

/// What a request for `target` is answered with.
pub(crate) fn answer<'a>(method: &'a str, target: &'a str) -> Answer<'a> {
    if !matches!(method, "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS") {
        return Answer::Refusal(Refusal::Method(method));
    }
    let (path, query) = split_target(target);
    if path != "/" {
        return Answer::Path(path);
    }
    match payload_argument(query) {
        None => Answer::Path(path),
        Some(value) => match payload_bytes(value) {
            Some(bytes) => Answer::Payload(bytes),
            None => Answer::Refusal(Refusal::Payload(value)),
        },
    }
}

/// The path and the query of a target, which a client may also send with scheme and authority
/// (RFC 9112, section 3.2.2).
fn split_target(target: &str) -> (&str, &str) {
    let from_path = match target.strip_prefix("http://") {
        Some(rest) => rest.find(['/', '?']).map_or("", |start| &rest[start..]),
        None => target,
    };
    let (path, query) = from_path.split_once('?').unwrap_or((from_path, ""));
    (if path.is_empty() { "/" } else { path }, query)
}

/// The value of the first `payload` argument.
fn payload_argument(query: &str) -> Option<&str> {
    query.split('&').find_map(|argument| {
        let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
        (name == "payload").then_some(value)
    })
}

/// The size that `value` spells in decimal digits, if it is one that can be asked for.
fn payload_bytes(value: &str) -> Option<u64> {
    // `parse` alone would take a sign too.
    if !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    value.parse().ok().filter(|&bytes| bytes <= MAX_PAYLOAD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_found_anywhere_in_the_query_of_the_root() {
        for (target, bytes) in [
            ("/?payload=0", 0),
            ("/?payload=100", 100),
            ("/?payload=067", 67),
            ("/?q=1&payload=100&z=2", 100),
            ("/?q=1&z=2&payload=100", 100),
            ("/?payload=5&payload=6", 5),
            ("/?payload=67108864", 67_108_864),
            ("http://localhost:80/?payload=9", 9),
            ("http://localhost?payload=9", 9),
        ] {
            assert_eq!(answer("GET", target), Answer::Payload(bytes), "{target}");
        }
    }

    #[test]
    fn a_payload_that_is_no_size_is_refused_with_what_it_was() {
        for (target, value) in [
            ("/?payload=", ""),
            ("/?payload", ""),
            ("/?payload=abc", "abc"),
            ("/?payload=+5", "+5"),
            ("/?payload=-5", "-5"),
            ("/?payload=5k", "5k"),
            ("/?payload=67108865", "67108865"),
            ("/?payload=18446744073709551616", "18446744073709551616"),
        ] {
            let refused = Answer::Refusal(Refusal::Payload(value));
            assert_eq!(answer("GET", target), refused, "{target}");
        }
        assert_eq!(
            Refusal::Payload("\"\u{e9}").to_string(),
            "payload is \"\\\"\\xc3\\xa9\"; it may be a whole number of bytes from 0 to 67108864"
        );
    }

    #[test]
    fn everything_else_is_told_its_path() {
        for (target, path) in [
            ("/", "/"),
            ("/?", "/"),
            ("/?xpayload=5", "/"),
            ("/?q=payload=5", "/"),
            ("/foo/bar?payload=abc", "/foo/bar"),
            ("/foo?a?b", "/foo"),
            ("//?payload=5", "//"),
            ("http://localhost", "/"),
            ("http://localhost/foo?x", "/foo"),
            ("*", "*"),
        ] {
            assert_eq!(answer("GET", target), Answer::Path(path), "{target}");
        }
    }

    #[test]
    fn unusual_methods_are_refused_whatever_the_target() {
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            assert_eq!(answer(method, "/?payload=1"), Answer::Payload(1), "{method}");
        }
        for method in ["get", "CONNECT", "TRACE", "PROPFIND"] {
            let refused = Answer::Refusal(Refusal::Method(method));
            assert_eq!(answer(method, "/?payload=1"), refused);
        }
    }
}
