//! State and price of each revision, from the records of builds and rounds.

use crate::division::ANCHOR;
use crate::store::{
    BatchRecords, BuildOutcome, BuildRecord, ProductFailure, Purpose, Round, RoundRun,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use strum::{Display, IntoStaticStr};
use tollgate_records::metric::{self, Metric, Valid};
use tollgate_records::schedule::TrialStatus;
use tollgate_records::subject::SubjectState;
use tollgate_records::trial::{self, Measurement, TrialOutcome, TrialRecord};
use tollgate_report::analysis::Range;
use tollgate_stats::{BLOCKS_MAX, Estimate, Interval, Pair, ratio};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, Display, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum RevisionState {
    Queued,
    Built,
    BuildFailed,
    TimedOut,
    /// The product does not start or fails the probe.
    RunFailed,
    /// No valid trial in a block with a valid trial of the anchor.
    Invalid,
    Done,
}

/// Returns the state of a revision and the end of the log with the reason. `absent`: why its product has no trial.
pub(crate) fn state(
    build: Option<&BuildRecord>,
    trials: &[&TrialRecord],
    absent: Option<ProductFailure>,
    has_price: bool,
) -> (RevisionState, Vec<String>) {
    match build.map(|build| &build.outcome) {
        None => (RevisionState::Queued, Vec::new()),
        Some(BuildOutcome::Failed(failure)) => (RevisionState::BuildFailed, failure.lines()),
        Some(BuildOutcome::TimedOut(failure)) => (RevisionState::TimedOut, failure.lines()),
        Some(BuildOutcome::Built { .. }) if has_price => (RevisionState::Done, Vec::new()),
        Some(BuildOutcome::Built { .. }) if trials.is_empty() => match absent {
            Some(why) => (RevisionState::RunFailed, why.lines()),
            None => (RevisionState::Built, Vec::new()),
        },
        Some(BuildOutcome::Built { .. }) => {
            let was_measured = trials
                .iter()
                .any(|trial| TrialStatus::of(&trial.outcome) != TrialStatus::Unmeasured);
            let state =
                if was_measured { RevisionState::Invalid } else { RevisionState::RunFailed };
            (state, trials.last().map_or(Vec::new(), |trial| why(&trial.outcome)))
        }
    }
}

fn why(outcome: &TrialOutcome) -> Vec<String> {
    match outcome {
        TrialOutcome::Failed(failure) => not_started(failure).lines(),
        TrialOutcome::Measured(_) if outcome.is_valid() => {
            vec!["no valid trial of the anchor in the same block".to_owned()]
        }
        TrialOutcome::Measured(_) | TrialOutcome::Refused(_) => outcome.why_not_valid(),
    }
}

pub(crate) fn not_started(failure: &trial::TrialFailure) -> ProductFailure {
    let reason = format!("{}: {}", failure.step, failure.reason);
    ProductFailure { reason, log: failure.log.clone() }
}

pub(crate) fn refused(reason: &str) -> ProductFailure {
    ProductFailure { reason: format!("refused: {reason}"), log: Vec::new() }
}

impl RevisionState {
    /// True if a repetition is useless. A busy machine or a failed anchor are temporary.
    pub(crate) fn is_unmeasurable(self) -> bool {
        match self {
            Self::BuildFailed | Self::TimedOut | Self::RunFailed => true,
            Self::Queued | Self::Built | Self::Invalid | Self::Done => false,
        }
    }
}

/// The figures of one revision.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Point {
    /// Commit or version.
    pub revision: String,
    /// Short name.
    pub name: String,
    /// Commit date as git's `%ci`; empty for a version.
    pub date: String,
    /// First line of the commit message; empty for a version.
    pub message: String,
    /// False if it was found by bisection.
    pub listed: bool,
    pub state: RevisionState,
    /// End of the log, if there is no price.
    pub reason: Vec<String>,
    /// SHA-256.
    pub product: Option<String>,
    /// Ratio to the anchor in the same block.
    pub price: Option<Range>,
    /// Number of blocks.
    pub n: usize,
    /// Means over the valid trials.
    pub means: Option<Means>,
    pub rounds: Vec<u32>,
    /// Log price of each block.
    #[serde(skip)]
    pub logs: Vec<f64>,
}

/// Means over the valid trials of a product.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Means {
    /// Expected responses per second.
    pub throughput_per_s: f64,
    pub latency_mean_ms: Option<f64>,
    /// User CPU time of the system during a trial, in ticks of 10 ms as in `/proc/PID/stat`.
    pub user_ticks: Option<f64>,
    pub cpu_us_per_request: Option<f64>,
}

