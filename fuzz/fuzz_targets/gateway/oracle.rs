//! Second implementation of RFC 9112, based on httparse only, which rejects everything that two readers might read
//! differently.

use httparse::{Header, Status};

/// More headers than any input contains.
const HEADERS_MAX: usize = 4096;

/// Message at the start of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<Message> {
    /// A message and its length.
    Complete(Message, usize),
    /// The start of a message, or nothing.
    Partial,
    /// Not a message, or an ambiguous one.
    Invalid,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    pub target: String,
    pub is_http_1_0: bool,
    /// Names in lower case, and values.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Without the chunked coding.
    pub body: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// Names in lower case, and values.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Without the chunked coding.
    pub body: Vec<u8>,
    /// The body ends with the connection.
    pub ends_at_close: bool,
}

/// Parses the request at the start of `bytes`.
pub fn request(bytes: &[u8]) -> Parsed<Request> {
    let mut headers = vec![httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    let head_bytes = match head.parse(bytes) {
        Ok(Status::Complete(count)) => count,
        Ok(Status::Partial) => return Parsed::Partial,
        Err(_) => return Parsed::Invalid,
    };
    if has_bare_line_feed(&bytes[..head_bytes]) {
        return Parsed::Invalid;
    }
    let is_http_1_0 = head.version == Some(0);
    let (Some(framing), Some(method), Some(target)) =
        (Framing::of(head.headers, is_http_1_0, false), head.method, head.path)
    else {
        return Parsed::Invalid;
    };
    let (method, target) = (method.to_owned(), target.to_owned());
    let headers = owned(head.headers);
    framing
        .unwrap_or(Framing::Length(0))
        .read(&bytes[head_bytes..])
        .map(head_bytes, |body| Request { method, target, is_http_1_0, headers, body })
}

/// Parses the response at the start of `bytes`. A response that ends with the connection consists of all bytes.
pub fn response(bytes: &[u8], to_head: bool) -> Parsed<Response> {
    if matches!(bytes.first(), Some(b'\r' | b'\n')) {
        return Parsed::Invalid;
    }
    let mut headers = vec![httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let head_bytes = match head.parse(bytes) {
        Ok(Status::Complete(count)) => count,
        Ok(Status::Partial) => return Parsed::Partial,
        Err(_) => return Parsed::Invalid,
    };
    let Some(status) = head.code else {
        return Parsed::Invalid;
    };
    // An interim response ends with its head, whatever its headers (RFC 9112, section 6.3).
    let framing = match status {
        100..=199 => Some(None),
        _ => Framing::of(head.headers, head.version == Some(0), true),
    };
    let Some(framing) = framing else {
        return Parsed::Invalid;
    };
    let is_empty = to_head || matches!(status, 100..=199 | 204 | 304);
    let (framing, ends_at_close) = match framing {
        _ if is_empty => (Framing::Length(0), false),
        Some(framing) => (framing, false),
        None => (Framing::Length((bytes.len() - head_bytes) as u64), true),
    };
    let headers = owned(head.headers);
    framing.read(&bytes[head_bytes..]).map(head_bytes, |body| Response {
        status,
        headers,
        body,
        ends_at_close,
    })
}

impl<Message> Parsed<Message> {
    fn map<Other>(self, more_bytes: usize, of: impl FnOnce(Message) -> Other) -> Parsed<Other> {
        match self {
            Self::Complete(message, count) => Parsed::Complete(of(message), more_bytes + count),
            Self::Partial => Parsed::Partial,
            Self::Invalid => Parsed::Invalid,
        }
    }
}

#[derive(Clone, Copy)]
enum Framing {
    Length(u64),
    Chunked,
}

impl Framing {
    /// Returns the framing, if the headers have any, or `None` if they are ambiguous.
    fn of(
        headers: &[Header<'_>],
        is_http_1_0: bool,
        allows_repeated_length: bool,
    ) -> Option<Option<Self>> {
        let values = |name: &'static str| {
            let found = headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
            found.map(|header| header.value)
        };
        let mut codings = values("transfer-encoding");
        let mut lengths =
            values("content-length").flat_map(|value| value.split(|&byte| byte == b','));
        match (codings.next(), codings.next(), lengths.next()) {
            (None, None, None) => Some(None),
            (Some(coding), None, None) => (!is_http_1_0 && coding.eq_ignore_ascii_case(b"chunked"))
                .then_some(Some(Self::Chunked)),
            (None, None, Some(length)) => {
                let length = decimal(length)?;
                let is_clear =
                    lengths.all(|other| allows_repeated_length && decimal(other) == Some(length));
                is_clear.then_some(Some(Self::Length(length)))
            }
            _ => None,
        }
    }

    fn read(self, bytes: &[u8]) -> Parsed<Vec<u8>> {
        match self {
            Self::Length(length) => match usize::try_from(length) {
                Ok(length) if length <= bytes.len() => {
                    Parsed::Complete(bytes[..length].to_vec(), length)
                }
                _ => Parsed::Partial,
            },
            Self::Chunked => chunks(bytes),
        }
    }
}

/// Larger lengths and chunk sizes are rejected, since many servers use signed numbers.
const LENGTH_MAX: u64 = i64::MAX as u64;

fn decimal(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.trim_matches([' ', '\t']);
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok())?.filter(|length| *length <= LENGTH_MAX)
}

/// RFC 9112, section 7.1.
fn chunks(bytes: &[u8]) -> Parsed<Vec<u8>> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let Some(line_bytes) = bytes[at..].windows(2).position(|pair| pair == b"\r\n") else {
            let line = &bytes[at..];
            return if has_control_byte(line.strip_suffix(b"\r").unwrap_or(line)) {
                Parsed::Invalid
            } else {
                Parsed::Partial
            };
        };
        let line = &bytes[at..at + line_bytes];
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let padding = line[digits..].iter().take_while(|byte| b" \t".contains(byte)).count();
        let rest = &line[digits + padding..];
        if digits == 0 || has_control_byte(line) || !(rest.is_empty() || rest[0] == b';') {
            return Parsed::Invalid;
        }
        let digits = std::str::from_utf8(&line[..digits]).expect("digits");
        let Ok(size) = u64::from_str_radix(digits.trim_start_matches('0'), 16).or_else(|error| {
            if digits.bytes().all(|digit| digit == b'0') { Ok(0) } else { Err(error) }
        }) else {
            return Parsed::Invalid;
        };
        if size > LENGTH_MAX {
            return Parsed::Invalid;
        }
        at += line_bytes + 2;
        if size == 0 {
            return trailer(&bytes[at..]).map(at, |()| body);
        }
        let data = &bytes[at..];
        let size = match usize::try_from(size) {
            Ok(size) if size <= data.len() => size,
            _ => return Parsed::Partial,
        };
        body.extend_from_slice(&data[..size]);
        at += size;
        match bytes[at..] {
            [] | [b'\r'] => return Parsed::Partial,
            [b'\r', b'\n', ..] => at += 2,
            _ => return Parsed::Invalid,
        }
    }
}

/// The trailer section.
fn trailer(bytes: &[u8]) -> Parsed<()> {
    let mut headers = vec![httparse::EMPTY_HEADER; HEADERS_MAX];
    match httparse::parse_headers(bytes, &mut headers) {
        Ok(Status::Complete((count, _))) if !has_bare_line_feed(&bytes[..count]) => {
            Parsed::Complete((), count)
        }
        Ok(Status::Partial) => Parsed::Partial,
        _ => Parsed::Invalid,
    }
}

fn has_control_byte(line: &[u8]) -> bool {
    line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | b'\0'))
}

fn has_bare_line_feed(head: &[u8]) -> bool {
    head.iter().enumerate().any(|(at, byte)| *byte == b'\n' && (at == 0 || head[at - 1] != b'\r'))
}

fn owned(headers: &[Header<'_>]) -> Vec<(String, Vec<u8>)> {
    let owned = |header: &Header<'_>| (header.name.to_ascii_lowercase(), header.value.to_vec());
    headers.iter().map(owned).collect()
}
