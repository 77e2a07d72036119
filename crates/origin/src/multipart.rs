//! multipart/form-data (RFC 7578): names, file names and sizes of the parts of a body whose bytes come
//! split anywhere. Keeps no part.

use std::fmt;

use memchr::memchr;

/// The most parts that are told apart.
const MAX_PARTS: usize = 1000;

/// How long the headers of a part may be, in bytes.
const MAX_PART_HEAD_BYTES: usize = 4096;

/// The longest boundary (RFC 2046, section 5.1.1).
const MAX_BOUNDARY_BYTES: usize = 70;

/// Why a body is not multipart/form-data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Boundary,
    Delimiter,
    PartHeadTooLong,
    NoName,
    TooManyParts,
    Unfinished,
}

/// One part of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) name: Vec<u8>,
    pub(crate) filename: Option<Vec<u8>>,
    pub(crate) bytes: u64,
}

/// How far a body has come.
#[derive(Debug)]
pub(crate) struct Multipart {
    /// What ends a part: CR LF, two dashes, the boundary. There is no CR in it but the first byte, so
    /// that a match that fails begins anew at the byte at which it failed, or not at all.
    delimiter: Vec<u8>,
    state: State,
    parts: Vec<Part>,
}

#[derive(Debug)]
enum State {
    /// Before the first delimiter, or within a part, with so many bytes of a delimiter.
    Content { matched_bytes: usize },
    /// Right after a boundary.
    Boundary,
    /// After a boundary and a dash.
    LastBoundary,
    /// After a boundary and spaces.
    Padding,
    /// After a boundary and a CR.
    BoundaryLineFeed,
    /// In the headers of a part.
    PartHead(Vec<u8>),
    /// After the last boundary, where everything is passed over.
    Epilogue,
}

impl Multipart {
    /// A body at its start, if its type is multipart/form-data.
    ///
    /// # Errors
    ///
    /// [`Fault::Boundary`]: the type says no boundary, or one that cannot be.
    pub(crate) fn of_type(content_type: &[u8]) -> Result<Option<Self>, Fault> {
        let mut parameters = Parameters::after_value(content_type);
        if !parameters.value.eq_ignore_ascii_case(b"multipart/form-data") {
            return Ok(None);
        }
        let boundary = parameters.find("boundary").ok_or(Fault::Boundary)?;
        let is_text = boundary.iter().all(|byte| (b' '..=b'~').contains(byte));
        if boundary.is_empty() || boundary.len() > MAX_BOUNDARY_BYTES || !is_text {
            return Err(Fault::Boundary);
        }
        Ok(Some(Self {
            delimiter: [b"\r\n--", &boundary[..]].concat(),
            // The first delimiter may stand at the start of the body, without a line before it.
            state: State::Content { matched_bytes: 2 },
            parts: Vec::new(),
        }))
    }

    /// Takes the next piece of the body.
    ///
    /// # Errors
    ///
    /// What stands there is not multipart/form-data, or more than a limit.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Result<(), Fault> {
        let mut rest = piece;
        while let Some(&byte) = rest.first() {
            match &mut self.state {
                State::Content { matched_bytes: 0 } => {
                    let content = memchr(b'\r', rest).unwrap_or(rest.len());
                    rest = &rest[content..];
                    self.lengthen_part(content);
                    if !rest.is_empty() {
                        rest = &rest[1..];
                        self.state = State::Content { matched_bytes: 1 };
                    }
                    continue;
                }
                State::Content { matched_bytes } if self.delimiter[*matched_bytes] != byte => {
                    let content = std::mem::take(matched_bytes);
                    self.lengthen_part(content);
                    continue;
                }
                State::Content { matched_bytes } => {
                    *matched_bytes += 1;
                    if *matched_bytes == self.delimiter.len() {
                        self.state = State::Boundary;
                    }
                }
                State::PartHead(head) => {
                    head.push(byte);
                    if head.ends_with(b"\r\n\r\n") || head == b"\r\n" {
                        let part = part(head)?;
                        self.parts.push(part);
                        // An empty part's delimiter shares its CR LF with nothing.
                        self.state = State::Content { matched_bytes: 0 };
                    } else if head.len() == MAX_PART_HEAD_BYTES {
                        return Err(Fault::PartHeadTooLong);
                    }
                }
                State::Epilogue => return Ok(()),
                state => *state = state.after_boundary(byte)?,
            }
            if matches!(self.state, State::BoundaryLineFeed) && self.parts.len() == MAX_PARTS {
                return Err(Fault::TooManyParts);
            }
            rest = &rest[1..];
        }
        Ok(())
    }

    /// The parts of a body that has ended.
    ///
    /// # Errors
    ///
    /// [`Fault::Unfinished`]: there was no last boundary.
    pub(crate) fn finish(self) -> Result<Vec<Part>, Fault> {
        match self.state {
            State::Epilogue => Ok(self.parts),
            _ => Err(Fault::Unfinished),
        }
    }

    fn lengthen_part(&mut self, bytes: usize) {
        if let Some(part) = self.parts.last_mut() {
            part.bytes += bytes as u64;
        }
    }
}

