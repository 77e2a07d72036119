//! Literals of many probes at once: each literal is looked for where its rarest three bytes occur.

use std::collections::HashMap;

use super::bytes::frequency;
use super::requirement::Literal;

/// Bits of the number of an entry of the table, for the fewest and for the most literals.
const TABLE_BITS: std::ops::RangeInclusive<u32> = 8..=16;
/// Entries for each literal, so that few texts hit an entry by chance.
const SPARSENESS: usize = 16;

/// Finds the probes one of whose literals a value contains, in any case.
#[derive(Debug)]
pub(crate) struct Grams {
    /// Bitmap of the used entries, which fits the first-level cache.
    used: Box<[u64]>,
    /// Used entries before each word of the bitmap.
    used_before: Box<[u32]>,
    /// First occurrence of each used entry.
    first: Vec<u32>,
    occurrences: Vec<Occurrence>,
    literals: Vec<u8>,
    has_pairs: bool,
    /// Bits by which a hash is shifted to the number of its entry.
    shift: u32,
}

/// Literal of which an entry is the rarest part.
#[derive(Debug)]
struct Occurrence {
    probe: u16,
    /// Bytes of the literal before the end of its rarest part, that part included.
    before: u8,
    length: u8,
    /// Position of the literal.
    start: u32,
}

impl Grams {
    /// Builds the table from the literals (in lower case, 2 to 255 bytes) of probes.
    pub(crate) fn new<'a>(probes: impl Iterator<Item = (usize, &'a [Literal])>) -> Self {
        let mut starts: HashMap<&[u8], u32> = HashMap::new();
        let (mut has_pairs, mut text) = (false, Vec::new());
        let mut hashed = Vec::new();
        for (probe, literals) in probes {
            for literal in literals {
                let (hash, end) = if let [a, b] = **literal {
                    has_pairs = true;
                    (pair(a, b), 2)
                } else {
                    let rarity =
                        |window: &[u8]| window.iter().map(|&b| frequency(b)).product::<f64>();
                    let windows = literal.windows(3).enumerate();
                    let rarest = windows.min_by(|(_, a), (_, b)| rarity(a).total_cmp(&rarity(b)));
                    let Some((at, window)) = rarest else { continue };
                    (triple(window[0], window[1], window[2]), at + 3)
                };
                let start = *starts.entry(literal).or_insert_with(|| {
                    text.extend_from_slice(literal);
                    u32::try_from(text.len() - literal.len()).unwrap_or(u32::MAX)
                });
                let occurrence = Occurrence {
                    probe: u16::try_from(probe).unwrap_or(u16::MAX),
                    before: u8::try_from(end).unwrap_or(u8::MAX),
                    length: u8::try_from(literal.len()).unwrap_or(u8::MAX),
                    start,
                };
                hashed.push((hash, occurrence));
            }
        }
        let bits =
            (starts.len() * SPARSENESS + 1).ilog2().clamp(*TABLE_BITS.start(), *TABLE_BITS.end());
        let shift = u32::BITS - bits;
        hashed.sort_by_key(|(hash, _)| hash >> shift);
        let mut used = vec![0u64; (1 << bits) / 64];
        let mut first = Vec::new();
        for (index, (hash, _)) in (0..).zip(&hashed) {
            let entry = (hash >> shift) as usize;
            if used[entry / 64] >> (entry % 64) & 1 == 0 {
                used[entry / 64] |= 1 << (entry % 64);
                first.push(index);
            }
        }
        first.push(u32::try_from(hashed.len()).unwrap_or(u32::MAX));
        let used_before = used.iter().scan(0, |before, word| {
            let start = *before;
            *before += word.count_ones();
            Some(start)
        });
        Self {
            used_before: used_before.collect(),
            used: used.into(),
            first,
            occurrences: hashed.into_iter().map(|(_, occurrence)| occurrence).collect(),
            literals: text,
            has_pairs,
            shift,
        }
    }

    /// Sets the bits of the probes whose literals the value contains.
    /// Probes whose bits are set before are not looked for.
    pub(crate) fn find(&self, value: &[u8], found: &mut [u64]) {
        let mut previous = [0u8; 2];
        for (index, byte) in value.iter().map(u8::to_ascii_lowercase).enumerate() {
            if index > 1 {
                self.look_up(triple(previous[0], previous[1], byte), value, index + 1, found);
            }
            if index > 0 && self.has_pairs {
                self.look_up(pair(previous[1], byte), value, index + 1, found);
            }
            previous = [previous[1], byte];
        }
    }

    #[inline]
    fn look_up(&self, hash: u32, value: &[u8], end: usize, found: &mut [u64]) {
        let entry = (hash >> self.shift) as usize;
        if self.used[entry / 64] >> (entry % 64) & 1 == 1 {
            self.verify(entry, value, end, found);
        }
    }

    /// Compares the literals whose rarest part ends at `end`.
    fn verify(&self, entry: usize, value: &[u8], end: usize, found: &mut [u64]) {
        let before = self.used[entry / 64] & ((1 << (entry % 64)) - 1);
        let number = (self.used_before[entry / 64] + before.count_ones()) as usize;
        let occurrences = self.first[number] as usize..self.first[number + 1] as usize;
        for occurrence in &self.occurrences[occurrences] {
            let (word, bit) = (usize::from(occurrence.probe / 64), occurrence.probe % 64);
            if found[word] >> bit & 1 == 1 {
                continue;
            }
            let literal =
                &self.literals[occurrence.start as usize..][..usize::from(occurrence.length)];
            let start = end.checked_sub(usize::from(occurrence.before));
            let text = start.and_then(|start| value.get(start..start + literal.len()));
            if text.is_some_and(|text| text.eq_ignore_ascii_case(literal)) {
                found[word] |= 1 << bit;
            }
        }
    }
}

#[inline]
fn triple(a: u8, b: u8, c: u8) -> u32 {
    let key = u32::from(a) << 16 | u32::from(b) << 8 | u32::from(c);
    key.wrapping_mul(0x9e37_79b1)
}

#[inline]
fn pair(a: u8, b: u8) -> u32 {
    let key = 1 << 24 | u32::from(a) << 8 | u32::from(b);
    key.wrapping_mul(0x85eb_ca6b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::bytes::Bits;

    #[test]
    fn finds_each_literal_in_any_case() {
        let literals =
            [vec![Literal::cut(b"union"), Literal::cut(b"<?")], vec![Literal::cut(b"select")]];
        let grams = Grams::new(literals.iter().map(Vec::as_slice).enumerate());
        let found = |value: &[u8]| {
            let mut bits = Bits::none(2);
            grams.find(value, &mut bits.0);
            [bits.get(0), bits.get(1)]
        };
        assert_eq!(found(b"1 UNION x"), [true, false]);
        assert_eq!(found(b"a<?b"), [true, false]);
        assert_eq!(found(b"SeLeCt"), [false, true]);
        assert_eq!(found(b"hello"), [false, false]);
    }
}
