//! Splits a rule file into directives and their arguments, keeping the place of every byte.

use std::sync::Arc;

use crate::error::{LoadError, RulePlace};

/// Directive with its arguments.
#[derive(Debug)]
pub(crate) struct Directive {
    pub(crate) name: Argument,
    pub(crate) arguments: Vec<Argument>,
    lines: Lines,
}

/// Argument of a directive, unquoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    pub(crate) text: Vec<u8>,
    /// Offset of its first byte in the logical line.
    start: usize,
    /// Offsets in `text` after which one backslash of the source was removed.
    removed: Vec<usize>,
}

/// Physical lines of a logical line: the offset at which each begins, and its number.
#[derive(Clone, Debug)]
struct Lines {
    file: Arc<str>,
    starts: Vec<(usize, u32)>,
}

impl Lines {
    fn place(&self, offset: usize) -> RulePlace {
        let index = self.starts.partition_point(|&(start, _)| start <= offset).saturating_sub(1);
        let (start, line) = self.starts[index];
        RulePlace {
            file: Arc::clone(&self.file),
            line,
            column: u32::try_from(offset - start + 1).unwrap_or(u32::MAX),
        }
    }
}

impl Directive {
    /// Place of the directive's name.
    pub(crate) fn place(&self) -> RulePlace {
        self.lines.place(self.name.start)
    }

    /// Numbers of its physical lines, from 0.
    pub(crate) fn line_numbers(&self) -> std::ops::Range<usize> {
        let number = |line: Option<&(usize, u32)>| line.map_or(0, |&(_, number)| number as usize);
        number(self.lines.starts.first()).saturating_sub(1)..number(self.lines.starts.last())
    }

    /// Place of a byte of one of its arguments.
    pub(crate) fn place_in(&self, argument: &Argument, offset: usize) -> RulePlace {
        let removed = argument.removed.iter().filter(|&&at| at <= offset).count();
        self.lines.place(argument.start + offset + removed)
    }
}

impl Argument {
    /// The text as UTF-8, with replacement characters where it is not.
    pub(crate) fn as_str(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.text)
    }

    /// The text from an offset on as the file has it, with the backslashes before its quotes.
    pub(crate) fn as_written(&self, offset: usize) -> Box<[u8]> {
        let (mut written, mut from) = (Vec::new(), offset);
        for &quote in self.removed.iter().filter(|&&quote| quote >= offset) {
            written.extend_from_slice(&self.text[from..quote]);
            written.push(b'\\');
            from = quote;
        }
        written.extend_from_slice(&self.text[from..]);
        written.into()
    }
}

/// Splits a file into directives. Lines that end with a backslash continue on the next line;
/// comments begin with `#`.
pub(crate) fn directives(file: &Arc<str>, text: &[u8]) -> Result<Vec<Directive>, LoadError> {
    let mut found = Vec::new();
    let mut logical = Vec::new();
    let mut starts: Vec<(usize, u32)> = Vec::new();
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut lines = lines(text).zip(1u32..).peekable();
    while let Some((line, number)) = lines.next() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        starts.push((logical.len(), number));
        let trimmed = line.trim_ascii_end();
        if let Some(continued) = trimmed.strip_suffix(b"\\")
            && lines.peek().is_some()
        {
            logical.extend_from_slice(continued);
            continue;
        }
        logical.extend_from_slice(line);
        let lines = Lines { file: Arc::clone(file), starts: std::mem::take(&mut starts) };
        if let Some(directive) = directive(&logical, lines)? {
            found.push(directive);
        }
        logical.clear();
    }
    Ok(found)
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = memchr::memchr_iter(b'\n', text).chain([text.len()]);
    ends.scan(0, |start, end| Some(&text[std::mem::replace(start, end + 1)..end]))
}

fn directive(line: &[u8], lines: Lines) -> Result<Option<Directive>, LoadError> {
    let mut at = skip_blanks(line, 0);
    if at == line.len() || line[at] == b'#' {
        return Ok(None);
    }
    let (name, next) = argument(line, at, &lines)?;
    at = next;
    let mut arguments = Vec::new();
    loop {
        at = skip_blanks(line, at);
        if at == line.len() {
            return Ok(Some(Directive { name, arguments, lines }));
        }
        let (argument, next) = argument(line, at, &lines)?;
        arguments.push(argument);
        at = next;
    }
}

fn skip_blanks(line: &[u8], mut at: usize) -> usize {
    while line.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

/// Reads the argument at `at` and returns it with the offset after it. Inside quotes a backslash before
/// the quote is removed; all others are kept.
fn argument(line: &[u8], at: usize, lines: &Lines) -> Result<(Argument, usize), LoadError> {
    let quote = line[at];
    if !matches!(quote, b'"' | b'\'') {
        let length = line[at..].iter().position(u8::is_ascii_whitespace);
        let end = length.map_or(line.len(), |length| at + length);
        let text = line[at..end].to_vec();
        return Ok((Argument { text, start: at, removed: Vec::new() }, end));
    }
    let start = at + 1;
    let mut argument = Argument { text: Vec::new(), start, removed: Vec::new() };
    // Bytes from `rest` on are not copied yet.
    let (mut at, mut rest) = (start, start);
    while let Some(found) = memchr::memchr2(quote, b'\\', &line[at..]) {
        at += found;
        if line[at] == quote {
            argument.text.extend_from_slice(&line[rest..at]);
            return Ok((argument, at + 1));
        }
        at += 1;
        if line.get(at) == Some(&quote) {
            argument.text.extend_from_slice(&line[rest..at - 1]);
            argument.removed.push(argument.text.len());
            rest = at;
            at += 1;
        }
    }
    Err(LoadError::Invalid {
        place: lines.place(start - 1),
        message: format!("no closing {} for this argument", char::from(quote)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<(String, Vec<String>)> {
        directives(&Arc::from("t.conf"), text.as_bytes())
            .unwrap_or_else(|e| panic!("{e}"))
            .iter()
            .map(|d| {
                (
                    d.name.as_str().into_owned(),
                    d.arguments.iter().map(|a| a.as_str().into_owned()).collect(),
                )
            })
            .collect()
    }

    #[test]
    fn joins_continued_lines_and_skips_comments() {
        let text = "# comment \\\n continued\n\nSecRule ARGS \\\n  \"@rx a\\\"b\\d\" \\\n  \"id:1,\\\n   deny\"\r\nSecMarker END\n";
        assert_eq!(
            split(text),
            [
                (
                    "SecRule".into(),
                    vec!["ARGS".into(), "@rx a\"b\\d".into(), "id:1,   deny".into()]
                ),
                ("SecMarker".into(), vec!["END".into()]),
            ]
        );
    }

    #[test]
    fn places_count_through_continuations_and_removed_backslashes() {
        let text = b"\nSecRule ARGS \\\n  \"a\\\"bc\"";
        let found = directives(&Arc::from("t.conf"), text).unwrap_or_else(|e| panic!("{e}"));
        let directive = &found[0];
        assert_eq!(directive.place().to_string(), "t.conf:2:1");
        let argument = &directive.arguments[1];
        assert_eq!(directive.place_in(argument, 0).to_string(), "t.conf:3:4");
        assert_eq!(directive.place_in(argument, 2).to_string(), "t.conf:3:7");
    }

    #[test]
    fn unclosed_quote_names_its_place() {
        let error = directives(&Arc::from("t.conf"), b"SecRule ARGS \"@rx").unwrap_err();
        assert_eq!(error.to_string(), "t.conf:1:14: no closing \" for this argument");
    }
}
