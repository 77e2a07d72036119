//! The chunked transfer coding (RFC 9112, section 7.1), made plain on its way.

use tollgate_wire::{MAX_CHUNK_LINE_BYTES, MAX_TRAILER_BYTES, ParseError};

use super::{Taken, trailer};

/// How far a chunked body has come. Sizes go on as they came, without leading zeros, padding and
/// extensions, which are the hop's own. The last chunk goes on with what follows it, once that is
/// there: trailers are parsed and written anew.
#[derive(Debug)]
pub(super) struct Chunked {
    state: State,
    keeps_coding: bool,
    /// Bytes of the size line so far.
    line_bytes: usize,
    /// Bytes of all size lines beyond [`PLAIN_LINE_BYTES`] each.
    surplus_bytes: u64,
    /// Bytes of all chunks.
    payload_bytes: u64,
    /// The trailer section so far; behind the end, the last chunk with what goes on of the section.
    trailer: Vec<u8>,
}

/// What the size of any chunk has room in.
const PLAIN_LINE_BYTES: usize = 16;

/// What size lines may have beyond that in all: so much, and a part of what the chunks have. RFC 9112, section
/// 7.1.1, asks for such a limit: what is thrown away here counts against no other. A chunk that is signed by
/// its extension, as some stores of objects have it, has 85 bytes of that for 8 KiB or more.
const SURPLUS_MAX_BYTES: u64 = 16 << 10;
const PAYLOAD_FOR_SURPLUS: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first digit of a chunk's size.
    FirstDigit,
    /// Within the digits; nothing of it went on as long as they were all zeros.
    Size(u64),
    /// After the digits, within spaces.
    Padding(u64),
    /// After the first semicolon, up to the CR.
    Extension(u64),
    /// After the CR of a size line.
    SizeLineFeed(u64),
    /// Within a chunk.
    Data(u64),
    /// After a chunk.
    DataReturn,
    DataLineFeed,
    /// After the line of the last chunk.
    LastLine,
    /// After the CR of an empty line behind it, where there is no trailer.
    EndLineFeed,
    /// Within the trailer section: whether the last byte was a CR, and whether the line is empty so far.
    Trailer {
        after_return: bool,
        is_empty: bool,
    },
    End,
}

