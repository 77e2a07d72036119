//! Best fit of Unicode characters to single bytes, which `t:urlDecodeUni` gives for `%uXXXX`.

use std::borrow::Cow;

/// Characters and the bytes that a code page puts in their place, as runs of consecutive codes. A zero byte stands for a
/// character that has none.
type Run = (u16, Cow<'static, [u8]>);

/// Best fit of characters to bytes (`SecUnicodeMapFile`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnicodeMap {
    /// Disjoint, in ascending order.
    runs: Vec<Run>,
}

/// Best fit of Windows for code page 20127 (US-ASCII), and for 1252 where that has none: servers that convert to either
/// read U+2039 as `<` and U+02BC as an apostrophe.
const ASCII: &[(u16, &[u8])] = &[
    (0x00a0, b" !c\0$Y|\0\0Ca<\0-R"),
    (0x00b2, b"23\0\0\0.,1o>\0\0\0\0AAAAAAACEEEEIIIIDNOOOOO\0OUUUUY\0\0aaaaaaaceeeeiiii\0nooooo\0ouuuuy\0yAaAaAaCcCcCcCcDdDdEeEeEeEeEeGgGgGgGgHhHhIiIiIiIiIi\0\0JjKk\0LlLlLl\0\0LlNnNnNn\0\0\0OoOoOoOoRrRrRrSsSsSsSsTtTtTtUuUuUuUuUuUuWwYyYZ\0ZzZz\0b"),
    (0x0189, b"D"),
    (0x0191, b"Ff\0\0\0\0I\0\0l\0\0\0\0OOo"),
    (0x01ab, b"t\0\0TUu\0\0\0\0\0z"),
    (0x01c0, b"|\0\0!"),
    (0x01cd, b"AaIiOoUuUuUuUuUu\0Aa\0\0\0\0GgGgKkOoOo\0\0j"),
    (0x0261, b"g"),
    (0x02b9, b"'\"\0'"),
    (0x02c4, b"^\0^\0'\0\0`\0_"),
    (0x02dc, b"~"),
    (0x0300, b"`\0^~"),
    (0x030e, b"\""),
    (0x0331, b"__"),
    (0x037e, b";"),
    (0x0393, b"G\0\0\0\0T"),
    (0x03a3, b"S\0\0F\0\0O"),
    (0x03b1, b"a\0\0de"),
    (0x03c0, b"p\0\0st\0f"),
    (0x04bb, b"h"),
    (0x0589, b":"),
    (0x066a, b"%"),
    (0x2000, b"       "),
    (0x2010, b"--\0--\0\0='',\0\"\"\"\0\0\0.\0\0\0."),
    (0x2032, b"'\0\0`\0\0\0<>"),
    (0x2044, b"/"),
    (0x2070, b"0"),
    (0x2074, b"456789\0\0\0\0\0n0123456789"),
    (0x20a7, b"P"),
    (0x2102, b"C\0\0\0\0E\0\0gHHHh\0IILl\0N\0\0PPQRRR\0\0\0\0T\0Z\0\0\0Z\0K\0BCeeEF\0Mo"),
    (0x2212, b"-\0\0/\\*\0\0v\0\0\08\0\0\0\0|\0\0\0\0\0n"),
    (0x2236, b":\0\0\0\0\0~"),
    (0x2261, b"=\0\0=="),
    (0x2303, b"^"),
    (0x2320, b"()"),
    (0x2329, b"<>"),
    (0x2758, b"|"),
    (0x3000, b" "),
    (0x3008, b"<>"),
    (0x301a, b"[]"),
    (0xff01, b"!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"),
];

impl Default for UnicodeMap {
    fn default() -> Self {
        Self { runs: ASCII.iter().map(|&(first, bytes)| (first, Cow::Borrowed(bytes))).collect() }
    }
}

