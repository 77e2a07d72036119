//! The parser of multipart/form-data agrees with one that has the whole body, whatever the pieces.
//!
//! The input is one byte that selects the boundary, one that seeds the pieces, and the body.

#![no_main]

mod oracle;
#[path = "../pieces.rs"]
mod pieces;

use libfuzzer_sys::fuzz_target;
use pieces::pieces;
use tollgate_origin::fuzzing::parts;

/// Some look like the dashes before or after a boundary.
const BOUNDARIES: [&str; 4] = ["aXb", "-", "--", "b b"];

fuzz_target!(|input: &[u8]| {
    let [choice, seed, body @ ..] = input else { return };
    let boundary = BOUNDARIES[usize::from(*choice) % BOUNDARIES.len()];
    let content_type = format!("multipart/form-data; boundary=\"{boundary}\"");
    let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        parts(content_type.as_bytes(), pieces).expect("multipart/form-data")
    };
    let whole = read(&mut std::iter::once(body));
    assert_eq!(whole, oracle::parts(boundary, body));
    assert_eq!(read(&mut pieces(body, *seed)), whole);
    assert_eq!(read(&mut body.chunks(1)), whole);
});