/// A product that ran twice in a round: the difference between equals.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Check {
    pub round: u32,
    pub subject: String,
    /// Subject with the same product.
    pub same_as: String,
    /// Ratio of the two: 1 except for noise.
    pub ratio: Range,
    /// Number of blocks.
    pub n: usize,
    /// The interval excludes 1 and extends beyond the margin.
    pub differs: bool,
}

/// Returns all revisions in order; those found by bisection only if they were tried.
pub fn points(records: &BatchRecords<'_>) -> Vec<Point> {
    let by_product = records.by_product();
    let anchor = records.manifest.anchor_product.as_deref();
    let revisions = records.manifest.revisions.iter();
    let point = |revision: &crate::repository::Revision| {
        let build = records.build(&revision.id);
        let product = build.and_then(|build| match &build.outcome {
            BuildOutcome::Built { product, .. } => Some(product.clone()),
            BuildOutcome::Failed(_) | BuildOutcome::TimedOut(_) => None,
        });
        let own = product.as_deref().and_then(|product| by_product.get(product));
        let counts = |(run, name): &(&RoundRun, &str)| counts(&run.round, name, anchor);
        let runs: Vec<(&RoundRun, &str)> =
            own.into_iter().flatten().copied().filter(counts).collect();
        let trials: Vec<&TrialRecord> = runs
            .iter()
            .flat_map(|(run, name)| {
                run.run.trials.iter().filter(move |trial| trial.subject == *name)
            })
            .collect();
        let pairs = runs.iter().flat_map(|(run, name)| pairs(records, run, name, ANCHOR));
        let pairs = latest(pairs.collect());
        let price = ratio(&pairs, records.manifest.seed).map(Range::from);
        let absent = runs.iter().rev().find_map(|(run, name)| absent(run, name));
        let failed_probe = || records.failed_probe(product.as_deref()?).cloned();
        let absent = absent.map(ProductFailure::of_text).or_else(failed_probe);
        let (state, why) = state(build, &trials, absent, price.is_some());
        Point {
            revision: revision.id.clone(),
            name: revision.name.clone(),
            date: revision.date.clone(),
            message: revision.message.clone(),
            listed: revision.listed,
            state,
            reason: why,
            product,
            price,
            n: if price.is_some() { pairs.len() } else { 0 },
            means: means(&runs),
            rounds: runs.iter().map(|(run, _)| run.round.round).collect(),
            logs: price.map_or(Vec::new(), |_| pairs.iter().map(log_ratio).collect()),
        }
    };
    revisions
        .map(point)
        .filter(|point| point.listed || point.state != RevisionState::Queued)
        .collect()
}

pub fn checks(records: &BatchRecords<'_>) -> Vec<Check> {
    let margin = records.manifest.settings.margin;
    let check = |run: &RoundRun, subject: &str, same_as: &str| {
        let pairs = pairs(records, run, subject, same_as);
        let ratio = Range::from(ratio(&pairs, records.manifest.seed)?);
        let reaches = ratio.high > 1.0 + margin || ratio.low < 1.0 / (1.0 + margin);
        Some(Check {
            round: run.round.round,
            subject: subject.to_owned(),
            same_as: same_as.to_owned(),
            ratio,
            n: pairs.len(),
            differs: ratio.excludes_one() && reaches,
        })
    };
    let runs = records.rounds.iter();
    runs.flat_map(|run| {
        run.round
            .duplicates
            .iter()
            .filter_map(move |(subject, same_as)| check(run, subject, same_as))
    })
    .collect()
}

/// Returns the largest difference between equal products that is significant and beyond the margin.
pub(crate) fn noise(checks: &[Check], margin: f64) -> Option<f64> {
    let off = checks.iter().filter(|check| check.differs);
    let apart = off.map(|check| check.ratio.estimate.max(1.0 / check.ratio.estimate) - 1.0);
    apart.filter(|apart| *apart > margin).max_by(f64::total_cmp)
}

/// Returns the price of a product over another, only from their confirmation rounds.
pub(crate) fn confirmed(
    records: &BatchRecords<'_>,
    parent: &str,
    first_bad: &str,
) -> Option<Vec<Pair>> {
    let is_of = |run: &&RoundRun| match &run.round.purpose {
        Purpose::Confirmation { parent: one, first_bad: other } => {
            one == parent && other == first_bad
        }
        Purpose::Series | Purpose::Bisection => false,
    };
    let run = records.rounds.iter().rev().find(is_of)?;
    let name = |product: &str| {
        let mut all = run.round.products.iter().filter(|(name, _)| *name != ANCHOR);
        all.find(|(_, own)| *own == product).map(|(name, _)| name.as_str())
    };
    Some(pairs(records, run, name(first_bad)?, name(parent)?))
}

pub(crate) fn estimate(logs: &[f64], seed: u64) -> Option<Estimate> {
    let pairs: Vec<Pair> =
        logs.iter().map(|log| Pair { subject: log.exp(), baseline: 1.0 }).collect();
    ratio(&pairs, seed)
}

