//! Rendering a request, once, before a run.

use std::fmt;

use thiserror::Error;

/// A request as text. The caller gives every header, `Host` and `Connection` among them; only the
/// length of the body is added.
#[derive(Clone, Copy, Debug)]
pub struct RequestText<'a> {
    /// The method, such as `GET`.
    pub method: &'a str,
    /// The request target, percent-encoded as it is to be sent.
    pub target: &'a str,
    /// Names and values, in the order in which they are sent.
    pub headers: &'a [(String, String)],
    /// The body; empty for none.
    pub body: &'a [u8],
}

/// Why a text is no request.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RenderError {
    /// A part that needs at least one byte has none.
    #[error("{0} is empty")]
    Empty(Part),
    /// A part has a byte that would end it, or that HTTP forbids there.
    #[error("{part} has the byte 0x{byte:02x} at {position}, which may not stand there")]
    Byte {
        /// Where.
        part: Part,
        /// Which.
        byte: u8,
        /// How many bytes of the part come before it.
        position: usize,
    },
    /// There is not exactly one `Host`.
    #[error("there must be one Host header, not {0}")]
    Hosts(usize),
    /// The headers give a length other than the body's.
    #[error("the header Content-Length says `{given}`, and the body has {body_bytes} bytes")]
    ContentLength {
        /// The header's value.
        given: String,
        /// The body's length.
        body_bytes: usize,
    },
    /// The headers announce a coding, and bodies are sent as they are.
    #[error("the header Transfer-Encoding cannot be given: bodies are sent with a Content-Length")]
    TransferEncoding,
}

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The method.
    Method,
    /// The request target.
    Target,
    /// A header's name.
    HeaderName(String),
    /// The value of the header of this name.
    HeaderValue(String),
}

impl RequestText<'_> {
    /// Renders the request as it goes over the wire. A `Content-Length` is added where there is a
    /// body or the method (POST, PUT, PATCH) makes servers expect one, unless the headers give it.
    ///
    /// # Errors
    ///
    /// A part cannot stand in a request, or the headers contradict each other or the body.
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

    /// Checks every part, and says whether the headers give the length of the body.
    fn check(&self) -> Result<bool, RenderError> {
        check_part(self.method, is_token, || Part::Method)?;
        check_part(self.target, is_target, || Part::Target)?;
        if self.method.is_empty() {
            return Err(RenderError::Empty(Part::Method));
        }
        if self.target.is_empty() {
            return Err(RenderError::Empty(Part::Target));
        }
        let mut hosts = 0;
        let mut has_length = false;
        for (name, value) in self.headers {
            check_part(name, is_token, || Part::HeaderName(name.clone()))?;
            check_part(value, is_value, || Part::HeaderValue(name.clone()))?;
            match name.to_ascii_lowercase().as_str() {
                "" => return Err(RenderError::Empty(Part::HeaderName(String::new()))),
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
        if hosts == 1 { Ok(has_length) } else { Err(RenderError::Hosts(hosts)) }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method => write!(f, "the method"),
            Self::Target => write!(f, "the target"),
            Self::HeaderName(name) => {
                write!(f, "the name of the header `{}`", name.escape_default())
            }
            Self::HeaderValue(name) => write!(f, "the value of the header `{name}`"),
        }
    }
}

fn check_part(
    text: &str,
    is_allowed: fn(u8) -> bool,
    part: impl FnOnce() -> Part,
) -> Result<(), RenderError> {
    match text.bytes().position(|byte| !is_allowed(byte)) {
        Some(position) => {
            Err(RenderError::Byte { part: part(), byte: text.as_bytes()[position], position })
        }
        None => Ok(()),
    }
}

/// RFC 9110, section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Bytes above ASCII are against RFC 3986, but attacks are sent with them, and systems must cope.
fn is_target(byte: u8) -> bool {
    byte > b' ' && byte != DELETE
}

/// RFC 9110, section 5.5.
fn is_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != DELETE)
}

const DELETE: u8 = 0x7f;
