//! Request targets and cookies.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr, memchr_iter, memchr2, memmem, memrchr2};

use crate::transformation::{hex_pair, is_space};

/// Parts of a request target, as ModSecurity names them. A fragment (from `#` on) is not a part of the
/// target.
///
/// The path ends at the first `?` of the target as it was sent, as in libmodsecurity 3.0.12 and
/// later. (3.0.9 decodes first, so that `%3f` hides the rest of the path from `REQUEST_FILENAME`:
/// CVE-2024-1019.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    /// The whole target after one URL decoding in which `+` stays.
    decoded: Cow<'a, [u8]>,
    filename_end: usize,
    basename: Range<usize>,
    uri_start: usize,
    /// `QUERY_STRING`: the bytes after the first `?` as they were sent, empty without one.
    pub(crate) query: &'a [u8],
}

impl<'a> Target<'a> {
    /// Splits a request target: `/a/b%2Ephp?x=1`, `http://host/a`, `*`.
    pub(crate) fn parse(target: &'a [u8]) -> Self {
        let target = &target[..memchr(b'#', target).unwrap_or(target.len())];
        let query_mark = memchr(b'?', target);
        let decoded = decode(target);
        // No escape reaches beyond `?`: the decoded path is the start of the decoded target.
        let filename_end = query_mark.map_or(decoded.len(), |end| decoded_len(&target[..end]));
        let after_slash = memrchr2(b'/', b'\\', &decoded[..filename_end]).map(|slash| slash + 1);
        let basename = after_slash.map_or(0..0, |start| start..filename_end);
        Self {
            filename_end,
            basename,
            uri_start: uri_start(&decoded),
            decoded,
            query: query_mark.map_or(&[][..], |mark| &target[mark + 1..]),
        }
    }

    /// `REQUEST_FILENAME`: the decoded path, with scheme and host if the target has them.
    pub(crate) fn filename(&self) -> &[u8] {
        &self.decoded[..self.filename_end]
    }

    /// `REQUEST_BASENAME`: the part after the last slash or backslash of the path; empty if there is
    /// none.
    pub(crate) fn basename(&self) -> &[u8] {
        &self.decoded[self.basename.clone()]
    }

    /// `REQUEST_URI`: decoded path and query, without scheme and host.
    pub(crate) fn uri(&self) -> &[u8] {
        &self.decoded[self.uri_start..]
    }
}

/// Position of the path in a decoded target of the form `scheme://host/path`, 0 in others. A host
/// without a path is kept. (libmodsecurity takes any bytes for a scheme, so that a link in the query hides what is before it.)
fn uri_start(decoded: &[u8]) -> usize {
    if decoded.first() == Some(&b'/') {
        return 0;
    }
    let host = memchr(b':', decoded)
        .filter(|colon| decoded[colon + 1..].starts_with(b"//"))
        .filter(|colon| decoded[..*colon].iter().all(is_of_scheme))
        .map(|colon| colon + 3);
    host.and_then(|host| Some(host + memmem::find(&decoded[host..], b"/")?)).unwrap_or(0)
}

fn is_of_scheme(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+-.".contains(byte)
}

