//! Encoding field blocks.

use std::collections::VecDeque;

use super::table::{DynamicTable, ENTRY_OVERHEAD, STATIC};
use super::{DEFAULT_TABLE_SIZE, huffman};

/// Encoder of one direction of a connection.
///
/// A field that either table holds becomes an index. Any other one is inserted, except:
///
/// - sensitive ones, which are never indexed (RFC 7541, section 7.1.3): those that the caller marks, credentials, and
///   short cookies, which could be guessed;
/// - volatile fields such as `:path`, until a value repeats;
/// - those that would take most of the table.
#[derive(Debug)]
pub struct Encoder {
    table: DynamicTable,
    /// Entries by name and value, and by name.
    by_field: Index,
    by_name: Index,
    /// Hashes of fields that were not inserted, each in the place given by its hash.
    seen: [u32; SEEN],
    /// Our limit for the table, regardless of the peer's.
    size_limit: u32,
    /// Size of the table and the smallest size since the last block, if the next block has to announce them.
    size_update: Option<(u32, u32)>,
}

const SEEN: usize = 32;

/// Fields inserted only once a value repeats.
const VOLATILE: [&[u8]; 12] = [
    b":path",
    b"age",
    b"content-length",
    b"content-range",
    b"cookie",
    b"etag",
    b"if-modified-since",
    b"if-none-match",
    b"last-modified",
    b"location",
    b"range",
    b"set-cookie",
];

/// Cookies below this length are never indexed.
const GUESSABLE_COOKIE_BYTES: usize = 20;

impl Encoder {
    /// Creates an encoder whose table takes at most `size_limit` bytes.
    pub fn new(size_limit: u32) -> Self {
        let mut encoder = Self {
            table: DynamicTable::new(DEFAULT_TABLE_SIZE as usize),
            by_field: Index::default(),
            by_name: Index::default(),
            seen: [0; SEEN],
            size_limit,
            size_update: None,
        };
        encoder.set_peer_limit(DEFAULT_TABLE_SIZE);
        encoder
    }

    /// Applies the peer's `SETTINGS_HEADER_TABLE_SIZE`.
    pub fn set_peer_limit(&mut self, limit: u32) {
        let size = limit.min(self.size_limit);
        let current = self.table.size_max() as u32;
        if size == current && self.size_update.is_none() {
            return;
        }
        let smallest = self.size_update.map_or(size, |(_, smallest)| smallest.min(size));
        self.size_update = Some((size, smallest));
        self.table.set_size_max(size as usize);
        self.by_field.truncate(self.table.len());
        self.by_name.truncate(self.table.len());
    }

    /// Number of fields inserted so far. A block that was encoded without an insertion can be sent again until it
    /// changes.
    pub fn insertions(&self) -> u32 {
        self.table.next_number()
    }

    /// Starts a block. Must precede its first field.
    pub fn start(&mut self, out: &mut Vec<u8>) {
        if let Some((size, smallest)) = self.size_update.take() {
            if smallest < size {
                write_integer(smallest, 5, 0x20, out);
            }
            write_integer(size, 5, 0x20, out);
        }
    }

    /// Appends a field to the block. `is_sensitive`: it was received as never indexed, or must not be guessable.
    #[inline]
    pub fn encode(&mut self, name: &[u8], value: &[u8], is_sensitive: bool, out: &mut Vec<u8>) {
        let name_hash = name_hash(name);
        let static_name = static_index(name, name_hash);
        if is_sensitive || is_credential(name, value) {
            return self.literal(0x10, 4, name, name_hash, static_name, value, out);
        }
        if let Some(first) = static_name {
            let values = STATIC[first..].iter().take_while(|(other, _)| *other == name);
            if let Some(offset) = values.map(|(_, value)| *value).position(|other| other == value) {
                return write_integer((first + offset + 1) as u32, 7, 0x80, out);
            }
        }
        let hash = field_hash(name_hash, value);
        let found = self.by_field.find(hash, &self.table, |entry| entry == (name, value));
        if let Some(index) = found {
            return write_integer((STATIC.len() + index + 1) as u32, 7, 0x80, out);
        }
        if !self.is_worth_inserting(name, value, hash) {
            return self.literal(0, 4, name, name_hash, static_name, value, out);
        }
        self.literal(0x40, 6, name, name_hash, static_name, value, out);
        let number = self.table.next_number();
        if self.table.insert(name, value) {
            self.by_field.push(hash, number, self.table.len());
            self.by_name.push(name_hash, number, self.table.len());
        }
    }

    fn is_worth_inserting(&mut self, name: &[u8], value: &[u8], hash: u32) -> bool {
        let size = name.len() + value.len() + ENTRY_OVERHEAD;
        if size > self.table.size_max() / 2 {
            return false;
        }
        if !VOLATILE.contains(&name) {
            return true;
        }
        let seen = &mut self.seen[hash as usize % SEEN];
        let repeats = *seen == hash;
        *seen = hash;
        repeats
    }

    /// Appends a literal; the index of its name has a prefix of `prefix_bits`.
    #[expect(clippy::too_many_arguments, reason = "what the caller has looked up")]
    fn literal(
        &self,
        representation: u8,
        prefix_bits: u32,
        name: &[u8],
        name_hash: u32,
        static_name: Option<usize>,
        value: &[u8],
        out: &mut Vec<u8>,
    ) {
        let dynamic = || {
            let index = self.by_name.find(name_hash, &self.table, |(other, _)| other == name)?;
            Some(STATIC.len() + index)
        };
        match static_name.or_else(dynamic) {
            Some(index) => write_integer((index + 1) as u32, prefix_bits, representation, out),
            None => {
                out.push(representation);
                write_string(name, out);
            }
        }
        write_string(value, out);
    }
}

