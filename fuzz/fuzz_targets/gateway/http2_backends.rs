//! Gateway, backend over HTTP/2: whatever the frames and their pieces, the client receives well-formed responses in
//! HTTP/1.1, of which the last may be visibly truncated, with the bodies that the frames contain, and the memory of
//! the gateway is bounded. Frames in pieces lead to the same response, if both arrive completely.
//!
//! Input: one byte that determines the pieces; one with flags (1: HEAD, 2: the backend closes, 4: the client opens a
//! WebSocket, 8: the backend takes it); one with the length, in units of 16 bytes, of the frames that respond to the first
//! request of a connection; these frames; and those that respond to the second one.

#![no_main]

#[expect(dead_code, reason = "no request is read")]
mod oracle;
#[path = "../pieces.rs"]
mod pieces;

use std::alloc::System;

use cap::Cap;
use libfuzzer_sys::fuzz_target;
use oracle::{Parsed, Response};
use pieces::pieces;
use tollgate_gateway::fuzzing::{Reply, talk_to_http2};

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// More than the buffers of a gateway, its client and its backend. An allocation beyond it aborts.
const MEMORY_BYTES_MAX: usize = 8 << 20;

const PREFACE_BYTES: usize = 24;
const FRAME_HEADER_BYTES: usize = 9;
const HEADERS: u8 = 1;

const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
/// ENABLE_CONNECT_PROTOCOL.
const SETTINGS_WITH_CONNECT: &[u8] = b"\0\0\x06\x04\0\0\0\0\0\0\x08\0\0\0\x01";

const UPGRADE: &str = "Connection: upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
/// The proof for that key (RFC 6455, section 1.3).
const ACCEPT: &[u8] = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const NEXT: &str = "GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[derive(Clone, Copy)]
struct Flags(u8);

impl Flags {
    fn to_head(self) -> bool {
        self.0 & 1 != 0 && !self.upgrades()
    }

    fn closes(self) -> bool {
        self.0 & 2 != 0
    }

    fn upgrades(self) -> bool {
        self.0 & 4 != 0
    }

    fn takes_upgrades(self) -> bool {
        self.0 & 8 != 0
    }
}

fuzz_target!(|input: &[u8]| {
    let [seed, flags, units, frames @ ..] = input else { return };
    let flags = Flags(*flags);
    let (first, second) = frames.split_at(frames.len().min(16 * usize::from(*units)));
    let whole = pass(flags, |frames| vec![frames.to_vec()], [first, second]);
    let in_pieces = |frames| pieces(frames, *seed).map(<[u8]>::to_vec).collect();
    let in_pieces = pass(flags, in_pieces, [first, second]);
    if let (Some(whole), Some(in_pieces)) = (whole, in_pieces)
        && whole.status != 502
        && in_pieces.status != 502
    {
        assert_eq!((whole.status, whole.body), (in_pieces.status, in_pieces.body));
    }
});

/// Returns the first response, if it is complete.
fn pass<'a>(
    flags: Flags,
    split: impl Fn(&'a [u8]) -> Vec<Vec<u8>>,
    frames: [&'a [u8]; 2],
) -> Option<Response> {
    let method = if flags.to_head() { "HEAD" } else { "GET" };
    let upgrade = if flags.upgrades() { UPGRADE } else { "" };
    let sent = format!("{method} /first HTTP/1.1\r\nHost: a\r\n{upgrade}\r\n{NEXT}");
    let used = MEMORY.allocated();
    MEMORY.set_limit(used + MEMORY_BYTES_MAX).expect("a limit above what is used");
    let talk = talk_to_http2(std::iter::once(sent.as_bytes()), |bytes| {
        if bytes.starts_with(b"PRI ") {
            let has_all = bytes.len() >= PREFACE_BYTES;
            let settings = if flags.takes_upgrades() { SETTINGS_WITH_CONNECT } else { SETTINGS };
            let pieces = vec![settings.to_vec()];
            return has_all.then_some(Reply { consumed: PREFACE_BYTES, pieces, closes: false });
        }
        let (stream, consumed) = next_request(bytes)?;
        let frames = if stream == 1 { frames[0] } else { frames[1] };
        Some(Reply { consumed, pieces: split(frames), closes: flags.closes() })
    });
    MEMORY.set_limit(usize::MAX).expect("no limit");
    check(flags, &talk.received, frames[0].len() + frames[1].len())
}

/// Finds the next HEADERS frame of the gateway. Returns its stream and its end.
fn next_request(bytes: &[u8]) -> Option<(u32, usize)> {
    let mut at = 0;
    loop {
        let header = bytes.get(at..at + FRAME_HEADER_BYTES)?;
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        at += FRAME_HEADER_BYTES + length;
        if at > bytes.len() {
            return None;
        }
        if header[3] == HEADERS {
            let stream = header[5..].try_into().expect("four bytes");
            return Some((u32::from_be_bytes(stream), at));
        }
    }
}

/// Checks what the client has received, from frames of that many bytes. Returns the first response, if it is complete.
fn check(flags: Flags, received: &[u8], frame_bytes: usize) -> Option<Response> {
    let mut rest = received;
    let mut first = None;
    for to_head in [flags.to_head(), false] {
        let (response, count) = loop {
            match oracle::response(rest, to_head) {
                Parsed::Complete(response, count) if matches!(response.status, 100 | 102..=199) => {
                    check_headers(&response);
                    rest = &rest[count..];
                }
                Parsed::Complete(response, count) => break (response, count),
                // Nothing follows a truncated response.
                Parsed::Partial => return first,
                Parsed::Invalid => panic!("the client receives {}", received.escape_ascii()),
            }
        };
        if response.status == 101 {
            assert!(flags.upgrades() && flags.takes_upgrades() && first.is_none());
            let accepts: Vec<_> = all(&response, "sec-websocket-accept").collect();
            assert_eq!(accepts, [ACCEPT]);
            // Then follows the tunnel.
            assert!(rest.len() - count <= frame_bytes);
            return None;
        }
        check_headers(&response);
        assert!(!response.ends_at_close && response.status >= 200);
        let is_local = matches!(response.status, 502..=504);
        assert!(is_local || response.body.len() <= frame_bytes);
        rest = &rest[count..];
        first.get_or_insert(response);
    }
    assert!(rest.is_empty(), "behind the last response: {}", rest.escape_ascii());
    first
}

fn all<'a>(response: &'a Response, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let found = response.headers.iter().filter(move |(found, _)| found == name);
    found.map(|(_, value)| &value[..])
}

fn check_headers(response: &Response) {
    for name in ["keep-alive", "te", "proxy-connection", "upgrade"] {
        assert_eq!(all(response, name).count(), 0, "{name}");
    }
    assert!(all(response, "connection").all(|value| value == b"close"));
    let values = response.headers.iter().map(|(_, value)| value);
    assert!(values.flatten().all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f)));
}
