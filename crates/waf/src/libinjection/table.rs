//! Tables of libinjection: the types of SQL keywords and the fingerprints of injections.
//!
//! The lists are those of libinjection 3.9.2 to 4.0 (Nick Galbreath and others, BSD-3-Clause),
//! as published with the crate `libinjectionrs`. They are parsed at the first use.

use std::sync::LazyLock;

/// Type of a token. The letter of each type is its symbol in a fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Bareword = b'n',
    Backslash = b'\\',
    Collate = b'A',
    Colon = b':',
    Comma = b',',
    Comment = b'c',
    Dot = b'.',
    /// Input that cannot be parsed reliably; it makes the whole value suspect.
    Evil = b'X',
    Expression = b'E',
    Function = b'f',
    Group = b'B',
    Keyword = b'k',
    LeftBrace = b'{',
    LeftParenthesis = b'(',
    LogicOperator = b'&',
    Number = b'1',
    Operator = b'o',
    RightBrace = b'}',
    RightParenthesis = b')',
    Semicolon = b';',
    SqlType = b't',
    String = b's',
    Tsql = b'T',
    Union = b'U',
    Unknown = b'?',
    Variable = b'v',
}

impl Kind {
    /// Type of a keyword by its letter in the table.
    pub(super) fn from_letter(letter: u8) -> Option<Self> {
        const ALL: [Kind; 13] = [
            Kind::Bareword,
            Kind::Collate,
            Kind::Expression,
            Kind::Function,
            Kind::Group,
            Kind::Keyword,
            Kind::LogicOperator,
            Kind::Number,
            Kind::Operator,
            Kind::SqlType,
            Kind::Tsql,
            Kind::Union,
            Kind::Variable,
        ];
        ALL.into_iter().find(|kind| *kind as u8 == letter)
    }
}

static TABLES: LazyLock<Tables> =
    LazyLock::new(|| Tables::parse(include_str!("keywords.txt"), include_str!("fingerprints.txt")));

/// Longest keyword, including the spaces in keywords of several words.
pub(super) const KEYWORD_MAX: usize = 31;
const SLOTS: usize = 4096;
const SYMBOLS: &[u8] = b"1BEFKNOSTUVAC&(),:;X";

struct Tables {
    /// Keywords by type letter and text in upper case.
    keywords: Vec<(Kind, &'static [u8])>,
    /// First keyword of each hash plus one, 0 for none, and the next one of the same hash.
    slots: Box<[u16; SLOTS]>,
    next: Vec<u16>,
    /// Sorted fingerprints, five bits per symbol from the top, and the start of the range for each pair
    /// of first symbols.
    fingerprints: Vec<u32>,
    starts: Box<[u16; 1025]>,
}

impl Tables {
    fn parse(keywords: &'static str, fingerprints: &'static str) -> Self {
        let keywords: Vec<_> = keywords
            .lines()
            .filter_map(|line| {
                let (letter, word) = line.split_once(' ')?;
                Some((Kind::from_letter(letter.bytes().next()?)?, word.as_bytes()))
            })
            .collect();
        let mut slots = Box::new([0; SLOTS]);
        let mut next = vec![0; keywords.len()];
        for (index, (_, word)) in keywords.iter().enumerate() {
            let slot = &mut slots[hash(word)];
            next[index] = *slot;
            *slot = index as u16 + 1;
        }
        let mut packed: Vec<u32> =
            fingerprints.split_ascii_whitespace().map(|text| pack(text.as_bytes())).collect();
        packed.sort_unstable();
        let mut starts = Box::new([0; 1025]);
        for (pair, start) in starts.iter_mut().enumerate() {
            *start = packed.partition_point(|fingerprint| (fingerprint >> 15) < pair as u32) as u16;
        }
        Self { keywords, slots, next, fingerprints: packed, starts }
    }
}

/// Hash of length and four bytes, ignoring case.
fn hash(word: &[u8]) -> usize {
    let byte = |at: usize| u32::from(word.get(at).copied().unwrap_or(0) & 0xdf);
    let last = word.len().saturating_sub(1);
    let key = byte(0) | byte(1) << 8 | byte(last / 2 + 1) << 16 | byte(last) << 24;
    let mixed = (key ^ (word.len() as u32).wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
    (mixed >> 20) as usize
}

/// Packs up to five symbols of a fingerprint; 0 if one of them is in no fingerprint of the table.
fn pack(symbols: &[u8]) -> u32 {
    const CODES: [u8; 256] = {
        let mut codes = [0; 256];
        let mut i = 0;
        while i < SYMBOLS.len() {
            codes[SYMBOLS[i] as usize] = i as u8 + 1;
            i += 1;
        }
        codes
    };
    let mut packed = 0;
    for i in 0..5 {
        let code =
            symbols.get(i).map_or(0, |symbol| CODES[usize::from(symbol.to_ascii_uppercase())]);
        if code == 0 && i < symbols.len() {
            return 0;
        }
        packed = packed << 5 | u32::from(code);
    }
    packed
}

/// Returns the type of a keyword, ignoring case, and its spelling in the table.
pub(super) fn keyword(word: &[u8]) -> Option<(Kind, &'static [u8])> {
    if word.is_empty() || word.len() > KEYWORD_MAX {
        return None;
    }
    let tables = &*TABLES;
    let mut slot = tables.slots[hash(word)];
    while slot > 0 {
        let (kind, text) = tables.keywords[usize::from(slot) - 1];
        if text.eq_ignore_ascii_case(word) {
            return Some((kind, text));
        }
        slot = tables.next[usize::from(slot) - 1];
    }
    None
}

/// Returns true if the types of the tokens are those of an injection.
pub(super) fn is_injection(types: &[u8]) -> bool {
    let packed = pack(types);
    let tables = &*TABLES;
    let pair = (packed >> 15) as usize;
    let candidates = usize::from(tables.starts[pair])..usize::from(tables.starts[pair + 1]);
    packed > 0 && tables.fingerprints[candidates].binary_search(&packed).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_every_keyword_in_any_case() {
        assert_eq!(TABLES.keywords.len(), 985);
        for (kind, word) in &TABLES.keywords {
            let lower = word.to_ascii_lowercase();
            assert_eq!(keyword(&lower), Some((*kind, *word)));
        }
        for word in [&b""[..], b"selects", b"selec", b"union  all", b"=", &[b'a'; 40]] {
            assert_eq!(keyword(word), None);
        }
    }

    #[test]
    fn finds_every_fingerprint_and_no_other() {
        let known: std::collections::HashSet<_> =
            include_str!("fingerprints.txt").split_ascii_whitespace().map(str::as_bytes).collect();
        assert_eq!(known.len(), 8367);
        let mut found = 0;
        let mut symbols = [0; 5];
        for number in 0..20usize.pow(5) {
            for (i, symbol) in symbols.iter_mut().enumerate() {
                *symbol = SYMBOLS[number / 20usize.pow(i as u32) % 20];
            }
            for length in if number % 20usize.pow(4) == 0 { 0..=5 } else { 5..=5 } {
                let expected = known.contains(&symbols[..length]);
                assert_eq!(is_injection(&symbols[..length]), expected);
                found += usize::from(expected && length == 5);
            }
        }
        assert_eq!(found, 7926);
        assert!(is_injection(b"s&1c") && !is_injection(b"s{1c") && !is_injection(b""));
    }
}
