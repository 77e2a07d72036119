//! Gates as people write them: `METRIC(SUBJECT[/BASELINE][ @ CASE]) < NUMBER[UNIT]`.

use super::measure::{RATIO, Unit};
use super::{Gate, Measure, Name, Side};
use crate::inputs::toml_file::suggestion;
use std::str::FromStr;
use thiserror::Error;

/// What is wrong with a gate, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{gate}`, column {column}: {message}")]
pub struct GateError {
    gate: String,
    column: usize,
    message: String,
}

impl FromStr for Gate {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, GateError> {
        let text = text.trim();
        let mut scanner = Scanner { gate: text, rest: text };
        let measure = scanner.measure()?;
        scanner.expect("(", "the subject in parentheses")?;
        let subject = scanner.name("a subject's name")?;
        let over = match scanner.take("/") {
            true => Some(scanner.name("the name of the subject to compare with")?),
            false => None,
        };
        let case = match scanner.take("@") {
            true => Some(scanner.name("a case's name")?),
            false => None,
        };
        scanner.expect(")", if case.is_some() { "`)`" } else { "`/`, `@` or `)`" })?;
        if let Some(over) = over.as_ref().filter(|over| over.name == subject.name) {
            let message = format!("`{0}` over `{0}` is always 1", subject.name);
            return Err(scanner.error_at(over.column, message));
        }
        let side = scanner.side()?;
        let bound = scanner.bound(measure, over.is_some())?;
        Ok(Self { text: text.to_owned(), measure, subject, over, case, side, bound })
    }
}

impl Gate {
    /// Whether the run has what the gate names.
    ///
    /// # Errors
    ///
    /// A subject or the case is not there.
    pub fn check(&self, subjects: &[&str], cases: &[&str]) -> Result<(), GateError> {
        let known = |name: &Name, kind: &str, names: &[&str]| match names.contains(&&*name.name) {
            true => Ok(()),
            false => {
                let hint = suggestion(&name.name, names.iter().copied());
                let message = format!("the run has no {kind} `{}`{hint}", name.name);
                Err(GateError { gate: self.text.clone(), column: name.column, message })
            }
        };
        known(&self.subject, "subject", subjects)?;
        self.over.iter().try_for_each(|over| known(over, "subject", subjects))?;
        self.case.iter().try_for_each(|case| known(case, "case", cases))
    }
}

/// Reads a gate from left to right; blanks may stand between any two parts.
struct Scanner<'a> {
    gate: &'a str,
    rest: &'a str,
}

/// Longer ones first, as each begins with a shorter one.
const SIDES: [(&str, Side); 4] =
    [("<=", Side::AtMost), (">=", Side::AtLeast), ("<", Side::Below), (">", Side::Above)];

impl<'a> Scanner<'a> {
    fn measure(&mut self) -> Result<Measure, GateError> {
        let words = || Measure::WORDS.iter().map(|(word, _)| *word);
        let column = self.column();
        let word = self.take_while(is_of_a_name);
        if word.is_empty() {
            let known: Vec<&str> = words().collect();
            let what = format!("a metric ({}), as in `cpu(full/off)<60`", known.join(", "));
            return Err(self.expected(&what));
        }
        let known = Measure::WORDS.iter().find(|(known, _)| *known == word);
        known.map(|(_, measure)| *measure).ok_or_else(|| {
            let hint = suggestion(word, words().collect::<Vec<_>>());
            self.error_at(column, format!("there is no metric `{word}`{hint}"))
        })
    }

    fn name(&mut self, what: &str) -> Result<Name, GateError> {
        let column = self.column();
        let name = self.take_while(is_of_a_name);
        match name.is_empty() {
            true => Err(self.expected(what)),
            false => Ok(Name { name: name.to_owned(), column }),
        }
    }

    fn side(&mut self) -> Result<Side, GateError> {
        let side = SIDES.iter().find(|(sign, _)| self.take(sign));
        side.map(|(_, side)| *side).ok_or_else(|| self.expected("`<`, `<=`, `>` or `>=`"))
    }

