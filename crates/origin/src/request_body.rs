//! Request bodies, which the origin reads and throws away.

use tollgate_wire::{BodyDecoder, BodyFraming};

use crate::answer::Refusal;

/// The largest request body that is read.
const MAX_REQUEST_BODY_BYTES: u64 = 1 << 30;

/// A request body on its way to nowhere.
pub(crate) struct RequestBody {
    decoder: BodyDecoder,
    left_bytes: u64,
}

impl RequestBody {
    /// A body at its start.
    ///
    /// # Errors
    ///
    /// [`Refusal::BodyTooLarge`], if its length is told.
    pub(crate) fn new(framing: BodyFraming) -> Result<Self, Refusal<'static>> {
        if let BodyFraming::Length(bytes) = framing
            && bytes > MAX_REQUEST_BODY_BYTES
        {
            return Err(TOO_LARGE);
        }
        Ok(Self { decoder: BodyDecoder::new(framing), left_bytes: MAX_REQUEST_BODY_BYTES })
    }

    /// Reads what belongs to the body. Returns how many bytes that was, and whether it is complete.
    ///
    /// # Errors
    ///
    /// [`Refusal::BodyTooLarge`], and [`Refusal::Malformed`] for faulty chunks.
    pub(crate) fn read(&mut self, input: &[u8]) -> Result<(usize, bool), Refusal<'static>> {
        let progress = self.decoder.feed(input, |_| {}).map_err(Refusal::Malformed)?;
        self.left_bytes = self.left_bytes.checked_sub(progress.body_bytes).ok_or(TOO_LARGE)?;
        Ok((progress.consumed, progress.done))
    }
}

const TOO_LARGE: Refusal<'static> = Refusal::BodyTooLarge { max: MAX_REQUEST_BODY_BYTES };
