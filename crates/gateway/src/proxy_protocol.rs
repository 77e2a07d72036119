//! Headers of the PROXY protocol, which name the client at the start of a proxy's connection.
//! <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use proxy_header::{Error, ParseConfig, ProxiedAddress, ProxyHeader};

use crate::config::ProxyVersion;

/// Longest accepted header. The addresses of version 2 have up to 216 bytes; the rest are TLVs.
pub(crate) const HEADER_BYTES_MAX: usize = 4 << 10;

/// A header at the start of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedHeader {
    /// `None`: the connection is the proxy's own, such as one of a health check.
    pub(crate) client: Option<SocketAddr>,
    pub(crate) bytes: usize,
}

/// Bytes that do not begin with a header, or with a longer one than [`HEADER_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidHeader;

/// Reads the header at the start of `input`. Returns `None` if more bytes are needed.
pub(crate) fn read(input: &[u8]) -> Result<Option<ReceivedHeader>, InvalidHeader> {
    let config = ParseConfig { include_tlvs: false, allow_v1: true, allow_v2: true };
    // The crate looks at short input only once it has more bytes, and not at the space.
    let starts = [&b"PROXY "[..], b"\r\n\r\n\0\r\nQUIT\n"];
    let may_begin = |start: &[u8]| input.iter().zip(start).all(|(one, other)| one == other);
    if !starts.into_iter().any(may_begin) {
        return Err(InvalidHeader);
    }
    match ProxyHeader::parse(input, config) {
        Ok((header, bytes)) => {
            let client = header.proxied_address().map(|addresses| {
                let source = addresses.source;
                SocketAddr::new(source.ip().to_canonical(), source.port())
            });
            Ok(Some(ReceivedHeader { client, bytes }))
        }
        Err(Error::BufferTooShort) if input.len() < HEADER_BYTES_MAX => Ok(None),
        Err(_) => Err(InvalidHeader),
    }
}

