//! Caches of regexes of one thread.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use regex_automata::util::primitives::NonMaxUsize;

use crate::condition::Pattern;
use crate::regex::{Cache, Matcher, SearchLimit};

/// Captured groups that rules can read: `TX.0` to `TX.9`.
pub(crate) const CAPTURES: u32 = 10;

/// Regexes with macros that a worker keeps compiled, and bytes that one may take.
const EXPANDED_MAX: usize = 64;
const EXPANDED_SIZE_MAX: usize = 1 << 20;
/// Bytes of the text of such a regex.
const EXPANDED_TEXT_MAX: usize = 4096;

/// Caches of regexes, by their number.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    caches: Vec<Cache>,
    /// Regexes of the rule set. The numbers of those with expanded macros follow.
    patterns: usize,
    /// Regexes whose macros were expanded, by their text; `None` if it is invalid.
    expanded: HashMap<Vec<u8>, Option<Arc<Pattern>>>,
    slots: Vec<Option<NonMaxUsize>>,
}

impl Caches {
    /// Caches for the regexes of a rule set.
    pub(crate) fn new(patterns: usize) -> Self {
        Self {
            caches: (0..patterns).map(|_| Cache::default()).collect(),
            patterns,
            ..Self::default()
        }
    }

    #[inline]
    pub(crate) fn is_match(
        &mut self,
        pattern: &Pattern,
        value: &[u8],
        budget: &mut usize,
    ) -> Result<bool, SearchLimit> {
        pattern.matcher().is_match_with(&mut self.caches[pattern.index], value, budget)
    }

    /// False if no match lies within that part of the value, or begins where it begins if the part is anchored.
    pub(crate) fn may_match_within(
        &mut self,
        pattern: &Pattern,
        value: &[u8],
        part: Range<usize>,
        is_anchored: bool,
    ) -> bool {
        let cache = &mut self.caches[pattern.index];
        pattern.matcher().may_match_within(cache, value, part, is_anchored)
    }

    /// Searches the first match and writes its groups, up to [`CAPTURES`].
    pub(crate) fn captures(
        &mut self,
        pattern: &Pattern,
        value: &[u8],
        budget: &mut usize,
        found: &mut Vec<Option<(usize, usize)>>,
    ) -> Result<(), SearchLimit> {
        let (cache, slots) = (&mut self.caches[pattern.index], &mut self.slots);
        pattern.matcher().captures_with(cache, value, budget, slots, CAPTURES as usize, found)
    }

    /// Returns the regex of an expanded text; `None` if it is invalid or too large.
    pub(crate) fn expanded(&mut self, text: &[u8]) -> Option<Arc<Pattern>> {
        if text.len() > EXPANDED_TEXT_MAX {
            return None;
        }
        if let Some(known) = self.expanded.get(text) {
            return known.clone();
        }
        if self.expanded.len() == EXPANDED_MAX {
            self.expanded.clear();
            self.caches.truncate(self.patterns);
        }
        let pattern = compile_expanded(text).map(|matcher| {
            self.caches.push(Cache::default());
            Arc::new(Pattern::of(matcher, self.caches.len() - 1))
        });
        self.expanded.insert(text.to_vec(), pattern.clone());
        pattern
    }
}

fn compile_expanded(text: &[u8]) -> Option<Matcher> {
    let mut escaped = String::new();
    for &byte in text {
        match byte {
            0x80.. => escaped += &format!("\\x{byte:02x}"),
            _ => escaped.push(char::from(byte)),
        }
    }
    Matcher::with_size_limit(&escaped, EXPANDED_SIZE_MAX).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_expanded_texts_are_not_kept() {
        let mut caches = Caches::default();
        assert!(caches.expanded(&[b'x'; EXPANDED_TEXT_MAX]).is_some());
        assert!(caches.expanded(&[b'x'; EXPANDED_TEXT_MAX + 1]).is_none());
        assert!(caches.expanded(b"(").is_none());
        let mut kept: Vec<usize> = caches.expanded.keys().map(Vec::len).collect();
        kept.sort_unstable();
        assert_eq!(kept, [1, EXPANDED_TEXT_MAX]);
    }
}
