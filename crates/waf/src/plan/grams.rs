//! Literals of many probes at once: each literal is looked for where its rarest part occurs, which has four bytes, or all of a
//! shorter literal.

use std::collections::HashMap;

use indexmap::IndexSet;

use super::bytes::share;
use super::literal::{LITERAL_LENGTH_MAX, Literal};
use super::node::NodeHash;
use super::reach::{Anchor, Reach, Windows};

/// Literals of two bytes whose entries the filter has: each has 256.
const PAIRS_IN_FILTER_MAX: usize = 4;
/// Entries of a filter, a power of two. Both filters fit the first-level cache.
const FILTER: usize = 1 << 14;
/// Words of a text that are tested in a row.
const BLOCK: usize = 8;
/// Entries of a table, a power of two.
const TABLE: usize = 1 << 16;

/// Finds the probes one of whose literals a value contains, in any case.
#[derive(Debug)]
pub(crate) struct Grams {
    /// Literals of four and more bytes, by a hash of their rarest four bytes.
    quads: Table,
    /// Literals of three bytes, by a hash of them.
    triples: Table,
    /// Literals of two bytes, by these bytes.
    pairs: Table,
    /// By a hash of three bytes, and by a hash of four bytes: a word may have a literal if the entries have a bit in common.
    filters: Box<[[u8; FILTER]; 2]>,
    /// True if the filters have the entries of pairs, which would fill them if there were many.
    is_filter_complete: bool,
    literals: Vec<Placed>,
    /// Distances that give windows.
    reaches: Vec<Reach>,
}

/// Probes one of whose literals was found.
pub(super) struct Found<'a> {
    /// Bits of those that may match anywhere in the value.
    pub(super) probes: &'a mut [u64],
    /// Parts of the value in which the others may match.
    pub(super) windows: Option<&'a mut Windows>,
}

/// Literal with the end of its rarest part.
#[derive(Debug)]
struct Placed {
    literal: Literal,
    end: usize,
}

/// Bit of literals of four and more bytes in the entries of both filters.
const LONG: u8 = 1;
/// Bit of shorter literals in the entries of the filter of three bytes. All entries of the other filter have it.
const SHORT: u8 = 2;

#[derive(Debug)]
struct Table {
    /// Bitmap of the used entries.
    used: Box<[u64; TABLE / 64]>,
    /// Used entries before each word of the bitmap.
    used_before: Box<[u16; TABLE / 64]>,
    /// First occurrence of each used entry.
    first: Vec<u32>,
    occurrences: Vec<Occurrence>,
}

/// Literal whose rarest part an entry is.
#[derive(Clone, Copy, Debug)]
struct Occurrence {
    probe: u32,
    /// Bytes of the literal around its rarest part as [`neighbours`] gives them, and a mask of those that exist.
    neighbours: u32,
    mask: u32,
    /// Number of the literal.
    literal: u32,
    /// Number of the distances; `WHOLE` if a match may be anywhere in the text.
    reach: u32,
}

const WHOLE: u32 = u32::MAX;

