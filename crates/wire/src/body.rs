//! Finding the end of a body, whose bytes come split anywhere.

use crate::chunked::ChunkedDecoder;
use crate::error::ParseError;
use crate::framing::BodyFraming;

/// Where in a body the bytes so far have led. Counts the bytes, and keeps none.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: State,
}

/// What one feed did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyProgress {
    /// How many of the bytes belong to the body and its coding.
    pub consumed: usize,
    /// How many of those are payload, without chunk sizes and trailers.
    pub body_bytes: u64,
    /// Whether the body has ended.
    pub done: bool,
}

#[derive(Clone, Debug)]
enum State {
    Length { left: u64 },
    Chunked(ChunkedDecoder),
    UntilClose,
}

impl BodyDecoder {
    /// A decoder at the start of a body.
    #[must_use]
    pub fn new(framing: BodyFraming) -> Self {
        let state = match framing {
            BodyFraming::Empty => State::Length { left: 0 },
            BodyFraming::Length(left) => State::Length { left },
            BodyFraming::Chunked => State::Chunked(ChunkedDecoder::default()),
            BodyFraming::UntilClose => State::UntilClose,
        };
        Self { state }
    }

    /// Takes what of `bytes` belongs to the body. The rest is the next message's. A body that has
    /// ended, or never had bytes, is done after a feed of none.
    ///
    /// # Errors
    ///
    /// The chunked coding is faulty or exceeds a limit.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<BodyProgress, ParseError> {
        let available = bytes.len() as u64;
        match &mut self.state {
            State::Length { left } => {
                let taken = available.min(*left);
                *left -= taken;
                Ok(BodyProgress {
                    // No more than `bytes` holds, so it fits.
                    consumed: taken as usize,
                    body_bytes: taken,
                    done: *left == 0,
                })
            }
            State::Chunked(decoder) => decoder.feed(bytes),
            State::UntilClose => {
                Ok(BodyProgress { consumed: bytes.len(), body_bytes: available, done: false })
            }
        }
    }

    /// Whether the peer's closing the connection ends the body as it should.
    pub(crate) fn ends_at_close(&self) -> bool {
        matches!(self.state, State::UntilClose)
    }
}
