//! Encodings of `validateUrlEncoding` and `validateUtf8Encoding`.

use memchr::memchr_iter;

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
}