impl Grams {
    /// Builds the tables from the literals (in lower case, two and more bytes) of probes.
    pub(super) fn new<'a>(probes: impl Iterator<Item = (usize, &'a [Anchor])>) -> Self {
        let mut known: HashMap<&Literal, (u16, Occurrence), NodeHash> = HashMap::default();
        let (mut pairs, mut triples, mut quads) = (Vec::new(), Vec::new(), Vec::new());
        let mut placed = Vec::new();
        let mut filters = Box::new([[0; FILTER], [SHORT; FILTER]]);
        let mut reaches = IndexSet::<Reach, NodeHash>::default();
        for (probe, literals) in probes {
            let probe = number(probe);
            for Anchor { literal, reach } in literals {
                let reach = reach.filter(Reach::is_limited);
                let reach = reach.map_or(WHOLE, |reach| number(reaches.insert_full(reach).0));
                let &mut (entry, occurrence) = known.entry(literal).or_insert_with(|| {
                    let (word, end) = rarest_part(literal);
                    let mask = mask_of_neighbours(literal.len(), end);
                    let neighbours = neighbours(literal, end) & mask;
                    let occurrence = Occurrence {
                        probe,
                        neighbours,
                        mask,
                        literal: number(placed.len()),
                        reach,
                    };
                    placed.push(Placed { literal: *literal, end });
                    let (entry, bit) = match literal.len() {
                        2 => (pair(word), 0),
                        3 => (triple(word), SHORT),
                        _ => (quad(word), LONG),
                    };
                    let [three, four] = filtered(word);
                    filters[0][three] |= bit;
                    filters[1][four] |= bit;
                    (entry, occurrence)
                });
                let table = match literal.len() {
                    2 => &mut pairs,
                    3 => &mut triples,
                    _ => &mut quads,
                };
                table.push((entry, Occurrence { probe, reach, ..occurrence }));
            }
        }
        let [quads, triples, pairs] = [&quads, &triples, &pairs].map(|table| Table::new(table));
        let used = (0..=u16::MAX).filter(|&pair| pairs.is_used(pair));
        let is_filter_complete = used.clone().count() <= PAIRS_IN_FILTER_MAX;
        for pair in used.filter(|_| is_filter_complete) {
            for behind in 0..=u32::from(u8::MAX) {
                let [three, _] = filtered(behind << 16 | u32::from(pair));
                filters[0][three] |= SHORT;
            }
        }
        Self {
            quads,
            triples,
            pairs,
            filters,
            is_filter_complete,
            literals: placed,
            reaches: reaches.into_iter().collect(),
        }
    }

    /// Sets the bits of the probes whose literals the value contains, or, if `windows` are given, adds the windows of the literals
    /// unless a match may be anywhere. Probes whose bits are set before are not looked for.
    pub(super) fn find(&self, value: &[u8], lower: &mut Vec<u8>, found: Found<'_>) {
        // A zero byte stands before the first byte, and some behind the last, so that each position has a word of four bytes,
        // and the words fill blocks.
        lower.clear();
        lower.push(0);
        lower.extend(value.iter().map(u8::to_ascii_lowercase));
        let words = value.len().next_multiple_of(BLOCK);
        lower.resize(words + 3, 0);
        if self.is_filter_complete {
            self.find_with(value, lower, found, |_| false);
        } else {
            self.find_with(value, lower, found, |word| self.pairs.is_used(pair(word)));
        }
    }

    /// Looks up the words that the filters or `is_pair` let pass.
    #[inline]
    fn find_with(
        &self,
        value: &[u8],
        lower: &[u8],
        mut found: Found<'_>,
        is_pair: impl Fn(u32) -> bool,
    ) {
        let [threes, fours] = &*self.filters;
        let mut end = 2;
        let mut rest = lower;
        // A block is an array, so that its loop has no condition but that of the filters.
        while let Some(block) = rest.first_chunk::<{ BLOCK + 3 }>() {
            for at in 0..BLOCK {
                let word = block[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
                let [three, four] = filtered(word);
                if threes[three] & fours[four] != 0 || is_pair(word) {
                    self.look_up(word, value, end + at, &mut found);
                }
            }
            end += BLOCK;
            rest = &rest[BLOCK..];
        }
    }

    /// Looks up a word whose third byte stands before `end`.
    // A call keeps the loop over all words short.
    #[inline(never)]
    fn look_up(&self, word: u32, value: &[u8], end: usize, found: &mut Found<'_>) {
        if self.quads.is_used(quad(word)) {
            self.compare(&self.quads, quad(word), value, end, found);
        }
        if self.triples.is_used(triple(word)) {
            self.compare(&self.triples, triple(word), value, end, found);
        }
        if self.pairs.is_used(pair(word)) {
            self.compare(&self.pairs, pair(word), value, end - 1, found);
        }
    }

    /// Compares the bytes around the rarest part, which ends at `end`, with those of its literals.
    fn compare(&self, table: &Table, entry: u16, value: &[u8], end: usize, found: &mut Found<'_>) {
        let neighbours = neighbours(value, end);
        for occurrence in table.occurrences(entry) {
            if neighbours & occurrence.mask == occurrence.neighbours {
                self.verify(occurrence, value, end, found);
            }
        }
    }

    /// Compares all of a literal whose rarest part ends at `end`.
    #[inline(never)]
    fn verify(&self, occurrence: &Occurrence, value: &[u8], end: usize, found: &mut Found<'_>) {
        let (word, bit) = ((occurrence.probe / 64) as usize, occurrence.probe % 64);
        if found.probes[word] >> bit & 1 == 1 {
            return;
        }
        let Placed { literal, end: behind } = &self.literals[occurrence.literal as usize];
        let Some(start) = end.checked_sub(*behind) else { return };
        let place = start..start + literal.len();
        if !value.get(place.clone()).is_some_and(|text| text.eq_ignore_ascii_case(literal)) {
            return;
        }
        if let Some(windows) = &mut found.windows {
            // No literal whose rarest part stands behind this one begins earlier.
            windows.note(occurrence.probe, end.saturating_sub(LITERAL_LENGTH_MAX + 1));
        }
        let reach = self.reaches.get(occurrence.reach as usize);
        let has_window = found
            .windows
            .as_mut()
            .zip(reach)
            .is_some_and(|(windows, reach)| windows.add(occurrence.probe, reach, value, place));
        if !has_window {
            found.probes[word] |= 1 << bit;
        }
    }
}

