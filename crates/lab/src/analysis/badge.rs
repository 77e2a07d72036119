//! In a word and in a sentence: whether the prices of a run are settled.

use super::{CaseAnalysis, Metric, Range, SubjectAnalysis};
use crate::plan::stop::EndedBy;
use crate::report::number::{relative, share};
use crate::report::rows::counted;
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_stats::{Verdict, blocks_to_settle};

/// Whether the prices of a run are settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Badge {
    /// Every price in CPU per request has a verdict.
    Settled,
    /// One has none yet.
    NotSettled,
    /// The baseline differs from itself, so that the others' differences may be noise too.
    AaFailed,
    /// There is no price.
    NoPrice,
}

impl Badge {
    /// The badge of a case.
    pub(super) fn of(subjects: &[SubjectAnalysis], noise_floor: Option<&Range>) -> Self {
        let mut verdicts = subjects.iter().filter_map(verdict_on_cpu).peekable();
        if noise_floor.is_some_and(Range::excludes_one) {
            Self::AaFailed
        } else if verdicts.peek().is_none() {
            Self::NoPrice
        } else if verdicts.any(|verdict| verdict == Verdict::NotSettled) {
            Self::NotSettled
        } else {
            Self::Settled
        }
    }

    /// The badge in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::NotSettled => "not settled",
            Self::AaFailed => "A/A failed",
            Self::NoPrice => "no price",
        }
    }
}

/// The verdict on the CPU per request of a subject that has one.
pub(super) fn verdict_on_cpu(subject: &SubjectAnalysis) -> Option<Verdict> {
    subject.prices.get(&Metric::CpuUsPerRequest)?.verdict
}

/// The badge of a run, and why, in one line: what a reader has to know first.
pub(super) fn settling(
    badge: Badge,
    cases: &[CaseAnalysis],
    ended_by: EndedBy,
    blocks: u32,
) -> String {
    let after = format!("after {} ({ended_by})", counted(blocks as usize, "block"));
    match badge {
        Badge::Settled => format!("Settled {after}."),
        Badge::NoPrice => format!("No price {after}."),
        Badge::NotSettled => {
            let prices = cases.iter().map(judged).max().unwrap_or(0);
            let needed = blocks_to_settle(prices);
            let what_helps = match (blocks as usize) < needed {
                true => {
                    format!("{} together take at least {needed} blocks", counted(prices, "price"))
                }
                false => "more blocks narrow the intervals".to_owned(),
            };
            format!("Not settled {after}: {}; {what_helps}.", open(cases))
        }
        Badge::AaFailed => {
            let floor = cases.iter().filter_map(|case| case.noise_floor).find(Range::excludes_one);
            let by = floor.map_or(String::new(), |floor| {
                format!(
                    " by {} [{}, {}]",
                    relative(floor.estimate),
                    relative(floor.low),
                    relative(floor.high)
                )
            });
            format!(
                "A/A failed {after}: the baseline differs from itself{by}; differences of that size may be noise."
            )
        }
    }
}

/// How many verdicts of a case are judged together: the baseline a second time is judged alone.
fn judged(case: &CaseAnalysis) -> usize {
    let all = case.subjects.iter().filter_map(verdict_on_cpu).count();
    all - usize::from(case.noise_floor.is_some())
}

/// The subjects whose price is not settled.
fn open(cases: &[CaseAnalysis]) -> String {
    let is_open = |subject: &&SubjectAnalysis| verdict_on_cpu(subject) == Some(Verdict::NotSettled);
    let name = |case: &CaseAnalysis, subject: &SubjectAnalysis| match cases.len() {
        1 => subject.name.clone(),
        _ => format!("{} ({})", subject.name, case.case.name),
    };
    let open = cases.iter().flat_map(|case| {
        case.subjects.iter().filter(is_open).map(move |subject| name(case, subject))
    });
    let names: Vec<String> = open.collect();
    names.join(", ")
}

/// What a verdict says, in a word for a table.
pub fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::CostsMore => "more",
        Verdict::CostsLess => "less",
        Verdict::Same => "same",
        Verdict::NotSettled => "open",
    }
}

/// What the words of [`verdict_word`] mean.
pub fn verdict_legend(margin: f64) -> String {
    format!(
        "Verdict on the CPU: costs more, costs less, the same within {}, or open: not settled.",
        share(margin)
    )
}
