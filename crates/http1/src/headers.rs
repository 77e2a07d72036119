//! The headers of a parsed head, and those among them that decide framing and persistence.

use std::net::Ipv6Addr;

use httparse::Header;
use memchr::memchr;

use crate::error::ParseError;
use crate::field_list::{FieldList, FieldListIter, ListedField};

/// Limit in bytes for the part of an invalid value that an error shows.
const EXCERPT_MAX_BYTES: usize = 64;

/// True for a byte of a token (RFC 9110, section 5.6.2), such as a method or the name of a header.
pub const fn is_token_byte(byte: u8) -> bool {
    matches!(byte,
        b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'0'..=b'9' | b'A'..=b'Z' | b'^'..=b'z' | b'|' | b'~')
}

pub fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| is_token_byte(*byte))
}

/// Version of HTTP that a message was sent in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0. Connections close after one request unless both sides ask for keep-alive.
    Http10,
    Http11,
    /// Of a message whose head is a [`FieldList`].
    Http2,
}

impl Version {
    /// Returns the number of the version, such as `1.1`.
    pub fn number(self) -> &'static str {
        match self {
            Self::Http10 => "1.0",
            Self::Http11 => "1.1",
            Self::Http2 => "2.0",
        }
    }

    pub(crate) fn from_minor(minor: u8) -> Self {
        // The parser accepts 0 and 1 only.
        if minor == 0 { Self::Http10 } else { Self::Http11 }
    }
}

/// Rule for finding the end of a body (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    Empty,
    Length(u64),
    Chunked,
    /// The body ends when the connection closes. Responses only.
    UntilClose,
}

/// Headers of a checked head in the order received, with duplicates. Each look-up scans the head, so that
/// headers which are not looked up cost nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<'a> {
    section: Section<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section<'a> {
    /// From the start line to the empty line that ends the head.
    Head(&'a [u8]),
    /// Behind the fields of the start line.
    Fields(FieldList<'a>),
}

impl<'a> Headers<'a> {
    /// The parser must have accepted `head` as a whole.
    pub(crate) fn of_parsed_head(head: &'a [u8]) -> Self {
        Self { section: Section::Head(head) }
    }

    /// `fields` are those behind the start line. Nothing is checked.
    pub fn of_fields(fields: FieldList<'a>) -> Self {
        Self { section: Section::Fields(fields) }
    }

    /// Returns names as spelt, and values without surrounding whitespace.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.fields().map(|HeaderField { name, value, .. }| (name, value))
    }

    /// As [`iter`](Self::iter), with the marks of HTTP/2.
    pub fn fields(self) -> impl Iterator<Item = HeaderField<'a>> {
        let lines = match self.section {
            Section::Head(head) => {
                // Empty lines may precede the start line, which is not a header.
                let start = head.iter().position(|byte| !b"\r\n".contains(byte)).unwrap_or(0);
                let start_line = memchr(b'\n', &head[start..]).map_or(0, |end| start + end + 1);
                Lines::Head(header_lines(&head[start_line..]))
            }
            Section::Fields(fields) => Lines::Fields(fields.iter()),
        };
        lines.filter_map(|ListedField { name, value, is_sensitive }| {
            Some(HeaderField { name: std::str::from_utf8(name).ok()?, value, is_sensitive })
        })
    }

    /// Returns the values of all headers of this name, which is compared without case.
    pub fn all(self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.iter()
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    pub fn first(self, name: &str) -> Option<&'a [u8]> {
        self.all(name).next()
    }
}

/// A header of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderField<'a> {
    pub name: &'a str,
    pub value: &'a [u8],
    /// No compression of headers may index the field (RFC 7541, section 6.2.3).
    pub is_sensitive: bool,
}

enum Lines<'a> {
    Head(HeaderLines<'a>),
    Fields(FieldListIter<'a>),
}

impl<'a> Iterator for Lines<'a> {
    type Item = ListedField<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Head(lines) => {
                let (name, value) = lines.next()?;
                Some(ListedField { name, value, is_sensitive: false })
            }
            Self::Fields(fields) => fields.next(),
        }
    }
}

