//! Requests with ambiguous request lines and headers.

use super::RequestOutcome::{Answered, Forwarded, Rejected, Unchanged};
use super::{RequestCase, request_cases};

/// A request with these header lines.
macro_rules! with {
    ($lines:literal) => {
        concat!("GET /a HTTP/1.1\r\nHost: a\r\n", $lines, "\r\n\r\n").as_bytes()
    };
}

pub(crate) const CASES: &[RequestCase] = request_cases! {
    // Request lines, and ends of lines.
    "an empty line before the request", "RFC 9112, 2.2: should be ignored":
        b"\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n" => Forwarded(&[b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"]);
    "an empty line after a body", "RFC 9112, 2.2: should be ignored":
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\r\n"
            => Forwarded(&[b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"]);
    "a method in lower case", "RFC 9110, 9.1: methods are case-sensitive":
        b"get /a HTTP/1.1\r\nHost: a\r\n\r\n" => Unchanged;
    "a method of unusual token characters", "RFC 9110, 9.1: a method is any token":
        b"!#$%&'*+-.^_`|~9 /a HTTP/1.1\r\nHost: a\r\n\r\n" => Unchanged;
    "HTTP/1.0", "RFC 9112, 2.3: a proxy sends its own version":
        b"GET /a HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n"
            => Forwarded(&[b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"]);
    "lines that end in LF", "RFC 9112, 2.2: a lone LF may end a line":
        b"GET /a HTTP/1.1\nHost: a\n\n" => Rejected(400);
    "one line that ends in LF", "RFC 9112, 2.2: a lone LF may end a line":
        b"GET /a HTTP/1.1\r\nHost: a\nX: y\r\n\r\n" => Rejected(400);
    "a header section that ends in LF", "RFC 9112, 2.2: a lone LF may end a line":
        b"GET /a HTTP/1.1\r\nHost: a\r\n\n" => Rejected(400);
    "lines that end in CR", "RFC 9112, 2.2: a bare CR does not end a line":
        b"GET /a HTTP/1.1\rHost: a\r\r" => Rejected(400);
    "a line that ends in CR CR LF", "RFC 9112, 2.2: a bare CR does not end a line":
        b"GET /a HTTP/1.1\r\nHost: a\r\r\n\r\n" => Rejected(400);
    "a bare CR in a target", "RFC 9112, 2.2": b"GET /a\rb HTTP/1.1\r\nHost: a\r\n\r\n" => Rejected(400);
    "HTTP/0.9", "RFC 9112, 2.3: not HTTP/1": b"GET /a\r\n\r\n" => Rejected(400);
    "HTTP/2.0", "RFC 9110, 15.6.6: the version is not supported":
        b"GET /a HTTP/2.0\r\nHost: a\r\n\r\n" => Rejected(505);
    "HTTP/1.10", "RFC 9112, 2.3: one digit, a dot, one digit":
        b"GET /a HTTP/1.10\r\nHost: a\r\n\r\n" => Rejected(400);
    "HTTP/1.01", "RFC 9112, 2.3: one digit, a dot, one digit":
        b"GET /a HTTP/1.01\r\nHost: a\r\n\r\n" => Rejected(400);
    "http/1.1 in lower case", "RFC 9112, 2.3: the name is upper case":
        b"GET /a http/1.1\r\nHost: a\r\n\r\n" => Rejected(400);
    "a space after the version", "RFC 9112, 3: the line ends after the version":
        b"GET /a HTTP/1.1 \r\nHost: a\r\n\r\n" => Rejected(400);
    "a space in a target", "RFC 9112, 3: no whitespace in a target":
        b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n" => Rejected(400);
    "two versions on a line", "RFC 9112, 3: no whitespace in a target":
        b"GET /a HTTP/1.1 HTTP/1.1\r\nHost: a\r\n\r\n" => Rejected(400);
    "two spaces before a target", "RFC 9112, 3: a single space":
        b"GET  /a HTTP/1.1\r\nHost: a\r\n\r\n" => Rejected(400);
    "a tab before a target", "RFC 9112, 3: a single space": b"GET\t/a HTTP/1.1\r\nHost: a\r\n\r\n" => Rejected(400);
    "a space before a method", "RFC 9112, 3: the line starts with the method":
        b" GET /a HTTP/1.1\r\nHost: a\r\n\r\n" => Rejected(400);
    "no method", "RFC 9112, 3: the line starts with the method": b"/a HTTP/1.1\r\nHost: a\r\n\r\n" => Rejected(400);
    "a method with a parenthesis", "RFC 9110, 5.6.2: not a token character":
        b"GE(T /a HTTP/1.1\r\nHost: a\r\n\r\n" => Rejected(400);
    "a method with NUL", "RFC 9110, 5.6.2: not a token character":
        b"GET\0 /a HTTP/1.1\r\nHost: a\r\n\r\n" => Rejected(400);
    "NUL in a target", "RFC 3986, 2: not a URI character": b"GET /a\0b HTTP/1.1\r\nHost: a\r\n\r\n" => Rejected(400);
    "DEL in a target", "RFC 3986, 2: not a URI character":
        b"GET /a\x7fb HTTP/1.1\r\nHost: a\r\n\r\n" => Rejected(400);
    "Latin-1 in a target", "RFC 3986, 2: not a URI character":
        b"GET /a\xe9b HTTP/1.1\r\nHost: a\r\n\r\n" => Rejected(400);
    "UTF-8 in a target", "RFC 3986, 2: not a URI character; U+010D truncated to a byte is CR":
        b"GET /a\xc4\x8db HTTP/1.1\r\nHost: a\r\n\r\n" => Rejected(400);
    "a fragment", "RFC 9112, 3.2: not part of a target; servers differ on its route":
        b"GET /a#/../b HTTP/1.1\r\nHost: a\r\n\r\n" => Rejected(400);
    "a request line without headers", "RFC 9112, 3.2: HTTP/1.1 requires Host":
        b"GET /a HTTP/1.1\r\n\r\n" => Rejected(400);
    "a TLS ClientHello", "RFC 9112, 3: not HTTP":
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n" => Rejected(400);
    "the HTTP/2 preface", "RFC 9113, 3.4: not HTTP/1": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" => Rejected(505);

    // Names and values of headers.
    "no space after a colon", "RFC 9112, 5: whitespace around a value is optional":
        with!("X:y") => Forwarded(&[with!("X: y")]);
    "an empty value", "RFC 9110, 5.5: a value may be empty": with!("X:") => Forwarded(&[with!("X: ")]);
    "a tab within a value", "RFC 9110, 5.5: allowed within a value": with!("X: y\tz") => Unchanged;
    "the same name twice", "RFC 9110, 5.3: the order must not change": with!("X: 1\r\nY: 2\r\nX: 3") => Unchanged;
    "colons in a value", "RFC 9112, 5: the first colon ends the name": with!("X: y: z") => Unchanged;
    "X_Forwarded_For", "RFC 3875, 4.1.18: CGI maps both names to one variable":
        with!("X_Forwarded_For: 192.0.2.1") => Forwarded(&[b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"]);
    "x-forwarded_PROTO", "RFC 3875, 4.1.18: CGI maps both names to one variable":
        with!("x-forwarded_PROTO: https") => Forwarded(&[b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"]);
    "X_FORWARDED-HOST", "RFC 3875, 4.1.18: CGI maps both names to one variable":
        with!("X_FORWARDED-HOST: b") => Forwarded(&[b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"]);
    "underscores in another name", "RFC 3875, 4.1.18: CGI maps both names to one variable":
        with!("X_Forwarded_By: b") => Forwarded(&[b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"]);
    "Proxy", "RFC 3875, 4.1.18: CGI programs take HTTP_PROXY for their own proxy":
        with!("Proxy: b") => Forwarded(&[b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"]);
    "headers that override the URL", "RFC 9112, 3.3: the target names the URL":
        with!("X-Original-URL: /b\r\nX-Rewrite-URL: /b") => Forwarded(&[b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"]);
    "headers about the client", "RFC 7239, 8.1: only a proxy knows the client":
        with!("X-Real-IP: 192.0.2.1\r\nTrue-Client-IP: 192.0.2.1\r\nX-Forwarded-Port: 443\r\nX-Forwarded-Prefix: /b")
            => Forwarded(&[b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"]);
    "a space before a colon", "RFC 9112, 5.1: must be rejected with 400": with!("X : y") => Rejected(400);
    "a space in a name", "RFC 9110, 5.1: a name is a token": with!("X Y: z") => Rejected(400);
    "a space before the first name", "RFC 9112, 2.2": b"GET /a HTTP/1.1\r\n Host: a\r\n\r\n" => Rejected(400);
    "a folded value", "RFC 9112, 5.2: must be rejected or unfolded": with!("X: y\r\n z") => Rejected(400);
    "a value folded by a tab", "RFC 9112, 5.2: must be rejected or unfolded": with!("X: y\r\n\tz") => Rejected(400);
    "a folded line of spaces", "RFC 9112, 5.2: must be rejected or unfolded": with!("X: y\r\n ") => Rejected(400);
    "a line without a colon", "RFC 9112, 5": with!("X") => Rejected(400);
    "no name", "RFC 9110, 5.1: a name is at least one byte": with!(": y") => Rejected(400);
    "a name with a parenthesis", "RFC 9110, 5.6.2: not a token character": with!("X(: y") => Rejected(400);
    "a name in quotes", "RFC 9110, 5.6.2: not a token character": with!("\"X\": y") => Rejected(400);
    "a name with a slash", "RFC 9110, 5.6.2: not a token character": with!("X/Y: z") => Rejected(400);
    "a name with NUL", "RFC 9110, 5.6.2: not a token character": with!("X\0: y") => Rejected(400);
    "a name with a control byte", "RFC 9110, 5.6.2: not a token character": with!("X\x01: y") => Rejected(400);
    "a name with a vertical tab", "RFC 9110, 5.6.2: not a token character": with!("X\x0b: y") => Rejected(400);
    "a name in UTF-8", "RFC 9110, 5.6.2: not a token character": with!("\u{e9}: y") => Rejected(400);
    "NUL in a value", "RFC 9110, 5.5: must be rejected or replaced": with!("X: y\0z") => Rejected(400);
    "a bare CR in a value", "RFC 9110, 5.5: must be rejected or replaced": with!("X: y\rz") => Rejected(400);
    "a control byte in a value", "RFC 9110, 5.5": with!("X: y\x01z") => Rejected(400);
    "DEL in a value", "RFC 9110, 5.5": with!("X: y\x7fz") => Rejected(400);
    "a value that is a bare CR", "RFC 9110, 5.5: must be rejected or replaced": with!("X: \r") => Rejected(400);

    // The host, and the form of the target.
    "a host with a port", "RFC 9110, 7.2": b"GET /a HTTP/1.1\r\nHost: example.org:8080\r\n\r\n" => Unchanged;
    "a URL with another host than Host", "RFC 9112, 3.2.2: Host must be ignored and replaced":
        b"GET http://b/x?y HTTP/1.1\r\nHost: a\r\n\r\n" => Forwarded(&[b"GET /x?y HTTP/1.1\r\nHost: b\r\n\r\n"]);
    "a URL without a path", "RFC 9112, 3.2.1: an empty path is sent as /":
        b"GET http://b HTTP/1.1\r\nHost: b\r\n\r\n" => Forwarded(&[b"GET / HTTP/1.1\r\nHost: b\r\n\r\n"]);
    "a URL with a query and no path", "RFC 9112, 3.2.1: an empty path is sent as /":
        b"GET http://b?x HTTP/1.1\r\nHost: b\r\n\r\n" => Forwarded(&[b"GET /?x HTTP/1.1\r\nHost: b\r\n\r\n"]);
    "OPTIONS *", "RFC 9112, 3.2.4": b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n" => Unchanged;
    "OPTIONS of a URL without a path", "RFC 9112, 3.2.4: the last proxy sends *":
        b"OPTIONS http://b HTTP/1.1\r\nHost: b\r\n\r\n" => Forwarded(&[b"OPTIONS * HTTP/1.1\r\nHost: b\r\n\r\n"]);
    "a path of two slashes", "RFC 9112, 3.2.1: a path, not an authority":
        b"GET //b/c HTTP/1.1\r\nHost: a\r\n\r\n" => Unchanged;
    "a path with dot segments", "RFC 3986, 6.2.2.3: resolved, so that routes and backends agree":
        b"GET /a/../b/%2e%2e/c HTTP/1.1\r\nHost: a\r\n\r\n" => Forwarded(&[b"GET /c HTTP/1.1\r\nHost: a\r\n\r\n"]);
    "a percent-encoded line end", "RFC 3986, 2.1: data, not a line end":
        b"GET /a%0d%0aX:%20y HTTP/1.1\r\nHost: a\r\n\r\n" => Unchanged;
    "no host", "RFC 9112, 3.2: must be answered with 400": b"GET /a HTTP/1.1\r\nX: y\r\n\r\n" => Rejected(400);
    "two hosts", "RFC 9112, 3.2: must be answered with 400":
        b"GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" => Rejected(400);
    "two equal hosts", "RFC 9112, 3.2: must be answered with 400":
        b"GET /a HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n" => Rejected(400);
    "two hosts in HTTP/1.0", "RFC 9112, 3.2: must be answered with 400":
        b"GET /a HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n" => Rejected(400);
    "a space before the colon of Host", "RFC 9112, 5.1: must be rejected with 400":
        b"GET /a HTTP/1.1\r\nHost : b\r\nHost: a\r\n\r\n" => Rejected(400);
    "a host with a space", "RFC 9112, 3.2: an invalid value must be answered with 400":
        b"GET /a HTTP/1.1\r\nHost: a b\r\n\r\n" => Rejected(400);
    "a host with a path", "RFC 9112, 3.2: an invalid value must be answered with 400":
        b"GET /a HTTP/1.1\r\nHost: a/b\r\n\r\n" => Rejected(400);
    "a host with a user", "RFC 9112, 3.2: an invalid value must be answered with 400":
        b"GET /a HTTP/1.1\r\nHost: a@b\r\n\r\n" => Rejected(400);
    "a host with two ports", "RFC 3986, 3.2.3: a port is a number":
        b"GET /a HTTP/1.1\r\nHost: a:80:90\r\n\r\n" => Rejected(400);
    "a host with an open bracket", "RFC 3986, 3.2.2: an IPv6 address ends with a bracket":
        b"GET /a HTTP/1.1\r\nHost: [::1\r\n\r\n" => Rejected(400);
    "a host of brackets in reverse", "RFC 3986, 3.2.2: an IPv6 address ends with a bracket":
        b"GET /a HTTP/1.1\r\nHost: ][\r\n\r\n" => Rejected(400);
    "a host with a port that is not a number", "RFC 3986, 3.2.3: a port is a number":
        b"GET /a HTTP/1.1\r\nHost: a:b\r\n\r\n" => Rejected(400);
    "a URL with two ports", "RFC 3986, 3.2.3: a port is a number":
        b"GET http://a:80:90/a HTTP/1.1\r\nHost: a\r\n\r\n" => Rejected(400);
    "a host in UTF-8", "RFC 3986, 3.2.2: a host is ASCII":
        b"GET /a HTTP/1.1\r\nHost: \xc3\xa9\r\n\r\n" => Rejected(400);
    "a URL with a user", "RFC 9110, 4.2.4: should be treated as an error":
        b"GET http://a@b/x HTTP/1.1\r\nHost: b\r\n\r\n" => Rejected(400);
    "a URL without a host", "RFC 9110, 4.2.1: must be rejected":
        b"GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n" => Rejected(400);
    "a URL of another scheme", "RFC 9112, 3.2.2: not a scheme of an HTTP proxy":
        b"GET ftp://b/x HTTP/1.1\r\nHost: b\r\n\r\n" => Rejected(400);
    "a URL with a backslash in its host", "RFC 3986, 3.2.2: not a host character":
        b"GET http://b\\@a/x HTTP/1.1\r\nHost: a\r\n\r\n" => Rejected(400);
    "a URL without Host", "RFC 9112, 3.2: must be answered with 400":
        b"GET http://b/x HTTP/1.1\r\n\r\n" => Rejected(400);
    "a target without a slash", "RFC 9112, 3.2.1: a path starts with a slash":
        b"GET @b/x HTTP/1.1\r\nHost: a\r\n\r\n" => Rejected(400);
    "GET *", "RFC 9112, 3.2.4: only for OPTIONS": b"GET * HTTP/1.1\r\nHost: a\r\n\r\n" => Rejected(400);
    "CONNECT", "RFC 9110, 9.3.6: tunnels are not supported":
        b"CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\n" => Rejected(501);

    // Hop-by-hop headers, and what `Connection` must not remove.
    "hop-by-hop headers", "RFC 9110, 7.6.1: must be removed":
        b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Mine\r\nKeep-Alive: timeout=5\r\n\
            Proxy-Connection: keep-alive\r\nTE: gzip\r\nX-Mine: 1\r\nX: y\r\n\r\n"
            => Forwarded(&[b"GET /a HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n"]);
    "two Connection headers in different case", "RFC 9110, 7.6.1: options are case-insensitive":
        b"GET /a HTTP/1.1\r\nHost: a\r\nx-mine: 1\r\nCONNECTION: X-MINE\r\nconnection: x-Other\r\nX-OTHER: 2\r\n\r\n"
            => Forwarded(&[b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"]);
    "Connection: Content-Length", "RFC 9110, 7.6.1: not an option; without it the body would be a message":
        b"POST /a HTTP/1.1\r\nHost: a\r\nConnection: Content-Length\r\nContent-Length: 5\r\n\r\nhello"
            => Forwarded(&[b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"]);
    "Connection: Transfer-Encoding", "RFC 9110, 7.6.1: not an option; without it the body would be a message":
        b"POST /a HTTP/1.1\r\nHost: a\r\nConnection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n\
            5\r\nhello\r\n0\r\n\r\n" => Forwarded(&[
            b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        ]);
    "Connection: Host", "RFC 9110, 7.6.1: not an option; without it the host would be lost":
        b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: Host\r\n\r\n"
            => Forwarded(&[b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"]);
    "an upgrade to h2c", "RFC 9113, 3.1: h2c is obsolete; it would open a tunnel past the proxy":
        b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
            HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
            => Forwarded(&[b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"]);
    "an upgrade to an unknown protocol", "RFC 9110, 7.8: may be ignored; it would open a tunnel past the proxy":
        b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: mine\r\n\r\n"
            => Forwarded(&[b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"]);
    "Upgrade without Connection: Upgrade", "RFC 9110, 7.8: without effect":
        b"GET /a HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n"
            => Forwarded(&[b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"]);
    "Upgrade in HTTP/1.0", "RFC 9110, 7.8: must be ignored":
        b"GET /a HTTP/1.0\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"
            => Forwarded(&[b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"]);
    "an unknown expectation", "RFC 9110, 10.1.1: may be answered with 417":
        b"POST /a HTTP/1.1\r\nHost: a\r\nExpect: 200-maybe\r\nContent-Length: 5\r\n\r\nhello" => Rejected(417);
    "an unknown expectation beside a known one", "RFC 9110, 10.1.1: may be answered with 417":
        with!("Expect: 100-continue, 200-maybe") => Answered(417);
    "TRACE", "RFC 9110, 9.3.8: its response repeats headers that a script may not read":
        b"TRACE /a HTTP/1.1\r\nHost: a\r\nCookie: b\r\n\r\n" => Answered(405);
    "OPTIONS with Max-Forwards 1", "RFC 9110, 7.6.2: must be decremented":
        b"OPTIONS /a HTTP/1.1\r\nHost: a\r\nMax-Forwards: 01\r\n\r\n"
            => Forwarded(&[b"OPTIONS /a HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n"]);
    "Connection: Max-Forwards", "RFC 9110, 7.6.2: without it, a forwarding loop would not end":
        b"OPTIONS /a HTTP/1.1\r\nHost: a\r\nConnection: Max-Forwards\r\nMax-Forwards: 2\r\n\r\n"
            => Forwarded(&[b"OPTIONS /a HTTP/1.1\r\nHost: a\r\nMax-Forwards: 1\r\n\r\n"]);
    "two Max-Forwards", "RFC 9110, 7.6.2: a single number":
        b"OPTIONS /a HTTP/1.1\r\nHost: a\r\nMax-Forwards: 1\r\nMax-Forwards: 0\r\n\r\n" => Rejected(400);
};
