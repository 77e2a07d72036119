//! Alphabets: sets of bytes of which harmless values consist.

use std::sync::LazyLock;

use super::bytes::Bytes;

/// Bytes of harmless values besides letters and digits, from few to many.
pub(super) const ALPHABETS: [&[u8]; 9] =
    [b"", b"_", b"_-.", b"_-. ", b"_-.,: ", b"_-./", b"_-./:?=&", b"_-.,:/ ;=+*", b"_-.,:/ ;=+*()"];
/// Bytes that transformations add without decoding anything.
pub(super) const ADDED: [&[u8]; 5] = [b"", b" ", b"/", b" /", b" \0"];

/// Set of alphabets: bit `ALPHABETS.len() * added + alphabet`.
pub(super) type Alphabets = u64;

/// Alphabets with each byte.
pub(super) static ALPHABETS_OF: LazyLock<[Alphabets; 256]> = LazyLock::new(|| {
    let alphabets = ADDED.iter().flat_map(|added| {
        alphabets().map(|alphabet| alphabet.union(Bytes::of(added))).collect::<Vec<_>>()
    });
    let mut classes = [0; 256];
    for (bit, alphabet) in alphabets.enumerate() {
        alphabet.iter().for_each(|byte| classes[usize::from(byte)] |= 1 << bit);
    }
    classes
});

/// Byte sets of harmless values, from small to large.
pub(crate) fn alphabets() -> impl Iterator<Item = Bytes> {
    ALPHABETS.iter().map(|extra| alphanumeric().union(Bytes::of(extra)))
}

/// Bit of an alphabet joined with added bytes in [`Alphabets`]; `None` if no alphabet is joined with these.
pub(super) fn bit_of(alphabet: usize, added: Bytes) -> Option<usize> {
    let number = ADDED.iter().position(|known| Bytes::of(known) == added)?;
    Some(ALPHABETS.len() * number + alphabet)
}

/// Bytes that quote, expand, group or redirect in a shell, and are rare in values. Regexes of shell commands allow them
/// between any two letters, so that they have literals only for values without them.
pub(crate) fn quoting() -> Bytes {
    Bytes::of(b"\"'`()[]{}<>|&$\\")
}

pub(crate) fn alphanumeric() -> Bytes {
    Bytes::range(b'0', b'9').union(Bytes::range(b'a', b'z')).union(Bytes::range(b'A', b'Z'))
}
