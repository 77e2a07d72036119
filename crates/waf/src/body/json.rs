//! JSON bodies, flattened to named values.

use std::ops::Range;

use crate::body::Limits;
use crate::limits::{SHARED_PATH_MAX, SPECIAL_WEIGHT};

/// Name of a member whose key is empty, as in libmodsecurity.
const EMPTY_KEY: &[u8] = b"empty-key";
const UNEXPECTED_END: &str = "unexpected end";
/// Stands before the index of an array's element.
const ELEMENT: &[u8] = b".array_";

/// Error of a JSON body, with the position at which it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid JSON at byte {offset}: {reason}")]
pub(crate) struct JsonError {
    pub(crate) offset: usize,
    pub(crate) reason: &'static str,
}

/// Name of a value. The elements of an array share their path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name<'a> {
    /// The whole name, or that of an element up to its index.
    pub(crate) path: &'a [u8],
    pub(crate) element: Option<Element>,
}

/// Element of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) index: u32,
    /// Arrays and objects around it.
    pub(crate) depth: usize,
    /// No element of the array was visited before.
    pub(crate) is_first: bool,
}

/// Calls `visit` with the name and text of each string, number, boolean, null and empty container, in the order of
/// the body, until it returns false; the rest is not looked at then.
///
/// Names are those of libmodsecurity: `{"a":[{"b":1}]}` has the value `1` with the name
/// `json.a.array_0.b`; a value at the top is `json`. Duplicates are visited each time. Numbers keep
/// their spelling; null and empty containers are empty texts, so that rules see their keys. (libmodsecurity does not visit
/// empty containers.) Values before an error have been visited. The accepted syntax is
/// yajl's: RFC 8259 with vertical tabs and form feeds as whitespace, any three- or four-byte form of
/// UTF-8, and lone surrogates; a high one gives `?`. (In libmodsecurity it swallows the escape behind it.) An empty body
/// is not an error.
///
/// Of a body that is cut, the last value is visited as far as it goes.
///
/// An error if arrays and objects are nested deeper than `limits.depth`, or if the paths of all
/// values together exceed `limits.name_bytes`. Those of an array's elements count once, unless they are very long; those
/// with special characters, which cost rules more, count twice.
pub(crate) fn parse(
    input: &[u8],
    limits: &Limits,
    mut visit: impl FnMut(Name<'_>, &[u8]) -> bool,
) -> Result<(), JsonError> {
    if input.is_empty() {
        return Ok(());
    }
    let mut parser = Parser {
        input,
        at: 0,
        path: b"json".to_vec(),
        containers: Vec::new(),
        buffer: Vec::new(),
        limits,
        name_bytes: 0,
    };
    loop {
        let scalar = match parser.peek_token() {
            Some(b'{') => {
                parser.open(None)?;
                if parser.peek_token() != Some(b'}') {
                    parser.member()?;
                    continue;
                }
                parser.close()
            }
            Some(b'[') => {
                parser.open(Some(0))?;
                if parser.peek_token() != Some(b']') {
                    parser.element(0);
                    continue;
                }
                parser.close()
            }
            Some(b'"') => Some(parser.string()?),
            Some(b'-' | b'0'..=b'9') => Some(parser.number()?),
            Some(b't') => Some(parser.literal(b"true")?),
            Some(b'f') => Some(parser.literal(b"false")?),
            Some(b'n') => {
                parser.literal(b"null")?;
                Some(Text::Input(0..0))
            }
            Some(_) => return Err(parser.error("expected a value")),
            // The key is inspected.
            None if parser.is_cut_behind_key() => Some(Text::Input(0..0)),
            None => return Err(parser.error(UNEXPECTED_END)),
        };
        if let Some(text) = scalar {
            let element = parser.count_element();
            let path = element.map_or(parser.path.len(), |(_, path)| path);
            let is_shared = path <= SHARED_PATH_MAX && element.is_some_and(|(at, _)| !at.is_first);
            if !is_shared {
                let is_plain = parser.path[..path].iter().all(is_plain);
                parser.name_bytes += if is_plain { path } else { SPECIAL_WEIGHT * path };
            }
            if parser.name_bytes > limits.name_bytes {
                return Err(parser.error("the names of all values are too long"));
            }
            let name =
                Name { path: &parser.path[..path], element: element.map(|(element, _)| element) };
            if !visit(name, parser.text(&text)) {
                return Ok(());
            }
        }
        if !parser.next_value()? {
            break;
        }
    }
    match parser.peek_token() {
        None => Ok(()),
        Some(_) => Err(parser.error("unexpected data after the end")),
    }
}

struct Container {
    /// Length of the name of the container.
    path_len: usize,
    /// Index of the current element of an array.
    index: Option<u32>,
    /// An element of the array, itself no container, was visited.
    visited: bool,
}

/// Content of a string or the text of a number.
enum Text {
    Input(Range<usize>),
    /// Unescaped, in the buffer of the parser.
    Buffer,
}

struct Parser<'a> {
    input: &'a [u8],
    at: usize,
    /// Name of the current value.
    path: Vec<u8>,
    containers: Vec<Container>,
    buffer: Vec<u8>,
    limits: &'a Limits,
    name_bytes: usize,
}

