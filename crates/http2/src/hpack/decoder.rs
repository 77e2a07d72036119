//! Decoding field blocks.

use super::table::{DynamicTable, STATIC};
use super::{DEFAULT_TABLE_SIZE, HpackError, huffman};
use crate::fields::{FieldLimits, Fields};

/// Decoder of one direction of a connection.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
    /// Largest table size that the peer may choose.
    size_limit: u32,
    /// The limit was lowered below the size of the table, which the peer must acknowledge in its next block.
    needs_size_update: bool,
}

impl Default for Decoder {
    /// Creates a decoder with the protocol's initial table size.
    fn default() -> Self {
        Self {
            table: DynamicTable::new(DEFAULT_TABLE_SIZE as usize),
            size_limit: DEFAULT_TABLE_SIZE,
            needs_size_update: false,
        }
    }
}

impl Decoder {
    /// Applies a `SETTINGS_HEADER_TABLE_SIZE` that the peer has acknowledged.
    pub fn set_size_limit(&mut self, limit: u32) {
        self.size_limit = limit;
        self.needs_size_update = self.table.size_max() > limit as usize;
    }

    /// Decodes a whole field block into `fields`, which are cleared. Fields above the limits are dropped, but the table
    /// stays in step; see [`Fields::is_truncated`].
    pub fn decode(
        &mut self,
        block: &[u8],
        limits: FieldLimits,
        fields: &mut Fields,
    ) -> Result<(), HpackError> {
        fields.start(limits);
        let mut input = block;
        while let Some(&first) = input.first() {
            if first & 0xe0 == 0x20 {
                if fields.has_any() {
                    return Err(HpackError::LateSizeUpdate);
                }
                self.update_size(integer(&mut input, 5)?)?;
                continue;
            }
            if self.needs_size_update {
                return Err(HpackError::MissingSizeUpdate(self.size_limit));
            }
            let start = fields.bytes.len();
            if first & 0x80 != 0 {
                let (name, value) = self.entry(integer(&mut input, 7)?)?;
                fields.bytes.extend_from_slice(name);
                fields.bytes.extend_from_slice(value);
                fields.commit(start, name.len(), false)?;
                continue;
            }
            let is_inserted = first & 0x40 != 0;
            let index = integer(&mut input, if is_inserted { 6 } else { 4 })?;
            if index == 0 {
                string(&mut input, &mut fields.bytes)?;
            } else {
                let (name, _) = self.entry(index)?;
                fields.bytes.extend_from_slice(name);
            }
            let name_len = fields.bytes.len() - start;
            string(&mut input, &mut fields.bytes)?;
            if is_inserted {
                let (name, value) = fields.bytes[start..].split_at(name_len);
                self.table.insert(name, value);
            }
            let is_never_indexed = first & 0xf0 == 0x10;
            fields.commit(start, name_len, is_never_indexed)?;
        }
        Ok(())
    }

    fn update_size(&mut self, size: u32) -> Result<(), HpackError> {
        if size > self.size_limit {
            return Err(HpackError::TableSize { size, limit: self.size_limit });
        }
        self.table.set_size_max(size as usize);
        self.needs_size_update = false;
        Ok(())
    }

    fn entry(&self, index: u32) -> Result<(&[u8], &[u8]), HpackError> {
        let position = (index as usize).checked_sub(1).ok_or(HpackError::Index(index))?;
        match STATIC.get(position) {
            Some(entry) => Ok(*entry),
            None => self.table.get(position - STATIC.len()).ok_or(HpackError::Index(index)),
        }
    }
}

/// Decodes an integer with a prefix of `prefix_bits` (RFC 7541, section 5.1).
fn integer(input: &mut &[u8], prefix_bits: u32) -> Result<u32, HpackError> {
    let (&first, mut rest) = input.split_first().ok_or(HpackError::Truncated)?;
    let prefix_max = (1_u32 << prefix_bits) - 1;
    let mut value = u64::from(u32::from(first) & prefix_max);
    if value == u64::from(prefix_max) {
        let mut shift = 0;
        loop {
            let (&byte, behind) = rest.split_first().ok_or(HpackError::Truncated)?;
            rest = behind;
            value += u64::from(byte & 0x7f) << shift;
            // Leading zeros are allowed, but limited.
            if value > u64::from(u32::MAX) || shift > 28 {
                return Err(HpackError::Integer);
            }
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
        }
    }
    *input = rest;
    // Checked above.
    Ok(value as u32)
}

/// Appends a string literal to `out`.
fn string(input: &mut &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    let is_huffman = input.first().is_some_and(|byte| byte & 0x80 != 0);
    let length = integer(input, 7)? as usize;
    let (bytes, rest) = input.split_at_checked(length).ok_or(HpackError::Truncated)?;
    *input = rest;
    if is_huffman {
        huffman::decode(bytes, out)?;
    } else {
        out.extend_from_slice(bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut bytes: &[u8], prefix_bits: u32) -> Result<(u32, usize), HpackError> {
        let before = bytes.len();
        integer(&mut bytes, prefix_bits).map(|value| (value, before - bytes.len()))
    }

    /// RFC 7541, appendix C.1.
    #[test]
    fn integers_of_the_rfc() {
        assert_eq!(read(&[0b1110_1010], 5), Ok((10, 1)));
        assert_eq!(read(&[0b0001_1111, 0b1001_1010, 0b0000_1010], 5), Ok((1337, 3)));
        assert_eq!(read(&[42], 8), Ok((42, 1)));
    }

    #[test]
    fn integers_have_32_bits() {
        assert_eq!(read(&[0x7f, 0x80, 0xff, 0xff, 0xff, 0x0f], 7), Ok((u32::MAX, 6)));
        assert_eq!(read(&[0x7f, 0x81, 0xff, 0xff, 0xff, 0x0f], 7), Err(HpackError::Integer));
        assert_eq!(read(&[0x7f, 0x80, 0x80, 0x80, 0x80, 0], 7), Ok((127, 6)));
        assert_eq!(read(&[0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0], 7), Err(HpackError::Integer));
        assert_eq!(read(&[0x7f, 0x80], 7), Err(HpackError::Truncated));
        assert_eq!(read(&[], 7), Err(HpackError::Truncated));
    }
}
