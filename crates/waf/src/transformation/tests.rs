use proptest::prelude::*;

use super::{Transformation, UnicodeMap};

fn apply(name: &str, input: &[u8]) -> Vec<u8> {
    let transformation =
        Transformation::parse(name).unwrap_or_else(|| panic!("unknown transformation `{name}`"));
    let mut output = b"stale".to_vec();
    if transformation.apply(input, &mut output, &UnicodeMap::default()) {
        output
    } else {
        input.to_vec()
    }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// True if the transformation documents why libmodsecurity 3.0.9 gives another result, which mostly hides bytes.
fn is_known_difference(name: &str, input: &[u8], ours: &[u8], theirs: &[u8]) -> bool {
    let has = |bytes: &[u8]| input.iter().any(|byte| bytes.contains(byte));
    let contains = |text: &[u8]| memchr::memmem::find(input, text).is_some();
    let mut rest = ours.iter();
    let hides = theirs.len() < ours.len() && theirs.iter().all(|byte| rest.any(|it| it == byte));
    match name {
        "base64Decode" | "sqlHexDecode" | "utf8toUnicode" => hides,
        "base64DecodeExt" => has(b"-_=9"),
        "cssDecode" => hides || !ours.is_ascii(),
        "removeComments" => contains(b"*/") || contains(b"-->"),
        "normalizePath" => contains(b"..") || input == b"/.",
        "normalizePathWin" => contains(b"..") || has(b"\\"),
        "urlDecodeUni" => contains(b"%u"),
        _ => false,
    }
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
        if output != expected && !is_known_difference(name, &input, &output, &expected) {
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
        ("base64Decode", b"YWJjZGU", b"abcde"),
        ("base64Decode", b"PHNj\r\ncmlwd", b"<scrip"),
        ("base64Decode", b"YWJj!Jj", b"abc"),
        ("base64DecodeExt", b"Y!WJj", b"abc"),
        ("base64DecodeExt", b"P-_-", b"?\xef\xfe"),
        ("base64DecodeExt", b"Y=WJj=ZA", b"abcd"),
        ("base64Encode", b"ab", b"YWI="),
        ("cmdLine", b"C^md  /C \"dir\"", b"cmd/c dir"),
        ("compressWhitespace", b"a \t b", b"a b"),
        ("cssDecode", b"ja\\vas\\63 ript", b"javascript"),
        ("cssDecode", b"\\0 <b\0>", b"\0<b\0>"),
        ("cssDecode", b"a\\\r\nb\\\x0cc\\ff1c\\20ac \\d800", b"abc<\xe2\x82\xac\xef\xbf\xbd"),
        ("escapeSeqDecode", b"\\x41\\n", b"A\n"),
        ("hexDecode", b"4142", b"AB"),
        ("hexEncode", b"AB", b"4142"),
        ("htmlEntityDecode", b"&lt;b&#62", b"<b>"),
        ("htmlEntityDecode", b"a&colon;b&lpar;1&rpar;&Tab;&colon", b"a:b(1)\t&colon"),
        ("jsDecode", b"\\u0061\\x62\\143", b"abc"),
        ("jsDecode", b"\\uff41", b"a"),
        ("jsDecode", b"\\u{3c}\\u{00000000003c}\\u{ff41}\\u{}\\u{110000}", b"<<au{}u{110000}"),
        ("length", b"abc", b"3"),
        ("lowercase", b"SELECT", b"select"),
        ("md5", b"", b"\xd4\x1d\x8c\xd9\x8f\x00\xb2\x04\xe9\x80\x09\x98\xec\xf8\x42\x7e"),
        ("normalisePath", b"/a/./b//../c", b"/a/c"),
        ("normalizePathWin", b"\\a\\..\\b", b"/b"),
        ("normalizePath", b"/etc/passwd;x..", b"/etc/passwd;x.."),
        ("normalizePath", b"/../a/../../b/.", b"/b"),
        ("normalizePath", b"a/../../../b//", b"../../b/"),
        ("normalizePath", b"./..", b".."),
        ("normalizePathWin", b"/a\\\\/b\\", b"/a/b/"),
        ("parityEven7bit", b"a", b"\xe1"),
        ("removeComments", b"a/* */b#c", b"ab"),
        ("removeComments", b"a/**//**/b/**/", b"ab"),
        ("removeComments", b"a<!-- */b/*c", b"ab "),
        ("removeCommentsChar", b"a/*b*/c--d", b"abcd"),
        ("removeNulls", b"a\0b", b"ab"),
        ("removeWhitespace", b"a b", b"ab"),
        ("replaceComments", b"a/*x*/b", b"a b"),
        ("replaceNulls", b"a\0b", b"a b"),
        ("sqlHexDecode", b"0x4142", b"AB"),
        ("sqlHexDecode", b"abc", b"abc"),
        ("sqlHexDecode", b"a=0x00414g0x 0X4z\0b", b"a=\0A4g0x 0X4z\0b"),
        ("trim", b" a b\t", b"a b"),
        ("trimLeft", b" a ", b"a "),
        ("trimRight", b" a ", b" a"),
        ("uppercase", b"select", b"SELECT"),
        ("urlDecode", b"a%20b+c%zz", b"a b c%zz"),
        ("urlDecodeUni", b"%u0041%uff41%u00%u2039%u02bc%u4e3c", b"Aa%u00<'<"),
        ("urlEncode", b"a b=c", b"a+b%3dc"),
        ("utf8toUnicode", "é€".as_bytes(), b"%u00e9%u20ac"),
        ("utf8toUnicode", b"a\0\xe9b\xe2\x82", b"a\0\xe9b\xe2\x82"),
    ] {
        assert_eq!(
            apply(name, input).escape_ascii().to_string(),
            expected.escape_ascii().to_string(),
            "{name}"
        );
    }
}

#[test]
fn decimals() {
    assert_eq!(super::decimal(0, &mut [0; 20]), b"0");
    assert_eq!(super::decimal(u64::MAX, &mut [0; 20]), b"18446744073709551615");
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
fn telling_bytes() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        any::<u8>().prop_map(|byte| vec![byte]),
        prop::sample::select(b"%+&#;xXuU\\/*-<>!.0123456789abcdefABCDEF \t\n\r\0'\"^,(=".to_vec())
            .prop_map(|b| vec![b]),
        prop::sample::select(vec![
            "%u00", "&#x", "&lt", "\\u00", "..", "/./", "0x", "--", "/*", "*/", "\u{e9}",
            "\\u{3c}", "&colon;"
        ])
        .prop_map(|s| s.as_bytes().to_vec()),
    ];
    prop::collection::vec(token, 0..24).prop_map(|tokens| tokens.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60_000))]

    #[test]
    fn table_is_true_of_any_value(
        mut value in telling_bytes(),
        transformation in prop::sample::select(Transformation::ALL),
        without_escapes in any::<bool>(),
    ) {
        if let (true, Some(set)) = (without_escapes, transformation.facts().decodes) {
            value.retain(|&byte| !super::contains(&set, byte));
        }
        transformation.check(&value, &UnicodeMap::default());
    }
}

proptest! {
    #[test]
    fn inverse_pairs_restore_any_value(input in prop::collection::vec(any::<u8>(), 0..64)) {
        for (encode, decode) in [("hexEncode", "hexDecode"), ("base64Encode", "base64Decode"), ("urlEncode", "urlDecode")] {
            prop_assert_eq!(apply(decode, &apply(encode, &input)), input.clone(), "{}", encode);
        }
    }
}
