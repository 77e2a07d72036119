//! Whom a request is for: `Host`, and the forms of a target.

use super::super::case::{Request, forwarded, refused};

pub(crate) const CASES: &[Request] = &[
    forwarded(
        "a host with a port",
        "RFC 9110, 7.2",
        b"GET /a HTTP/1.1\r\nHost: example.org:8080\r\n\r\n",
        &["GET /a HTTP/1.1\r\nHost: example.org:8080\r\n\r\n"],
    ),
    forwarded(
        "a URL with another host than Host",
        "RFC 9112, 3.2.2: Host must be ignored and replaced",
        b"GET http://b/x?y HTTP/1.1\r\nHost: a\r\n\r\n",
        &["GET /x?y HTTP/1.1\r\nHost: b\r\n\r\n"],
    ),
    forwarded(
        "a URL without a path",
        "RFC 9112, 3.2.1: an empty path is sent as /",
        b"GET http://b HTTP/1.1\r\nHost: b\r\n\r\n",
        &["GET / HTTP/1.1\r\nHost: b\r\n\r\n"],
    ),
    forwarded(
        "a URL with a query and no path",
        "RFC 9112, 3.2.1: an empty path is sent as /",
        b"GET http://b?x HTTP/1.1\r\nHost: b\r\n\r\n",
        &["GET /?x HTTP/1.1\r\nHost: b\r\n\r\n"],
    ),
    forwarded(
        "OPTIONS *",
        "RFC 9112, 3.2.4",
        b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        &["OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"],
    ),
    forwarded(
        "OPTIONS of a URL without a path",
        "RFC 9112, 3.2.4: the last proxy sends *",
        b"OPTIONS http://b HTTP/1.1\r\nHost: b\r\n\r\n",
        &["OPTIONS * HTTP/1.1\r\nHost: b\r\n\r\n"],
    ),
    forwarded(
        "a path of two slashes",
        "RFC 9112, 3.2.1: it is a path, and names no host",
        b"GET //b/c HTTP/1.1\r\nHost: a\r\n\r\n",
        &["GET //b/c HTTP/1.1\r\nHost: a\r\n\r\n"],
    ),
    forwarded(
        "a path that climbs",
        "RFC 9112, 3.2: it is passed on as it came",
        b"GET /a/../b/%2e%2e/c HTTP/1.1\r\nHost: a\r\n\r\n",
        &["GET /a/../b/%2e%2e/c HTTP/1.1\r\nHost: a\r\n\r\n"],
    ),
    forwarded(
        "a percent-encoded line end",
        "RFC 3986, 2.1: it is data",
        b"GET /a%0d%0aX:%20y HTTP/1.1\r\nHost: a\r\n\r\n",
        &["GET /a%0d%0aX:%20y HTTP/1.1\r\nHost: a\r\n\r\n"],
    ),
    refused(
        "no host",
        "RFC 9112, 3.2: must be answered by 400",
        400,
        b"GET /a HTTP/1.1\r\nX: y\r\n\r\n",
    ),
    refused(
        "two hosts",
        "RFC 9112, 3.2: must be answered by 400",
        400,
        b"GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ),
    refused(
        "two hosts that agree",
        "RFC 9112, 3.2: must be answered by 400",
        400,
        b"GET /a HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
    ),
    refused(
        "two hosts in HTTP/1.0",
        "RFC 9112, 3.2: must be answered by 400",
        400,
        b"GET /a HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
    ),
    refused(
        "a space before the colon of Host",
        "RFC 9112, 5.1: must be refused with 400",
        400,
        b"GET /a HTTP/1.1\r\nHost : b\r\nHost: a\r\n\r\n",
    ),
    refused(
        "a host with a space",
        "RFC 9112, 3.2: an invalid value must be answered by 400",
        400,
        b"GET /a HTTP/1.1\r\nHost: a b\r\n\r\n",
    ),
    refused(
        "a host with a path",
        "RFC 9112, 3.2: an invalid value must be answered by 400",
        400,
        b"GET /a HTTP/1.1\r\nHost: a/b\r\n\r\n",
    ),
    refused(
        "a host with a user",
        "RFC 9112, 3.2: an invalid value must be answered by 400",
        400,
        b"GET /a HTTP/1.1\r\nHost: a@b\r\n\r\n",
    ),
    refused(
        "a host in UTF-8",
        "RFC 3986, 3.2.2: a host is ASCII",
        400,
        b"GET /a HTTP/1.1\r\nHost: \xc3\xa9\r\n\r\n",
    ),
    refused(
        "a URL with a user",
        "RFC 9110, 4.2.4: should be treated as an error",
        400,
        b"GET http://a@b/x HTTP/1.1\r\nHost: b\r\n\r\n",
    ),
    refused(
        "a URL without a host",
        "RFC 9110, 4.2.1: must be refused",
        400,
        b"GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n",
    ),
    refused(
        "a URL of another scheme",
        "RFC 9112, 3.2.2: a proxy of HTTP has no use for it",
        400,
        b"GET ftp://b/x HTTP/1.1\r\nHost: b\r\n\r\n",
    ),
    refused(
        "a URL with a backslash in its host",
        "RFC 3986, 3.2.2: it is in no host",
        400,
        b"GET http://b\\@a/x HTTP/1.1\r\nHost: a\r\n\r\n",
    ),
    refused(
        "a URL and no Host",
        "RFC 9112, 3.2: must be answered by 400",
        400,
        b"GET http://b/x HTTP/1.1\r\n\r\n",
    ),
    refused(
        "a target without a slash",
        "RFC 9112, 3.2.1: a path begins with one",
        400,
        b"GET @b/x HTTP/1.1\r\nHost: a\r\n\r\n",
    ),
    refused(
        "GET *",
        "RFC 9112, 3.2.4: it is for OPTIONS alone",
        400,
        b"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
    ),
    refused(
        "CONNECT",
        "RFC 9110, 9.3.6: this is no tunnel",
        501,
        b"CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\n",
    ),
];
