//! Decoding message bodies that arrive in pieces, and searching them for a pattern.

use memchr::memmem::Finder;

use crate::error::{MAX_CHUNK_LINE_BYTES, MAX_TRAILER_BYTES, ParseError};
use crate::headers::{BodyFraming, LENGTH_MAX};

/// Finds the end of one body. Keeps no bytes.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: State,
}

/// Result of one [`BodyDecoder::feed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyProgress {
    /// Bytes that belong to the body and its transfer coding; the rest belongs to the next message.
    pub consumed: usize,
    /// Payload bytes among those, without chunk sizes and trailers.
    pub body_bytes: u64,
    /// True once the body has ended.
    pub done: bool,
}

/// Consecutive bytes of a body that have one meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyPart {
    pub kind: BodyPartKind,
    pub len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyPartKind {
    Payload,
    /// Chunk sizes and line ends. With the payload they form a chunked coding without leading zeros, padding and
    /// extensions, up to the last chunk. To complete it, append `0\r\n`, the trailers and `\r\n`.
    Coding,
    /// Lines of the trailer section, without the empty line that ends it. Only their line ends are checked: parse
    /// them before forwarding.
    Trailer,
    /// Bytes that must not be forwarded: leading zeros, padding, extensions, the last chunk.
    Skipped,
}

#[derive(Clone, Debug)]
enum State {
    Length { remaining: u64 },
    Chunked(ChunkedDecoder),
    UntilClose,
}

impl BodyDecoder {
    pub fn new(framing: BodyFraming) -> Self {
        let state = match framing {
            BodyFraming::Empty => State::Length { remaining: 0 },
            BodyFraming::Length(remaining) => State::Length { remaining },
            BodyFraming::Chunked => State::Chunked(ChunkedDecoder::default()),
            BodyFraming::UntilClose => State::UntilClose,
        };
        Self { state }
    }

    /// Consumes the part of `bytes` that belongs to the body. Bytes after the end of the body stay unconsumed.
    /// A body without bytes is done after a feed of none.
    ///
    /// Calls `payload` with each piece of payload, in order, never empty; also with the payload that
    /// precedes an error in the same bytes.
    ///
    /// # Errors
    ///
    /// The chunked coding is malformed or exceeds a limit. The decoder must not be used afterwards.
    #[inline]
    pub fn feed(
        &mut self,
        bytes: &[u8],
        mut payload: impl FnMut(&[u8]),
    ) -> Result<BodyProgress, ParseError> {
        let mut consumed = 0;
        let mut body_bytes = 0;
        while consumed < bytes.len()
            && let Some(part) = self.next_part(&bytes[consumed..])?
        {
            let end = consumed + part.len;
            if part.kind == BodyPartKind::Payload {
                payload(&bytes[consumed..end]);
                body_bytes += part.len as u64;
            }
            consumed = end;
        }
        Ok(BodyProgress { consumed, body_bytes, done: self.is_done() })
    }

    /// Consumes the next bytes of one kind from the start of `bytes`. Returns `None` when `bytes` is empty or the
    /// body has ended. For callers that rewrite a body in the buffer it was read into; others use
    /// [`feed`](Self::feed).
    #[inline]
    pub fn next_part(&mut self, bytes: &[u8]) -> Result<Option<BodyPart>, ParseError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let len = match &mut self.state {
            State::Length { remaining: 0 } => return Ok(None),
            State::Length { remaining } => take(remaining, bytes),
            State::Chunked(decoder) => return decoder.next_part(bytes),
            State::UntilClose => bytes.len(),
        };
        Ok(Some(BodyPart { kind: BodyPartKind::Payload, len }))
    }

    /// Returns true once the body has ended. Never true for [`BodyFraming::UntilClose`].
    pub fn is_done(&self) -> bool {
        match &self.state {
            State::Length { remaining } => *remaining == 0,
            State::Chunked(decoder) => decoder.state == ChunkedState::Done,
            State::UntilClose => false,
        }
    }

    /// Returns the payload bytes that must follow, as announced by the `Content-Length` or by the
    /// current chunk's size.
    pub fn remaining(&self) -> u64 {
        match &self.state {
            State::Length { remaining } => *remaining,
            State::Chunked(ChunkedDecoder { state: ChunkedState::Data(remaining), .. }) => {
                *remaining
            }
            State::Chunked(_) | State::UntilClose => 0,
        }
    }

    /// Returns true if the body ends when the peer closes the connection.
    pub fn ends_at_close(&self) -> bool {
        matches!(self.state, State::UntilClose)
    }
}

