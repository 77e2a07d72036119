//! Where a body ends, and whether the connection outlives it, told by the headers.

use httparse::Header;

use crate::error::ParseError;
use crate::head::Version;

/// Where the body of a message ends (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is no body.
    Empty,
    /// After this many bytes.
    Length(u64),
    /// Where the chunked coding says.
    Chunked,
    /// Where the connection closes. Responses only.
    UntilClose,
}

/// The few headers that decide framing and the life of the connection.
#[derive(Debug, Default)]
pub(crate) struct Fields<'a> {
    content_length: Option<u64>,
    /// A second `Content-Length` that is the same, which is harmless (RFC 9110, section 8.6) where
    /// nobody is to be fooled by it.
    has_repeated_length: bool,
    /// A coding other than `chunked`.
    other_coding: Option<&'a [u8]>,
    hosts: usize,
    host: Option<&'a [u8]>,
    last_coding: Option<Coding<'a>>,
    close: bool,
    keep_alive: bool,
    /// Whether the sender waits for a `100 Continue`.
    pub(crate) expects_continue: bool,
}

#[derive(Debug)]
enum Coding<'a> {
    Chunked,
    Other(&'a [u8]),
}

impl<'a> Fields<'a> {
    pub(crate) fn read(headers: &[Header<'a>]) -> Result<Self, ParseError> {
        let mut fields = Self::default();
        for header in headers {
            // The length is compared first, so that most headers cost one comparison.
            match header.name.len() {
                4 if header.name.eq_ignore_ascii_case("host") => {
                    fields.hosts += 1;
                    fields.host = Some(header.value);
                }
                6 if header.name.eq_ignore_ascii_case("expect") => {
                    fields.expects_continue |= header.value.eq_ignore_ascii_case(b"100-continue");
                }
                10 if header.name.eq_ignore_ascii_case("connection") => {
                    fields.read_connection(header.value);
                }
                14 if header.name.eq_ignore_ascii_case("content-length") => {
                    fields.read_content_length(header.value)?;
                }
                17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                    fields.read_transfer_encoding(header.value)?;
                }
                _ => {}
            }
        }
        Ok(fields)
    }

    /// Checks that the headers do not contradict each other or the version, which tells of no peer to be trusted
    /// even where there is no body.
    pub(crate) fn check_framing(&self, version: Version) -> Result<(), ParseError> {
        match (&self.last_coding, self.content_length) {
            // RFC 9112, section 6.1: the framing of such a message must be taken as faulty.
            (Some(_), _) if version == Version::Http10 => Err(ParseError::TransferEncodingInHttp10),
            // RFC 9112, section 6.3: this ought to be handled as an error; peers that disagree on
            // which of the two counts are how requests are smuggled.
            (Some(_), Some(_)) => Err(ParseError::TwoFramings),
            (None, _) | (Some(_), None) => Ok(()),
        }
    }

    /// The framing that the headers ask for; `None` when they say nothing.
    pub(crate) fn framing(&self, version: Version) -> Result<Option<BodyFraming>, ParseError> {
        self.check_framing(version)?;
        match &self.last_coding {
            None => Ok(self.content_length.map(BodyFraming::Length)),
            Some(Coding::Chunked) => Ok(Some(BodyFraming::Chunked)),
            Some(Coding::Other(coding)) => Err(ParseError::TransferEncoding(excerpt(coding))),
        }
    }

    /// Checks what only requests must hold to, so that no two servers read one in two ways: one
    /// length, one coding that is known, one host.
    ///
    /// RFC 9112, section 3.2, asks for the answer 400 when the host is missing from an HTTP/1.1
    /// request, or there twice in any.
    pub(crate) fn request_host(&self, version: Version) -> Result<Option<&'a str>, ParseError> {
        if let (true, Some(length)) = (self.has_repeated_length, self.content_length) {
            return Err(ParseError::ContentLengths(length, length));
        }
        if let Some(coding) = self.other_coding {
            return Err(ParseError::UnknownCoding(excerpt(coding)));
        }
        if self.hosts > 1 || (self.hosts == 0 && version == Version::Http11) {
            return Err(ParseError::Hosts(self.hosts));
        }
        self.host.map(host).transpose()
    }

    /// Whether the sender keeps the connection open after this message (RFC 9112, section 9.3).
    pub(crate) fn keep_alive(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }

    pub(crate) fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    pub(crate) fn is_chunked(&self) -> bool {
        matches!(self.last_coding, Some(Coding::Chunked))
    }

    /// Whether there is a transfer coding other than `chunked`.
    pub(crate) fn has_other_coding(&self) -> bool {
        self.other_coding.is_some()
    }

    fn read_connection(&mut self, value: &[u8]) {
        for option in list(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn read_content_length(&mut self, value: &[u8]) -> Result<(), ParseError> {
        for element in list(value) {
            let length =
                decimal(element).ok_or_else(|| ParseError::ContentLength(excerpt(element)))?;
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

    fn read_transfer_encoding(&mut self, value: &'a [u8]) -> Result<(), ParseError> {
        for coding in list(value) {
            if matches!(self.last_coding, Some(Coding::Chunked)) {
                return Err(ParseError::TransferEncoding(excerpt(value)));
            }
            self.last_coding = Some(if coding.eq_ignore_ascii_case(b"chunked") {
                Coding::Chunked
            } else {
                self.other_coding = Some(coding);
                Coding::Other(coding)
            });
        }
        Ok(())
    }
}

/// The longest part of a faulty value that an error shows.
const EXCERPT_BYTES: usize = 64;

/// A host and, if need be, a port, as far as their characters tell (RFC 3986, section 3.2.2). A client
/// that names none sends an empty one.
pub(crate) fn host(value: &[u8]) -> Result<&str, ParseError> {
    let is_allowed =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%[]:".contains(byte);
    match std::str::from_utf8(value) {
        Ok(text) if value.iter().all(is_allowed) => Ok(text),
        _ => Err(ParseError::Host(excerpt(value))),
    }
}

fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| byte - b'0')?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

pub(crate) fn excerpt(value: &[u8]) -> String {
    let end = value.len().min(EXCERPT_BYTES);
    value[..end].escape_ascii().to_string()
}
