//! The chunked transfer coding (RFC 9112, section 7.1).

use crate::body::BodyProgress;
use crate::error::ParseError;
use crate::size_lines::SizeLines;

/// How long the trailer after the last chunk may be, in bytes.
pub const MAX_TRAILER_BYTES: usize = 16 * 1024;

/// Counts the payload of a chunked body. Extensions and trailers are passed over, within limits.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkedDecoder {
    state: State,
    lines: SizeLines,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// Before the first digit of a chunk's size.
    #[default]
    FirstDigit,
    /// Within the digits.
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
    /// At the start of a line of the trailer, the empty one that ends it included; with the bytes of the trailer
    /// so far, as in the two that follow.
    TrailerStart(usize),
    TrailerLine(usize),
    TrailerLineFeed(usize),
    /// After the CR of the empty line.
    EndLineFeed,
    End,
}

impl ChunkedDecoder {
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        mut payload: impl FnMut(&[u8]),
    ) -> Result<BodyProgress, ParseError> {
        let mut consumed = 0;
        let mut body_bytes = 0;
        while consumed < bytes.len() && !matches!(self.state, State::End) {
            if let State::Data(left) = self.state {
                let taken = left.min((bytes.len() - consumed) as u64);
                self.state =
                    if taken == left { State::DataReturn } else { State::Data(left - taken) };
                body_bytes += taken;
                self.lines.pass(taken);
                // No more than `bytes` holds, so it fits.
                let end = consumed + taken as usize;
                payload(&bytes[consumed..end]);
                consumed = end;
            } else {
                self.state = self.step(bytes[consumed])?;
                consumed += 1;
            }
        }
        Ok(BodyProgress { consumed, body_bytes, done: matches!(self.state, State::End) })
    }

    /// How many bytes of the chunk that has begun are still to come.
    pub(crate) fn owed_bytes(&self) -> u64 {
        if let State::Data(left) = self.state { left } else { 0 }
    }

    /// The state after one byte of anything but a chunk's data.
    fn step(&mut self, byte: u8) -> Result<State, ParseError> {
        match (self.state, byte) {
            (State::FirstDigit, _) => {
                self.lines.begin();
                Ok(State::Size(hex(byte).ok_or(ParseError::ChunkSize)?))
            }
            (State::Size(size) | State::Padding(size) | State::Extension(size), b'\r') => {
                Ok(State::SizeLineFeed(size))
            }
            (State::Size(size) | State::Padding(size), b';') => {
                self.lines.lengthen()?;
                Ok(State::Extension(size))
            }
            // Some servers pad the size with spaces.
            (State::Size(size) | State::Padding(size), b' ' | b'\t') => {
                self.lines.lengthen()?;
                Ok(State::Padding(size))
            }
            (State::Padding(_), _) => Err(ParseError::ChunkSize),
            (State::Size(size), _) => {
                self.lines.lengthen()?;
                let digit = hex(byte).ok_or(ParseError::ChunkSize)?;
                let size = size.checked_mul(16).ok_or(ParseError::ChunkSize)?;
                Ok(State::Size(size + digit))
            }
            (State::Extension(_) | State::TrailerStart(_) | State::TrailerLine(_), b'\n') => {
                Err(ParseError::ChunkEnd)
            }
            (State::Extension(size), _) => {
                self.lines.lengthen()?;
                Ok(State::Extension(size))
            }
            (State::SizeLineFeed(0), b'\n') => Ok(State::TrailerStart(0)),
            (State::SizeLineFeed(size), b'\n') => Ok(State::Data(size)),
            (State::DataReturn, b'\r') => Ok(State::DataLineFeed),
            (State::DataLineFeed, b'\n') => Ok(State::FirstDigit),
            (State::TrailerStart(_), b'\r') => Ok(State::EndLineFeed),
            (State::TrailerLine(bytes), b'\r') => Ok(State::TrailerLineFeed(bytes)),
            (State::TrailerStart(bytes) | State::TrailerLine(bytes), _) => {
                if bytes == MAX_TRAILER_BYTES {
                    return Err(ParseError::TrailerTooLong);
                }
                Ok(State::TrailerLine(bytes + 1))
            }
            (State::TrailerLineFeed(bytes), b'\n') => Ok(State::TrailerStart(bytes)),
            (State::EndLineFeed, b'\n') => Ok(State::End),
            (
                State::SizeLineFeed(_)
                | State::DataReturn
                | State::DataLineFeed
                | State::TrailerLineFeed(_)
                | State::EndLineFeed,
                _,
            ) => Err(ParseError::ChunkEnd),
            (State::Data(_) | State::End, _) => {
                unreachable!("feed takes data, and stops at the end")
            }
        }
    }
}

fn hex(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}
