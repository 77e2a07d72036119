//! Finding a substring of a body, whose bytes come split anywhere.

use memchr::memmem::Finder;

/// What is looked for: at least one byte, prepared once for any number of searches.
#[derive(Clone, Debug)]
pub struct Needle {
    finder: Finder<'static>,
    /// For each prefix of the needle, by its last byte: how long the longest shorter prefix is that
    /// it ends in. This is the failure function of Knuth, Morris and Pratt (SIAM Journal on
    /// Computing 6, 1977).
    borders: Vec<usize>,
}

/// How far the search for one needle in one body has come. Keeps a number, and no bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct BodySearch {
    /// How long the longest beginning of the needle is that the bytes so far end in.
    matched_bytes: usize,
    found: bool,
}

impl Needle {
    /// Prepares a search for `bytes`; `None` when there are none, since nothing is in every body.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return None;
        }
        let mut needle = Self { finder: Finder::new(bytes).into_owned(), borders: vec![0] };
        for &byte in &bytes[1..] {
            let longest = needle.borders[needle.borders.len() - 1];
            let border = needle.extend(longest, byte);
            needle.borders.push(border);
        }
        Some(needle)
    }

    /// The longest beginning of the needle that bytes end in, given that they ended in one of
    /// `matched_bytes`, less than all, before `byte`.
    fn extend(&self, mut matched_bytes: usize, byte: u8) -> usize {
        let needle = self.finder.needle();
        while needle[matched_bytes] != byte {
            match matched_bytes.checked_sub(1) {
                Some(last) => matched_bytes = self.borders[last],
                None => return 0,
            }
        }
        matched_bytes + 1
    }
}

impl BodySearch {
    /// A search at the start of a body.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets what was seen, for the next body.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Looks at the next piece of the body, for the same needle as in the pieces before.
    pub fn feed(&mut self, needle: &Needle, piece: &[u8]) {
        if self.found {
            return;
        }
        let needle_bytes = needle.borders.len();
        // What has begun in the pieces before goes on until this piece holds all that is matched.
        let mut seen = 0;
        while self.matched_bytes > seen && seen < piece.len() {
            self.matched_bytes = needle.extend(self.matched_bytes, piece[seen]);
            seen += 1;
            if self.matched_bytes == needle_bytes {
                self.found = true;
                return;
            }
        }
        if self.matched_bytes > seen {
            return;
        }
        self.found = needle.finder.find(piece).is_some();
        if self.found {
            return;
        }
        // What begins in this piece and ends in a later one.
        let tail = &piece[piece.len().saturating_sub(needle_bytes - 1)..];
        self.matched_bytes = tail.iter().fold(0, |matched, &byte| needle.extend(matched, byte));
    }

    /// Whether the bytes so far contain the needle.
    #[must_use]
    pub fn found(&self) -> bool {
        self.found
    }
}
