//! The chunked transfer coding (RFC 9112, section 7.1), made plain on its way.

use std::borrow::Cow;

use tollgate_wire::{MAX_TRAILER_BYTES, ParseError, SizeLines};

use super::{Taken, trailer};
use crate::config::HeaderEdits;

/// How far a chunked body has come. Sizes go on as they came, without leading zeros, padding and
/// extensions, which are the hop's own. The last chunk goes on with what follows it, once that is
/// there: trailers are parsed and written anew.
#[derive(Debug)]
pub(super) struct Chunked {
    state: State,
    keeps_coding: bool,
    lines: SizeLines,
    /// The trailer section so far; behind the end, the last chunk with what goes on of the section.
    trailer: Vec<u8>,
}

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
            lines: SizeLines::default(),
            trailer: Vec::new(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.state == State::End
    }

    /// The last chunk and what follows it, once all of that is there.
    pub(super) fn tail(&self, edits: &HeaderEdits) -> Cow<'_, [u8]> {
        match (self.is_done() && self.keeps_coding, self.trailer.is_empty()) {
            (true, true) => Cow::Borrowed(b"0\r\n\r\n"),
            (true, false) => trailer::edit(&self.trailer, edits),
            (false, _) => Cow::Borrowed(b""),
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
                self.lines.pass(taken);
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
                self.lines.begin();
                let digit = hex(byte).ok_or(ParseError::ChunkSize)?;
                (State::Size(digit), digit != 0)
            }
            (State::Size(size) | State::Padding(size) | State::Extension(size), b'\r') => {
                (State::SizeLineFeed(size), size != 0)
            }
            (State::Size(size) | State::Padding(size), b';') => {
                self.lines.lengthen()?;
                (State::Extension(size), false)
            }
            (State::Size(size) | State::Padding(size), b' ' | b'\t') => {
                self.lines.lengthen()?;
                (State::Padding(size), false)
            }
            (State::Padding(_), _) => return Err(ParseError::ChunkSize),
            (State::Size(size), _) => {
                self.lines.lengthen()?;
                let digit = hex(byte).ok_or(ParseError::ChunkSize)?;
                let size = size.checked_mul(16).ok_or(ParseError::ChunkSize)? + digit;
                (State::Size(size), size != 0)
            }
            (State::Extension(_), b'\n' | b'\0') => return Err(ParseError::ChunkEnd),
            (State::Extension(size), _) => {
                self.lines.lengthen()?;
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
}

fn hex(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}
