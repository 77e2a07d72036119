//! Bytes and encodings of `validateByteRange`, `validateUrlEncoding` and `validateUtf8Encoding`.

use memchr::memchr_iter;

use crate::transformation::ByteSet;

/// Allowed bytes of a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ByteRange {
    /// Bit `b % 64` of word `b / 64` is set if the byte `b` is allowed.
    pub(crate) allowed: ByteSet,
}

impl ByteRange {
    /// Parses a list such as `9,10,13,32-126`. (libmodsecurity ignores a part that is not a range.)
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

/// Returns true if a percent sign is not followed by two hexadecimal digits.
pub(crate) fn invalid_url_encoding(value: &[u8]) -> bool {
    memchr_iter(b'%', value).any(|at| {
        let digits = value.get(at + 1..at + 3);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

/// Returns true if the value is not UTF-8: a broken, overlong or surrogate sequence, or a first
/// byte above 0xF4. Codes from U+110000 to U+13FFFF pass, as in libmodsecurity.
pub(crate) fn invalid_utf8(value: &[u8]) -> bool {
    let mut rest = value;
    while let Err(error) = std::str::from_utf8(rest) {
        rest = &rest[error.valid_up_to()..];
        match rest {
            [0xf4, second, third, fourth, ..]
                if [second, third, fourth].iter().all(|byte| **byte & 0xc0 == 0x80) =>
            {
                rest = &rest[4..];
            }
            _ => return true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_encoding_needs_two_digits() {
        for value in ["", "a", "%41", "a%fF%00", "%%41"] {
            assert_eq!(invalid_url_encoding(value.as_bytes()), value == "%%41", "{value}");
        }
        for value in ["%", "%4", "%zz", "%41%", "%4g", "%u0041"] {
            assert!(invalid_url_encoding(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn utf8_without_broken_overlong_and_surrogate_sequences() {
        for value in
            [&b""[..], b"a\0", "aé€😀".as_bytes(), b"\xf4\x90\x80\x80", b"\xf4\x8f\xbf\xbf"]
        {
            assert!(!invalid_utf8(value), "{}", value.escape_ascii());
        }
        for value in [
            &b"\xc3"[..],
            b"\xc3a",
            b"\xed\xa0\x80",
            b"\xc0\x80",
            b"\xe0\x80\x80",
            b"\xff",
            b"\xf5\x80\x80\x80",
            b"\xf4\x90\x80",
        ] {
            assert!(invalid_utf8(value), "{}", value.escape_ascii());
        }
    }

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
