//! Thresholds: conditions on the figures and prices of a run, by which a build passes or fails.
//!
//! `cpu(full/off)<60` requires that a request costs `full` less than 60 times the CPU time of `off`;
//! `p99(full @ browse)<=5ms` limits the 99th percentile of the latency of `full` in case `browse` to 5 ms. A threshold
//! is judged by the 95 % interval, never by the estimate alone. Of two runs, `cpu(full)<105%` limits the change of a price:
//! the new one over the old.

use crate::analysis::{
    CaseAnalysis, LoadError, Range, SubjectAnalysis, SubjectStatus, blocked_rate, by_template,
    is_answering,
};
use crate::condition::{Condition, ConditionError, Dimension, Form, Operands, Relation, Word};
use crate::document::{Block, NONE, Table, mebibytes, range};
use crate::source::ReportSource;
use crate::{markdown, text};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use strum::Display;
use tollgate_records::error::suggestion;
use tollgate_records::metric::{self, Metric};
use tollgate_records::run_dir::RunRecords;
use tollgate_records::trial::{Bottleneck, Measurement};
use tollgate_stats::number::{counted, percent, significant};
use tollgate_stats::text::Screen;
use tollgate_stats::{BLOCKS_MIN, Pair, difference, ratio, ratio_of_samples};
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
    is_ratio: bool,
    /// A ratio, or a figure in the unit of the records.
    limit: f64,
}

/// The figure of a threshold, in the units of the records: microseconds of CPU per request, responses per second,
/// milliseconds, bytes, shares from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    Priced(Metric),
    P95,
    P999,
    Startup,
    /// CPU time of the sender of the load per response.
    GeneratorCpu,
    /// Share of the requests of a class that were blocked.
    Blocked(Class),
}

const MEASURES: [(&str, Dimension, Measure); 14] = [
    ("cpu", Dimension::CpuTime, Measure::Priced(Metric::CpuUsPerRequest)),
    ("throughput", Dimension::Rate, Measure::Priced(Metric::ThroughputPerS)),
    ("p50", Dimension::Latency, Measure::Priced(Metric::LatencyP50Ms)),
    ("p90", Dimension::Latency, Measure::Priced(Metric::LatencyP90Ms)),
    ("p95", Dimension::Latency, Measure::P95),
    ("p99", Dimension::Latency, Measure::Priced(Metric::LatencyP99Ms)),
    ("p99.9", Dimension::Latency, Measure::P999),
    ("mean", Dimension::Latency, Measure::Priced(Metric::LatencyMeanMs)),
    ("max", Dimension::Latency, Measure::Priced(Metric::LatencyMaxMs)),
    ("memory", Dimension::Memory, Measure::Priced(Metric::MemoryPeakBytes)),
    ("startup", Dimension::Latency, Measure::Startup),
    ("generator_cpu", Dimension::CpuTime, Measure::GeneratorCpu),
    ("detection_rate", Dimension::Share, Measure::Blocked(Class::Malicious)),
    ("false_positives", Dimension::Share, Measure::Blocked(Class::Benign)),
];

#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    pub threshold: Threshold,
    pub case: String,
    pub n: usize,
    pub value: Option<Range>,
    pub outcome: ThresholdOutcome,
    /// The reason for an outcome that is not settled, or that the value is a bound.
    pub note: Option<String>,
}

/// Position of the 95 % interval relative to the limit, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display)]
#[strum(serialize_all = "lowercase")]
pub enum ThresholdOutcome {
    /// The whole interval satisfies the condition.
    Pass,
    /// The interval contains the limit, or there is no interval.
    #[strum(serialize = "not settled")]
    NotSettled,
    /// The whole interval violates the condition.
    Fail,
}

impl FromStr for Threshold {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        Self::parse(text.trim(), Form::Threshold)
    }
}

impl Threshold {
    /// Parses a threshold on the change of a price between two runs.
    pub fn of_change(text: &str) -> Result<Self, ConditionError> {
        Self::parse(text.trim(), Form::Change)
    }

    fn parse(text: &str, form: Form) -> Result<Self, ConditionError> {
        // Shares have no price.
        let is_known = |dimension| form != Form::Change || dimension != Dimension::Share;
        let metrics = MEASURES.iter().filter(|(_, dimension, _)| is_known(*dimension));
        let metrics: Vec<_> = metrics.map(|(name, dimension, _)| (*name, *dimension)).collect();
        let Condition { metric, operands, relation, limit } =
            Condition::parse(text, &metrics, form)?;
        let measure = MEASURES.iter().find(|(name, ..)| *name == metric.name);
        let (Some((.., measure)), Some(Operands { subject, baseline, case })) = (measure, operands)
        else {
            unreachable!("the parser accepts only these metrics, with operands");
        };
        let (text, measure, limit) = (text.to_owned(), *measure, limit.value);
        let is_ratio = baseline.is_some() || form == Form::Change;
        Ok(Self { text, measure, subject, baseline, case, relation, is_ratio, limit })
    }

