//! Rendering requests.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use thiserror::Error;

use crate::headers::is_token_byte;

/// Request to render. The caller gives all headers, including `Host` and `Connection`, except the body's length.
#[derive(Clone, Copy, Debug)]
pub struct RequestText<'a, Name, Value> {
    pub method: &'a str,
    /// Request target, already percent-encoded.
    pub target: &'a str,
    /// Names and values, in the order in which they are sent.
    pub headers: &'a [(Name, Value)],
    /// Body; empty for none.
    pub body: &'a [u8],
}

/// A valid request, rendered for HTTP/1.1, whose parts are known without parsing. Clones share its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestMessage {
    bytes: Arc<[u8]>,
    method_end: usize,
    target_end: usize,
    /// Ends of name and value of each header.
    headers: Arc<[(u32, u32)]>,
    body_start: usize,
    is_head: bool,
    closes: bool,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RenderError {
    /// A part that needs at least one byte is empty.
    #[error("{0} is empty")]
    Empty(RequestPart),
    /// A part contains a byte that would end it, or that HTTP forbids there.
    #[error("{part} contains the byte 0x{byte:02x} at {position}, which is not allowed there")]
    Byte {
        part: RequestPart,
        byte: u8,
        /// Offset in the part, in bytes.
        position: usize,
    },
    #[error("expected one Host header, found {0}")]
    HostCount(usize),
    #[error("Content-Length is `{given}`, but the body has {body_bytes} bytes")]
    ContentLength { given: String, body_bytes: usize },
    #[error("Transfer-Encoding is not supported; bodies are sent with Content-Length")]
    TransferEncoding,
    #[error("the head is longer than 4 GiB")]
    HeadTooLong,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestPart {
    Method,
    Target,
    HeaderName(String),
    HeaderValue(String),
}

const VERSION: &[u8] = b" HTTP/1.1\r\n";
const COLON: &[u8] = b": ";
const LINE_END: &[u8] = b"\r\n";

impl<Name: AsRef<str>, Value: AsRef<str>> RequestText<'_, Name, Value> {
    /// Renders the request. Adds a `Content-Length` if there is a body or the method is POST, PUT or PATCH, unless
    /// the headers have it.
    ///
    /// # Errors
    ///
    /// A part has a byte that is not allowed there, the headers contradict each other or the body, or the head is longer
    /// than 4 GiB.
    pub fn render(&self) -> Result<RequestMessage, RenderError> {
        let has_length = self.check()?;
        let mut bytes = [self.method.as_bytes(), b" ", self.target.as_bytes()].concat();
        let (method_end, target_end) = (self.method.len(), bytes.len());
        bytes.extend_from_slice(VERSION);
        let mut headers = Vec::with_capacity(self.headers.len() + 1);
        let mut append = |name: &str, value: &str| {
            bytes.extend_from_slice(name.as_bytes());
            let name_end = offset(bytes.len())?;
            [COLON, value.as_bytes()].iter().for_each(|part| bytes.extend_from_slice(part));
            headers.push((name_end, offset(bytes.len())?));
            bytes.extend_from_slice(LINE_END);
            Ok(())
        };
        for (name, value) in self.headers {
            append(name.as_ref(), value.as_ref())?;
        }
        let needs_length = !self.body.is_empty() || matches!(self.method, "POST" | "PUT" | "PATCH");
        if needs_length && !has_length {
            append("Content-Length", &self.body.len().to_string())?;
        }
        bytes.extend_from_slice(LINE_END);
        let body_start = bytes.len();
        bytes.extend_from_slice(self.body);
        Ok(RequestMessage {
            bytes: bytes.into(),
            method_end,
            target_end,
            headers: headers.into(),
            body_start,
            is_head: self.method == "HEAD",
            closes: self
                .headers
                .iter()
                .any(|(name, value)| asks_to_close(name.as_ref(), value.as_ref())),
        })
    }

    /// Checks all parts. Returns true if the headers have the length of the body.
    fn check(&self) -> Result<bool, RenderError> {
        check_part(self.method, is_token_byte, || RequestPart::Method)?;
        check_part(self.target, is_target, || RequestPart::Target)?;
        if self.method.is_empty() {
            return Err(RenderError::Empty(RequestPart::Method));
        }
        if self.target.is_empty() {
            return Err(RenderError::Empty(RequestPart::Target));
        }
        let mut hosts = 0;
        let mut has_length = false;
        for (name, value) in self.headers {
            let (name, value) = (name.as_ref(), value.as_ref());
            check_part(name, is_token_byte, || RequestPart::HeaderName(name.to_owned()))?;
            check_part(value, is_value, || RequestPart::HeaderValue(name.to_owned()))?;
            if name.is_empty() {
                return Err(RenderError::Empty(RequestPart::HeaderName(String::new())));
            } else if name.eq_ignore_ascii_case("host") {
                hosts += 1;
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                return Err(RenderError::TransferEncoding);
            } else if name.eq_ignore_ascii_case("content-length") {
                if *value != self.body.len().to_string() {
                    let (given, body_bytes) = (value.to_owned(), self.body.len());
                    return Err(RenderError::ContentLength { given, body_bytes });
                }
                has_length = true;
            }
        }
        if hosts == 1 { Ok(has_length) } else { Err(RenderError::HostCount(hosts)) }
    }
}

