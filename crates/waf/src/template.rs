//! Texts with macros: `%{tx.score}`, `%{REQUEST_HEADERS.Host}`.

use crate::error::Fault;
use crate::operator::text::parse_integer;
use crate::variable::Variable;

/// Text in which macros are expanded when a rule runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<Part>,
    /// Numeric value of the text, if it contains no macro.
    number: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Text(Vec<u8>),
    Macro(Macro),
}

/// Reference to one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Macro {
    pub(crate) variable: Variable,
    /// Selector in lower case; empty for variables without names.
    pub(crate) name: Vec<u8>,
    /// Slot of the name if the variable is TX, set when the rule set is completed.
    pub(crate) slot: Option<u32>,
}

impl Template {
    /// Parses a text; a `%{` without `}` is literal.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Fault> {
        let mut parts = Vec::new();
        // Start of the text behind the last macro.
        let mut literal = 0;
        while let Some(found) = memchr::memmem::find(&text[literal..], b"%{") {
            let start = literal + found;
            let Some(length) = memchr::memchr(b'}', &text[start..]) else { break };
            let reference = Macro::parse(&text[start + 2..start + length])
                .map_err(|fault| fault.shifted(start + 2))?;
            if start > literal {
                parts.push(Part::Text(text[literal..start].to_vec()));
            }
            parts.push(Part::Macro(reference));
            literal = start + length + 1;
        }
        if literal < text.len() {
            parts.push(Part::Text(text[literal..].to_vec()));
        }
        let mut template = Self { parts, number: None };
        template.number = template.as_text().map(parse_integer);
        Ok(template)
    }

    /// A text without macros.
    pub(crate) fn literal(text: &[u8]) -> Self {
        let parts = vec![Part::Text(text.to_vec())];
        Self { parts, number: Some(parse_integer(text)) }
    }

    /// Returns the numeric value of the text, if it contains no macro.
    pub(crate) fn as_number(&self) -> Option<i64> {
        self.number
    }

    /// The text, if it contains no macro.
    pub(crate) fn as_text(&self) -> Option<&[u8]> {
        match self.parts.as_slice() {
            [] => Some(b""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns the macro if it is the whole text.
    pub(crate) fn as_macro(&self) -> Option<&Macro> {
        match self.parts.as_slice() {
            [Part::Macro(reference)] => Some(reference),
            _ => None,
        }
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(crate) fn macros(&self) -> impl Iterator<Item = &Macro> {
        self.parts.iter().filter_map(|part| match part {
            Part::Macro(reference) => Some(reference),
            Part::Text(_) => None,
        })
    }

    pub(crate) fn macros_mut(&mut self) -> impl Iterator<Item = &mut Macro> {
        self.parts.iter_mut().filter_map(|part| match part {
            Part::Macro(reference) => Some(reference),
            Part::Text(_) => None,
        })
    }
}

impl Macro {
    fn parse(text: &[u8]) -> Result<Self, Fault> {
        let text = std::str::from_utf8(text)
            .map_err(|error| Fault::invalid(error.valid_up_to(), "macro name is not ASCII"))?;
        let (variable, name) = match text.find(['.', ':']) {
            Some(dot) => (&text[..dot], &text[dot + 1..]),
            None => (text, ""),
        };
        let parsed = Variable::parse(variable).ok_or_else(|| {
            Fault::invalid(
                0,
                format!("unknown variable \"{variable}\" in macro{}", Variable::hint(variable)),
            )
        })?;
        Ok(Self { variable: parsed, name: name.to_ascii_lowercase().into_bytes(), slot: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_text_and_macros() {
        let template = Template::parse(b"Score: %{TX.Anomaly_Score} of %{remote_addr}%")
            .unwrap_or_else(|f| panic!("{f:?}"));
        let reference = |variable, name: &[u8]| {
            Part::Macro(Macro { variable, name: name.to_vec(), slot: None })
        };
        assert_eq!(
            template.parts(),
            [
                Part::Text(b"Score: ".to_vec()),
                reference(Variable::Tx, b"anomaly_score"),
                Part::Text(b" of ".to_vec()),
                reference(Variable::RemoteAddr, b""),
                Part::Text(b"%".to_vec()),
            ]
        );
        assert_eq!(template.as_text(), None);
    }

    #[test]
    fn unknown_variable_is_an_error_with_its_offset() {
        let fault = Template::parse(b"ab %{txx.a}").unwrap_err();
        assert_eq!((fault.offset, fault.message.contains("\"txx\"")), (5, true));
    }

    #[test]
    fn unclosed_macro_is_text() {
        assert_eq!(
            Template::parse(b"100%{x").unwrap_or_else(|f| panic!("{f:?}")).as_text(),
            Some(b"100%{x".as_slice())
        );
    }
}
