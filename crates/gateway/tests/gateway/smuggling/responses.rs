//! Responses that two clients might parse differently.

use ResponseOutcome::{Forwarded, Interrupted, Rejected, Unchanged, UntilClose};

/// A row of the table of responses. Whatever its outcome, the next request receives its own response.
pub(crate) struct ResponseCase {
    pub(crate) name: &'static str,
    /// The rule that the response violates, or that it tries to make a parser violate.
    pub(crate) rule: &'static str,
    pub(crate) sent: &'static [u8],
    /// The request is a HEAD, else a GET.
    pub(crate) is_for_head: bool,
    /// The backend closes the connection after the response.
    pub(crate) closes: bool,
    pub(crate) expected: ResponseOutcome,
}

pub(crate) enum ResponseOutcome {
    /// Status 502, and no byte of the response.
    Rejected,
    /// Status 502, or a response that is recognizably incomplete, with the end of the connection.
    Interrupted,
    /// These bytes.
    Forwarded(&'static [u8]),
    /// The bytes as they were sent.
    Unchanged,
    /// These bytes and the end of the connection, which is the end of the response.
    UntilClose(&'static [u8]),
}

/// A table of [`ResponseCase`]s: name, rule, bytes, optionally `head` or `close`, outcome.
macro_rules! response_cases {
    ($($name:literal, $rule:literal: $sent:expr $(, $flag:ident)? => $expected:expr;)*) => {
        &[$(ResponseCase {
            name: $name,
            rule: $rule,
            sent: $sent,
            is_for_head: matches!(concat!($(stringify!($flag))?).as_bytes(), b"head"),
            closes: matches!(concat!($(stringify!($flag))?).as_bytes(), b"close"),
            expected: $expected,
        }),*]
    };
}

/// A chunked response with this body.
macro_rules! chunked {
    ($body:literal) => {
        concat!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", $body).as_bytes()
    };
}

pub(crate) const CASES: &[ResponseCase] = response_cases! {
    // The length of the body.
    "Content-Length", "RFC 9112, 6.2": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody" => Unchanged;
    "Content-Length 0", "RFC 9112, 6.2": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" => Unchanged;
    "two responses to one request", "RFC 9112, 9.2: excess bytes are not a response":
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbodyHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
            => Forwarded(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody");
    "a body longer than its length", "RFC 9112, 6.3: excess bytes are not a response":
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbodyevil"
            => Forwarded(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody");
    "204 with Content-Length and a body", "RFC 9112, 6.3: no body; RFC 9110, 8.6: no Content-Length":
        b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nevil" => Forwarded(b"HTTP/1.1 204 No Content\r\n\r\n");
    "204 with chunks", "RFC 9112, 6.1: no transfer coding":
        b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n"
            => Forwarded(b"HTTP/1.1 204 No Content\r\n\r\n");
    "304 with Content-Length and a body", "RFC 9112, 6.3: no body; the length is that of a full response":
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\nevil"
            => Forwarded(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n");
    "a body in a response to HEAD", "RFC 9112, 6.3: no body":
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", head
            => Forwarded(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n");
    "two equal Content-Lengths", "RFC 9110, 8.6: may be replaced by one":
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nbody"
            => Forwarded(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody");
    "a list of two equal lengths", "RFC 9112, 6.3: may be replaced by one":
        b"HTTP/1.1 200 OK\r\nContent-Length: 4, 4\r\n\r\nbody"
            => Forwarded(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody");
    "Connection: Content-Length", "RFC 9110, 7.6.1: not an option; without it the body would be a message":
        b"HTTP/1.1 200 OK\r\nConnection: Content-Length\r\nContent-Length: 4\r\n\r\nbody"
            => Forwarded(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody");
    "two different Content-Lengths", "RFC 9112, 6.3: must be answered with 502":
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 8\r\n\r\nevilevil" => Rejected;
    "a list of two different lengths", "RFC 9112, 6.3: must be answered with 502":
        b"HTTP/1.1 200 OK\r\nContent-Length: 4, 8\r\n\r\nevilevil" => Rejected;
    "a length with a plus", "RFC 9110, 8.6: only digits":
        b"HTTP/1.1 200 OK\r\nContent-Length: +4\r\n\r\nevil" => Rejected;
    "a negative length", "RFC 9110, 8.6: only digits":
        b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\nevil" => Rejected;
    "an empty Content-Length", "RFC 9110, 8.6: at least one digit":
        b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nevil" => Rejected;
    "a length of 2^64 + 4", "RFC 9110, 8.6: overflow must be prevented":
        b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551620\r\n\r\nevil" => Rejected;
    "Content-Length, then chunked", "RFC 9112, 6.3: ought to be handled as an error":
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n"
            => Rejected;
    "chunked, then Content-Length", "RFC 9112, 6.3: ought to be handled as an error":
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n4\r\nevil\r\n0\r\n\r\n"
            => Rejected;
    "chunked twice", "RFC 9112, 6.1: must not be applied more than once":
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n" => Rejected;
    "gzip, then chunked", "RFC 9112, 7.4: not announced in TE":
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n" => Rejected;
    "xchunked", "RFC 9112, 7.4: not announced in TE":
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n" => Rejected;
    "chunked in HTTP/1.0", "RFC 9112, 6.1: the framing is faulty":
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n" => Rejected;

    // Status lines, headers, interim responses.
    "HTTP/1.0", "RFC 9112, 2.3: a proxy sends its own version":
        b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nbody", close
            => Forwarded(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody");
    "no reason phrase", "RFC 9112, 4: may be empty": b"HTTP/1.1 200 \r\nContent-Length: 4\r\n\r\nbody" => Unchanged;
    "no reason phrase and no space", "RFC 9112, 4: the space is required, and often missing":
        b"HTTP/1.1 200\r\nContent-Length: 4\r\n\r\nbody"
            => Forwarded(b"HTTP/1.1 200 \r\nContent-Length: 4\r\n\r\nbody");
    "hop-by-hop headers", "RFC 9110, 7.6.1: must be removed":
        b"HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Mine\r\nKeep-Alive: timeout=5\r\nX-Mine: 1\r\n\
            X: y\r\nProxy-Connection: keep-alive\r\nContent-Length: 4\r\n\r\nbody"
            => Forwarded(b"HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 4\r\n\r\nbody");
    "values with and without spaces around them", "RFC 9112, 5: whitespace around a value is optional":
        b"HTTP/1.1 200 OK\r\nX: \t y \t\r\nY:z\r\nContent-Length:4\r\n\r\nbody"
            => Forwarded(b"HTTP/1.1 200 OK\r\nX: y\r\nY: z\r\nContent-Length: 4\r\n\r\nbody");
    "the same name twice", "RFC 9110, 5.3: Set-Cookie must not be combined":
        b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nX: y\r\nSet-Cookie: b=2\r\nContent-Length: 4\r\n\r\nbody"
            => Unchanged;
    "an interim response", "RFC 9110, 15.2: must be forwarded":
        b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody" => Unchanged;
    "an interim response with Content-Length", "RFC 9112, 6.3: no body; RFC 9110, 8.6: no Content-Length":
        b"HTTP/1.1 103 Early Hints\r\nContent-Length: 60\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"
            => Forwarded(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody");
    "101 without an upgrade request", "RFC 9110, 7.8: not allowed":
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: evil\r\n\r\nevil" => Rejected;
    "a status of two digits", "RFC 9112, 4: three digits":
        b"HTTP/1.1 20 OK\r\nContent-Length: 4\r\n\r\nevil" => Rejected;
    "a status of four digits", "RFC 9112, 4: three digits":
        b"HTTP/1.1 2000 OK\r\nContent-Length: 4\r\n\r\nevil" => Rejected;
    "a status with a letter", "RFC 9112, 4: three digits":
        b"HTTP/1.1 2x0 OK\r\nContent-Length: 4\r\n\r\nevil" => Rejected;
    "status 099", "RFC 9110, 15: 100 to 599": b"HTTP/1.1 099 OK\r\nContent-Length: 4\r\n\r\nevil" => Rejected;
    "HTTP/2.0", "RFC 9112, 2.3": b"HTTP/2.0 200 OK\r\nContent-Length: 4\r\n\r\nevil" => Rejected;
    "HTTP/1.10", "RFC 9112, 2.3": b"HTTP/1.10 200 OK\r\nContent-Length: 4\r\n\r\nevil" => Rejected;
    "ICY instead of HTTP", "RFC 9112, 4": b"ICY 200 OK\r\nContent-Length: 4\r\n\r\nevil" => Rejected;
    "a body without a header section", "RFC 9112, 4: HTTP/0.9 is not HTTP/1":
        b"<html>evil</html>\r\n\r\n" => Rejected;
    "garbage", "RFC 9112, 4": b"\xff\xfe\0\x01evil\r\n\r\n" => Rejected;
    "an empty line before the response", "RFC 9112, 2.2: only servers ignore it":
        b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil" => Rejected;
    "a space before the response", "RFC 9112, 4": b" HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil" => Rejected;
    "NUL in a reason phrase", "RFC 9112, 4": b"HTTP/1.1 200 O\0K\r\nContent-Length: 4\r\n\r\nevil" => Rejected;
    "a bare CR in a reason phrase", "RFC 9112, 2.2":
        b"HTTP/1.1 200 O\rK\r\nContent-Length: 4\r\n\r\nevil" => Rejected;
    "lines that end in LF", "RFC 9112, 2.2: a lone LF may end a line; forwarded as CR LF":
        b"HTTP/1.1 200 OK\nX: y\nContent-Length: 4\n\nbody"
            => Forwarded(b"HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 4\r\n\r\nbody");
    "one line that ends in LF", "RFC 9112, 2.2: a lone LF may end a line; forwarded as CR LF":
        b"HTTP/1.1 200 OK\r\nX: y\nContent-Length: 4\r\n\r\nbody"
            => Forwarded(b"HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 4\r\n\r\nbody");
    "a space before a colon", "RFC 9112, 5.1: must be repaired or rejected":
        b"HTTP/1.1 200 OK\r\nContent-Length : 4\r\n\r\nevil" => Rejected;
    "a folded value", "RFC 9112, 5.2: must be repaired or rejected":
        b"HTTP/1.1 200 OK\r\nX: y\r\n z\r\nContent-Length: 4\r\n\r\nevil" => Rejected;
    "a line without a colon", "RFC 9112, 5": b"HTTP/1.1 200 OK\r\nX\r\nContent-Length: 4\r\n\r\nevil" => Rejected;
    "no name", "RFC 9110, 5.1": b"HTTP/1.1 200 OK\r\n: y\r\nContent-Length: 4\r\n\r\nevil" => Rejected;
    "NUL in a value", "RFC 9110, 5.5": b"HTTP/1.1 200 OK\r\nX: y\0z\r\nContent-Length: 4\r\n\r\nevil" => Rejected;
    "a bare CR in a value", "RFC 9110, 5.5":
        b"HTTP/1.1 200 OK\r\nX: y\rz\r\nContent-Length: 4\r\n\r\nevil" => Rejected;
    "a control byte in a value", "RFC 9110, 5.5":
        b"HTTP/1.1 200 OK\r\nX: y\x01z\r\nContent-Length: 4\r\n\r\nevil" => Rejected;
    "a name with a space", "RFC 9110, 5.1": b"HTTP/1.1 200 OK\r\nX Y: z\r\nContent-Length: 4\r\n\r\nevil" => Rejected;
    "no response", "RFC 9110, 15.6.3": b"", close => Rejected;
    "an incomplete header section", "RFC 9110, 15.6.3":
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX: ev", close => Rejected;
    "an incomplete status line", "RFC 9110, 15.6.3": b"HTTP/1.1 20", close => Rejected;

    // Chunks, and incomplete bodies.
    "chunks", "RFC 9112, 7.1": chunked!("4\r\nbody\r\n1\r\n!\r\n0\r\n\r\n") => Unchanged;
    "an extension, zeros and spaces", "RFC 9112, 7.1.1: valid for one hop only":
        chunked!("0004 ;a=b\r\nbody\r\n00\r\n\r\n") => Forwarded(chunked!("4\r\nbody\r\n0\r\n\r\n"));
    "trailers, one of them for framing", "RFC 9110, 6.5.1: not allowed in trailers":
        chunked!("4\r\nbody\r\n0\r\nX-Sum: 9\r\nContent-Length: 9\r\n\r\n")
            => Forwarded(chunked!("4\r\nbody\r\n0\r\nX-Sum: 9\r\n\r\n"));
    "a response after the last chunk", "RFC 9112, 9.2: excess bytes are not a response":
        chunked!("4\r\nbody\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
            => Forwarded(chunked!("4\r\nbody\r\n0\r\n\r\n"));
    "a body that ends with the connection", "RFC 9112, 6.3: ends with the connection":
        b"HTTP/1.1 200 OK\r\n\r\nbody", close => UntilClose(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbody");
    "an empty body that ends with the connection", "RFC 9112, 6.3: ends with the connection":
        b"HTTP/1.0 200 OK\r\n\r\n", close => UntilClose(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    "a body shorter than its length", "RFC 9112, 8: incomplete":
        b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nbody", close => Interrupted;
    "an incomplete chunk", "RFC 9112, 8: incomplete": chunked!("8\r\nbody"), close => Interrupted;
    "no last chunk", "RFC 9112, 8: incomplete": chunked!("4\r\nbody\r\n"), close => Interrupted;
    "an incomplete last chunk", "RFC 9112, 8: incomplete": chunked!("4\r\nbody\r\n0\r\n"), close => Interrupted;
    "a size that is not a number", "RFC 9112, 7.1": chunked!("4\r\nbody\r\nxyz\r\nevil\r\n0\r\n\r\n") => Interrupted;
    "a negative size", "RFC 9112, 7.1": chunked!("-4\r\nevil\r\n0\r\n\r\n") => Interrupted;
    "a size of 2^64 + 4", "RFC 9112, 7.1": chunked!("10000000000000004\r\nevil\r\n0\r\n\r\n") => Interrupted;
    "a size that ends in LF", "RFC 9112, 7.1": chunked!("4\nevil\r\n0\r\n\r\n") => Interrupted;
    "an extension with a bare LF", "RFC 9112, 7.1.1": chunked!("4;a\nevil\r\n0\r\n\r\n") => Interrupted;
    "data longer than its size", "RFC 9112, 7.1": chunked!("4\r\nbodyevil\r\n0\r\n\r\n") => Interrupted;
    "data that ends in LF", "RFC 9112, 7.1": chunked!("4\r\nbody\n0\r\n\r\n") => Interrupted;
    "a trailer without a colon", "RFC 9112, 7.1.2": chunked!("4\r\nbody\r\n0\r\nevil\r\n\r\n") => Interrupted;
    "a trailer with a bare CR", "RFC 9112, 2.2": chunked!("4\r\nbody\r\n0\r\nX: y\rz\r\n\r\n") => Interrupted;
};
