//! Compilation of regexes as ModSecurity compiles them: bytes, `.` matches newlines, `^` and `$` match at lines.

use std::sync::OnceLock;

use regex_automata::meta::{Config, Regex};
use regex_automata::util::syntax;
use regex_syntax::hir::Hir;

use crate::plan::{Id, Structures};

/// Memory that one compiled regex may take, in bytes.
const SIZE_LIMIT: usize = 16 << 20;
/// Memory of the states that one regex builds while it runs, in bytes for each thread.
const CACHE_LIMIT: usize = 1 << 20;

/// Regexes with at least this many states are compiled when rules are loaded, to check their size.
const STATES_CHECKED: usize = 50_000;

fn options() -> syntax::Config {
    syntax::Config::new().unicode(false).utf8(false).multi_line(true).dot_matches_new_line(true)
}

fn config() -> Config {
    Config::new()
        .utf8_empty(false)
        .nfa_size_limit(Some(SIZE_LIMIT))
        .hybrid_cache_capacity(CACHE_LIMIT)
}

/// Compiles the regex of an operator.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    Regex::builder()
        .syntax(options())
        .configure(config())
        .build(&portable(pattern))
        .map_err(|error| explain(pattern, &reason(&error)))
}

/// Checks that a regex compiles and returns its structure. Compiles it only if it may exceed the size limit.
pub(crate) fn check(pattern: &str, structures: &mut Structures) -> Result<Id, String> {
    let id = match structures.parse(&portable(pattern)) {
        Some(id) => id,
        None => structures.add(&structure(pattern)?),
    };
    if structures.facts(id).states >= STATES_CHECKED {
        compile(pattern)?;
    }
    Ok(id)
}

/// Regex that matches every value.
pub(crate) fn match_all() -> Regex {
    Regex::builder().build_from_hir(&Hir::empty()).unwrap_or_else(|error| unreachable!("{error}"))
}

/// Regex of a selector, which ignores case. It is compiled at its first use.
#[derive(Debug)]
pub(crate) struct SelectorRegex {
    pub(crate) text: String,
    compiled: OnceLock<Regex>,
    /// Slots of the TX variables whose names it matches.
    slots: OnceLock<Vec<u32>>,
}

impl SelectorRegex {
    pub(crate) fn new(text: String) -> Result<Self, String> {
        check(&text, &mut Structures::default())?;
        Ok(Self { text, compiled: OnceLock::new(), slots: OnceLock::new() })
    }

    fn compile(pattern: &str) -> Result<Regex, String> {
        Regex::builder()
            .syntax(options().case_insensitive(true))
            .configure(config())
            .build(&portable(pattern))
            .map_err(|error| explain(pattern, &reason(&error)))
    }

    /// Slots of the TX variables of the rule set whose names it matches.
    pub(crate) fn slots(&self, names: &[Vec<u8>]) -> &[u32] {
        self.slots.get_or_init(|| {
            let matching = (0..).zip(names).filter(|(_, name)| self.is_match(name));
            matching.map(|(slot, _)| slot).collect()
        })
    }

    pub(crate) fn is_match(&self, name: &[u8]) -> bool {
        let compiled = self
            .compiled
            .get_or_init(|| Self::compile(&self.text).unwrap_or_else(|_reason| match_all()));
        compiled.is_match(name)
    }
}

/// Structure of a regex as `regex-syntax` parses it.
pub(crate) fn structure(pattern: &str) -> Result<Hir, String> {
    regex_syntax::ParserBuilder::new()
        .unicode(false)
        .utf8(false)
        .multi_line(true)
        .dot_matches_new_line(true)
        .build()
        .parse(&portable(pattern))
        .map_err(|error| explain(pattern, &error.to_string()))
}

/// Rewrites constructs that PCRE reads differently from this engine's syntax: braces that are not a repetition,
/// brackets and operators in classes, bytes above 127, and `\e`, `\h`, `\R`, `\Z`.
pub(crate) fn portable(pattern: &str) -> String {
    let bytes = pattern.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    let mut class = false;
    while at < bytes.len() {
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

/// True if the text begins with `{n}`, `{n,}` or `{n,m}`.
fn is_repetition(text: &[u8]) -> bool {
    let Some(end) = memchr::memchr(b'}', text) else { return false };
    let inner = &text[1..end];
    inner.first().is_some_and(u8::is_ascii_digit)
        && inner.iter().all(|b| b.is_ascii_digit() || *b == b',')
        && inner.iter().filter(|&&b| b == b',').count() <= 1
}

fn reason(error: &regex_automata::meta::BuildError) -> String {
    error.syntax_error().map_or_else(|| error.to_string(), ToString::to_string)
}

fn explain(pattern: &str, reason: &str) -> String {
    let unsupported = [
        ("(?=", "lookahead"),
        ("(?!", "lookahead"),
        ("(?<=", "lookbehind"),
        ("(?<!", "lookbehind"),
        ("(?>", "atomic group"),
    ];
    if let Some((_, name)) = unsupported.iter().find(|(text, _)| pattern.contains(text)) {
        return format!("regex uses a {name}, which is not supported: rewrite it without");
    }
    let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
    format!("cannot compile regex: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &[u8]) -> bool {
        compile(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}")).is_match(text)
    }

    #[test]
    fn dot_matches_newlines_and_anchors_match_lines() {
        assert!(matches("^a.b$", b"x\na\nb\ny"));
        assert!(matches(r"[\xff]", b"\xff"));
    }

    #[test]
    fn reads_literal_braces_and_brackets_as_pcre() {
        assert!(matches("{a}{2}", b"{a}}"));
        assert!(matches("[]a]+$", b"]a"));
        assert!(matches("^[[(]$", b"["));
        assert!(matches("^[a&&b]$", b"&"));
        assert!(matches(r"^\<[[:digit:]]$", b"<7"));
        assert!(matches(r"^[\x7f-\x{ff}]é$", b"\xfe\xc3\xa9"));
    }

    #[test]
    fn names_unsupported_constructs() {
        assert!(compile("a(?=b)").unwrap_err().contains("lookahead"));
    }
}
