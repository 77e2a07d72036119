//! Conditions on figures, such as `cpu(full/off @ browse)<60` and `p99<=5ms`: the one grammar of thresholds of a run or
//! a comparison and of goals of a search.
//!
//! ```text
//! condition = metric [ "(" subject [ "/" baseline ] [ "@" case ] ")" ] relation number [ unit ]
//! relation  = "<" | "<=" | ">" | ">="
//! ```

use thiserror::Error;
use tollgate_records::error::suggestion;

/// The use of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Without operands.
    Goal,
    /// With operands; a ratio if there is a baseline.
    Threshold,
    /// With operands; always a ratio, of a new run to an old one.
    Change,
}

/// A parsed condition. The caller gives the metric its meaning.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    pub metric: Word,
    pub operands: Option<Operands>,
    pub relation: Relation,
    pub limit: Limit,
}

/// The subject of a condition, and optionally a baseline and a case.
#[derive(Debug, Clone, PartialEq)]
pub struct Operands {
    pub subject: Word,
    /// The condition is on the ratio to this subject.
    pub baseline: Option<Word>,
    /// `None`: the condition applies to every case.
    pub case: Option<Word>,
}

/// A word and its first column, counted in characters from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    pub name: String,
    pub column: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    Below,
    AtMost,
    Above,
    AtLeast,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// The number with its unit, without spaces.
    pub text: String,
    /// In the base unit of the metric's [`Dimension`], or a ratio.
    pub value: f64,
}

/// The kind of a metric, which decides its units. The base unit is the one with factor 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    CpuTime,
    Rate,
    Latency,
    Memory,
    /// From 0 to 1, written in percent.
    Share,
}

/// Error in a condition, with its column.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{condition}`, column {column}: {message}")]
pub struct ConditionError {
    condition: String,
    column: usize,
    message: String,
}

/// Units with their factors. Without a unit, a number is in the first one; a share needs its `%`.
type Units = &'static [(&'static str, f64)];

const RATIO: Units = &[("x", 1.0), ("%", 0.01)];

/// Longer signs first, because each starts with a shorter one.
const RELATIONS: [(&str, Relation); 4] = [
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("<", Relation::Below),
    (">", Relation::Above),
];

impl Condition {
    /// Parses a condition on one of `metrics`.
    pub fn parse(
        text: &str,
        metrics: &[(&str, Dimension)],
        form: Form,
    ) -> Result<Self, ConditionError> {
        let mut scanner = Scanner { text: text.trim(), rest: text.trim() };
        let (metric, dimension) = scanner.metric(metrics)?;
        let operands = (form != Form::Goal).then(|| scanner.operands()).transpose()?;
        let relation = scanner.relation()?;
        let has_baseline = operands.as_ref().is_some_and(|operands| operands.baseline.is_some());
        let is_ratio = has_baseline || form == Form::Change;
        let limit = scanner.limit(&metric.name, dimension, is_ratio)?;
        Ok(Self { metric, operands, relation, limit })
    }
}

impl ConditionError {
    pub fn new(condition: &str, column: usize, message: String) -> Self {
        Self { condition: condition.to_owned(), column, message }
    }
}

impl Relation {
    pub fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Self::Below => value < limit,
            Self::AtMost => value <= limit,
            Self::Above => value > limit,
            Self::AtLeast => value >= limit,
        }
    }

    pub fn sign(self) -> &'static str {
        let known = RELATIONS.iter().find(|(_, relation)| *relation == self);
        known.map_or("", |(sign, _)| sign)
    }
}

impl Dimension {
    fn units(self) -> Units {
        match self {
            Self::CpuTime => &[("us", 1.0), ("µs", 1.0), ("ns", 1e-3), ("ms", 1e3)],
            Self::Rate => &[("/s", 1.0)],
            Self::Latency => &[("ms", 1.0), ("us", 1e-3), ("µs", 1e-3), ("s", 1e3)],
            Self::Memory => {
                &[("MiB", 1_048_576.0), ("KiB", 1_024.0), ("GiB", 1_073_741_824.0), ("B", 1.0)]
            }
            Self::Share => &[("%", 0.01)],
        }
    }
}

