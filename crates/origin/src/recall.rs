//! The request that is asked again and again.

/// The longest head, and the longest answer, that is remembered, in bytes.
const MAX_BYTES: usize = 2048;

/// Remembers the last request whose answer follows from its head alone, with that answer.
///
/// Under load a client sends the same request again, and comparing it is cheaper than parsing it and
/// putting its answer together. What a head says follows from its bytes, so that one memory serves all
/// connections of a thread.
#[derive(Debug, Default)]
pub(crate) struct Recall {
    /// With the empty line that ends it; empty before the first.
    head: Vec<u8>,
    answer: Vec<u8>,
    path: usize,
}

/// What is known of a request that was remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recalled<'a> {
    pub(crate) head_bytes: usize,
    pub(crate) answer: &'a [u8],
    /// The place of its endpoint in the table.
    pub(crate) path: usize,
}

impl Recall {
    /// The request at the start of `input`, if it is the one that is remembered.
    pub(crate) fn find(&self, input: &[u8]) -> Option<Recalled<'_>> {
        let is_same = !self.head.is_empty() && input.starts_with(&self.head);
        is_same.then(|| Recalled {
            head_bytes: self.head.len(),
            answer: &self.answer,
            path: self.path,
        })
    }

    /// Remembers a request instead of the one before, if it is short enough.
    pub(crate) fn remember(&mut self, head: &[u8], answer: &[u8], path: usize) {
        if head.len() > MAX_BYTES || answer.len() > MAX_BYTES {
            return;
        }
        self.head.clear();
        self.head.extend_from_slice(head);
        self.answer.clear();
        self.answer.extend_from_slice(answer);
        self.path = path;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_request_is_recalled_and_only_whole() {
        let mut recall = Recall::default();
        assert_eq!(recall.find(b"GET / HTTP/1.0\r\n\r\n"), None);
        recall.remember(b"GET / HTTP/1.0\r\n\r\n", b"first", 1);
        recall.remember(b"GET /a HTTP/1.0\r\n\r\n", b"second", 2);
        let second = Recalled { head_bytes: 19, answer: b"second", path: 2 };
        assert_eq!(recall.find(b"GET /a HTTP/1.0\r\n\r\nGET"), Some(second));
        for other in [
            &b"GET / HTTP/1.0\r\n\r\n"[..],
            b"GET /a HTTP/1.0\r\n\r",
            b"",
            b"GET /b HTTP/1.0\r\n\r\n",
        ] {
            assert_eq!(recall.find(other), None);
        }
        // What is too long leaves what was there.
        recall.remember(&[b'h'; MAX_BYTES + 1], b"", 3);
        recall.remember(b"h", &[b'a'; MAX_BYTES + 1], 3);
        assert_eq!(recall.find(b"GET /a HTTP/1.0\r\n\r\n"), Some(second));
    }
}