#[cfg(any(test, fuzzing))]
impl Grams {
    /// Changes the last byte of every literal, so that none is found.
    pub(super) fn plant_literals(&mut self) {
        for Placed { literal, .. } in &mut self.literals {
            let mut text = literal.to_vec();
            if let Some(last) = text.last_mut() {
                *last ^= 0x80;
            }
            *literal = Literal::cut(&text);
        }
    }

    /// Makes each window as small as its literal.
    pub(super) fn plant_windows(&mut self) {
        self.reaches.fill(Reach::default());
    }
}

impl Table {
    fn new(entries: &[(u16, Occurrence)]) -> Self {
        // Numbers are sorted faster than entries.
        let mut order: Vec<u64> =
            (0..).zip(entries).map(|(at, (entry, _))| u64::from(*entry) << 32 | at).collect();
        order.sort_unstable();
        let (mut used, mut first) = (Box::new([0u64; TABLE / 64]), Vec::new());
        for (index, entry) in (0..).zip(order.iter().map(|number| number >> 32)) {
            let (word, bit) = ((entry / 64) as usize, entry % 64);
            if used[word] >> bit & 1 == 0 {
                used[word] |= 1 << bit;
                first.push(index);
            }
        }
        first.push(u32::try_from(entries.len()).unwrap_or(u32::MAX));
        let (mut used_before, mut before) = (Box::new([0u16; TABLE / 64]), 0u16);
        for (count, word) in used_before.iter_mut().zip(used.iter()) {
            *count = before;
            // Only the sum after the last word can overflow.
            before = before.wrapping_add(word.count_ones() as u16);
        }
        let occurrences = order.iter().map(|&number| entries[number as u32 as usize].1).collect();
        Self { used, used_before, first, occurrences }
    }

    #[inline]
    fn is_used(&self, entry: u16) -> bool {
        self.used[usize::from(entry / 64)] >> (entry % 64) & 1 == 1
    }

    /// Occurrences of a used entry.
    fn occurrences(&self, entry: u16) -> &[Occurrence] {
        let word = usize::from(entry / 64);
        let before = (self.used[word] & ((1 << (entry % 64)) - 1)).count_ones();
        let number = usize::from(self.used_before[word]) + before as usize;
        &self.occurrences[self.first[number] as usize..self.first[number + 1] as usize]
    }
}

/// Number of a probe or literal: no memory holds the rules for more than these.
fn number(number: usize) -> u32 {
    u32::try_from(number).expect("fewer than 2^32 probes and literals")
}

/// Rarest part of a literal (two or more bytes) as a word of a text, and the end of the three bytes that the word begins with.
fn rarest_part(literal: &[u8]) -> (u32, usize) {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
    if literal.len() == 2 {
        return (word(literal), 2);
    }
    let windows = literal.windows(4).map(share).enumerate();
    let rarest = windows.min_by(|(_, a), (_, b)| a.total_cmp(b));
    let at = rarest.map_or(0, |(at, _)| at);
    (word(&literal[at..literal.len().min(at + 4)]), at + 3)
}

