//! Nodes: the parts of regexes.

use std::hash::{BuildHasherDefault, Hasher};

use indexmap::Equivalent;

use super::bytes::Bytes;

/// Number of a node.
pub(crate) type Id = u32;

/// Part of a regex, with texts and lists as they are kept, or borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node<T = Box<[u8]>, L = Box<[Id]>> {
    /// Text, and true if its letters match in both cases.
    Text(T, bool),
    /// Assertion, as `Look::as_repr`.
    Look(u32),
    Class(Bytes),
    Repetition {
        min: u32,
        max: Option<u32>,
        greedy: bool,
        sub: Id,
    },
    Capture(Id),
    Concat(L),
    Alternation(L),
}

pub(super) type NodeRef<'a> = Node<&'a [u8], &'a [Id]>;

impl<T: AsRef<[u8]>, L: AsRef<[Id]>> Node<T, L> {
    pub(super) fn map<'a, U, M>(
        &'a self,
        text: impl Fn(&'a [u8]) -> U,
        list: impl Fn(&'a [Id]) -> M,
    ) -> Node<U, M> {
        match self {
            Self::Text(bytes, caseless) => Node::Text(text(bytes.as_ref()), *caseless),
            Self::Look(look) => Node::Look(*look),
            Self::Class(set) => Node::Class(*set),
            &Self::Repetition { min, max, greedy, sub } => {
                Node::Repetition { min, max, greedy, sub }
            }
            Self::Capture(sub) => Node::Capture(*sub),
            Self::Concat(parts) => Node::Concat(list(parts.as_ref())),
            Self::Alternation(parts) => Node::Alternation(list(parts.as_ref())),
        }
    }
}

impl Equivalent<Node> for NodeRef<'_> {
    fn equivalent(&self, known: &Node) -> bool {
        *self == known.map(|text| text, |list| list)
    }
}

pub(super) type NodeHash = BuildHasherDefault<NodeHasher>;

/// Hash of nodes and literals. Collision attacks do not matter: nodes are short, and a user controls only their own
/// rules.
#[derive(Default)]
pub(super) struct NodeHasher(u64);

impl Hasher for NodeHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks();
        for chunk in chunks {
            self.write_u64(u64::from_ne_bytes(*chunk));
        }
        self.write_u64(rest.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)));
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}
