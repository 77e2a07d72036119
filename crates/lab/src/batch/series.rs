//! What is known of each revision, in their order: its state, its figures, and its price over the anchor.
//! Pure.

use super::dir::{BatchRecords, RoundRun};
use super::records::{BuildOutcome, Purpose, Round};
use super::rounds::ANCHOR;
use super::states::{State, state};
use crate::analysis::{Metric, Range};
use crate::blocks::{self, Valid};
use crate::manifest::SubjectState;
use crate::record::{Measurement, TrialRecord};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use tollgate_stats::{BLOCKS_MAX, Estimate, Interval, Pair, ratio};

/// What is known of one revision.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Point {
    /// The commit, or the version.
    pub revision: String,
    /// What it is called in tables.
    pub name: String,
    /// When it was committed, as git's `%ci`; empty for a version.
    pub date: String,
    /// The first line of the commit's message; empty for a version.
    pub log: String,
    /// Whether it was asked for, and not met on the way.
    pub listed: bool,
    /// How far it has come.
    pub state: State,
    /// Why it has no price: the end of the log.
    pub why: Vec<String>,
    /// SHA-256 of its product; revisions that have the same one share a measurement.
    pub product: Option<String>,
    /// Its figure over that of the anchor in the same block.
    pub price: Option<Range>,
    /// Blocks behind the price.
    pub n: usize,
    /// Means over the trials that count.
    pub means: Option<Means>,
    /// The rounds that measured it.
    pub rounds: Vec<u32>,
    /// The logarithm of the price in each block.
    #[serde(skip)]
    pub logs: Vec<f64>,
}

/// Means over the trials of a product that count.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Means {
    /// Expected answers a second.
    pub throughput_per_s: f64,
    /// The mean latency in milliseconds; none where nothing was answered.
    pub latency_mean_ms: Option<f64>,
    /// User CPU time of the system over a trial, in ticks of 10 ms, as `/proc/PID/stat` has it.
    pub user_ticks: Option<f64>,
    /// CPU time of the system for each answer, in microseconds.
    pub cpu_us_per_request: Option<f64>,
}

/// A product that stood twice in a round: how far apart equal things are.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Check {
    /// The round.
    pub round: u32,
    /// The subject.
    pub subject: String,
    /// The one that it is the same as.
    pub same_as: String,
    /// The one over the other, which is 1 but for the noise.
    pub ratio: Range,
    /// Blocks behind it.
    pub n: usize,
    /// Whether the interval leaves out 1, and reaches beyond the margin.
    pub is_off: bool,
}

/// Every revision in their order; those that were met on the way only where they were tried.
pub fn points(records: &BatchRecords) -> Vec<Point> {
    let by_product = records.by_product();
    let anchor = records.manifest.anchor_product.as_deref();
    let revisions = records.manifest.revisions.iter();
    let point = |revision: &super::revision::Revision| {
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
            .flat_map(|(run, name)| run.run.trials.iter().filter(move |it| it.subject == *name))
            .collect();
        let pairs = runs.iter().flat_map(|(run, name)| pairs(records, run, name, ANCHOR));
        let pairs = latest(pairs.collect());
        let price = ratio(&pairs, records.manifest.seed).map(Range::from);
        let absent = runs.iter().rev().find_map(|(run, name)| absent(run, name));
        let (state, why) = state(build, &trials, absent, price.is_some());
        Point {
            revision: revision.id.clone(),
            name: revision.name.clone(),
            date: revision.date.clone(),
            log: revision.log.clone(),
            listed: revision.listed,
            state,
            why,
            product,
            price,
            n: if price.is_some() { pairs.len() } else { 0 },
            means: means(&runs),
            rounds: runs.iter().map(|(run, _)| run.round.round).collect(),
            logs: price.map_or(Vec::new(), |_| pairs.iter().map(log_ratio).collect()),
        }
    };
    revisions.map(point).filter(|point| point.listed || point.state != State::Queued).collect()
}