/// Returns the names, as spelt, and the values, without surrounding whitespace, of the header lines at the start of `section`:
/// up to an empty line or the end. Lines may end in LF alone. Skips lines without a colon, and those that continue the one
/// before, and checks nothing else: for what was checked before, and for peers whose words are only shown.
pub fn header_lines(section: &[u8]) -> HeaderLines<'_> {
    HeaderLines { rest: section }
}

/// Iterator of [`header_lines`].
#[derive(Clone, Debug)]
pub struct HeaderLines<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for HeaderLines<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let end = memchr(b'\n', self.rest).unwrap_or(self.rest.len());
            let line = &self.rest[..end];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let continues = matches!(line.first()?, b' ' | b'\t');
            self.rest = self.rest.get(end + 1..).unwrap_or_default();
            if !continues && let Some(colon) = memchr(b':', line) {
                return Some((&line[..colon], line[colon + 1..].trim_ascii()));
            }
        }
    }
}

/// Headers that decide framing and persistence, collected in one pass.
#[derive(Debug, Default)]
pub(crate) struct FramingHeaders<'a> {
    pub(crate) content_length: Option<u64>,
    /// A second `Content-Length` of the same value: harmless in a response (RFC 9110, section 8.6), but an error
    /// in a request.
    has_repeated_length: bool,
    last_coding: Option<&'a [u8]>,
    /// Last transfer coding other than `chunked`.
    pub(crate) other_coding: Option<&'a [u8]>,
    host_count: usize,
    host: Option<&'a [u8]>,
    close: bool,
    keep_alive: bool,
    pub(crate) expects_continue: bool,
    pub(crate) has_other_expectation: bool,
}

