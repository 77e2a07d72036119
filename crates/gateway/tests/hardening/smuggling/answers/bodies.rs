//! Chunks, and bodies that break off.

use super::{Answer, broken, passed, to_the_close};

/// The head of a chunked answer, with the body behind it.
macro_rules! chunked {
    ($body:literal) => {
        concat!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", $body)
    };
}

pub(super) const CASES: &[Answer] = &[
    passed(
        "chunks",
        "RFC 9112, 7.1",
        chunked!("4\r\nbody\r\n1\r\n!\r\n0\r\n\r\n").as_bytes(),
        chunked!("4\r\nbody\r\n1\r\n!\r\n0\r\n\r\n"),
    ),
    passed(
        "an extension, zeros and spaces",
        "RFC 9112, 7.1.1: they are for the next hop only",
        chunked!("0004 ;a=b\r\nbody\r\n00\r\n\r\n").as_bytes(),
        chunked!("4\r\nbody\r\n0\r\n\r\n"),
    ),
    passed(
        "trailers, of which one frames",
        "RFC 9110, 6.5.1: it must not stand there",
        chunked!("4\r\nbody\r\n0\r\nX-Sum: 9\r\nContent-Length: 9\r\n\r\n").as_bytes(),
        chunked!("4\r\nbody\r\n0\r\nX-Sum: 9\r\n\r\n"),
    ),
    passed(
        "an answer behind the last chunk",
        "RFC 9112, 9.2: whatever is behind the answer answers nothing",
        chunked!("4\r\nbody\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
            .as_bytes(),
        chunked!("4\r\nbody\r\n0\r\n\r\n"),
    ),
    to_the_close(
        "a body up to the close",
        "RFC 9112, 6.3: it ends with the connection",
        b"HTTP/1.1 200 OK\r\n\r\nbody",
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbody",
    ),
    to_the_close(
        "an empty body up to the close",
        "RFC 9112, 6.3: it ends with the connection",
        b"HTTP/1.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
    ),
    broken(
        "a body shorter than its length",
        "RFC 9112, 8: it is incomplete",
        b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nbody",
    )
    .then_close(),
    broken(
        "a chunk that breaks off",
        "RFC 9112, 8: it is incomplete",
        chunked!("8\r\nbody").as_bytes(),
    )
    .then_close(),
    broken("no last chunk", "RFC 9112, 8: it is incomplete", chunked!("4\r\nbody\r\n").as_bytes())
        .then_close(),
    broken(
        "a last chunk without its end",
        "RFC 9112, 8: it is incomplete",
        chunked!("4\r\nbody\r\n0\r\n").as_bytes(),
    )
    .then_close(),
    broken(
        "a size that is none",
        "RFC 9112, 7.1",
        chunked!("4\r\nbody\r\nxyz\r\nevil\r\n0\r\n\r\n").as_bytes(),
    ),
    broken("a negative size", "RFC 9112, 7.1", chunked!("-4\r\nevil\r\n0\r\n\r\n").as_bytes()),
    broken(
        "a size of 2^64 + 4",
        "RFC 9112, 7.1",
        chunked!("10000000000000004\r\nevil\r\n0\r\n\r\n").as_bytes(),
    ),
    broken("a size that ends in LF", "RFC 9112, 7.1", chunked!("4\nevil\r\n0\r\n\r\n").as_bytes()),
    broken(
        "an extension with a bare LF",
        "RFC 9112, 7.1.1",
        chunked!("4;a\nevil\r\n0\r\n\r\n").as_bytes(),
    ),
    broken(
        "data longer than its size",
        "RFC 9112, 7.1",
        chunked!("4\r\nbodyevil\r\n0\r\n\r\n").as_bytes(),
    ),
    broken("data that ends in LF", "RFC 9112, 7.1", chunked!("4\r\nbody\n0\r\n\r\n").as_bytes()),
    broken(
        "a trailer without a colon",
        "RFC 9112, 7.1.2",
        chunked!("4\r\nbody\r\n0\r\nevil\r\n\r\n").as_bytes(),
    ),
    broken(
        "a trailer with a bare CR",
        "RFC 9112, 2.2",
        chunked!("4\r\nbody\r\n0\r\nX: y\rz\r\n\r\n").as_bytes(),
    ),
];
