//! Request bodies, as they come.

use tollgate_wire::{BodyDecoder, BodyFraming};

use crate::refusal::Refusal;

/// A request body, of which the endpoint sees every piece once.
pub(crate) struct RequestBody {
    decoder: BodyDecoder,
    bytes_max: u64,
    read_bytes: u64,
}

impl RequestBody {
    /// A body at its start.
    ///
    /// # Errors
    ///
    /// [`Refusal::BodyTooLarge`], if its length is told.
    pub(crate) fn new(framing: BodyFraming, bytes_max: u64) -> Result<Self, Refusal<'static>> {
        match framing {
            BodyFraming::Length(bytes) if bytes > bytes_max => {
                Err(Refusal::BodyTooLarge { max: bytes_max })
            }
            _ => Ok(Self { decoder: BodyDecoder::new(framing), bytes_max, read_bytes: 0 }),
        }
    }

    /// Reads what belongs to the body, and hands on its pieces, of which no more are kept than may
    /// be. Returns how many bytes that was, and whether it is complete.
    ///
    /// # Errors
    ///
    /// [`Refusal::BodyTooLarge`], and [`Refusal::Malformed`] for faulty chunks.
    pub(crate) fn read(
        &mut self,
        input: &[u8],
        mut take: impl FnMut(&[u8]),
    ) -> Result<(usize, bool), Refusal<'static>> {
        let Self { decoder, bytes_max, read_bytes } = self;
        let progress = decoder
            .feed(input, |piece| {
                *read_bytes += piece.len() as u64;
                if *read_bytes <= *bytes_max {
                    take(piece);
                }
            })
            .map_err(Refusal::Malformed)?;
        // What a chunk says of its size is not waited for.
        if self.read_bytes.saturating_add(self.decoder.owed_bytes()) > self.bytes_max {
            return Err(Refusal::BodyTooLarge { max: self.bytes_max });
        }
        Ok((progress.consumed, progress.done))
    }

    /// How many bytes of it have come.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes
    }
}
