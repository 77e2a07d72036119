//! JSON with text of clients in it.

use std::io::{self, Write};

use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;
use tollgate_http1::escape_invalid;

/// Text that a client has sent, with [`escape_invalid`].
#[derive(Clone, Copy, Debug)]
pub struct ClientText<'a>(pub &'a [u8]);

impl Serialize for ClientText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&escape_invalid(self.0))
    }
}

/// Appends `value` in compact JSON: numbers of type `f64` with this many decimals, text without characters that mislead a
/// reader.
///
/// # Panics
///
/// `value` does not serialize, such as a map whose keys are no strings.
pub fn push_json(out: &mut Vec<u8>, decimals: usize, value: &impl Serialize) {
    let mut serializer = serde_json::Serializer::with_formatter(out, Plain { decimals });
    value.serialize(&mut serializer).expect("the value serializes, and a vector takes all bytes");
}

/// Returns `value` as [`push_json`] writes it.
pub fn to_json(decimals: usize, value: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::new();
    push_json(&mut out, decimals, value);
    out
}

struct Plain {
    decimals: usize,
}

impl Formatter for Plain {
    fn write_f64<W: Write + ?Sized>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        write!(out, "{value:.*}", self.decimals)
    }

    fn write_string_fragment<W: Write + ?Sized>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        if fragment.bytes().all(|byte| byte < DELETE) {
            return out.write_all(fragment.as_bytes());
        }
        let mut rest = fragment;
        while let Some(at) = rest.find(is_misleading) {
            let (plain, from) = rest.split_at(at);
            let mut characters = from.chars();
            let code = characters.next().map_or(0, u32::from);
            write!(out, "{plain}\\u{code:04x}")?;
            rest = characters.as_str();
        }
        out.write_all(rest.as_bytes())
    }
}

const DELETE: u8 = 0x7f;

/// DEL and the C1 controls, line and paragraph separators, bidirectional controls, and the byte order mark, which control a
/// terminal or the direction of text, or which some readers treat as line ends. All have at most 16 bits.
fn is_misleading(c: char) -> bool {
    matches!(c, '\u{7f}'..='\u{9f}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(text: &[u8]) -> String {
        String::from_utf8(to_json(0, &ClientText(text))).unwrap()
    }

    #[test]
    fn client_text_is_escaped() {
        assert_eq!(quoted(b"a \"b\" \\ \n \x01"), r#""a \"b\" \\ \n \u0001""#);
        assert_eq!(quoted("gr\u{fc}n".as_bytes()), "\"gr\u{fc}n\"");
        for c in "\u{7f}\u{80}\u{9f}\u{61c}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}\u{feff}".chars() {
            let text = format!("\u{fc}{c}\u{1f600}{c}");
            let code = u32::from(c);
            let expected = format!("\"\u{fc}\\u{code:04x}\u{1f600}\\u{code:04x}\"");
            assert_eq!(quoted(text.as_bytes()), expected);
            assert_eq!(serde_json::from_str::<String>(&expected).unwrap(), text);
        }
    }

    #[test]
    fn fractions_have_constant_decimals() {
        assert_eq!(to_json(3, &(1.02, 0.0, 7)), b"[1.020,0.000,7]");
        assert_eq!(to_json(6, &(12e-6, 2.5)), b"[0.000012,2.500000]");
    }
}
