//! Goals as people write them.

use super::Slo;
use super::goal::{Figure, Goal, Limit, Relation};
use crate::inputs::toml_file::suggestion;
use std::str::FromStr;
use thiserror::Error;

/// Goals that cannot be.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SloError {
    /// There is none.
    #[error("there is no goal; write one such as p99<5ms, or several: p99<5ms,errors<0.1%")]
    Empty,
    /// A part is not of the form.
    #[error("`{goal}` is not a goal such as p99<5ms or errors<0.1%")]
    Form {
        /// The part.
        goal: String,
    },
    /// There is no such figure.
    #[error("`{goal}`: there is no figure `{figure}`{hint}")]
    Figure {
        /// The goal.
        goal: String,
        /// What stands before its `<`.
        figure: String,
        /// The nearest that exists.
        hint: String,
    },
    /// The limit is not one that the figure may have.
    #[error("`{goal}`: {needs}")]
    Limit {
        /// The goal.
        goal: String,
        /// What it needs instead.
        needs: &'static str,
    },
    /// A figure has two goals.
    #[error("`{figure}` has two goals; leave out one")]
    Twice {
        /// The figure.
        figure: &'static str,
    },
}

/// Where no goal is about errors, a system that refuses most requests at once would keep every
/// latency. So then this one is kept besides.
const DEFAULT_ERRORS: (&str, f64) = ("1%", 0.01);

impl FromStr for Slo {
    type Err = SloError;

    fn from_str(text: &str) -> Result<Self, SloError> {
        if text.trim().is_empty() {
            return Err(SloError::Empty);
        }
        let mut goals: Vec<Goal> = Vec::new();
        for part in text.split(',') {
            let goal: Goal = part.trim().parse()?;
            if goals.iter().any(|other| other.figure == goal.figure) {
                return Err(SloError::Twice { figure: goal.figure.name() });
            }
            goals.push(goal);
        }
        if !goals.iter().any(|goal| goal.figure == Figure::Errors) {
            let (text, value) = DEFAULT_ERRORS;
            let limit = Limit { text: text.to_owned(), value };
            goals.push(Goal { figure: Figure::Errors, relation: Relation::Below, limit });
        }
        Ok(Self { goals })
    }
}

impl FromStr for Goal {
    type Err = SloError;

    fn from_str(text: &str) -> Result<Self, SloError> {
        let goal = || text.to_owned();
        let (name, rest) = text.split_once('<').ok_or_else(|| SloError::Form { goal: goal() })?;
        let name = name.trim();
        let (relation, limit) = match rest.strip_prefix('=') {
            Some(rest) => (Relation::AtMost, rest.trim()),
            None => (Relation::Below, rest.trim()),
        };
        if name.is_empty() || limit.is_empty() {
            return Err(SloError::Form { goal: goal() });
        }
        let figure = Figure::ALL.into_iter().find(|figure| figure.name() == name);
        let figure = figure.ok_or_else(|| SloError::Figure {
            goal: goal(),
            figure: name.to_owned(),
            hint: suggestion(name, Figure::ALL.iter().map(|figure| figure.name())),
        })?;
        let value = if figure.is_share() { share(limit) } else { latency_ns(limit) };
        let value = value.map_err(|needs| SloError::Limit { goal: goal(), needs })?;
        let text = limit.split_whitespace().collect();
        Ok(Self { figure, relation, limit: Limit { text, value } })
    }
}

const UNITS_NS: [(&str, f64); 4] = [("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
const LATENCY_MAX_NS: f64 = 3.6e12;
const SHARE_MIN: f64 = 1e-6;

fn latency_ns(text: &str) -> Result<f64, &'static str> {
    let needs_unit = "a latency is a number with its unit, us, ms or s, such as 5ms";
    let unit = UNITS_NS.into_iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, ns)));
    let (number, ns) = unit.ok_or(needs_unit)?;
    let value = ns * decimal(number).ok_or(needs_unit)?;
    match (1e3..=LATENCY_MAX_NS).contains(&value) {
        true => Ok(value),
        false => Err("a latency has to be from 1us to 3600s"),
    }
}

