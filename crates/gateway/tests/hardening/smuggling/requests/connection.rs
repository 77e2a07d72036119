//! What belongs to one connection and must not be passed on, and what must be whatever somebody says.

use super::super::case::{Request, forwarded, refused};

pub(crate) const CASES: &[Request] = &[
    forwarded(
        "headers of the connection",
        "RFC 9110, 7.6.1: must be removed",
        b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Mine\r\nKeep-Alive: timeout=5\r\n\
            Proxy-Connection: keep-alive\r\nTE: gzip\r\nX-Mine: 1\r\nX: y\r\n\r\n",
        &["GET /a HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n"],
    ),
    forwarded(
        "Connection twice, in capitals",
        "RFC 9110, 7.6.1: options are the same in any case",
        b"GET /a HTTP/1.1\r\nHost: a\r\nx-mine: 1\r\nCONNECTION: X-MINE\r\nconnection: x-Other\r\n\
            X-OTHER: 2\r\n\r\n",
        &["GET /a HTTP/1.1\r\nHost: a\r\n\r\n"],
    ),
    forwarded(
        "Connection: Content-Length",
        "RFC 9110, 7.6.1: it is no option, and its loss would set the body free",
        b"POST /a HTTP/1.1\r\nHost: a\r\nConnection: Content-Length\r\nContent-Length: 5\r\n\r\nhello",
        &["POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"],
    ),
    forwarded(
        "Connection: Transfer-Encoding",
        "RFC 9110, 7.6.1: it is no option, and its loss would set the body free",
        b"POST /a HTTP/1.1\r\nHost: a\r\nConnection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n\
            5\r\nhello\r\n0\r\n\r\n",
        &["POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"],
    ),
    forwarded(
        "Connection: Host",
        "RFC 9110, 7.6.1: it is no option, and its loss would lose the host",
        b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: Host\r\n\r\n",
        &["GET /a HTTP/1.1\r\nHost: a\r\n\r\n"],
    ),
    forwarded(
        "HTTP/2 by upgrade",
        "RFC 9113, 3.1: h2c is obsolete; passed on it is a tunnel past the proxy",
        b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
            HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
        &["GET /a HTTP/1.1\r\nHost: a\r\n\r\n"],
    ),
    forwarded(
        "an Upgrade that Connection does not name",
        "RFC 9110, 7.8: it asks for nothing then",
        b"GET /a HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
        &["GET /a HTTP/1.1\r\nHost: a\r\n\r\n"],
    ),
    forwarded(
        "an Upgrade in HTTP/1.0",
        "RFC 9110, 7.8: must be ignored",
        b"GET /a HTTP/1.0\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n",
        &["GET /a HTTP/1.1\r\nHost: a\r\n\r\n"],
    ),
    forwarded(
        "an expectation that nobody knows",
        "RFC 9110, 10.1.1: the origin may answer it by 417",
        b"POST /a HTTP/1.1\r\nHost: a\r\nExpect: 200-maybe\r\nContent-Length: 5\r\n\r\nhello",
        &["POST /a HTTP/1.1\r\nHost: a\r\nExpect: 200-maybe\r\nContent-Length: 5\r\n\r\nhello"],
    ),
    forwarded(
        "a TRACE that may be passed on once",
        "RFC 9110, 7.6.2: it must be counted down",
        b"TRACE /a HTTP/1.1\r\nHost: a\r\nMax-Forwards: 01\r\n\r\n",
        &["TRACE /a HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n"],
    ),
    forwarded(
        "a count of hops that Connection names",
        "RFC 9110, 7.6.2: without it, two proxies could pass it back and forth for ever",
        b"OPTIONS /a HTTP/1.1\r\nHost: a\r\nConnection: Max-Forwards\r\nMax-Forwards: 2\r\n\r\n",
        &["OPTIONS /a HTTP/1.1\r\nHost: a\r\nMax-Forwards: 1\r\n\r\n"],
    ),
    refused(
        "two counts of hops",
        "RFC 9110, 7.6.2: it is one number",
        400,
        b"TRACE /a HTTP/1.1\r\nHost: a\r\nMax-Forwards: 1\r\nMax-Forwards: 0\r\n\r\n",
    ),
];
