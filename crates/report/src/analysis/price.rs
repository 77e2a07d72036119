//! Prices: subject and baseline, paired block by block.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tollgate_experiment::metric::Metric;
use tollgate_experiment::metric::{ByBlock, pairs};
use tollgate_stats::{Estimate, Interval, Verdict, difference, difference_p, ratio, ratio_p};

/// The prices of a subject by figure.
pub type Prices = BTreeMap<Metric, Price>;

/// One figure of a subject relative to the baseline of the same block.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Price {
    /// Number of blocks in which subject and baseline are valid.
    pub n: usize,
    /// Subject divided by baseline; null if one of them is zero, such as the CPU without a proxy.
    pub ratio: Option<Range>,
    /// Subject minus baseline, in the unit of the figure.
    pub difference: Range,
    /// The verdict, corrected for the other prices of this figure.
    pub verdict: Option<Verdict>,
}

/// A price before the correction for multiple comparisons.
#[derive(Debug, Clone)]
pub(super) struct Raw {
    pub(super) price: Price,
    pub(super) ratio: Option<Estimate>,
    pub(super) difference: Estimate,
    /// The p-value; `None` if there is no test.
    pub(super) p: Option<f64>,
}

pub(super) type RawPrices = BTreeMap<Metric, Raw>;

/// An estimate with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Range {
    /// The Hodges-Lehmann estimate.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// True if the ends are those of a 95 % interval. With too few blocks for one, they
    /// are the smallest and the largest observed value.
    pub interval: bool,
}

impl Range {
    /// True if 1 is outside of the 95 % interval.
    pub fn excludes_one(&self) -> bool {
        self.interval && (self.low > 1.0 || self.high < 1.0)
    }
}

/// Prices a subject: only blocks in which both sides are valid and have the figure count.
pub(super) fn prices(subject: &ByBlock<'_>, baseline: &ByBlock<'_>, seed: u64) -> RawPrices {
    let raw = |metric: Metric| {
        let pairs = pairs(metric, subject, baseline);
        let ratio = ratio(&pairs, seed);
        let difference = difference(&pairs, seed)?;
        let price = Price {
            n: pairs.len(),
            ratio: ratio.map(Range::from),
            difference: difference.into(),
            verdict: None,
        };
        let p = match ratio {
            Some(_) => ratio_p(&pairs),
            None => difference_p(&pairs),
        };
        Some((metric, Raw { price, ratio, difference, p }))
    };
    Metric::ALL.into_iter().filter_map(raw).collect()
}

impl From<Estimate> for Range {
    fn from(estimate: Estimate) -> Self {
        let (low, high, interval) = match estimate.interval {
            Interval::Confidence { low, high } => (low, high, true),
            Interval::TooFew { min, max } => (min, max, false),
        };
        Self { estimate: estimate.point, low, high, interval }
    }
}