    /// Checks that the run has the subjects and the case of the threshold.
    pub fn check(&self, subjects: &[&str], cases: &[&str]) -> Result<(), ConditionError> {
        let known = |word: &Word, kind: &str, names: &[&str]| {
            if names.contains(&&*word.name) {
                Ok(())
            } else {
                let hint = suggestion(&word.name, names.iter().copied());
                let message = format!("the run has no {kind} `{}`{hint}", word.name);
                Err(ConditionError::new(&self.text, word.column, message))
            }
        };
        known(&self.subject, "subject", subjects)?;
        self.baseline.iter().try_for_each(|baseline| known(baseline, "subject", subjects))?;
        self.case.iter().try_for_each(|case| known(case, "case", cases))
    }

    /// The name of the subject that the threshold limits.
    pub fn subject(&self) -> &str {
        &self.subject.name
    }

    /// Checks that a change does not refer to the baseline of the run.
    pub fn check_change(&self, baseline: &str) -> Result<(), ConditionError> {
        if self.baseline.is_some() || self.subject.name != baseline {
            return Ok(());
        }
        let message = format!("the price of the baseline `{baseline}` is always 1");
        Err(ConditionError::new(&self.text, self.subject.column, message))
    }

    /// Judges the threshold in its case, or in every case of the run. Call [`Self::check`] first.
    pub fn judge(&self, source: &ReportSource) -> Vec<Judged> {
        let applies = |case: &&CaseAnalysis| {
            self.case.as_ref().is_none_or(|word| word.name == case.case.name)
        };
        let cases = source.analysis.cases.iter().filter(applies);
        cases.map(|case| self.judge_case(&source.records, case)).collect()
    }

    /// Judges the threshold on a change in its case, or in every case of both runs. Call [`Self::check`] for each run
    /// first.
    pub fn judge_change(&self, old: &ReportSource, new: &ReportSource) -> Vec<Judged> {
        let applies = |case: &&CaseAnalysis| {
            self.case.as_ref().is_none_or(|word| word.name == case.case.name)
        };
        let cases = new.analysis.cases.iter().filter(applies).filter_map(|case| {
            Some((old.analysis.cases.iter().find(|other| other.case.name == case.case.name)?, case))
        });
        cases.map(|cases| self.judge_change_of_case([old, new], cases.into())).collect()
    }

    fn judge_change_of_case(&self, runs: [&ReportSource; 2], cases: [&CaseAnalysis; 2]) -> Judged {
        let name = &cases[0].case.name;
        let baseline = |run: &ReportSource| match &self.baseline {
            Some(baseline) => baseline.clone(),
            None => Word { name: run.analysis.baseline.clone(), column: 1 },
        };
        let pairs = runs.map(|run| self.pairs(&run.records, name, &baseline(run).name));
        let [old, new] = pairs.map(|pairs| {
            pairs.iter().map(|pair| pair.subject / pair.baseline).collect::<Vec<f64>>()
        });
        let value = ratio_of_samples(&old, &new).map(|shift| Range::from(shift.ratio));
        let is_hint = runs.iter().zip(cases).any(|(run, case)| {
            [&self.subject, &baseline(run)]
                .into_iter()
                .any(|subject| is_lower_bound(self.measure, case, subject))
        });
        let outcome = if is_hint {
            ThresholdOutcome::NotSettled
        } else {
            self.outcome(value, [false, false])
        };
        let (subject, baseline) = (&self.subject.name, &baseline(runs[1]).name);
        let note = match value {
            None => {
                let name = self.measure.name();
                Some(format!("no {name} of {subject} and {baseline} in both runs"))
            }
            Some(value) if !value.interval => {
                Some("fewer than 4 blocks in one of the runs give no 95 % interval".to_owned())
            }
            Some(_) if is_hint => Some(format!(
                "the CPU of {subject} or {baseline} was not the bottleneck, so the ratio is only a hint"
            )),
            Some(_) => (outcome == ThresholdOutcome::NotSettled).then(|| CONTAINS_LIMIT.to_owned()),
        };
        let n = old.len().min(new.len());
        Judged { threshold: self.clone(), case: name.clone(), n, value, outcome, note }
    }

