//! Limits of messages, and reasons for rejecting bytes as HTTP/1.

use thiserror::Error;

pub const MAX_HEAD_BYTES: usize = 64 * 1024;

pub const MAX_HEADERS: usize = 256;

/// Limit in bytes for one chunk's size line: the size with its padding and extensions.
pub const MAX_CHUNK_LINE_BYTES: usize = 4 * 1024;

/// Limit in bytes for the trailer section, line ends included, the final empty line not.
pub const MAX_TRAILER_BYTES: usize = 16 * 1024;

/// Reason why bytes are not valid HTTP/1. The connection cannot be read further.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ParseError {
    #[error("head is longer than {MAX_HEAD_BYTES} bytes")]
    HeadTooLong,
    #[error("head has too many headers")]
    TooManyHeaders,
    /// A line of a request head ends in LF alone, which other servers may not accept as a line end.
    #[error("line of the head ends in LF without CR")]
    BareLineFeed,
    /// Not exactly one `Host` in an HTTP/1.1 request, or more than one in an HTTP/1.0 request.
    #[error("expected one Host header, found {0}")]
    HostCount(usize),
    /// `Host` is not a name or an address with an optional port.
    #[error("invalid Host `{0}`")]
    Host(String),
    /// The request target has none of the forms allowed for its method.
    #[error("invalid request target `{0}`: expected a path or a URL with a host")]
    Target(String),
    #[error("malformed HTTP/1 head")]
    Head(#[source] httparse::Error),
    #[error("unsupported version: expected HTTP/1.0 or HTTP/1.1")]
    Version,
    /// A response starts with an empty line, as after a body that is longer than announced.
    #[error("response starts with an empty line")]
    EmptyLineBeforeResponse,
    /// The status code is below 100.
    #[error("status code {0:03} is not within 100 to 999")]
    Status(u16),
    /// Status 101, which no request asked for.
    #[error("unexpected switch of protocols (101)")]
    SwitchesProtocols,
    #[error("invalid Content-Length `{0}`")]
    ContentLength(String),
    /// Two values of `Content-Length` that differ, or, in a request, two values.
    #[error("two values of Content-Length: {0} and {1}")]
    ContentLengths(u64, u64),
    /// A request has a transfer coding other than `chunked`.
    #[error("unknown Transfer-Encoding `{0}`: expected `chunked`")]
    UnknownCoding(String),
    #[error("Transfer-Encoding `{0}` does not end in a single `chunked`")]
    TransferEncoding(String),
    #[error("both Transfer-Encoding and Content-Length")]
    TwoFramings,
    #[error("Transfer-Encoding in an HTTP/1.0 message")]
    TransferEncodingInHttp10,
    /// A chunk size is not a hexadecimal number of at most 64 bits.
    #[error("invalid chunk size: expected a hexadecimal number of at most 64 bits")]
    ChunkSize,
    /// A chunk, or a line of the chunked coding, does not end in CR LF, or an extension contains NUL.
    #[error("chunk or line of the chunked coding does not end in CR LF")]
    ChunkEnd,
    /// A size line is longer than [`MAX_CHUNK_LINE_BYTES`], or all size lines in total are much longer than the
    /// payload.
    #[error(
        "chunk size line is longer than {MAX_CHUNK_LINE_BYTES} bytes, or all size lines are much longer than \
         their data"
    )]
    ChunkLineTooLong,
    #[error("trailer section is longer than {MAX_TRAILER_BYTES} bytes")]
    TrailerTooLong,
    /// A list of fields lacks those of the start line, or its end.
    #[error("incomplete list of fields")]
    FieldList,
    #[error("connection closed in the middle of a response")]
    ClosedMidResponse,
}

impl From<httparse::Error> for ParseError {
    fn from(error: httparse::Error) -> Self {
        match error {
            httparse::Error::TooManyHeaders => Self::TooManyHeaders,
            other => Self::Head(other),
        }
    }
}
