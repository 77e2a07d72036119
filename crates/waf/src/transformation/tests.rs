use proptest::prelude::*;

use super::Transformation;

fn apply(name: &str, input: &[u8]) -> Vec<u8> {
    let transformation =
        Transformation::parse(name).unwrap_or_else(|| panic!("unknown transformation `{name}`"));
    let mut output = b"stale".to_vec();
    if transformation.apply(input, &mut output) { output } else { input.to_vec() }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// Compares with outputs of libmodsecurity 3.0.9 that `tests/oracle/generate.py` recorded: the name,
/// the input and the output in hexadecimal. `WAF_TRANSFORMATION_CASES` names a further file.
#[test]
fn equals_recorded_output_of_libmodsecurity() {
    let mut text = include_str!("../../tests/oracle/transformations.tsv").to_owned();
    if let Ok(path) = std::env::var("WAF_TRANSFORMATION_CASES") {
        text.push_str(&std::fs::read_to_string(path).unwrap());
    }
    let mut compared = 0;
    let mut different = Vec::new();
    for line in text.lines() {
        let mut columns = line.split('\t');
        let mut column = || columns.next().unwrap_or_else(|| panic!("incomplete line `{line}`"));
        let (name, input, expected) = (column(), unhex(column()), unhex(column()));
        let output = apply(name, &input);
        if output != expected {
            different.push(format!(
                "{name}(\"{}\") = \"{}\", expected \"{}\"",
                input.escape_ascii(),
                output.escape_ascii(),
                expected.escape_ascii()
            ));
        }
        compared += 1;
    }
    assert!(compared > 1_000, "only {compared} cases");
    assert!(
        different.is_empty(),
        "{} of {compared}:\n{}",
        different.len(),
        different[..different.len().min(40)].join("\n")
    );
}

#[test]
fn documented_examples() {
    for (name, input, expected) in [
        ("base64Decode", &b"YWJj"[..], &b"abc"[..]),
        ("base64Decode", b"YWJjZ", b"abc"),
        ("base64Decode", b"YW!Jj", b""),
        ("base64DecodeExt", b"Y!W-Jj", b"abc"),
        ("base64Encode", b"ab", b"YWI="),
        ("cmdLine", b"C^md  /C \"dir\"", b"cmd/c dir"),
        ("compressWhitespace", b"a \t b", b"a b"),
        ("cssDecode", b"ja\\vas\\63 ript", b"javascript"),
        ("escapeSeqDecode", b"\\x41\\n", b"A\n"),
        ("hexDecode", b"4142", b"AB"),
        ("hexEncode", b"AB", b"4142"),
        ("htmlEntityDecode", b"&lt;b&#62", b"<b>"),
        ("jsDecode", b"\\u0061\\x62\\143", b"abc"),
        ("jsDecode", b"\\uff41", b"a"),
        ("length", b"abc", b"3"),
        ("lowercase", b"SELECT", b"select"),
        ("md5", b"", b"\xd4\x1d\x8c\xd9\x8f\x00\xb2\x04\xe9\x80\x09\x98\xec\xf8\x42\x7e"),
        ("normalisePath", b"/a/./b//../c", b"/a/c"),
        ("normalizePathWin", b"\\a\\..\\b", b"/b"),
        ("parityEven7bit", b"a", b"\xe1"),
        ("removeComments", b"a/* */b#c", b"ab"),
        ("removeCommentsChar", b"a/*b*/c--d", b"abcd"),
        ("removeNulls", b"a\0b", b"ab"),
        ("removeWhitespace", b"a b", b"ab"),
        ("replaceComments", b"a/*x*/b", b"a b"),
        ("replaceNulls", b"a\0b", b"a b"),
        ("sqlHexDecode", b"0x4142", b"AB"),
        ("sqlHexDecode", b"abc", b"ab"),
        ("trim", b" a b\t", b"a b"),
        ("trimLeft", b" a ", b"a "),
        ("trimRight", b" a ", b" a"),
        ("uppercase", b"select", b"SELECT"),
        ("urlDecode", b"a%20b+c%zz", b"a b c%zz"),
        ("urlDecodeUni", b"%u0041%uff41%u00", b"Aa%u00"),
        ("urlEncode", b"a b=c", b"a+b%3dc"),
        ("utf8toUnicode", "é€".as_bytes(), b"%u00e9%u20ac"),
    ] {
        assert_eq!(
            apply(name, input).escape_ascii().to_string(),
            expected.escape_ascii().to_string(),
            "{name}"
        );
    }
}

#[test]
fn names_are_distinct_ignoring_case() {
    let names: std::collections::BTreeSet<_> =
        Transformation::ALL.iter().map(|t| t.name().to_lowercase()).collect();
    assert_eq!(names.len(), Transformation::ALL.len());
    assert_eq!(Transformation::parse("NormalisePathWin"), Some(Transformation::NormalizePathWin));
    assert_eq!(Transformation::parse("none"), None);
}

/// Bytes that mean something to a transformation, more often than others.
pub(crate) fn telling_bytes() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        any::<u8>().prop_map(|byte| vec![byte]),
        prop::sample::select(b"%+&#;xXuU\\/*-<>!.0123456789abcdefABCDEF \t\n\r\0'\"^,(=".to_vec())
            .prop_map(|b| vec![b]),
        prop::sample::select(vec![
            "%u00", "&#x", "&lt", "\\u00", "..", "/./", "0x", "--", "/*", "*/", "\u{e9}"
        ])
        .prop_map(|s| s.as_bytes().to_vec()),
    ];
    prop::collection::vec(token, 0..24).prop_map(|tokens| tokens.concat())
}

proptest! {
    #[test]
    fn leaves_a_value_without_trigger_bytes_unchanged(mut input in telling_bytes()) {
        for transformation in Transformation::ALL {
            let Some(set) = transformation.trigger_bytes() else { continue };
            input.retain(|byte| set[usize::from(byte >> 6)] >> (byte & 63) & 1 == 0);
            let mut output = Vec::new();
            prop_assert!(!transformation.transform(&input, &mut output), "{}", transformation.name());
        }
    }

    #[test]
    fn a_short_look_leaves_no_value_that_changes(input in telling_bytes()) {
        for transformation in Transformation::ALL {
            let mut output = Vec::new();
            let changed = transformation.transform(&input, &mut output);
            prop_assert!(!changed || !transformation.leaves(&input), "{}", transformation.name());
        }
    }

    #[test]
    fn returns_whether_the_value_changed(input in telling_bytes()) {
        for transformation in Transformation::ALL {
            let mut output = b"stale".to_vec();
            let changed = transformation.apply(&input, &mut output);
            prop_assert!(!changed || output != input, "{}", transformation.name());
        }
    }

    #[test]
    fn inverse_pairs_restore_any_value(input in prop::collection::vec(any::<u8>(), 0..64)) {
        for (encode, decode) in [("hexEncode", "hexDecode"), ("base64Encode", "base64Decode"), ("urlEncode", "urlDecode")] {
            prop_assert_eq!(apply(decode, &apply(encode, &input)), input.clone(), "{}", encode);
        }
    }
}
