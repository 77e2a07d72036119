//! Bytes split into pieces, as a network may deliver them.

/// Splits `bytes` into pieces of 1 to 64 bytes that depend on `seed`.
pub fn pieces(bytes: &[u8], seed: u8) -> impl Iterator<Item = &[u8]> {
    let mut number = seed;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        // A generator of full period 256 (Hull and Dobell 1962).
        number = number.wrapping_mul(5).wrapping_add(1);
        let (piece, after) = rest.split_at(rest.len().min(1 + usize::from(number >> 2)));
        rest = after;
        Some(piece)
    })
}