/// Every product that stood twice in a round.
pub fn checks(records: &BatchRecords) -> Vec<Check> {
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
            is_off: ratio.excludes_one() && reaches,
        })
    };
    let runs = records.rounds.iter();
    runs.flat_map(|run| {
        run.round.again.iter().filter_map(move |(subject, same_as)| check(run, subject, same_as))
    })
    .collect()
}

/// Up to which difference equal products were found to differ, where that is beyond the margin: as far as the
/// farthest of those that are off.
pub(super) fn noise(checks: &[Check], margin: f64) -> Option<f64> {
    let off = checks.iter().filter(|check| check.is_off);
    let apart = off.map(|check| check.ratio.estimate.max(1.0 / check.ratio.estimate) - 1.0);
    apart.filter(|apart| *apart > margin).max_by(f64::total_cmp)
}

/// The price of one product over another, from the rounds in which a confirmation put both beside each
/// other, and from no others.
pub(super) fn confirmed(records: &BatchRecords, parent: &str, culprit: &str) -> Option<Vec<Pair>> {
    let is_of = |run: &&RoundRun| match &run.round.purpose {
        Purpose::Confirmation { parent: one, culprit: other } => one == parent && other == culprit,
        Purpose::Series | Purpose::Bisection => false,
    };
    let run = records.rounds.iter().rev().find(is_of)?;
    let name = |product: &str| {
        let mut all = run.round.products.iter().filter(|(name, _)| *name != ANCHOR);
        all.find(|(_, own)| *own == product).map(|(name, _)| name.as_str())
    };
    Some(pairs(records, run, name(culprit)?, name(parent)?))
}

/// The estimate of a price from the logarithms of its blocks.
pub(super) fn estimate(logs: &[f64], seed: u64) -> Option<Estimate> {
    let pairs: Vec<Pair> =
        logs.iter().map(|log| Pair { subject: log.exp(), baseline: 1.0 }).collect();
    ratio(&pairs, seed)
}

/// On which side of a value an interval is; none where it holds it, or is none.
pub(super) fn side(estimate: &Estimate, of: f64) -> Option<std::cmp::Ordering> {
    match estimate.interval {
        Interval::Confidence { low, .. } if low > of => Some(std::cmp::Ordering::Greater),
        Interval::Confidence { high, .. } if high < of => Some(std::cmp::Ordering::Less),
        Interval::Confidence { .. } | Interval::TooFew { .. } => None,
    }
}

/// A tick of `/proc/PID/stat` on every Linux: sysconf(3), `_SC_CLK_TCK`.
const TICK_US: f64 = 10_000.0;

/// Whether a subject of a round counts for its product's price: confirmations stand for themselves, a
/// product's second time is there to be held against the first, and a price over another anchor is another
/// price.
fn counts(round: &Round, name: &str, anchor: Option<&str>) -> bool {
    let is_series = matches!(round.purpose, Purpose::Series | Purpose::Bisection);
    let is_twin = round.again.get(name).is_some_and(|first| first != ANCHOR);
    let is_over_it = round.products.get(ANCHOR).map(String::as_str) == anchor;
    is_series && name != ANCHOR && !is_twin && is_over_it
}

/// Why no trial of a subject was begun in a round; none where they were.
fn absent<'a>(run: &'a RoundRun, name: &str) -> Option<&'a str> {
    let mut subjects = run.run.manifest.experiment.subjects.iter();
    match &subjects.find(|subject| subject.name == name)?.state {
        SubjectState::Present { .. } => None,
        SubjectState::Skipped { missing } => Some(&missing.what),
        SubjectState::Broken { reason } => Some(reason),
    }
}

/// As many blocks as are priced at the most: a product that is measured again and again may have more, and
/// the last ones say what there is to say.
fn latest(mut pairs: Vec<Pair>) -> Vec<Pair> {
    pairs.split_off(pairs.len().saturating_sub(BLOCKS_MAX))
}

