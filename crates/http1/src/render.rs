//! Rendering requests.

use std::fmt;

use thiserror::Error;

use crate::headers::is_token_byte;

/// Request to render. The caller gives all headers, including `Host` and `Connection`, except the body's length.
#[derive(Clone, Copy, Debug)]
pub struct RequestText<'a> {
    pub method: &'a str,
    /// Request target, already percent-encoded.
    pub target: &'a str,
    /// Names and values, in the order in which they are sent.
    pub headers: &'a [(String, String)],
    /// Body; empty for none.
    pub body: &'a [u8],
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
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestPart {
    Method,
    Target,
    HeaderName(String),
    HeaderValue(String),
}

impl RequestText<'_> {
    /// Renders the request. Adds a `Content-Length` if there is a body or the method is POST, PUT or PATCH, unless
    /// the headers have it.
    ///
    /// # Errors
    ///
    /// A part has a byte that is not allowed there, or the headers contradict each other or the body.
    pub fn render(&self) -> Result<Vec<u8>, RenderError> {
        let has_length = self.check()?;
        let mut bytes = Vec::new();
        let mut append =
            |parts: &[&[u8]]| parts.iter().for_each(|part| bytes.extend_from_slice(part));
        append(&[self.method.as_bytes(), b" ", self.target.as_bytes(), b" HTTP/1.1\r\n"]);
        for (name, value) in self.headers {
            append(&[name.as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
        }
        let needs_length = !self.body.is_empty() || matches!(self.method, "POST" | "PUT" | "PATCH");
        if needs_length && !has_length {
            append(&[b"Content-Length: ", self.body.len().to_string().as_bytes(), b"\r\n"]);
        }
        append(&[b"\r\n", self.body]);
        Ok(bytes)
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
            check_part(name, is_token_byte, || RequestPart::HeaderName(name.clone()))?;
            check_part(value, is_value, || RequestPart::HeaderValue(name.clone()))?;
            match name.to_ascii_lowercase().as_str() {
                "" => return Err(RenderError::Empty(RequestPart::HeaderName(String::new()))),
                "host" => hosts += 1,
                "content-length" if *value == self.body.len().to_string() => has_length = true,
                "content-length" => {
                    return Err(RenderError::ContentLength {
                        given: value.clone(),
                        body_bytes: self.body.len(),
                    });
                }
                "transfer-encoding" => return Err(RenderError::TransferEncoding),
                _ => {}
            }
        }
        if hosts == 1 { Ok(has_length) } else { Err(RenderError::HostCount(hosts)) }
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
