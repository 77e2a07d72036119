//! Forwarding of message bodies: finds their end, and rewrites the chunked coding in place, in the buffer they were read
//! into.

use std::io::Write as _;
use std::ops::Range;

use tollgate_http1::{
    BodyDecoder, BodyFraming, BodyPartKind, FieldList, ListedField, MAX_TRAILER_BYTES, ParseError,
};

use crate::compression::is_digest;
use crate::config::{CLIENT_DESCRIPTIONS, HeaderEdits, REQUEST_OVERRIDES};
use crate::headers::MessageForm;

const TRAILERS_MAX: usize = 32;

/// Space that [`Body::frame`] needs behind a piece: for a line end, the last chunk, and trailers with a space after each
/// colon and an empty line.
pub(crate) const TAIL_BYTES_MAX: usize = 2 + MAX_TRAILER_BYTES + TRAILERS_MAX + 8;

/// Space that [`Body::frame`] needs in front of a piece, for the size of a chunk.
const SIZE_BYTES_MAX: usize = 16 + 2;

/// Finds the end of one message's body.
#[derive(Debug)]
pub(crate) struct Body {
    decoder: Decoder,
    coding: Coding,
    /// The payload is replaced before it is framed.
    is_recoded: bool,
    /// The trailer section as received; once the body is done, a [`FieldList`] of the trailers to forward.
    trailers: Vec<u8>,
}

#[derive(Debug)]
enum Decoder {
    /// By its length or its chunks, or with the connection.
    Framed(BodyDecoder),
    /// By its length, on a stream, whose end may have trailers.
    Counted(BodyDecoder),
    /// With its stream.
    Stream { has_ended: bool },
}

/// Chunked coding of the body as it is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    None,
    /// Coding of the received body.
    Kept,
    /// The gateway's, for a body that was received on a stream or is compressed.
    Added,
}

/// Result of [`Body::take`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Bytes that belong to the body and its coding.
    pub(crate) consumed: usize,
    /// Bytes to forward, which are now at the start of the buffer.
    pub(crate) kept: usize,
    pub(crate) payload_bytes: u64,
    /// True once the body has ended.
    pub(crate) done: bool,
}

impl Body {
    /// A body in the form `from`. With `is_chunked`, one of unknown length is forwarded in chunks, otherwise only its
    /// payload.
    pub(crate) fn new(framing: BodyFraming, from: MessageForm, is_chunked: bool) -> Self {
        let has_no_length = framing == BodyFraming::Chunked;
        let (decoder, coding) = match from {
            MessageForm::Fields if has_no_length => {
                (Decoder::Stream { has_ended: false }, Coding::Added)
            }
            MessageForm::Fields => (Decoder::Counted(BodyDecoder::new(framing)), Coding::None),
            MessageForm::Text => (Decoder::Framed(BodyDecoder::new(framing)), Coding::Kept),
        };
        let coding = if has_no_length && is_chunked { coding } else { Coding::None };
        Self { decoder, coding, is_recoded: false, trailers: Vec::new() }
    }

