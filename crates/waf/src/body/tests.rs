//! Comparison of all parsers of requests with libmodsecurity 3.0.9.
//!
//! A line of a recorded file has the input in hexadecimal and what libmodsecurity made of it:
//! `NAME:` with a value in hexadecimal, or a sorted list of `key=value`. `WAF_BODY_CASES` and
//! `WAF_TARGET_CASES` name further files, which `tests/oracle/generate.py` makes.

use std::collections::BTreeMap;

use super::{Limits, json, multipart, urlencoded, xml};
use crate::head::{self, Target};
use crate::settings::BareArgument;

const LIMITS: Limits = Limits { depth: 10_000, parts: 1_000, name_bytes: 1 << 20, is_cut: false };

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

fn list<'a>(pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> String {
    let mut items: Vec<_> =
        pairs.into_iter().map(|(name, value)| format!("{}={},", hex(name), hex(value))).collect();
    items.sort();
    items.concat()
}

fn flag(value: bool) -> String {
    hex(if value { b"1" } else { b"0" })
}

/// Drops the line break of each piece that libmodsecurity reads, as it does itself.
fn without_line_breaks(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = value;
    while !rest.is_empty() {
        let window = &rest[..rest.len().min(4096)];
        let end = match window.iter().position(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None if window.len() == 4096 && window.ends_with(b"\r") => 4095,
            None => window.len(),
        };
        let piece = &rest[..end];
        out.extend_from_slice(
            piece.strip_suffix(b"\r\n").or(piece.strip_suffix(b"\n")).unwrap_or(piece),
        );
        rest = &rest[end..];
    }
    out
}

type Variables = BTreeMap<&'static str, String>;

fn parse_body(content_type: &[u8], body: &[u8]) -> Variables {
    let mut variables = Variables::new();
    let mut arguments = Vec::new();
    let mut collect = |name: &[u8], value: &[u8]| {
        arguments.push((name.to_vec(), value.to_vec()));
        true
    };
    if content_type.starts_with(b"text/xml") {
        let parsed = xml::parse(body, &LIMITS);
        variables.insert("REQBODY_ERROR", flag(parsed.error.is_some()));
        if parsed.error.is_none() {
            variables.insert("XML", hex(&parsed.text.unwrap_or_default()));
            if memchr::memmem::find(body, b"xmlns").is_some() {
                return variables;
            }
            variables.insert(
                "XML_ATTRIBUTE",
                parsed.attributes.last().map_or(String::new(), |value| hex(value)),
            );
        }
        return variables;
    }
    if content_type.starts_with(b"application/json") {
        // Empty containers, and escapes behind lone surrogates, are not there for libmodsecurity.
        let text = String::from_utf8_lossy(body);
        let compact: String = text.split(|c: char| matches!(c, '\t'..='\r' | ' ')).collect();
        if compact.contains("[]") || compact.contains("{}") || compact.contains("\\ud8") {
            return Variables::new();
        }
        let result = json::parse(body, &LIMITS, |name, value| {
            let index = name.element.map_or(String::new(), |element| element.index.to_string());
            collect(&[name.path, index.as_bytes()].concat(), value)
        });
        // yajl overlooks an incomplete string or word after the end.
        if result.is_err_and(|error| error.reason.contains("after the end")) {
            return Variables::new();
        }
        variables.insert("REQBODY_ERROR", flag(result.is_err()));
    } else if content_type.starts_with(b"application/x-www-form-urlencoded") {
        let is_valid =
            urlencoded::parse(body, b'&', BareArgument::Name, &mut Default::default(), collect);
        variables.insert("URLENCODED_ERROR", flag(!is_valid));
    } else {
        let parsed = multipart::parse(body, content_type, &LIMITS);
        // libmodsecurity takes fewer forms of parameters.
        let is_plain = |byte: &u8| !b"\"; \t".contains(byte);
        let start = b"multipart/form-data; boundary=";
        if !content_type.strip_prefix(start).is_some_and(|rest| rest.iter().all(is_plain)) {
            return Variables::new();
        }
        // Differences that the parser documents.
        let error = parsed.error.as_deref().unwrap_or_default();
        let is_known = ["closing quote missing", "(empty)", "duplicate part header"];
        let extended = parsed.files.iter().any(|file| !file.other_names.is_empty());
        if is_known.iter().any(|known| error.contains(known)) || extended {
            return Variables::new();
        }
        for field in &parsed.fields {
            collect(&field.name, &without_line_breaks(&body[field.value.clone()]));
        }
        let pair = |name: &'static str, pairs: Vec<(&[u8], &[u8])>| (name, list(pairs));
        let sizes: Vec<_> =
            parsed.files.iter().map(|file| file.content.len().to_string()).collect();
        variables.extend([
            pair(
                "FILES",
                parsed.files.iter().map(|file| (&*file.name, &*file.file_name)).collect(),
            ),
            pair(
                "FILES_NAMES",
                parsed.files.iter().map(|file| (&*file.name, &*file.name)).collect(),
            ),
            pair(
                "FILES_SIZES",
                parsed
                    .files
                    .iter()
                    .zip(&sizes)
                    .map(|(f, size)| (&*f.name, size.as_bytes()))
                    .collect(),
            ),
            pair("MULTIPART_NAME", parsed.names.iter().map(|name| (&**name, &**name)).collect()),
            pair(
                "MULTIPART_FILENAME",
                parsed.file_names.iter().map(|name| (&**name, &**name)).collect(),
            ),
        ]);
        if error.is_empty() {
            // Duplicate headers behind another error are visible here only.
            variables.extend([pair(
                "MULTIPART_PART_HEADERS",
                parsed.part_headers.iter().map(|(name, line)| (&**name, &**line)).collect(),
            )]);
        }
        let flags = parsed.flags;
        variables.extend([
            ("MULTIPART_STRICT_ERROR", flag(flags.strict_error())),
            ("MULTIPART_BOUNDARY_QUOTED", flag(flags.boundary_quoted)),
            ("MULTIPART_BOUNDARY_WHITESPACE", flag(flags.boundary_whitespace)),
            ("MULTIPART_CRLF_LF_LINES", flag(flags.crlf_lf_lines())),
            ("MULTIPART_DATA_AFTER", flag(flags.data_after)),
            ("MULTIPART_DATA_BEFORE", flag(flags.data_before)),
            ("MULTIPART_HEADER_FOLDING", flag(flags.header_folding)),
            ("MULTIPART_INVALID_HEADER_FOLDING", flag(flags.invalid_header_folding)),
            ("MULTIPART_INVALID_PART", flag(flags.invalid_part)),
            ("MULTIPART_INVALID_QUOTING", flag(flags.invalid_quoting)),
            ("MULTIPART_LF_LINE", flag(flags.lf_line)),
            ("MULTIPART_MISSING_SEMICOLON", flag(flags.missing_semicolon)),
            ("MULTIPART_UNMATCHED_BOUNDARY", hex(flags.unmatched_boundary.to_string().as_bytes())),
            ("REQBODY_ERROR", flag(parsed.error.is_some())),
        ]);
    }
    variables.insert("ARGS", list(arguments.iter().map(|(name, value)| (&**name, &**value))));
    variables
}

