//! Phrase lists of `pm` and `pmFromFile`.

use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use crate::transformation::hex_pair;

/// Phrases that are searched at once, ignoring the case of ASCII letters.
///
/// libmodsecurity overlooks a phrase that starts inside another one in some lists (of `abcz`, `bx`
/// and `cd` in the value `abcd`, for one), since its failure links are followed by one step only.
/// This search finds every phrase.
#[derive(Debug, Clone)]
pub(crate) struct PhraseSet {
    phrases: Vec<Vec<u8>>,
    /// Built at the first use, or by `Worker::warm_up`: most lists of rules for requests are hardly ever searched.
    automaton: OnceLock<AhoCorasick>,
}

/// Bytes of all phrases of a set. An automaton has at most one state for each, far below its limit.
const SIZE_MAX: usize = 16 << 20;
/// Bytes of the phrases of a set that may get a transition table. For larger sets it takes milliseconds to build, which the first
/// request that needs it would pay.
const TABLE_SIZE_MAX: usize = 1 << 10;

impl PhraseSet {
    /// Phrases of the argument of `pm`, separated by whitespace: `"@pm select union"`.
    ///
    /// Bytes may be given in hexadecimal between bars, as in Snort: `a|3b 20|b` is `a; b`, one phrase.
    /// `\:`, `\;`, `\\` and `\"` are escapes. An argument with any other escape is used literally,
    /// without hexadecimal. (libmodsecurity documents the same, but its hexadecimal decoder drops the
    /// digits 0 to 9.)
    pub(crate) fn from_argument(argument: &[u8]) -> Result<Self, String> {
        let phrases = parse_escapes(argument.trim_ascii()).unwrap_or_else(|| {
            argument.split(|byte| is_space(*byte)).map(<[u8]>::to_vec).collect()
        });
        Self::new(phrases)
    }

    /// Phrases of a file, one a line. Lines whose first printable character is `#` are comments.
    /// Spaces at the ends of a line belong to the phrase.
    pub(crate) fn from_file(text: &[u8]) -> Result<Self, String> {
        let lines =
            text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        Self::new(
            lines
                .filter(|line| !line.trim_ascii_start().starts_with(b"#"))
                .map(<[u8]>::to_vec)
                .collect(),
        )
    }

    fn new(mut phrases: Vec<Vec<u8>>) -> Result<Self, String> {
        phrases.retain(|phrase| !phrase.is_empty());
        for phrase in &mut phrases {
            phrase.make_ascii_lowercase();
        }
        phrases.sort();
        phrases.dedup();
        let size: usize = phrases.iter().map(Vec::len).sum();
        if size > SIZE_MAX {
            return Err(format!("{size} bytes of phrases, more than {SIZE_MAX}"));
        }
        Ok(Self { phrases, automaton: OnceLock::new() })
    }

    /// Distinct phrases in lower case, sorted.
    pub(crate) fn phrases(&self) -> &[Vec<u8>] {
        &self.phrases
    }

    /// Returns the place of the phrase that ends first.
    pub(crate) fn find(&self, value: &[u8]) -> Option<Range<usize>> {
        self.automaton().find(value).map(|found| found.range())
    }

    /// Returns the automaton; the first call builds it.
    pub(crate) fn automaton(&self) -> &AhoCorasick {
        self.automaton.get_or_init(|| {
            let size: usize = self.phrases.iter().map(Vec::len).sum();
            AhoCorasick::builder()
                .ascii_case_insensitive(true)
                .kind((size > TABLE_SIZE_MAX).then_some(AhoCorasickKind::ContiguousNFA))
                .build(&self.phrases)
                .unwrap_or_else(|error| unreachable!("within the limits: {error}"))
        })
    }
}

/// `isspace` of C.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Splits an argument into phrases and decodes its escapes. `None` if an escape is unknown.
fn parse_escapes(argument: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut phrases = vec![Vec::new()];
    let mut push = |byte: Option<u8>| match (byte, phrases.last_mut()) {
        (Some(byte), Some(phrase)) => phrase.push(byte),
        _ => phrases.push(Vec::new()),
    };
    let mut hexadecimal = false;
    let mut high = None;
    let mut bytes = argument.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'|' => {
                hexadecimal = !hexadecimal;
                high = None;
            }
            _ if hexadecimal => match high.take() {
                _ if !byte.is_ascii_hexdigit() => {}
                None => high = Some(byte),
                Some(high) => push(Some(hex_pair(high, byte))),
            },
            b'\\' => match bytes.next()? {
                escaped @ (b':' | b';' | b'\\' | b'"') => push(Some(escaped)),
                _ => return None,
            },
            _ if is_space(byte) => push(None),
            _ => push(Some(byte)),
        }
    }
    Some(phrases)
}

#[cfg(test)]
mod tests {
    use super::PhraseSet;

    fn phrases(argument: &str) -> Vec<String> {
        let set = PhraseSet::from_argument(argument.as_bytes()).unwrap();
        set.phrases().iter().map(|phrase| phrase.escape_ascii().to_string()).collect()
    }

    #[test]
    fn splits_an_argument_at_whitespace() {
        assert_eq!(phrases("union  SELECT\tunion\n"), ["select", "union"]);
        assert_eq!(phrases("( )"), ["(", ")"]);
        assert_eq!(phrases(""), Vec::<String>::new());
    }

    #[test]
    fn decodes_hexadecimal_between_bars() {
        assert_eq!(phrases("a|3b 20|b c|4|d"), ["a; b", "cd"]);
        assert_eq!(phrases("x|0D0a|"), ["x\\r\\n"]);
    }

    #[test]
    fn decodes_four_escapes() {
        assert_eq!(phrases(r#"a\:b \; \\ \""#), ["\\\"", ";", "\\\\", "a:b"]);
        assert_eq!(phrases(r"a\n |41|"), ["a\\\\n", "|41|"]);
    }

    #[test]
    fn reads_a_file_by_lines() {
        let set = PhraseSet::from_file(b"# comment\n  # comment\nab \r\n cd\n\ne#f").unwrap();
        let lines: Vec<_> =
            set.phrases().iter().map(|phrase| phrase.escape_ascii().to_string()).collect();
        assert_eq!(lines, [" cd", "ab ", "e#f"]);
    }

    #[test]
    fn finds_the_phrase_that_ends_first_ignoring_case() {
        let set = PhraseSet::from_argument(b"select lect union abcz bx cd").unwrap();
        assert_eq!(set.find(b"x SELECT union"), Some(2..8));
        assert_eq!(set.find(b"abCd"), Some(2..4));
        assert_eq!(set.find(b"sele"), None);
        assert_eq!(PhraseSet::from_argument(b"").unwrap().find(b"a"), None);
    }
}
