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
    pub(super) fn of<'a>(
        subjects: impl Iterator<Item = &'a SubjectAnalysis>,
        noise_floor: Option<&Range>,
    ) -> Self {
        let mut verdicts = subjects.filter_map(verdict_on_cpu).peekable();
        if noise_floor.is_some_and(Range::excludes_one) {
            Self::AaFailed
        } else if verdicts.peek().is_none() {
            // Where nothing but the baseline against itself was asked for, that is the answer.
            match noise_floor.is_some_and(|floor| floor.interval) {
                true => Self::Settled,
                false => Self::NoPrice,
            }
        } else if verdicts.any(|verdict| verdict == Verdict::NotSettled) {
            Self::NotSettled
        } else {
            Self::Settled
        }
    }

    /// The badge of a run: one case whose baseline differs from itself speaks against all, and a case
    /// without a price leaves the run open.
    pub(super) fn of_all(cases: &[CaseAnalysis]) -> Self {
        let is = |badge: Self| move |case: &CaseAnalysis| case.badge == badge;
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

/// The badge of a run, and why, in one line: what a reader has to know first. `again` names the
/// baseline's second time.
pub(super) fn settling(
    badge: Badge,
    cases: &[CaseAnalysis],
    ended_by: EndedBy,
    blocks: u32,
    again: Option<&str>,
) -> String {
    let after = format!("after {} ({ended_by})", counted(blocks as usize, "block"));
    match badge {
        Badge::Settled => format!("Settled {after}.{}", floors(cases)),
        Badge::NoPrice => format!("No price {after}."),
        Badge::NotSettled => {
            let open: Vec<String> =
                cases.iter().flat_map(|case| open(case, cases, again)).collect();
            format!("Not settled {after}: {}; {}.", open.join(", "), what_helps(cases, again))
        }
        Badge::AaFailed => {
            let floor = cases.iter().filter_map(|case| case.noise_floor).find(Range::excludes_one);
            let by = floor.map_or(String::new(), |floor| format!(" by {}", change(&floor)));
            format!(
                "A/A failed {after}: the baseline differs from itself{by}; differences of that size may be noise."
            )
        }
    }
}

/// How far the baseline was from itself, where it ran twice.
fn floors(cases: &[CaseAnalysis]) -> String {
    let floor = |case: &CaseAnalysis| {
        let floor = case.noise_floor.filter(|floor| floor.interval)?;
        Some(format!(" The baseline differs from itself by {}: noise.", change(&floor)))
    };
    cases.iter().filter_map(floor).collect()
}

fn change(ratio: &Range) -> String {
    format!("{} [{}, {}]", relative(ratio.estimate), relative(ratio.low), relative(ratio.high))
}

/// The subjects that are judged together: the baseline a second time is judged alone.
fn judged<'a>(
    case: &'a CaseAnalysis,
    again: Option<&str>,
) -> impl Iterator<Item = (&'a SubjectAnalysis, Verdict)> {
    let subjects = case.subjects.iter().filter(move |subject| Some(&*subject.name) != again);
    subjects.filter_map(|subject| Some((subject, verdict_on_cpu(subject)?)))
}

/// The subjects of a case whose price is not settled, or the case, where it has no price.
fn open(case: &CaseAnalysis, all: &[CaseAnalysis], again: Option<&str>) -> Vec<String> {
    if case.badge == Badge::NoPrice {
        return vec![format!("{} has no price", case.case.name)];
    }
    let name = |(subject, _): (&SubjectAnalysis, _)| match all.len() {
        1 => subject.name.clone(),
        _ => format!("{} ({})", subject.name, case.case.name),
    };
    judged(case, again).filter(|(_, verdict)| *verdict == Verdict::NotSettled).map(name).collect()
}

/// What would settle the prices that are not.
fn what_helps(cases: &[CaseAnalysis], again: Option<&str>) -> String {
    // Of the case that takes the most: how many blocks count, and how many have to.
    let short = cases.iter().filter_map(|case| {
        let prices = judged(case, again).count();
        let needed = blocks_to_settle(prices.max(1));
        let n = |(subject, _): (&SubjectAnalysis, _)| {
            subject.prices.get(&Metric::CpuUsPerRequest).map(|price| price.n)
        };
        let fewest = judged(case, again).filter_map(n).min()?;
        (fewest < needed).then_some((needed, prices, fewest))
    });
    match short.max() {
        Some((needed, 1, fewest)) => {
            format!("a price takes at least {needed} blocks that count, and one has {fewest}")
        }
        Some((needed, prices, fewest)) => format!(
            "{prices} prices together take at least {needed} blocks that count, and one has {fewest}"
        ),
        None => "more blocks narrow the intervals".to_owned(),
    }
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
