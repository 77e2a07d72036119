//! Field sections in one buffer: heads and trailers as names and values, as HTTP/2 has them.

/// Length of a name or a value in front of it.
type Length = u32;

const LENGTH_BYTES: usize = size_of::<Length>();

/// Bytes of a field besides its name and value.
const FIELD_OVERHEAD: usize = 2 * LENGTH_BYTES;

/// Bit in the length of the name of a sensitive field.
const SENSITIVE: Length = 1 << 31;

/// A field of a [`FieldList`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedField<'a> {
    pub name: &'a [u8],
    pub value: &'a [u8],
    /// No compression of headers may index the field (RFC 7541, section 6.2.3).
    pub is_sensitive: bool,
}

/// A head or trailer section as a list of fields in the order received, with duplicates. The start line of a head is its
/// first fields, with the names of HTTP/2: `:method` and `:path`, or `:status`.
///
/// The list ends with its mark or with its bytes, so that payload may follow that of a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldList<'a> {
    bytes: &'a [u8],
}

impl<'a> FieldList<'a> {
    /// The list at the start of `bytes`, which [`push`](Self::push) has written.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Length in bytes, with the mark of the end. `None`: the mark is missing, or a part of a field.
    pub fn len(self) -> Option<usize> {
        let mut rest = self;
        while rest.next_field().is_some() {}
        let is_marked = rest.bytes.starts_with(&END);
        is_marked.then(|| self.bytes.len() - rest.bytes.len() + END.len())
    }

    /// True for a list without fields.
    pub fn is_empty(mut self) -> bool {
        self.next_field().is_none()
    }

    pub fn iter(self) -> FieldListIter<'a> {
        FieldListIter(self)
    }

    /// The list as it was written, and what follows it.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Takes the first field off the list.
    #[inline]
    pub fn next_field(&mut self) -> Option<ListedField<'a>> {
        let (name_length, rest) = self.bytes.split_first_chunk::<LENGTH_BYTES>()?;
        let (value_length, rest) = rest.split_first_chunk::<LENGTH_BYTES>()?;
        let name_length = Length::from_ne_bytes(*name_length);
        let name_bytes = (name_length & !SENSITIVE) as usize;
        let value_bytes = Length::from_ne_bytes(*value_length) as usize;
        if name_bytes == 0 {
            return None;
        }
        let (name, rest) = rest.split_at_checked(name_bytes)?;
        let (value, rest) = rest.split_at_checked(value_bytes)?;
        self.bytes = rest;
        Some(ListedField { name, value, is_sensitive: name_length & SENSITIVE != 0 })
    }

    /// Appends a field that is not sensitive to `list`. Returns the position of the value.
    ///
    /// # Panics
    ///
    /// If the name is empty or longer than 2 GiB, or the value longer than 4 GiB.
    #[inline]
    pub fn push(list: &mut Vec<u8>, name: &[u8], value: &[u8]) -> usize {
        Self::push_field(list, ListedField { name, value, is_sensitive: false })
    }

    /// As [`push`](Self::push), of any field.
    #[inline]
    pub fn push_field(list: &mut Vec<u8>, field: ListedField<'_>) -> usize {
        let ListedField { name, value, is_sensitive } = field;
        Self::push_with(list, name, is_sensitive, |list| list.extend_from_slice(value))
    }

    /// As [`push`](Self::push), with a value that `write` appends.
    #[inline]
    pub fn push_with(
        list: &mut Vec<u8>,
        name: &[u8],
        is_sensitive: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> usize {
        let name_length = length(name);
        assert!((1..SENSITIVE).contains(&name_length), "a field has a name of less than 2 GiB");
        let mark = if is_sensitive { SENSITIVE } else { 0 };
        let start = list.len();
        list.extend_from_slice(&(name_length | mark).to_ne_bytes());
        list.extend_from_slice(&[0; LENGTH_BYTES]);
        list.extend_from_slice(name);
        let value = start + FIELD_OVERHEAD + name.len();
        write(list);
        let value_length = length(&list[value..]).to_ne_bytes();
        list[start + LENGTH_BYTES..start + FIELD_OVERHEAD].copy_from_slice(&value_length);
        value
    }

    /// Appends the mark of the end to `list`.
    pub fn end(list: &mut Vec<u8>) {
        list.extend_from_slice(&END);
    }

    /// Removes the mark of the end from `list`, so that fields can be added.
    pub fn reopen(list: &mut Vec<u8>) {
        if list.ends_with(&END) {
            list.truncate(list.len() - END.len());
        }
    }
}

/// Mark of the end: a field without a name.
const END: [u8; FIELD_OVERHEAD] = [0; FIELD_OVERHEAD];

fn length(part: &[u8]) -> Length {
    Length::try_from(part.len()).expect("a part of a field is shorter than 4 GiB")
}

/// Fields of a [`FieldList`].
#[derive(Clone, Debug)]
pub struct FieldListIter<'a>(FieldList<'a>);

impl<'a> Iterator for FieldListIter<'a> {
    type Item = ListedField<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next_field()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(
        (name, value, is_sensitive): (&'static [u8], &'static [u8], bool),
    ) -> ListedField<'static> {
        ListedField { name, value, is_sensitive }
    }

    #[test]
    fn list_returns_its_fields_and_its_length() {
        let mut bytes = Vec::new();
        let at = FieldList::push(&mut bytes, b":path", b"/a");
        assert_eq!(&bytes[at..], b"/a");
        let at = FieldList::push_with(&mut bytes, b"x", true, |out| out.extend_from_slice(b""));
        assert_eq!(at, bytes.len());
        let fields = [(&b":path"[..], &b"/a"[..], false), (b"x", b"", true)].map(listed);
        assert!(FieldList::new(&bytes).iter().eq(fields));
        assert_eq!(FieldList::new(&bytes).len(), None, "without its end");
        FieldList::end(&mut bytes);
        let len = bytes.len();
        bytes.extend_from_slice(b"payload");
        assert_eq!(FieldList::new(&bytes).len(), Some(len));
        assert!(FieldList::new(&bytes).iter().eq(fields));
        for cut in 0..len {
            assert_eq!(FieldList::new(&bytes[..cut]).len(), None, "{cut} bytes");
        }
    }

    #[test]
    fn reopened_list_takes_another_field() {
        let mut bytes = Vec::new();
        FieldList::push(&mut bytes, b"a", b"1");
        FieldList::end(&mut bytes);
        FieldList::reopen(&mut bytes);
        FieldList::push(&mut bytes, b"b", b"2");
        FieldList::end(&mut bytes);
        let fields = [(&b"a"[..], &b"1"[..], false), (b"b", b"2", false)].map(listed);
        assert!(FieldList::new(&bytes).iter().eq(fields));
        assert!(FieldList::default().is_empty());
    }
}
