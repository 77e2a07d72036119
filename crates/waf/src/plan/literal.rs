//! Literals: texts of a few bytes, which matches contain.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

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
