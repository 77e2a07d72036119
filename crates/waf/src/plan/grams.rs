//! Literals of many probes at once: each literal is looked for where its rarest three bytes occur.

use std::collections::HashMap;

use indexmap::IndexSet;

use super::bytes::share;
use super::literal::Literal;
use super::node::NodeHash;
use super::reach::{Anchor, Reach, Windows};

/// Literals of two bytes whose entries the filter has: each has 256.
const PAIRS_IN_FILTER_MAX: usize = 8;
/// Entries of a table, a power of two.
const TABLE: usize = 1 << 16;

/// Finds the probes one of whose literals a value contains, in any case.
#[derive(Debug)]
pub(crate) struct Grams {
    /// Literals of three and more bytes, by a hash of their rarest three bytes.
    triples: Table,
    /// Literals of two bytes, by these bytes.
    pairs: Table,
    /// Bitmap of the entries of three bytes that may belong to a literal. It fits the first-level cache.
    filter: Box<[u64; TABLE / 64]>,
    /// True if the filter has the entries of pairs, which would fill it if there were many.
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
        let (mut pairs, mut triples, mut placed) = (Vec::new(), Vec::new(), Vec::new());
        let mut reaches = IndexSet::<Reach, NodeHash>::default();
        for (probe, literals) in probes {
            let probe = number(probe);
            for Anchor { literal, reach } in literals {
                let reach = reach.filter(Reach::is_limited);
                let reach = reach.map_or(WHOLE, |reach| number(reaches.insert_full(reach).0));
                let &mut (entry, occurrence) = known.entry(literal).or_insert_with(|| {
                    let (entry, end) = rarest_part(literal);
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
                    (entry, occurrence)
                });
                let table = if literal.len() == 2 { &mut pairs } else { &mut triples };
                table.push((entry, Occurrence { probe, reach, ..occurrence }));
            }
        }
        let (triples, pairs) = (Table::new(&triples), Table::new(&pairs));
        let mut filter = triples.used.clone();
        let used = (0..=u16::MAX).filter(|&pair| pairs.is_used(pair));
        let is_filter_complete = used.clone().count() <= PAIRS_IN_FILTER_MAX;
        for pair in used.filter(|_| is_filter_complete) {
            for before in 0..=u32::from(u8::MAX) {
                let entry = triple(before << 16 | u32::from(pair));
                filter[usize::from(entry / 64)] |= 1 << (entry % 64);
            }
        }
        Self {
            triples,
            pairs,
            filter,
            is_filter_complete,
            literals: placed,
            reaches: reaches.into_iter().collect(),
        }
    }

    /// Sets the bits of the probes whose literals the value contains, or, if `windows` are given, adds the windows of the literals
    /// unless a match may be anywhere. Probes whose bits are set before are not looked for.
    pub(super) fn find(&self, value: &[u8], lower: &mut Vec<u8>, found: Found<'_>) {
        // A zero byte stands before the first byte, and one behind the last, so that each position has a word of four bytes.
        lower.clear();
        lower.push(0);
        lower.extend(value.iter().map(u8::to_ascii_lowercase));
        lower.push(0);
        if self.is_filter_complete {
            self.find_with(value, lower, found, |_| false);
        } else {
            self.find_with(value, lower, found, |gram| self.pairs.is_used(gram as u16));
        }
    }

    /// Looks up the three bytes before each position that the filter or `is_pair` lets pass.
    #[inline]
    fn find_with(
        &self,
        value: &[u8],
        lower: &[u8],
        mut found: Found<'_>,
        is_pair: impl Fn(u32) -> bool,
    ) {
        for (end, word) in (2..).zip(lower.windows(4)) {
            let gram = u32::from_be_bytes([word[0], word[1], word[2], word[3]]) >> 8;
            let entry = triple(gram);
            if self.filter[usize::from(entry / 64)] >> (entry % 64) & 1 == 1 || is_pair(gram) {
                self.look_up(gram, value, end, &mut found);
            }
        }
    }

    /// Looks up the three bytes before `end`.
    #[inline(never)]
    fn look_up(&self, gram: u32, value: &[u8], end: usize, found: &mut Found<'_>) {
        for (table, entry) in [(&self.triples, triple(gram)), (&self.pairs, gram as u16)] {
            if table.is_used(entry) {
                self.verify(table, entry, value, end, found);
            }
        }
    }

    /// Compares the literals whose rarest part ends at `end`.
    fn verify(&self, table: &Table, entry: u16, value: &[u8], end: usize, found: &mut Found<'_>) {
        let neighbours = neighbours(value, end);
        for occurrence in table.occurrences(entry) {
            if neighbours & occurrence.mask != occurrence.neighbours {
                continue;
            }
            let (word, bit) = ((occurrence.probe / 64) as usize, occurrence.probe % 64);
            if found.probes[word] >> bit & 1 == 1 {
                continue;
            }
            let Placed { literal, end: behind } = &self.literals[occurrence.literal as usize];
            let Some(start) = end.checked_sub(*behind) else { continue };
            let place = start..start + literal.len();
            if !value.get(place.clone()).is_some_and(|text| text.eq_ignore_ascii_case(literal)) {
                continue;
            }
            let reach = self.reaches.get(occurrence.reach as usize);
            let has_window =
                found.windows.as_mut().zip(reach).is_some_and(|(windows, reach)| {
                    windows.add(occurrence.probe, reach, value, place)
                });
            if !has_window {
                found.probes[word] |= 1 << bit;
            }
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

/// Entry of the rarest part of a literal (two or more bytes), and the end of that part.
fn rarest_part(literal: &[u8]) -> (u16, usize) {
    if let [a, b] = *literal {
        return (u16::from_be_bytes([a, b]), 2);
    }
    let windows = literal.windows(3).map(share).enumerate();
    let rarest = windows.min_by(|(_, a), (_, b)| a.total_cmp(b));
    let at = rarest.map_or(0, |(at, _)| at);
    let gram = literal[at..].iter().take(3).fold(0, |gram, &byte| gram << 8 | u32::from(byte));
    (triple(gram), at + 3)
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

/// Entry of three bytes.
#[inline]
fn triple(gram: u32) -> u16 {
    (gram.wrapping_mul(0x9e37_79b1) >> 16) as u16
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