/// Reads a condition from left to right; spaces are allowed between any two parts.
struct Scanner<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    fn metric(
        &mut self,
        metrics: &[(&str, Dimension)],
    ) -> Result<(Word, Dimension), ConditionError> {
        let names = || metrics.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let word = self.word(&format!("a metric ({})", names().join(", ")))?;
        match metrics.iter().find(|(name, _)| *name == word.name) {
            Some((_, dimension)) => Ok((word, *dimension)),
            None => {
                let hint = suggestion(&word.name, names());
                Err(self.error_at(word.column, format!("unknown metric `{}`{hint}", word.name)))
            }
        }
    }

    fn operands(&mut self) -> Result<Operands, ConditionError> {
        self.expect("(", "`(` and the name of a subject")?;
        let subject = self.word("the name of a subject")?;
        let baseline = self.take("/").then(|| self.word("the name of the baseline")).transpose()?;
        let case = self.take("@").then(|| self.word("the name of a case")).transpose()?;
        self.expect(")", if case.is_some() { "`)`" } else { "`/`, `@` or `)`" })?;
        if let Some(baseline) = baseline.as_ref().filter(|baseline| baseline.name == subject.name) {
            let message = format!("the ratio of `{0}` to `{0}` is always 1", subject.name);
            return Err(self.error_at(baseline.column, message));
        }
        Ok(Operands { subject, baseline, case })
    }

    fn relation(&mut self) -> Result<Relation, ConditionError> {
        let relation = RELATIONS.iter().find(|(sign, _)| self.take(sign));
        relation
            .map(|(_, relation)| *relation)
            .ok_or_else(|| self.expected("`<`, `<=`, `>` or `>=`"))
    }

    fn limit(
        &mut self,
        metric: &str,
        dimension: Dimension,
        is_ratio: bool,
    ) -> Result<Limit, ConditionError> {
        let column = self.column();
        let digits = self.take_while(|c| c.is_ascii_digit() || c == '.');
        if digits.is_empty() {
            return Err(self.expected("a number, such as 60 or 1.5"));
        }
        let number: f64 = digits.parse().map_err(|error| {
            self.error_at(column, format!("`{digits}` is not a number ({error})"))
        })?;
        let column = self.column();
        let given = std::mem::take(&mut self.rest).trim();
        let units = if is_ratio { RATIO } else { dimension.units() };
        if given.is_empty() && dimension == Dimension::Share && !is_ratio {
            let message = format!("`{metric}` is a percentage: write `{digits}%`");
            return Err(self.error_at(column, message));
        }
        let unit = units.iter().find(|(name, _)| given.is_empty() || *name == given);
        let Some((name, factor)) = unit else {
            let hint = suggestion(given, units.iter().map(|(name, _)| *name));
            let figure = if is_ratio { "a ratio" } else { metric };
            return Err(self.error_at(column, format!("`{given}` is not a unit of {figure}{hint}")));
        };
        Ok(Limit { text: format!("{digits}{name}"), value: number * factor })
    }

    fn word(&mut self, what: &str) -> Result<Word, ConditionError> {
        let column = self.column();
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if name.is_empty() {
            Err(self.expected(what))
        } else {
            Ok(Word { name: name.to_owned(), column })
        }
    }

    fn expect(&mut self, sign: &str, what: &str) -> Result<(), ConditionError> {
        if self.take(sign) { Ok(()) } else { Err(self.expected(what)) }
    }

    /// Takes the next characters that satisfy `is_part`, after spaces.
    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// Takes `sign` if it is next, after spaces.
    fn take(&mut self, sign: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(sign);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn column(&self) -> usize {
        let taken = self.text.len() - self.rest.trim_start().len();
        self.text[..taken].chars().count() + 1
    }

    fn expected(&self, what: &str) -> ConditionError {
        let found = match self.rest.trim_start().chars().next() {
            Some(character) => format!("found `{character}`"),
            None => "found the end".to_owned(),
        };
        self.error_at(self.column(), format!("expected {what}, {found}"))
    }

    fn error_at(&self, column: usize, message: String) -> ConditionError {
        ConditionError::new(self.text, column, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const METRICS: [(&str, Dimension); 5] = [
        ("cpu", Dimension::CpuTime),
        ("rate", Dimension::Rate),
        ("p99", Dimension::Latency),
        ("memory", Dimension::Memory),
        ("errors", Dimension::Share),
    ];

    fn parse(text: &str) -> Result<Condition, ConditionError> {
        Condition::parse(text, &METRICS, Form::Threshold)
    }

    #[test]
    fn parses_all_parts_with_spaces_between_them() {
        let word = |name: &str, column| Word { name: name.to_owned(), column };
        let full = parse(" cpu ( full / off @ browse ) <= 1.5 x ").unwrap();
        let operands = Operands {
            subject: word("full", 7),
            baseline: Some(word("off", 14)),
            case: Some(word("browse", 20)),
        };
        let limit = Limit { text: "1.5x".to_owned(), value: 1.5 };
        let expected = Condition {
            metric: word("cpu", 1),
            operands: Some(operands),
            relation: Relation::AtMost,
            limit,
        };
        assert_eq!(full, expected);
        let short = Condition::parse("errors>3%", &METRICS, Form::Goal).unwrap();
        assert_eq!((short.operands, short.relation), (None, Relation::Above));
    }

    #[test]
    fn converts_limits_to_the_base_unit() {
        for (text, value) in [
            ("cpu(a/b)<60", 60.0),
            ("cpu(a/b)<60x", 60.0),
            ("cpu(a/b)<105%", 1.05),
            ("errors(a/b)>=1", 1.0),
            ("cpu(a)<90", 90.0),
            ("cpu(a)<90 µs", 90.0),
            ("cpu(a)<0.09ms", 90.0),
            ("rate(a)>20000/s", 20_000.0),
            ("p99(a)<1.5", 1.5),
            ("p99(a)<1500us", 1.5),
            ("p99(a)<0.5s", 500.0),
            ("memory(a)<64", 67_108_864.0),
            ("memory(a)<512KiB", 524_288.0),
            ("errors(a)<=99%", 0.99),
        ] {
            let found = parse(text).unwrap().limit.value;
            assert!((found - value).abs() <= 1e-12 * value, "{text}: {found}");
        }
    }

    #[test]
    fn limit_of_a_change_is_a_ratio() {
        let limit = |text: &str| {
            let condition = Condition::parse(text, &METRICS, Form::Change);
            condition.map(|condition| condition.limit.value).map_err(|error| error.to_string())
        };
        assert_eq!(limit("cpu(full)<105%"), Ok(1.05));
        assert_eq!(limit("p99(full/off)<1.5"), Ok(1.5));
        let error = limit("cpu(full)<5us").unwrap_err();
        assert!(error.contains("column 12: `us` is not a unit of a ratio"), "{error}");
    }

    #[test]
    fn errors_name_the_column_and_what_is_expected() {
        for (text, column, message) in [
            ("cpuu(full/off)<60", 1, "unknown metric `cpuu`; did you mean `cpu`?"),
            ("", 1, "expected a metric (cpu, rate, p99, memory, errors), found the end"),
            ("cpu full<60", 5, "expected `(` and the name of a subject, found `f`"),
            ("cpu()<60", 5, "expected the name of a subject, found `)`"),
            ("cpu(full/)<60", 10, "expected the name of the baseline, found `)`"),
            ("cpu(full off)<60", 10, "expected `/`, `@` or `)`, found `o`"),
            ("cpu(full @ a b)<60", 14, "expected `)`, found `b`"),
            ("cpu(full/full)<60", 10, "the ratio of `full` to `full` is always 1"),
            ("cpu(full)=60", 10, "expected `<`, `<=`, `>` or `>=`, found `=`"),
            ("cpu(full)<", 11, "expected a number, such as 60 or 1.5, found the end"),
            ("cpu(full)<-1", 11, "expected a number, such as 60 or 1.5, found `-`"),
            ("cpu(full)<1.2.3", 11, "`1.2.3` is not a number (invalid float literal)"),
            ("cpu(full)<60x", 13, "`x` is not a unit of cpu"),
            ("p99(full/off)<5ms", 16, "`ms` is not a unit of a ratio"),
            ("memory(full)<5MB", 15, "`MB` is not a unit of memory; did you mean `MiB`?"),
            ("errors(full)>=1", 16, "`errors` is a percentage: write `1%`"),
            ("cpu(full)<60us extra", 13, "`us extra` is not a unit of cpu"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            let expected = format!("`{text}`, column {column}: {message}");
            assert!(error.starts_with(&expected), "{error}\n{expected}");
        }
    }

    proptest! {
        #[test]
        fn errors_point_into_the_text_or_just_behind_it(text in "[a-z(/@)<=>0-9.%µ ]{0,24}") {
            for form in [Form::Goal, Form::Threshold, Form::Change] {
                if let Err(error) = Condition::parse(&text, &METRICS, form) {
                    prop_assert!((1..=text.chars().count() + 1).contains(&error.column), "{error}");
                }
            }
        }
    }
}
