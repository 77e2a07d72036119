//! Why a request is not answered as it asks, as a status and as text.

use std::error::Error;
use std::fmt;

use tollgate_wire::ParseError;

use crate::multipart::Fault;

/// Why a request is not answered as it asks. Its text tells the client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Refusal<'a> {
    /// The value of a parameter is not what it may be.
    Parameter { name: &'static str, value: &'a str, allowed: Allowed, is_too_large: bool },
    /// The method is not one of the usual.
    Method(&'a str),
    /// The method is not one that this path knows.
    NotAnUpload(&'a str),
    /// The request is not HTTP/1, or its head is too large.
    Malformed(ParseError),
    /// The body is longer than the origin reads.
    BodyTooLarge {
        /// The most that it reads.
        max: u64,
    },
    /// The body is not the multipart/form-data that it says it is.
    Multipart(Fault),
    /// The condition of the request does not hold.
    Precondition { etag_bytes: u64 },
    /// No byte that was asked for is there.
    Range { size: u64 },
    /// The client took too long.
    Late,
}

/// What the value of a parameter may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    Bytes { min: u64, max: u64 },
    Seconds { max: u32 },
    Milliseconds { max: u32 },
    Probability,
    Distribution,
    Seed,
    Status,
    OneToReset,
}

/// The longest part of a faulty value that is shown, in characters.
const EXCERPT_CHARS: usize = 64;

impl Refusal<'_> {
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Malformed(ParseError::HeadTooLong | ParseError::TooManyHeaders) => 431,
            Self::Malformed(ParseError::UnknownCoding(_)) | Self::Method(_) => 501,
            Self::Malformed(ParseError::Version) => 505,
            // Of two values none is too large.
            Self::Parameter { allowed: Allowed::OneToReset, .. } => 400,
            Self::Parameter { is_too_large: true, .. }
            | Self::BodyTooLarge { .. }
            | Self::Multipart(Fault::TooManyParts | Fault::PartHeadTooLong) => 413,
            Self::Parameter { .. } | Self::Malformed(_) | Self::Multipart(_) => 400,
            Self::NotAnUpload(_) => 405,
            Self::Late => 408,
            Self::Precondition { .. } => 412,
            Self::Range { .. } => 416,
        }
    }
}

impl fmt::Display for Refusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameter { name, value, allowed, .. } => {
                let end = value.char_indices().nth(EXCERPT_CHARS).map_or(value.len(), |(at, _)| at);
                write!(f, "{name} is \"{}\"; it may be {allowed}", &value[..end])
            }
            Self::Method(method) => write!(
                f,
                "the method is {method}; it may be GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS"
            ),
            Self::NotAnUpload(method) => write!(f, "the method is {method}; it may be POST or PUT"),
            Self::Malformed(error) => match error.source() {
                Some(cause) => write!(f, "the request is malformed: {error}: {cause}"),
                None => write!(f, "the request is malformed: {error}"),
            },
            Self::BodyTooLarge { max } => {
                write!(f, "the request body is too large; it may have {max} bytes")
            }
            Self::Multipart(fault) => write!(f, "the body is not multipart/form-data: {fault}"),
            Self::Precondition { etag_bytes } => {
                write!(f, "the ETag is \"{etag_bytes}\", which the condition excludes")
            }
            Self::Range { size } => {
                write!(f, "the range begins behind the end; there are {size} bytes")
            }
            Self::Late => write!(f, "the request took too long to arrive"),
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
            Self::OneToReset => write!(f, "0 or 1"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_told_its_value_and_what_it_may_be() {
        let refusal = |value, is_too_large| Refusal::Parameter {
            name: "size",
            value,
            allowed: Allowed::Bytes { min: 0, max: 67_108_864 },
            is_too_large,
        };
        assert_eq!(
            refusal("abc", false).to_string(),
            "size is \"abc\"; it may be a whole number of bytes from 0 to 67108864"
        );
        assert_eq!((refusal("", false).status(), refusal("9", true).status()), (400, 413));
        let long = "\u{e9}".repeat(65);
        let shown = refusal(&long, false).to_string();
        assert!(shown.starts_with(&format!("size is \"{}\";", "\u{e9}".repeat(64))), "{shown}");
    }
}
