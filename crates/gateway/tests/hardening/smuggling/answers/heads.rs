//! Status lines, header fields, interim answers.

use super::{Answer, bad, passed};

pub(super) const CASES: &[Answer] = &[
    passed(
        "HTTP/1.0",
        "RFC 9112, 2.3: a proxy says its own version",
        b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nbody",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
    )
    .then_close(),
    passed(
        "no reason",
        "RFC 9112, 4: it may be empty",
        b"HTTP/1.1 200 \r\nContent-Length: 4\r\n\r\nbody",
        "HTTP/1.1 200 \r\nContent-Length: 4\r\n\r\nbody",
    ),
    passed(
        "no reason, and no space before it",
        "RFC 9112, 4: the space stays, which many leave out",
        b"HTTP/1.1 200\r\nContent-Length: 4\r\n\r\nbody",
        "HTTP/1.1 200 \r\nContent-Length: 4\r\n\r\nbody",
    ),
    passed(
        "headers of the connection",
        "RFC 9110, 7.6.1: must be removed",
        b"HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Mine\r\nKeep-Alive: timeout=5\r\nX-Mine: 1\r\n\
            X: y\r\nProxy-Connection: keep-alive\r\nContent-Length: 4\r\n\r\nbody",
        "HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 4\r\n\r\nbody",
    ),
    passed(
        "spaces around a value, and none",
        "RFC 9112, 5: white space around a value is optional",
        b"HTTP/1.1 200 OK\r\nX: \t y \t\r\nY:z\r\nContent-Length:4\r\n\r\nbody",
        "HTTP/1.1 200 OK\r\nX: y\r\nY: z\r\nContent-Length: 4\r\n\r\nbody",
    ),
    passed(
        "the same name twice",
        "RFC 9110, 5.3: Set-Cookie must not be put together",
        b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nX: y\r\nSet-Cookie: b=2\r\nContent-Length: 4\r\n\r\nbody",
        "HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nX: y\r\nSet-Cookie: b=2\r\nContent-Length: 4\r\n\r\nbody",
    ),
    passed(
        "an interim answer",
        "RFC 9110, 15.2: must be passed on",
        b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
        "HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
    ),
    passed(
        "an interim answer with a length",
        "RFC 9112, 6.3: it has no body; RFC 9110, 8.6: nor a length",
        b"HTTP/1.1 103 Early Hints\r\nContent-Length: 60\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
    ),
    bad(
        "101, which no request asked for",
        "RFC 9110, 7.8: must not be",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: evil\r\n\r\nevil",
    ),
    bad("a status of two digits", "RFC 9112, 4: three digits", b"HTTP/1.1 20 OK\r\nContent-Length: 4\r\n\r\nevil"),
    bad("a status of four digits", "RFC 9112, 4: three digits", b"HTTP/1.1 2000 OK\r\nContent-Length: 4\r\n\r\nevil"),
    bad("a status with a letter", "RFC 9112, 4: three digits", b"HTTP/1.1 2x0 OK\r\nContent-Length: 4\r\n\r\nevil"),
    bad("status 099", "RFC 9110, 15: 100 to 599", b"HTTP/1.1 099 OK\r\nContent-Length: 4\r\n\r\nevil"),
    bad("HTTP/2.0", "RFC 9112, 2.3", b"HTTP/2.0 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
    bad("HTTP/1.10", "RFC 9112, 2.3", b"HTTP/1.10 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
    bad("ICY in the place of HTTP", "RFC 9112, 4", b"ICY 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
    bad("a body alone", "RFC 9112, 4: HTTP/0.9 is not HTTP/1", b"<html>evil</html>\r\n\r\n"),
    bad("garbage", "RFC 9112, 4", b"\xff\xfe\0\x01evil\r\n\r\n"),
    bad("an empty line before it", "RFC 9112, 2.2: only servers pass over it", b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
    bad("a space before it", "RFC 9112, 4", b" HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
    bad("NUL in a reason", "RFC 9112, 4", b"HTTP/1.1 200 O\0K\r\nContent-Length: 4\r\n\r\nevil"),
    bad("a bare CR in a reason", "RFC 9112, 2.2", b"HTTP/1.1 200 O\rK\r\nContent-Length: 4\r\n\r\nevil"),
    passed(
        "lines that end in LF",
        "RFC 9112, 2.2: a lone LF may be a line's end, and goes on as CR LF",
        b"HTTP/1.1 200 OK\nX: y\nContent-Length: 4\n\nbody",
        "HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 4\r\n\r\nbody",
    ),
    passed(
        "one line that ends in LF",
        "RFC 9112, 2.2: a lone LF may be a line's end, and goes on as CR LF",
        b"HTTP/1.1 200 OK\r\nX: y\nContent-Length: 4\r\n\r\nbody",
        "HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 4\r\n\r\nbody",
    ),
    bad("a space before a colon", "RFC 9112, 5.1: mended or not passed on", b"HTTP/1.1 200 OK\r\nContent-Length : 4\r\n\r\nevil"),
    bad("a folded value", "RFC 9112, 5.2: mended or not passed on", b"HTTP/1.1 200 OK\r\nX: y\r\n z\r\nContent-Length: 4\r\n\r\nevil"),
    bad("a line without a colon", "RFC 9112, 5", b"HTTP/1.1 200 OK\r\nX\r\nContent-Length: 4\r\n\r\nevil"),
    bad("no name", "RFC 9110, 5.1", b"HTTP/1.1 200 OK\r\n: y\r\nContent-Length: 4\r\n\r\nevil"),
    bad("NUL in a value", "RFC 9110, 5.5", b"HTTP/1.1 200 OK\r\nX: y\0z\r\nContent-Length: 4\r\n\r\nevil"),
    bad("a bare CR in a value", "RFC 9110, 5.5", b"HTTP/1.1 200 OK\r\nX: y\rz\r\nContent-Length: 4\r\n\r\nevil"),
    bad("a control byte in a value", "RFC 9110, 5.5", b"HTTP/1.1 200 OK\r\nX: y\x01z\r\nContent-Length: 4\r\n\r\nevil"),
    bad("a name with a space", "RFC 9110, 5.1", b"HTTP/1.1 200 OK\r\nX Y: z\r\nContent-Length: 4\r\n\r\nevil"),
    bad("no answer", "RFC 9110, 15.6.3", b"").then_close(),
    bad("half a head", "RFC 9110, 15.6.3", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX: ev").then_close(),
    bad("half a status line", "RFC 9110, 15.6.3", b"HTTP/1.1 20").then_close(),
];