impl State {
    /// The state after one more byte of a line that a boundary begins.
    fn after_boundary(&self, byte: u8) -> Result<Self, Fault> {
        match (self, byte) {
            (Self::Boundary, b'-') => Ok(Self::LastBoundary),
            (Self::LastBoundary, b'-') => Ok(Self::Epilogue),
            (Self::Boundary | Self::Padding, b' ' | b'\t') => Ok(Self::Padding),
            (Self::Boundary | Self::Padding, b'\r') => Ok(Self::BoundaryLineFeed),
            (Self::BoundaryLineFeed, b'\n') => Ok(Self::PartHead(Vec::new())),
            _ => Err(Fault::Delimiter),
        }
    }
}

/// What the headers of a part say.
fn part(head: &[u8]) -> Result<Part, Fault> {
    let mut name = None;
    let mut filename = None;
    for line in head.split(|&byte| byte == b'\n') {
        let Some(colon) = memchr(b':', line) else { continue };
        if line[..colon].eq_ignore_ascii_case(b"content-disposition") {
            let mut parameters = Parameters::after_value(&line[colon + 1..]);
            if parameters.value.eq_ignore_ascii_case(b"form-data") {
                while let Some((found, value)) = parameters.next() {
                    if found.eq_ignore_ascii_case(b"name") {
                        name = Some(value);
                    } else if found.eq_ignore_ascii_case(b"filename") {
                        filename = Some(value);
                    }
                }
            }
        }
    }
    Ok(Part { name: name.ok_or(Fault::NoName)?, filename, bytes: 0 })
}

/// The parameters of a header's value: `; name=value; name="quoted value"`.
struct Parameters<'a> {
    /// What comes before the first.
    value: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Parameters<'a> {
    fn after_value(header: &'a [u8]) -> Self {
        let end = memchr(b';', header).unwrap_or(header.len());
        Self { value: header[..end].trim_ascii(), rest: &header[end..] }
    }

    fn find(&mut self, name: &str) -> Option<Vec<u8>> {
        std::iter::from_fn(|| self.next())
            .find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// The next parameter. What is none ends them.
    fn next(&mut self) -> Option<(&'a [u8], Vec<u8>)> {
        let rest = self.rest.strip_prefix(b";")?.trim_ascii_start();
        let equals = memchr(b'=', rest)?;
        let name = rest[..equals].trim_ascii();
        let value = rest[equals + 1..].trim_ascii_start();
        if let Some(quoted) = value.strip_prefix(b"\"") {
            let (value, rest) = unquote(quoted)?;
            self.rest = rest.trim_ascii_start();
            Some((name, value))
        } else {
            let end = memchr(b';', value).unwrap_or(value.len());
            self.rest = &value[end..];
            Some((name, value[..end].trim_ascii().to_vec()))
        }
    }
}

