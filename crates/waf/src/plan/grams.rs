//! Literals of many probes at once: each literal is looked for where its rarest three bytes occur.

use super::bytes::frequency;

/// Entries of the table, a power of two.
const TABLE: usize = 1 << 16;

/// Finds the probes one of whose literals a value contains, in any case.
#[derive(Debug)]
pub(crate) struct Grams {
    /// Bitmap of the used entries, which fits the first-level cache.
    used: Box<[u64; TABLE / 64]>,
    /// First of the entry's occurrences.
    first: Box<[u32]>,
    occurrences: Vec<Occurrence>,
    literals: Vec<u8>,
    has_pairs: bool,
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
    pub(crate) fn new<'a>(probes: impl Iterator<Item = (usize, &'a [Vec<u8>])>) -> Self {
        let mut table: Vec<Vec<Occurrence>> = Vec::new();
        table.resize_with(TABLE, Vec::new);
        let (mut has_pairs, mut text) = (false, Vec::new());
        for (probe, literals) in probes {
            for literal in literals {
                let (entry, end) = if literal.len() == 2 {
                    has_pairs = true;
                    (pair(literal[0], literal[1]), 2)
                } else {
                    let rarity =
                        |window: &[u8]| window.iter().map(|&b| frequency(b)).product::<f64>();
                    let windows = literal.windows(3).enumerate();
                    let rarest = windows.min_by(|(_, a), (_, b)| rarity(a).total_cmp(&rarity(b)));
                    let Some((at, window)) = rarest else { continue };
                    (triple(window[0], window[1], window[2]), at + 3)
                };
                table[entry].push(Occurrence {
                    probe: u16::try_from(probe).unwrap_or(u16::MAX),
                    before: u8::try_from(end).unwrap_or(u8::MAX),
                    length: u8::try_from(literal.len()).unwrap_or(u8::MAX),
                    start: u32::try_from(text.len()).unwrap_or(u32::MAX),
                });
                text.extend_from_slice(literal);
            }
        }
        let mut used = Box::new([0u64; TABLE / 64]);
        let mut first = Vec::with_capacity(TABLE + 1);
        let mut occurrences = Vec::new();
        for (index, list) in table.into_iter().enumerate() {
            first.push(u32::try_from(occurrences.len()).unwrap_or(u32::MAX));
            if !list.is_empty() {
                used[index / 64] |= 1 << (index % 64);
                occurrences.extend(list);
            }
        }
        first.push(u32::try_from(occurrences.len()).unwrap_or(u32::MAX));
        Self { used, first: first.into(), occurrences, literals: text, has_pairs }
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
    fn look_up(&self, entry: usize, value: &[u8], end: usize, found: &mut [u64]) {
        if self.used[entry / 64] >> (entry % 64) & 1 == 1 {
            self.verify(entry, value, end, found);
        }
    }

    /// Compares the literals whose rarest part ends at `end`.
    fn verify(&self, entry: usize, value: &[u8], end: usize, found: &mut [u64]) {
        for occurrence in
            &self.occurrences[self.first[entry] as usize..self.first[entry + 1] as usize]
        {
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
fn triple(a: u8, b: u8, c: u8) -> usize {
    let key = u32::from(a) << 16 | u32::from(b) << 8 | u32::from(c);
    (key.wrapping_mul(0x9e37_79b1) >> (32 - TABLE.trailing_zeros())) as usize
}

#[inline]
fn pair(a: u8, b: u8) -> usize {
    let key = 1 << 24 | u32::from(a) << 8 | u32::from(b);
    (key.wrapping_mul(0x85eb_ca6b) >> (32 - TABLE.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::bytes::Bits;

    #[test]
    fn finds_each_literal_in_any_case() {
        let literals = [vec![b"union".to_vec(), b"<?".to_vec()], vec![b"select".to_vec()]];
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