impl JsonError {
    /// The body ends too early.
    pub(crate) fn is_of_end(&self) -> bool {
        self.reason == UNEXPECTED_END
    }
}

impl Parser<'_> {
    fn error(&self, reason: &'static str) -> JsonError {
        JsonError { offset: self.at, reason }
    }

    fn text(&self, text: &Text) -> &[u8] {
        match text {
            Text::Input(range) => &self.input[range.clone()],
            Text::Buffer => &self.buffer,
        }
    }

    /// True at the end of a cut body whose last member has a key and nothing else.
    fn is_cut_behind_key(&self) -> bool {
        self.limits.is_cut && self.containers.last().is_some_and(|last| last.index.is_none())
    }

    /// Skips whitespace and returns the byte that follows.
    fn peek_token(&mut self) -> Option<u8> {
        while let Some(&byte) = self.input.get(self.at) {
            if !matches!(byte, b' ' | b'\t'..=b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    fn open(&mut self, index: Option<u32>) -> Result<(), JsonError> {
        if self.containers.len() >= self.limits.depth {
            return Err(self.error("nested too deep"));
        }
        self.at += 1;
        self.containers.push(Container { path_len: self.path.len(), index, visited: false });
        Ok(())
    }

    /// Ends a container without content. Returns its text, unless it is the whole body.
    fn close(&mut self) -> Option<Text> {
        self.at += 1;
        self.containers.pop();
        (!self.containers.is_empty()).then_some(Text::Input(0..0))
    }

    /// If the current value is an element of an array: which, and the length of its path without the index.
    fn count_element(&mut self) -> Option<(Element, usize)> {
        let depth = self.containers.len();
        let container = self.containers.last_mut()?;
        let index = container.index?;
        let is_first = !std::mem::replace(&mut container.visited, true);
        Some((Element { index, depth, is_first }, container.path_len + ELEMENT.len()))
    }

    /// Goes on to the next value after one has ended. False at the end of the outermost value.
    fn next_value(&mut self) -> Result<bool, JsonError> {
        loop {
            let token =
                if self.containers.is_empty() { return Ok(false) } else { self.peek_token() };
            let Some(container) = self.containers.last_mut() else { return Ok(false) };
            self.path.truncate(container.path_len);
            match (token, &mut container.index) {
                (Some(b','), Some(index)) => {
                    *index += 1;
                    let index = *index;
                    self.at += 1;
                    self.element(index);
                    return Ok(true);
                }
                (Some(b','), None) => {
                    self.at += 1;
                    self.member()?;
                    return Ok(true);
                }
                (Some(b']'), Some(_)) | (Some(b'}'), None) => {
                    self.at += 1;
                    self.containers.pop();
                }
                (None, _) => return Err(self.error(UNEXPECTED_END)),
                (_, Some(_)) => {
                    return Err(self.error("expected `,` or `]` after an array element"));
                }
                (_, None) => return Err(self.error("expected `,` or `}` after an object member")),
            }
        }
    }

    /// Appends the name of an array element to the path.
    fn element(&mut self, index: u32) {
        self.path.extend_from_slice(ELEMENT);
        self.path.extend_from_slice(itoa::Buffer::new().format(index).as_bytes());
    }

    /// Reads key and colon of an object member and appends the key to the path.
    fn member(&mut self) -> Result<(), JsonError> {
        match self.peek_token() {
            Some(b'"') => {}
            Some(_) => return Err(self.error("expected a string as the key")),
            None => return Err(self.error(UNEXPECTED_END)),
        }
        let key = self.string()?;
        let key = match &key {
            Text::Input(range) => &self.input[range.clone()],
            Text::Buffer => &self.buffer,
        };
        self.path.push(b'.');
        self.path.extend_from_slice(if key.is_empty() { EMPTY_KEY } else { key });
        match self.peek_token() {
            Some(b':') => self.at += 1,
            None if self.limits.is_cut => {}
            Some(_) => return Err(self.error("expected `:` after the key")),
            None => return Err(self.error(UNEXPECTED_END)),
        }
        Ok(())
    }

    fn literal(&mut self, word: &[u8]) -> Result<Text, JsonError> {
        let rest = &self.input[self.at..];
        if !rest.starts_with(word) {
            let is_end = word.starts_with(rest);
            return Err(self.error(if is_end { UNEXPECTED_END } else { "expected a value" }));
        }
        let start = self.at;
        self.at += word.len();
        Ok(Text::Input(start..self.at))
    }

    fn number(&mut self) -> Result<Text, JsonError> {
        let start = self.at;
        self.at += usize::from(self.input[self.at] == b'-');
        if self.input.get(self.at) == Some(&b'0') {
            self.at += 1;
        } else {
            self.digits("expected a digit after the minus sign")?;
        }
        if self.input.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits("expected a digit after the decimal point")?;
        }
        if matches!(self.input.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.input.get(self.at), Some(b'+' | b'-')));
            self.digits("expected a digit in the exponent")?;
        }
        Ok(Text::Input(start..self.at))
    }

    fn digits(&mut self, reason: &'static str) -> Result<(), JsonError> {
        let start = self.at;
        self.at += self.input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if self.at == self.input.len() && self.at == start {
            return Err(self.error(UNEXPECTED_END));
        }
        if self.at == start { Err(self.error(reason)) } else { Ok(()) }
    }

    /// Reads a string that starts with the next byte, its quote.
    fn string(&mut self) -> Result<Text, JsonError> {
        self.at += 1;
        // The bytes before `from` are already in the buffer.
        let mut from = self.at;
        let mut escaped = false;
        loop {
            self.at += plain_len(&self.input[self.at..]);
            match self.input.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    if !escaped {
                        self.buffer.clear();
                        escaped = true;
                    }
                    self.buffer.extend_from_slice(&self.input[from..self.at]);
                    match self.escape() {
                        Err(error) if error.is_of_end() && self.limits.is_cut => {
                            self.at = self.input.len();
                        }
                        other => other?,
                    }
                    from = self.at;
                }
                Some(0..=0x1f) => return Err(self.error("control character within a string")),
                Some(_) => match utf8_len(&self.input[self.at..]) {
                    Some(length) => self.at += length,
                    None if self.limits.is_cut && self.input.len() - self.at < 4 => {
                        self.at = self.input.len();
                    }
                    None => return Err(self.error("invalid UTF-8 within a string")),
                },
                None if self.limits.is_cut => break,
                None => return Err(self.error(UNEXPECTED_END)),
            }
        }
        let end = self.at;
        self.at = self.input.len().min(end + 1);
        if !escaped {
            return Ok(Text::Input(from..end));
        }
        self.buffer.extend_from_slice(&self.input[from..end]);
        Ok(Text::Buffer)
    }

    /// Decodes the escape at the current position into the buffer.
    fn escape(&mut self) -> Result<(), JsonError> {
        let byte = match self.input.get(self.at + 1) {
            Some(byte @ (b'"' | b'\\' | b'/')) => *byte,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => return self.unicode_escape(),
            Some(_) => return Err(self.error("unknown escape within a string")),
            None => return Err(self.error(UNEXPECTED_END)),
        };
        self.buffer.push(byte);
        self.at += 2;
        Ok(())
    }

    fn unicode_escape(&mut self) -> Result<(), JsonError> {
        let mut code = self.code_unit()?;
        if code & 0xfc00 == 0xd800 {
            let after = self.at;
            let low = if self.input[after..].starts_with(b"\\u") { self.code_unit()? } else { 0 };
            if low & 0xfc00 != 0xdc00 {
                // The escape behind a lone surrogate is a character of its own.
                self.at = after;
                self.buffer.push(b'?');
                return Ok(());
            }
            code = 0x1_0000 + ((code & 0x3ff) << 10) + (low & 0x3ff);
        }
        let tail = |shift: u32| 0x80 | ((code >> shift) & 0x3f) as u8;
        match code {
            0..=0x7f => self.buffer.push(code as u8),
            0x80..=0x7ff => self.buffer.extend_from_slice(&[0xc0 | (code >> 6) as u8, tail(0)]),
            0x800..=0xffff => {
                self.buffer.extend_from_slice(&[0xe0 | (code >> 12) as u8, tail(6), tail(0)]);
            }
            _ => self.buffer.extend_from_slice(&[
                0xf0 | (code >> 18) as u8,
                tail(12),
                tail(6),
                tail(0),
            ]),
        }
        Ok(())
    }

    /// Reads `\uXXXX`.
    fn code_unit(&mut self) -> Result<u32, JsonError> {
        let mut code = 0;
        for i in 2..6 {
            match self.input.get(self.at + i).map(|byte| char::from(*byte).to_digit(16)) {
                Some(Some(digit)) => code = code * 16 + digit,
                Some(None) => {
                    return Err(self.error("expected four hexadecimal digits after `\\u`"));
                }
                None => return Err(self.error(UNEXPECTED_END)),
            }
        }
        self.at += 6;
        Ok(code)
    }
}

