//! Variables: what their values are, and how one is drawn for each request.

use crate::script::MAX_SENDS;
use crate::text::is_identifier;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::Deserialize;
use std::ops::RangeInclusive;
use thiserror::Error;

/// A variable as a mix file writes it: exactly one of `list`, `counter` and `range`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VariableFile {
    /// Texts, one of which is drawn for each request; all are equally likely.
    pub list: Option<Vec<String>>,
    /// The first of numbers that count up, request by request, in the order of sending.
    pub counter: Option<i64>,
    /// How far a counter goes from one request to the next; 1 by default.
    pub step: Option<i64>,
    /// The smallest and the largest of whole numbers, one of which is drawn for each request; all
    /// are equally likely.
    pub range: Option<[i64; 2]>,
}

/// What is wrong with a variable.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum VariableError {
    /// The name could not be told from other text in braces.
    #[error("a name has letters, digits and `_`, and does not start with a digit")]
    Name,
    /// There is no way, or more than one, to get a value.
    #[error("it needs exactly one of `list`, `counter` and `range`")]
    Kind,
    /// There is a step and nothing that counts.
    #[error("`step` goes with `counter` only")]
    StepWithoutCounter,
    /// The counter stands still.
    #[error("a `step` of 0 repeats one number; use a `list` of one text")]
    StandsStill,
    /// The counter goes beyond what a number can be.
    #[error("a counter from {from} in steps of {step} leaves 64 bits within {MAX_SENDS} requests")]
    CounterTooFar {
        /// Its first number.
        from: i64,
        /// Its step.
        step: i64,
    },
    /// There is no text to draw.
    #[error("the `list` is empty; give it at least one text")]
    EmptyList,
    /// There are more texts than are checked.
    #[error("the `list` has {0} texts, the limit is {MAX_LIST}")]
    LongList(usize),
    /// There is no number to draw.
    #[error("the `range` [{0}, {1}] is empty; the smaller number comes first")]
    EmptyRange(i64, i64),
}

/// A variable whose parts have been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Variable {
    List(Vec<String>),
    /// `last` is the furthest that it gets within a script.
    Counter {
        from: i64,
        step: i64,
        last: i64,
    },
    Range(RangeInclusive<i64>),
}

impl Variable {
    /// Checks a variable of this name.
    pub(crate) fn check(name: &str, file: VariableFile) -> Result<Self, VariableError> {
        if !is_identifier(name) {
            return Err(VariableError::Name);
        }
        if file.step.is_some() && file.counter.is_none() {
            return Err(VariableError::StepWithoutCounter);
        }
        match (file.list, file.counter, file.range) {
            (Some(list), None, None) if list.is_empty() => Err(VariableError::EmptyList),
            (Some(list), None, None) if list.len() > MAX_LIST => {
                Err(VariableError::LongList(list.len()))
            }
            (Some(list), None, None) => Ok(Self::List(list)),
            (None, Some(from), None) => counter(from, file.step.unwrap_or(1)),
            (None, None, Some([min, max])) if min > max => Err(VariableError::EmptyRange(min, max)),
            (None, None, Some([min, max])) => Ok(Self::Range(min..=max)),
            _ => Err(VariableError::Kind),
        }
    }

    /// The value that a sample shows: the first of a list or counter, the smallest of a range.
    pub(crate) fn first(&self) -> String {
        match self {
            Self::List(list) => list[0].clone(),
            Self::Counter { from, .. } => from.to_string(),
            Self::Range(range) => range.start().to_string(),
        }
    }

    /// Every text of a list. Of numbers, which differ in their length only as far as a request is
    /// concerned, those that are longest and shortest.
    pub(crate) fn candidates(&self) -> Vec<String> {
        let (from, to) = match self {
            Self::List(list) => return list.clone(),
            Self::Counter { from, last, .. } => (*from, *last),
            Self::Range(range) => (*range.start(), *range.end()),
        };
        let mut ends = vec![from.to_string(), to.to_string()];
        if (from.min(to)..=from.max(to)).contains(&0) {
            ends.push("0".to_owned());
        }
        ends
    }

    /// The value for one more request; `used` is how many had one before.
    pub(crate) fn draw(&self, used: i64, rng: &mut ChaCha8Rng) -> String {
        match self {
            Self::List(list) => list[rng.random_range(0..list.len())].clone(),
            Self::Counter { from, step, .. } => (from + step * used).to_string(),
            Self::Range(range) => rng.random_range(range.clone()).to_string(),
        }
    }
}

/// The most texts of one list: each is tried in every template that uses it when a mix is read.
const MAX_LIST: usize = 10_000;

fn counter(from: i64, step: i64) -> Result<Variable, VariableError> {
    if step == 0 {
        return Err(VariableError::StandsStill);
    }
    let length = step.checked_mul(MAX_SENDS as i64 - 1);
    match length.and_then(|length| from.checked_add(length)) {
        Some(last) => Ok(Variable::Counter { from, step, last }),
        None => Err(VariableError::CounterTooFar { from, step }),
    }
}
