//! Rewriting of regexes from the syntax of PCRE, in which rules are written, to that of `regex-syntax`.

/// Returns a regex without lookaround, backreferences, atomic groups and possessive repetitions that matches wherever
/// the given one matches; `None` if that has none of these. The given one is portable.
pub(crate) fn relaxed(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut changed = false;
    let mut at = 0;
    // True behind a repetition, where `+` makes it possessive.
    let mut repeated = false;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if let Some(length) = repetition_length(rest).filter(|_| !repeated) {
            out.extend_from_slice(&rest[..length]);
            at += length;
            repeated = true;
            continue;
        }
        let length = match rest {
            [b'+', ..] if repeated => {
                changed = true;
                1
            }
            [b'(', b'?', b'>', ..] => {
                changed = true;
                out.extend_from_slice(b"(?:");
                3
            }
            [b'(', b'?', b'=' | b'!', ..] | [b'(', b'?', b'<', b'=' | b'!', ..] => {
                changed = true;
                out.extend_from_slice(b"(?:)");
                group_length(rest)?
            }
            [b'\\', b'1'..=b'9', ..] => {
                changed = true;
                out.extend_from_slice(b"(?:[\\x00-\\xff]*)");
                1 + rest[1..].iter().take_while(|byte| byte.is_ascii_digit()).count()
            }
            _ => {
                let length = item_length(rest);
                out.extend_from_slice(&rest[..length]);
                length
            }
        };
        at += length;
        repeated = false;
    }
    // Whole items were replaced.
    changed.then(|| String::from_utf8(out).ok()).flatten()
}

/// Length of the group that starts here; `None` if it is not closed.
fn group_length(text: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0);
    while at < text.len() {
        match text[at] {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        at += item_length(&text[at..]);
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Length of an escape, of a class, or of one byte.
fn item_length(text: &[u8]) -> usize {
    if text[0] == b'\\' {
        return text.len().min(2);
    }
    if text[0] != b'[' {
        return 1;
    }
    let mut at = 1;
    while at < text.len() && text[at] != b']' {
        let named = text[at..].starts_with(b"[:").then(|| memchr::memmem::find(&text[at..], b":]"));
        at += match named.flatten() {
            Some(end) => end + 2,
            None => item_length_in_class(&text[at..]),
        };
    }
    text.len().min(at + 1)
}

fn item_length_in_class(text: &[u8]) -> usize {
    if text[0] == b'\\' { text.len().min(2) } else { 1 }
}

/// Rewrites constructs that PCRE reads differently from this engine's syntax: braces that are not a repetition,
/// brackets and operators in classes, bytes above 127, and `\e`, `\h`, `\R`, `\Z`.
pub(crate) fn portable(pattern: &str) -> String {
    let bytes = pattern.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    let mut class = false;
    while at < bytes.len() {
        // Most bytes are copied.
        let special = |byte: &u8| !matches!(byte, b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'(' | b')' | b'|' | b':' | b'?');
        let plain = bytes[at..].iter().position(special).unwrap_or(bytes.len() - at);
        if plain > 0 {
            out.extend_from_slice(&bytes[at..at + plain]);
            at += plain;
            continue;
        }
        match bytes[at] {
            b'\\' if at + 1 < bytes.len() => {
                let next = bytes[at + 1];
                if let Some(digits) = braced_byte(&bytes[at..]) {
                    out.extend_from_slice(format!("\\x{digits:02x}").as_bytes());
                    at += memchr::memchr(b'}', &bytes[at..]).map_or(2, |end| end + 1);
                    continue;
                }
                match next {
                    b'e' => out.extend_from_slice(b"\\x1b"),
                    b'h' if class => out.extend_from_slice(b"\\t "),
                    b'h' => out.extend_from_slice(b"[\\t ]"),
                    b'R' if !class => out.extend_from_slice(b"(?:\\r\\n|[\\n\\v\\f\\r])"),
                    b'Z' if !class => out.extend_from_slice(b"(?:\\n?\\z)"),
                    b'<' | b'>' => out.push(next),
                    0x80.. => {
                        at += 1;
                        continue;
                    }
                    _ => out.extend_from_slice(&bytes[at..at + 2]),
                }
                at += 2;
                continue;
            }
            b'[' if !class => {
                class = true;
                out.push(b'[');
                at += 1;
                if bytes.get(at) == Some(&b'^') {
                    out.push(b'^');
                    at += 1;
                }
                if bytes.get(at) == Some(&b']') {
                    out.extend_from_slice(b"\\]");
                    at += 1;
                } else if bytes[at..].starts_with(b"--") {
                    out.extend_from_slice(b"\\-");
                    at += 1;
                }
                continue;
            }
            // PCRE has no nested classes and no set operations.
            b'[' if bytes.get(at + 1) == Some(&b':') && pattern[at..].contains(":]") => {
                let end = pattern[at..].find(":]").map_or(bytes.len(), |end| at + end + 2);
                out.extend_from_slice(&bytes[at..end]);
                at = end;
                continue;
            }
            b'[' => out.extend_from_slice(b"\\["),
            b @ (b'&' | b'~') if class && bytes.get(at + 1) == Some(&b) => {
                out.extend_from_slice(&[b'\\', b]);
            }
            b'-' if class && bytes.get(at + 1) == Some(&b'-') => {
                out.extend_from_slice(b"-\\-");
                at += 1;
            }
            b']' if class => {
                class = false;
                out.push(b']');
            }
            b'{' if !class && !is_repetition(&bytes[at..]) => out.extend_from_slice(b"\\{"),
            b @ 0x80.. => out.extend_from_slice(format!("\\x{b:02x}").as_bytes()),
            b => out.push(b),
        }
        at += 1;
    }
    // Only ASCII bytes were inserted or removed, at character boundaries.
    String::from_utf8(out).unwrap_or_else(|_| pattern.to_owned())
}

/// Returns the byte that `\x{HH}` at the start of the text denotes.
fn braced_byte(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"\\x{")?;
    let end = memchr::memchr(b'}', digits)?;
    u8::from_str_radix(std::str::from_utf8(&digits[..end]).ok()?, 16).ok()
}

/// Length of the repetition with which the text begins.
fn repetition_length(text: &[u8]) -> Option<usize> {
    match text[0] {
        b'*' | b'+' | b'?' => Some(1),
        b'{' if is_repetition(text) => Some(memchr::memchr(b'}', text)? + 1),
        _ => None,
    }
}

/// True if the text begins with `{n}`, `{n,}` or `{n,m}`.
fn is_repetition(text: &[u8]) -> bool {
    let Some(end) = memchr::memchr(b'}', text) else { return false };
    let inner = &text[1..end];
    inner.first().is_some_and(u8::is_ascii_digit)
        && inner.iter().all(|b| b.is_ascii_digit() || *b == b',')
        && inner.iter().filter(|&&b| b == b',').count() <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relaxed_regex_replaces_only_what_needs_backtracking() {
        for (pattern, expected) in [
            (r"a(?=b[)]\)(c))d", r"a(?:)d"),
            (r"(a)\1+?", r"(a)(?:[\x00-\xff]*)+?"),
            (r"(?>a++|b{2}+)*", r"(?:a+|b{2})*"),
            (r"(?<!x)y", r"(?:)y"),
        ] {
            assert_eq!(relaxed(pattern).as_deref(), Some(expected), "{pattern}");
        }
        for pattern in [r"[(?=]\(?=", r"a+?b*?\++", r"\\1", r"[\1]", "[[:alpha:](?!]", "(?:a)+"] {
            assert_eq!(relaxed(pattern), None, "{pattern}");
        }
    }
}