/// Returns the side of the value on which the interval lies; `None` if it contains the value or is missing.
pub(crate) fn side(estimate: &Estimate, of: f64) -> Option<std::cmp::Ordering> {
    match estimate.interval {
        Interval::Confidence { low, .. } if low > of => Some(std::cmp::Ordering::Greater),
        Interval::Confidence { high, .. } if high < of => Some(std::cmp::Ordering::Less),
        Interval::Confidence { .. } | Interval::TooFew { .. } => None,
    }
}

/// `_SC_CLK_TCK` of sysconf(3), the same on every Linux.
const TICK_US: f64 = 10_000.0;

/// True if a subject counts for the price of its product: not in confirmations, not the second run of a product, and only
/// over the pinned anchor.
fn counts(round: &Round, name: &str, anchor: Option<&str>) -> bool {
    let is_series = matches!(round.purpose, Purpose::Series | Purpose::Bisection);
    let is_twin = round.duplicates.get(name).is_some_and(|first| first != ANCHOR);
    let is_over_it = round.products.get(ANCHOR).map(String::as_str) == anchor;
    is_series && name != ANCHOR && !is_twin && is_over_it
}

fn absent<'a>(run: &'a RoundRun, name: &str) -> Option<&'a str> {
    let mut subjects = run.run.manifest.experiment.subjects.iter();
    match &subjects.find(|subject| subject.name == name)?.state {
        SubjectState::Present { .. } => None,
        SubjectState::Skipped { missing } => Some(&missing.message),
        SubjectState::Broken { reason } => Some(reason),
    }
}

/// Keeps the last blocks, up to the maximum of the statistics.
fn latest(mut pairs: Vec<Pair>) -> Vec<Pair> {
    pairs.split_off(pairs.len().saturating_sub(BLOCKS_MAX))
}

fn pairs(records: &BatchRecords<'_>, run: &RoundRun, subject: &str, over: &str) -> Vec<Pair> {
    let metric = records.manifest.settings.metric.metric();
    let figures = |name: &str| figures(run, name, metric);
    let (own, other) = (figures(subject), figures(over));
    let pair = |(block, subject): (&u32, &f64)| {
        Some(Pair { subject: *subject, baseline: *other.get(block)? })
    };
    own.iter().filter_map(pair).collect()
}

/// Returns the figure of each valid block; 0 has no ratio.
fn figures(run: &RoundRun, subject: &str, metric: Metric) -> BTreeMap<u32, f64> {
    let Some(case) = run.run.manifest.experiment.cases.first() else { return BTreeMap::new() };
    let figure = |(block, valid): (u32, Valid<'_>)| {
        Some((block, metric.of(valid.measurement).filter(|value| *value > 0.0)?))
    };
    metric::valid(&run.run, &case.name, subject).into_iter().filter_map(figure).collect()
}

