//! Sets of bytes, and bitmaps of probes.

use std::sync::LazyLock;

use crate::transformation::ByteSet;

/// Set of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Bytes(pub(crate) ByteSet);

impl Bytes {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut set = Self::default();
        bytes.iter().for_each(|&byte| set.insert(byte));
        set
    }

    pub(crate) fn range(low: u8, high: u8) -> Self {
        let mut set = Self::default();
        (low..=high).for_each(|byte| set.insert(byte));
        set
    }

    pub(crate) fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    pub(crate) fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }

    pub(crate) fn union(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
        self
    }

    pub(crate) fn intersects(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).any(|(word, other)| word & other != 0)
    }

    pub(crate) fn complement(self) -> Self {
        Self(self.0.map(|word| !word))
    }

    pub(crate) fn without(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word &= !other);
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    pub(crate) fn len(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = u8> {
        [0, 64, 128, 192].into_iter().zip(self.0).flat_map(|(base, mut word)| {
            std::iter::from_fn(move || {
                let bit = word.trailing_zeros() as u8;
                (word != 0).then(|| {
                    word &= word - 1;
                    base + bit
                })
            })
        })
    }

    /// Adds the other case of each letter.
    pub(crate) fn fold_case(mut self) -> Self {
        const LETTERS: u64 = 0x07ff_fffe;
        let letters = (self.0[1] | self.0[1] >> 32) & LETTERS;
        self.0[1] |= letters | letters << 32;
        self
    }

    /// Share of values that contain a byte of the set, roughly, in millionths, for the choice among sets.
    pub(crate) fn weight(self) -> u32 {
        static WEIGHTS: LazyLock<[u32; 256]> =
            LazyLock::new(|| std::array::from_fn(|byte| (frequency(byte as u8) * 1e6) as u32));
        self.iter().map(|byte| WEIGHTS[usize::from(byte)]).sum()
    }
}

/// Share of values that contain a text, in lower case, roughly.
pub(crate) fn share(text: &[u8]) -> f32 {
    // The bytes of a text are not independent.
    static SHARES: LazyLock<[f32; 256]> =
        LazyLock::new(|| std::array::from_fn(|byte| frequency(byte as u8).powf(0.8) as f32));
    text.iter().map(|&byte| SHARES[usize::from(byte)]).product()
}

/// Frequency of a byte in values of requests, roughly.
fn frequency(byte: u8) -> f64 {
    match byte {
        b'e' | b't' | b'a' | b'o' | b'i' | b'n' | b's' | b'r' => 0.07,
        b'h' | b'l' | b'd' | b'c' | b'u' | b'm' | b'0'..=b'9' => 0.03,
        b'f' | b'p' | b'g' | b'w' | b'y' | b'b' | b'v' | b'k' => 0.015,
        b'x' | b'j' | b'q' | b'z' => 0.004,
        b'A'..=b'Z' => 0.002,
        b' ' => 0.05,
        b'-' | b'_' | b'.' | b'/' => 0.02,
        b',' | b':' => 0.008,
        b'=' | b'?' | b'%' | b'+' | b';' => 0.005,
        b'&' | b'(' | b')' | b'\'' | b'"' | b'\n' => 0.003,
        128.. => 0.000_05,
        _ => 0.001,
    }
}

/// Bitmap with one bit for each probe or step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bits(pub(crate) Box<[u64]>);

impl Bits {
    pub(crate) fn none(bits: usize) -> Self {
        Self(vec![0; bits.div_ceil(64)].into())
    }

    pub(crate) fn all(bits: usize) -> Self {
        let mut all = Self(vec![!0; bits.div_ceil(64)].into());
        if let Some(last) = all.0.last_mut().filter(|_| !bits.is_multiple_of(64)) {
            *last = (1 << (bits % 64)) - 1;
        }
        all
    }

    pub(crate) fn set(&mut self, bit: usize) {
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    pub(crate) fn get(&self, bit: usize) -> bool {
        self.0[bit / 64] >> (bit % 64) & 1 == 1
    }

    /// First set bit at a position or behind it.
    #[inline]
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        let mut at = from / 64;
        let mut word = *self.0.get(at)? & !0 << (from % 64);
        while word == 0 {
            at += 1;
            word = *self.0.get(at)?;
        }
        Some(at * 64 + word.trailing_zeros() as usize)
    }

    pub(crate) fn remove(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word &= !other);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    pub(crate) fn clear(&mut self, bit: usize) {
        self.0[bit / 64] &= !(1 << (bit % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_bytes() {
        let set = Bytes::of(b"aZ<");
        assert!(set.contains(b'a') && !set.contains(b'A') && set.complement().contains(b'A'));
        assert_eq!(set.fold_case().iter().collect::<Vec<_>>(), b"<AZaz");
        assert!(set.intersects(&Bytes::range(b'<', b'>')) && !set.intersects(&Bytes::of(b"b")));
    }

    #[test]
    fn bitmaps() {
        let mut bits = Bits::none(70);
        bits.set(69);
        assert!(bits.get(69) && !bits.get(5) && !bits.is_empty());
        let mut all = Bits::all(70);
        assert!(all.get(69) && all.0[1] >> 6 == 0);
        all.clear(69);
        assert!(!all.get(69) && all.get(68));
        let next = [0, 69, 70, 128].map(|from| bits.next(from));
        assert_eq!(next, [Some(69), Some(69), None, None]);
    }
}
