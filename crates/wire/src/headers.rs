//! The headers of a head that was parsed.

/// The headers of a request, in the order in which they came, duplicates kept. They are looked for in
/// the head itself, so that a head costs nothing for headers that nobody asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<'a> {
    /// The head, from the first line to the empty one that ends it; every line ends in CR LF.
    head: &'a [u8],
}

impl<'a> Headers<'a> {
    /// The headers of `head`, which the parser has accepted whole.
    pub(crate) fn of_parsed_head(head: &'a [u8]) -> Self {
        Self { head }
    }

    /// Names, as they are spelt, and values, without the spaces around them.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let mut lines = self
            .head
            .split(|&byte| byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        // Empty lines may come before the first line, which is not a header.
        lines.by_ref().find(|line| !line.is_empty());
        lines.take_while(|line| !line.is_empty()).filter_map(|line| {
            let colon = line.iter().position(|&byte| byte == b':')?;
            let name = std::str::from_utf8(&line[..colon]).ok()?;
            Some((name, line[colon + 1..].trim_ascii()))
        })
    }

    /// The values of the headers of this name, in whatever case it is spelt.
    pub fn all(self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.iter()
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The value of the first header of this name.
    #[must_use]
    pub fn first(self, name: &str) -> Option<&'a [u8]> {
        self.all(name).next()
    }
}
