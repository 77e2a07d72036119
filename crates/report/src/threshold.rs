//! Thresholds: conditions on the figures and prices of a run, by which a build passes or fails.
//!
//! `cpu(full/off)<60` requires that a request costs `full` less than 60 times the CPU time of `off`;
//! `p99(full @ browse)<=5ms` limits the 99th percentile of the latency of `full` in case `browse` to 5 ms. A threshold
//! is judged by the 95 % interval, never by the estimate alone.

use crate::analysis::{CaseAnalysis, Range, SubjectAnalysis, SubjectStatus, share};
use crate::condition::{Condition, ConditionError, Dimension, Operands, Relation, Word};
use crate::document::{Block, Table, range};
use crate::source::Source;
use crate::{markdown, text};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use tollgate_experiment::metric;
use tollgate_experiment::metric::Metric;
use tollgate_experiment::record::Bottleneck;
use tollgate_experiment::run_dir::RunRecords;
use tollgate_experiment::toml_file::suggestion;
use tollgate_stats::number::{percent, significant};
use tollgate_stats::text::Screen;
use tollgate_stats::{Pair, difference, ratio};
use tollgate_traffic::Class;

/// A condition on one figure of a subject, or on the ratio of two subjects.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    pub text: String,
    measure: Measure,
    subject: Word,
    /// The condition is on the ratio to this subject, block by block.
    baseline: Option<Word>,
    /// `None`: every case.
    case: Option<Word>,
    relation: Relation,
    /// A ratio, or a figure in the unit of the records.
    limit: f64,
}

/// The figure of a threshold, in the units of the records: microseconds of CPU per request, responses per second,
/// milliseconds, bytes, shares from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    Priced(Metric),
    Startup,
    /// Share of attacks that were blocked.
    DetectionRate,
    /// Share of benign requests that were blocked.
    FalsePositives,
}

const MEASURES: [(&str, Dimension, Measure); 11] = [
    ("cpu", Dimension::CpuTime, Measure::Priced(Metric::CpuUsPerRequest)),
    ("throughput", Dimension::Rate, Measure::Priced(Metric::ThroughputPerS)),
    ("p50", Dimension::Latency, Measure::Priced(Metric::LatencyP50Ms)),
    ("p90", Dimension::Latency, Measure::Priced(Metric::LatencyP90Ms)),
    ("p99", Dimension::Latency, Measure::Priced(Metric::LatencyP99Ms)),
    ("mean", Dimension::Latency, Measure::Priced(Metric::LatencyMeanMs)),
    ("max", Dimension::Latency, Measure::Priced(Metric::LatencyMaxMs)),
    ("memory", Dimension::Memory, Measure::Priced(Metric::MemoryPeakBytes)),
    ("startup", Dimension::Latency, Measure::Startup),
    ("detection_rate", Dimension::Share, Measure::DetectionRate),
    ("false_positives", Dimension::Share, Measure::FalsePositives),
];

/// A threshold applied to one case.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    pub threshold: Threshold,
    pub case: String,
    /// Number of blocks behind the value.
    pub n: usize,
    pub value: Option<Range>,
    pub outcome: Outcome,
    /// The reason for an outcome that is not settled, or that the value is a bound.
    pub note: Option<String>,
}

/// Position of the 95 % interval relative to the limit, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The whole interval satisfies the condition.
    Pass,
    /// The interval contains the limit, or there is no interval.
    NotSettled,
    /// The whole interval violates the condition.
    Fail,
}

impl FromStr for Threshold {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let text = text.trim();
        let metrics = MEASURES.map(|(name, dimension, _)| (name, dimension));
        let Condition { metric, operands, relation, limit } =
            Condition::parse(text, &metrics, true)?;
        let measure = MEASURES.iter().find(|(name, ..)| *name == metric.name);
        let (Some((.., measure)), Some(Operands { subject, baseline, case })) = (measure, operands)
        else {
            unreachable!("the parser accepts only these metrics, with operands");
        };
        let (text, measure, limit) = (text.to_owned(), *measure, limit.value);
        Ok(Self { text, measure, subject, baseline, case, relation, limit })
    }
}

