//! `multipart/form-data` bodies.
//!
//! The parser reads lines as libmodsecurity does: at most 4,096 bytes at a time, a boundary only at the
//! start of a line, a final boundary even without a line break at the end of the body. It sets every
//! flag that libmodsecurity sets. It differs where an attack would pass, or a proper body would not:
//!
//! - A field keeps the line breaks within its value. (libmodsecurity 3.0.9 drops them.)
//! - An empty boundary is an error. (There the body is not looked at, without any flag.)
//! - A quoted parameter without its closing quote is an error. (There memory behind it is read.)
//! - Part headers come without their line break, as in libmodsecurity 3.0.10 and later.
//! - `filename*` is a file name, too: frameworks prefer it. (There it is not visible.) Its charset is one that is read here.
//! - Names with encoded words (RFC 2047) are visible as they are decoded, too, as some frameworks do. (There they are not.)
//! - A part that is a multipart body itself, which RFC 7578 deprecates, is an error. (There its file names are text.)
//! - A second header of the same name in a part is an error, and visible. (There it is not.)
//! - Other parameters may stand around the boundary, and it may be quoted, as those of Java and .NET are.

use std::ops::Range;

use memchr::{memchr, memmem};

use super::parameter::{
    chomp, decode_words, extended_value, is_token, parse_boundary, quoted_value, skip_blanks,
};
use crate::body::Limits;
use crate::limits::{LINE_MAX, PART_HEADERS_MAX};
use crate::transformation::is_space;

/// A parsed body. Ranges are those of the bytes in the body.
///
/// A body without its final boundary has no fields and files, but names and headers of the parts
/// that were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Multipart {
    pub(crate) fields: Vec<Field>,
    pub(crate) files: Vec<FilePart>,
    /// Name of the part and header line (`MULTIPART_PART_HEADERS`). A folded line is
    /// `name: value` with the folds replaced by spaces.
    pub(crate) part_headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// Each parameter `name` of the body, encoded words as sent and decoded (`MULTIPART_NAME`).
    pub(crate) names: Vec<Vec<u8>>,
    /// Each parameter `filename` and `filename*` of the body, encoded words as sent and decoded (`MULTIPART_FILENAME`).
    pub(crate) file_names: Vec<Vec<u8>>,
    pub(crate) flags: Flags,
    /// First reason that the body is invalid (`REQBODY_ERROR_MSG`).
    pub(crate) error: Option<String>,
}

/// A part without a file name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: Vec<u8>,
    /// The name with its encoded words decoded, if it has any.
    pub(crate) other_name: Option<Vec<u8>>,
    pub(crate) kind: PartKind,
    pub(crate) value: Range<usize>,
}

/// Type of a field, by its `Content-Type`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum PartKind {
    #[default]
    Text,
    Json,
    Xml,
}

/// A part with a file name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilePart {
    pub(crate) name: Vec<u8>,
    pub(crate) file_name: Vec<u8>,
    /// `filename*`, and names with decoded words.
    pub(crate) other_names: Vec<Vec<u8>>,
    pub(crate) content: Range<usize>,
}

/// Deviations from the strict form: the variables `MULTIPART_*`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) boundary_quoted: bool,
    pub(crate) boundary_whitespace: bool,
    pub(crate) data_before: bool,
    pub(crate) data_after: bool,
    pub(crate) header_folding: bool,
    /// A line ends in a line feed without a carriage return.
    pub(crate) lf_line: bool,
    pub(crate) crlf_line: bool,
    pub(crate) missing_semicolon: bool,
    pub(crate) invalid_quoting: bool,
    pub(crate) invalid_part: bool,
    pub(crate) invalid_header_folding: bool,
    /// 2 if a boundary followed another, as in every proper body; 1 if a line looked like a
    /// boundary after that, or no boundary followed.
    pub(crate) unmatched_boundary: u8,
    /// The body could not be read to its end.
    pub(crate) broken: bool,
}

impl Flags {
    /// `MULTIPART_STRICT_ERROR`.
    pub(crate) fn strict_error(&self) -> bool {
        self.broken
            || self.boundary_whitespace
            || self.data_before
            || self.data_after
            || self.header_folding
            || self.lf_line
            || self.missing_semicolon
            || self.invalid_quoting
            || self.invalid_part
            || self.invalid_header_folding
    }