/// Returns an offset in a head.
fn offset(bytes: usize) -> Result<u32, RenderError> {
    u32::try_from(bytes).map_err(|_longer| RenderError::HeadTooLong)
}

fn asks_to_close(name: &str, value: &str) -> bool {
    name.eq_ignore_ascii_case("connection")
        && value.split(',').any(|option| option.trim().eq_ignore_ascii_case("close"))
}

impl RequestMessage {
    /// Returns the request as sent over HTTP/1.1.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn method(&self) -> &str {
        self.text(0..self.method_end)
    }

    /// True for a HEAD request, whose response has no body.
    pub fn is_head(&self) -> bool {
        self.is_head
    }

    /// True if `Connection: close` asks the server to close the connection after its response.
    pub fn closes(&self) -> bool {
        self.closes
    }

    pub fn target(&self) -> &str {
        self.text(self.method_end + 1..self.target_end)
    }

    /// Returns the target up to its query.
    pub fn path(&self) -> &str {
        let target = self.target();
        target.split_once('?').map_or(target, |(path, _)| path)
    }

    /// Returns the names and values of the headers, an added `Content-Length` included.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut start = self.target_end + VERSION.len();
        self.headers.iter().map(move |&(name_end, value_end)| {
            let (name_end, value_end) = (name_end as usize, value_end as usize);
            let header = (self.text(start..name_end), self.text(name_end + COLON.len()..value_end));
            start = value_end + LINE_END.len();
            header
        })
    }

    /// Returns the value of the only `Host`.
    pub fn host(&self) -> &str {
        let host = self.headers().find(|(name, _)| name.eq_ignore_ascii_case("host"));
        host.expect("a request has one Host").1
    }

    pub fn body(&self) -> &[u8] {
        &self.bytes[self.body_start..]
    }

    fn text(&self, part: Range<usize>) -> &str {
        str::from_utf8(&self.bytes[part]).expect("the parts of a head are text")
    }
}

impl fmt::Display for RequestPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method => write!(f, "method"),
            Self::Target => write!(f, "target"),
            Self::HeaderName(name) => {
                write!(f, "header name `{}`", name.escape_default())
            }
            Self::HeaderValue(name) => write!(f, "value of header `{name}`"),
        }
    }
}

fn check_part(
    text: &str,
    is_allowed: fn(u8) -> bool,
    part: impl FnOnce() -> RequestPart,
) -> Result<(), RenderError> {
    match text.bytes().position(|byte| !is_allowed(byte)) {
        Some(position) => {
            Err(RenderError::Byte { part: part(), byte: text.as_bytes()[position], position })
        }
        None => Ok(()),
    }
}

/// Allows bytes above ASCII: RFC 3986 forbids them, but attacks use them.
fn is_target(byte: u8) -> bool {
    byte > b' ' && byte != DELETE
}

/// RFC 9110, section 5.5.
fn is_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != DELETE)
}

const DELETE: u8 = 0x7f;