/// Decodes `%41`. Invalid escapes and `+` are kept.
fn decode(target: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr(b'%', target) else { return Cow::Borrowed(target) };
    let mut decoded = target[..first].to_vec();
    let mut rest = &target[first..];
    while let [byte, tail @ ..] = rest {
        let escaped = if *byte == b'%' { hex_byte(tail) } else { None };
        decoded.push(escaped.unwrap_or(*byte));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    Cow::Owned(decoded)
}

fn decoded_len(target: &[u8]) -> usize {
    let escapes =
        memchr_iter(b'%', target).filter(|at| hex_byte(&target[at + 1..]).is_some()).count();
    target.len() - 2 * escapes
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    match digits {
        [high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            Some(hex_pair(*high, *low))
        }
        _ => None,
    }
}

/// Calls `visit` with name and value of each cookie of one header.
///
/// As in libmodsecurity, cookies end at `;` even within quotes, spaces are removed before a name
/// and at the end of the last cookie only, and a name may lack a value. Nothing is decoded. A value without a name is one: some
/// frameworks read it. (libmodsecurity leaves it out.)
pub(crate) fn cookies(header: &[u8], mut visit: impl FnMut(&[u8], &[u8])) {
    let header = header.strip_suffix(b";").unwrap_or(header);
    let end = header.iter().rposition(|byte| !is_space(*byte)).map_or(0, |last| last + 1);
    let header = &header[..end];
    let mut start = 0;
    for end in memchr_iter(b';', header).chain([header.len()]) {
        let cookie = &header[start..end];
        start = end + 1;
        let (name, value) = match memchr(b'=', cookie) {
            Some(equals) => (&cookie[..equals], &cookie[equals + 1..]),
            None => (cookie, &[][..]),
        };
        let first = name.iter().position(|byte| !is_space(*byte)).unwrap_or(name.len());
        if first < name.len() || !value.is_empty() {
            visit(&name[first..], value);
        }
    }
}

/// Calls `visit` with name and value of each cookie in quotes whose value is another one without them (RFC 2109, as Python's
/// `http.cookies` and older servers of Java read it): it has a semicolon, or escapes, which may be octal.
pub(crate) fn quoted_cookies(header: &[u8], mut visit: impl FnMut(&[u8], &[u8])) {
    let mut rest = header;
    while let Some(equals) = memmem::find(rest, b"=\"") {
        let (before, quoted) = (&rest[..equals], &rest[equals + 2..]);
        rest = quoted;
        let mut value = Vec::new();
        let mut tail = quoted;
        loop {
            tail = match tail {
                [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                    value.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                    tail
                }
                [] | [b'"', ..] => break,
                [b'\\', byte, tail @ ..] | [byte, tail @ ..] => {
                    value.push(*byte);
                    tail
                }
            };
        }
        let text = &quoted[..quoted.len() - tail.len()];
        if !tail.is_empty() && memchr2(b'\\', b';', text).is_some() {
            let start = memrchr2(b';', b',', before).map_or(0, |end| end + 1);
            visit(before[start..].trim_ascii(), &value);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn splits_a_target_as_modsecurity_does() {
        // target, filename, basename, uri, query
        for [target, filename, basename, uri, query] in [
            ["/a/b.php?x=1&y", "/a/b.php", "b.php", "/a/b.php?x=1&y", "x=1&y"],
            ["/a/?%41+", "/a/", "", "/a/?A+", "%41+"],
            ["/", "/", "", "/", ""],
            ["/?", "/", "", "/?", ""],
            ["", "", "", "", ""],
            ["*", "*", "", "*", ""],
            ["http://h.com/p/q?a=b", "http://h.com/p/q", "q", "/p/q?a=b", "a=b"],
            ["http://h.com", "http://h.com", "h.com", "http://h.com", ""],
            ["http:/x", "http:/x", "x", "http:/x", ""],
            ["http:%2f/h/p?a", "http://h/p", "p", "/p?a", "a"],
            ["http://h?x/y", "http://h", "h", "/y", "x/y"],
            ["a:b://c/d", "a:b://c/d", "d", "a:b://c/d", ""],
            ["//h/p", "//h/p", "p", "//h/p", ""],
            ["x:y//z/w?1", "x:y//z/w", "w", "x:y//z/w?1", "1"],
            ["/a\\b%5cc", "/a\\b\\c", "c", "/a\\b\\c", ""],
            ["/a%23b?c", "/a#b", "a#b", "/a#b?c", "c"],
            ["/a?b#c", "/a", "a", "/a?b", "b"],
            ["/a#b?c", "/a", "a", "/a", ""],
            ["/%4?%zz%", "/%4", "%4", "/%4?%zz%", "%zz%"],
            ["?a=b", "", "", "?a=b", "a=b"],
            // Other than libmodsecurity 3.0.9, which gives the URI `/p`, and below the filename `/a`.
            ["\\a?b=http://h/p", "\\a", "a", "\\a?b=http://h/p", "b=http://h/p"],
            ["/a%3fb/c?d", "/a?b/c", "c", "/a?b/c?d", "d"],
        ] {
            let parsed = Target::parse(target.as_bytes());
            let parts = [parsed.filename(), parsed.basename(), parsed.uri(), parsed.query];
            let parts = parts.map(|part| part.escape_ascii().to_string());
            let expected = [filename, basename, uri, query]
                .map(|part| part.as_bytes().escape_ascii().to_string());
            assert_eq!(parts, expected, "{target}");
        }
    }

    #[test]
    fn splits_cookies_as_modsecurity_does() {
        for (header, expected) in [
            ("a=b; c=d", "[a|b][c|d]"),
            ("a=b;c", "[a|b][c|]"),
            (";;a=1", "[a|1]"),
            // Other than libmodsecurity.
            ("=x; a=1", "[|x][a|1]"),
            ("= ; a=1;=", "[| ][a|1]"),
            (" a = b ; c=d ", "[a | b ][c|d]"),
            ("a=b=c", "[a|b=c]"),
            ("a=\"x;y\"", "[a|\"x][y\"|]"),
            ("", ""),
            (" ; ", ""),
            ("a=%41+", "[a|%41+]"),
            ("a=1; a=2", "[a|1][a|2]"),
            ("\t a=b;\t ", "[a|b]"),
        ] {
            let mut found = String::new();
            cookies(header.as_bytes(), |name, value| {
                found.push_str(
                    &format!("[{}|{}]", name.escape_ascii(), value.escape_ascii())
                        .replace("\\\"", "\""),
                );
            });
            assert_eq!(found, expected, "{header}");
        }
    }

    #[test]
    fn quoted_cookies_are_read_without_their_quotes() {
        for (header, expected) in [
            ("a=\"b\"; c=d", ""),
            ("$Version=1; a=\"x;y\"; b=\"\\\"\"", "[a|x;y][b|\"]"),
            ("a=\"1\\047 or \\0471\\477\"", "[a|1' or '1477]"),
            ("a=\"x; b=\"y\\z\"", "[a|x; b=][b|yz]"),
            ("a=\"\\", ""),
            ("a=\"\\074", ""),
        ] {
            let mut found = String::new();
            quoted_cookies(header.as_bytes(), |name, value| {
                let [name, value] = [name, value].map(String::from_utf8_lossy);
                found.push_str(&format!("[{name}|{value}]"));
            });
            assert_eq!(found, expected, "{header}");
        }
    }

    proptest! {
        #[test]
        fn parts_of_any_target_stay_in_bounds(target in "[a/:%?#25f\\\\\\PC]{0,20}") {
            let parsed = Target::parse(target.as_bytes());
            prop_assert!(parsed.filename().ends_with(parsed.basename()));
            prop_assert!(parsed.decoded.ends_with(parsed.uri()));
        }
    }
}
