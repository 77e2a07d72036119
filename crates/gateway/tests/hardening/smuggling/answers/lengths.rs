//! Where an answer ends.

use super::{Answer, bad, passed};

pub(super) const CASES: &[Answer] = &[
    passed(
        "a length",
        "RFC 9112, 6.2",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
    ),
    passed(
        "length 0",
        "RFC 9112, 6.2",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ),
    passed(
        "two answers to one request",
        "RFC 9112, 9.2: whatever is behind the answer answers nothing",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbodyHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
    ),
    passed(
        "a body longer than its length",
        "RFC 9112, 6.3: whatever is behind the answer answers nothing",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbodyevil",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
    ),
    passed(
        "a 204 with a length and a body",
        "RFC 9112, 6.3: it has no body; RFC 9110, 8.6: nor a length",
        b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nevil",
        "HTTP/1.1 204 No Content\r\n\r\n",
    ),
    passed(
        "a 204 with chunks",
        "RFC 9112, 6.1: it has no coding",
        b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
    ),
    passed(
        "a 304 with a length and a body",
        "RFC 9112, 6.3: it has no body, and the length is what another answer would have",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\nevil",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n",
    ),
    passed(
        "a body in the answer to a HEAD",
        "RFC 9112, 6.3: it has none",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n",
    )
    .for_head(),
    passed(
        "two lengths that agree",
        "RFC 9110, 8.6: may be replaced by one",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nbody",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
    ),
    passed(
        "a list of one length twice",
        "RFC 9112, 6.3: may be replaced by one",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4, 4\r\n\r\nbody",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
    ),
    passed(
        "Connection: Content-Length",
        "RFC 9110, 7.6.1: it is no option, and its loss would set the body free",
        b"HTTP/1.1 200 OK\r\nConnection: Content-Length\r\nContent-Length: 4\r\n\r\nbody",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
    ),
    bad(
        "two lengths that differ",
        "RFC 9112, 6.3: must be answered by 502",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 8\r\n\r\nevilevil",
    ),
    bad(
        "a list of two lengths",
        "RFC 9112, 6.3: must be answered by 502",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4, 8\r\n\r\nevilevil",
    ),
    bad(
        "a length with a plus",
        "RFC 9110, 8.6: a length is digits",
        b"HTTP/1.1 200 OK\r\nContent-Length: +4\r\n\r\nevil",
    ),
    bad(
        "a negative length",
        "RFC 9110, 8.6: a length is digits",
        b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\nevil",
    ),
    bad(
        "an empty length",
        "RFC 9110, 8.6: a length is at least one digit",
        b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nevil",
    ),
    bad(
        "a length of 2^64 + 4",
        "RFC 9110, 8.6: overflow is to be expected and prevented",
        b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551620\r\n\r\nevil",
    ),
    bad(
        "a length and chunks",
        "RFC 9112, 6.3: ought to be handled as an error",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
    ),
    bad(
        "chunks and a length",
        "RFC 9112, 6.3: ought to be handled as an error",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
    ),
    bad(
        "chunked twice",
        "RFC 9112, 6.1: must not be applied more than once",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
    ),
    bad(
        "gzip, then chunked",
        "RFC 9112, 7.4: no request said that it takes that",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
    ),
    bad(
        "xchunked",
        "RFC 9112, 7.4: no request said that it takes that",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
    ),
    bad(
        "chunked in HTTP/1.0",
        "RFC 9112, 6.1: the framing is faulty",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
    ),
];
