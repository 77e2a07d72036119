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

/// A recorded result that differs from ours.
struct Case<'a> {
    input: &'a [u8],
    ours: &'a [u8],
    theirs: &'a [u8],
}

type Explains = fn(&Case<'_>) -> bool;

/// Differences of libmodsecurity 3.0.9: the transformation, the defect, and the cases that it explains. Each hides bytes from
/// rules, or shows them other bytes than a backend reads.
const DIFFERENCES: [(&str, &str, Explains); 15] = [
    ("base64Decode", "makes nothing of a value with a foreign byte or odd padding", |case| {
        case.theirs.is_empty() && case.input.iter().any(|&byte| !is_base64(byte))
    }),
    (
        "base64Decode",
        "drops the last group if it is incomplete, and what follows a zero byte",
        |case| {
            let mut digits = until_null(case.input).to_vec();
            digits.retain(|byte| !b"\r\n ".contains(byte));
            digits.truncate(digits.len() / 4 * 4);
            digits.iter().all(|&byte| is_base64(byte))
                && apply("base64Decode", &digits) == case.theirs
        },
    ),
    ("base64DecodeExt", "skips the digits - and _ of the URL alphabet", |case| {
        let mut standard = case.input.to_vec();
        standard.retain(|byte| !b"-_".contains(byte));
        apply("base64DecodeExt", &standard) == case.theirs
    }),
    (
        "base64DecodeExt",
        "makes nothing of a value with padding behind the first digit of a group",
        |case| {
            let mut digits = 0;
            let bytes = case.input.iter().zip(case.input.iter().skip(1).chain([&0]));
            let is_odd = bytes.filter(|(byte, next)| {
                digits += usize::from(is_base64(**byte));
                **byte == b'=' && **next != b'=' && digits % 4 == 1
            });
            is_odd.count() > 0 && case.theirs.is_empty()
        },
    ),
    ("base64DecodeExt", "takes a last digit 9 that begins a group for padding", |case| {
        let mut digits = case.input.to_vec();
        digits.retain(|byte| is_base64(*byte));
        case.theirs.is_empty() && digits.len() % 4 == 1 && digits.ends_with(b"9")
    }),
    ("cssDecode", "gives the lower byte of a character, and ends at a zero byte", |case| {
        css_of_3_0_9(case.input) == case.theirs
    }),
    ("normalizePath", "takes a segment that ends in .. for a back reference", |case| {
        has_segment_with_dots(case, b"/")
    }),
    ("normalizePath", "makes nothing of the root", |case| {
        (case.ours, case.theirs) == (&b"/"[..], &b""[..])
    }),
    ("normalizePathWin", "takes a segment that ends in .. for a back reference", |case| {
        has_segment_with_dots(case, b"/\\")
    }),
    ("normalizePathWin", "makes nothing of the root", |case| {
        (case.ours, case.theirs) == (&b"/"[..], &b""[..])
    }),
    (
        "normalizePathWin",
        "leaves slashes and references behind a backslash in a run of slashes",
        |case| apply("normalizePathWin", case.theirs) == case.ours,
    ),
    ("normalizePathWin", "removes two segments for a back reference behind /./\\", |case| {
        memchr::memmem::find(case.input, b"/./\\").is_some()
    }),
    ("sqlHexDecode", "drops the last byte, and ends at a zero byte", |case| {
        sql_hex_of_3_0_9(case.input) == case.theirs
    }),
    ("urlDecodeUni", "gives the lower byte of a character, unless a map is configured", |case| {
        let escapes =
            case.input.windows(6).filter(|escape| escape[..2].eq_ignore_ascii_case(b"%u"));
        let mut digits = escapes.filter_map(|escape| std::str::from_utf8(&escape[2..]).ok());
        digits.any(|digits| u16::from_str_radix(digits, 16).is_ok_and(|code| code > 0x7f))
    }),
    ("utf8toUnicode", "drops zero bytes and the first bytes of broken sequences", |case| {
        let kept = (0..case.input.len()).filter(|&at| {
            let length = match case.input[at] {
                0 => return false,
                0xc0..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                _ => 1,
            };
            let tail = case.input.get(at + 1..at + length);
            tail.is_some_and(|tail| tail.iter().all(|byte| byte & 0xc0 == 0x80))
        });
        let kept: Vec<u8> = kept.map(|at| case.input[at]).collect();
        apply("utf8toUnicode", &kept) == case.theirs
    }),
];

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/".contains(&byte)
}

