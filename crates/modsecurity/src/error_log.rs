//! Lines for the server's error log, in the text form of libmodsecurity, which log readers such as fail2ban, CrowdSec and Wazuh
//! parse.

use std::borrow::Cow;

/// Bytes of an operator's parameter and of a value after escaping, and of `logdata` before; libmodsecurity's limits.
const PARAMETER_MAX: usize = 200;
const VALUE_MAX: usize = 100;
const DATA_MAX: usize = 200;

/// Effect of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The rule was only logged.
    Warning,
    /// The rule ended the transaction with this status in this phase.
    Denied { status: u16, phase: u8 },
}

/// Cause of the match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause<'a> {
    /// A rule without a condition.
    Unconditional,
    /// A library's verdict, as a sentence.
    Detected(&'static str),
    Operator {
        name: &'a str,
        parameter: &'a [u8],
        variable: &'a [u8],
        value: &'a [u8],
    },
}

/// Facts of a line, in the order in which they are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorLine<'a> {
    pub(crate) effect: Effect,
    pub(crate) cause: Cause<'a>,
    pub(crate) file: &'a str,
    pub(crate) line: u32,
    pub(crate) id: u64,
    pub(crate) revision: &'a str,
    pub(crate) message: &'a [u8],
    pub(crate) data: &'a [u8],
    /// 0 without a severity.
    pub(crate) severity: u8,
    pub(crate) version: &'a str,
    /// 0 if unset.
    pub(crate) maturity: u8,
    /// 0 if unset.
    pub(crate) accuracy: u8,
    pub(crate) tags: &'a [String],
    pub(crate) hostname: &'a [u8],
    /// Decoded path.
    pub(crate) uri: &'a [u8],
    pub(crate) unique_id: &'a [u8],
}

impl Cause<'_> {
    /// Returns the sentence about the cause, printable ASCII only; empty without a condition.
    pub(crate) fn render(&self) -> String {
        match *self {
            Cause::Unconditional => String::new(),
            Cause::Detected(sentence) => sentence.to_owned(),
            Cause::Operator { name, parameter, variable, value } => format!(
                "Matched \"Operator `{name}' with parameter `{}' against variable `{}' (Value: `{}' )",
                escaped_and_shortened(parameter, PARAMETER_MAX),
                escaped(variable, Quotes::Keep),
                escaped_and_shortened(value, VALUE_MAX),
            ),
        }
    }
}

impl ErrorLine<'_> {
    /// Returns the line, printable ASCII only.
    pub(crate) fn render(&self) -> String {
        let mut text = String::from("ModSecurity: ");
        match self.effect {
            Effect::Warning => text.push_str("Warning. "),
            Effect::Denied { status, phase } => {
                text.push_str(&format!("Access denied with code {status} (phase {phase}). "));
            }
        }
        text.push_str(&self.cause.render());
        text.push_str(&format!(
            " [file \"{}\"] [line \"{}\"] [id \"{}\"] [rev \"{}\"] [msg \"{}\"] [data \"{}\"] [severity \"{}\"] [ver \"{}\"] \
             [maturity \"{}\"] [accuracy \"{}\"]",
            self.file,
            self.line,
            self.id,
            self.revision,
            escaped(self.message, Quotes::Keep),
            escaped(&shortened(self.data, DATA_MAX), Quotes::Escape),
            self.severity,
            self.version,
            self.maturity,
            self.accuracy,
        ));
        for tag in self.tags {
            text.push_str(&format!(" [tag \"{}\"]", escaped(tag.as_bytes(), Quotes::Keep)));
        }
        // libmodsecurity's offsets in a transaction's text, which nothing reads, are left empty.
        text.push_str(&format!(
            " [hostname \"{}\"] [uri \"{}\"] [unique_id \"{}\"] [ref \"\"]",
            escaped(self.hostname, Quotes::Keep),
            escaped(self.uri, Quotes::Keep),
            escaped(self.unique_id, Quotes::Keep),
        ));
        text
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    Keep,
    /// `"` and `\` are escaped as well.
    Escape,
}