    fn bound(&mut self, measure: Measure, is_ratio: bool) -> Result<f64, GateError> {
        let column = self.column();
        let digits = self.take_while(|c| c.is_ascii_digit() || c == '.');
        if digits.is_empty() {
            return Err(self.expected("a number, such as 60 or 1.5"));
        }
        let number: f64 = digits.parse().map_err(|error| {
            self.error_at(column, format!("`{digits}` is not a number ({error})"))
        })?;
        let column = self.column();
        let unit = std::mem::take(&mut self.rest).trim();
        let units: &[Unit] = if is_ratio { &RATIO } else { measure.units() };
        if unit.is_empty() {
            let has_default = is_ratio || !measure.is_share();
            return match units.first().filter(|_| has_default) {
                Some(first) => Ok(number * first.factor),
                None => Err(self.error_at(
                    column,
                    format!("`{}` is a share: write `{digits}%`", measure.word()),
                )),
            };
        }
        match units.iter().find(|known| known.name == unit) {
            Some(known) => Ok(number * known.factor),
            None => {
                let hint = suggestion(unit, units.iter().map(|known| known.name));
                let of = if is_ratio { "a ratio" } else { measure.word() };
                Err(self.error_at(column, format!("`{unit}` is no unit of {of}{hint}")))
            }
        }
    }

    /// Takes what comes next, past blanks, as long as its characters are of a kind.
    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// Whether this came next, past blanks; it is taken then.
    fn take(&mut self, sign: &str) -> bool {
        match self.rest.trim_start().strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, sign: &str, what: &str) -> Result<(), GateError> {
        match self.take(sign) {
            true => Ok(()),
            false => Err(self.expected(what)),
        }
    }

    /// Where what comes next begins, past blanks: characters, from 1.
    fn column(&self) -> usize {
        let taken = self.gate.len() - self.rest.trim_start().len();
        self.gate[..taken].chars().count() + 1
    }

    fn expected(&self, what: &str) -> GateError {
        let found = match self.rest.trim_start().chars().next() {
            Some(character) => format!("found `{character}`"),
            None => "found the end".to_owned(),
        };
        self.error_at(self.column(), format!("expected {what}, {found}"))
    }

    fn error_at(&self, column: usize, message: String) -> GateError {
        GateError { gate: self.gate.to_owned(), column, message }
    }
}

