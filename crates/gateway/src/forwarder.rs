//! The client of a request, as trusted proxies describe it.

use std::net::{IpAddr, SocketAddr};

use tollgate_http1::Headers;

use crate::config::{ForwardedHeader, TrustedProxies};

/// The client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forwarder {
    /// `None` over a Unix domain socket.
    pub(crate) client: Option<IpAddr>,
    /// The client's connection had TLS. `None`: the proxies do not say.
    pub(crate) is_tls: Option<bool>,
}

impl Forwarder {
    /// The client of a request from the proxy `peer`: the last address in the header that is not one of a trusted proxy, or the
    /// first one. Behind an element without an address, such as `unknown`, the proxy that has sent it counts.
    pub(crate) fn of(headers: Headers<'_>, peer: Option<IpAddr>, proxies: &TrustedProxies) -> Self {
        let mut hops = hops(headers, proxies.header);
        let mut found = Self { client: peer, is_tls: None };
        while let Some(Hop { ip: Some(client), is_tls }) = hops.pop() {
            found = Self { client: Some(client), is_tls: is_tls.or(found.is_tls) };
            if !proxies.networks.contain(client) {
                break;
            }
        }
        if proxies.header == ForwardedHeader::XForwardedFor {
            let proto = headers.all("x-forwarded-proto").last();
            found.is_tls = proto.and_then(|values| scheme(list(values).last()?));
        }
        found
    }
}

/// One element of the header.
struct Hop {
    ip: Option<IpAddr>,
    is_tls: Option<bool>,
}

/// The elements of the header; the last one is of the proxy that is next to the gateway.
fn hops(headers: Headers<'_>, header: ForwardedHeader) -> Vec<Hop> {
    match header {
        ForwardedHeader::XForwardedFor => {
            let values = headers.all("x-forwarded-for").flat_map(list);
            values.map(|element| Hop { ip: address(element), is_tls: None }).collect()
        }
        ForwardedHeader::Forwarded => {
            headers.all("forwarded").flat_map(quoted_list).map(element_of_forwarded).collect()
        }
    }
}

/// Splits a list of values that have no quotes at its commas.
fn list(value: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// Splits a list at its commas that are not in quotes. A quote without an end is not one: otherwise a client's would hide the
/// element that a proxy appends.
fn quoted_list(value: &[u8]) -> Vec<&[u8]> {
    split(value, b',').unwrap_or_else(|| list(value).collect())
}

/// Splits at a byte that is not in quotes; `None` if a quote has no end.
fn split(value: &[u8], separator: u8) -> Option<Vec<&[u8]>> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let parts: Vec<_> = value
        .split(|&byte| {
            let was_escaped = std::mem::replace(&mut is_escaped, is_quoted && byte == b'\\');
            is_escaped &= !was_escaped;
            is_quoted ^= byte == b'"' && !was_escaped;
            byte == separator && !is_quoted
        })
        .map(<[u8]>::trim_ascii)
        .collect();
    (!is_quoted).then_some(parts)
}

/// An element of `Forwarded` (RFC 7239, section 4).
fn element_of_forwarded(element: &[u8]) -> Hop {
    let mut hop = Hop { ip: None, is_tls: None };
    for pair in split(element, b';').unwrap_or_default() {
        let Some(at) = pair.iter().position(|&byte| byte == b'=') else { continue };
        let (name, value) = (&pair[..at], &pair[at + 1..]);
        let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
        let value = quoted.unwrap_or(value);
        if name.eq_ignore_ascii_case(b"for") {
            hop.ip = address(value);
        } else if name.eq_ignore_ascii_case(b"proto") {
            hop.is_tls = scheme(value);
        }
    }
    hop
}

fn scheme(value: &[u8]) -> Option<bool> {
    let is = |name: &[u8]| value.eq_ignore_ascii_case(name);
    if is(b"https") || is(b"wss") {
        Some(true)
    } else {
        (is(b"http") || is(b"ws")).then_some(false)
    }
}