    /// Compares the interval, whose ends may be unknown, with the limit.
    fn outcome(
        &self,
        value: Option<Range>,
        [unknown_low, unknown_high]: [bool; 2],
    ) -> ThresholdOutcome {
        let holds = |end: f64| self.relation.holds(end, self.limit);
        match value.filter(|value| value.interval) {
            None => ThresholdOutcome::NotSettled,
            Some(Range { low, high, .. }) => {
                let low = if unknown_low { 0.0 } else { low };
                match (holds(low), holds(if unknown_high { f64::INFINITY } else { high })) {
                    (true, true) => ThresholdOutcome::Pass,
                    (false, false) => ThresholdOutcome::Fail,
                    (true, false) | (false, true) => ThresholdOutcome::NotSettled,
                }
            }
        }
    }

    fn why_too_few_blocks(&self, case: &CaseAnalysis, n: usize) -> String {
        let subjects = [Some(&self.subject), self.baseline.as_ref()].into_iter().flatten();
        let analysed = subjects.filter_map(|subject| case.subject(&subject.name));
        let invalid: Vec<(&String, &usize)> =
            analysed.flat_map(|subject| &subject.invalid).collect();
        // A trial may have several reasons.
        let at_most: usize = invalid.iter().map(|(_, count)| **count).sum();
        match invalid.iter().max_by_key(|(_, count)| **count) {
            Some((reason, count)) if n + at_most >= BLOCKS_MIN => format!(
                "fewer than 6 valid blocks give no 95 % interval; invalid: {} ({reason})",
                counted(**count, "trial")
            ),
            _ => TOO_FEW_BLOCKS.to_owned(),
        }
    }

    fn judge_case(&self, run: &RunRecords, case: &CaseAnalysis) -> Judged {
        let name = &case.case.name;
        let (n, value) = match &self.baseline {
            Some(baseline) => {
                let pairs = self.pairs(run, name, &baseline.name);
                let value = ratio(&pairs, run.manifest.seed).map(Range::from);
                let value = match self.measure {
                    Measure::Priced(Metric::CpuUsPerRequest) => {
                        value.map(|ratio| LoadError::of(&case.case.load).widen(ratio))
                    }
                    _ => value,
                };
                (pairs.len(), value)
            }
            None => self.figure(run, name),
        };
        let is_lower_bound = |subject| is_lower_bound(self.measure, case, subject);
        // Unknown ends of the interval: a ratio to a lower bound is an upper bound.
        let unknown_high = is_lower_bound(&self.subject);
        let unknown_low = self.baseline.as_ref().is_some_and(is_lower_bound);
        let outcome = self.outcome(value, [unknown_low, unknown_high]);
        let subject = &self.subject.name;
        let baseline = self.baseline.as_ref().map_or("", |baseline| &baseline.name);
        let note = match (value, unknown_high, unknown_low) {
            (None, ..) => Some(self.why_no_value(case)),
            (Some(value), ..) if !value.interval => Some(self.why_too_few_blocks(case, n)),
            (_, true, true) => Some(format!(
                "the CPUs of {subject} and {baseline} were not the bottleneck, so the ratio is only a hint"
            )),
            (_, true, false) => Some(format!(
                "the CPU of {subject} was not the bottleneck, so the value is a lower bound"
            )),
            (_, false, true) => Some(format!(
                "the CPU of {baseline} was not the bottleneck, so the value is an upper bound"
            )),
            (_, false, false) => {
                (outcome == ThresholdOutcome::NotSettled).then(|| CONTAINS_LIMIT.to_owned())
            }
        };
        Judged { threshold: self.clone(), case: name.clone(), n, value, outcome, note }
    }

    /// Returns the figures of each block in which the subject and the baseline have them.
    fn pairs(&self, run: &RunRecords, case: &str, baseline: &str) -> Vec<Pair> {
        let baseline = self.by_block(run, case, baseline);
        let pair = |(block, subject)| Some(Pair { subject, baseline: *baseline.get(&block)? });
        self.by_block(run, case, &self.subject.name).into_iter().filter_map(pair).collect()
    }

    /// Returns the number of blocks that have the figure, and the figure over them.
    fn figure(&self, run: &RunRecords, case: &str) -> (usize, Option<Range>) {
        let values = self.by_block(run, case, &self.subject.name).into_values();
        // The difference to 0 is the figure itself, with its interval.
        let pairs: Vec<Pair> = values.map(|subject| Pair { subject, baseline: 0.0 }).collect();
        let mut value = difference(&pairs, run.manifest.seed).map(Range::from);
        if let (Measure::Blocked(class), Some(range)) = (self.measure, &mut value) {
            // One missed attack barely moves a median of means. The rate is the report's, and the interval is widened
            // to contain it.
            let all = answering(run, case, &self.subject.name).map(|(_, measurement)| measurement);
            range.estimate = blocked_rate(&by_template(all), class).unwrap_or(range.estimate);
            range.low = range.low.min(range.estimate);
            range.high = range.high.max(range.estimate);
        }
        (pairs.len(), value)
    }