/// The characters of subjects, cases and metrics.
fn is_of_a_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-_.".contains(character)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Metric;
    use proptest::prelude::*;

    fn gate(text: &str) -> Gate {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn error_of(text: &str) -> String {
        text.parse::<Gate>().unwrap_err().to_string()
    }

    #[test]
    fn a_gate_says_what_over_what_under_which_case() {
        let found = gate(" cpu ( full / off @ browse ) <= 1.5 x ");
        assert_eq!(
            found,
            Gate {
                text: "cpu ( full / off @ browse ) <= 1.5 x".to_owned(),
                measure: Measure::Priced(Metric::CpuUsPerRequest),
                subject: Name { name: "full".to_owned(), column: 7 },
                over: Some(Name { name: "off".to_owned(), column: 14 }),
                case: Some(Name { name: "browse".to_owned(), column: 20 }),
                side: Side::AtMost,
                bound: 1.5,
            }
        );
        let short = gate("startup(nginx-again)>3");
        assert_eq!((short.over, short.case, short.side), (None, None, Side::Above));
        assert_eq!(short.subject.name, "nginx-again");
    }

    #[test]
    fn bounds_are_kept_in_the_unit_of_the_records() {
        for (text, bound) in [
            ("cpu(a/b)<60", 60.0),
            ("cpu(a/b)<60x", 60.0),
            ("cpu(a/b)<105%", 1.05),
            ("caught(a/b)>=1", 1.0),
            ("cpu(a)<90", 90.0),
            ("cpu(a)<90us", 90.0),
            ("cpu(a)<90 µs", 90.0),
            ("cpu(a)<0.09ms", 90.0),
            ("throughput(a)>20000", 20_000.0),
            ("throughput(a)>20000/s", 20_000.0),
            ("p50(a)<1.5", 1.5),
            ("p99(a)<1500us", 1.5),
            ("mean(a)<0.5s", 500.0),
            ("startup(a)<250ms", 250.0),
            ("memory(a)<64", 67_108_864.0),
            ("memory(a)<64MiB", 67_108_864.0),
            ("memory(a)<512KiB", 524_288.0),
            ("caught(a)>=99%", 0.99),
            ("alarms(a)<=0%", 0.0),
        ] {
            let found = gate(text).bound;
            assert!((found - bound).abs() <= 1e-12 * bound, "{text}: {found}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_column_and_what_is_known() {
        for (text, told) in [
            (
                "cpuu(full/off)<60",
                "`cpuu(full/off)<60`, column 1: there is no metric `cpuu`; did you mean `cpu`?",
            ),
            (
                "",
                "``, column 1: expected a metric (cpu, throughput, p50, p99, mean, memory, startup, caught, alarms), as in `cpu(full/off)<60`, found the end",
            ),
            (
                "cpu full<60",
                "`cpu full<60`, column 5: expected the subject in parentheses, found `f`",
            ),
            ("cpu()<60", "`cpu()<60`, column 5: expected a subject's name, found `)`"),
            (
                "cpu(full/)<60",
                "`cpu(full/)<60`, column 10: expected the name of the subject to compare with, found `)`",
            ),
            (
                "cpu(full off)<60",
                "`cpu(full off)<60`, column 10: expected `/`, `@` or `)`, found `o`",
            ),
            ("cpu(full @ a b)<60", "`cpu(full @ a b)<60`, column 14: expected `)`, found `b`"),
            ("cpu(full/full)<60", "`cpu(full/full)<60`, column 10: `full` over `full` is always 1"),
            (
                "cpu(full)=60",
                "`cpu(full)=60`, column 10: expected `<`, `<=`, `>` or `>=`, found `=`",
            ),
            (
                "cpu(full)<",
                "`cpu(full)<`, column 11: expected a number, such as 60 or 1.5, found the end",
            ),
            (
                "cpu(full)<-1",
                "`cpu(full)<-1`, column 11: expected a number, such as 60 or 1.5, found `-`",
            ),
            (
                "cpu(full)<1.2.3",
                "`cpu(full)<1.2.3`, column 11: `1.2.3` is not a number (invalid float literal)",
            ),
            (
                "cpu(full)<60x",
                "`cpu(full)<60x`, column 13: `x` is no unit of cpu; there is `us`, `µs`, `ns`, `ms`",
            ),
            (
                "p99(full/off)<5ms",
                "`p99(full/off)<5ms`, column 16: `ms` is no unit of a ratio; there is `x`, `%`",
            ),
            (
                "memory(full)<5MB",
                "`memory(full)<5MB`, column 15: `MB` is no unit of memory; did you mean `MiB`?",
            ),
            ("caught(full)>=1", "`caught(full)>=1`, column 16: `caught` is a share: write `1%`"),
            (
                "cpu(full)<60us extra",
                "`cpu(full)<60us extra`, column 13: `us extra` is no unit of cpu; there is `us`, `µs`, `ns`, `ms`",
            ),
        ] {
            assert_eq!(error_of(text), told);
        }
    }

    #[test]
    fn names_that_the_run_does_not_have_are_told() {
        let check = |text: &str| gate(text).check(&["off", "full"], &["browse"]);
        assert_eq!(check("cpu(full/off @ browse)<60"), Ok(()));
        assert_eq!(check("cpu(off)<60"), Ok(()));
        for (text, told) in [
            (
                "cpu(ful/off)<60",
                "`cpu(ful/off)<60`, column 5: the run has no subject `ful`; did you mean `full`?",
            ),
            (
                "cpu(full/nginx)<60",
                "`cpu(full/nginx)<60`, column 10: the run has no subject `nginx`; there is `off`, `full`",
            ),
            (
                "cpu(full @ brows)<60",
                "`cpu(full @ brows)<60`, column 12: the run has no case `brows`; did you mean `browse`?",
            ),
        ] {
            assert_eq!(check(text).unwrap_err().to_string(), told);
        }
    }

    proptest! {
        /// Whatever is typed is read or refused with a place in it, or right behind it.
        #[test]
        fn no_text_is_too_odd(text in "[a-z(/@)<=>0-9.%µ ]{0,24}") {
            if let Err(GateError { column, .. }) = text.parse::<Gate>() {
                prop_assert!((1..=text.chars().count() + 1).contains(&column), "{} {}", text, column);
            }
        }
    }
}
