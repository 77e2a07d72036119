//! Parts of multipart/form-data (RFC 7578).

use memchr::memchr;
use serde::{Serialize, Serializer};
use tollgate_accesslog::ClientText;

use crate::request::RequestError;

const MAX_PARTS: usize = 1000;

const MAX_PART_HEAD_BYTES: usize = 4096;

/// RFC 2046, section 5.1.1.
const MAX_BOUNDARY_BYTES: usize = 70;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MultipartError {
    #[error("Content-Type must have a boundary of 1 to {MAX_BOUNDARY_BYTES} characters")]
    Boundary,
    #[error("unexpected bytes after a boundary")]
    Delimiter,
    #[error("headers of a part exceed {MAX_PART_HEAD_BYTES} bytes")]
    PartHeadTooLong,
    #[error("part without a name in Content-Disposition: form-data")]
    NoName,
    #[error("more than {MAX_PARTS} parts")]
    TooManyParts,
    #[error("missing final boundary")]
    Unfinished,
}

impl From<MultipartError> for RequestError<'_> {
    fn from(error: MultipartError) -> Self {
        let is_too_large =
            matches!(error, MultipartError::TooManyParts | MultipartError::PartHeadTooLong);
        Self::Multipart { reason: error.to_string(), is_too_large }
    }
}

/// A part, as `/upload` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Part {
    #[serde(serialize_with = "client_text")]
    pub(crate) name: Vec<u8>,
    #[serde(serialize_with = "optional_client_text")]
    pub(crate) filename: Option<Vec<u8>>,
    #[serde(rename = "size")]
    pub(crate) bytes: u64,
}

fn client_text<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    ClientText(bytes).serialize(serializer)
}

fn optional_client_text<S: Serializer>(
    bytes: &Option<Vec<u8>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    bytes.as_deref().map(ClientText).serialize(serializer)
}

/// Incremental parser of multipart/form-data (RFC 7578). Keeps names and sizes, no contents.
#[derive(Debug)]
pub(crate) struct Multipart {
    /// CR LF, two dashes, the boundary. CR occurs at its start only, so a failed match can restart
    /// at the byte that failed.
    delimiter: Vec<u8>,
    state: State,
    parts: Vec<Part>,
}

#[derive(Debug)]
enum State {
    /// Before the first delimiter, or in a part, after this many bytes of a delimiter.
    Content {
        matched_bytes: usize,
    },
    AfterBoundary,
    AfterBoundaryDash,
    AfterBoundarySpace,
    AfterBoundaryCr,
    PartHead(Vec<u8>),
    /// After the final boundary; the rest is ignored.
    Epilogue,
}

impl Multipart {
    /// Returns a parser if the type is multipart/form-data.
    pub(crate) fn new(content_type: &[u8]) -> Result<Option<Self>, MultipartError> {
        let mut parameters = Parameters::parse(content_type);
        if !parameters.value.eq_ignore_ascii_case(b"multipart/form-data") {
            return Ok(None);
        }
        let boundary = std::iter::from_fn(|| parameters.next())
            .find(|(name, _)| name.eq_ignore_ascii_case(b"boundary"))
            .map_or_else(Vec::new, |(_, value)| value);
        let is_printable = boundary.iter().all(|byte| (b' '..=b'~').contains(byte));
        if boundary.is_empty() || boundary.len() > MAX_BOUNDARY_BYTES || !is_printable {
            return Err(MultipartError::Boundary);
        }
        Ok(Some(Self {
            delimiter: [b"\r\n--", &boundary[..]].concat(),
            // The first delimiter may start the body, without a CR LF.
            state: State::Content { matched_bytes: 2 },
            parts: Vec::new(),
        }))
    }