impl<'a> FramingHeaders<'a> {
    pub(crate) fn collect(
        headers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Self, ParseError> {
        let mut collected = Self::default();
        for (name, value) in headers {
            // Comparing the length first makes most headers cost one comparison.
            match name.len() {
                4 if name.eq_ignore_ascii_case(b"host") => {
                    collected.host_count += 1;
                    collected.host = Some(value);
                }
                6 if name.eq_ignore_ascii_case(b"expect") => {
                    let is_continue = value.eq_ignore_ascii_case(b"100-continue");
                    collected.expects_continue |= is_continue;
                    collected.has_other_expectation |= !is_continue;
                }
                10 if name.eq_ignore_ascii_case(b"connection") => {
                    for option in list(value) {
                        collected.close |= option.eq_ignore_ascii_case(b"close");
                        collected.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                14 if name.eq_ignore_ascii_case(b"content-length") => {
                    collected.add_content_length(value)?;
                }
                17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                    collected.add_transfer_encoding(value)?;
                }
                _ => {}
            }
        }
        Ok(collected)
    }

    pub(crate) fn of_fields(fields: FieldList<'a>) -> Result<Self, ParseError> {
        Self::collect(fields.iter().map(|field| (field.name, field.value)))
    }

    pub(crate) fn of_parsed(headers: &[Header<'a>]) -> Result<Self, ParseError> {
        Self::collect(headers.iter().map(|header| (header.name.as_bytes(), header.value)))
    }

    fn add_content_length(&mut self, value: &[u8]) -> Result<(), ParseError> {
        for element in list(value) {
            let length =
                parse_length(element).ok_or_else(|| ParseError::ContentLength(excerpt(element)))?;
            match self.content_length {
                Some(other) if other != length => {
                    return Err(ParseError::ContentLengths(other, length));
                }
                Some(_) => self.has_repeated_length = true,
                None => self.content_length = Some(length),
            }
        }
        Ok(())
    }

    fn add_transfer_encoding(&mut self, value: &'a [u8]) -> Result<(), ParseError> {
        for coding in list(value) {
            if self.is_chunked() {
                return Err(ParseError::TransferEncoding(excerpt(value)));
            }
            self.last_coding = Some(coding);
            if !self.is_chunked() {
                self.other_coding = Some(coding);
            }
        }
        Ok(())
    }

    /// Drops a length that a transfer coding overrides. Returns true if there was one.
    pub(crate) fn drop_overridden_length(&mut self) -> bool {
        self.last_coding.is_some() && self.content_length.take().is_some()
    }

    /// Returns true if the last transfer coding is `chunked`.
    pub(crate) fn is_chunked(&self) -> bool {
        self.last_coding.is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"))
    }

    /// Checks that the headers contradict neither each other nor the version. A message that fails
    /// comes from a peer that cannot be trusted, even where no body follows.
    pub(crate) fn check_framing(&self, version: Version) -> Result<(), ParseError> {
        match (self.last_coding, self.content_length) {
            // RFC 9112, section 6.1: the framing of such a message is faulty.
            (Some(_), _) if version == Version::Http10 => Err(ParseError::TransferEncodingInHttp10),
            // RFC 9112, section 6.3: requests are smuggled through peers that disagree on which counts.
            (Some(_), Some(_)) => Err(ParseError::TwoFramings),
            (None, _) | (Some(_), None) => Ok(()),
        }
    }

    /// Returns the framing that the headers ask for, or `None` if they have neither a length nor a coding.
    pub(crate) fn framing(&self, version: Version) -> Result<Option<BodyFraming>, ParseError> {
        self.check_framing(version)?;
        match self.last_coding {
            None => Ok(self.content_length.map(BodyFraming::Length)),
            Some(_) if self.is_chunked() => Ok(Some(BodyFraming::Chunked)),
            Some(coding) => Err(ParseError::TransferEncoding(excerpt(coding))),
        }
    }

    /// Checks the rules for requests only, so that no two servers read one in two ways: one length, one known
    /// coding, one host. Returns the host.
    ///
    /// RFC 9112, section 3.2, asks for status 400 if the host is missing in HTTP/1.1, or repeated.
    pub(crate) fn request_host(&self, version: Version) -> Result<Option<&'a str>, ParseError> {
        if let (true, Some(length)) = (self.has_repeated_length, self.content_length) {
            return Err(ParseError::ContentLengths(length, length));
        }
        if let Some(coding) = self.other_coding {
            return Err(ParseError::UnknownCoding(excerpt(coding)));
        }
        if self.host_count > 1 || (self.host_count == 0 && version != Version::Http10) {
            return Err(ParseError::HostCount(self.host_count));
        }
        self.host.map(parse_host).transpose()
    }

    /// Returns true if the sender keeps the connection open after this message (RFC 9112, section 9.3).
    pub(crate) fn keep_alive(&self, version: Version) -> bool {
        !self.close && (version != Version::Http10 || self.keep_alive)
    }
}

/// Checks a host with optional port (RFC 3986, sections 3.2.2 and 3.2.3): a name, an IPv4 address, or an IPv6 address in
/// brackets. An empty host is valid if there is no port.
pub fn parse_host(value: &[u8]) -> Result<&str, ParseError> {
    let text = std::str::from_utf8(value).ok().filter(|text| is_host(text));
    text.ok_or_else(|| ParseError::Host(excerpt(value)))
}

fn is_host(text: &str) -> bool {
    let (is_valid, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((address, port))) => (address.parse::<Ipv6Addr>().is_ok(), port),
        Some(None) => return false,
        None => {
            let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            (is_registered_name(name.as_bytes()) && (!name.is_empty() || port.is_empty()), port)
        }
    };
    let is_port = |digits: &str| {
        digits.bytes().all(|byte| byte.is_ascii_digit())
            && (digits.is_empty() || digits.parse::<u16>().is_ok())
    };
    is_valid && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

/// Checks the characters of a name, and its percent escapes.
fn is_registered_name(name: &[u8]) -> bool {
    let is_allowed = |at: usize, byte: u8| match byte {
        b'%' => {
            matches!(name.get(at + 1..at + 3), Some(code) if code.iter().all(u8::is_ascii_hexdigit))
        }
        _ => byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte),
    };
    name.iter().enumerate().all(|(at, &byte)| is_allowed(at, byte))
}

fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// Limit for a body length and a chunk size: many servers use signed numbers, and would read a larger one as negative.
pub(crate) const LENGTH_MAX: u64 = i64::MAX as u64;

/// Parses the length of a body: decimal digits, at most 2^63 - 1.
pub fn parse_length(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let value = digits.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| byte - b'0')?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    });
    value.filter(|value| *value <= LENGTH_MAX)
}

/// Returns the start of `value` with special bytes escaped.
pub(crate) fn excerpt(value: &[u8]) -> String {
    let end = value.len().min(EXCERPT_MAX_BYTES);
    value[..end].escape_ascii().to_string()
}
