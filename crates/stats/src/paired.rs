//! Prices: what a subject costs over the baseline of the same block.
//!
//! The block is the sample. Requests inside a trial are not independent samples of a price.

use crate::bootstrap;
use crate::hodges_lehmann::{hodges_lehmann, walsh_averages};
use crate::inversion;
use crate::signed_rank::p_value;
use crate::summary::sorted;

/// The most blocks that are priced. The work of the bootstrap grows with their square, and
/// stays within seconds up to here.
pub const BLOCKS_MAX: usize = 1_000;

/// One metric of a subject and of its baseline in one block, in the same unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// What the subject took.
    pub subject: f64,
    /// What the baseline took.
    pub baseline: f64,
}

/// A price over several blocks: a ratio without unit, or a difference in the unit of the metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The Hodges-Lehmann estimate.
    pub point: f64,
    /// How far it may be off.
    pub interval: Interval,
    /// How many blocks stand behind it.
    pub n: usize,
}

/// How far an estimate may be off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interval {
    /// The interval that holds the true price in 95 % of such runs.
    Confidence {
        /// Its lower end.
        low: f64,
        /// Its upper end.
        high: f64,
    },
    /// There are fewer than six blocks, and no 95 % interval exists. What was seen is told in its
    /// place; it is not an interval of the price.
    TooFew {
        /// The smallest price of a block.
        min: f64,
        /// The largest price of a block.
        max: f64,
    },
}

impl Interval {
    /// Applies a rising function to both ends.
    fn map(self, rising: impl Fn(f64) -> f64) -> Self {
        match self {
            Self::Confidence { low, high } => {
                Self::Confidence { low: rising(low), high: rising(high) }
            }
            Self::TooFew { min, max } => Self::TooFew { min: rising(min), max: rising(max) },
        }
    }
}

/// How many times as much the subject takes as the baseline.
///
/// Estimated on the logarithms of subject / baseline, so that twice as much and half as much
/// weigh the same. From 12 blocks up the interval is a bootstrap, redrawn from `seed`.
///
/// `None` when there is no block, or when a value or a ratio is not positive and finite: no ratio
/// exists then.
///
/// # Panics
///
/// With more than [`BLOCKS_MAX`] pairs.
pub fn ratio(pairs: &[Pair], seed: u64) -> Option<Estimate> {
    let logs: Vec<f64> = pairs.iter().map(log_ratio).collect::<Option<_>>()?;
    let Estimate { point, interval, n } = estimate(&logs, seed)?;
    Some(Estimate { point: point.exp(), interval: interval.map(f64::exp), n })
}

/// How much more the subject takes than the baseline, in the unit of the pairs.
///
/// From 12 blocks up the interval is a bootstrap, redrawn from `seed`.
///
/// `None` when there is no block, or when a difference is not finite.
///
/// # Panics
///
/// With more than [`BLOCKS_MAX`] pairs.
pub fn difference(pairs: &[Pair], seed: u64) -> Option<Estimate> {
    let differences: Vec<f64> = pairs.iter().map(|pair| pair.subject - pair.baseline).collect();
    estimate(&differences, seed)
}

/// The chance that blocks whose true ratio is 1 speak against it at least as clearly as these, by
/// Wilcoxon's two-sided signed-rank test on the logarithms of subject / baseline.
///
/// For [`holm`](crate::holm) and a [`verdict`](crate::verdict), not for a report. `None` wherever
/// [`ratio`] is.
pub fn ratio_p(pairs: &[Pair]) -> Option<f64> {
    let logs: Vec<f64> = pairs.iter().map(log_ratio).collect::<Option<_>>()?;
    p_of_no_price(&logs)
}

/// The chance that blocks whose true difference is 0 speak against it at least as clearly as
/// these, by Wilcoxon's two-sided signed-rank test.
///
/// `None` wherever [`difference`] is.
pub fn difference_p(pairs: &[Pair]) -> Option<f64> {
    let differences: Vec<f64> = pairs.iter().map(|pair| pair.subject - pair.baseline).collect();
    p_of_no_price(&differences)
}

/// `None` without values or when one is not finite.
fn p_of_no_price(values: &[f64]) -> Option<f64> {
    let measurable = !values.is_empty() && values.iter().all(|value| value.is_finite());
    measurable.then(|| p_value(values))
}

/// The natural logarithm of subject / baseline; `None` unless both are positive.
pub(crate) fn log_ratio(pair: &Pair) -> Option<f64> {
    (pair.subject > 0.0 && pair.baseline > 0.0).then(|| (pair.subject / pair.baseline).ln())
}

/// The centre of `values`, one a block, and its interval; `None` without values or when one is
/// not finite.
fn estimate(values: &[f64], seed: u64) -> Option<Estimate> {
    let n = values.len();
    assert!(n <= BLOCKS_MAX, "{n} blocks are more than {BLOCKS_MAX}");
    if !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    // Sorted, so that the bootstrap redraws the same blocks whatever order they ran in.
    let values = sorted(values);
    let (&min, &max) = values.first().zip(values.last())?;
    let averages = walsh_averages(&values);
    let confidence = if n <= inversion::SAMPLES_MAX {
        inversion::interval(n, &averages)
    } else {
        Some(bootstrap::interval(n, &averages, seed))
    };
    let interval = match confidence {
        Some((low, high)) => Interval::Confidence { low, high },
        None => Interval::TooFew { min, max },
    };
    Some(Estimate { point: hodges_lehmann(&averages), interval, n })
}
