//! Whatever a client sends, the origin answers the same however the bytes are split.
//!
//! The input is one byte from which the pieces follow, and what the client sends.

#![no_main]

#[path = "pieces.rs"]
mod pieces;

use libfuzzer_sys::fuzz_target;
use pieces::pieces;
use tollgate_origin::fuzzing::{Client, Received};

/// Longer ones are not sent byte by byte, which takes a time that grows with the square.
const SINGLY_MAX_BYTES: usize = 512;

fuzz_target!(|input: &[u8]| {
    let [seed, sent @ ..] = input else { return };
    // A body is invited only where none of it came with the head: that does depend on the pieces.
    if sent.windows(6).any(|window| window.eq_ignore_ascii_case(b"expect")) {
        return;
    }
    let whole = talk(std::iter::once(sent));
    assert_eq!(talk(pieces(sent, *seed)), whole);
    assert_eq!(talk(sent.chunks(1 + usize::from(*seed))), whole);
    if sent.len() <= SINGLY_MAX_BYTES {
        assert_eq!(talk(sent.chunks(1)), whole);
    }
});

/// What is answered, and whether the connection is over.
fn talk<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Received, bool) {
    let mut client = Client::default();
    pieces.for_each(|piece| client.send(piece));
    let is_over = client.is_over();
    (client.into_received(), is_over)
}