impl Threshold {
    /// Checks that the run has the subjects and the case of the threshold.
    pub fn check(&self, subjects: &[&str], cases: &[&str]) -> Result<(), ConditionError> {
        let known = |word: &Word, kind: &str, names: &[&str]| match names.contains(&&*word.name) {
            true => Ok(()),
            false => {
                let hint = suggestion(&word.name, names.iter().copied());
                let message = format!("the run has no {kind} `{}`{hint}", word.name);
                Err(ConditionError::new(&self.text, word.column, message))
            }
        };
        known(&self.subject, "subject", subjects)?;
        self.baseline.iter().try_for_each(|baseline| known(baseline, "subject", subjects))?;
        self.case.iter().try_for_each(|case| known(case, "case", cases))
    }

    /// Judges the threshold in its case, or in every case of the run. Call [`Self::check`] first.
    pub fn judge(&self, source: &Source) -> Vec<Judged> {
        let applies = |case: &&CaseAnalysis| {
            self.case.as_ref().is_none_or(|word| word.name == case.case.name)
        };
        let cases = source.analysis.cases.iter().filter(applies);
        cases.map(|case| self.judge_case(&source.records, case)).collect()
    }

    fn judge_case(&self, run: &RunRecords, case: &CaseAnalysis) -> Judged {
        let name = &case.case.name;
        let (n, value) = match &self.baseline {
            Some(baseline) => self.ratio(run, name, &baseline.name),
            None => self.figure(run, name),
        };
        let open_ends = OpenEnds::of(self, case);
        let outcome = value.map_or(Outcome::NotSettled, |value| open_ends.outcome(&value, self));
        let note = match &value {
            None => Some(self.why_no_value(case)),
            Some(value) if !value.interval => Some(TOO_FEW_BLOCKS.to_owned()),
            Some(_) => open_ends.note(self, outcome),
        };
        Judged { threshold: self.clone(), case: name.clone(), n, value, outcome, note }
    }

    /// Returns the number of blocks in which both subjects have the figure, and the ratio over them.
    fn ratio(&self, run: &RunRecords, case: &str, baseline: &str) -> (usize, Option<Range>) {
        let baseline = self.by_block(run, case, baseline);
        let pairs: Vec<Pair> = self
            .by_block(run, case, &self.subject.name)
            .into_iter()
            .filter_map(|(block, subject)| Some(Pair { subject, baseline: *baseline.get(&block)? }))
            .collect();
        (pairs.len(), ratio(&pairs, run.manifest.seed).map(Range::from))
    }

    /// Returns the number of blocks that have the figure, and the figure over them.
    fn figure(&self, run: &RunRecords, case: &str) -> (usize, Option<Range>) {
        let values = self.by_block(run, case, &self.subject.name).into_values();
        // The difference to 0 is the figure itself, with its interval.
        let pairs: Vec<Pair> = values.map(|subject| Pair { subject, baseline: 0.0 }).collect();
        let value = difference(&pairs, run.manifest.seed).map(Range::from);
        let share = self.measure.class().and_then(|class| {
            let counts = metric::measured(run, case, &self.subject.name);
            share(counts.map(|(_, measurement)| measurement.blocked(class)))
        });
        // One missed attack hardly moves a median of means. Shares are over all requests, as in the report, and the
        // interval is widened to contain them.
        let with_share = |range: Range| match share {
            Some(share) => Range {
                estimate: share,
                low: range.low.min(share),
                high: range.high.max(share),
                interval: range.interval,
            },
            None => range,
        };
        (pairs.len(), value.map(with_share))
    }

