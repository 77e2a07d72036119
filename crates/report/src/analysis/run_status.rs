//! The status of a run: whether its prices have verdicts.

use crate::analysis::{CaseAnalysis, Range, SubjectAnalysis};
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_experiment::metric::Metric;
use tollgate_experiment::stop::EndedBy;
use tollgate_stats::number::counted;
use tollgate_stats::number::{relative, share};
use tollgate_stats::{BLOCKS_MIN, Verdict};

/// The status of the prices of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunStatus {
    /// Every price in CPU per request has a verdict.
    Settled,
    /// At least one price has no verdict yet.
    NotSettled,
    /// The repeated baseline differs significantly from the baseline, so other differences may be noise.
    AaFailed,
    /// There is no price.
    NoPrice,
}

impl RunStatus {
    pub(super) fn of<'a>(
        subjects: impl Iterator<Item = &'a SubjectAnalysis>,
        noise_floor: Option<&Range>,
    ) -> Self {
        let mut verdicts = subjects.filter_map(verdict_on_cpu).peekable();
        if noise_floor.is_some_and(Range::excludes_one) {
            Self::AaFailed
        } else if verdicts.peek().is_none() {
            // An A/A comparison alone is a complete run.
            match noise_floor.is_some_and(|floor| floor.interval) {
                true => Self::Settled,
                false => Self::NoPrice,
            }
        } else if verdicts.any(|verdict| verdict == Verdict::Inconclusive) {
            Self::NotSettled
        } else {
            Self::Settled
        }
    }

    /// The status of a run: one failed A/A comparison fails the run, and a case
    /// without a price leaves it not settled.
    pub(super) fn of_all(cases: &[CaseAnalysis]) -> Self {
        let is = |run_status: Self| move |case: &CaseAnalysis| case.run_status == run_status;
        if cases.iter().any(is(Self::AaFailed)) {
            Self::AaFailed
        } else if cases.iter().all(is(Self::NoPrice)) {
            Self::NoPrice
        } else if cases.iter().all(is(Self::Settled)) {
            Self::Settled
        } else {
            Self::NotSettled
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::NotSettled => "not settled",
            Self::AaFailed => "A/A failed",
            Self::NoPrice => "no price",
        }
    }
}

pub(super) fn verdict_on_cpu(subject: &SubjectAnalysis) -> Option<Verdict> {
    subject.prices.get(&Metric::CpuUsPerRequest)?.verdict
}

/// The badge of a run, and why, in one line: what a reader has to know first. `again` names the
/// baseline's second time.
pub(super) fn settling(
    run_status: RunStatus,
    cases: &[CaseAnalysis],
    ended_by: EndedBy,
    blocks: u32,
    again: Option<&str>,
) -> String {
    let after = format!("after {} ({ended_by})", counted(blocks as usize, "block"));
    match run_status {
        RunStatus::Settled => format!("Settled {after}.{}", floors(cases)),
        RunStatus::NoPrice => format!("No price {after}."),
        RunStatus::NotSettled => {
            let open: Vec<String> =
                cases.iter().flat_map(|case| open(case, cases, again)).collect();
            format!("Not settled {after}: {}; {}.", open.join(", "), what_helps(cases, again))
        }
        RunStatus::AaFailed => {
            let floor = cases.iter().filter_map(|case| case.noise_floor).find(Range::excludes_one);
            let by = floor.map_or(String::new(), |floor| format!(" by {}", change(&floor)));
            format!(
                "A/A failed {after}: the baseline differs from itself{by}; differences of that size may be noise."
            )
        }
    }
}

fn floors(cases: &[CaseAnalysis]) -> String {
    let floor = |case: &CaseAnalysis| {
        let floor = case.noise_floor.filter(|floor| floor.interval)?;
        Some(format!(" Noise floor (baseline against itself): {}.", change(&floor)))
    };
    cases.iter().filter_map(floor).collect()
}

fn change(ratio: &Range) -> String {
    format!("{} [{}, {}]", relative(ratio.estimate), relative(ratio.low), relative(ratio.high))
}

/// The subjects that share one correction; the repeated baseline is judged alone.
fn judged<'a>(
    case: &'a CaseAnalysis,
    again: Option<&str>,
) -> impl Iterator<Item = (&'a SubjectAnalysis, Verdict)> {
    let subjects = case.subjects.iter().filter(move |subject| Some(&*subject.name) != again);
    subjects.filter_map(|subject| Some((subject, verdict_on_cpu(subject)?)))
}

/// The subjects without a verdict, or the case if it has no price.
fn open(case: &CaseAnalysis, all: &[CaseAnalysis], again: Option<&str>) -> Vec<String> {
    if case.run_status == RunStatus::NoPrice {
        return vec![format!("{} has no price", case.case.name)];
    }
    let name = |(subject, _): (&SubjectAnalysis, _)| match all.len() {
        1 => subject.name.clone(),
        _ => format!("{} ({})", subject.name, case.case.name),
    };
    judged(case, again).filter(|(_, verdict)| *verdict == Verdict::Inconclusive).map(name).collect()
}

/// What the run needs for the missing verdicts.
fn what_helps(cases: &[CaseAnalysis], again: Option<&str>) -> String {
    let blocks = |(subject, _): (&SubjectAnalysis, _)| {
        subject.prices.get(&Metric::CpuUsPerRequest).map(|price| price.n)
    };
    match cases.iter().flat_map(|case| judged(case, again).filter_map(blocks)).min() {
        Some(fewest) if fewest < BLOCKS_MIN => {
            format!("a price needs at least {BLOCKS_MIN} valid blocks, and one has {fewest}")
        }
        _ => "more blocks narrow the intervals".to_owned(),
    }
}

/// A verdict as one word for a table.
pub fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::CostsMore => "more",
        Verdict::CostsLess => "less",
        Verdict::Same => "same",
        Verdict::Inconclusive => "open",
    }
}

/// Explains the words of [`verdict_word`].
pub fn verdict_legend(margin: f64) -> String {
    format!(
        "Verdict on the CPU: costs more, costs less, the same within {}, or open: not significant.",
        share(margin)
    )
}
