//! Variables, and texts that use them.

use std::ops::RangeInclusive;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::file::VariableFile;
use crate::{MAX_LIST, MAX_REQUESTS};
use crate::{MixError, fail};

const OPEN: &str = "{{";
const CLOSE: &str = "}}";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Variable {
    List(Vec<String>),
    /// `last` is the number of the last request of a script.
    Counter {
        from: i64,
        step: i64,
        last: i64,
    },
    Range(RangeInclusive<i64>),
}

impl Variable {
    pub(crate) fn new(name: &str, file: VariableFile) -> Result<Self, MixError> {
        if !is_identifier(name) {
            return fail!("invalid name: use letters, digits and `_`, but no digit first");
        }
        if file.step.is_some() && file.counter.is_none() {
            return fail!("`step` requires `counter`");
        }
        match (file.list, file.counter, file.range) {
            (Some(list), None, None) if list.is_empty() => {
                fail!("`list` is empty; give it at least one text")
            }
            (Some(list), None, None) if list.len() > MAX_LIST => {
                fail!("`list` has {} texts, but the limit is {MAX_LIST}", list.len())
            }
            (Some(list), None, None) => Ok(Self::List(list)),
            (None, Some(from), None) => counter(from, file.step.unwrap_or(1)),
            (None, None, Some([min, max])) if min > max => {
                fail!("`range` [{min}, {max}] is empty; put the smaller number first")
            }
            (None, None, Some([min, max])) => Ok(Self::Range(min..=max)),
            _ => fail!("expected exactly one of `list`, `counter` and `range`"),
        }
    }

    /// Returns the value in a sample: the first of a list or counter, the smallest of a range.
    pub(crate) fn first(&self) -> String {
        match self {
            Self::List(list) => list[0].clone(),
            Self::Counter { from, .. } => from.to_string(),
            Self::Range(range) => range.start().to_string(),
        }
    }

    /// Returns the values that decide the validity of a request: all texts of a list; for numbers, which differ only in
    /// length, the longest and the shortest.
    pub(crate) fn candidates(&self) -> Vec<String> {
        let (from, to) = match self {
            Self::List(list) => return list.clone(),
            Self::Counter { from, last, .. } => (*from, *last),
            Self::Range(range) => (*range.start(), *range.end()),
        };
        let mut ends = vec![from.to_string(), to.to_string()];
        if (from.min(to)..=from.max(to)).contains(&0) {
            ends.push("0".to_owned());
        }
        ends
    }

    /// Returns the value for the next request, after `used` others with this variable.
    pub(crate) fn draw(&self, used: i64, rng: &mut ChaCha8Rng) -> String {
        match self {
            Self::List(list) => list[rng.random_range(0..list.len())].clone(),
            Self::Counter { from, step, .. } => (from + step * used).to_string(),
            Self::Range(range) => rng.random_range(range.clone()).to_string(),
        }
    }
}

fn counter(from: i64, step: i64) -> Result<Variable, MixError> {
    if step == 0 {
        return fail!("a `step` of 0 repeats one number; use a `list` of one text");
    }
    let length = step.checked_mul(MAX_REQUESTS as i64 - 1);
    match length.and_then(|length| from.checked_add(length)) {
        Some(last) => Ok(Variable::Counter { from, step, last }),
        None => fail!(
            "a counter from {from} in steps of {step} exceeds 64 bits within {MAX_REQUESTS} requests"
        ),
    }
}

/// Text in which `{{NAME}}` stands for the value of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Variable(usize),
}

/// Names of the variables of one file. Variables are numbered across all files of a mix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names<'a> {
    pub(crate) own: &'a [String],
    /// Index of the first.
    pub(crate) first: usize,
}

impl Names<'_> {
    fn index(&self, name: &str) -> Option<usize> {
        self.own.iter().position(|known| known == name).map(|position| self.first + position)
    }
}

impl Text {
    /// Parses a text. Braces around anything but an identifier, as in the attack `{{7*7}}`, are plain text. The error is
    /// the first unknown name.
    pub(crate) fn parse(text: &str, names: &Names<'_>) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(start) = rest.find(OPEN) {
            let (before, braces) = rest.split_at(start);
            literal.push_str(before);
            let Some(name) = placeholder(braces) else {
                // One brace only: the next may start a placeholder.
                literal.push('{');
                rest = &braces[1..];
                continue;
            };
            let index = names.index(name).ok_or(name)?;
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Variable(index));
            rest = &braces[OPEN.len() + name.len() + CLOSE.len()..];
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(Self { pieces })
    }

    /// Returns the indices of the variables used.
    pub(crate) fn variables(&self) -> impl Iterator<Item = usize> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Literal(_) => None,
            Piece::Variable(index) => Some(*index),
        })
    }

    /// Renders the text with `values[i]` for variable `i`.
    pub(crate) fn render(&self, values: &[String]) -> String {
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Literal(literal) => literal.as_str(),
            Piece::Variable(index) => values[*index].as_str(),
        });
        pieces.collect()
    }
}

pub(crate) fn is_identifier(word: &str) -> bool {
    word.bytes().all(is_identifier_byte) && word.bytes().next().is_some_and(|b| !b.is_ascii_digit())
}

/// Returns the name in the placeholder that the text starts with.
fn placeholder(braces: &str) -> Option<&str> {
    let inner = braces.strip_prefix(OPEN)?;
    let end = inner.bytes().position(|byte| !is_identifier_byte(byte))?;
    let (name, after) = inner.split_at(end);
    (is_identifier(name) && after.starts_with(CLOSE)).then_some(name)
}

fn is_identifier_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rendered(text: &str) -> String {
        let own = ["id".to_owned(), "_b2".to_owned()];
        let values = ["of another file".to_owned(), "7".to_owned(), "{{id}}".to_owned()];
        Text::parse(text, &Names { own: &own, first: 1 }).unwrap().render(&values)
    }

    #[test]
    fn replaces_variables_once() {
        assert_eq!(rendered("/p/{{id}}"), "/p/7");
        assert_eq!(rendered("{{id}}{{id}}-{{_b2}}"), "77-{{id}}");
        assert_eq!(rendered("{\"a\":{{{id}}}}"), "{\"a\":{7}}");
        assert_eq!(rendered(""), "");
    }

    #[test]
    fn other_braces_are_plain_text() {
        for text in [
            "{{7*7}}", "{{ id }}", "{{}}", "{{7}}", "{{2id}}", "{{id}", "{id}", "{{id", "{{", "{",
            "}}", "{{é}}", "{{a-b}}", "{{{{",
        ] {
            assert_eq!(rendered(text), text);
        }
    }

    #[test]
    fn unknown_name_is_an_error() {
        let names = Names { own: &["id".to_owned()], first: 0 };
        assert_eq!(Text::parse("{{7*7}} {{idd}} {{x}}", &names), Err("idd".to_owned()));
    }

    proptest! {
        #[test]
        fn text_without_double_braces_is_unchanged(text in "([^{]|\\{[^{])*") {
            prop_assert_eq!(rendered(&text), text);
        }

        #[test]
        fn any_text_parses_unless_a_name_is_unknown(text in "[{}a-c0_é]{0,20}") {
            if let Err(name) = Text::parse(&text, &Names { own: &[], first: 0 }) {
                let placeholder = format!("{{{{{name}}}}}");
                prop_assert!(text.contains(&placeholder));
            }
        }
    }
}
