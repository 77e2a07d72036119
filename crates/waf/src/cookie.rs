//! Cookie header.

use memchr::{memchr, memchr_iter};

use crate::transformation::is_space;

/// Calls `visit` with name and value of each cookie of one header.
///
/// As in libmodsecurity, cookies end at `;` even within quotes, spaces are removed before a name
/// and at the end of the last cookie only, a name may lack a value, and a cookie without a name is left
/// out. Nothing is decoded.
pub(crate) fn parse(header: &[u8], mut visit: impl FnMut(&[u8], &[u8])) {
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
        if let Some(first) = name.iter().position(|byte| !is_space(*byte)) {
            visit(&name[first..], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn splits_a_header_as_modsecurity_does() {
        for (header, expected) in [
            ("a=b; c=d", "[a|b][c|d]"),
            ("a=b;c", "[a|b][c|]"),
            (";;a=1", "[a|1]"),
            ("=x; a=1", "[a|1]"),
            (" a = b ; c=d ", "[a | b ][c|d]"),
            ("a=b=c", "[a|b=c]"),
            ("a=\"x;y\"", "[a|\"x][y\"|]"),
            ("", ""),
            (" ; ", ""),
            ("a=%41+", "[a|%41+]"),
            ("a=1; a=2", "[a|1][a|2]"),
            ("\t a=b;\t ", "[a|b]"),
        ] {
            let mut cookies = String::new();
            parse(header.as_bytes(), |name, value| {
                cookies.push_str(
                    &format!("[{}|{}]", name.escape_ascii(), value.escape_ascii())
                        .replace("\\\"", "\""),
                );
            });
            assert_eq!(cookies, expected, "{header}");
        }
    }
}