impl Chunked {
    pub(super) fn new(keeps_coding: bool) -> Self {
        Self {
            state: State::FirstDigit,
            keeps_coding,
            line_bytes: 0,
            surplus_bytes: 0,
            payload_bytes: 0,
            trailer: Vec::new(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.state == State::End
    }

    /// The last chunk and what follows it, once all of that is there.
    pub(super) fn tail(&self) -> &[u8] {
        match (self.is_done() && self.keeps_coding, self.trailer.is_empty()) {
            (true, true) => b"0\r\n\r\n",
            (true, false) => &self.trailer,
            (false, _) => b"",
        }
    }

    pub(super) fn take(
        &mut self,
        bytes: &mut [u8],
        mut payload: impl FnMut(&[u8]),
    ) -> Result<Taken, ParseError> {
        let mut consumed = 0;
        let mut kept = 0;
        let mut payload_bytes = 0;
        while consumed < bytes.len() && self.state != State::End {
            if let State::Data(left) = self.state {
                let taken = left.min((bytes.len() - consumed) as u64);
                self.state =
                    if taken == left { State::DataReturn } else { State::Data(left - taken) };
                payload_bytes += taken;
                self.payload_bytes += taken;
                // No more than `bytes` holds, so it fits.
                let end = consumed + taken as usize;
                payload(&bytes[consumed..end]);
                // Where nothing was squeezed out, nothing has to move.
                if kept != consumed {
                    bytes.copy_within(consumed..end, kept);
                }
                kept += end - consumed;
                consumed = end;
            } else {
                let byte = bytes[consumed];
                let goes_on = self.step(byte)?;
                consumed += 1;
                if goes_on && self.keeps_coding {
                    bytes[kept] = byte;
                    kept += 1;
                }
            }
        }
        Ok(Taken { consumed, kept, payload_bytes, done: self.is_done() })
    }

    /// Takes one byte of anything but a chunk's data, and says whether it goes on.
    fn step(&mut self, byte: u8) -> Result<bool, ParseError> {
        let (state, goes_on) = match (self.state, byte) {
            (State::FirstDigit, _) => {
                self.line_bytes = 1;
                let digit = hex(byte).ok_or(ParseError::ChunkSize)?;
                (State::Size(digit), digit != 0)
            }
            (State::Size(size) | State::Padding(size) | State::Extension(size), b'\r') => {
                (State::SizeLineFeed(size), size != 0)
            }
            (State::Size(size) | State::Padding(size), b';') => {
                self.lengthen()?;
                (State::Extension(size), false)
            }
            (State::Size(size) | State::Padding(size), b' ' | b'\t') => {
                self.lengthen()?;
                (State::Padding(size), false)
            }
            (State::Padding(_), _) => return Err(ParseError::ChunkSize),
            (State::Size(size), _) => {
                self.lengthen()?;
                let digit = hex(byte).ok_or(ParseError::ChunkSize)?;
                let size = size.checked_mul(16).ok_or(ParseError::ChunkSize)? + digit;
                (State::Size(size), size != 0)
            }
            (State::Extension(_), b'\n' | b'\0') => return Err(ParseError::ChunkEnd),
            (State::Extension(size), _) => {
                self.lengthen()?;
                (State::Extension(size), false)
            }
            (State::SizeLineFeed(0), b'\n') => (State::LastLine, false),
            (State::SizeLineFeed(size), b'\n') => (State::Data(size), true),
            (State::DataReturn, b'\r') => (State::DataLineFeed, true),
            (State::DataLineFeed, b'\n') => (State::FirstDigit, true),
            (State::LastLine, b'\r') => (State::EndLineFeed, false),
            (State::LastLine, _) => (self.trail(byte, false, true)?, false),
            (State::EndLineFeed, b'\n') => (State::End, false),
            (State::Trailer { after_return, is_empty }, _) => {
                (self.trail(byte, after_return, is_empty)?, false)
            }
            (
                State::SizeLineFeed(_)
                | State::DataReturn
                | State::DataLineFeed
                | State::EndLineFeed,
                _,
            ) => return Err(ParseError::ChunkEnd),
            (State::Data(_) | State::End, _) => {
                unreachable!("take stops at the end, and takes data itself")
            }
        };
        self.state = state;
        Ok(goes_on)
    }

    /// Takes one byte of the trailer section.
    fn trail(&mut self, byte: u8, after_return: bool, is_empty: bool) -> Result<State, ParseError> {
        if self.trailer.len() >= MAX_TRAILER_BYTES {
            return Err(ParseError::TrailerTooLong);
        }
        self.trailer.push(byte);
        match (after_return, byte) {
            (false, b'\r') => Ok(State::Trailer { after_return: true, is_empty }),
            (true, b'\n') if is_empty => {
                self.trailer = trailer::filter(&self.trailer)?;
                Ok(State::End)
            }
            (true, b'\n') => Ok(State::Trailer { after_return: false, is_empty: true }),
            (true, _) | (false, b'\n') => Err(ParseError::ChunkEnd),
            (false, _) => Ok(State::Trailer { after_return: false, is_empty: false }),
        }
    }

    fn lengthen(&mut self) -> Result<(), ParseError> {
        self.line_bytes += 1;
        self.surplus_bytes += u64::from(self.line_bytes > PLAIN_LINE_BYTES);
        let surplus_max_bytes = SURPLUS_MAX_BYTES + self.payload_bytes / PAYLOAD_FOR_SURPLUS;
        if self.line_bytes > MAX_CHUNK_LINE_BYTES || self.surplus_bytes > surplus_max_bytes {
            return Err(ParseError::ChunkLineTooLong);
        }
        Ok(())
    }
}

fn hex(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}
