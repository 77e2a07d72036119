//! Text with places for the values of variables.

/// A text in which `{{NAME}}` stands for the value of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(String),
    /// The variable of this index.
    Variable(usize),
}

/// The names of the variables that a text may use. Each file of a mix declares its own, and they are
/// numbered through.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names<'a> {
    /// Those that the text's own file declares.
    pub(crate) own: &'a [String],
    /// The number of the first of them.
    pub(crate) first: usize,
}

impl Names<'_> {
    fn index(&self, name: &str) -> Option<usize> {
        self.own.iter().position(|known| known == name).map(|position| self.first + position)
    }
}

impl Text {
    /// Reads a text that may use the variables `names`. Braces around anything but an identifier, as
    /// in the attack `{{7*7}}`, are text like any other.
    ///
    /// # Errors
    ///
    /// The first name used that is none of `names`.
    pub(crate) fn parse(text: &str, names: &Names<'_>) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(start) = rest.find(OPEN) {
            let (before, braces) = rest.split_at(start);
            literal.push_str(before);
            let Some(name) = placeholder(braces) else {
                // One brace only: the next may be the first of a variable's.
                literal.push('{');
                rest = &braces[1..];
                continue;
            };
            let index = names.index(name).ok_or(name)?;
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Variable(index));
            rest = &braces[OPEN.len() + name.len() + CLOSE.len()..];
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(Self { pieces })
    }

    /// The variables used, by index, in the order of the text.
    pub(crate) fn variables(&self) -> impl Iterator<Item = usize> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Literal(_) => None,
            Piece::Variable(index) => Some(*index),
        })
    }

    /// The text with `values[i]` in the place of variable `i`.
    pub(crate) fn render(&self, values: &[String]) -> String {
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Literal(literal) => literal.as_str(),
            Piece::Variable(index) => values[*index].as_str(),
        });
        pieces.collect()
    }
}

/// Whether a word can name a variable: letters, digits and `_`, and no digit first.
pub(crate) fn is_identifier(word: &str) -> bool {
    word.bytes().all(is_identifier_byte) && word.bytes().next().is_some_and(|b| !b.is_ascii_digit())
}

const OPEN: &str = "{{";
const CLOSE: &str = "}}";

/// The name between the braces that the text begins with, if it is one.
fn placeholder(braces: &str) -> Option<&str> {
    let inner = braces.strip_prefix(OPEN)?;
    let end = inner.bytes().position(|byte| !is_identifier_byte(byte))?;
    let (name, after) = inner.split_at(end);
    (is_identifier(name) && after.starts_with(CLOSE)).then_some(name)
}

fn is_identifier_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rendered(text: &str) -> String {
        let own = ["id".to_owned(), "_b2".to_owned()];
        let values = ["another file's".to_owned(), "7".to_owned(), "{{id}}".to_owned()];
        Text::parse(text, &Names { own: &own, first: 1 }).unwrap().render(&values)
    }

    #[test]
    fn variables_are_replaced_and_their_values_are_not_read_again() {
        assert_eq!(rendered("/p/{{id}}"), "/p/7");
        assert_eq!(rendered("{{id}}{{id}}-{{_b2}}"), "77-{{id}}");
        assert_eq!(rendered("{\"a\":{{{id}}}}"), "{\"a\":{7}}");
        assert_eq!(rendered(""), "");
    }

    #[test]
    fn braces_around_anything_else_are_text() {
        for text in [
            "{{7*7}}", "{{ id }}", "{{}}", "{{7}}", "{{2id}}", "{{id}", "{id}", "{{id", "{{", "{",
            "}}", "{{é}}", "{{a-b}}", "{{{{",
        ] {
            assert_eq!(rendered(text), text);
        }
    }

    #[test]
    fn a_name_that_is_not_there_is_the_error() {
        let names = Names { own: &["id".to_owned()], first: 0 };
        assert_eq!(Text::parse("{{7*7}} {{idd}} {{x}}", &names), Err("idd".to_owned()));
    }

    proptest! {
        #[test]
        fn a_text_without_double_braces_stays_as_it_is(text in "([^{]|\\{[^{])*") {
            prop_assert_eq!(rendered(&text), text);
        }

        #[test]
        fn no_text_is_too_odd_to_read(text in "[{}a-c0_é]{0,20}") {
            // What is not a variable is kept, so only a name can be refused.
            if let Err(name) = Text::parse(&text, &Names { own: &[], first: 0 }) {
                let placeholder = format!("{{{{{name}}}}}");
                prop_assert!(text.contains(&placeholder));
            }
        }
    }
}
