//! Messages as text, as logs have them: the bytes of a client need not be UTF-8.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns text with each byte that is not UTF-8 as `\xHH`. A backslash in front of what would be read as such a byte is
/// written so, too, and [`unescape_invalid`] returns the bytes.
pub fn escape_invalid(bytes: &[u8]) -> Cow<'_, str> {
    let is_plain = !(0..bytes.len()).any(|at| escaped_byte(&bytes[at..]).is_some());
    if is_plain && let Ok(text) = std::str::from_utf8(bytes) {
        return text.into();
    }
    let mut text = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(at) = rest.find('\\') {
            let (before, from) = rest.split_at(at);
            text.push_str(before);
            text.push_str(if escaped_byte(from.as_bytes()).is_some() { r"\x5C" } else { "\\" });
            rest = &from[1..];
        }
        text.push_str(rest);
        for byte in chunk.invalid() {
            write!(text, r"\x{byte:02X}").expect("a string takes all text");
        }
    }
    text.into()
}

/// Returns the bytes of a text from [`escape_invalid`].
pub fn unescape_invalid(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let (byte, after) = match escaped_byte(rest) {
            Some(byte) => (byte, &rest[4..]),
            None => (*first, tail),
        };
        bytes.push(byte);
        rest = after;
    }
    bytes
}

/// Returns the byte of `\xHH` at the start of a text, in the digits that [`escape_invalid`] writes.
fn escaped_byte(text: &[u8]) -> Option<u8> {
    let &[b'\\', b'x', high, low, ..] = text else { return None };
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    };
    Some(digit(high)? << 4 | digit(low)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_kept() {
        for (bytes, text) in [
            (&b"gr\xfcn"[..], r"gr\xFCn"),
            (b"\xc0\xaf", r"\xC0\xAF"),
            (b"\x9b2J", r"\x9B2J"),
            ("gr\u{fc}n".as_bytes(), "gr\u{fc}n"),
            (br"\x3c \xZZ C:\x", r"\x3c \xZZ C:\x"),
            (br"\xE9", r"\x5CxE9"),
            (b"\\\xe9", r"\\xE9"),
            (b"\\x\xe9", r"\x\xE9"),
            (br"\x5CxE9", r"\x5Cx5CxE9"),
        ] {
            assert_eq!(escape_invalid(bytes), text, "{}", bytes.escape_ascii());
            assert_eq!(unescape_invalid(text), bytes, "{text}");
        }
        // All texts of up to five of the bytes that matter.
        let bytes = b"\\x5CE\xe9\xc3";
        for number in 0..8_u32.pow(5) {
            let digits = (0..5).map(|place| number / 8_u32.pow(place) % 8);
            let sent: Vec<u8> =
                digits.filter_map(|digit| bytes.get(digit as usize).copied()).collect();
            assert_eq!(unescape_invalid(&escape_invalid(&sent)), sent, "{}", sent.escape_ascii());
        }
    }
}