/// The header of a connection of `client`, which has connected to `destination`. Without a client, the connection is the
/// gateway's own. Addresses of different families are both written as IPv6.
pub(crate) fn write(
    version: ProxyVersion,
    client: Option<SocketAddr>,
    destination: Option<SocketAddr>,
) -> Vec<u8> {
    let header = client.map_or_else(ProxyHeader::with_local, |client| {
        // The address of a Unix domain socket is not an IP address.
        let destination = destination.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
        let is_v6 = client.is_ipv6() || destination.is_ipv6();
        let [client, destination] = [client, destination].map(|address| match address.ip() {
            IpAddr::V4(ip) if is_v6 => (ip.to_ipv6_mapped(), address.port()).into(),
            _ => address,
        });
        ProxyHeader::with_address(ProxiedAddress::stream(client, destination))
    });
    let mut out = Vec::new();
    let written = match version {
        ProxyVersion::V1 => header.encode_v1(&mut out),
        ProxyVersion::V2 => header.encode_v2(&mut out),
    };
    written.expect("the addresses have one family, and there are no TLVs");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: &str, bytes: usize) -> Result<Option<ReceivedHeader>, InvalidHeader> {
        Ok(Some(ReceivedHeader { client: Some(address.parse().unwrap()), bytes }))
    }

    const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

    fn v2(rest: &[u8]) -> Vec<u8> {
        [V2, rest].concat()
    }

    #[test]
    fn headers_of_both_versions_are_read_in_any_pieces() {
        let tlv = b"\x21\x11\x00\x11\xc0\x00\x02\x07\x0a\x00\x00\x01\x30\x39\x01\xbb\x04\x00\x02xx";
        let v6 = b"\x21\x21\x00\x24\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\
                   \x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x02\x00\x01\x00\x02";
        let local = Ok(Some(ReceivedHeader { client: None, bytes: 16 }));
        let unknown = Ok(Some(ReceivedHeader { client: None, bytes: 15 }));
        for (input, expected) in [
            (
                b"PROXY TCP4 192.0.2.7 10.0.0.1 12345 443\r\n".to_vec(),
                client("192.0.2.7:12345", 41),
            ),
            (b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n".to_vec(), client("[2001:db8::1]:1", 32)),
            (b"PROXY TCP6 ::ffff:192.0.2.7 ::1 1 2\r\n".to_vec(), client("192.0.2.7:1", 37)),
            (b"PROXY UNKNOWN\r\n".to_vec(), unknown),
            (v2(tlv), client("192.0.2.7:12345", 33)),
            (v2(v6), client("[2001:db8::1]:1", 52)),
            (v2(b"\x20\x00\x00\x00"), local),
        ] {
            assert_eq!(
                read(&[&input[..], b"GET /"].concat()),
                expected,
                "{}",
                input.escape_ascii()
            );
            for end in 0..input.len() {
                assert_eq!(read(&input[..end]), Ok(None), "{}", input[..end].escape_ascii());
            }
        }
    }

    #[test]
    fn headers_are_written_in_both_versions() {
        let address = |text: &str| -> Option<SocketAddr> { Some(text.parse().unwrap()) };
        let v1 = |client, destination| {
            String::from_utf8(write(ProxyVersion::V1, client, destination)).unwrap()
        };
        let client = address("192.0.2.7:12345");
        assert_eq!(
            v1(client, address("10.0.0.1:443")),
            "PROXY TCP4 192.0.2.7 10.0.0.1 12345 443\r\n"
        );
        assert_eq!(
            v1(client, address("[2001:db8::1]:443")),
            "PROXY TCP6 ::ffff:192.0.2.7 2001:db8::1 12345 443\r\n"
        );
        assert_eq!(
            v1(address("[2001:db8::2]:1"), None),
            "PROXY TCP6 2001:db8::2 ::ffff:0.0.0.0 1 0\r\n"
        );
        assert_eq!(v1(None, client), "PROXY UNKNOWN\r\n");
        let v2 = write(ProxyVersion::V2, client, address("10.0.0.1:443"));
        let body = b"\x21\x11\x00\x0c\xc0\x00\x02\x07\x0a\x00\x00\x01\x30\x39\x01\xbb";
        assert_eq!(v2, self::v2(body));
        assert_eq!(write(ProxyVersion::V2, None, None), self::v2(b"\x20\x00\x00\x00"));
    }

    #[test]
    fn other_bytes_are_rejected_at_once() {
        for input in [
            &b"G"[..],
            b"\x16\x03\x01",
            b"\r\n\r\n\0\r\nQUIT\r",
            b"PROXY_TCP4 192.0.2.7 10.0.0.1 1 2\r\n",
            b"PROXY TCP4 192.0.2.7 10.0.0.1 1 65536\r\n",
            b"PROXY TCP4 192.0.2 10.0.0.1 1 2\r\n",
            b"PROXY TCP4 192.0.2.7 10.0.0.1 1 2\rx",
            b"PROXY UDP4 192.0.2.7 10.0.0.1 1 2\r\n",
            // Version 3, an unknown command, and a length without room for the addresses.
            &v2(b"\x31\x11\x00\x0c\0\0\0\0\0\0\0\0\0\0\0\0"),
            &v2(b"\x22\x11\x00\x0c\0\0\0\0\0\0\0\0\0\0\0\0"),
            &v2(b"\x21\x11\x00\x04\0\0\0\0\0\0\0\0\0\0\0\0"),
        ] {
            assert_eq!(read(input), Err(InvalidHeader), "{}", input.escape_ascii());
        }
        let endless = [&b"PROXY UNKNOWN "[..], &[b'x'; 107]].concat();
        assert_eq!(read(&endless), Err(InvalidHeader));
        let long = [&v2(b"\x21\x11\xff\xff")[..], &[0; HEADER_BYTES_MAX]].concat();
        assert_eq!(read(&long[..HEADER_BYTES_MAX - 1]), Ok(None));
        assert_eq!(read(&long[..HEADER_BYTES_MAX]), Err(InvalidHeader));
    }
}
