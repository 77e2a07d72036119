//! Values of a transaction that come from the request and the response.

use std::num::NonZeroU32;

use crate::variable::{Variable, Variables};

/// Bytes of an [`Entries`] buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    start: u32,
    length: u32,
}

/// Name of a value: a text, and for elements of arrays an index behind it. Elements share the text.
#[derive(Clone, Copy, Debug)]
struct Name {
    text: Span,
    index: Option<NonZeroU32>,
}

impl Name {
    fn whole(text: Span) -> Self {
        Self { text, index: None }
    }

    fn element(path: Span, index: u32) -> Self {
        // The index is stored plus one.
        Self { text: path, index: NonZeroU32::new(index.saturating_add(1)) }
    }

    fn index(self) -> Option<u64> {
        self.index.map(|index| u64::from(index.get()) - 1)
    }
}

/// Value with its name, and the collections of both.
#[derive(Clone, Copy, Debug)]
struct Entry {
    variable: Variable,
    /// Collection of which the name is a value, if it is one.
    names: Option<Variable>,
    name: Name,
    value: Span,
}

/// Marks, in the index of an entry, its name in place of its value.
const NAME: u32 = 1 << 31;

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
            limit: limit.min(NAME as usize),
            dropped: 0,
        }
    }

    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(NAME as usize);
    }

    /// Removes all values and returns memory above `retained` bytes to the system.
    pub(crate) fn clear(&mut self, retained: usize) {
        for entry in self.all.drain(..) {
            for variable in [Some(entry.variable), entry.names].into_iter().flatten() {
                let list = &mut self.by_variable[variable as usize];
                list.clear();
                list.shrink_to(retained / 64);
            }
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
        reserve(&mut self.bytes, bytes.len());
        self.bytes.extend_from_slice(bytes);
        Some(span)
    }

    /// Adds a value that is already stored, and its name to another collection.
    fn add_stored(&mut self, variable: Variable, names: Option<Variable>, name: Name, value: Span) {
        let index = self.all.len() as u32;
        let names = names.filter(|&names| self.read.contains(names));
        if let Some(names) = names {
            push(&mut self.by_variable[names as usize], index | NAME);
        }
        let is_read = self.read.contains(variable);
        if is_read {
            push(&mut self.by_variable[variable as usize], index);
        }
        if is_read || names.is_some() {
            push(&mut self.all, Entry { variable, names, name, value });
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
        self.add_stored(values, Some(names), Name::whole(name), value);
        true
    }

    /// Adds the name of the first element of an array, and returns the part of it that all elements share. `None` if it does
    /// not fit.
    pub(crate) fn add_path(&mut self, names: Variable, path: &[u8], index: u32) -> Option<Span> {
        let shared = self.store(path)?;
        let digits = self.store(itoa::Buffer::new().format(index).as_bytes())?;
        let length = shared.length + digits.length;
        let whole = Span { length, ..shared };
        self.add_stored(names, None, Name::whole(whole), whole);
        Some(shared)
    }

    /// Adds an element of an array. Returns false if it does not fit.
    pub(crate) fn add_element(
        &mut self,
        variable: Variable,
        path: Span,
        index: u32,
        value: &[u8],
    ) -> bool {
        let Some(value) = self.store(value) else { return false };
        self.add_stored(variable, None, Name::element(path, index), value);
        true
    }

    /// Adds a value of a collection.
    pub(crate) fn add(&mut self, variable: Variable, name: &[u8], value: &[u8]) {
        if !self.read.contains(variable) {
            return;
        }
        if let (Some(name), Some(value)) = (self.store(name), self.store(value)) {
            self.add_stored(variable, None, Name::whole(name), value);
        }
    }

    /// Replaces the value of a variable without names.
    pub(crate) fn set(&mut self, variable: Variable, value: &[u8]) {
        self.by_variable[variable as usize].clear();
        self.add(variable, b"", value);
    }

    pub(crate) fn set_number(&mut self, variable: Variable, value: usize) {
        self.set(variable, itoa::Buffer::new().format(value).as_bytes());
    }

    fn bytes(&self, span: Span) -> &[u8] {
        &self.bytes[span.start as usize..][..span.length as usize]
    }

    pub(crate) fn value(&self, index: u32) -> &[u8] {
        let entry = &self.all[(index & !NAME) as usize];
        self.bytes(if index & NAME == 0 { entry.value } else { entry.name.text })
    }

    /// Name of a value. That of an element is written to `buffer`.
    pub(crate) fn name<'a>(&'a self, index: u32, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        let name = self.all[(index & !NAME) as usize].name;
        let text = self.bytes(name.text);
        let Some(element) = name.index() else { return text };
        buffer.clear();
        buffer.extend_from_slice(text);
        buffer.extend_from_slice(itoa::Buffer::new().format(element).as_bytes());
        buffer
    }

    /// Bytes that rules inspect: all names and values.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Number of values.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        let lists: usize = self.by_variable.iter().map(Vec::capacity).sum();
        self.bytes.capacity() + self.all.capacity() * size_of::<Entry>() + lists * size_of::<u32>()
    }

    /// Indexes of the values of one physical variable, in order.
    pub(crate) fn list(&self, variable: Variable) -> &[u32] {
        &self.by_variable[variable as usize]
    }

    /// First value of a variable, under a name in lower case if it is a collection.
    pub(crate) fn first(&self, variable: Variable, name: &[u8]) -> Option<&[u8]> {
        let mut buffer = Vec::new();
        let list = self.list(variable).iter();
        let found = list.copied().find(|&index| {
            name.is_empty() || self.name(index, &mut buffer).eq_ignore_ascii_case(name)
        });
        found.map(|index| self.value(index))
    }

    /// Takes the number of values that were dropped because the buffer was full.
    pub(crate) fn take_dropped(&mut self) -> usize {
        std::mem::take(&mut self.dropped)
    }

    /// Removes the values of a name.
    pub(crate) fn remove_named(&mut self, variables: &[Variable], name: &[u8]) {
        let mut buffer = Vec::new();
        for &variable in variables {
            let mut list = std::mem::take(&mut self.by_variable[variable as usize]);
            list.retain(|&index| !self.name(index, &mut buffer).eq_ignore_ascii_case(name));
            self.by_variable[variable as usize] = list;
        }
    }

    /// Bytes of the values of each variable, with one more for each value.
    pub(crate) fn sizes(&self) -> Vec<u64> {
        let size = |list: &Vec<u32>| list.iter().map(|&at| self.value(at).len() as u64 + 1).sum();
        self.by_variable.iter().map(size).collect()
    }
}

/// Makes room, an eighth more at a time: doubling would hold far more memory than short values need.
fn reserve<T>(list: &mut Vec<T>, more: usize) {
    if list.capacity() - list.len() < more {
        list.reserve_exact(more.max(list.len() / 8).max(64));
    }
}

fn push<T>(list: &mut Vec<T>, value: T) {
    reserve(list, 1);
    list.push(value);
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
        assert_eq!((entries.list(Variable::ArgsGet).len(), entries.take_dropped()), (1, 1));
    }
}
