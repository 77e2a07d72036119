//! Thresholds: conditions on the figures and prices of a run, by which a build passes or fails.
//!
//! `cpu(full/off)<60` requires that a request costs `full` less than 60 times the CPU time of `off`;
//! `p99(full @ browse)<=5ms` limits the 99th percentile of the latency of `full` in case `browse` to 5 ms. A threshold
//! is judged by the 95 % interval, never by the estimate alone.

use crate::analysis::{CaseAnalysis, Range, SubjectAnalysis, SubjectStatus, share};
use crate::condition::{Condition, ConditionError, Dimension, Operands, Relation, Word};
use crate::document::{Block, NONE, Table, mebibytes, range};
use crate::source::Source;
use crate::{markdown, text};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use tollgate_experiment::metric::{self, Metric};
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
    /// Share of the requests of a class that were blocked.
    Blocked(Class),
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
    ("detection_rate", Dimension::Share, Measure::Blocked(Class::Malicious)),
    ("false_positives", Dimension::Share, Measure::Blocked(Class::Benign)),
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
        let is_lower_bound = |subject| is_lower_bound(self.measure, case, subject);
        // Unknown ends of the interval: a ratio to a lower bound is an upper bound.
        let unknown_high = is_lower_bound(&self.subject);
        let unknown_low = self.baseline.as_ref().is_some_and(is_lower_bound);
        let holds = |end: f64| self.relation.holds(end, self.limit);
        let outcome = match value.filter(|value| value.interval) {
            None => Outcome::NotSettled,
            Some(Range { low, high, .. }) => {
                let low = if unknown_low { 0.0 } else { low };
                match (holds(low), holds(if unknown_high { f64::INFINITY } else { high })) {
                    (true, true) => Outcome::Pass,
                    (false, false) => Outcome::Fail,
                    (true, false) | (false, true) => Outcome::NotSettled,
                }
            }
        };
        let subject = &self.subject.name;
        let baseline = self.baseline.as_ref().map_or("", |baseline| &baseline.name);
        let note = match (value, unknown_high, unknown_low) {
            (None, ..) => Some(self.why_no_value(case)),
            (Some(value), ..) if !value.interval => Some(TOO_FEW_BLOCKS.to_owned()),
            (_, true, true) => Some(format!(
                "the CPUs of {subject} and {baseline} were not the bottleneck, so the ratio is only a hint"
            )),
            (_, true, false) => Some(format!(
                "the CPU of {subject} was not the bottleneck, so the value is a lower bound"
            )),
            (_, false, true) => Some(format!(
                "the CPU of {baseline} was not the bottleneck, so the value is an upper bound"
            )),
            (_, false, false) => (outcome == Outcome::NotSettled)
                .then(|| "the interval contains the limit; more --blocks narrow it".to_owned()),
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
        let mut value = difference(&pairs, run.manifest.seed).map(Range::from);
        if let (Measure::Blocked(class), Some(range)) = (self.measure, &mut value) {
            let counts = metric::measured(run, case, &self.subject.name);
            // One missed attack hardly moves a median of means. Shares are over all requests, as in the report, and the
            // interval is widened to contain them.
            range.estimate = share(counts.map(|(_, m)| m.blocked(class))).unwrap_or(range.estimate);
            range.low = range.low.min(range.estimate);
            range.high = range.high.max(range.estimate);
        }
        (pairs.len(), value)
    }

    /// Returns the figure of each block that has it.
    fn by_block(&self, run: &RunRecords, case: &str, subject: &str) -> BTreeMap<u32, f64> {
        let valid = || metric::valid(run, case, subject).into_iter();
        match self.measure {
            Measure::Priced(metric) => {
                let figures = valid().map(|(block, trial)| (block, metric.of(trial.measurement)));
                figures.filter_map(|(block, figure)| Some((block, figure?))).collect()
            }
            Measure::Startup => {
                valid().filter_map(|(block, trial)| Some((block, trial.startup_ms?))).collect()
            }
            Measure::Blocked(class) => {
                let mut counts: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
                for (trial, measurement) in metric::measured(run, case, subject) {
                    counts.entry(trial.block).or_default().push(measurement.blocked(class));
                }
                counts.into_iter().filter_map(|(at, counts)| Some((at, share(counts)?))).collect()
            }
        }
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
            (None, Measure::Blocked(Class::Malicious)) => {
                "no attack was blocked or passed".to_owned()
            }
            (None, Measure::Blocked(Class::Benign)) => {
                "no benign request was blocked or passed".to_owned()
            }
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
}

const TOO_FEW_BLOCKS: &str = "fewer than 6 blocks give no 95 % interval; increase --blocks";

/// True if the subject's throughput is a lower bound, because its CPU was not the bottleneck.
fn is_lower_bound(measure: Measure, case: &CaseAnalysis, subject: &Word) -> bool {
    let figures = case.subject(&subject.name).and_then(|subject| subject.figures.as_ref());
    measure == Measure::Priced(Metric::ThroughputPerS)
        && figures.is_some_and(|figures| figures.bottleneck != Some(Bottleneck::System))
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

/// Renders judged thresholds for a terminal, as a table with notes.
pub fn render(judged: &[Judged], screen: Screen) -> String {
    text::blocks(&blocks(judged), screen)
}

/// Renders judged thresholds for a pull request.
pub fn render_markdown(judged: &[Judged]) -> String {
    markdown::blocks(&blocks(judged))
}

fn blocks(judged: &[Judged]) -> [Block; 2] {
    let cases: BTreeSet<&str> = judged.iter().map(|judged| judged.case.as_str()).collect();
    let name = |judged: &Judged| match (cases.len(), &judged.threshold.case) {
        (2.., None) => format!("{} ({})", judged.threshold.text, judged.case),
        _ => judged.threshold.text.clone(),
    };
    let row = |judged: &Judged| {
        let value = judged.value.map_or(NONE.to_owned(), |it| value_text(&judged.threshold, &it));
        vec![name(judged), value, judged.n.to_string(), judged.outcome.words().to_owned()]
    };
    let header = ["threshold", "value [95 %]", "n", "outcome"];
    let table = Table::of_text(header, judged.iter().map(row).collect());
    let note = |judged: &Judged| Some(format!("{}: {}.", name(judged), judged.note.as_ref()?));
    [Block::Table(table), Block::List(judged.iter().filter_map(note).collect())]
}

fn value_text(threshold: &Threshold, value: &Range) -> String {
    let unit = match threshold.measure {
        _ if threshold.baseline.is_some() => "×",
        Measure::Blocked(_) => return range(value, percent),
        Measure::Priced(Metric::MemoryPeakBytes) => {
            return format!("{} MiB", range(value, mebibytes));
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
