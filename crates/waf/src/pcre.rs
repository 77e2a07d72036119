//! Rewriting of regexes from the syntax of PCRE, in which rules are written, to that of `regex-syntax`.

/// Replaces a backreference.
const ANYTHING: &[u8] = b"(?:[\\x00-\\xff]*)";

/// Returns a regex without lookaround, backreferences, atomic groups, possessive repetitions and `\K` that matches wherever
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
            [b'\\', b'K', ..] => {
                changed = true;
                out.extend_from_slice(b"(?:)");
                2
            }
            [b'(', b'?', b'P', b'=', ..] => {
                changed = true;
                out.extend_from_slice(ANYTHING);
                memchr::memchr(b')', rest)? + 1
            }
            [b'\\', b'k', ..] => {
                changed = true;
                out.extend_from_slice(ANYTHING);
                memchr::memchr(b'>', rest)? + 1
            }
            [b'\\', b'1'..=b'9', ..] => {
                changed = true;
                out.extend_from_slice(ANYTHING);
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

/// Rewrites constructs that PCRE reads differently from this engine's syntax: braces that are not a repetition, brackets and
/// operators in classes, bytes above 127, comments, quoted texts, and escapes such as `\v`, `\h`, `\N` and `\p{L}`.
pub(crate) fn portable(pattern: &str) -> String {
    let bytes = pattern.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    let mut class = false;
    while at < bytes.len() {
        // Most bytes are copied.
        let special = |byte: &u8| !matches!(byte, b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b')' | b'|' | b':' | b'?');
        let plain = bytes[at..].iter().position(special).unwrap_or(bytes.len() - at);
        if plain > 0 {
            out.extend_from_slice(&bytes[at..at + plain]);
            at += plain;
            continue;
        }
        match bytes[at] {
            b'\\' if at + 1 < bytes.len() => {
                at += push_escape(&pattern[at..], class, &mut out);
                continue;
            }
            b'(' if !class && bytes[at..].starts_with(b"(?#") => {
                at = memchr::memchr(b')', &bytes[at..]).map_or(bytes.len(), |end| at + end + 1);
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

/// Appends the escape with which a text begins, and returns its length.
fn push_escape(text: &str, class: bool, out: &mut Vec<u8>) -> usize {
    let bytes = text.as_bytes();
    if let Some(digits) = braced_byte(bytes) {
        out.extend_from_slice(format!("\\x{digits:02x}").as_bytes());
        return memchr::memchr(b'}', bytes).map_or(2, |end| end + 1);
    }
    if let Some((set, length)) = property(text) {
        push_set(set, class, out);
        return length;
    }
    match (bytes[1], class) {
        (b'e', _) => out.extend_from_slice(b"\\x1b"),
        (b'h', _) => push_set(HORIZONTAL, class, out),
        (b'H', _) => push_set(complement(HORIZONTAL), class, out),
        (b'v', _) => push_set(VERTICAL, class, out),
        (b'V', _) => push_set(complement(VERTICAL), class, out),
        // PCRE does not try the line feed alone after both; that only rejects more.
        (b'R', false) => out.extend_from_slice(b"(?:\\r\\n|[\\n-\\r\\x85])"),
        (b'N', false) => out.extend_from_slice(b"[^\\n]"),
        (b'Z', false) => out.extend_from_slice(b"(?:\\n?\\z)"),
        (b'<' | b'>', _) => out.push(bytes[1]),
        (b'0', _) => {
            let digits = bytes[1..].iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7'));
            let (length, value) = digits
                .fold((1, 0u8), |(length, value), digit| (length + 1, value << 3 | digit & 7));
            out.extend_from_slice(format!("\\x{value:02x}").as_bytes());
            return length;
        }
        (b'Q', _) => {
            let quoted = text.get(2..).unwrap_or_default();
            let (quoted, length) = match quoted.find("\\E") {
                Some(end) => (&quoted[..end], end + 4),
                None => (quoted, text.len()),
            };
            quoted.bytes().for_each(|byte| push_literal(byte, out));
            return length;
        }
        (b'E', _) => {}
        // fancy_regex writes the name of a group in one way.
        (b'k', false) => {
            let Some((name, length)) = group_name(text) else {
                out.extend_from_slice(b"\\k");
                return 2;
            };
            out.extend_from_slice(format!("\\k<{name}>").as_bytes());
            return length;
        }
        (0x80.., _) => return 1,
        _ => out.extend_from_slice(&bytes[..2]),
    }
    2
}

/// Name of the group in `\k<name>`, `\k{name}` or `\k'name'`, and the length of the whole.
fn group_name(text: &str) -> Option<(&str, usize)> {
    let close = match text.as_bytes().get(2)? {
        b'<' => '>',
        b'{' => '}',
        b'\'' => '\'',
        _ => return None,
    };
    let name = text.get(3..)?;
    let end = name.find(close)?;
    Some((&name[..end], end + 4))
}

fn push_literal(byte: u8, out: &mut Vec<u8>) {
    if byte.is_ascii_alphanumeric() {
        out.push(byte);
    } else {
        out.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
    }
}

/// Set of bytes: bit `b % 64` of word `b / 64`.
type Set = [u64; 4];

/// `\h`: tab, space and no-break space.
const HORIZONTAL: Set = [1 << b'\t' | 1 << b' ', 0, 1 << (0xa0 - 128), 0];
/// `\v`: line feed, vertical tab, form feed, carriage return and next line.
const VERTICAL: Set = [0xf << b'\n', 0, 1 << (0x85 - 128), 0];

fn complement(set: Set) -> Set {
    set.map(|word| !word)
}

/// Appends a class, or its ranges inside of one.
fn push_set(set: Set, class: bool, out: &mut Vec<u8>) {
    let has = |byte: u8| set[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1;
    out.extend_from_slice(if class { b"" } else { b"[" });
    let mut bytes = (0..=u8::MAX).filter(|&byte| has(byte)).peekable();
    while let Some(first) = bytes.next() {
        let mut last = first;
        while let Some(next) = bytes.next_if(|&next| next == last + 1) {
            last = next;
        }
        out.extend_from_slice(format!("\\x{first:02x}-\\x{last:02x}").as_bytes());
    }
    out.extend_from_slice(if class { b"" } else { b"]" });
}

/// Bytes of the Unicode property with which a text begins, such as `\p{Lu}`, `\P{L}`, `\p{^L}` or `\pL`, and its length.
/// PCRE without its UTF mode, as ModSecurity compiles regexes, takes a byte for the character of Latin-1. `None` for a
/// property without such a character, too.
fn property(text: &str) -> Option<(Set, usize)> {
    let negated = text.starts_with("\\P");
    let name = text.strip_prefix("\\p").or_else(|| text.strip_prefix("\\P"))?;
    let (name, length) = match name.strip_prefix('{') {
        Some(name) => (&name[..name.find('}')?], name.find('}')? + 4),
        None => (name.get(..1)?, 3),
    };
    let (name, inverted) = name.strip_prefix('^').map_or((name, false), |name| (name, true));
    let class = regex_syntax::parse(&format!("\\p{{{name}}}")).ok()?;
    let regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(class)) = class.kind()
    else {
        return None;
    };
    let mut set = Set::default();
    for range in class.ranges() {
        for byte in u32::from(range.start())..=u32::from(range.end()).min(255) {
            set[byte as usize / 64] |= 1 << (byte % 64);
        }
    }
    let set = if negated != inverted { complement(set) } else { set };
    (set != Set::default()).then_some((set, length))
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
