//! Values of a transaction that come from the request and the response.

use crate::variable::{Variable, Variables};

/// Bytes of an [`Entries`] buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    start: u32,
    length: u32,
}

/// Value with its variable and name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) variable: Variable,
    pub(crate) name: Span,
    pub(crate) value: Span,
}

/// The values that rules read, in one buffer that is reused by the next transaction.
#[derive(Debug)]
pub(crate) struct Entries {
    bytes: Vec<u8>,
    all: Vec<Entry>,
    by_variable: Vec<Vec<u32>>,
    /// Variables whose values are stored.
    read: Variables,
    /// Bytes that all values together may take.
    limit: usize,
    /// Values that did not fit.
    dropped: usize,
}

impl Entries {
    pub(crate) fn new(limit: usize, read: Variables) -> Self {
        Self {
            bytes: Vec::new(),
            all: Vec::new(),
            by_variable: vec![Vec::new(); Variable::ALL.len()],
            read,
            limit: limit.min(u32::MAX as usize),
            dropped: 0,
        }
    }

    /// Removes all values and returns memory above `retained` bytes to the system.
    pub(crate) fn clear(&mut self, retained: usize) {
        for entry in self.all.drain(..) {
            let list = &mut self.by_variable[entry.variable as usize];
            list.clear();
            list.shrink_to(retained / 64);
        }
        self.bytes.clear();
        self.bytes.shrink_to(retained);
        self.all.shrink_to(retained / 16);
        self.dropped = 0;
    }

    /// Variables whose values are stored.
    pub(crate) fn read(&self) -> Variables {
        self.read
    }

    /// Copies bytes into the buffer. Returns `None` if they do not fit.
    fn store(&mut self, bytes: &[u8]) -> Option<Span> {
        if bytes.len() > self.limit - self.bytes.len().min(self.limit) {
            self.dropped += 1;
            return None;
        }
        let span = Span { start: self.bytes.len() as u32, length: bytes.len() as u32 };
        self.bytes.extend_from_slice(bytes);
        Some(span)
    }

    /// Adds a value that is already stored.
    fn add_stored(&mut self, variable: Variable, name: Span, value: Span) {
        if self.read.contains(variable) {
            self.by_variable[variable as usize].push(self.all.len() as u32);
            self.all.push(Entry { variable, name, value });
        }
    }

    /// Adds a value to one collection and its name to another. Returns false if they do not fit.
    pub(crate) fn add_named(
        &mut self,
        [values, names]: [Variable; 2],
        name: &[u8],
        value: &[u8],
    ) -> bool {
        if !self.read.contains_any(&[values, names]) {
            return true;
        }
        let (Some(name), Some(value)) = (self.store(name), self.store(value)) else { return false };
        self.add_stored(names, name, name);
        self.add_stored(values, name, value);
        true
    }

    /// Adds a value of a collection.
    pub(crate) fn add(&mut self, variable: Variable, name: &[u8], value: &[u8]) {
        if !self.read.contains(variable) {
            return;
        }
        if let (Some(name), Some(value)) = (self.store(name), self.store(value)) {
            self.add_stored(variable, name, value);
        }
    }

    /// Replaces the value of a variable without names.
    pub(crate) fn set(&mut self, variable: Variable, value: &[u8]) {
        self.by_variable[variable as usize].clear();
        self.add(variable, b"", value);
    }

    pub(crate) fn set_number(&mut self, variable: Variable, value: usize) {
        let mut text = [0; 20];
        self.set(variable, decimal(value as u64, &mut text));
    }

    pub(crate) fn bytes(&self, span: Span) -> &[u8] {
        &self.bytes[span.start as usize..][..span.length as usize]
    }

    pub(crate) fn value(&self, index: u32) -> &[u8] {
        self.bytes(self.all[index as usize].value)
    }

    pub(crate) fn entry(&self, index: u32) -> Entry {
        self.all[index as usize]
    }

    /// Indexes of the values of one physical variable, in order.
    pub(crate) fn list(&self, variable: Variable) -> &[u32] {
        &self.by_variable[variable as usize]
    }

    /// First value of a variable, under a name in lower case if it is a collection.
    pub(crate) fn first(&self, variable: Variable, name: &[u8]) -> Option<&[u8]> {
        let list = self.list(variable).iter();
        let found = list.copied().find(|&index| {
            name.is_empty() || self.bytes(self.all[index as usize].name).eq_ignore_ascii_case(name)
        });
        found.map(|index| self.value(index))
    }

    /// Values that were dropped because the buffer was full.
    pub(crate) fn dropped(&self) -> usize {
        self.dropped
    }
}

/// Writes a number as decimal digits.
pub(crate) fn decimal(mut value: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return &buffer[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read() -> Variables {
        [Variable::ArgsGet, Variable::RequestUri].into_iter().collect()
    }

    #[test]
    fn stores_only_what_is_read() {
        let mut entries = Entries::new(100, read());
        entries.set(Variable::QueryString, b"a=1");
        assert!(entries.add_named([Variable::ArgsPost, Variable::ArgsPostNames], b"a", b"1"));
        assert!(entries.all.is_empty() && entries.bytes.is_empty());
        assert!(entries.add_named([Variable::ArgsGet, Variable::ArgsGetNames], b"a", b"1"));
        assert_eq!(
            (entries.all.len(), entries.first(Variable::ArgsGet, b"a")),
            (1, Some(&b"1"[..]))
        );
    }

    #[test]
    fn keeps_order_and_replaces_scalars() {
        let mut entries = Entries::new(100, read());
        entries.add(Variable::ArgsGet, b"A", b"1");
        entries.set(Variable::RequestUri, b"/x");
        entries.add(Variable::ArgsGet, b"b", b"2");
        entries.set(Variable::RequestUri, b"/y");
        let values: Vec<_> =
            entries.list(Variable::ArgsGet).iter().map(|&i| entries.value(i)).collect();
        assert_eq!(values, [b"1", b"2"]);
        assert_eq!(entries.first(Variable::RequestUri, b""), Some(b"/y".as_slice()));
        assert_eq!(entries.first(Variable::ArgsGet, b"a"), Some(b"1".as_slice()));
        entries.clear(0);
        assert_eq!(entries.list(Variable::ArgsGet).len(), 0);
    }

    #[test]
    fn drops_what_does_not_fit() {
        let mut entries = Entries::new(4, read());
        entries.add(Variable::ArgsGet, b"ab", b"cd");
        entries.add(Variable::ArgsGet, b"e", b"");
        assert_eq!((entries.list(Variable::ArgsGet).len(), entries.dropped()), (1, 1));
    }

    #[test]
    fn decimals() {
        assert_eq!(decimal(0, &mut [0; 20]), b"0");
        assert_eq!(decimal(u64::MAX, &mut [0; 20]), b"18446744073709551615");
    }
}