fn share(text: &str) -> Result<f64, &'static str> {
    let needs_percent = "a share is a number with its unit, such as 0.1%";
    let number = text.strip_suffix('%').ok_or(needs_percent)?;
    let value = decimal(number).ok_or(needs_percent)? / 100.0;
    match (SHARE_MIN..=1.0).contains(&value) {
        true => Ok(value),
        false => Err("a share has to be from 0.0001% to 100%"),
    }
}

/// A number as people write it: digits with at most one point, and neither sign nor exponent.
fn decimal(text: &str) -> Option<f64> {
    let text = text.trim();
    let is_plain = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    is_plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slo(text: &str) -> Slo {
        text.parse().unwrap()
    }

    fn error(text: &str) -> String {
        text.parse::<Slo>().unwrap_err().to_string()
    }

    #[test]
    fn goals_are_read_and_written_back() {
        for (text, written) in [
            ("p99<5ms,errors<0.1%", "p99<5ms,errors<0.1%"),
            (
                " p50 < 200 us , max<=1.5s,unexpected < 2 %",
                "p50<200us,max<=1.5s,unexpected<2%,errors<1%",
            ),
            ("mean<1ms", "mean<1ms,errors<1%"),
            ("p99.9<700µs", "p99.9<700µs,errors<1%"),
            ("errors<0.01%", "errors<0.01%"),
            ("errors <= 1 %", "errors<=1%"),
        ] {
            assert_eq!(slo(text).to_string(), written);
            assert_eq!(slo(written), slo(text));
        }
    }

    #[test]
    fn what_is_no_goal_is_told_with_what_would_be_one() {
        let unit = "a latency is a number with its unit, us, ms or s, such as 5ms";
        let percent = "a share is a number with its unit, such as 0.1%";
        for (text, told) in [
            (
                "",
                "there is no goal; write one such as p99<5ms, or several: p99<5ms,errors<0.1%"
                    .to_owned(),
            ),
            ("p99", "`p99` is not a goal such as p99<5ms or errors<0.1%".to_owned()),
            ("p99<5ms,", "`` is not a goal such as p99<5ms or errors<0.1%".to_owned()),
            ("<5ms", "`<5ms` is not a goal such as p99<5ms or errors<0.1%".to_owned()),
            ("p99<", "`p99<` is not a goal such as p99<5ms or errors<0.1%".to_owned()),
            ("p99>5ms", "`p99>5ms` is not a goal such as p99<5ms or errors<0.1%".to_owned()),
            ("p999<5ms", "`p999<5ms`: there is no figure `p999`; did you mean `p99`?".to_owned()),
            ("p99<5", format!("`p99<5`: {unit}")),
            ("p99<ms", format!("`p99<ms`: {unit}")),
            ("p99<-5ms", format!("`p99<-5ms`: {unit}")),
            ("p99<1e3ms", format!("`p99<1e3ms`: {unit}")),
            ("p99<5%", format!("`p99<5%`: {unit}")),
            ("max<0ms", "`max<0ms`: a latency has to be from 1us to 3600s".to_owned()),
            ("max<3601s", "`max<3601s`: a latency has to be from 1us to 3600s".to_owned()),
            ("errors<1", format!("`errors<1`: {percent}")),
            ("errors<1.2.3%", format!("`errors<1.2.3%`: {percent}")),
            ("errors<0%", "`errors<0%`: a share has to be from 0.0001% to 100%".to_owned()),
            ("errors<101%", "`errors<101%`: a share has to be from 0.0001% to 100%".to_owned()),
            ("p99<5ms,p99<6ms", "`p99` has two goals; leave out one".to_owned()),
        ] {
            assert_eq!(error(text), told, "{text}");
        }
    }
}