    fn by_block(&self, run: &RunRecords, case: &str, subject: &str) -> BTreeMap<u32, f64> {
        let figures = |figure: &dyn Fn(&metric::Valid<'_>) -> Option<f64>| {
            let valid = metric::valid(run, case, subject).into_iter();
            valid.filter_map(|(block, trial)| Some((block, figure(&trial)?))).collect()
        };
        match self.measure {
            Measure::Priced(metric) => figures(&|trial| metric.of(trial.measurement)),
            Measure::P95 => figures(&|trial| trial.measurement.latency.p95_ms),
            Measure::P999 => figures(&|trial| trial.measurement.latency.p999_ms),
            Measure::Startup => figures(&|trial| trial.startup_ms),
            Measure::GeneratorCpu => {
                figures(&|trial| Some(trial.measurement.generator_cpu_us_per_request()))
            }
            Measure::Blocked(class) => {
                let mut blocks: BTreeMap<u32, Vec<&Measurement>> = BTreeMap::new();
                for (block, measurement) in answering(run, case, subject) {
                    blocks.entry(block).or_default().push(measurement);
                }
                let rate =
                    |(block, trials)| Some((block, blocked_rate(&by_template(trials), class)?));
                blocks.into_iter().filter_map(rate).collect()
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
            (None, Measure::P95 | Measure::P999 | Measure::Priced(Metric::LatencyP99Ms)) => {
                format!("too few requests per trial for {name}")
            }
            (None, _) => format!("no trial has a value for {name}"),
            (Some(baseline), _) => format!(
                "no ratio, because {name} of {} or {} is zero or missing",
                self.subject.name, baseline.name
            ),
        }
    }
}

impl Judged {
    /// The value with its 95 % interval and the number of blocks; `None` if nothing was measured.
    pub(crate) fn measured(&self) -> Option<String> {
        let value = value_text(&self.threshold, self.value.as_ref()?);
        Some(format!("{value}, {}", counted(self.n, "block")))
    }
}

/// Returns the worst outcome: one failed threshold fails the build, even if others are not settled.
pub fn overall(judged: &[Judged]) -> ThresholdOutcome {
    judged.iter().map(|judged| judged.outcome).max().unwrap_or(ThresholdOutcome::Pass)
}

impl Measure {
    fn name(self) -> &'static str {
        let known = MEASURES.iter().find(|(.., measure)| *measure == self);
        known.map_or("", |(name, ..)| name)
    }
}

const CONTAINS_LIMIT: &str = "the interval contains the limit; more --blocks narrow it";
const TOO_FEW_BLOCKS: &str = "fewer than 6 blocks give no 95 % interval; increase --blocks";

/// The measured trials with their blocks, except those in which a process died.
fn answering<'a>(
    run: &'a RunRecords,
    case: &'a str,
    subject: &'a str,
) -> impl Iterator<Item = (u32, &'a Measurement)> {
    let measured = metric::measured(run, case, subject);
    let answering = measured.filter(|(_, measurement)| is_answering(measurement));
    answering.map(|(trial, measurement)| (trial.block, measurement))
}

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
        let value =
            judged.value.map_or(NONE.to_owned(), |range| value_text(&judged.threshold, &range));
        vec![name(judged), value, judged.n.to_string(), judged.outcome.to_string()]
    };
    let header = ["threshold", "value [95 %]", "n", "outcome"];
    let table = Table::of_text(header, judged.iter().map(row).collect());
    let note = |judged: &Judged| Some(format!("{}: {}.", name(judged), judged.note.as_ref()?));
    [Block::Table(table), Block::List(judged.iter().filter_map(note).collect())]
}

fn value_text(threshold: &Threshold, value: &Range) -> String {
    let unit = match threshold.measure {
        _ if threshold.is_ratio => "×",
        Measure::Blocked(_) => return range(value, percent),
        Measure::Priced(Metric::MemoryPeakBytes) => {
            return format!("{} MiB", range(value, mebibytes));
        }
        Measure::Priced(Metric::CpuUsPerRequest) | Measure::GeneratorCpu => "µs",
        Measure::Priced(Metric::ThroughputPerS) => "/s",
        Measure::Priced(_) | Measure::P95 | Measure::P999 | Measure::Startup => "ms",
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