/// The text up to the closing quote, and what follows that. A backslash stands for itself, as in the
/// file names that browsers send, unless it is before a quote or another one.
fn unquote(quoted: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut value = Vec::new();
    let mut rest = quoted;
    loop {
        match rest {
            [b'\\', escaped @ (b'"' | b'\\'), after @ ..] => {
                value.push(*escaped);
                rest = after;
            }
            [b'"', after @ ..] => return Some((value, after)),
            [byte, after @ ..] => {
                value.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boundary => {
                write!(
                    f,
                    "its Content-Type needs a boundary of 1 to {MAX_BOUNDARY_BYTES} characters"
                )
            }
            Self::Delimiter => write!(f, "something follows a boundary on its line"),
            Self::PartHeadTooLong => {
                write!(f, "the headers of a part may have {MAX_PART_HEAD_BYTES} bytes")
            }
            Self::NoName => write!(f, "a part has no Content-Disposition: form-data with a name"),
            Self::TooManyParts => write!(f, "it may have {MAX_PARTS} parts"),
            Self::Unfinished => write!(f, "the last boundary is missing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &[u8] = b"multipart/form-data; boundary=aXb";

    fn parts(content_type: &[u8], pieces: &[&[u8]]) -> Result<Vec<Part>, Fault> {
        let mut multipart = Multipart::of_type(content_type)?.expect("it is multipart/form-data");
        pieces.iter().try_for_each(|piece| multipart.feed(piece))?;
        multipart.finish()
    }

    fn expected(list: &[(&str, Option<&str>, u64)]) -> Vec<Part> {
        list.iter()
            .map(|&(name, filename, bytes)| Part {
                name: name.into(),
                filename: filename.map(Into::into),
                bytes,
            })
            .collect()
    }

    /// With everything that looks like a boundary and is none.
    const BODY: &[u8] = b"preamble --aXb\r\n--aXc\r\n--aXb\r\n\
        Content-Disposition: form-data; name=\"a\"\r\n\r\nxyz\r\n--aXb \t\r\n\
        Content-Type: text/plain\r\ncontent-disposition:form-data;filename=\"b;\\\".txt\" ; name=f\r\n\r\n\
        \r\n-\r\n--aX\r\r\r\n--aYb--aXb\r\r\n--aXb\r\n\
        Content-Disposition: form-data; name=\"\"; filename=\"\"\r\n\r\n\r\n--aXb--\r\nepilogue\r\n--aXb\r\n";

    #[test]
    fn parts_do_not_depend_on_where_the_body_is_split() {
        // The second: CR LF -, CR LF --aX, CR CR, CR LF --aYb--aXb, CR.
        let parts_of_body = expected(&[
            ("a", None, 3),
            ("f", Some("b;\".txt"), 3 + 6 + 2 + 2 + 10 + 1),
            ("", Some(""), 0),
        ]);
        for at in 0..=BODY.len() {
            let (first, second) = BODY.split_at(at);
            assert_eq!(parts(TYPE, &[first, second]).as_ref(), Ok(&parts_of_body), "split at {at}");
        }
        let single: Vec<&[u8]> = BODY.chunks(1).collect();
        assert_eq!(parts(TYPE, &single), Ok(parts_of_body));
    }

    #[test]
    fn a_body_may_have_no_parts_and_no_preamble() {
        assert_eq!(parts(TYPE, &[b"--aXb--"]), Ok(Vec::new()));
    }

    #[test]
    fn boundaries_are_found_in_the_type() {
        for content_type in [
            &b"multipart/form-data; boundary=aXb"[..],
            b"Multipart/Form-Data;charset=utf-8;BOUNDARY=\"aXb\"",
            b" multipart/form-data ; boundary = aXb ; x=y",
        ] {
            assert_eq!(parts(content_type, &[b"--aXb--"]), Ok(Vec::new()));
        }
        for content_type in [&b""[..], b"text/plain; boundary=aXb", b"multipart/mixed; boundary=a"]
        {
            assert!(Multipart::of_type(content_type).unwrap().is_none());
        }
        let long = format!("multipart/form-data; boundary={}", "b".repeat(71));
        for content_type in [
            &b"multipart/form-data"[..],
            b"multipart/form-data; boundary=",
            b"multipart/form-data; boundary=\"open",
            b"multipart/form-data; boundary=\"a\x01\"",
            long.as_bytes(),
        ] {
            assert_eq!(Multipart::of_type(content_type).unwrap_err(), Fault::Boundary);
        }
    }

    #[test]
    fn what_is_not_multipart_is_told() {
        let part = "--aXb\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n";
        let long = format!("--aXb\r\nX: {}", "y".repeat(MAX_PART_HEAD_BYTES));
        let many = part.repeat(MAX_PARTS + 1);
        for (body, fault) in [
            ("", Fault::Unfinished),
            ("--aXb\r\nContent-Disposition: form-data; name=a\r\n\r\n--aXb--", Fault::Unfinished),
            ("--aXb-\r\n", Fault::Delimiter),
            ("--aXbc\r\n", Fault::Delimiter),
            ("--aXb\rx", Fault::Delimiter),
            ("--aXb\r\n\r\n", Fault::NoName),
            ("--aXb\r\nContent-Disposition: form-data\r\n\r\n", Fault::NoName),
            ("--aXb\r\nContent-Disposition: attachment; name=a\r\n\r\n", Fault::NoName),
            (&long, Fault::PartHeadTooLong),
            (&many, Fault::TooManyParts),
        ] {
            assert_eq!(parts(TYPE, &[body.as_bytes()]), Err(fault), "{body:.80}");
        }
        let most = format!("{}--aXb--", part.repeat(MAX_PARTS));
        assert_eq!(parts(TYPE, &[most.as_bytes()]).unwrap().len(), MAX_PARTS);
    }
}