    /// `MULTIPART_CRLF_LF_LINES`.
    pub(crate) fn crlf_lf_lines(&self) -> bool {
        self.crlf_line && self.lf_line
    }
}

/// Parses a body with the boundary of its `Content-Type`.
pub(crate) fn parse(input: &[u8], content_type: &[u8], limits: &Limits) -> Multipart {
    let mut out = Multipart::default();
    let boundary = match parse_boundary(content_type) {
        Ok(boundary) => {
            out.flags.boundary_quoted = boundary.is_quoted;
            out.flags.boundary_whitespace = boundary.is_spaced;
            out.flags.missing_semicolon = boundary.lacks_semicolon;
            boundary.bytes
        }
        Err(reason) => {
            out.flags.broken = true;
            out.error = Some(reason.to_owned());
            return out;
        }
    };
    if input.is_empty() {
        return out;
    }
    let delimiter = [b"--", boundary].concat();
    let finder = memmem::Finder::new(&delimiter);
    let mut parser = Parser {
        input,
        delimiter: &delimiter,
        finder,
        limits,
        out,
        part: None,
        boundaries: 0,
        after_lf: false,
        complete: false,
    };
    if let Err(reason) = parser.lines() {
        parser.out.flags.broken = true;
        parser.report(&reason);
    }
    if limits.is_cut {
        parser.end_part();
    }
    let mut out = parser.out;
    if !parser.complete && !limits.is_cut {
        let reason = if parser.boundaries > 0 {
            "final boundary missing"
        } else {
            "no boundary in the body"
        };
        out.error.get_or_insert_with(|| reason.to_owned());
        out.fields.clear();
        out.files.clear();
    }
    out
}

#[derive(Default)]
struct Part {
    /// Names and values.
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// Index of the header that a folded line continues.
    last_header: Option<usize>,
    /// Line of that header, kept until it is complete.
    last_line: Vec<u8>,
    lines: Vec<Vec<u8>>,
    name: Vec<u8>,
    file_name: Vec<u8>,
    extended_name: Vec<u8>,
    /// Names with their encoded words decoded.
    decoded_name: Option<Vec<u8>>,
    decoded_file_name: Option<Vec<u8>>,
    kind: PartKind,
    /// The empty line after proper headers was read.
    in_data: bool,
    is_file: bool,
    data: Option<Range<usize>>,
}

struct Parser<'a> {
    input: &'a [u8],
    /// Two hyphens and the boundary.
    delimiter: &'a [u8],
    finder: memmem::Finder<'a>,
    limits: &'a Limits,
    out: Multipart,
    part: Option<Part>,
    boundaries: usize,
    /// The line before the current one ended in a line feed alone.
    after_lf: bool,
    complete: bool,
}