/// An address with or without a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let with_port = || text.parse().ok().map(|address: SocketAddr| address.ip());
    bare.parse().ok().or_else(with_port).map(|ip: IpAddr| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use tollgate_http1::parse_request_head;

    use super::*;
    use crate::config::Networks;

    fn client(header: ForwardedHeader, lines: &str) -> (String, Option<bool>) {
        let networks = Networks::parse(&["10.0.0.0/8", "2001:db8:ffff::/48"]);
        let proxies = TrustedProxies { networks, header };
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let head = parse_request_head(head.as_bytes()).unwrap().unwrap();
        let found = Forwarder::of(head.headers, "10.0.0.1".parse().ok(), &proxies);
        (found.client.unwrap().to_string(), found.is_tls)
    }

    #[test]
    fn client_is_the_last_address_that_is_not_a_proxy() {
        let peer = "10.0.0.1";
        for (lines, expected) in [
            ("", peer),
            ("X-Forwarded-For: 192.0.2.1\r\n", "192.0.2.1"),
            // The client has written the first one.
            ("X-Forwarded-For: 198.51.100.1, 192.0.2.1\r\n", "192.0.2.1"),
            (
                "X-Forwarded-For: 198.51.100.1\r\nx-forwarded-for: 192.0.2.1, 10.1.1.1\r\n",
                "192.0.2.1",
            ),
            ("X-Forwarded-For: 198.51.100.1,192.0.2.1:4711,10.1.1.1:2\r\n", "192.0.2.1"),
            ("X-Forwarded-For: 10.2.2.2, 10.1.1.1\r\n", "10.2.2.2"),
            ("X-Forwarded-For: 2001:db8::1, 2001:db8:ffff::1\r\n", "2001:db8::1"),
            ("X-Forwarded-For: [2001:db8::1]:80\r\n", "2001:db8::1"),
            ("X-Forwarded-For: ::ffff:192.0.2.1\r\n", "192.0.2.1"),
            // No proxy vouches for what is before these.
            ("X-Forwarded-For: 192.0.2.1, unknown, 10.1.1.1\r\n", "10.1.1.1"),
            ("X-Forwarded-For: 192.0.2.1,\r\n", peer),
            ("X-Forwarded-For: 192.0.2.256\r\n", peer),
            // A client's quote does not hide what the proxy has appended.
            ("X-Forwarded-For: \", 192.0.2.1\r\n", "192.0.2.1"),
            ("X-Forwarded-For: \"10.9.9.9, 192.0.2.1, 10.1.1.1\r\n", "192.0.2.1"),
            ("Forwarded: for=192.0.2.1\r\n", peer),
        ] {
            assert_eq!(client(ForwardedHeader::XForwardedFor, lines).0, expected, "{lines}");
        }
        for (lines, expected, is_tls) in [
            ("Forwarded: for=192.0.2.1\r\n", "192.0.2.1", None),
            (
                "Forwarded: For=\"[2001:db8::1]:80\";proto=HTTPS, for=10.1.1.1\r\n",
                "2001:db8::1",
                Some(true),
            ),
            (
                "Forwarded: for=198.51.100.1, proto=http ; for=192.0.2.1;by=x\r\n",
                "192.0.2.1",
                Some(false),
            ),
            // Commas and semicolons in quotes are no separators, nor do escaped quotes end them.
            ("Forwarded: for=192.0.2.1;host=\"a, for=198.51.100.1\"\r\n", "192.0.2.1", None),
            ("Forwarded: for=192.0.2.1;host=\"a\\\", for=198.51.100.1\"\r\n", "192.0.2.1", None),
            (
                "Forwarded: for=192.0.2.1, for=_hidden, for=10.1.1.1;proto=https\r\n",
                "10.1.1.1",
                Some(true),
            ),
            ("Forwarded: for=192.0.2.1, for=\"10.1.1.1\r\n", peer, None),
            // A client's quote does not hide what the proxy has appended.
            ("Forwarded: for=10.9.9.9;x=\", for=192.0.2.1\r\n", "192.0.2.1", None),
            ("Forwarded: for=\"a, for=\"[2001:db8::1]\"\r\n", "2001:db8::1", None),
            ("X-Forwarded-For: 192.0.2.1\r\n", peer, None),
        ] {
            let found = client(ForwardedHeader::Forwarded, lines);
            assert_eq!(found, (expected.to_owned(), is_tls), "{lines}");
        }
    }

    #[test]
    fn scheme_is_the_last_one_that_a_proxy_has_written() {
        for (lines, is_tls) in [
            ("", None),
            ("X-Forwarded-Proto: https\r\n", Some(true)),
            ("X-Forwarded-Proto: https, HTTP\r\n", Some(false)),
            ("X-Forwarded-Proto: http\r\nX-Forwarded-Proto: wss\r\n", Some(true)),
            ("X-Forwarded-Proto: ftp\r\n", None),
            ("X-Forwarded-Proto: \", https\r\n", Some(true)),
        ] {
            assert_eq!(client(ForwardedHeader::XForwardedFor, lines).1, is_tls, "{lines}");
        }
    }
}