fn escaped(bytes: &[u8], quotes: Quotes) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        let is_quote = quotes == Quotes::Escape && matches!(byte, b'"' | b'\\');
        if is_quote || !matches!(byte, b' '..=b'~') {
            text.push_str(&format!("\\x{byte:02x}"));
        } else {
            text.push(char::from(byte));
        }
    }
    text
}

/// The first `limit` bytes of a text, and the number of the others.
fn shortened(text: &[u8], limit: usize) -> Cow<'_, [u8]> {
    match text.split_at_checked(limit) {
        Some((start, rest)) if !rest.is_empty() => {
            [start, format!(" ({} characters omitted)", rest.len()).as_bytes()].concat().into()
        }
        _ => text.into(),
    }
}

fn escaped_and_shortened(text: &[u8], limit: usize) -> String {
    let shown = escaped(text, Quotes::Keep);
    String::from_utf8_lossy(&shortened(shown.as_bytes(), limit)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<'a>(effect: Effect, cause: Cause<'a>, tags: &'a [String]) -> ErrorLine<'a> {
        ErrorLine {
            effect,
            cause,
            file: "/etc/rules.conf",
            line: 9,
            id: 2,
            revision: "2",
            message: b"m \"\n",
            data: b"d \"\\\xff",
            severity: 2,
            version: "V1",
            maturity: 3,
            accuracy: 4,
            tags,
            hostname: b"127.0.0.1",
            uri: b"/p x",
            unique_id: b"id-1",
        }
    }

    const REST: &str = " [file \"/etc/rules.conf\"] [line \"9\"] [id \"2\"] [rev \"2\"] [msg \"m \"\\x0a\"] \
        [data \"d \\x22\\x5c\\xff\"] [severity \"2\"] [ver \"V1\"] [maturity \"3\"] [accuracy \"4\"]";
    const END: &str = " [hostname \"127.0.0.1\"] [uri \"/p x\"] [unique_id \"id-1\"] [ref \"\"]";

    #[test]
    fn match_has_operator_parameter_variable_and_value() {
        let cause = Cause::Operator {
            name: "Rx",
            parameter: b"(a+)b",
            variable: b"ARGS:q",
            value: b"xaab\"\n",
        };
        let tags = ["t1".to_owned(), "t2".to_owned()];
        let text = line(Effect::Warning, cause, &tags).render();
        let start = "ModSecurity: Warning. Matched \"Operator `Rx' with parameter `(a+)b' against variable `ARGS:q' (Value: `xaab\"\\x0a' )";
        assert_eq!(text, format!("{start}{REST} [tag \"t1\"] [tag \"t2\"]{END}"));
    }

    #[test]
    fn denial_has_status_and_phase() {
        let text =
            line(Effect::Denied { status: 406, phase: 2 }, Cause::Unconditional, &[]).render();
        let start = "ModSecurity: Access denied with code 406 (phase 2). ";
        assert_eq!(text, format!("{start}{REST}{END}"));
    }

    #[test]
    fn libinjection_has_a_sentence() {
        let cause = Cause::Detected("detected SQLi using libinjection.");
        let text = line(Effect::Warning, cause, &[]).render();
        let start = "ModSecurity: Warning. detected SQLi using libinjection.";
        assert_eq!(text, format!("{start}{REST}{END}"));
    }

    #[test]
    fn long_parameters_and_values_are_cut_after_escaping() {
        let cut = |text: &[u8]| escaped_and_shortened(text, 100);
        assert_eq!(cut(&[b'x'; 100]), "x".repeat(100));
        assert_eq!(cut(&[b'x'; 152]), format!("{} (52 characters omitted)", "x".repeat(100)));
        let escapes = "\\x0a".repeat(25);
        assert_eq!(cut(&[b'\n'; 26]), format!("{escapes} (4 characters omitted)"));
    }

    #[test]
    fn long_data_is_cut_before_escaping() {
        let data = [b'"'; 202];
        let line = ErrorLine { data: &data, ..line(Effect::Warning, Cause::Unconditional, &[]) };
        let quotes = "\\x22".repeat(200);
        let text = line.render();
        assert!(text.contains(&format!("[data \"{quotes} (2 characters omitted)\"]")), "{text}");
    }
}