impl Parser<'_> {
    fn report(&mut self, reason: &str) {
        self.out.error.get_or_insert_with(|| reason.to_owned());
    }

    /// Reads the body line by line. Fails where libmodsecurity stops reading.
    fn lines(&mut self) -> Result<(), String> {
        let mut start = 0;
        let mut at_line_start = true;
        while start < self.input.len() {
            let window = &self.input[start..self.input.len().min(start + LINE_MAX)];
            let (length, whole_line) = match memchr(b'\n', window) {
                Some(end) => (end + 1, true),
                // A carriage return is not taken as the last byte.
                None if window.len() == LINE_MAX => {
                    (LINE_MAX - usize::from(window.ends_with(b"\r")), false)
                }
                None => {
                    self.end_without_line_break(window, at_line_start);
                    let is_data = self.part.as_ref().is_some_and(|part| part.in_data);
                    if self.limits.is_cut && !self.complete && is_data {
                        self.content(start..self.input.len(), false)?;
                    }
                    return Ok(());
                }
            };
            let chunk = start..start + length;
            if !(at_line_start && self.boundary_line(&self.input[chunk.clone()])?) {
                self.content(chunk, whole_line && length < LINE_MAX)?;
            }
            start += length;
            at_line_start = whole_line;
            self.after_lf = whole_line && !self.input[..start].ends_with(b"\r\n");
            if self.complete {
                self.out.flags.data_after = start < self.input.len();
                return Ok(());
            }
        }
        Ok(())
    }

    /// Handles the last line of the body if it has no line break: a final boundary counts.
    fn end_without_line_break(&mut self, line: &[u8], at_line_start: bool) {
        let is_final = line.strip_prefix(self.delimiter) == Some(b"--".as_slice());
        if self.boundaries > 0 && at_line_start && is_final {
            self.out.flags.lf_line |= self.after_lf;
            self.out.flags.invalid_part |=
                self.part.as_ref().is_some_and(|part| part.data.is_none());
            self.end_part();
            self.complete = true;
        }
    }

    /// Handles a line that is a boundary and returns true if it was one.
    fn boundary_line(&mut self, line: &[u8]) -> Result<bool, String> {
        // libmodsecurity compares C strings here.
        let text = &line[..memchr(0, line).unwrap_or(line.len())];
        if text.len() <= 3 || !text.starts_with(b"--") {
            if self.finder.find(line).is_some() {
                self.out.flags.unmatched_boundary = 1;
            }
            return Ok(false);
        }
        let boundary = &self.delimiter[2..];
        let Some(end) = text.strip_prefix(self.delimiter) else {
            let inner = &text[2..];
            if self.out.flags.boundary_quoted
                && inner.strip_prefix(b"\"").is_some_and(|rest| rest.starts_with(boundary))
            {
                return Err("invalid boundary (quotes)".to_owned());
            }
            let trimmed = inner.iter().position(|byte| !is_space(*byte)).unwrap_or(inner.len());
            if trimmed > 0 && inner[trimmed..].starts_with(boundary) {
                return Err("invalid boundary (whitespace)".to_owned());
            }
            self.out.flags.unmatched_boundary = 1;
            return Ok(false);
        };
        self.out.flags.lf_line |= self.after_lf;
        if self.boundaries > 0 && self.part.as_ref().is_some_and(|part| part.data.is_none()) {
            // Part headers or data should be here.
            self.out.flags.invalid_part = true;
            return Ok(false);
        }
        if self.boundaries > 0 {
            self.out.flags.unmatched_boundary = 2;
        }
        let (end, is_final) = match end.strip_prefix(b"--") {
            Some(end) => (end, true),
            None => (end, false),
        };
        match end {
            b"\r\n" => self.out.flags.crlf_line = true,
            b"\n" => self.out.flags.lf_line = true,
            _ => return Err(format!("invalid boundary: {}", text.escape_ascii())),
        }
        self.end_part();
        self.boundaries += 1;
        self.complete = is_final;
        if !is_final {
            if self.boundaries > self.limits.parts {
                return Err(format!("more than {} parts", self.limits.parts));
            }
            self.part = Some(Part::default());
        }
        Ok(true)
    }

    /// Handles a line, or a piece of one, that is not a boundary.
    fn content(&mut self, chunk: Range<usize>, header_fits: bool) -> Result<(), String> {
        let line = &self.input[chunk.clone()];
        let Some(part) = &mut self.part else {
            self.out.flags.data_before = true;
            return Ok(());
        };
        if part.in_data {
            let line_break =
                if line.ends_with(b"\r\n") { 2 } else { usize::from(line.ends_with(b"\n")) };
            let start = part.data.as_ref().map_or(chunk.start, |data| data.start);
            part.data = Some(start..chunk.end - line_break);
            return Ok(());
        }
        if !header_fits {
            return Err(format!("part header line over {LINE_MAX} bytes"));
        }
        // Errors of headers do not end the parse: the following lines are still read as headers.
        if let Err(reason) = self.header_line(line) {
            self.report(&reason);
        }
        Ok(())
    }

    fn header_line(&mut self, line: &[u8]) -> Result<(), String> {
        let Some(part) = &mut self.part else { return Ok(()) };
        let flags = &mut self.out.flags;
        if memchr(0, line).is_some() {
            return Err("zero byte in part headers".to_owned());
        }
        let text = match line {
            [text @ .., b'\r', b'\n'] => {
                flags.crlf_line = true;
                text
            }
            [text @ .., b'\n'] => {
                flags.lf_line = true;
                text
            }
            text => text,
        };
        if text.is_empty() {
            return self.end_headers();
        }
        let blank = text.iter().position(|byte| !is_space(*byte)).unwrap_or(text.len());
        if blank > 0 {
            flags.header_folding = true;
            flags.invalid_header_folding |= !matches!(text[0], b' ' | b'\t');
            let Some((name, value)) = part.last_header.and_then(|last| part.headers.get_mut(last))
            else {
                return Err("invalid part header (folding)".to_owned());
            };
            let proper = text[..blank].iter().all(|byte| matches!(byte, b' ' | b'\t'));
            flags.invalid_header_folding |= !proper || blank == text.len();
            if value.len() + 1 + text.len() - blank > LINE_MAX {
                return Err("part header too long".to_owned());
            }
            value.push(b' ');
            value.extend_from_slice(chomp(&text[blank..]));
            part.last_line = [name, b": ".as_slice(), value].concat();
            return Ok(());
        }
        part.finish_line();
        let colon = memchr(b':', text).ok_or_else(|| {
            format!("invalid part header (colon missing): {}", text.escape_ascii())
        })?;
        let (name, value) = (&text[..colon], &text[colon + 1..]);
        if name.is_empty() {
            return Err("invalid part header (name missing)".to_owned());
        }
        let is_duplicate = part.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        if part.headers.len() >= PART_HEADERS_MAX {
            return Err(format!("more than {PART_HEADERS_MAX} part headers"));
        }
        let start =
            value.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(value.len());
        part.last_header = Some(part.headers.len());
        part.headers.push((name.to_vec(), chomp(&value[start..]).to_vec()));
        part.last_line = text.to_vec();
        if is_duplicate {
            // The first one counts here. A framework may take the last.
            flags.invalid_part = true;
            return Err(format!("duplicate part header: {}", name.escape_ascii()));
        }
        Ok(())
    }

    /// Handles the empty line after the headers of a part.
    fn end_headers(&mut self) -> Result<(), String> {
        let Some(part) = &mut self.part else { return Ok(()) };
        part.finish_line();
        let disposition =
            part.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(b"Content-Disposition"));
        let Some((_, disposition)) = disposition else {
            return Err("part without Content-Disposition".to_owned());
        };
        let disposition = disposition.clone();
        self.content_disposition(&disposition).map_err(|reason| {
            format!("invalid Content-Disposition ({reason}): {}", disposition.escape_ascii())
        })?;
        let Some(part) = &mut self.part else { return Ok(()) };
        if part.name.is_empty() {
            return Err("Content-Disposition without a name".to_owned());
        }
        // A cruder parser may not see the file name.
        if !part.file_name.is_empty() && memmem::find(&disposition, b"filename=").is_none() {
            return Err("invalid Content-Disposition (filename)".to_owned());
        }
        let mut headers = part.headers.iter();
        let kind = headers.find(|(name, _)| name.eq_ignore_ascii_case(b"Content-Type"));
        match kind.map(|(_, kind)| part_kind(kind)) {
            Some(Some(kind)) => part.kind = kind,
            Some(None) => {
                self.out.flags.invalid_part = true;
                self.report("multipart body within a part");
            }
            None => {}
        }
        let Some(part) = &mut self.part else { return Ok(()) };
        part.in_data = true;
        part.is_file = !part.file_name.is_empty();
        part.last_header = None;
        Ok(())
    }

    /// Reads name and file name from the value of a `Content-Disposition`.
    fn content_disposition(&mut self, value: &[u8]) -> Result<(), &'static str> {
        let Some(part) = &mut self.part else { return Ok(()) };
        let mut rest = skip_blanks(value.strip_prefix(b"form-data").ok_or("other than form-data")?);
        if rest.is_empty() {
            return Ok(());
        }
        rest = rest.strip_prefix(b";").ok_or("semicolon missing")?;
        while !rest.is_empty() {
            rest = skip_blanks(rest);
            let end = rest
                .iter()
                .position(|byte| matches!(byte, b'=' | b' ' | b'\t'))
                .ok_or("parameter without a value")?;
            let (name, after) = rest.split_at(end);
            let after =
                skip_blanks(skip_blanks(after).strip_prefix(b"=").ok_or("equals sign missing")?);
            if after.is_empty() {
                return Err("parameter without a value");
            }
            let (parameter, quote, after) = match after[0] {
                _ if name == b"filename*" => {
                    let (parameter, after) = extended_value(after)?;
                    (parameter, 0, after)
                }
                quote @ (b'"' | b'\'') => {
                    self.out.flags.invalid_quoting |= quote == b'\'';
                    let (parameter, after) = quoted_value(&after[1..], quote)?;
                    (parameter, quote, after)
                }
                _ => {
                    let end = after.iter().position(|byte| !is_token(*byte)).unwrap_or(after.len());
                    (after[..end].to_vec(), 0, &after[end..])
                }
            };
            let decoded = if name == b"filename*" { None } else { decode_words(&parameter) };
            let target = match name {
                b"name" => {
                    self.out.names.extend([parameter.clone()].into_iter().chain(decoded.clone()));
                    part.decoded_name = decoded;
                    &mut part.name
                }
                b"filename" => {
                    let names = [parameter.clone()].into_iter().chain(decoded.clone());
                    self.out.file_names.extend(names);
                    part.decoded_file_name = decoded;
                    &mut part.file_name
                }
                b"filename*" => {
                    self.out.file_names.push(parameter.clone());
                    &mut part.extended_name
                }
                _ => return Err("unknown parameter"),
            };
            self.out.flags.invalid_quoting |=
                name != b"filename*" && quote != b'"' && parameter.contains(&b'\'');
            if !target.is_empty() {
                return Err("duplicate parameter");
            }
            *target = parameter;
            rest = skip_blanks(after);
            if let Some(byte) = rest.first() {
                if *byte != b';' {
                    let before = value[value.len() - rest.len() - 1];
                    self.out.flags.invalid_quoting |= matches!(before, b'"' | b'\'');
                    return Err("semicolon missing");
                }
                rest = &rest[1..];
            }
        }
        if !part.extended_name.is_empty() && part.file_name.is_empty() {
            Err("filename* without filename")
        } else {
            Ok(())
        }
    }

    /// Ends the part that is being read, if there is one.
    fn end_part(&mut self) {
        let Some(part) = self.part.take() else { return };
        self.out.part_headers.extend(part.lines.into_iter().map(|line| (part.name.clone(), line)));
        let data = part.data.unwrap_or(0..0);
        if part.name.is_empty() {
            self.out.flags.invalid_part = true;
        } else if !part.is_file {
            self.out.fields.push(Field {
                name: part.name,
                other_name: part.decoded_name,
                kind: part.kind,
                value: data,
            });
        } else {
            let extended = Some(part.extended_name).filter(|name| !name.is_empty());
            self.out.files.push(FilePart {
                name: part.name,
                file_name: part.file_name,
                other_names: extended.into_iter().chain(part.decoded_file_name).collect(),
                content: data,
            });
        }
    }
}

