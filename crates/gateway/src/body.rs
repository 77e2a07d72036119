//! Forwarding of message bodies: finds their end and rewrites the chunked coding in place, in the buffer they were read
//! into.

use std::borrow::Cow;

use tollgate_http1::{BodyDecoder, BodyFraming, BodyPartKind, MAX_TRAILER_BYTES, ParseError};

use crate::config::{CLIENT_DESCRIPTIONS, HeaderEdits, REQUEST_OVERRIDES};
use crate::headers::push_header;

const TRAILERS_MAX: usize = 32;

/// Limit of [`Body::tail`], which adds a space after each colon without one, the last chunk and an empty line.
pub(crate) const TAIL_BYTES_MAX: usize = MAX_TRAILER_BYTES + TRAILERS_MAX + 8;

const LAST_CHUNK: &[u8] = b"0\r\n";

/// Decoder of one message's body.
#[derive(Debug)]
pub(crate) struct Body {
    decoder: BodyDecoder,
    /// The body is chunked and is forwarded so.
    keeps_coding: bool,
    /// The trailer section as received; once the body is done, the tail to forward.
    trailer: Vec<u8>,
}

/// Result of [`Body::take`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Bytes that belong to the body and its coding.
    pub(crate) consumed: usize,
    /// Bytes to forward, which are now at the start of the buffer.
    pub(crate) kept: usize,
    pub(crate) payload_bytes: u64,
    /// True once the body has ended, apart from its [`tail`](Body::tail).
    pub(crate) done: bool,
}

impl Body {
    /// With `keeps_coding`, a chunked body is forwarded in chunks, otherwise only its payload.
    pub(crate) fn new(framing: BodyFraming, keeps_coding: bool) -> Self {
        Self {
            decoder: BodyDecoder::new(framing),
            keeps_coding: keeps_coding && framing == BodyFraming::Chunked,
            trailer: Vec::new(),
        }
    }

    /// Consumes the part of `bytes` that belongs to the body and moves the bytes to forward to the start. Bytes after
    /// `consumed` are unchanged. Calls `payload` with each piece of payload, never empty.
    ///
    /// After an error, nothing of `bytes` may be forwarded, so that the message does not look complete.
    #[inline]
    pub(crate) fn take(
        &mut self,
        bytes: &mut [u8],
        mut payload: impl FnMut(&[u8]),
    ) -> Result<Taken, ParseError> {
        let (mut consumed, mut kept, mut payload_bytes) = (0, 0, 0);
        while let Some(part) = self.decoder.next_part(&bytes[consumed..])? {
            let end = consumed + part.len;
            let is_kept = match part.kind {
                BodyPartKind::Payload => {
                    payload(&bytes[consumed..end]);
                    payload_bytes += part.len as u64;
                    true
                }
                BodyPartKind::Coding => self.keeps_coding,
                BodyPartKind::Trailer => {
                    self.trailer.extend_from_slice(&bytes[consumed..end]);
                    false
                }
                BodyPartKind::Skipped => false,
            };
            if is_kept {
                // Nothing moves before the first byte that is dropped.
                if kept != consumed {
                    bytes.copy_within(consumed..end, kept);
                }
                kept += part.len;
            }
            consumed = end;
        }
        let done = self.decoder.is_done();
        if done && consumed > 0 && !self.trailer.is_empty() {
            self.trailer.extend_from_slice(b"\r\n");
            self.trailer = filter_trailers(&self.trailer)?;
        }
        Ok(Taken { consumed, kept, payload_bytes, done })
    }

    /// Leaves out the trailers of a finished body.
    pub(crate) fn discard_trailers(&mut self) {
        self.trailer.clear();
    }

    pub(crate) fn is_done(&self) -> bool {
        self.decoder.is_done()
    }

    /// Announced payload bytes not yet received.
    pub(crate) fn remaining(&self) -> u64 {
        self.decoder.remaining()
    }

    pub(crate) fn ends_at_close(&self) -> bool {
        self.decoder.ends_at_close()
    }

    /// Bytes to forward after a finished body: the last chunk and the trailers that remain after the edits; at most
    /// [`TAIL_BYTES_MAX`].
    pub(crate) fn tail(&self, edits: &HeaderEdits) -> Cow<'_, [u8]> {
        match (self.keeps_coding && self.is_done(), self.trailer.is_empty()) {
            (true, true) => Cow::Borrowed(b"0\r\n\r\n"),
            (true, false) => edit_tail(&self.trailer, edits),
            (false, _) => Cow::Borrowed(b""),
        }
    }
}

/// Parses a trailer section and renders it behind the last chunk, without fields that concern framing, routing,
/// authentication, request modifiers, response control or content format (RFC 9110, section 6.5.1).
fn filter_trailers(section: &[u8]) -> Result<Vec<u8>, ParseError> {
    let mut headers = [httparse::EMPTY_HEADER; TRAILERS_MAX];
    let mut tail = LAST_CHUNK.to_vec();
    match httparse::parse_headers(section, &mut headers)? {
        httparse::Status::Complete((_, headers)) => {
            for header in headers.iter().filter(|header| is_allowed_trailer(header.name)) {
                push_header(&mut tail, header.name, header.value);
            }
        }
        httparse::Status::Partial => return Err(ParseError::ChunkEnd),
    }
    tail.extend_from_slice(b"\r\n");
    Ok(tail)
}

/// Removes trailers that a route sets or removes as headers, so that trailers cannot bypass the route's edits.
fn edit_tail<'a>(tail: &'a [u8], edits: &HeaderEdits) -> Cow<'a, [u8]> {
    if edits.set.is_empty() && edits.remove.is_empty() {
        return Cow::Borrowed(tail);
    }
    let is_kept = |line: &&[u8]| {
        let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
        !std::str::from_utf8(name).is_ok_and(|name| edits.affect(name))
    };
    let lines = tail.split_inclusive(|&byte| byte == b'\n');
    Cow::Owned(lines.filter(is_kept).collect::<Vec<_>>().concat())
}

fn is_allowed_trailer(name: &str) -> bool {
    const FORBIDDEN: &str = "age authorization cache-control connection content-encoding content-length \
                             content-range content-type cookie date expect expires forwarded host keep-alive \
                             location max-forwards pragma proxy-authenticate proxy-authorization \
                             proxy-connection range retry-after set-cookie te trailer transfer-encoding \
                             upgrade vary via warning www-authenticate";
    // Readers of CGI variables treat `Content_Length` as the same name.
    let name = name.to_ascii_lowercase().replace('_', "-");
    let mut forbidden = FORBIDDEN.split(' ').chain(REQUEST_OVERRIDES).chain(CLIENT_DESCRIPTIONS);
    !forbidden.any(|forbidden| forbidden == name)
        && !name.starts_with("x-forwarded-")
        && !name.starts_with("if-")
}

#[cfg(test)]
mod tests;
