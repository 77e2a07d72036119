//! The key of a WebSocket handshake (RFC 6455, section 4), which HTTP/2 does not have (RFC 8441): the gateway generates it
//! for clients over HTTP/2, and proves its receipt in place of backends over HTTP/2.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::RngExt as _;
use sha1::{Digest as _, Sha1};
use tollgate_http1::Headers;

use super::ConnectionOptions;

pub(crate) const WEBSOCKET: &[u8] = b"websocket";
pub(crate) const KEY: &str = "sec-websocket-key";
pub(crate) const ACCEPT: &str = "sec-websocket-accept";

/// Appended to the key before hashing (RFC 6455, section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const KEY_BYTES: usize = 16;

/// Value of `Sec-WebSocket-Key`: 16 bytes in base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WebSocketKey([u8; 24]);

impl WebSocketKey {
    pub(crate) fn generate() -> Self {
        let nonce: [u8; KEY_BYTES] = rand::rng().random();
        let mut key = [0; 24];
        STANDARD.encode_slice(nonce, &mut key).expect("16 bytes become 24 characters");
        Self(key)
    }

    /// The key of a request that has exactly one, and a valid one.
    pub(crate) fn of(headers: Headers<'_>) -> Option<Self> {
        let mut values = headers.all(KEY);
        let (Some(value), None) = (values.next(), values.next()) else { return None };
        let is_valid = STANDARD.decode(value).is_ok_and(|nonce| nonce.len() == KEY_BYTES);
        value.try_into().ok().filter(|_| is_valid).map(Self)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Value of `Sec-WebSocket-Accept` that proves the receipt of this key.
    pub(crate) fn accept(&self) -> String {
        STANDARD.encode(Sha1::new().chain_update(self.0).chain_update(GUID).finalize())
    }

    /// True if the headers of a 101 open a WebSocket with this key (RFC 6455, section 4.1).
    pub(crate) fn is_accepted(&self, headers: Headers<'_>) -> bool {
        let mut upgrades = headers.all("upgrade");
        let mut accepts = headers.all(ACCEPT);
        let (Some(upgrade), None) = (upgrades.next(), upgrades.next()) else { return false };
        let (Some(accept), None) = (accepts.next(), accepts.next()) else { return false };
        upgrade.eq_ignore_ascii_case(WEBSOCKET)
            && accept == self.accept().as_bytes()
            && ConnectionOptions::of(headers).contain("upgrade")
    }
}

#[cfg(test)]
mod tests {
    use tollgate_http1::{parse_request_head, parse_response_head};

    use super::*;

    /// The key of RFC 6455, section 1.3.
    const RFC_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
    const RFC_ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

    fn key(lines: &str) -> Option<WebSocketKey> {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let head = parse_request_head(text.as_bytes()).unwrap().unwrap();
        WebSocketKey::of(head.headers)
    }

    #[test]
    fn accept_is_that_of_the_rfc() {
        let key = key(&format!("Sec-WebSocket-Key: {RFC_KEY}\r\n")).unwrap();
        assert_eq!(key.as_bytes(), RFC_KEY.as_bytes());
        assert_eq!(key.accept(), RFC_ACCEPT);
    }

    #[test]
    fn generated_keys_are_valid_and_differ() {
        let keys = [WebSocketKey::generate(), WebSocketKey::generate()];
        for key in keys {
            assert_eq!(STANDARD.decode(key.as_bytes()).unwrap().len(), KEY_BYTES);
        }
        assert_ne!(keys[0], keys[1]);
    }

    #[test]
    fn invalid_or_repeated_key_is_none() {
        let line = format!("Sec-WebSocket-Key: {RFC_KEY}\r\n");
        for lines in [
            String::new(),
            line.repeat(2),
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j\r\n".to_owned(),
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=\r\n".to_owned(),
            "Sec-WebSocket-Key: !GhlIHNhbXBsZSBub25jZQ==\r\n".to_owned(),
        ] {
            assert_eq!(key(&lines), None, "{lines}");
        }
    }

    #[test]
    fn switch_needs_protocol_option_and_proof() {
        let key = key(&format!("Sec-WebSocket-Key: {RFC_KEY}\r\n")).unwrap();
        let is_accepted = |lines: &[&str]| {
            let text = format!("HTTP/1.1 101 x\r\n{}\r\n\r\n", lines.join("\r\n"));
            let head = parse_response_head(text.as_bytes(), false).unwrap().unwrap();
            key.is_accepted(head.headers)
        };
        let accept = format!("Sec-WebSocket-Accept: {RFC_ACCEPT}");
        let valid = ["Connection: Upgrade", "Upgrade: WebSocket", &accept];
        assert!(is_accepted(&valid));
        for at in 0..valid.len() {
            let mut lines = valid.to_vec();
            let removed = lines.remove(at);
            assert!(!is_accepted(&lines), "without {removed}");
        }
        for changed in [
            [valid[0], "Upgrade: h2c", valid[2]],
            ["Connection: close", valid[1], valid[2]],
            [valid[0], valid[1], "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOp="],
        ] {
            assert!(!is_accepted(&changed), "{changed:?}");
        }
        assert!(!is_accepted(&[&valid[..], &[&accept[..]]].concat()));
    }
}
