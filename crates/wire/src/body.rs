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
    /// `payload` is called with each piece of payload, in order and never empty; also with what
    /// comes before a fault in the same bytes.
    ///
    /// # Errors
    ///
    /// The chunked coding is faulty or exceeds a limit.
    #[inline]
    pub fn feed(
        &mut self,
        bytes: &[u8],
        mut payload: impl FnMut(&[u8]),
    ) -> Result<BodyProgress, ParseError> {
        let taken = match &mut self.state {
            State::Length { left } => {
                let taken = (bytes.len() as u64).min(*left);
                *left -= taken;
                taken
            }
            State::Chunked(decoder) => return decoder.feed(bytes, payload),
            State::UntilClose => bytes.len() as u64,
        };
        // No more than `bytes` holds, so it fits.
        let consumed = taken as usize;
        if consumed > 0 {
            payload(&bytes[..consumed]);
        }
        let done = matches!(self.state, State::Length { left: 0 });
        Ok(BodyProgress { consumed, body_bytes: taken, done })
    }

    /// How many more bytes of the body are certain to come, because its length or the size of the chunk
    /// that has begun says so.
    #[must_use]
    pub fn owed_bytes(&self) -> u64 {
        match &self.state {
            State::Length { left } => *left,
            State::Chunked(decoder) => decoder.owed_bytes(),
            State::UntilClose => 0,
        }
    }

    /// Whether the peer's closing the connection ends the body as it should.
    pub(crate) fn ends_at_close(&self) -> bool {
        matches!(self.state, State::UntilClose)
    }
}