/// Two bytes before and two behind the three bytes that end at `end`, of letters the lower case. Other bytes may become
/// equal, too.
#[inline]
fn neighbours(text: &[u8], end: usize) -> u32 {
    let around = end.checked_sub(5).and_then(|start| text.get(start..end + 2));
    let bytes = match around {
        Some(&[a, b, _, _, _, c, d]) => [a, b, c, d],
        _ => {
            let before = |distance| end.checked_sub(distance).and_then(|at| text.get(at));
            [before(5), before(4), text.get(end), text.get(end + 1)]
                .map(|byte| byte.copied().unwrap_or_default())
        }
    };
    u32::from_be_bytes(bytes) | 0x2020_2020
}

/// Mask of the neighbours that a literal has around its rarest part.
fn mask_of_neighbours(length: usize, end: usize) -> u32 {
    let exist = [end >= 5, end >= 4, end < length, end + 1 < length];
    u32::from_be_bytes(exist.map(|exists| if exists { u8::MAX } else { 0 }))
}

/// Factor of the hashes, odd and near the golden ratio of 2^32.
const FACTOR: u32 = 0x9e37_79b1;

/// Entry of the four bytes of a word, of which the first is the lowest.
#[inline]
fn quad(word: u32) -> u16 {
    (word.wrapping_mul(FACTOR) >> 16) as u16
}

/// Entry of the first three bytes of a word.
#[inline]
fn triple(word: u32) -> u16 {
    quad(word << 8)
}

/// Entry of the first two bytes of a word.
#[inline]
fn pair(word: u32) -> u16 {
    word as u16
}

/// Entries of a word in the filters: of its first three bytes, and of all four.
#[inline]
fn filtered(word: u32) -> [usize; 2] {
    // The last byte leaves the first product.
    [FACTOR << 8, FACTOR]
        .map(|factor| (word.wrapping_mul(factor) >> (32 - FILTER.ilog2())) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::bytes::Bits;

    fn anchor(literal: &[u8]) -> Anchor {
        Anchor::of(Literal::cut(literal))
    }

    #[test]
    fn finds_each_literal_in_any_case() {
        let literals = [vec![anchor(b"union"), anchor(b"<?")], vec![anchor(b"select")]];
        let grams = Grams::new(literals.iter().map(Vec::as_slice).enumerate());
        let found = |value: &[u8]| {
            let mut bits = Bits::none(2);
            grams.find(value, &mut Vec::new(), Found { probes: &mut bits.0, windows: None });
            [bits.get(0), bits.get(1)]
        };
        assert_eq!(found(b"1 UNION x"), [true, false]);
        assert_eq!(found(b"a<?b"), [true, false]);
        assert_eq!(found(b"SeLeCt"), [false, true]);
        assert_eq!(found(b"hello"), [false, false]);
    }

    #[test]
    fn compares_the_bytes_around_the_rarest_part() {
        for literal in
            [b"zqx".as_slice(), b"azqx", b"zqxa", b"eezqx", b"zqxee", b"e[zqx{e", b"eeezqxeee"]
        {
            let literals = [anchor(literal)];
            let grams = Grams::new([(0, literals.as_slice())].into_iter());
            let found = |value: &[u8]| {
                let mut bits = Bits::none(1);
                grams.find(value, &mut Vec::new(), Found { probes: &mut bits.0, windows: None });
                bits.get(0)
            };
            let name = literal.escape_ascii();
            for around in [["", ""], ["x", "x"], ["", "xx"], ["xx", ""]] {
                let value = [around[0].as_bytes(), literal, around[1].as_bytes()].concat();
                assert!(found(&value), "{name} {around:?}");
                assert!(found(&value.to_ascii_uppercase()), "{name} {around:?}");
            }
            for at in 0..literal.len() {
                let mut other = literal.to_vec();
                other[at] ^= 0x80;
                assert!(!found(&other), "{name} {at}");
                // A bracket and a brace differ in the bit in which the cases of a letter do.
                other[at] = literal[at] ^ 0x20;
                assert_eq!(found(&other), literal[at].is_ascii_alphabetic(), "{name} {at}");
            }
        }
    }
}
