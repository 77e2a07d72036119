//! The WebSocket protocol over HTTP/2 (RFC 8441), by literal frames and with foreign peers.

mod backends;
mod clients;
mod foreign;

use tungstenite::handshake::derive_accept_key;

/// Parameter of SETTINGS.
const ENABLE_CONNECT_PROTOCOL: u16 = 8;

/// An extended CONNECT without headers.
pub(crate) const CONNECT: &[(&str, &str)] = &[
    (":method", "CONNECT"),
    (":protocol", "websocket"),
    (":scheme", "http"),
    (":path", "/a"),
    (":authority", "x"),
];

/// The value of `Sec-WebSocket-Key` in a head.
#[track_caller]
fn key(head: &str) -> &str {
    let mut values = head.lines().filter_map(|line| line.strip_prefix("sec-websocket-key: "));
    let (Some(key), None) = (values.next(), values.next()) else { panic!("not one key: {head}") };
    key
}

/// The response of a backend that opens the WebSocket of this request.
#[track_caller]
fn switch(head: &str) -> String {
    let accept = derive_accept_key(key(head).as_bytes());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    )
}
