//! Heads that come again and again. What becomes of one follows from its bytes and from a little around
//! them, so that comparing it with the last ones is enough, and cheaper than parsing it and writing it
//! anew.

use std::net::IpAddr;

use tollgate_wire::{BodyFraming, Version};

use crate::forward::Asked;
use crate::pool::Key;

/// The longest head that is remembered, in bytes, as it came.
const HEAD_MAX_BYTES: usize = 2048;

/// How many heads are remembered at a time.
const HEADS: usize = 4;

/// The last heads under a key, with what became of them.
#[derive(Debug)]
pub(crate) struct Recall<Key, Meaning> {
    heads: Vec<Remembered<Key, Meaning>>,
    /// The one that is forgotten next.
    oldest: usize,
}

/// One head that came.
#[derive(Debug)]
pub(crate) struct Remembered<Key, Meaning> {
    head: Vec<u8>,
    key: Key,
    pub(crate) meaning: Meaning,
    /// The head that goes on in its place.
    pub(crate) rendered: Vec<u8>,
}

/// What decides about a request's head besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestKey {
    pub(crate) site: usize,
    pub(crate) listener: usize,
    pub(crate) ip: Option<IpAddr>,
    /// A listener may have had clients of both kinds, when a reload has changed that.
    pub(crate) is_tls: bool,
}

/// What a request's head says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestMeaning {
    pub(crate) asked: Asked,
    pub(crate) route: usize,
    pub(crate) hash: Key,
}

/// What decides about an answer's head besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerKey {
    pub(crate) site: usize,
    pub(crate) route: usize,
    pub(crate) is_head: bool,
    pub(crate) version: Version,
    /// The client's connection can outlive the answer.
    pub(crate) stays_open: bool,
}

/// What the head of a final answer says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerMeaning {
    pub(crate) status: u16,
    pub(crate) head_bytes: usize,
    pub(crate) framing: BodyFraming,
    /// The backend keeps its connection open.
    pub(crate) keep_alive: bool,
    /// The client's connection ends with the answer.
    pub(crate) closes: bool,
    /// Its body goes on without the chunked coding that it came in.
    pub(crate) strips_coding: bool,
    /// Where in the head that goes on the gateway's date is, for want of one of the backend's.
    pub(crate) date_at: Option<usize>,
}

impl<Key: Copy + PartialEq, Meaning: Copy> Recall<Key, Meaning> {
    /// The head at the start of `bytes`, if it is one that is remembered.
    #[inline]
    pub(crate) fn find(&self, bytes: &[u8], key: Key) -> Option<&Remembered<Key, Meaning>> {
        self.heads.iter().find(|known| bytes.starts_with(&known.head) && known.key == key)
    }

    /// Remembers a head in the place of the one that is remembered longest, if it is short enough.
    pub(crate) fn remember(&mut self, head: &[u8], key: Key, meaning: Meaning, rendered: &[u8]) {
        if head.len() > HEAD_MAX_BYTES {
            return;
        }
        if self.heads.len() < HEADS {
            self.heads.push(Remembered { head: Vec::new(), key, meaning, rendered: Vec::new() });
            self.oldest = self.heads.len() - 1;
        }
        let place = &mut self.heads[self.oldest];
        place.head.clear();
        place.head.extend_from_slice(head);
        place.rendered.clear();
        place.rendered.extend_from_slice(rendered);
        place.key = key;
        place.meaning = meaning;
        self.oldest = (self.oldest + 1) % HEADS;
    }

    /// Forgets all, as when the configuration is another.
    pub(crate) fn clear(&mut self) {
        self.heads.clear();
        self.oldest = 0;
    }
}

impl<Key, Meaning> Default for Recall<Key, Meaning> {
    fn default() -> Self {
        Self { heads: Vec::new(), oldest: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_heads_under_the_same_key_are_recalled_and_the_oldest_is_forgotten() {
        let mut recall: Recall<u8, usize> = Recall::default();
        assert!(recall.find(b"a\n\n", 1).is_none());
        for (at, head) in [b"a\n\n", b"b\n\n", b"c\n\n", b"d\n\n", b"e\n\n"].iter().enumerate() {
            recall.remember(*head, 1, at, &head[..1]);
        }
        assert!(recall.find(b"a\n\n", 1).is_none());
        let found = recall.find(b"b\n\nmore", 1).unwrap();
        assert_eq!((found.meaning, &found.rendered[..]), (1, &b"b"[..]));
        assert!(recall.find(b"b\n", 1).is_none());
        assert!(recall.find(b"b\n\n", 2).is_none());
        assert_eq!(recall.find(b"e\n\n", 1).unwrap().meaning, 4);
        recall.clear();
        assert!(recall.find(b"e\n\n", 1).is_none());
    }
}
