//! A second parser by RFC 7578 and RFC 2046, section 5.1, which searches the whole body.

use tollgate_origin::fuzzing::Part;

const PARTS_MAX: usize = 1000;
const HEAD_BYTES_MAX: usize = 4096;

/// Returns the parts of a body, or the name of the error.
pub fn parts(boundary: &str, body: &[u8]) -> Result<Vec<Part>, String> {
    let delimiter = format!("\r\n--{boundary}").into_bytes();
    // The first delimiter needs no CR LF before it.
    let text = [b"\r\n", body].concat();
    let unfinished = || "Unfinished".to_owned();
    let mut at = find(&text, &delimiter).ok_or_else(unfinished)? + delimiter.len();
    let mut parts: Vec<Part> = Vec::new();
    loop {
        let line = &text[at..];
        if line.starts_with(b"--") {
            return Ok(parts);
        }
        let space = line.iter().take_while(|byte| b" \t".contains(byte)).count();
        let end = &line[space..];
        if parts.len() == PARTS_MAX && end.starts_with(b"\r") {
            return Err("TooManyParts".to_owned());
        }
        if !end.starts_with(b"\r\n") {
            let may_go_on = end.is_empty() || end == b"\r" || (space == 0 && end == b"-");
            return Err(if may_go_on { unfinished() } else { "Delimiter".to_owned() });
        }
        at += space + 2;
        let head_bytes = match &text[at..] {
            rest if rest.starts_with(b"\r\n") => Some(2),
            rest => find(rest, b"\r\n\r\n").map(|end| end + 4),
        };
        let head_bytes = match head_bytes {
            Some(bytes) if bytes <= HEAD_BYTES_MAX => bytes,
            _ if text.len() - at >= HEAD_BYTES_MAX => return Err("PartHeadTooLong".to_owned()),
            _ => return Err(unfinished()),
        };
        let (name, filename) = names(&text[at..at + head_bytes]);
        let name = name.ok_or_else(|| "NoName".to_owned())?;
        at += head_bytes;
        let content_bytes = find(&text[at..], &delimiter).ok_or_else(unfinished)?;
        parts.push((name, filename, content_bytes as u64));
        at += content_bytes + delimiter.len();
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// Returns the last name and the last filename in the headers of a part.
fn names(head: &[u8]) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let (mut name, mut filename) = (None, None);
    for line in head.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        if line[..colon].to_ascii_lowercase() != b"content-disposition" {
            continue;
        }
        let value = &line[colon + 1..];
        let kind_end = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
        if trimmed(&value[..kind_end]).to_ascii_lowercase() != b"form-data" {
            continue;
        }
        for (key, value) in parameters(&value[kind_end..]) {
            match key.to_ascii_lowercase().as_slice() {
                b"name" => name = Some(value),
                b"filename" => filename = Some(value),
                _ => {}
            }
        }
    }
    (name, filename)
}

/// Returns parameters, each after a semicolon, up to the first syntax error.
fn parameters(text: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let mut at = 0;
    while text.get(at) == Some(&b';') {
        let Some(key_bytes) = text[at + 1..].iter().position(|byte| *byte == b'=') else { break };
        let key = trimmed(&text[at + 1..at + 1 + key_bytes]).to_vec();
        at += key_bytes + 2;
        at += space(&text[at..]);
        let value;
        if text.get(at) == Some(&b'"') {
            let Some((inside, bytes)) = quoted(&text[at..]) else { break };
            value = inside;
            at += bytes;
            at += space(&text[at..]);
        } else {
            let rest = &text[at..];
            let bytes = rest.iter().position(|byte| *byte == b';').unwrap_or(rest.len());
            value = trimmed(&rest[..bytes]).to_vec();
            at += bytes;
        }
        found.push((key, value));
    }
    found
}

/// Returns the contents of the quotes at the start of `text`, and their length with the quotes.
fn quoted(text: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut inside = Vec::new();
    let mut is_escaped = false;
    for (at, byte) in text.iter().enumerate().skip(1) {
        match (is_escaped, byte) {
            (true, b'"' | b'\\') => {
                inside.push(*byte);
                is_escaped = false;
            }
            (_, b'\\') => is_escaped = true,
            (false, b'"') => return Some((inside, at + 1)),
            // A backslash before any other byte is literal.
            (escaped, _) => {
                inside.extend_from_slice(if escaped { b"\\" } else { b"" });
                inside.push(*byte);
                is_escaped = false;
            }
        }
    }
    None
}

fn space(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

fn trimmed(text: &[u8]) -> &[u8] {
    let text = &text[space(text)..];
    let after = text.iter().rev().take_while(|byte| byte.is_ascii_whitespace()).count();
    &text[..text.len() - after]
}