    /// Returns the figure of each block that has it.
    fn by_block(&self, run: &RunRecords, case: &str, subject: &str) -> BTreeMap<u32, f64> {
        let Some(class) = self.measure.class() else {
            let of_trial = |trial: &metric::Valid<'_>| match self.measure {
                Measure::Priced(metric) => metric.of(trial.measurement),
                Measure::Startup => trial.startup_ms,
                Measure::DetectionRate | Measure::FalsePositives => None,
            };
            let valid = metric::valid(run, case, subject).into_iter();
            return valid.filter_map(|(block, trial)| Some((block, of_trial(&trial)?))).collect();
        };
        let mut counts: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for (trial, measurement) in metric::measured(run, case, subject) {
            counts.entry(trial.block).or_default().push(measurement.blocked(class));
        }
        counts.into_iter().filter_map(|(block, counts)| Some((block, share(counts)?))).collect()
    }

    fn why_no_value(&self, case: &CaseAnalysis) -> String {
        for word in [Some(&self.subject), self.baseline.as_ref()].into_iter().flatten() {
            let subject = case.subject(&word.name);
            if let Some(subject) = subject.filter(|subject| subject.figures.is_none()) {
                return why_no_figures(subject);
            }
        }
        let name = self.measure.name();
        match (&self.baseline, self.measure) {
            (None, Measure::DetectionRate) => "no attack was blocked or passed".to_owned(),
            (None, Measure::FalsePositives) => "no benign request was blocked or passed".to_owned(),
            (None, Measure::Priced(Metric::LatencyP99Ms)) => {
                "too few requests per trial for a 99th percentile".to_owned()
            }
            (None, _) => format!("no trial has a value for {name}"),
            (Some(baseline), _) => format!(
                "no ratio, because {name} of {} or {} is zero or missing",
                self.subject.name, baseline.name
            ),
        }
    }
}

/// Returns the worst outcome: one failed threshold fails the build, even if others are not settled.
pub fn overall(judged: &[Judged]) -> Outcome {
    judged.iter().map(|judged| judged.outcome).max().unwrap_or(Outcome::Pass)
}

impl Outcome {
    pub fn words(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::NotSettled => "not settled",
            Self::Fail => "fail",
        }
    }
}

impl Measure {
    fn name(self) -> &'static str {
        let known = MEASURES.iter().find(|(.., measure)| *measure == self);
        known.map_or("", |(name, ..)| name)
    }

    fn class(self) -> Option<Class> {
        match self {
            Self::DetectionRate => Some(Class::Malicious),
            Self::FalsePositives => Some(Class::Benign),
            Self::Priced(_) | Self::Startup => None,
        }
    }
}

const TOO_FEW_BLOCKS: &str = "fewer than 6 blocks give no 95 % interval; increase --blocks";

/// Ends of the interval that are unknown: throughput is a lower bound if the system's CPU was not the bottleneck.
struct OpenEnds {
    above: bool,
    below: bool,
}

impl OpenEnds {
    fn of(threshold: &Threshold, case: &CaseAnalysis) -> Self {
        let is_lower_bound = |word: &Word| {
            let figures = case.subject(&word.name).and_then(|subject| subject.figures.as_ref());
            threshold.measure == Measure::Priced(Metric::ThroughputPerS)
                && figures.is_some_and(|figures| figures.bottleneck != Some(Bottleneck::System))
        };
        Self {
            above: is_lower_bound(&threshold.subject),
            below: threshold.baseline.as_ref().is_some_and(is_lower_bound),
        }
    }

    fn outcome(&self, value: &Range, threshold: &Threshold) -> Outcome {
        if !value.interval {
            return Outcome::NotSettled;
        }
        let low = if self.below { 0.0 } else { value.low };
        let high = if self.above { f64::INFINITY } else { value.high };
        let holds = |end: f64| threshold.relation.holds(end, threshold.limit);
        match (holds(low), holds(high)) {
            (true, true) => Outcome::Pass,
            (false, false) => Outcome::Fail,
            (true, false) | (false, true) => Outcome::NotSettled,
        }
    }

    fn note(&self, threshold: &Threshold, outcome: Outcome) -> Option<String> {
        let subject = &threshold.subject.name;
        let baseline = threshold.baseline.as_ref().map_or("", |baseline| &baseline.name);
        match (self.above, self.below) {
            (true, true) => Some(format!(
                "the CPUs of {subject} and {baseline} were not the bottleneck, so the ratio is only a hint"
            )),
            (true, false) => Some(format!(
                "the CPU of {subject} was not the bottleneck, so the value is a lower bound"
            )),
            (false, true) => Some(format!(
                "the CPU of {baseline} was not the bottleneck, so the value is an upper bound"
            )),
            (false, false) if outcome == Outcome::NotSettled => {
                Some("the interval contains the limit; more --blocks narrow it".to_owned())
            }
            (false, false) => None,
        }
    }
}

