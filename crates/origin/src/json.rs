//! The little JSON that answers are made of.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// A text as a JSON string, quotes included. Bytes that are not UTF-8 are taken for Latin-1, so that
/// each can be told from the others.
pub(crate) fn string(bytes: &[u8]) -> String {
    let text: Cow<'_, str> = match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => bytes.iter().copied().map(char::from).collect::<String>().into(),
    };
    serde_json::to_string(&text).expect("a text is always JSON")
}

/// A time in seconds with exactly six decimals, so that answers are always of the same length; rounded up,
/// so that what took time never says that it took none.
pub(crate) struct Seconds(pub(crate) Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_nanos().div_ceil(1000);
        write!(f, "{}.{:06}", micros / 1_000_000, micros % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_and_seconds_have_six_decimals() {
        assert_eq!(string(b"a \"b\" \\ \n \x01"), r#""a \"b\" \\ \n \u0001""#);
        assert_eq!(string("gr\u{fc}n".as_bytes()), "\"gr\u{fc}n\"");
        assert_eq!(string(b"gr\xfcn"), "\"gr\u{fc}n\"");
        for (nanos, text) in [
            (0, "0.000000"),
            (1, "0.000001"),
            (1_000, "0.000001"),
            (12_000, "0.000012"),
            (12_001, "0.000013"),
            (999_999_500, "1.000000"),
            (60_000_000_001, "60.000001"),
        ] {
            assert_eq!(Seconds(Duration::from_nanos(nanos)).to_string(), text);
        }
    }
}
