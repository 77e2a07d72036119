//! The protocol of a connection: by ALPN over TLS, by its first bytes in the clear.

use std::error::Error;
use std::io;

use tollgate_http2::PREFACE;

/// A version of HTTP that a connection uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpProtocol {
    Http1,
    Http2,
}

impl HttpProtocol {
    /// Name in ALPN.
    pub const fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }

    /// Returns the protocol that ALPN has chosen. A peer without ALPN has HTTP/1.1.
    pub(crate) fn of_alpn(chosen: Option<&[u8]>) -> Self {
        if chosen == Some(Self::Http2.alpn()) { Self::Http2 } else { Self::Http1 }
    }

    /// Returns the protocol of a client without TLS: HTTP/2 by its preface ("prior knowledge", RFC 9113, section 3.3).
    /// `None` while `input` may be the start of the preface.
    pub(crate) fn of_first_bytes(input: &[u8]) -> Option<Self> {
        if input.starts_with(PREFACE) {
            Some(Self::Http2)
        } else if PREFACE.starts_with(input) {
            None
        } else {
            Some(Self::Http1)
        }
    }
}

/// The peer sent plain HTTP instead of TLS.
#[derive(Debug, thiserror::Error)]
#[error("peer sent plain HTTP instead of TLS")]
pub(crate) struct PlainHttp;

impl PlainHttp {
    /// True if the first byte of a client that broke the TLS handshake can be that of a method. The first byte of a TLS record
    /// is below 32.
    pub(crate) fn starts_with(first_byte: Option<u8>) -> bool {
        first_byte.is_some_and(|byte| byte.is_ascii_alphabetic())
    }
}

/// True if a client has sent plain HTTP to a TLS listener. Nothing was sent to it.
pub fn is_plain_http(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<PlainHttp>)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_in_the_clear_select_the_protocol() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        for undecided in [&preface[..0], &preface[..1], &preface[..23]] {
            assert_eq!(HttpProtocol::of_first_bytes(undecided), None, "{undecided:?}");
        }
        for (input, protocol) in [
            (&preface[..], HttpProtocol::Http2),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0", HttpProtocol::Http2),
            (b"PR /", HttpProtocol::Http1),
            (b"GET / HTTP/1.1", HttpProtocol::Http1),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r", HttpProtocol::Http1),
        ] {
            assert_eq!(HttpProtocol::of_first_bytes(input), Some(protocol), "{input:?}");
        }
    }

    #[test]
    fn alpn_selects_http1_unless_it_is_h2() {
        for (chosen, protocol) in [
            (Some(&b"h2"[..]), HttpProtocol::Http2),
            (Some(b"http/1.1"), HttpProtocol::Http1),
            (Some(b"h2c"), HttpProtocol::Http1),
            (None, HttpProtocol::Http1),
        ] {
            assert_eq!(HttpProtocol::of_alpn(chosen), protocol);
        }
    }
}
