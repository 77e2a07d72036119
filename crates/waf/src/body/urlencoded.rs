//! Arguments of query strings and of `application/x-www-form-urlencoded` bodies.

use memchr::{memchr, memchr_iter, memchr2};

use crate::operator::encoding::invalid_url_encoding;
use crate::settings::BareArgument;
use crate::transformation::url;

/// Calls `visit` with the decoded name and value of each argument until it returns false. Returns true if all escapes were valid;
/// an invalid one is a percent sign without two hexadecimal digits behind it (`URLENCODED_ERROR`).
///
/// As in libmodsecurity, an argument ends at `separator`, a name at its first `=`; `a&&b` has an
/// argument with the empty name, but a separator at the end is followed by none; invalid escapes are
/// kept. `scratch` is overwritten.
pub(crate) fn parse(
    input: &[u8],
    separator: u8,
    bare: BareArgument,
    scratch: &mut [Vec<u8>; 2],
    mut visit: impl FnMut(&[u8], &[u8]) -> bool,
) -> bool {
    let mut invalid = false;
    let mut start = 0;
    let [name_buffer, value_buffer] = scratch;
    for end in memchr_iter(separator, input)
        .chain((input.last() != Some(&separator)).then_some(input.len()))
    {
        if end == input.len() && start == end {
            break;
        }
        let argument = &input[start..end];
        start = end + 1;
        let (name, value) = match memchr(b'=', argument) {
            Some(equals) => (&argument[..equals], &argument[equals + 1..]),
            None if bare == BareArgument::Value => (&[][..], argument),
            None => (argument, &[][..]),
        };
        let name = decode(name, name_buffer, &mut invalid);
        let value = decode(value, value_buffer, &mut invalid);
        if !visit(name, value) {
            break;
        }
    }
    !invalid
}

fn decode<'a>(input: &'a [u8], buffer: &'a mut Vec<u8>, invalid: &mut bool) -> &'a [u8] {
    if memchr2(b'%', b'+', input).is_none() {
        return input;
    }
    *invalid |= invalid_url_encoding(input);
    buffer.clear();
    url(input, buffer);
    buffer
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::transformation::{Transformation, UnicodeMap};

    fn arguments(input: &[u8]) -> (String, bool) {
        let mut text = String::new();
        let is_valid =
            parse(input, b'&', BareArgument::Name, &mut Default::default(), |name, value| {
                text.push_str(&format!("[{}|{}]", name.escape_ascii(), value.escape_ascii()));
                true
            });
        (text, !is_valid)
    }

    #[test]
    fn splits_and_decodes_as_modsecurity_does() {
        for (input, expected, invalid) in [
            ("x=1&y=2%zz&&z&=e&x=%41+b&", "[x|1][y|2%zz][|][z|][|e][x|A b]", true),
            ("", "", false),
            ("&", "[|]", false),
            ("&&", "[|][|]", false),
            ("&a", "[|][a|]", false),
            ("a", "[a|]", false),
            ("a=", "[a|]", false),
            ("=", "[|]", false),
            ("a==b=c&%3d=1&a%26b=c", "[a|=b=c][=|1][a&b|c]", false),
            ("a%4=%41", "[a%4|A]", true),
            ("a=%", "[a|%]", true),
            ("+=%00", "[ |\\x00]", false),
        ] {
            assert_eq!(arguments(input.as_bytes()), (expected.to_owned(), invalid), "{input}");
        }
    }

    #[test]
    fn bare_arguments_can_be_values() {
        let mut found = Vec::new();
        parse(b"a&%62=c&&=", b'&', BareArgument::Value, &mut Default::default(), |name, value| {
            found.push((name.to_vec(), value.to_vec()));
            true
        });
        let pairs = [("", "a"), ("b", "c"), ("", ""), ("", "")];
        assert_eq!(found, pairs.map(|(name, value)| (name.into(), value.into())));
    }

    #[test]
    fn stops_where_the_visitor_wants() {
        let mut count = 0;
        parse(b"a&b&c", b'&', BareArgument::Name, &mut Default::default(), |_, _| {
            count += 1;
            count < 2
        });
        assert_eq!(count, 2);
        parse(b"a;b&c", b';', BareArgument::Name, &mut Default::default(), |_, _| {
            count += 1;
            true
        });
        assert_eq!(count, 4);
    }

    proptest! {
        #[test]
        fn encoded_arguments_come_back(pairs in prop::collection::vec((any::<Vec<u8>>(), any::<Vec<u8>>()), 0..8)) {
            let mut input = Vec::new();
            let mut buffer = Vec::new();
            for (name, value) in &pairs {
                for (part, end) in [(name, b'='), (value, b'&')] {
                    let changed = Transformation::UrlEncode.apply(part, &mut buffer, &UnicodeMap::default());
                    input.extend_from_slice(if changed { &buffer } else { part });
                    input.push(end);
                }
            }
            let mut parsed = Vec::new();
            parse(&input, b'&', BareArgument::Name, &mut Default::default(), |name, value| {
                parsed.push((name.to_vec(), value.to_vec()));
                true
            });
            prop_assert_eq!(parsed, pairs);
        }
    }
}
