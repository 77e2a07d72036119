//! HPACK (RFC 7541): compression of field sections.

mod decoder;
mod encoder;
mod huffman;
mod table;

pub use decoder::Decoder;
pub use encoder::Encoder;

use thiserror::Error;

/// Error in a field block. It ends the connection, because the tables of both sides now differ.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum HpackError {
    #[error("field block ends within a field")]
    Truncated,
    #[error("integer exceeds 32 bits")]
    Integer,
    #[error("index {0} is in neither table")]
    Index(u32),
    #[error("invalid Huffman code")]
    Huffman,
    #[error("dynamic table size {size} exceeds the limit of {limit}")]
    TableSize { size: u32, limit: u32 },
    #[error("dynamic table size update after the first field")]
    LateSizeUpdate,
    #[error("no dynamic table size update after the limit was lowered to {0}")]
    MissingSizeUpdate(u32),
    /// The decoded fields exceed the limit for a field section by far.
    #[error("decoded fields exceed {0} bytes")]
    SectionTooLarge(usize),
}

/// Initial size of a dynamic table (RFC 9113, section 6.5.2).
pub(crate) const DEFAULT_TABLE_SIZE: u32 = 4096;