fn means(runs: &[(&RoundRun, &str)]) -> Option<Means> {
    let of_run = |(run, name): &(&RoundRun, &str)| -> Vec<Measurement> {
        let Some(case) = run.run.manifest.experiment.cases.first() else { return Vec::new() };
        let valid = metric::valid(&run.run, &case.name, name);
        valid.into_values().map(|valid| valid.measurement.clone()).collect()
    };
    let all: Vec<Measurement> = runs.iter().flat_map(of_run).collect();
    let mean_of = |figure: &dyn Fn(&Measurement) -> Option<f64>| {
        let values: Vec<f64> = all.iter().filter_map(figure).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    Some(Means {
        throughput_per_s: mean_of(&|one| Some(one.throughput_per_s))?,
        latency_mean_ms: mean_of(&|one| one.latency.mean_ms),
        user_ticks: mean_of(&|one| one.cpu.system.map(|cpu| cpu.user_us as f64 / TICK_US)),
        cpu_us_per_request: mean_of(&Measurement::system_cpu_us_per_request),
    })
}

fn log_ratio(pair: &Pair) -> f64 {
    (pair.subject / pair.baseline).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::SCHEMA;
    use tollgate_records::trial::TrialStep;

    fn build(outcome: BuildOutcome) -> BuildRecord {
        BuildRecord {
            schema: SCHEMA,
            key: "k".to_owned(),
            revision: "r".to_owned(),
            ended_at: String::new(),
            duration_s: 1.0,
            outcome,
        }
    }

    fn failed_trial() -> TrialRecord {
        let failure = trial::TrialFailure {
            step: TrialStep::Start,
            reason: "`server` ended".to_owned(),
            log: vec!["Segmentation fault".to_owned()],
        };
        TrialRecord {
            schema: trial::SCHEMA,
            case: "c".to_owned(),
            subject: "r".to_owned(),
            block: 1,
            position: 1,
            attempt: 1,
            started_at: String::new(),
            duration_s: 1.0,
            startup_ms: None,
            outcome: TrialOutcome::Failed(failure),
        }
    }

    #[test]
    fn every_state_follows_from_the_records() {
        let failure =
            ProductFailure { reason: "status 2".to_owned(), log: vec!["error: x".to_owned()] };
        let built = build(BuildOutcome::Built { product: "p".to_owned(), folder: "k".to_owned() });
        let failed = build(BuildOutcome::Failed(failure.clone()));
        let late = build(BuildOutcome::TimedOut(failure));
        let trial = failed_trial();
        assert_eq!(state(None, &[], None, false).0, RevisionState::Queued);
        assert_eq!(state(Some(&built), &[], None, false).0, RevisionState::Built);
        assert_eq!(state(Some(&built), &[&trial], None, true).0, RevisionState::Done);
        let log = vec!["status 2".to_owned(), "error: x".to_owned()];
        assert_eq!(
            state(Some(&failed), &[], None, false),
            (RevisionState::BuildFailed, log.clone())
        );
        assert_eq!(state(Some(&late), &[], None, false), (RevisionState::TimedOut, log));
        // Its version command fails, so it has no trial.
        let absent = ProductFailure::of_text("running `server -v`\nno symbol");
        let (dead, log) = state(Some(&built), &[], Some(absent), false);
        assert_eq!((dead, log.len()), (RevisionState::RunFailed, 2));
        let (crashed, log) = state(Some(&built), &[&trial], None, false);
        assert_eq!(crashed, RevisionState::RunFailed);
        assert_eq!(log, ["it did not start: `server` ended", "Segmentation fault"]);
    }

    #[test]
    fn only_failed_builds_and_runs_are_final() {
        let lost = [RevisionState::BuildFailed, RevisionState::TimedOut, RevisionState::RunFailed];
        assert!(lost.into_iter().all(RevisionState::is_unmeasurable));
        let open = [
            RevisionState::Queued,
            RevisionState::Built,
            RevisionState::Invalid,
            RevisionState::Done,
        ];
        assert!(!open.into_iter().any(RevisionState::is_unmeasurable));
    }
}

#[cfg(test)]
mod series_tests {
    use super::*;
    use crate::store::SCHEMA;

    #[test]
    fn only_blocks_over_the_pinned_anchor_count() {
        let products = [(ANCHOR, "one"), ("a", "two"), ("a-again", "two"), ("b", "one")];
        let duplicates = [("a-again", "a"), ("b", ANCHOR)];
        let owned = |(a, b): (&str, &str)| (a.to_owned(), b.to_owned());
        let mut round = Round {
            schema: SCHEMA,
            round: 1,
            purpose: Purpose::Series,
            products: products.map(owned).into(),
            duplicates: duplicates.map(owned).into(),
            blocks: 6,
        };
        let counted = |round: &Round, anchor: &str| -> Vec<String> {
            let names = round.products.keys().filter(|name| counts(round, name, Some(anchor)));
            names.cloned().collect()
        };
        assert_eq!(counted(&round, "one"), ["a", "b"]);
        assert!(counted(&round, "another").is_empty());
        round.purpose =
            Purpose::Confirmation { parent: "one".to_owned(), first_bad: "two".to_owned() };
        assert!(counted(&round, "one").is_empty());
    }

    #[test]
    fn only_the_last_blocks_are_priced() {
        let pair = |subject: f64| Pair { subject, baseline: 1.0 };
        let few = latest(vec![pair(2.0), pair(3.0)]);
        assert_eq!(few, [pair(2.0), pair(3.0)]);
        let many = [vec![pair(9.0); 3], vec![pair(2.0); BLOCKS_MAX]].concat();
        let price = ratio(&latest(many), 1).unwrap();
        assert_eq!((price.n, price.point), (BLOCKS_MAX, 2.0));
    }

    #[test]
    fn noise_is_the_largest_significant_difference_between_equals() {
        let check = |estimate: f64, differs: bool| Check {
            round: 1,
            subject: "b".to_owned(),
            same_as: "a".to_owned(),
            ratio: Range { estimate, low: estimate - 0.01, high: estimate + 0.01, interval: true },
            n: 12,
            differs,
        };
        assert_eq!(noise(&[], 0.02), None);
        assert_eq!(noise(&[check(1.5, false)], 0.02), None);
        assert_eq!(noise(&[check(1.015, true)], 0.02), None);
        // 1 / 0.8 is a difference of 25 %.
        let spread = noise(&[check(1.04, true), check(0.8, true)], 0.02).unwrap();
        assert!((spread - 0.25).abs() < 1e-12, "{spread}");
    }
}
