//! A second reading of messages by RFC 9112, which shares no code with the gateway but httparse, and gives
//! up wherever two readers might differ.

use httparse::{Header, Status};

/// More headers than any input has.
const HEADERS_MAX: usize = 4096;

/// The beginning of some bytes, as it was read.
#[derive(Debug, PartialEq, Eq)]
pub enum Reading<Message> {
    /// A message, and how many of the bytes it has.
    Whole(Message, usize),
    /// The beginning of one, or nothing.
    Unfinished,
    /// None, or one that is read in more than one way.
    Faulty,
}

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    pub target: String,
    pub is_http_1_0: bool,
    /// Names in small letters, and values.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Without the chunked coding.
    pub body: Vec<u8>,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Names in small letters, and values.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Without the chunked coding.
    pub body: Vec<u8>,
    /// Only the end of the connection says where it ends.
    pub ends_at_close: bool,
}

/// The request that `bytes` begin with.
pub fn request(bytes: &[u8]) -> Reading<Request> {
    let mut headers = vec![httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    let head_bytes = match head.parse(bytes) {
        Ok(Status::Complete(count)) => count,
        Ok(Status::Partial) => return Reading::Unfinished,
        Err(_) => return Reading::Faulty,
    };
    if has_bare_line_feed(&bytes[..head_bytes]) {
        return Reading::Faulty;
    }
    let is_http_1_0 = head.version == Some(0);
    let (Some(framing), Some(method), Some(target)) =
        (Framing::of(head.headers, is_http_1_0, false), head.method, head.path)
    else {
        return Reading::Faulty;
    };
    let (method, target) = (method.to_owned(), target.to_owned());
    let headers = owned(head.headers);
    framing
        .unwrap_or(Framing::Length(0))
        .read(&bytes[head_bytes..])
        .map(head_bytes, |body| Request { method, target, is_http_1_0, headers, body })
}

/// The answer that `bytes` begin with, to a HEAD or another request. Where it ends with the connection, it is
/// whole with all that there is.
pub fn answer(bytes: &[u8], to_head: bool) -> Reading<Answer> {
    if matches!(bytes.first(), Some(b'\r' | b'\n')) {
        return Reading::Faulty;
    }
    let mut headers = vec![httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let head_bytes = match head.parse(bytes) {
        Ok(Status::Complete(count)) => count,
        Ok(Status::Partial) => return Reading::Unfinished,
        Err(_) => return Reading::Faulty,
    };
    let Some(status) = head.code else {
        return Reading::Faulty;
    };
    // An interim answer ends with its head, whatever its headers say (RFC 9112, section 6.3).
    let framing = match status {
        100..=199 => Some(None),
        _ => Framing::of(head.headers, head.version == Some(0), true),
    };
    let Some(framing) = framing else {
        return Reading::Faulty;
    };
    let is_empty = to_head || matches!(status, 100..=199 | 204 | 304);
    let (framing, ends_at_close) = match framing {
        _ if is_empty => (Framing::Length(0), false),
        Some(framing) => (framing, false),
        None => (Framing::Length((bytes.len() - head_bytes) as u64), true),
    };
    let headers = owned(head.headers);
    framing.read(&bytes[head_bytes..]).map(head_bytes, |body| Answer {
        status,
        headers,
        body,
        ends_at_close,
    })
}

impl<Message> Reading<Message> {
    fn map<Other>(self, more_bytes: usize, of: impl FnOnce(Message) -> Other) -> Reading<Other> {
        match self {
            Self::Whole(message, count) => Reading::Whole(of(message), more_bytes + count),
            Self::Unfinished => Reading::Unfinished,
            Self::Faulty => Reading::Faulty,
        }
    }
}

/// Where a body ends.
#[derive(Clone, Copy)]
enum Framing {
    Length(u64),
    Chunked,
}

impl Framing {
    /// What the headers say, which may be nothing; `None` where it is in doubt. `repeats`: a length may be
    /// there more than once.
    fn of(headers: &[Header<'_>], is_http_1_0: bool, repeats: bool) -> Option<Option<Self>> {
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
                let is_clear = lengths.all(|other| repeats && decimal(other) == Some(length));
                is_clear.then_some(Some(Self::Length(length)))
            }
            _ => None,
        }
    }

    fn read(self, bytes: &[u8]) -> Reading<Vec<u8>> {
        match self {
            Self::Length(length) => match usize::try_from(length) {
                Ok(length) if length <= bytes.len() => {
                    Reading::Whole(bytes[..length].to_vec(), length)
                }
                _ => Reading::Unfinished,
            },
            Self::Chunked => chunks(bytes),
        }
    }
}

fn decimal(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.trim_matches([' ', '\t']);
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok())?
}

/// RFC 9112, section 7.1.
fn chunks(bytes: &[u8]) -> Reading<Vec<u8>> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let Some(line_bytes) = bytes[at..].windows(2).position(|pair| pair == b"\r\n") else {
            let line = &bytes[at..];
            return if has_odd_byte(line.strip_suffix(b"\r").unwrap_or(line)) {
                Reading::Faulty
            } else {
                Reading::Unfinished
            };
        };
        let line = &bytes[at..at + line_bytes];
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let padding = line[digits..].iter().take_while(|byte| b" \t".contains(byte)).count();
        let rest = &line[digits + padding..];
        if digits == 0 || has_odd_byte(line) || !(rest.is_empty() || rest[0] == b';') {
            return Reading::Faulty;
        }
        let digits = std::str::from_utf8(&line[..digits]).expect("digits");
        let Ok(size) = u64::from_str_radix(digits.trim_start_matches('0'), 16).or_else(|error| {
            if digits.bytes().all(|digit| digit == b'0') { Ok(0) } else { Err(error) }
        }) else {
            return Reading::Faulty;
        };
        at += line_bytes + 2;
        if size == 0 {
            return trailer(&bytes[at..]).map(at, |()| body);
        }
        let data = &bytes[at..];
        let size = match usize::try_from(size) {
            Ok(size) if size <= data.len() => size,
            _ => return Reading::Unfinished,
        };
        body.extend_from_slice(&data[..size]);
        at += size;
        match bytes[at..] {
            [] | [b'\r'] => return Reading::Unfinished,
            [b'\r', b'\n', ..] => at += 2,
            _ => return Reading::Faulty,
        }
    }
}

/// What follows the last chunk.
fn trailer(bytes: &[u8]) -> Reading<()> {
    let mut headers = vec![httparse::EMPTY_HEADER; HEADERS_MAX];
    match httparse::parse_headers(bytes, &mut headers) {
        Ok(Status::Complete((count, _))) if !has_bare_line_feed(&bytes[..count]) => {
            Reading::Whole((), count)
        }
        Ok(Status::Partial) => Reading::Unfinished,
        _ => Reading::Faulty,
    }
}

fn has_odd_byte(line: &[u8]) -> bool {
    line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | b'\0'))
}

fn has_bare_line_feed(head: &[u8]) -> bool {
    head.iter().enumerate().any(|(at, byte)| *byte == b'\n' && (at == 0 || head[at - 1] != b'\r'))
}

fn owned(headers: &[Header<'_>]) -> Vec<(String, Vec<u8>)> {
    let owned = |header: &Header<'_>| (header.name.to_ascii_lowercase(), header.value.to_vec());
    headers.iter().map(owned).collect()
}