impl UnicodeMap {
    /// Reads the map of one code page from a file in the format of ModSecurity's `unicode.mapping`: the number of a page on
    /// a line of its own, followed by pairs such as `02bc:27`.
    pub(crate) fn parse(text: &str, page: usize) -> Result<Self, String> {
        let mut section = text.lines().skip_while(|line| page_of(line) != Some(page));
        if section.next().is_none() {
            return Err(format!("no code page {page}"));
        }
        let mut runs: Vec<Run> = Vec::new();
        let mut pairs = Vec::new();
        for pair in section
            .take_while(|line| page_of(line).is_none() && !line.trim_start().starts_with('('))
            .flat_map(str::split_whitespace)
        {
            let numbers = pair.split_once(':').and_then(|(code, byte)| {
                Some((u16::from_str_radix(code, 16).ok()?, u8::from_str_radix(byte, 16).ok()?))
            });
            pairs.push(numbers.ok_or_else(|| format!("\"{pair}\" is no pair such as 02bc:27"))?);
        }
        if pairs.is_empty() {
            return Err(format!("code page {page} is empty"));
        }
        pairs.sort_unstable();
        for (code, byte) in pairs {
            match runs.last_mut() {
                Some((first, bytes)) if usize::from(code - *first) == bytes.len() => {
                    bytes.to_mut().push(byte);
                }
                _ => runs.push((code, Cow::Owned(vec![byte]))),
            }
        }
        Ok(Self { runs })
    }

    /// The byte in place of a character: that of the map, or the lower byte of its code, or ASCII for a full-width form.
    pub(super) fn byte(&self, code: u16) -> u8 {
        let run = self.runs.partition_point(|(first, _)| *first <= code).checked_sub(1);
        let fit = run.and_then(|run| {
            let (first, bytes) = &self.runs[run];
            bytes.get(usize::from(code - first)).copied().filter(|byte| *byte != 0)
        });
        fit.unwrap_or_else(|| low_byte(code.into()))
    }
}

/// The lower byte of a code, or ASCII for the full-width forms U+FF01 to U+FF5E.
pub(super) fn low_byte(code: u32) -> u8 {
    let byte = code as u8;
    if matches!(code, 0xff01..=0xff5e) { byte + 0x20 } else { byte }
}

/// Number of the code page that a line begins.
fn page_of(line: &str) -> Option<usize> {
    let word = line.split_whitespace().next()?;
    word.parse().ok().filter(|_| !line.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_punctuation_and_letters_to_ascii() {
        let map = UnicodeMap::default();
        for (character, byte) in [
            ('\u{2039}', b'<'),
            ('\u{203a}', b'>'),
            ('\u{2bc}', b'\''),
            ('\u{2018}', b'\''),
            ('\u{201d}', b'"'),
            ('\u{161}', b's'),
            ('\u{ff1c}', b'<'),
            ('\u{2215}', b'/'),
            ('\u{3008}', b'<'),
            // Neither page has these.
            ('A', b'A'),
            ('\u{4e3c}', b'<'),
            ('\u{a8}', 0xa8),
        ] {
            assert_eq!(map.byte(character as u16), byte, "{character}");
        }
        assert!(
            map.runs
                .windows(2)
                .all(|two| { usize::from(two[0].0) + two[0].1.len() <= usize::from(two[1].0) })
        );
    }

    #[test]
    fn reads_a_page_of_a_file() {
        let text = "(MAC - Roman)\n\n\n1250  (ANSI)\n00a1:21 \n\n20127  (US-ASCII)\n2039:3c 02bc:27 02bd:28\n\n\n(UTF-7)\n";
        let map = UnicodeMap::parse(text, 20127).unwrap();
        assert_eq!([0x2039, 0x2bc, 0x2bd, 0xa1].map(|code| map.byte(code)), *b"<'(\xa1");
        assert_eq!(UnicodeMap::parse(text, 1251).unwrap_err(), "no code page 1251");
        assert!(UnicodeMap::parse("1 x\nabc", 1).unwrap_err().contains("\"abc\""));
    }
}