/// Takes as much of `remaining` as `bytes` holds.
fn take(remaining: &mut u64, bytes: &[u8]) -> usize {
    let taken = (bytes.len() as u64).min(*remaining);
    *remaining -= taken;
    // At most `bytes.len()`.
    taken as usize
}

/// Decoder of the chunked transfer coding (RFC 9112, section 7.1).
#[derive(Clone, Copy, Debug, Default)]
struct ChunkedDecoder {
    state: ChunkedState,
    limit: ChunkLineLimit,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkedState {
    /// Before the first digit of a chunk size.
    #[default]
    SizeStart,
    /// Within the digits.
    Size(u64),
    /// Within spaces after the digits.
    Padding(u64),
    /// After the first semicolon, before the CR.
    Extension(u64),
    /// After the CR of a size line.
    SizeLineFeed(u64),
    /// Within the data of a chunk.
    Data(u64),
    /// After the data.
    DataReturn,
    DataLineFeed,
    /// At the start of a line of the trailer section. This and the next two hold the bytes of the section so far.
    TrailerStart(usize),
    TrailerLine(usize),
    TrailerLineFeed(usize),
    /// After the CR of the final empty line.
    FinalLineFeed,
    Done,
}

impl ChunkedDecoder {
    fn next_part(&mut self, bytes: &[u8]) -> Result<Option<BodyPart>, ParseError> {
        if let ChunkedState::Data(remaining) = &mut self.state {
            let len = take(remaining, bytes);
            if *remaining == 0 {
                self.state = ChunkedState::DataReturn;
            }
            self.limit.add_payload(len as u64);
            return Ok(Some(BodyPart { kind: BodyPartKind::Payload, len }));
        }
        let mut part: Option<BodyPart> = None;
        for &byte in bytes {
            if matches!(self.state, ChunkedState::Data(_) | ChunkedState::Done) {
                break;
            }
            let mut next = *self;
            let kind = next.step(byte)?;
            match &mut part {
                None => part = Some(BodyPart { kind, len: 1 }),
                Some(part) if part.kind == kind => part.len += 1,
                // The byte is the first of the next part.
                Some(_) => break,
            }
            *self = next;
        }
        Ok(part)
    }

    /// Consumes one byte outside chunk data.
    fn step(&mut self, byte: u8) -> Result<BodyPartKind, ParseError> {
        use BodyPartKind::{Coding, Skipped, Trailer};
        use ChunkedState as State;
        let of_size = |size: u64| if size == 0 { Skipped } else { Coding };
        let (state, kind) = match (self.state, byte) {
            (State::SizeStart, _) => {
                self.limit.start_line();
                let size = hex(byte).ok_or(ParseError::ChunkSize)?;
                (State::Size(size), of_size(size))
            }
            (State::Size(size) | State::Padding(size) | State::Extension(size), b'\r') => {
                (State::SizeLineFeed(size), of_size(size))
            }
            (State::Size(size) | State::Padding(size), b';') => {
                self.limit.add_line_byte()?;
                (State::Extension(size), Skipped)
            }
            // Some servers pad the size with spaces.
            (State::Size(size) | State::Padding(size), b' ' | b'\t') => {
                self.limit.add_line_byte()?;
                (State::Padding(size), Skipped)
            }
            (State::Padding(_), _) => return Err(ParseError::ChunkSize),
            (State::Size(size), _) => {
                self.limit.add_line_byte()?;
                let digit = hex(byte).ok_or(ParseError::ChunkSize)?;
                if size > LENGTH_MAX >> 4 {
                    return Err(ParseError::ChunkSize);
                }
                let size = (size << 4) + digit;
                (State::Size(size), of_size(size))
            }
            (State::Extension(_), b'\n' | b'\0') => return Err(ParseError::ChunkEnd),
            (State::Extension(size), _) => {
                self.limit.add_line_byte()?;
                (State::Extension(size), Skipped)
            }
            (State::SizeLineFeed(0), b'\n') => (State::TrailerStart(0), Skipped),
            (State::SizeLineFeed(size), b'\n') => (State::Data(size), Coding),
            (State::DataReturn, b'\r') => (State::DataLineFeed, Coding),
            (State::DataLineFeed, b'\n') => (State::SizeStart, Coding),
            (State::TrailerStart(_), b'\r') => (State::FinalLineFeed, Skipped),
            (State::TrailerStart(_) | State::TrailerLine(_), b'\n') => {
                return Err(ParseError::ChunkEnd);
            }
            (State::TrailerStart(len) | State::TrailerLine(len), _) => {
                let len = trailer_len(len)?;
                let is_end = byte == b'\r';
                let state =
                    if is_end { State::TrailerLineFeed(len) } else { State::TrailerLine(len) };
                (state, Trailer)
            }
            (State::TrailerLineFeed(len), b'\n') => {
                (State::TrailerStart(trailer_len(len)?), Trailer)
            }
            (State::FinalLineFeed, b'\n') => (State::Done, Skipped),
            (
                State::SizeLineFeed(_)
                | State::DataReturn
                | State::DataLineFeed
                | State::TrailerLineFeed(_)
                | State::FinalLineFeed,
                _,
            ) => return Err(ParseError::ChunkEnd),
            (State::Data(_) | State::Done, _) => {
                unreachable!("next_part takes data itself and stops at the end")
            }
        };
        self.state = state;
        Ok(kind)
    }
}

/// Adds one byte to the length of the trailer section.
fn trailer_len(len: usize) -> Result<usize, ParseError> {
    if len == MAX_TRAILER_BYTES { Err(ParseError::TrailerTooLong) } else { Ok(len + 1) }
}

fn hex(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}

/// Maximum length that a chunk size needs.
const PLAIN_LINE_BYTES: u32 = 16;

/// Size lines of one body may exceed [`PLAIN_LINE_BYTES`] by this many bytes in total, plus one byte for each
/// [`PAYLOAD_PER_SURPLUS_BYTE`] bytes of payload. RFC 9112, section 7.1.1, asks for a total limit on extensions, since
/// other limits do not count them. Signed chunks, as sent by object stores, have 85 bytes of extension for 8 KiB of
/// payload or more.
const SURPLUS_MAX_BYTES: u64 = 16 << 10;
const PAYLOAD_PER_SURPLUS_BYTE: u64 = 8;

/// Limits the size lines of one body, one by one and in total.
#[derive(Clone, Copy, Debug)]
struct ChunkLineLimit {
    /// Length of the current line so far.
    line_bytes: u32,
    /// Surplus left, times [`PAYLOAD_PER_SURPLUS_BYTE`].
    surplus_left: u64,
}

impl Default for ChunkLineLimit {
    fn default() -> Self {
        Self { line_bytes: 0, surplus_left: SURPLUS_MAX_BYTES * PAYLOAD_PER_SURPLUS_BYTE }
    }
}

impl ChunkLineLimit {
    fn start_line(&mut self) {
        self.line_bytes = 1;
    }