/// True for bytes of common keys.
fn is_plain(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.$@:".contains(byte)
}

/// Number of literal bytes at the start of a string: ASCII other than control characters, quotes and
/// backslashes.
fn plain_len(input: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = ONES << 7;
    // The lowest marked byte is right; a borrow can only mark bytes above it.
    let zero_bytes = |word: u64| word.wrapping_sub(ONES) & !word & TOPS;
    let mut length = 0;
    while let Some(chunk) = input[length..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let control = word.wrapping_sub(ONES * 0x20) & !word & TOPS;
        let quote = zero_bytes(word ^ (ONES * u64::from(b'"')));
        let backslash = zero_bytes(word ^ (ONES * u64::from(b'\\')));
        let marked = control | quote | backslash | (word & TOPS);
        if marked != 0 {
            return length + marked.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    let rest = &input[length..];
    let special = |byte: &u8| !matches!(byte, 0x20..=0x7f) || matches!(byte, b'"' | b'\\');
    length + rest.iter().position(special).unwrap_or(rest.len())
}

/// Length of the UTF-8 sequence at the start by the form of its bytes alone.
fn utf8_len(input: &[u8]) -> Option<usize> {
    let length = match input.first()? {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => return None,
    };
    input.get(1..length)?.iter().all(|byte| byte & 0xc0 == 0x80).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { depth: 8, parts: 8, name_bytes: 1000, is_cut: false };

    fn full(name: Name<'_>) -> String {
        let index = name.element.map_or(String::new(), |element| element.index.to_string());
        format!("{}{index}", String::from_utf8_lossy(name.path))
    }

    fn flatten(input: &str) -> String {
        let mut text = String::new();
        let result = parse(input.as_bytes(), &LIMITS, |name, value| {
            text.push_str(&format!("{}={}\n", full(name), value.escape_ascii()));
            true
        });
        if let Err(error) = result {
            text.push_str(&error.to_string());
        }
        text
    }

    #[test]
    fn names_values_by_their_path() {
        for (input, expected) in [
            (
                r#"{"a":1,"b":{"c":[1,2,{"d":"x"}],"e":null},"f":true,"a":-1.5e3}"#,
                "json.a=1\njson.b.c.array_0=1\njson.b.c.array_1=2\njson.b.c.array_2.d=x\njson.b.e=\njson.f=true\njson.a=-1.5e3\n",
            ),
            (
                r#"[1,[2,3],{"a":4},[]]"#,
                "json.array_0=1\njson.array_1.array_0=2\njson.array_1.array_1=3\njson.array_2.a=4\njson.array_3=\n",
            ),
            (r#""x""#, "json=x\n"),
            (r#"{"p":{"$ne":{}},"<b>":[ ]}"#, "json.p.$ne=\njson.<b>=\n"),
            ("{}", ""),
            ("[[],[{}]]", "json.array_0=\njson.array_1.array_0=\n"),
            ("", ""),
            (r#"{"":1,"a.b":{"":2}}"#, "json.empty-key=1\njson.a.b.empty-key=2\n"),
            ("\t[ 0 ,\x0b-0.0E+5\r\n]\x0c ", "json.array_0=0\njson.array_1=-0.0E+5\n"),
        ] {
            assert_eq!(flatten(input), expected, "{input}");
        }
    }

    #[test]
    fn unescapes_strings() {
        assert_eq!(
            flatten(r#""\u0041\n\b\f\r\t\"\\\/\u00e9\u20ac""#),
            "json=A\\n\\x08\\x0c\\r\\t\\\"\\\\/\\xc3\\xa9\\xe2\\x82\\xac\n"
        );
        assert_eq!(
            flatten(
                r#""\ud83d\ude00 \ud83dx \ud83d\u003cscript \ud83d\ud83d\ude00 \udc00 \u0000 \udbff\udfff""#
            ),
            "json=\\xf0\\x9f\\x98\\x80 ?x ?<script ?\\xf0\\x9f\\x98\\x80 \\xed\\xb0\\x80 \\x00 \\xf4\\x8f\\xbf\\xbf\n"
        );
        assert_eq!(flatten(r#"{"\u0041\"":1}"#), "json.A\"=1\n");
    }

    #[test]
    fn reports_errors_after_the_values_before_them() {
        for (input, expected) in [
            ("{\"a\":1}x", "json.a=1\ninvalid JSON at byte 7: unexpected data after the end"),
            ("[1,]", "json.array_0=1\ninvalid JSON at byte 3: expected a value"),
            (
                "[1 2]",
                "json.array_0=1\ninvalid JSON at byte 3: expected `,` or `]` after an array element",
            ),
            (
                "{\"a\":1 \"b\":2}",
                "json.a=1\ninvalid JSON at byte 7: expected `,` or `}` after an object member",
            ),
            ("{\"a\":1,}", "json.a=1\ninvalid JSON at byte 7: expected a string as the key"),
            ("{\"a\" 1}", "invalid JSON at byte 5: expected `:` after the key"),
            ("{\"a\":true", "json.a=true\ninvalid JSON at byte 9: unexpected end"),
            (
                "[01]",
                "json.array_0=0\ninvalid JSON at byte 2: expected `,` or `]` after an array element",
            ),
            ("[-]", "invalid JSON at byte 2: expected a digit after the minus sign"),
            ("[1.]", "invalid JSON at byte 3: expected a digit after the decimal point"),
            ("[1e]", "invalid JSON at byte 3: expected a digit in the exponent"),
            ("[nul]", "invalid JSON at byte 1: expected a value"),
            ("[\"a\nb\"]", "invalid JSON at byte 3: control character within a string"),
            ("[\"\\x\"]", "invalid JSON at byte 2: unknown escape within a string"),
            (
                "[\"\\u00g0\"]",
                "invalid JSON at byte 2: expected four hexadecimal digits after `\\u`",
            ),
            ("[\"a", "invalid JSON at byte 3: unexpected end"),
            (" ", "invalid JSON at byte 1: unexpected end"),
            ("[[[[[[[[[1]]]]]]]]]", "invalid JSON at byte 8: nested too deep"),
        ] {
            assert_eq!(flatten(input), expected, "{input}");
        }
        let invalid = parse(b"[\"\xff\"]", &LIMITS, |_, _| true).unwrap_err();
        assert_eq!(invalid.to_string(), "invalid JSON at byte 2: invalid UTF-8 within a string");
        let key = "n".repeat(200);
        let long = format!("{{\"{key}\":[{}]}}", ["[1]"; 5].join(","));
        assert!(flatten(&long).ends_with("the names of all values are too long"));
        // Elements of one array share their path.
        let shared = format!("{{\"{key}\":[{}]}}", ["1"; 50].join(","));
        assert!(flatten(&shared).ends_with(".array_49=1\n"));
        let special = format!("{{\"a\":{{{}}}}}", ["\"<\":1"; 50].join(","));
        assert!(flatten(&special).ends_with("json.a.<=1\n"));
        let special = special.replace('a', &key);
        assert!(flatten(&special).ends_with("the names of all values are too long"));
        assert_eq!(flatten(&special).lines().count(), 3);
        let long = shared.replace('n', "nn");
        assert!(flatten(&long).ends_with("the names of all values are too long"));
    }

    #[test]
    fn body_that_is_cut_is_visited_up_to_its_end() {
        let limits = Limits { is_cut: true, ..LIMITS };
        for (input, expected) in [
            (&b"{\"a\":\"bc"[..], "json.a=bc\n"),
            (b"{\"a\":\"b\\\"c\\u00", "json.a=b\\\"c\n"),
            (b"{\"a\":\"b\xc3", "json.a=b\\xc3\n"),
            (b"{\"a\":[1,tru", "json.a.array_0=1\n"),
            (b"{\"a\":1.", ""),
            (b"{\"a\":\"b\",\"<c", "json.a=b\njson.<c=\n"),
            (b"{\"<c\":", "json.<c=\n"),
            (b"{\"<c\"", "json.<c=\n"),
            (b"{\"a\":\"b\"", "json.a=b\n"),
        ] {
            let mut text = String::new();
            let result = parse(input, &limits, |name, value| {
                text += &format!("{}={}\n", full(name), value.escape_ascii());
                true
            });
            let name = input.escape_ascii();
            assert!(result.is_err_and(|error| error.is_of_end()), "{name}");
            assert_eq!(text, expected, "{name}");
        }
    }

    #[test]
    fn stops_where_the_visitor_wants() {
        let mut values = 0;
        parse(b"[1,2,3,x", &LIMITS, |_, _| {
            values += 1;
            values < 2
        })
        .unwrap();
        assert_eq!(values, 2);
    }

    #[test]
    fn finds_the_first_special_byte_at_any_offset() {
        for length in 0..20 {
            for special in [0, 0x1f, b'"', b'\\', 0x80, 0xff] {
                let mut input = vec![b' '; length];
                input.push(special);
                input.extend_from_slice(b"!#[]~\x7f\x80\"\0");
                assert_eq!(plain_len(&input), length, "{special:#x}");
            }
        }
        assert_eq!(plain_len(b"!#[]~\x7f abcdefghij"), 17);
    }
}