    pub(crate) fn feed(&mut self, piece: &[u8]) -> Result<(), MultipartError> {
        let mut rest = piece;
        while let Some(&byte) = rest.first() {
            match &mut self.state {
                State::Content { matched_bytes: 0 } => {
                    let content = memchr(b'\r', rest).unwrap_or(rest.len());
                    rest = &rest[content..];
                    self.add_content(content);
                    if !rest.is_empty() {
                        rest = &rest[1..];
                        self.state = State::Content { matched_bytes: 1 };
                    }
                    continue;
                }
                State::Content { matched_bytes } if self.delimiter[*matched_bytes] != byte => {
                    let content = std::mem::take(matched_bytes);
                    self.add_content(content);
                    continue;
                }
                State::Content { matched_bytes } => {
                    *matched_bytes += 1;
                    if *matched_bytes == self.delimiter.len() {
                        self.state = State::AfterBoundary;
                    }
                }
                State::PartHead(head) => {
                    head.push(byte);
                    if head.ends_with(b"\r\n\r\n") || head == b"\r\n" {
                        let part = parse_part_head(head)?;
                        self.parts.push(part);
                        // Even an empty part has a CR LF before its delimiter.
                        self.state = State::Content { matched_bytes: 0 };
                    } else if head.len() == MAX_PART_HEAD_BYTES {
                        return Err(MultipartError::PartHeadTooLong);
                    }
                }
                State::Epilogue => return Ok(()),
                state => *state = state.after_boundary(byte)?,
            }
            if matches!(self.state, State::AfterBoundaryCr) && self.parts.len() == MAX_PARTS {
                return Err(MultipartError::TooManyParts);
            }
            rest = &rest[1..];
        }
        Ok(())
    }

    /// Returns the parts once the body has ended.
    pub(crate) fn finish(self) -> Result<Vec<Part>, MultipartError> {
        match self.state {
            State::Epilogue => Ok(self.parts),
            _ => Err(MultipartError::Unfinished),
        }
    }

    fn add_content(&mut self, bytes: usize) {
        if let Some(part) = self.parts.last_mut() {
            part.bytes += bytes as u64;
        }
    }
}

impl State {
    /// Returns the state after one more byte on the line of a boundary.
    fn after_boundary(&self, byte: u8) -> Result<Self, MultipartError> {
        match (self, byte) {
            (Self::AfterBoundary, b'-') => Ok(Self::AfterBoundaryDash),
            (Self::AfterBoundaryDash, b'-') => Ok(Self::Epilogue),
            (Self::AfterBoundary | Self::AfterBoundarySpace, b' ' | b'\t') => {
                Ok(Self::AfterBoundarySpace)
            }
            (Self::AfterBoundary | Self::AfterBoundarySpace, b'\r') => Ok(Self::AfterBoundaryCr),
            (Self::AfterBoundaryCr, b'\n') => Ok(Self::PartHead(Vec::new())),
            _ => Err(MultipartError::Delimiter),
        }
    }
}

/// Parses the headers of a part. Of several names or filenames, the last one counts.
fn parse_part_head(head: &[u8]) -> Result<Part, MultipartError> {
    let mut name = None;
    let mut filename = None;
    // Invalid header lines are skipped.
    for line in head.split(|&byte| byte == b'\n') {
        let Some(colon) = memchr(b':', line) else { continue };
        if !line[..colon].eq_ignore_ascii_case(b"content-disposition") {
            continue;
        }
        let mut parameters = Parameters::parse(&line[colon + 1..]);
        if !parameters.value.eq_ignore_ascii_case(b"form-data") {
            continue;
        }
        while let Some((found, value)) = parameters.next() {
            if found.eq_ignore_ascii_case(b"name") {
                name = Some(value);
            } else if found.eq_ignore_ascii_case(b"filename") {
                filename = Some(value);
            }
        }
    }
    Ok(Part { name: name.ok_or(MultipartError::NoName)?, filename, bytes: 0 })
}

/// Parser of a header value with parameters: `value; name=value; name="quoted value"`.
struct Parameters<'a> {
    value: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Parameters<'a> {
    fn parse(header: &'a [u8]) -> Self {
        let end = memchr(b';', header).unwrap_or(header.len());
        Self { value: header[..end].trim_ascii(), rest: &header[end..] }
    }

    /// Returns the next parameter. Ends at the first syntax error.
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