fn why_no_figures(subject: &SubjectAnalysis) -> String {
    let name = &subject.name;
    match &subject.status {
        SubjectStatus::Refused(reason) => format!("{name} was refused: {reason}"),
        SubjectStatus::Failed(reason) => format!("{name} failed: {reason}"),
        SubjectStatus::Skipped(missing) => format!("{name} was skipped: {}", missing.message),
        SubjectStatus::Missing => format!("{name} was not run"),
        SubjectStatus::Baseline | SubjectStatus::Measured => format!("{name} has no valid trial"),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For a terminal.
    Table { screen: Screen },
    /// For a pull request.
    Markdown,
}

/// Renders judged thresholds as a table with notes.
pub fn render(judged: &[Judged], format: Format) -> String {
    let cases: BTreeSet<&str> = judged.iter().map(|judged| judged.case.as_str()).collect();
    let name = |judged: &Judged| match (cases.len(), &judged.threshold.case) {
        (2.., None) => format!("{} ({})", judged.threshold.text, judged.case),
        _ => judged.threshold.text.clone(),
    };
    let row = |judged: &Judged| {
        let value =
            judged.value.map_or("-".to_owned(), |value| value_text(&judged.threshold, &value));
        vec![name(judged), value, judged.n.to_string(), judged.outcome.words().to_owned()]
    };
    let header = ["threshold", "value [95 %]", "n", "outcome"];
    let table = Table::of_text(header, judged.iter().map(row).collect());
    let notes: Vec<String> = judged
        .iter()
        .filter_map(|judged| Some(format!("{}: {}.", name(judged), judged.note.as_ref()?)))
        .collect();
    let blocks = [Block::Table(table), Block::List(notes)];
    match format {
        Format::Table { screen } => text::blocks(&blocks, screen),
        Format::Markdown => markdown::blocks(&blocks),
    }
}

fn value_text(threshold: &Threshold, value: &Range) -> String {
    const MIB: f64 = 1_048_576.0;
    if threshold.baseline.is_some() {
        return format!("{} ×", range(value, significant));
    }
    let unit = match threshold.measure {
        Measure::DetectionRate | Measure::FalsePositives => return range(value, percent),
        Measure::Priced(Metric::MemoryPeakBytes) => {
            return format!("{} MiB", range(value, |bytes| significant(bytes / MIB)));
        }
        Measure::Priced(Metric::CpuUsPerRequest) => "µs",
        Measure::Priced(Metric::ThroughputPerS) => "/s",
        Measure::Priced(_) | Measure::Startup => "ms",
    };
    format!("{} {unit}", range(value, significant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_subjects_and_cases_are_errors() {
        let check = |text: &str| {
            let threshold: Threshold = text.parse().unwrap();
            threshold.check(&["off", "full"], &["browse"]).map_err(|error| error.to_string())
        };
        assert_eq!(check("cpu(full/off @ browse)<60"), Ok(()));
        assert_eq!(check("cpu(off)<60"), Ok(()));
        for (text, column, message) in [
            ("cpu(ful/off)<60", 5, "the run has no subject `ful`; did you mean `full`?"),
            ("cpu(full/nginx)<60", 10, "the run has no subject `nginx`"),
            ("cpu(full @ brows)<60", 12, "the run has no case `brows`; did you mean `browse`?"),
        ] {
            let error = check(text).unwrap_err();
            let expected = format!("`{text}`, column {column}: {message}");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn every_measure_has_a_name_and_a_limit() {
        for (name, dimension, measure) in MEASURES {
            let unit = if dimension == Dimension::Share { "%" } else { "" };
            let threshold: Threshold = format!("{name}(a)<=1{unit}").parse().unwrap();
            assert_eq!((threshold.measure, threshold.measure.name()), (measure, name));
        }
    }
}
