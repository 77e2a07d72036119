//! Field sections: heads and trailers, and the rules of RFC 9113, section 8, for them.

use std::ops::Range;

use thiserror::Error;
use tollgate_http1::{is_token, is_token_byte, parse_host, parse_length};

use crate::hpack::HpackError;

/// A field section that decodes to more than its limit times this factor ends the connection.
const DISCARD_FACTOR: usize = 4;

/// Added to the length of name and value for the size of a field (RFC 9113, section 6.5.2).
const FIELD_OVERHEAD: usize = 32;

/// A decoded field section. Its memory is reused: one serves all connections of a thread.
///
/// Pseudo-field accessors are valid while the section belongs to the last event with a head.
#[derive(Debug, Default)]
pub struct Fields {
    /// Names and values, concatenated.
    pub(crate) bytes: Vec<u8>,
    entries: Vec<Entry>,
    limits: FieldLimits,
    /// Size of all decoded fields (RFC 9113, section 6.5.2), dropped ones included.
    size: usize,
    is_truncated: bool,
    pseudo: [Option<Range<usize>>; PSEUDO_FIELDS],
    status: u16,
    content_length: Option<u64>,
}

/// Limits of one field section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldLimits {
    /// Size (RFC 9113, section 6.5.2): 32 bytes for each field besides name and value.
    pub bytes: usize,
    pub fields: usize,
}

impl Default for FieldLimits {
    /// 64 KiB and 256 fields, as for HTTP/1.
    fn default() -> Self {
        Self { bytes: tollgate_http1::MAX_HEAD_BYTES, fields: tollgate_http1::MAX_HEADERS }
    }
}

/// One field of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    pub name: &'a [u8],
    pub value: &'a [u8],
    /// The field must never be indexed (RFC 7541, section 6.2.3), even when forwarded.
    pub is_sensitive: bool,
}

impl<'a> Field<'a> {
    pub const fn new(name: &'a [u8], value: &'a [u8]) -> Self {
        Self { name, value, is_sensitive: false }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u32,
    name_len: u32,
    value_len: u32,
    is_sensitive: bool,
}

impl Entry {
    fn name(self) -> Range<usize> {
        self.start as usize..(self.start + self.name_len) as usize
    }

    fn value(self) -> Range<usize> {
        let start = (self.start + self.name_len) as usize;
        start..start + self.value_len as usize
    }
}

/// Reason why a message is malformed (RFC 9113, section 8.1.1).
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Malformed {
    #[error("invalid field name")]
    Name,
    #[error("invalid field value")]
    Value,
    #[error("connection-specific field, or TE other than `trailers`")]
    ConnectionField,
    #[error("unknown, repeated or misplaced pseudo-field")]
    PseudoField,
    #[error("missing pseudo-field")]
    MissingPseudoField,
    #[error("invalid :method")]
    Method,
    #[error("invalid :scheme")]
    Scheme,
    #[error("invalid :path")]
    Path,
    #[error("invalid :authority or Host, or they differ")]
    Authority,
    #[error("invalid :status")]
    Status,
    #[error("invalid or repeated Content-Length")]
    ContentLength,
    #[error("Content-Length differs from the length of the body")]
    BodyLength,
    #[error("trailers do not end the stream, or are too long")]
    Trailers,
    #[error("HEADERS within a tunnel")]
    HeadersInTunnel,
    #[error("body before the head")]
    BodyBeforeHead,
}

/// Position in [`Fields::pseudo`].
const METHOD: usize = 0;
const SCHEME: usize = 1;
const AUTHORITY: usize = 2;
const PATH: usize = 3;
const PROTOCOL: usize = 4;
const STATUS: usize = 5;
const PSEUDO_FIELDS: usize = 6;

impl Fields {
    /// Returns all fields in the order received, pseudo-fields first.
    pub fn iter(&self) -> impl Iterator<Item = Field<'_>> {
        self.entries.iter().map(|entry| Field {
            name: &self.bytes[entry.name()],
            value: &self.bytes[entry.value()],
            is_sensitive: entry.is_sensitive,
        })
    }

