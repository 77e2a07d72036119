//! The static and the dynamic table (RFC 7541, section 2.3).

use std::collections::VecDeque;

/// Added to the length of name and value for the size of an entry (RFC 7541, section 4.1).
pub(crate) const ENTRY_OVERHEAD: usize = 32;

/// RFC 7541, appendix A. Index 1 is the first.
#[rustfmt::skip]
pub(crate) static STATIC: [(&[u8], &[u8]); 61] = [
    (b":authority", b""), (b":method", b"GET"), (b":method", b"POST"), (b":path", b"/"), (b":path", b"/index.html"),
    (b":scheme", b"http"), (b":scheme", b"https"), (b":status", b"200"), (b":status", b"204"), (b":status", b"206"),
    (b":status", b"304"), (b":status", b"400"), (b":status", b"404"), (b":status", b"500"), (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"), (b"accept-language", b""), (b"accept-ranges", b""), (b"accept", b""),
    (b"access-control-allow-origin", b""), (b"age", b""), (b"allow", b""), (b"authorization", b""),
    (b"cache-control", b""), (b"content-disposition", b""), (b"content-encoding", b""), (b"content-language", b""),
    (b"content-length", b""), (b"content-location", b""), (b"content-range", b""), (b"content-type", b""),
    (b"cookie", b""), (b"date", b""), (b"etag", b""), (b"expect", b""), (b"expires", b""), (b"from", b""),
    (b"host", b""), (b"if-match", b""), (b"if-modified-since", b""), (b"if-none-match", b""), (b"if-range", b""),
    (b"if-unmodified-since", b""), (b"last-modified", b""), (b"link", b""), (b"location", b""),
    (b"max-forwards", b""), (b"proxy-authenticate", b""), (b"proxy-authorization", b""), (b"range", b""),
    (b"referer", b""), (b"refresh", b""), (b"retry-after", b""), (b"server", b""), (b"set-cookie", b""),
    (b"strict-transport-security", b""), (b"transfer-encoding", b""), (b"user-agent", b""), (b"vary", b""),
    (b"via", b""), (b"www-authenticate", b""),
];

/// Entries in the order of insertion, dropped from the front when the size exceeds its maximum.
///
/// Names and values are consecutive in one buffer, which is compacted when it is half empty, so that inserting costs
/// no allocation once the buffer has grown.
#[derive(Debug)]
pub(crate) struct DynamicTable {
    entries: VecDeque<Entry>,
    bytes: Vec<u8>,
    /// Sum of the sizes of all entries.
    size: usize,
    size_max: usize,
    /// Number of entries dropped so far.
    dropped: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u32,
    name_len: u32,
    value_len: u32,
}

impl Entry {
    fn size(self) -> usize {
        self.name_len as usize + self.value_len as usize + ENTRY_OVERHEAD
    }
}

impl DynamicTable {
    pub(crate) fn new(size_max: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: Vec::new(), size: 0, size_max, dropped: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn size_max(&self) -> usize {
        self.size_max
    }

    /// Number of the next entry inserted, counted from 0 over the table's life.
    pub(crate) fn next_number(&self) -> u32 {
        self.dropped.wrapping_add(self.entries.len() as u32)
    }

    /// Index of the entry with this number, 0 for the newest; `None` if it was dropped.
    pub(crate) fn index_of(&self, number: u32) -> Option<usize> {
        let age = self.next_number().wrapping_sub(number).checked_sub(1)? as usize;
        (age < self.entries.len()).then_some(age)
    }

    /// Returns name and value of an entry; 0 is the newest.
    pub(crate) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let position = self.entries.len().checked_sub(index + 1)?;
        let entry = self.entries[position];
        let start = entry.start as usize;
        let value = start + entry.name_len as usize;
        let end = value + entry.value_len as usize;
        Some((&self.bytes[start..value], &self.bytes[value..end]))
    }

    pub(crate) fn set_size_max(&mut self, size_max: usize) {
        self.size_max = size_max;
        self.drop_to(size_max);
    }

    /// Inserts an entry and returns true. An entry larger than the table only empties it and returns false.
    pub(crate) fn insert(&mut self, name: &[u8], value: &[u8]) -> bool {
        let size = name.len() + value.len() + ENTRY_OVERHEAD;
        self.drop_to(self.size_max.saturating_sub(size));
        if size > self.size_max {
            return false;
        }
        let start = self.entries.front().map_or(self.bytes.len(), |entry| entry.start as usize);
        if start >= self.size_max {
            self.compact(start);
        }
        let entry = Entry {
            start: self.bytes.len() as u32,
            name_len: name.len() as u32,
            value_len: value.len() as u32,
        };
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_back(entry);
        self.size += size;
        true
    }

    fn compact(&mut self, start: usize) {
        self.bytes.drain(..start);
        for entry in &mut self.entries {
            entry.start -= start as u32;
        }
    }

    fn drop_to(&mut self, size: usize) {
        while self.size > size
            && let Some(entry) = self.entries.pop_front()
        {
            self.size -= entry.size();
            self.dropped = self.dropped.wrapping_add(1);
        }
        if self.entries.is_empty() {
            self.bytes.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_entries_make_room_and_numbers_stay() {
        // Three entries of 40 bytes.
        let mut table = DynamicTable::new(120);
        for number in 0..1000_u32 {
            assert_eq!(table.next_number(), number);
            let value = format!("{number:07}");
            assert!(table.insert(b"n", value.as_bytes()));
            assert_eq!(table.get(0), Some((&b"n"[..], value.as_bytes())));
            assert_eq!(table.index_of(number), Some(0));
            assert_eq!(table.index_of(number + 1), None);
            assert!(table.bytes.len() <= 2 * 120);
        }
        assert_eq!(table.len(), 3);
        assert_eq!(table.get(2), Some((&b"n"[..], &b"0000997"[..])));
        assert_eq!((table.index_of(997), table.index_of(996)), (Some(2), None));
        assert_eq!(table.get(3), None);
        table.set_size_max(79);
        assert_eq!((table.len(), table.size), (1, 40));
    }

    #[test]
    fn entry_larger_than_the_table_empties_it() {
        let mut table = DynamicTable::new(64);
        assert!(table.insert(b"a", b"b"));
        assert!(!table.insert(&[b'a'; 30], b"bcd"));
        assert_eq!((table.len(), table.size), (0, 0));
        assert!(table.insert(&[b'a'; 30], b"bc"));
    }
}
