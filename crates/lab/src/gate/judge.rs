//! Whether a run keeps its gates: pure, from the records of the trials that count.

use super::{Gate, Measure, value};
use crate::analysis::{Analysis, CaseAnalysis, Metric, Range, Standing, SubjectAnalysis};
use crate::run_dir::RunRecords;
use crate::trial::bottleneck::Bottleneck;

/// A gate under one case.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The gate.
    pub gate: Gate,
    /// The case's name.
    pub case: String,
    /// Blocks that stand behind the value.
    pub n: usize,
    /// The ratio, or the figure in the unit of [`Measure`]; none where there is none.
    pub value: Option<Range>,
    /// What the interval says.
    pub outcome: Outcome,
    /// What a reader has to know besides: why it is not settled, or that the value is a bound.
    pub note: Option<String>,
}

/// What the 95 % interval of a value says about a gate, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// All of the interval is on the side that was asked for.
    Held,
    /// The interval holds the bound, or there is none.
    NotSettled,
    /// All of the interval is on the other side.
    Broken,
}

/// Judges a gate under its case, or under every case of the run. The gate has passed
/// [`Gate::check`] for this run, whose analysis this is.
pub fn judge(gate: &Gate, run: &RunRecords, analysis: &Analysis) -> Vec<Judged> {
    let asked =
        |case: &&CaseAnalysis| gate.case.as_ref().is_none_or(|asked| asked.name == case.case.name);
    analysis.cases.iter().filter(asked).map(|case| under(gate, run, case)).collect()
}

/// The worst of them: one broken gate breaks the build, whatever is not settled.
pub fn overall(judged: &[Judged]) -> Outcome {
    judged.iter().map(|judged| judged.outcome).max().unwrap_or(Outcome::Held)
}

impl Outcome {
    /// The outcome in a word or two.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::NotSettled => "not settled",
            Self::Broken => "broken",
        }
    }
}

fn under(gate: &Gate, run: &RunRecords, case: &CaseAnalysis) -> Judged {
    let (n, value) = value::of(gate, run, &case.case.name);
    let limits = Limits::of(gate, case);
    let outcome = value.map_or(Outcome::NotSettled, |value| limits.outcome(&value, gate));
    let note = match &value {
        None => Some(why_none(gate, case)),
        Some(value) if !value.interval => Some(TOO_FEW.to_owned()),
        Some(_) => limits.note(gate, outcome),
    };
    Judged { gate: gate.clone(), case: case.case.name.clone(), n, value, outcome, note }
}

const TOO_FEW: &str = "n too small: below 6 blocks there is no 95 % interval; run more --blocks";

/// Which ends of the interval are ends: where the system's CPU was not spent, throughput is a lower
/// bound, of which the true figure may be any multiple.
struct Limits {
    /// The true value may lie anywhere above.
    above: bool,
    /// The true value may lie anywhere below.
    below: bool,
}

impl Limits {
    fn of(gate: &Gate, case: &CaseAnalysis) -> Self {
        let is_bound = |name: &str| {
            let figures = found(case, name).and_then(|subject| subject.figures.as_ref());
            gate.measure == Measure::Priced(Metric::ThroughputPerS)
                && figures.is_some_and(|f| f.bottleneck != Some(Bottleneck::System))
        };
        Self {
            above: is_bound(&gate.subject.name),
            below: gate.over.as_ref().is_some_and(|over| is_bound(&over.name)),
        }
    }

    fn outcome(&self, value: &Range, gate: &Gate) -> Outcome {
        if !value.interval {
            return Outcome::NotSettled;
        }
        let low = if self.below { 0.0 } else { value.low };
        let high = if self.above { f64::INFINITY } else { value.high };
        let side = |end: f64| gate.side.holds(end, gate.bound);
        match (side(low), side(high)) {
            (true, true) => Outcome::Held,
            (false, false) => Outcome::Broken,
            (true, false) | (false, true) => Outcome::NotSettled,
        }
    }

    fn note(&self, gate: &Gate, outcome: Outcome) -> Option<String> {
        let subject = &gate.subject.name;
        let over = gate.over.as_ref().map_or("", |over| &over.name);
        let bound = |name: &str, what: &str| {
            format!("the CPU of {name} was not spent, so the value is {what}")
        };
        match (self.above, self.below) {
            (true, true) => Some(format!(
                "the CPUs of {subject} and {over} were not spent, so the value is no more than a hint"
            )),
            (true, false) => Some(bound(subject, "a lower bound")),
            (false, true) => Some(bound(over, "an upper bound")),
            (false, false) if outcome == Outcome::NotSettled => {
                Some("the interval holds the bound; more --blocks make it narrower".to_owned())
            }
            (false, false) => None,
        }
    }
}

/// Why there is no value.
fn why_none(gate: &Gate, case: &CaseAnalysis) -> String {
    let names = [Some(&gate.subject), gate.over.as_ref()];
    for name in names.into_iter().flatten() {
        match found(case, &name.name) {
            Some(subject) if subject.figures.is_none() => return standing_of(subject),
            Some(_) | None => {}
        }
    }
    match (&gate.over, gate.measure) {
        (None, Measure::Caught) => "no attack was blocked or let through".to_owned(),
        (None, Measure::Alarms) => "no harmless request was blocked or let through".to_owned(),
        (None, Measure::Priced(Metric::LatencyP99Ms)) => {
            "too few requests in a trial for a 99th percentile".to_owned()
        }
        (None, measure) => format!("no trial has a figure for {}", measure.word()),
        (Some(over), measure) => format!(
            "there is no ratio, because {} of {} or {} is zero or missing",
            measure.word(),
            gate.subject.name,
            over.name
        ),
    }
}

fn standing_of(subject: &SubjectAnalysis) -> String {
    let name = &subject.name;
    match &subject.standing {
        Standing::Refused(reason) => format!("{name} was refused: {reason}"),
        Standing::Failed(reason) => format!("{name} failed: {reason}"),
        Standing::Skipped(missing) => format!("{name} was skipped: {}", missing.what),
        Standing::Missing => format!("{name} was not run"),
        Standing::Baseline | Standing::Measured => format!("{name} has no valid trial"),
    }
}

fn found<'a>(case: &'a CaseAnalysis, name: &str) -> Option<&'a SubjectAnalysis> {
    case.subjects.iter().find(|subject| subject.name == name)
}