    /// Returns the fields that are not pseudo-fields.
    pub fn headers(&self) -> impl Iterator<Item = Field<'_>> {
        self.iter().skip_while(|field| field.name.starts_with(b":"))
    }

    /// Returns the values of all fields with this lower-case name.
    pub fn all<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |field| field.name == name).map(|field| field.value)
    }

    /// True if fields above the limits were dropped.
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Method of a request.
    pub fn method(&self) -> &str {
        self.text(METHOD).unwrap_or_default()
    }

    /// Scheme of a request; `None` for a CONNECT without protocol.
    pub fn scheme(&self) -> Option<&str> {
        self.text(SCHEME)
    }

    /// `:authority` of a request. Where it is absent, `Host` may be present.
    pub fn authority(&self) -> Option<&str> {
        self.text(AUTHORITY)
    }

    /// Path and query of a request; `None` for a CONNECT without protocol.
    pub fn path(&self) -> Option<&str> {
        self.text(PATH)
    }

    /// Protocol of an extended CONNECT (RFC 8441).
    pub fn protocol(&self) -> Option<&str> {
        self.text(PROTOCOL)
    }

    /// Status code of a response: 100 to 999, never 101.
    pub fn status(&self) -> u16 {
        self.status
    }

    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// Clears the section for the next one.
    pub(crate) fn start(&mut self, limits: FieldLimits) {
        self.limits = limits;
        self.bytes.clear();
        self.entries.clear();
        self.size = 0;
        self.is_truncated = false;
        self.forget_checks();
    }

    /// Discards the results of a failed check.
    pub(crate) fn forget_checks(&mut self) {
        self.pseudo = [const { None }; PSEUDO_FIELDS];
        self.status = 0;
        self.content_length = None;
    }

    /// True if the section has fields so far, dropped ones included.
    pub(crate) fn has_any(&self) -> bool {
        self.size > 0
    }

    /// Makes the bytes from `start` a field, or drops them if a limit is exceeded.
    pub(crate) fn commit(
        &mut self,
        start: usize,
        name_len: usize,
        is_sensitive: bool,
    ) -> Result<(), HpackError> {
        let len = self.bytes.len() - start;
        self.size += len + FIELD_OVERHEAD;
        if self.size <= self.limits.bytes && self.entries.len() < self.limits.fields {
            self.entries.push(Entry {
                start: start as u32,
                name_len: name_len as u32,
                value_len: (len - name_len) as u32,
                is_sensitive,
            });
            return Ok(());
        }
        self.is_truncated = true;
        self.bytes.truncate(start);
        let discard_limit = self.limits.bytes * DISCARD_FACTOR;
        if self.size > discard_limit {
            return Err(HpackError::SectionTooLarge(discard_limit));
        }
        Ok(())
    }

    fn value(&self, pseudo: usize) -> Option<&[u8]> {
        self.pseudo[pseudo].clone().map(|range| &self.bytes[range])
    }

    fn text(&self, pseudo: usize) -> Option<&str> {
        self.value(pseudo)
            .map(|value| std::str::from_utf8(value).expect("the checks allow text only"))
    }

    /// Checks a request head. `extended_connect`: `:protocol` is allowed (RFC 8441).
    pub(crate) fn check_request(&mut self, extended_connect: bool) -> Result<(), Malformed> {
        let host = self.check_fields(|name| match name {
            b":method" => Some(METHOD),
            b":scheme" => Some(SCHEME),
            b":authority" => Some(AUTHORITY),
            b":path" => Some(PATH),
            b":protocol" if extended_connect => Some(PROTOCOL),
            _ => None,
        })?;
        let method = self.value(METHOD).ok_or(Malformed::MissingPseudoField)?;
        if !is_token(method) {
            return Err(Malformed::Method);
        }
        let (scheme, authority) = (self.value(SCHEME), self.value(AUTHORITY));
        let (path, protocol) = (self.value(PATH), self.value(PROTOCOL));
        if method == b"CONNECT" && protocol.is_none() {
            // RFC 9113, section 8.5.
            if scheme.is_some() || path.is_some() {
                return Err(Malformed::PseudoField);
            }
            let authority = authority.ok_or(Malformed::MissingPseudoField)?;
            return check_authority(
                Some(authority),
                host.as_ref().map(|host| &self.bytes[host.clone()]),
            );
        }
        let (Some(scheme), Some(path)) = (scheme, path) else {
            return Err(Malformed::MissingPseudoField);
        };
        if let Some(protocol) = protocol {
            if method != b"CONNECT" {
                return Err(Malformed::PseudoField);
            }
            if authority.is_none() {
                return Err(Malformed::MissingPseudoField);
            }
            if !is_token(protocol) {
                return Err(Malformed::PseudoField);
            }
        }
        let is_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        if !scheme.first().is_some_and(u8::is_ascii_alphabetic) || !scheme.iter().all(is_scheme) {
            return Err(Malformed::Scheme);
        }
        let is_path = path.starts_with(b"/") || (path == b"*" && method == b"OPTIONS");
        if !is_path || path.contains(&b' ') || std::str::from_utf8(path).is_err() {
            return Err(Malformed::Path);
        }
        check_authority(authority, host.as_ref().map(|host| &self.bytes[host.clone()]))
    }

    /// Checks the head of a response, which may be interim.
    pub(crate) fn check_response(&mut self) -> Result<(), Malformed> {
        self.check_fields(|name| (name == b":status").then_some(STATUS))?;
        self.status = match self.value(STATUS).ok_or(Malformed::MissingPseudoField)? {
            // RFC 9113, section 8.6: HTTP/2 cannot switch protocols.
            b"101" => return Err(Malformed::Status),
            [first @ b'1'..=b'9', second @ b'0'..=b'9', third @ b'0'..=b'9'] => {
                let digit = |byte: u8| u16::from(byte - b'0');
                100 * digit(*first) + 10 * digit(*second) + digit(*third)
            }
            _ => return Err(Malformed::Status),
        };
        Ok(())
    }

    pub(crate) fn check_trailers(&mut self) -> Result<(), Malformed> {
        self.check_fields(|_| None).map(|_| ())
    }

    /// Checks names, values and their order, and returns the value of `Host`. `pseudo` maps an allowed pseudo-field to
    /// its position.
    fn check_fields(
        &mut self,
        pseudo: impl Fn(&[u8]) -> Option<usize>,
    ) -> Result<Option<Range<usize>>, Malformed> {
        let mut host = None;
        let mut in_headers = false;
        for entry in &self.entries {
            let (name, value) = (&self.bytes[entry.name()], &self.bytes[entry.value()]);
            if !is_value(value) {
                return Err(Malformed::Value);
            }
            if name.first() == Some(&b':') {
                let position =
                    pseudo(name).filter(|_| !in_headers).ok_or(Malformed::PseudoField)?;
                if self.pseudo[position].replace(entry.value()).is_some() {
                    return Err(Malformed::PseudoField);
                }
                continue;
            }
            in_headers = true;
            if name.is_empty() || !name.iter().all(|byte| NAME_BYTES[usize::from(*byte)]) {
                return Err(Malformed::Name);
            }
            match name {
                b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
                | b"upgrade" => {
                    return Err(Malformed::ConnectionField);
                }
                b"te" if !value.eq_ignore_ascii_case(b"trailers") => {
                    return Err(Malformed::ConnectionField);
                }
                b"host" if host.replace(entry.value()).is_some() => {
                    return Err(Malformed::Authority);
                }
                b"content-length" => {
                    let length = parse_length(value).ok_or(Malformed::ContentLength)?;
                    if self.content_length.replace(length).is_some() {
                        return Err(Malformed::ContentLength);
                    }
                }
                _ => {}
            }
        }
        Ok(host)
    }
}