fn parse_head(target: &[u8], cookies: &[u8]) -> Variables {
    let mut arguments = Vec::new();
    let parsed = Target::parse(target);
    let is_valid = urlencoded::parse(
        parsed.query,
        b'&',
        BareArgument::Name,
        &mut Default::default(),
        |name, value| {
            arguments.push((name.to_vec(), value.to_vec()));
            true
        },
    );
    let mut pairs = Vec::new();
    head::cookies(cookies, |name, value| {
        // libmodsecurity leaves out values without a name.
        if !name.is_empty() {
            pairs.push((name.to_vec(), value.to_vec()));
        }
    });
    let mut variables = Variables::from([
        ("REQUEST_FILENAME", hex(parsed.filename())),
        ("REQUEST_BASENAME", hex(parsed.basename())),
        ("REQUEST_URI", hex(parsed.uri())),
        ("QUERY_STRING", hex(parsed.query)),
        ("URLENCODED_ERROR", flag(!is_valid)),
        ("ARGS_GET", list(arguments.iter().map(|(name, value)| (&**name, &**value)))),
        ("REQUEST_COOKIES", list(pairs.iter().map(|(name, value)| (&**name, &**value)))),
    ]);
    // libmodsecurity takes any bytes for a scheme.
    let scheme = memchr::memmem::find(target, b"://").map_or(&[][..], |end| &target[..end]);
    if !target.starts_with(b"/") && !scheme.iter().all(u8::is_ascii_alphanumeric) {
        variables.remove("REQUEST_URI");
    }
    variables
}

/// Removes the line breaks that libmodsecurity 3.0.9 leaves in part headers.
fn normalize(name: &str, list: &str) -> String {
    if name != "MULTIPART_PART_HEADERS" {
        return list.to_owned();
    }
    let without_breaks = |hex: &str| -> Vec<u8> {
        unhex(hex).into_iter().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect()
    };
    let pairs: Vec<_> = list
        .split_terminator(',')
        .filter_map(|item| item.split_once('='))
        .map(|(name, line)| (unhex(name), without_breaks(line)))
        .collect();
    self::list(pairs.iter().map(|(name, line)| (&**name, &**line)))
}

fn compare(recorded: &str, further: &str, parse: fn(&[u8], &[u8]) -> Variables) {
    let mut text = recorded.to_owned();
    if let Ok(path) = std::env::var(further) {
        text.push_str(&std::fs::read_to_string(path).unwrap());
    }
    let mut different = Vec::new();
    let mut compared = 0;
    for line in text.lines() {
        let mut columns = line.split('\t');
        let mut input = || unhex(columns.next().unwrap());
        let (first, second) = (input(), input());
        let ours = parse(&first, &second);
        let recorded: BTreeMap<_, _> =
            columns.filter_map(|column| column.split_once(':')).collect();
        for (name, ours) in ours {
            let theirs = match recorded.get(name) {
                Some(theirs) => normalize(name, theirs),
                // Long values of XML are not recorded, empty variables are left out.
                None if name.starts_with("XML") || ours == flag(false) => continue,
                None => String::new(),
            };
            let ours = normalize(name, &ours);
            if ours != theirs {
                let readable = |hex: &str| {
                    let parts = hex.split_inclusive([',', '=']);
                    parts.map(|part| format!("{} ", unhex(part).escape_ascii())).collect::<String>()
                };
                different.push(format!(
                    "{} | {}\n    {name}: {}\n    expected: {}",
                    first.escape_ascii(),
                    second.escape_ascii(),
                    readable(&ours),
                    readable(&theirs)
                ));
            }
        }
        compared += 1;
    }
    assert!(compared >= 300, "only {compared} cases");
    assert!(
        different.is_empty(),
        "{} differ:\n{}",
        different.len(),
        different[..different.len().min(12)].join("\n")
    );
}

#[test]
fn bodies_equal_recorded_variables_of_libmodsecurity() {
    compare(include_str!("../../tests/oracle/bodies.tsv"), "WAF_BODY_CASES", parse_body);
}

#[test]
fn targets_and_cookies_equal_recorded_variables_of_libmodsecurity() {
    compare(include_str!("../../tests/oracle/targets.tsv"), "WAF_TARGET_CASES", parse_head);
}
