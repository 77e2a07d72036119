//! Responses of the origin do not depend on how the bytes of a client are split.
//!
//! The input is one byte that seeds the pieces, and the bytes of the client.

#![no_main]

#[path = "pieces.rs"]
mod pieces;

use libfuzzer_sys::fuzz_target;
use pieces::pieces;
use tollgate_origin::fuzzing::{Received, TestClient};

/// Limit for sending byte by byte, which takes quadratic time.
const BYTEWISE_MAX_BYTES: usize = 512;

fuzz_target!(|input: &[u8]| {
    let [seed, sent @ ..] = input else { return };
    // `100 Continue` is sent only if no part of the body came with the head, which depends on pieces.
    if sent.windows(6).any(|window| window.eq_ignore_ascii_case(b"expect")) {
        return;
    }
    let whole = exchange(std::iter::once(sent));
    assert_eq!(exchange(pieces(sent, *seed)), whole);
    assert_eq!(exchange(sent.chunks(1 + usize::from(*seed))), whole);
    if sent.len() <= BYTEWISE_MAX_BYTES {
        assert_eq!(exchange(sent.chunks(1)), whole);
    }
});

/// Returns the responses, and true if the connection is closed.
fn exchange<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Received, bool) {
    let mut client = TestClient::default();
    pieces.for_each(|piece| client.send(piece));
    (client.received, client.is_closed)
}