fn until_null(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn has_segment_with_dots(case: &Case<'_>, slashes: &[u8]) -> bool {
    let mut segments = case.input.split(|byte| slashes.contains(byte));
    segments.any(|segment| segment.len() > 2 && segment.ends_with(b".."))
}

/// `cssDecode` of libmodsecurity 3.0.9.
fn css_of_3_0_9(input: &[u8]) -> Vec<u8> {
    let mut output = Vec::new();
    let mut rest = input;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'\\' {
            output.push(*byte);
            continue;
        }
        let length = after.iter().take(6).take_while(|byte| byte.is_ascii_hexdigit()).count();
        if length > 0 {
            let digits = std::str::from_utf8(&after[..length]).unwrap();
            let code = u32::from_str_radix(digits, 16).unwrap();
            let is_full_width = matches!(code, 0xff01..=0xff5e);
            output.push(code as u8 + if is_full_width { 0x20 } else { 0 });
            rest = &after[length..];
            rest = match rest {
                [b' ' | b'\t'..=b'\r', behind @ ..] => behind,
                _ => rest,
            };
        } else if let [b'\n', behind @ ..] = after {
            rest = behind;
        } else if let [escaped, behind @ ..] = after {
            output.push(*escaped);
            rest = behind;
        }
    }
    until_null(&output).to_vec()
}

/// `sqlHexDecode` of libmodsecurity 3.0.9.
fn sql_hex_of_3_0_9(input: &[u8]) -> Vec<u8> {
    let byte = |at: usize| input.get(at).copied().unwrap_or(0);
    let is_pair = |at: usize| byte(at).is_ascii_hexdigit() && byte(at + 1).is_ascii_hexdigit();
    let (mut output, mut at) = (Vec::new(), 0);
    while at + 1 < input.len() && byte(at) != 0 {
        if byte(at) == b'0' && byte(at + 1).eq_ignore_ascii_case(&b'x') && is_pair(at + 2) {
            at += 2;
            while is_pair(at) {
                let digits = [byte(at), byte(at + 1)];
                let digits = std::str::from_utf8(&digits).unwrap();
                output.push(u8::from_str_radix(digits, 16).unwrap());
                at += 2;
            }
        }
        output.push(byte(at));
        at += 1;
    }
    until_null(&output).to_vec()
}

/// Compares with outputs of libmodsecurity 3.0.9 that `tests/oracle/generate.py` recorded: the name,
/// the input and the output in hexadecimal. `WAF_TRANSFORMATION_CASES` names a further file.
#[test]
fn equals_recorded_output_of_libmodsecurity() {
    let mut text = include_str!("../../tests/oracle/transformations.tsv").to_owned();
    if let Ok(path) = std::env::var("WAF_TRANSFORMATION_CASES") {
        text.push_str(&std::fs::read_to_string(path).unwrap());
    }
    let (mut same, mut explained) = (0, [0; DIFFERENCES.len()]);
    let mut different = Vec::new();
    for line in text.lines() {
        let mut columns = line.split('\t');
        let mut column = || columns.next().unwrap_or_else(|| panic!("incomplete line `{line}`"));
        let (name, input, expected) = (column(), unhex(column()), unhex(column()));
        let output = apply(name, &input);
        let case = Case { input: &input, ours: &output, theirs: &expected };
        let known =
            DIFFERENCES.iter().position(|(known, _, explains)| *known == name && explains(&case));
        if output == expected {
            same += 1;
        } else if let Some(known) = known {
            explained[known] += 1;
        } else {
            different.push(format!(
                "{name}(\"{}\") = \"{}\", expected \"{}\"",
                input.escape_ascii(),
                output.escape_ascii(),
                expected.escape_ascii()
            ));
        }
    }
    assert!(same > 2_000, "only {same} cases");
    let known = DIFFERENCES.iter().zip(explained);
    let unused: Vec<_> = known
        .filter(|(_, count)| *count == 0)
        .map(|((name, reason, _), _)| (name, reason))
        .collect();
    assert!(unused.is_empty(), "no recorded case is explained by {unused:?}");
    assert!(
        different.is_empty(),
        "{} differ:\n{}",
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
        ("htmlEntityDecode", b"a&colon;b&lpar;1&rpar;&Tab;&colon", b"a:b(1)&Tab;&colon"),
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
