//! Rule files as written, for programs that examine or edit them without running them.

use std::ops::Range;
use std::sync::Arc;

use super::dialect::seclang::{action, at_argument, lexer};
use crate::error::LoadError;

/// Directive of a rule file.
#[derive(Debug)]
pub struct Directive {
    /// Line numbers, from 0.
    pub lines: Range<usize>,
    /// Name in lower case.
    pub name: String,
    /// Arguments without quotes.
    pub arguments: Vec<String>,
    /// Actions of `SecRule`, `SecAction` and `SecDefaultAction`; other directives have none. Names
    /// are in lower case; a value may be empty.
    pub actions: Vec<(String, String)>,
}

/// Splits a rule file into directives. Unknown directives and actions are not errors.
pub fn directives(file: &str, text: &str) -> Result<Vec<Directive>, LoadError> {
    let found = lexer::directives(&Arc::from(file), text.as_bytes())?;
    found.iter().map(written).collect()
}

fn written(found: &lexer::Directive) -> Result<Directive, LoadError> {
    let name = found.name.as_str().to_ascii_lowercase();
    let list = match name.as_str() {
        "secrule" => found.arguments.get(2),
        "secaction" | "secdefaultaction" => found.arguments.first(),
        _ => None,
    };
    let actions = match list {
        Some(list) => at_argument(found, list, action::written(&list.as_str()))?,
        None => Vec::new(),
    };
    let arguments = found.arguments.iter().map(|one| one.as_str().into_owned()).collect();
    Ok(Directive { lines: found.line_numbers(), name, arguments, actions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directive_covers_its_continued_lines() -> Result<(), LoadError> {
        let text = "SecRule ARGS \"@rx a \\\" b\" \\\n  \"id:1,\\\n  deny\"\n\nSecMarker END\n";
        let found = directives("t.conf", text)?;
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].lines.clone(), found[0].name.as_str()), (0..3, "secrule"));
        assert_eq!(found[0].arguments, ["ARGS", "@rx a \" b", "id:1,  deny"]);
        assert_eq!((found[1].lines.clone(), found[1].arguments.len()), (4..5, 1));
        assert_eq!(directives("t.conf", "SecAction \\\n  \"id:1\"")?[0].lines, 0..2);
        Ok(())
    }

    #[test]
    fn commas_in_quotes_do_not_separate_actions() -> Result<(), LoadError> {
        let text = "SecAction \"id:1, phase:2,msg:'a, deny: b',Deny,,setvar:'tx.a=%{MATCHED_VAR}',unknown\"";
        let expected = [
            ("id", "1"),
            ("phase", "2"),
            ("msg", "a, deny: b"),
            ("deny", ""),
            ("setvar", "tx.a=%{MATCHED_VAR}"),
            ("unknown", ""),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(directives("t.conf", text)?[0].actions, expected);
        Ok(())
    }

    #[test]
    fn unclosed_quote_names_its_place() {
        let place = |text: &str| directives("t.conf", text).map_err(|error| error.to_string());
        let expected = "t.conf:1:21: no closing ' for this value";
        assert_eq!(place("SecAction \"id:1,msg:'a\"").unwrap_err(), expected);
    }
}
