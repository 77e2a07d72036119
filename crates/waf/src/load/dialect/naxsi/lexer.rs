//! Directives of naxsi and their words, with their places.

use std::sync::Arc;

use crate::error::{Fault, LoadError, RulePlace};

/// Word of a directive.
pub(super) struct Word {
    pub(super) text: String,
    pub(super) place: RulePlace,
}

impl Word {
    pub(super) fn invalid(&self, message: impl Into<String>) -> LoadError {
        LoadError::Invalid { place: self.place.clone(), message: message.into() }
    }
}

/// Adds a place to a fault.
pub(super) fn at(place: &RulePlace, fault: Fault) -> LoadError {
    let (place, message) = (place.clone(), fault.message);
    if fault.unsupported {
        LoadError::Unsupported { place, message }
    } else {
        LoadError::Invalid { place, message }
    }
}

/// Splits a file into directives and their words, quoted as in the configuration of nginx.
pub(super) fn directives(file: &Arc<str>, text: &[u8]) -> Result<Vec<Vec<Word>>, LoadError> {
    let place = |line: u32, column: usize| RulePlace {
        file: Arc::clone(file),
        line,
        column: u32::try_from(column + 1).unwrap_or(u32::MAX),
    };
    let text = std::str::from_utf8(text).map_err(|error| LoadError::Invalid {
        place: place(1, 0),
        message: format!("the file is not UTF-8: {error}"),
    })?;
    let mut found = Vec::new();
    let mut words: Vec<Word> = Vec::new();
    let (mut line, mut line_start) = (1, 0);
    let mut rest = text.char_indices().peekable();
    while let Some((start, first)) = rest.next() {
        let place = place(line, start - line_start);
        let invalid =
            |message: &str| LoadError::Invalid { place: place.clone(), message: message.into() };
        match first {
            '\n' => (line, line_start) = (line + 1, start + 1),
            ';' if words.is_empty() => return Err(invalid("a directive is missing")),
            ';' => found.push(std::mem::take(&mut words)),
            '{' | '}' => return Err(invalid("blocks are not supported, only directives of naxsi")),
            '#' => while rest.next_if(|&(_, next)| next != '\n').is_some() {},
            _ if first.is_whitespace() => {}
            _ => {
                let quote = matches!(first, '"' | '\'').then_some(first);
                let mut word = String::new();
                let mut next = if quote.is_some() { rest.next() } else { Some((start, first)) };
                loop {
                    match next {
                        Some((_, end)) if Some(end) == quote => break,
                        None => return Err(invalid("the quoted word has no end")),
                        Some((_, '\\')) => word.push_str(&match rest.next() {
                            Some((_, escaped @ ('"' | '\'' | '\\'))) => escaped.to_string(),
                            Some((_, 't')) => "\t".into(),
                            Some((_, 'r')) => "\r".into(),
                            Some((_, 'n')) => "\n".into(),
                            Some((_, other)) => format!("\\{other}"),
                            None => return Err(invalid("the file ends within a word")),
                        }),
                        Some((at, one)) => {
                            if one == '\n' {
                                (line, line_start) = (line + 1, at + 1);
                            }
                            word.push(one);
                        }
                    }
                    if quote.is_none() {
                        let ends = |&(_, next): &(usize, char)| next.is_whitespace() || next == ';';
                        if rest.peek().is_none_or(ends) {
                            break;
                        }
                    }
                    next = rest.next();
                }
                words.push(Word { text: word, place });
            }
        }
    }
    match words.first() {
        None => Ok(found),
        Some(word) => Err(word.invalid("the directive does not end with `;`")),
    }
}
