//! Literals: texts of a few bytes, which matches contain.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use super::bytes::{Bytes, share};

/// Bytes of one literal.
pub(super) const LITERAL_LENGTH_MAX: usize = 15;

/// Text of a few bytes without allocation, because loading a rule set creates a hundred thousand of
/// them.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Literal {
    bytes: [u8; LITERAL_LENGTH_MAX],
    length: u8,
}

impl Literal {
    /// The text, or its first bytes if it is too long.
    pub(crate) fn cut(text: &[u8]) -> Self {
        let length = text.len().min(LITERAL_LENGTH_MAX);
        let mut literal = Self { length: length as u8, ..Self::default() };
        literal.bytes[..length].copy_from_slice(&text[..length]);
        literal
    }

    /// The same in lower case.
    pub(super) fn lower(text: &[u8]) -> Self {
        let mut literal = Self::cut(text);
        literal.bytes.make_ascii_lowercase();
        literal
    }

    /// The two texts one after the other, if they fit.
    pub(super) fn with(mut self, tail: &Self) -> Option<Self> {
        let (start, end) = (self.len(), self.len() + tail.len());
        self.bytes.get_mut(start..end)?.copy_from_slice(tail);
        self.length = end as u8;
        Some(self)
    }

    /// Sort key of the text.
    fn key(&self) -> u128 {
        let mut bytes = [0; LITERAL_LENGTH_MAX + 1];
        bytes[..LITERAL_LENGTH_MAX].copy_from_slice(&self.bytes);
        bytes[LITERAL_LENGTH_MAX] = self.length;
        u128::from_be_bytes(bytes)
    }
}

/// Literal whose bytes stand in a text in this order, with only bytes of a set between them.
#[derive(Debug)]
pub(super) struct Spread {
    pub(super) literal: Literal,
    pub(super) removed: Bytes,
}

impl Spread {
    /// True if the text contains it, in any case.
    pub(super) fn is_in(&self, text: &[u8]) -> bool {
        // The bytes of markup are rare in requests, but not in pages.
        let share = |byte: u8| if byte.is_ascii_punctuation() { 1. } else { share(&[byte]) };
        let bytes = self.literal.iter().enumerate();
        let rarest = bytes.min_by(|(_, a), (_, b)| share(**a).total_cmp(&share(**b)));
        let Some((rarest, &byte)) = rarest else { return true };
        let (before, after) = (&self.literal[..rarest], &self.literal[rarest + 1..]);
        memchr::memchr2_iter(byte, byte.to_ascii_uppercase(), text).any(|at| {
            self.follows(text[..at].iter().rev(), before.iter().rev())
                && self.follows(text[at + 1..].iter(), after.iter())
        })
    }

    /// True if the bytes are the next ones of a text.
    fn follows<'a>(
        &self,
        text: impl Iterator<Item = &'a u8>,
        mut bytes: impl Iterator<Item = &'a u8>,
    ) -> bool {
        let mut kept = text.filter(|&&byte| !self.removed.contains(byte));
        bytes.all(|byte| kept.next().is_some_and(|next| next.eq_ignore_ascii_case(byte)))
    }
}

impl Hash for Literal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl PartialOrd for Literal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Literal {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Deref for Literal {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_between_those_of_a_literal_are_of_the_set() {
        let spread = Spread { literal: Literal::lower(b"<a>key"), removed: Bytes::of(b" \n") };
        for text in ["<a>key", "x<A> K\n e  Y.", "<a>kk < a > k e y"] {
            assert!(spread.is_in(text.as_bytes()), "{text}");
        }
        for text in ["", "k", "<a>ke", "a>key", "<a>.key", "<a>k\0ey", "ke<a>y"] {
            assert!(!spread.is_in(text.as_bytes()), "{text}");
        }
    }
}