/// Checks `:authority` and `Host`, which must be equal if both are there (RFC 9113, section 8.3.1).
fn check_authority(authority: Option<&[u8]>, host: Option<&[u8]>) -> Result<(), Malformed> {
    let is_valid = match (authority, host) {
        (None, None) => true,
        (None, Some(host)) => parse_host(host).is_ok(),
        (Some(authority), host) => {
            !authority.is_empty()
                && parse_host(authority).is_ok()
                && host.is_none_or(|host| host.eq_ignore_ascii_case(authority))
        }
    };
    if is_valid { Ok(()) } else { Err(Malformed::Authority) }
}

/// Bytes allowed in the name of a field: those of a token, without upper case.
static NAME_BYTES: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        allowed[byte] = is_token_byte(byte as u8) && !(byte as u8).is_ascii_uppercase();
        byte += 1;
    }
    allowed
};

/// RFC 9110, section 5.5: no control characters, and no whitespace at either end. Stricter than RFC 9113, section 8.2.1,
/// as HTTP/1 peers reject the rest.
fn is_value(value: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    // No early exit, so that the loop vectorizes.
    let has_control = value
        .iter()
        .fold(false, |found, &byte| found | (byte < b' ' && byte != b'\t') | (byte == 0x7f));
    !has_control && !is_blank(value.first()) && !is_blank(value.last())
}
