//! Byte ranges of `validateByteRange`.

use crate::transformation::ByteSet;

/// Bytes that a value may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ByteRange {
    /// Bit `b % 64` of word `b / 64` is set if the byte `b` is allowed.
    pub(crate) allowed: ByteSet,
}

impl ByteRange {
    /// Parses a list such as `9,10,13,32-126`. (libmodsecurity ignores a part that is no range.)
    pub(crate) fn parse(list: &str) -> Result<Self, String> {
        let mut range = Self::default();
        for part in list.split(',').map(str::trim) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<u8>();
            let (Ok(first), Ok(last)) = (number(first), number(last)) else {
                return Err(format!(
                    "invalid byte range `{part}`: write a number from 0 to 255, or two as in 32-126"
                ));
            };
            if first > last {
                return Err(format!(
                    "invalid byte range `{part}`: the first number is above the second"
                ));
            }
            for byte in first..=last {
                range.allowed[usize::from(byte >> 6)] |= 1 << (byte & 63);
            }
        }
        Ok(range)
    }

    /// Returns the position of the first byte that is not allowed.
    pub(crate) fn first_outside(&self, value: &[u8]) -> Option<usize> {
        value.iter().position(|byte| self.allowed[usize::from(byte >> 6)] >> (byte & 63) & 1 == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::ByteRange;

    #[test]
    fn finds_the_first_byte_outside() {
        let range = ByteRange::parse("9,10, 13,32-126,128-255").unwrap();
        assert_eq!(range.first_outside(b"a\t\r\n ~\x80\xff"), None);
        assert_eq!(range.first_outside(b"ab\x7f\0"), Some(2));
        assert_eq!(range.first_outside(b""), None);
        assert_eq!(ByteRange::parse("1-255").unwrap().first_outside(b"a\0"), Some(1));
    }

    #[test]
    fn rejects_what_is_no_range() {
        for list in ["", "a", "256", "-1", "1-", "5x", "0x41", "1,,2"] {
            assert!(ByteRange::parse(list).unwrap_err().contains("write a number"), "{list}");
        }
        assert!(ByteRange::parse("5-3").unwrap_err().contains("above"));
    }
}