/// The kind of a part; `None` for a multipart body.
fn part_kind(content_type: &[u8]) -> Option<PartKind> {
    let end = memchr(b';', content_type).unwrap_or(content_type.len());
    let kind = content_type[..end].trim_ascii().to_ascii_lowercase();
    if kind.starts_with(b"multipart/") {
        None
    } else if kind.ends_with(b"/json") || kind.ends_with(b"+json") {
        Some(PartKind::Json)
    } else if kind.ends_with(b"/xml") || kind.ends_with(b"+xml") {
        Some(PartKind::Xml)
    } else {
        Some(PartKind::Text)
    }
}

impl Part {
    fn finish_line(&mut self) {
        if !self.last_line.is_empty() {
            self.lines.push(std::mem::take(&mut self.last_line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { depth: 8, parts: 3, name_bytes: 1000, is_cut: false };

    fn parse_parts(body: &str) -> Multipart {
        parse(body.as_bytes(), b"multipart/form-data; boundary=xx", &LIMITS)
    }

    const NAME: &str = "Content-Disposition: form-data; name=\"a\"";

    #[test]
    fn returns_fields_and_files_with_their_ranges() {
        let body = format!(
            "--xx\r\n{NAME}\r\n\r\nl1\r\nl2\r\n--xx\r\n{NAME}; filename=\"f.txt\"\r\nContent-Type: text/plain\r\n\r\n\r\nx\r\n--xx--\r\n"
        );
        let parsed = parse_parts(&body);
        assert_eq!(parsed.error, None);
        assert!(!parsed.flags.strict_error());
        assert_eq!(parsed.flags.unmatched_boundary, 2);
        assert_eq!(&body[parsed.fields[0].value.clone()], "l1\r\nl2");
        assert_eq!(&body[parsed.files[0].content.clone()], "\r\nx");
        assert_eq!(
            (&*parsed.files[0].name, &*parsed.files[0].file_name),
            (&b"a"[..], &b"f.txt"[..])
        );
        assert_eq!(parsed.names, [b"a", b"a"]);
        assert_eq!(parsed.file_names, [b"f.txt"]);
        let lines: Vec<_> =
            parsed.part_headers.iter().map(|(_, line)| String::from_utf8_lossy(line)).collect();
        assert_eq!(
            lines,
            [NAME, &format!("{NAME}; filename=\"f.txt\""), "Content-Type: text/plain"]
        );
    }

    #[test]
    fn keeps_names_and_drops_fields_without_the_final_boundary() {
        let parsed = parse_parts(&format!("--xx\r\n{NAME}\r\n\r\nv\r\n"));
        assert_eq!(parsed.error.as_deref(), Some("final boundary missing"));
        assert_eq!((parsed.fields.len(), parsed.names.len()), (0, 1));
        assert_eq!(parse_parts("junk").error.as_deref(), Some("no boundary in the body"));
        assert_eq!(parse_parts(""), Multipart::default());
    }

    #[test]
    fn every_file_name_and_header_of_a_part_is_visible() {
        let body = format!(
            "--xx\r\n{NAME}; filename=\"a.gif\"; filename*=UTF-8''sh%65ll.php\r\n\r\nx\r\n--xx--\r\n"
        );
        let parsed = parse_parts(&body);
        assert_eq!(parsed.error, None);
        assert_eq!(parsed.files[0].other_names, [b"shell.php"]);
        assert_eq!(parsed.file_names, [&b"a.gif"[..], b"shell.php"]);
        let body = format!(
            "--xx\r\n{NAME}; filename=\"a.gif\"\r\ncontent-disposition: form-data; name=\"a\"; filename=\"s.php\"\r\n\r\nx\r\n--xx--\r\n"
        );
        let parsed = parse_parts(&body);
        assert_eq!(parsed.error.as_deref(), Some("duplicate part header: content-disposition"));
        assert!(parsed.flags.strict_error());
        assert_eq!(parsed.part_headers.len(), 2);
    }

    #[test]
    fn names_are_read_in_their_charsets() {
        let extended = |value: &str| {
            let body = format!(
                "--xx\r\n{NAME}; filename=\"a.gif\"; filename*={value}\r\n\r\nx\r\n--xx--\r\n"
            );
            parse_parts(&body)
        };
        for (value, expected) in [
            ("UTF-8''sh%65ll.php", &b"shell.php"[..]),
            ("iso-8859-1'en'%e9", b"\xe9"),
            ("Shift_JIS''%83%5c", "\u{30bd}".as_bytes()),
        ] {
            assert_eq!(extended(value).files[0].other_names, [expected], "{value}");
        }
        for value in ["UTF-16BE''%00s%00h", "utf-7''shell+AC4-php", "nope''x", "iso-2022-jp''x"] {
            let error = extended(value).error.unwrap_or_default();
            assert!(error.contains("unsupported charset"), "{value}: {error}");
        }
        for (name, expected) in [
            ("=?utf-8?B?c2hlbGwucGhw?=", Some(&b"shell.php"[..])),
            ("a =?UTF-8*en?q?shell=2Ephp_?==?x?b?eA?= z", Some(b"a shell.php x z")),
            ("=?iso-8859-1?Q?=E9=?=", Some("\u{e9}=".as_bytes())),
            ("=?utf-8?X?eA?=", None),
            ("=?utf-8?B?eA", None),
            ("=?=?=??=", None),
        ] {
            let body = format!(
                "--xx\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\n\r\nx\r\n--xx--\r\n"
            );
            let parsed = parse_parts(&body);
            let expected: Vec<&[u8]> = expected.into_iter().collect();
            assert_eq!(parsed.files[0].other_names, expected, "{name}");
            assert_eq!(
                (&parsed.names[1..], &parsed.file_names[1..]),
                (&*parsed.files[0].other_names, &*parsed.files[0].other_names)
            );
            let field = parse_parts(&body.replace("; filename", "\r\nX-Filename: x"));
            assert_eq!(field.fields[0].other_name.as_deref(), expected.first().copied());
        }
    }

    #[test]
    fn kinds_of_parts_are_known() {
        for (kind, expected) in [
            ("text/plain", Some(PartKind::Text)),
            ("Application/JSON; charset=utf-8", Some(PartKind::Json)),
            ("application/problem+json", Some(PartKind::Json)),
            ("text/xml", Some(PartKind::Xml)),
            ("image/svg+XML ;x=y", Some(PartKind::Xml)),
            ("multipart/mixed; boundary=y", None),
        ] {
            let body = format!("--xx\r\n{NAME}\r\nContent-Type: {kind}\r\n\r\n1\r\n--xx--\r\n");
            let parsed = parse_parts(&body);
            assert_eq!(parsed.error.is_some(), expected.is_none(), "{kind}");
            assert_eq!(parsed.flags.strict_error(), expected.is_none(), "{kind}");
            assert_eq!(parsed.fields[0].kind, expected.unwrap_or_default(), "{kind}");
        }
    }

    #[test]
    fn reads_the_boundary_among_other_parameters() {
        for (content_type, expected) in [
            ("multipart/form-data; boundary=----geckoformboundary1;charset=UTF-8", None),
            ("multipart/form-data; charset=UTF-8; boundary=\"----geckoformboundary1\"", None),
            ("multipart/form-data; boundary=\"----geckoformboundary1\"; charset=\"a;b\"", None),
            ("multipart/form-data; boundary=x; boundary=y", Some("multiple boundary parameters")),
            ("multipart/form-data; boundary=\"x", Some("(quote)")),
            ("multipart/form-data; boundary=x\"y", Some("(quote)")),
            ("multipart/form-data; boundary=\"x\"y", Some("(malformed)")),
            ("multipart/form-data; BOUNDARY=x", Some("(case)")),
            ("multipart/form-data; charset=UTF-8", Some("no boundary")),
            ("multipart/form-data; boundary=aboundary=b", Some("(content)")),
        ] {
            let body = "------geckoformboundary1\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nv\r\n------geckoformboundary1--\r\n";
            let parsed = parse(body.as_bytes(), content_type.as_bytes(), &LIMITS);
            match expected {
                None => {
                    assert_eq!(parsed.error, None, "{content_type}");
                    assert!(!parsed.flags.strict_error(), "{content_type}");
                    assert_eq!(parsed.fields.len(), 1);
                }
                Some(reason) => {
                    let error = parsed.error.unwrap_or_default();
                    assert!(error.contains(reason), "{content_type}: {error}");
                }
            }
        }
    }

    #[test]
    fn body_that_is_cut_keeps_its_parts() {
        let limits = Limits { is_cut: true, ..LIMITS };
        let body = format!("--xx\r\n{NAME}\r\n\r\nv\r\n--xx\r\n{NAME}\r\n\r\nlast\r\nline\r\ncut");
        let parsed = parse(body.as_bytes(), b"multipart/form-data; boundary=xx", &limits);
        assert_eq!(parsed.error, None);
        let values: Vec<_> = parsed.fields.iter().map(|field| &body[field.value.clone()]).collect();
        assert_eq!(values, ["v", "last\r\nline\r\ncut"]);
    }

    #[test]
    fn rejects_what_libmodsecurity_lets_through() {
        let unclosed =
            parse_parts(&format!("--xx\r\n{}\r\n\r\nv\r\n--xx--\r\n", NAME.trim_end_matches('"')));
        assert!(unclosed.error.unwrap().contains("closing quote missing"));
        let empty = parse(b"--\r\n", b"multipart/form-data; boundary=", &LIMITS);
        assert!(empty.flags.strict_error());
        assert_eq!(empty.error.as_deref(), Some("invalid boundary in Content-Type (empty)"));
    }

    #[test]
    fn limits_parts_headers_and_lines() {
        let part = format!("--xx\r\n{NAME}\r\n\r\nv\r\n");
        assert_eq!(parse_parts(&format!("{}--xx--\r\n", part.repeat(3))).error, None);
        assert_eq!(
            parse_parts(&format!("{}--xx--\r\n", part.repeat(4))).error.as_deref(),
            Some("more than 3 parts")
        );
        let headers: String = (0..200).map(|i| format!("X-{i}: y\r\n")).collect();
        let many = parse_parts(&format!("--xx\r\n{NAME}\r\n{headers}\r\nv\r\n--xx--\r\n"));
        assert_eq!(many.error.as_deref(), Some("more than 100 part headers"));
        let long = parse_parts(&format!(
            "--xx\r\n{NAME}\r\nX: {}\r\n\r\nv\r\n--xx--\r\n",
            "y".repeat(5000)
        ));
        assert_eq!(long.error.as_deref(), Some("part header line over 4096 bytes"));
        let folds = format!(" {}\r\n", "y".repeat(3000)).repeat(2);
        let folded = parse_parts(&format!("--xx\r\n{NAME}\r\nX: y\r\n{folds}\r\nv\r\n--xx--\r\n"));
        assert_eq!(folded.error.as_deref(), Some("part header too long"));
    }
}
