//! Why bytes are not HTTP/1.

use thiserror::Error;

use crate::chunked::MAX_TRAILER_BYTES;
use crate::head::{MAX_HEAD_BYTES, MAX_HEADERS};
use crate::size_lines::MAX_CHUNK_LINE_BYTES;

/// Why bytes are not HTTP/1. After any of these the connection cannot be read further.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ParseError {
    /// No head ended within [`MAX_HEAD_BYTES`].
    #[error("the head is longer than {MAX_HEAD_BYTES} bytes")]
    HeadTooLong,
    /// There are more headers than [`MAX_HEADERS`].
    #[error("the head has more than {MAX_HEADERS} headers")]
    TooManyHeaders,
    /// A line of a request's head ends in LF alone, which other servers may read as no end.
    #[error("a line of the head ends in LF without CR")]
    BareLineFeed,
    /// There is not exactly one `Host` in an HTTP/1.1 request, or more than one in an HTTP/1.0 one.
    #[error("there must be one Host header, not {0}")]
    Hosts(usize),
    /// A `Host` is not a name or an address with, if need be, a port.
    #[error("the Host `{0}` is not a host")]
    Host(String),
    /// A target is in none of the forms that its request may have.
    #[error("the target `{0}` is neither a path nor a URL with a host")]
    Target(String),
    /// The start line or a header is not HTTP/1.
    #[error("the head is not HTTP/1")]
    Head(#[source] httparse::Error),
    /// A request is of another major version than HTTP/1, and of none before it.
    #[error("the version is not HTTP/1.0 or HTTP/1.1")]
    Version,
    /// An answer begins with an empty line, as when the body before it was longer than it said.
    #[error("an answer begins with an empty line")]
    EmptyLineBeforeAnswer,
    /// The status code is below 100.
    #[error("the status code {0:03} is not within 100 to 999")]
    Status(u16),
    /// The answer is 101, and no request asked for another protocol.
    #[error("the answer switches protocols (101), which no request asked for")]
    SwitchesProtocols,
    /// A `Content-Length` is not a decimal number that fits in 64 bits.
    #[error("the Content-Length `{0}` is not a length")]
    ContentLength(String),
    /// Two values of `Content-Length` differ; in a request, they are one too many even when they agree.
    #[error("there are two Content-Lengths, {0} and {1}")]
    ContentLengths(u64, u64),
    /// A request's body has another coding than `chunked`.
    #[error("the Transfer-Encoding `{0}` is not known; it may be `chunked`")]
    UnknownCoding(String),
    /// Transfer codings do not end in the one that says where the body ends.
    #[error("the Transfer-Encoding `{0}` does not end in a single `chunked`")]
    TransferEncoding(String),
    /// Both headers that say where a body ends are there.
    #[error("there are both a Transfer-Encoding and a Content-Length")]
    TwoFramings,
    /// HTTP/1.0 has no transfer codings.
    #[error("an HTTP/1.0 message has a Transfer-Encoding")]
    TransferEncodingInHttp10,
    /// A chunk's size is not a hexadecimal number that fits in 64 bits.
    #[error("a chunk's size is not a hexadecimal number of at most 64 bits")]
    ChunkSize,
    /// A chunk or one of its lines does not end in CR LF.
    #[error("a chunk, or a line of the chunked coding, does not end in CR LF")]
    ChunkEnd,
    /// A chunk's size and extensions are longer than [`MAX_CHUNK_LINE_BYTES`], or those of all chunks are much
    /// longer than what comes with them.
    #[error(
        "the size line of a chunk is longer than {MAX_CHUNK_LINE_BYTES} bytes, or those of all chunks are much \
         longer than their data"
    )]
    ChunkLineTooLong,
    /// What follows the last chunk is longer than [`MAX_TRAILER_BYTES`].
    #[error("the trailer is longer than {MAX_TRAILER_BYTES} bytes")]
    TrailerTooLong,
    /// The connection closed in the middle of an answer.
    #[error("the connection closed in the middle of an answer")]
    ClosedMidAnswer,
}

impl From<httparse::Error> for ParseError {
    fn from(error: httparse::Error) -> Self {
        match error {
            httparse::Error::TooManyHeaders => Self::TooManyHeaders,
            other => Self::Head(other),
        }
    }
}
