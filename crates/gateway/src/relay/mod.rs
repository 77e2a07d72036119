//! Bodies on their way: where they end, and what of their bytes goes on. The bytes stay where they
//! were read to; what does not go on is squeezed out in place.

mod chunked;
mod trailer;

use std::borrow::Cow;

use tollgate_wire::{BodyFraming, MAX_TRAILER_BYTES, ParseError};

use crate::config::HeaderEdits;
use chunked::Chunked;

/// The most bytes of a body's tail: trailers may come with no space behind their colons.
pub(crate) const TAIL_MAX_BYTES: usize = MAX_TRAILER_BYTES + trailer::TRAILERS_MAX + 8;

/// How far the body of one message has come.
#[derive(Debug)]
pub(crate) struct Body {
    state: State,
}

/// What became of some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// How many of the bytes belong to the body and its coding.
    pub(crate) consumed: usize,
    /// How many go on: they are at the beginning of the bytes now.
    pub(crate) kept: usize,
    /// How many of those that were consumed are payload.
    pub(crate) payload_bytes: u64,
    /// Whether the body has ended, apart from its [`tail`](Body::tail).
    pub(crate) done: bool,
}

#[derive(Debug)]
enum State {
    Length { left: u64 },
    Chunked(Chunked),
    UntilClose,
}

impl Body {
    /// A body at its start. `keeps_coding`: chunks stay chunks; if not, their payload alone goes on.
    pub(crate) fn new(framing: BodyFraming, keeps_coding: bool) -> Self {
        let state = match framing {
            BodyFraming::Empty => State::Length { left: 0 },
            BodyFraming::Length(left) => State::Length { left },
            BodyFraming::Chunked => State::Chunked(Chunked::new(keeps_coding)),
            BodyFraming::UntilClose => State::UntilClose,
        };
        Self { state }
    }

    /// Takes what of `bytes` belongs to the body, and moves what goes on to their beginning. What is
    /// left behind `consumed` is as it was.
    ///
    /// # Errors
    ///
    /// The chunked coding is faulty or exceeds a limit. What came before in these bytes does not go on
    /// either, so that no one takes the message for whole.
    #[inline]
    pub(crate) fn take(&mut self, bytes: &mut [u8]) -> Result<Taken, ParseError> {
        self.take_with(bytes, |_| {})
    }

    /// The same, with a look at each piece of the payload, none of which is empty.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take); pieces before the fault were looked at.
    #[inline]
    pub(crate) fn take_with(
        &mut self,
        bytes: &mut [u8],
        mut payload: impl FnMut(&[u8]),
    ) -> Result<Taken, ParseError> {
        let taken = match &mut self.state {
            State::Length { left } => {
                let taken = (bytes.len() as u64).min(*left);
                *left -= taken;
                taken
            }
            State::Chunked(chunked) => return chunked.take(bytes, payload),
            State::UntilClose => bytes.len() as u64,
        };
        // No more than `bytes` holds, so it fits.
        let consumed = taken as usize;
        if consumed > 0 {
            payload(&bytes[..consumed]);
        }
        Ok(Taken { consumed, kept: consumed, payload_bytes: taken, done: self.is_done() })
    }

    /// Whether no byte of it is missing.
    pub(crate) fn is_done(&self) -> bool {
        match &self.state {
            State::Length { left } => *left == 0,
            State::Chunked(chunked) => chunked.is_done(),
            State::UntilClose => false,
        }
    }

    /// What is to follow once it is done: the last chunk with its trailers, without what these edits set or
    /// remove; at most [`TAIL_MAX_BYTES`].
    pub(crate) fn tail(&self, edits: &HeaderEdits) -> Cow<'_, [u8]> {
        match &self.state {
            State::Chunked(chunked) => chunked.tail(edits),
            State::Length { .. } | State::UntilClose => Cow::Borrowed(b""),
        }
    }

    /// Whether the end of the connection is the end of the body.
    pub(crate) fn ends_at_close(&self) -> bool {
        matches!(self.state, State::UntilClose)
    }
}

#[cfg(test)]
mod tests;
