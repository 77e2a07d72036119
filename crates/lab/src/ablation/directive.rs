//! The directives of a file in ModSecurity's language: words, and the actions of a rule.
//!
//! Source: ModSecurity's reference manual, "Configuration Directives" and "Actions".

use std::ops::Range;

/// A directive of one line or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Directive {
    /// The lines that it stands on, counted from 0.
    pub(super) lines: Range<usize>,
    /// Its words, those in quotes without them.
    pub(super) words: Vec<String>,
}

/// What a rule does, or is: a name in lower case, and a value that may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) name: String,
    pub(super) value: String,
}

/// The directives of a text. A line that ends with a backslash goes on in the next one; one that begins
/// with `#` is none.
pub(super) fn directives(text: &str) -> Vec<Directive> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if open.is_none() && (line.is_empty() || line.starts_with('#')) {
            continue;
        }
        let (begin, mut so_far) = open.take().unwrap_or((number, String::new()));
        if let Some(part) = line.strip_suffix('\\') {
            so_far += part;
            open = Some((begin, so_far));
        } else {
            so_far += line;
            found.push(Directive { lines: begin..number + 1, words: words(&so_far) });
        }
    }
    let rest = open.map(|(begin, so_far)| Directive {
        lines: begin..text.lines().count(),
        words: words(&so_far),
    });
    found.extend(rest);
    found
}

impl Directive {
    /// The actions of a rule; none of any other directive, and of a rule without a list of them.
    pub(super) fn actions(&self) -> Vec<Action> {
        let list = match self.words.first().map(String::as_str) {
            Some("SecRule") => self.words.get(3),
            Some("SecAction" | "SecDefaultAction") => self.words.get(1),
            _ => None,
        };
        list.map(|list| actions(list)).unwrap_or_default()
    }
}

/// Words are parted by blanks; in double quotes, where `\"` is a quote itself, they may hold some.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut is_quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if characters.peek() == Some(&'"') => {
                word.get_or_insert_default().extend(characters.next());
            }
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            blank if blank.is_whitespace() && !is_quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

/// Actions are parted by commas, of which a value in single quotes may hold some.
fn actions(list: &str) -> Vec<Action> {
    let mut parts = vec![String::new()];
    let mut is_quoted = false;
    for character in list.chars() {
        match character {
            '\'' => is_quoted = !is_quoted,
            ',' if !is_quoted => parts.push(String::new()),
            other => parts.last_mut().into_iter().for_each(|part| part.push(other)),
        }
    }
    let action = |part: &String| {
        let (name, value) = part.split_once(':').unwrap_or((part, ""));
        Action { name: name.trim().to_lowercase(), value: value.trim().to_owned() }
    };
    parts.iter().map(action).filter(|action| !action.name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directive_may_go_on_over_lines() {
        let text = "# SecAction \\\nSecRule ARGS \"@rx a \\\" b\" \\\n  \"id:1,\\\n  deny\"\n\nSecMarker END\n";
        let found = directives(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].lines, 1..4);
        assert_eq!(found[0].words, ["SecRule", "ARGS", "@rx a \" b", "id:1,deny"]);
        assert_eq!((found[1].lines.clone(), found[1].words.len()), (5..6, 2));
        // The end of the text ends it, too.
        assert_eq!(directives("SecAction \\\n  \"id:1\\\n")[0].lines, 0..2);
    }

    #[test]
    fn commas_in_quotes_part_no_actions() {
        let found = actions("id:1, phase:2,msg:'a, deny: b',Deny,,setvar:'tx.a=%{MATCHED_VAR}'");
        let of =
            |name: &str, value: &str| Action { name: name.to_owned(), value: value.to_owned() };
        assert_eq!(
            found,
            [
                of("id", "1"),
                of("phase", "2"),
                of("msg", "a, deny: b"),
                of("deny", ""),
                of("setvar", "tx.a=%{MATCHED_VAR}")
            ]
        );
    }
}