fn is_credential(name: &[u8], value: &[u8]) -> bool {
    match name.len() {
        6 => name == b"cookie" && value.len() < GUESSABLE_COOKIE_BYTES,
        13 => name == b"authorization",
        19 => name == b"proxy-authorization",
        _ => false,
    }
}

/// Appends an integer with a prefix of `prefix_bits` below the bits of the representation.
fn write_integer(value: u32, prefix_bits: u32, representation: u8, out: &mut Vec<u8>) {
    let prefix_max = (1 << prefix_bits) - 1;
    if value < prefix_max {
        out.push(representation | value as u8);
        return;
    }
    out.push(representation | prefix_max as u8);
    let mut rest = value - prefix_max;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn write_string(bytes: &[u8], out: &mut Vec<u8>) {
    let encoded_len = huffman::encoded_len(bytes);
    if encoded_len < bytes.len() {
        write_integer(encoded_len as u32, 7, 0x80, out);
        huffman::encode(bytes, out);
    } else {
        write_integer(bytes.len() as u32, 7, 0, out);
        out.extend_from_slice(bytes);
    }
}

/// Entries of the dynamic table by hash. Entries of one bucket are a chain from the newest to the oldest; one that the
/// table has dropped ends it.
#[derive(Debug)]
struct Index {
    newest: [Option<u32>; BUCKETS],
    links: VecDeque<Link>,
}

const BUCKETS: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Link {
    hash: u32,
    /// Number of the next older entry of the bucket.
    older: Option<u32>,
}

impl Default for Index {
    fn default() -> Self {
        Self { newest: [None; BUCKETS], links: VecDeque::new() }
    }
}

impl Index {
    /// Adds the newest entry of a table that has `entries` now.
    fn push(&mut self, hash: u32, number: u32, entries: usize) {
        let newest = &mut self.newest[hash as usize % BUCKETS];
        self.links.push_back(Link { hash, older: newest.replace(number) });
        self.truncate(entries);
    }

    fn truncate(&mut self, entries: usize) {
        self.links.drain(..self.links.len().saturating_sub(entries));
    }

    /// Returns the newest entry with this hash that `matches`; 0 is the newest of the table.
    fn find(
        &self,
        hash: u32,
        table: &DynamicTable,
        matches: impl Fn((&[u8], &[u8])) -> bool,
    ) -> Option<usize> {
        let mut number = self.newest[hash as usize % BUCKETS]?;
        loop {
            let index = table.index_of(number)?;
            let link = self.links[self.links.len() - 1 - index];
            if link.hash == hash && table.get(index).is_some_and(&matches) {
                return Some(index);
            }
            number = link.older?;
        }
    }
}

/// Hash of a name from its length and three bytes, which separates the names of the static table. A collision costs a
/// few comparisons.
const fn name_hash(name: &[u8]) -> u32 {
    let len = name.len();
    if len == 0 {
        return 0;
    }
    let sample = (name[0] as u32) << 16 | (name[len / 2] as u32) << 8 | name[len - 1] as u32;
    mix(sample ^ (len as u32) << 24)
}

const fn mix(value: u32) -> u32 {
    let product = value.wrapping_mul(0x9e37_79b1);
    product ^ product >> 15
}

/// Bytes at each end of a value that its hash covers.
const HASHED_BYTES: usize = 32;

fn field_hash(name_hash: u32, value: &[u8]) -> u32 {
    let head = &value[..value.len().min(HASHED_BYTES)];
    let tail = &value[head.len().max(value.len().saturating_sub(HASHED_BYTES))..];
    let mut hash = u64::from(name_hash) ^ (value.len() as u64) << 32;
    let mut add =
        |word: u64| hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for part in [head, tail] {
        let (words, rest) = part.as_chunks::<8>();
        words.iter().for_each(|word| add(u64::from_le_bytes(*word)));
        add(rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    }
    (hash >> 32) as u32
}

const STATIC_BUCKETS: usize = 128;

/// First entry of the static table with each name, by the hash of the name: linear probing, 0 for none.
static STATIC_NAMES: [u8; STATIC_BUCKETS] = {
    let mut buckets = [0; STATIC_BUCKETS];
    let mut index = 0;
    while index < STATIC.len() {
        let name = STATIC[index].0;
        if index == 0 || !is_equal(name, STATIC[index - 1].0) {
            let mut bucket = name_hash(name) as usize % STATIC_BUCKETS;
            while buckets[bucket] != 0 {
                bucket = (bucket + 1) % STATIC_BUCKETS;
            }
            buckets[bucket] = index as u8 + 1;
        }
        index += 1;
    }
    buckets
};

const fn is_equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Position of the first entry of the static table with this name.
fn static_index(name: &[u8], hash: u32) -> Option<usize> {
    let mut bucket = hash as usize % STATIC_BUCKETS;
    loop {
        let index = usize::from(STATIC_NAMES[bucket]).checked_sub(1)?;
        if STATIC[index].0 == name {
            return Some(index);
        }
        bucket = (bucket + 1) % STATIC_BUCKETS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_names_are_found_at_their_first_entry() {
        for (name, _) in &STATIC {
            let first = STATIC.iter().position(|(other, _)| other == name);
            assert_eq!(static_index(name, name_hash(name)), first);
        }
        for other in [&b"x-forwarded-for"[..], b"", b"Host"] {
            assert_eq!(static_index(other, name_hash(other)), None);
        }
    }
}
