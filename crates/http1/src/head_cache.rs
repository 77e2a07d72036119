//! Cache of message heads that repeat byte for byte.

/// Limit in bytes for a cached head, and for the bytes stored with it.
pub const MAX_CACHED_HEAD_BYTES: usize = 2048;

/// The last `N` heads, each with its derived value.
///
/// Under load a peer resends the same head, and comparing it costs less than parsing it. `Key` is the context, besides
/// the bytes, that determines the meaning of a head; one cache can serve all connections of a thread.
#[derive(Debug)]
pub struct HeadCache<Key, Value, const N: usize> {
    entries: [Option<CachedHead<Key, Value>>; N],
    /// Index of the entry to replace next.
    oldest: usize,
}

#[derive(Debug)]
pub struct CachedHead<Key, Value> {
    head: Vec<u8>,
    key: Key,
    pub value: Value,
    /// Bytes stored with it, such as the head to forward or the response to send.
    pub rendered: Vec<u8>,
}

impl<Key, Value> CachedHead<Key, Value> {
    /// Returns the head as received, with the empty line that ends it.
    pub fn head(&self) -> &[u8] {
        &self.head
    }
}

impl<Key, Value, const N: usize> Default for HeadCache<Key, Value, N> {
    /// Creates an empty cache. It allocates on insertion only.
    fn default() -> Self {
        const { assert!(N > 0, "a cache holds at least one head") };
        Self { entries: [const { None }; N], oldest: 0 }
    }
}

impl<Key: PartialEq, Value, const N: usize> HeadCache<Key, Value, N> {
    /// Returns the entry whose head `bytes` starts with.
    #[inline]
    pub fn find(&self, bytes: &[u8], key: &Key) -> Option<&CachedHead<Key, Value>> {
        // The bytes differ more often than the key.
        let is_hit =
            |entry: &&CachedHead<Key, Value>| bytes.starts_with(&entry.head) && entry.key == *key;
        self.entries.iter().flatten().find(is_hit)
    }

    /// Replaces the oldest entry. `head` must end with its empty line, so that it is no prefix of another
    /// head. Does nothing if `head` or `rendered` is longer than [`MAX_CACHED_HEAD_BYTES`].
    pub fn insert(&mut self, head: &[u8], key: Key, value: Value, rendered: &[u8]) {
        if head.len().max(rendered.len()) > MAX_CACHED_HEAD_BYTES {
            return;
        }
        let entry = &mut self.entries[self.oldest];
        let (mut head_buffer, mut rendered_buffer) = match entry.take() {
            Some(replaced) => (replaced.head, replaced.rendered),
            None => (Vec::new(), Vec::new()),
        };
        head_buffer.clear();
        head_buffer.extend_from_slice(head);
        rendered_buffer.clear();
        rendered_buffer.extend_from_slice(rendered);
        *entry = Some(CachedHead { head: head_buffer, key, value, rendered: rendered_buffer });
        self.oldest = (self.oldest + 1) % N;
    }

    /// Returns the entry inserted last.
    pub fn last(&self) -> Option<&CachedHead<Key, Value>> {
        self.entries[(self.oldest + N - 1) % N].as_ref()
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