fn pairs(records: &BatchRecords, run: &RoundRun, subject: &str, over: &str) -> Vec<Pair> {
    let metric = records.manifest.settings.figure.metric();
    let figures = |name: &str| figures(run, name, metric);
    let (own, other) = (figures(subject), figures(over));
    let pair = |(block, subject): (&u32, &f64)| {
        Some(Pair { subject: *subject, baseline: *other.get(block)? })
    };
    own.iter().filter_map(pair).collect()
}

/// The figure of each block that counts; one that is nothing has no ratio.
fn figures(run: &RoundRun, subject: &str, metric: Metric) -> BTreeMap<u32, f64> {
    let Some(case) = run.run.manifest.experiment.cases.first() else { return BTreeMap::new() };
    let figure = |(block, valid): (u32, Valid<'_>)| {
        Some((block, metric.of(valid.measurement).filter(|value| *value > 0.0)?))
    };
    blocks::valid(&run.run, &case.name, subject).into_iter().filter_map(figure).collect()
}

fn means(runs: &[(&RoundRun, &str)]) -> Option<Means> {
    let of_run = |(run, name): &(&RoundRun, &str)| -> Vec<Measurement> {
        let Some(case) = run.run.manifest.experiment.cases.first() else { return Vec::new() };
        let valid = blocks::valid(&run.run, &case.name, name);
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
    use crate::batch::records::SCHEMA;

    #[test]
    fn only_blocks_over_the_pinned_anchor_count() {
        let products = [(ANCHOR, "one"), ("a", "two"), ("a-again", "two"), ("b", "one")];
        let again = [("a-again", "a"), ("b", ANCHOR)];
        let owned = |(a, b): (&str, &str)| (a.to_owned(), b.to_owned());
        let mut round = Round {
            schema: SCHEMA,
            round: 1,
            purpose: Purpose::Series,
            products: products.map(owned).into(),
            again: again.map(owned).into(),
            blocks: 6,
        };
        let counted = |round: &Round, anchor: &str| -> Vec<String> {
            let names = round.products.keys().filter(|name| counts(round, name, Some(anchor)));
            names.cloned().collect()
        };
        assert_eq!(counted(&round, "one"), ["a", "b"]);
        assert!(counted(&round, "another").is_empty());
        round.purpose =
            Purpose::Confirmation { parent: "one".to_owned(), culprit: "two".to_owned() };
        assert!(counted(&round, "one").is_empty());
    }

    #[test]
    fn a_product_with_more_blocks_than_are_priced_has_the_price_of_the_last_ones() {
        let pair = |subject: f64| Pair { subject, baseline: 1.0 };
        let few = latest(vec![pair(2.0), pair(3.0)]);
        assert_eq!(few, [pair(2.0), pair(3.0)]);
        let many = [vec![pair(9.0); 3], vec![pair(2.0); BLOCKS_MAX]].concat();
        let price = ratio(&latest(many), 1).unwrap();
        assert_eq!((price.n, price.point), (BLOCKS_MAX, 2.0));
    }

    #[test]
    fn the_noise_is_as_far_as_equal_products_are_surely_apart() {
        let check = |estimate: f64, is_off: bool| Check {
            round: 1,
            subject: "b".to_owned(),
            same_as: "a".to_owned(),
            ratio: Range { estimate, low: estimate - 0.01, high: estimate + 0.01, interval: true },
            n: 12,
            is_off,
        };
        assert_eq!(noise(&[], 0.02), None);
        assert_eq!(noise(&[check(1.5, false)], 0.02), None);
        assert_eq!(noise(&[check(1.015, true)], 0.02), None);
        // 1 / 0.8 is 25 % apart.
        let told = noise(&[check(1.04, true), check(0.8, true)], 0.02).unwrap();
        assert!((told - 0.25).abs() < 1e-12, "{told}");
    }
}
