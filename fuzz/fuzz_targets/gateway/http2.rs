//! Gateway, client over HTTP/2: whatever the frames and their pieces, the backend receives only clear requests in
//! HTTP/1.1, and the client well-formed frames. Requests that arrive at once reach the backend as well if they arrive in
//! pieces: only the end of a stream may come sooner.
//!
//! Input: one byte that determines the pieces, then the frames of the client after its settings.

#![no_main]

#[expect(dead_code, reason = "no response is read")]
mod oracle;
#[path = "../pieces.rs"]
mod pieces;

use libfuzzer_sys::fuzz_target;
use oracle::{Parsed, Request};
use pieces::pieces;
use tollgate_gateway::fuzzing::{Reply, talk_http2};

/// The preface and empty settings.
const START: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The smallest maximum of RFC 9113, section 4.2, which the client has not changed.
const FRAME_BYTES_MAX: usize = 16 << 10;

const LAST_FRAME_TYPE: u8 = 9;

fuzz_target!(|input: &[u8]| {
    let [seed, frames @ ..] = input else { return };
    let sent = [START, frames].concat();
    let whole = pass(std::iter::once(&sent[..]));
    let mut in_pieces = pass(pieces(&sent, *seed));
    for request in whole {
        let found = in_pieces.iter().position(|other| *other == request);
        in_pieces.swap_remove(found.expect("the request arrives in pieces, too"));
    }
});

/// Returns the requests that the backend receives.
fn pass<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Request> {
    let mut received = Vec::new();
    let talk = talk_http2(pieces, |bytes| match oracle::request(bytes) {
        Parsed::Complete(mut request, consumed) => {
            check(&request);
            let body = if request.method == "HEAD" { "" } else { "ok" };
            // A body that ends with its head needs no framing, and each WebSocket has another key.
            let varies = ["transfer-encoding", "sec-websocket-key"];
            request.headers.retain(|(name, _)| !varies.contains(&name.as_str()));
            received.push(request);
            let response =
                format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{body}").into_bytes();
            Some(Reply { consumed, pieces: vec![response], closes: false })
        }
        Parsed::Partial => None,
        Parsed::Invalid => panic!("the backend receives {}", bytes.escape_ascii()),
    });
    check_frames(&talk.received);
    received
}

fn check(request: &Request) {
    let all = |name: &str| request.headers.iter().filter(|(found, _)| found == name).count();
    assert!(!request.is_http_1_0);
    assert_eq!(all("host"), 1);
    assert!(all("content-length") + all("transfer-encoding") <= 1);
    let is_websocket = request.method == "GET" && all("upgrade") == 1;
    for name in ["connection", "upgrade"] {
        assert_eq!(all(name), usize::from(is_websocket), "{name}");
    }
    if is_websocket {
        assert_eq!(all("sec-websocket-key"), 1);
        assert_eq!(all("content-length") + all("transfer-encoding"), 0);
    }
    for name in ["keep-alive", "te", "proxy-connection"] {
        assert_eq!(all(name), 0, "{name}");
    }
    assert!(all("cookie") <= 1);
    let is_clear = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    assert!(request.target == "*" || request.target.starts_with('/'), "{}", request.target);
    assert!(request.target.bytes().all(is_clear), "{}", request.target);
}

/// Checks lengths and types.
fn check_frames(mut bytes: &[u8]) {
    while let Some((header, rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        assert!(length <= FRAME_BYTES_MAX && header[3] <= LAST_FRAME_TYPE, "{header:?}");
        // The end of the connection may cut the last one off.
        bytes = rest.get(length..).unwrap_or_default();
    }
}