    fn add_line_byte(&mut self) -> Result<(), ParseError> {
        self.line_bytes += 1;
        if self.line_bytes > PLAIN_LINE_BYTES {
            let left = self.surplus_left.checked_sub(PAYLOAD_PER_SURPLUS_BYTE);
            self.surplus_left = left.ok_or(ParseError::ChunkLineTooLong)?;
        }
        if self.line_bytes as usize > MAX_CHUNK_LINE_BYTES {
            return Err(ParseError::ChunkLineTooLong);
        }
        Ok(())
    }

    fn add_payload(&mut self, bytes: u64) {
        self.surplus_left = self.surplus_left.saturating_add(bytes);
    }
}

/// Pattern of at least one byte, prepared once for any number of searches.
#[derive(Clone, Debug)]
pub struct Pattern {
    finder: Finder<'static>,
}

impl Pattern {
    /// Prepares a search for `bytes`. Returns `None` if they are empty.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (!bytes.is_empty()).then(|| Self { finder: Finder::new(bytes).into_owned() })
    }

    fn is_in(&self, bytes: &[u8]) -> bool {
        self.finder.find(bytes).is_some()
    }
}

/// Search for one pattern in one body that arrives in pieces. Stores at most the length of the pattern minus one byte.
#[derive(Clone, Debug, Default)]
pub struct BodySearch {
    /// End of the bytes so far, where a match may start that ends in a later piece.
    tail: Vec<u8>,
    found: bool,
}

impl BodySearch {
    /// Starts over, for the next body. Keeps its memory.
    pub fn reset(&mut self) {
        self.tail.clear();
        self.found = false;
    }

    /// Searches the next piece of the body. The pattern must be the same for all pieces.
    pub fn feed(&mut self, pattern: &Pattern, piece: &[u8]) {
        if self.found {
            return;
        }
        let tail_max = pattern.finder.needle().len() - 1;
        if !self.tail.is_empty() {
            self.tail.extend_from_slice(&piece[..piece.len().min(tail_max)]);
            self.found = pattern.is_in(&self.tail);
        }
        self.found |= pattern.is_in(piece);
        if piece.len() >= tail_max || self.tail.is_empty() {
            self.tail.clear();
            self.tail.extend_from_slice(&piece[piece.len().saturating_sub(tail_max)..]);
        } else {
            self.tail.drain(..self.tail.len().saturating_sub(tail_max));
        }
    }

    /// Returns true if the bytes so far contain the pattern.
    pub fn found(&self) -> bool {
        self.found
    }
}