    /// A body whose payload is replaced before it is framed, so that its length is not known. With `is_chunked`, it is forwarded in
    /// chunks.
    pub(crate) fn recoded(framing: BodyFraming, from: MessageForm, is_chunked: bool) -> Self {
        let coding = if is_chunked { Coding::Added } else { Coding::None };
        Self { coding, is_recoded: true, ..Self::new(framing, from, false) }
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
        let decoder = match &mut self.decoder {
            Decoder::Framed(decoder) | Decoder::Counted(decoder) => decoder,
            Decoder::Stream { has_ended } => return Ok(take_all(bytes, *has_ended, &mut payload)),
        };
        let (mut consumed, mut kept, mut payload_bytes) = (0, 0, 0);
        while let Some(part) = decoder.next_part(&bytes[consumed..])? {
            let end = consumed + part.len;
            let is_kept = match part.kind {
                BodyPartKind::Payload => {
                    payload(&bytes[consumed..end]);
                    payload_bytes += part.len as u64;
                    true
                }
                BodyPartKind::Coding => self.coding == Coding::Kept,
                BodyPartKind::Trailer => {
                    self.trailers.extend_from_slice(&bytes[consumed..end]);
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
        let done = decoder.is_done();
        if done && consumed > 0 && !self.trailers.is_empty() {
            self.end_section()?;
        }
        Ok(Taken { consumed, kept, payload_bytes, done })
    }

    /// Parses the trailer section. Those of a stream are a list already.
    #[inline(never)]
    fn end_section(&mut self) -> Result<(), ParseError> {
        if let Decoder::Framed(_) = self.decoder {
            self.trailers.extend_from_slice(b"\r\n");
            self.trailers = parse_trailers(&self.trailers, self.coding)?;
        }
        Ok(())
    }

    /// Ends the body with its stream; the next [`take`](Self::take) has the last of its bytes. Trailers have the limits of
    /// HTTP/1.1. A body with a length ends by that.
    pub(crate) fn end(&mut self, trailers: FieldList<'_>) -> Result<(), ParseError> {
        if let Decoder::Stream { has_ended } = &mut self.decoder {
            *has_ended = true;
        }
        let line_bytes = |field: ListedField<'_>| field.name.len() + field.value.len() + 4;
        if trailers.iter().count() > TRAILERS_MAX {
            return Err(ParseError::TooManyHeaders);
        }
        if trailers.iter().map(line_bytes).sum::<usize>() > MAX_TRAILER_BYTES {
            return Err(ParseError::TrailerTooLong);
        }
        self.trailers = filter_trailers(trailers.iter(), self.coding);
        Ok(())
    }

    /// Leaves out the trailers of a finished body.
    pub(crate) fn discard_trailers(&mut self) {
        self.trailers.clear();
    }

    pub(crate) fn is_done(&self) -> bool {
        match &self.decoder {
            Decoder::Framed(decoder) | Decoder::Counted(decoder) => decoder.is_done(),
            Decoder::Stream { has_ended } => *has_ended,
        }
    }

    /// Announced payload bytes not yet received.
    pub(crate) fn remaining(&self) -> u64 {
        match &self.decoder {
            Decoder::Framed(decoder) | Decoder::Counted(decoder) => decoder.remaining(),
            Decoder::Stream { .. } => 0,
        }
    }

    pub(crate) fn ends_at_close(&self) -> bool {
        matches!(&self.decoder, Decoder::Framed(decoder) if decoder.ends_at_close())
    }

    /// Completes a piece that [`take`](Self::take) has left at `piece` in `buffer`, for HTTP/1.1: adds the coding that the body
    /// lacks and, after the last piece, the last chunk and the trailers that remain after the edits. Returns its place.
    #[inline]
    pub(crate) fn frame(
        &mut self,
        buffer: &mut [u8],
        piece: Range<usize>,
        edits: &HeaderEdits,
    ) -> Range<usize> {
        // Most bodies have a length.
        if self.coding == Coding::None && self.trailers.is_empty() {
            return piece;
        }
        self.frame_chunks(buffer, piece, edits)
    }

    fn frame_chunks(
        &mut self,
        buffer: &mut [u8],
        mut piece: Range<usize>,
        edits: &HeaderEdits,
    ) -> Range<usize> {
        if self.coding == Coding::Added && !piece.is_empty() {
            let mut size = [0; SIZE_BYTES_MAX];
            let mut room = &mut size[..];
            write!(room, "{:x}\r\n", piece.len()).expect("there is room for the size");
            let size_bytes = SIZE_BYTES_MAX - room.len();
            buffer[piece.start - size_bytes..piece.start].copy_from_slice(&size[..size_bytes]);
            buffer[piece.end..piece.end + 2].copy_from_slice(b"\r\n");
            piece = piece.start - size_bytes..piece.end + 2;
        }
        if self.is_done() {
            self.edit_trailers(edits);
            if self.coding != Coding::None {
                let mut room = &mut buffer[piece.end..];
                let room_bytes = room.len();
                let mut put = |part: &[u8]| room.write_all(part).expect("there is room");
                put(b"0\r\n");
                for ListedField { name, value, .. } in self.trailers().iter() {
                    [name, b": ", value, b"\r\n"].into_iter().for_each(&mut put);
                }
                put(b"\r\n");
                piece.end += room_bytes - room.len();
            }
        }
        piece
    }

    /// The trailers to forward behind the last piece.
    pub(crate) fn trailers(&self) -> FieldList<'_> {
        if self.is_done() { FieldList::new(&self.trailers) } else { FieldList::default() }
    }

    /// Removes trailers that a route sets or removes as headers, so that trailers cannot bypass the route's edits, and digests of a
    /// payload that was replaced.
    fn edit_trailers(&mut self, edits: &HeaderEdits) {
        let has_edits = !edits.set.is_empty() || !edits.remove.is_empty();
        if (has_edits || self.is_recoded) && !self.trailers.is_empty() {
            let is_removed =
                |name: &str| edits.affect(name) || (self.is_recoded && is_digest(name));
            let is_kept = |name: &[u8]| !str::from_utf8(name).is_ok_and(is_removed);
            let trailers = FieldList::new(&self.trailers).iter();
            let trailers = trailers.filter(|field| is_kept(field.name));
            self.trailers = field_list(trailers, self.coding);
        }
    }
}

/// Takes a piece of a body that ends with its stream. Out of line, as most bodies do not.
#[inline(never)]
fn take_all(bytes: &[u8], done: bool, payload: &mut dyn FnMut(&[u8])) -> Taken {
    if !bytes.is_empty() {
        payload(bytes);
    }
    let count = bytes.len();
    Taken { consumed: count, kept: count, payload_bytes: count as u64, done }
}

/// Parses a trailer section, and returns the allowed trailers.
fn parse_trailers(section: &[u8], coding: Coding) -> Result<Vec<u8>, ParseError> {
    let mut headers = [httparse::EMPTY_HEADER; TRAILERS_MAX];
    match httparse::parse_headers(section, &mut headers)? {
        httparse::Status::Complete((_, headers)) => {
            let fields = headers.iter().map(|header| ListedField {
                name: header.name.as_bytes(),
                value: header.value,
                is_sensitive: false,
            });
            Ok(filter_trailers(fields, coding))
        }
        httparse::Status::Partial => Err(ParseError::ChunkEnd),
    }
}

/// Returns the trailers without those that concern framing, routing, authentication, request modifiers, response control or
/// content format (RFC 9110, section 6.5.1).
fn filter_trailers<'a>(trailers: impl Iterator<Item = ListedField<'a>>, coding: Coding) -> Vec<u8> {
    let is_allowed = |name: &[u8]| str::from_utf8(name).is_ok_and(is_allowed_trailer);
    field_list(trailers.filter(|field| is_allowed(field.name)), coding)
}

fn field_list<'a>(fields: impl Iterator<Item = ListedField<'a>>, coding: Coding) -> Vec<u8> {
    let mut list = Vec::new();
    for field in fields {
        let at = FieldList::push_field(&mut list, field);
        // Trailers that are not sent in chunks are those of a stream, with names in lower case.
        if coding == Coding::None {
            list[at - field.name.len()..at].make_ascii_lowercase();
        }
    }
    list
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