/// Returns the text up to the closing quote, and the rest. Only quotes and backslashes are escaped
/// by a backslash: browsers send filenames with literal ones.
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

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &[u8] = b"multipart/form-data; boundary=aXb";

    fn parts(content_type: &[u8], pieces: &[&[u8]]) -> Result<Vec<Part>, MultipartError> {
        let mut multipart = Multipart::new(content_type)?.expect("multipart/form-data");
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

    /// With many near matches of the boundary.
    const BODY: &[u8] = b"preamble --aXb\r\n--aXc\r\n--aXb\r\n\
        Content-Disposition: form-data; name=\"a\"\r\n\r\nxyz\r\n--aXb \t\r\n\
        Content-Type: text/plain\r\ncontent-disposition:form-data;filename=\"b;\\\".txt\" ; name=f\r\n\r\n\
        \r\n-\r\n--aX\r\r\r\n--aYb--aXb\r\r\n--aXb\r\n\
        Content-Disposition: form-data; name=\"\"; filename=\"\"\r\n\r\n\r\n--aXb--\r\nepilogue\r\n--aXb\r\n";

    #[test]
    fn parts_do_not_depend_on_splits() {
        // The second part: CR LF -, CR LF --aX, CR CR, CR LF --aYb--aXb, CR.
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
    fn empty_form_has_no_parts() {
        assert_eq!(parts(TYPE, &[b"--aXb--"]), Ok(Vec::new()));
    }

    #[test]
    fn boundary_is_parsed_from_content_type() {
        for content_type in [
            &b"multipart/form-data; boundary=aXb"[..],
            b"Multipart/Form-Data;charset=utf-8;BOUNDARY=\"aXb\"",
            b" multipart/form-data ; boundary = aXb ; x=y",
        ] {
            assert_eq!(parts(content_type, &[b"--aXb--"]), Ok(Vec::new()));
        }
        for content_type in [&b""[..], b"text/plain; boundary=aXb", b"multipart/mixed; boundary=a"]
        {
            assert!(Multipart::new(content_type).unwrap().is_none());
        }
        let long = format!("multipart/form-data; boundary={}", "b".repeat(71));
        for content_type in [
            &b"multipart/form-data"[..],
            b"multipart/form-data; boundary=",
            b"multipart/form-data; boundary=\"open",
            b"multipart/form-data; boundary=\"a\x01\"",
            long.as_bytes(),
        ] {
            assert_eq!(Multipart::new(content_type).unwrap_err(), MultipartError::Boundary);
        }
    }

    #[test]
    fn malformed_forms_are_rejected() {
        let part = "--aXb\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n";
        let long = format!("--aXb\r\nX: {}", "y".repeat(MAX_PART_HEAD_BYTES));
        let many = part.repeat(MAX_PARTS + 1);
        for (body, fault) in [
            ("", MultipartError::Unfinished),
            (
                "--aXb\r\nContent-Disposition: form-data; name=a\r\n\r\n--aXb--",
                MultipartError::Unfinished,
            ),
            ("--aXb-\r\n", MultipartError::Delimiter),
            ("--aXbc\r\n", MultipartError::Delimiter),
            ("--aXb\rx", MultipartError::Delimiter),
            ("--aXb\r\n\r\n", MultipartError::NoName),
            ("--aXb\r\nContent-Disposition: form-data\r\n\r\n", MultipartError::NoName),
            ("--aXb\r\nContent-Disposition: attachment; name=a\r\n\r\n", MultipartError::NoName),
            (&long, MultipartError::PartHeadTooLong),
            (&many, MultipartError::TooManyParts),
        ] {
            assert_eq!(parts(TYPE, &[body.as_bytes()]), Err(fault), "{body:.80}");
        }
        let most = format!("{}--aXb--", part.repeat(MAX_PARTS));
        assert_eq!(parts(TYPE, &[most.as_bytes()]).unwrap().len(), MAX_PARTS);
    }
}
