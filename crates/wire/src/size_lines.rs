//! How long the lines may be that say how large chunks are (RFC 9112, section 7.1).

use crate::error::ParseError;

/// How long the size of a chunk with its extensions may be, in bytes.
pub const MAX_CHUNK_LINE_BYTES: usize = 4 * 1024;

/// What the size of any chunk has room in.
const PLAIN_LINE_BYTES: u32 = 16;

/// What size lines may have beyond that in all: so much, and a part of what the chunks have. RFC 9112, section
/// 7.1.1, asks for such a limit: what is thrown away here counts against no other. A chunk that is signed by
/// its extension, as some stores of objects have it, has 85 bytes of that for 8 KiB or more.
const SURPLUS_MAX_BYTES: u64 = 16 << 10;
const PAYLOAD_FOR_SURPLUS: u64 = 8;

/// How long the size lines of one body are so far. There is one for each of thousands of connections.
#[derive(Clone, Copy, Debug)]
pub struct SizeLines {
    /// Of the last one.
    line_bytes: u32,
    /// How much longer than sizes have room in they may be in all, in the part of a byte that a byte of payload
    /// brings.
    surplus_left: u64,
}

impl Default for SizeLines {
    fn default() -> Self {
        Self { line_bytes: 0, surplus_left: SURPLUS_MAX_BYTES * PAYLOAD_FOR_SURPLUS }
    }
}

impl SizeLines {
    /// The first byte of one has come.
    #[inline]
    pub fn begin(&mut self) {
        self.line_bytes = 1;
    }

    /// One more byte of it has.
    ///
    /// # Errors
    ///
    /// [`ParseError::ChunkLineTooLong`]: it is too long, or all of them are for what the chunks have.
    #[inline]
    pub fn lengthen(&mut self) -> Result<(), ParseError> {
        self.line_bytes += 1;
        if self.line_bytes > PLAIN_LINE_BYTES {
            let left = self.surplus_left.checked_sub(PAYLOAD_FOR_SURPLUS);
            self.surplus_left = left.ok_or(ParseError::ChunkLineTooLong)?;
        }
        if self.line_bytes as usize > MAX_CHUNK_LINE_BYTES {
            return Err(ParseError::ChunkLineTooLong);
        }
        Ok(())
    }

    /// So many bytes of a chunk have come.
    #[inline]
    pub fn pass(&mut self, payload_bytes: u64) {
        self.surplus_left = self.surplus_left.saturating_add(payload_bytes);
    }
}
