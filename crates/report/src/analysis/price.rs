//! Prices: subject and baseline, paired block by block, with verdicts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tollgate_records::metric::{ByBlock, Metric, pairs};
use tollgate_stats::{
    Estimate, Interval, OUTLIER_Z, Verdict, difference, difference_p, holm, modified_z_scores,
    ratio, ratio_p, verdict, verdict_of_difference,
};

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
    ratio: Option<Estimate>,
    difference: Estimate,
    /// The p-value; `None` if there is no test.
    p: Option<f64>,
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

    /// True for the range of one block, whose ends are its estimate.
    pub fn is_one_value(&self) -> bool {
        !self.interval && self.low == self.high
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
    Metric::ALL.iter().copied().filter_map(raw).collect()
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

/// The prices that are corrected together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// Has no price: the others are priced against it.
    Baseline,
    Priced,
    /// The repeated baseline: a test of the run, not of a subject.
    Again,
}

/// Sets the verdict of every price of a case. The prices of one figure and family are corrected together, because the
/// more there are, the more likely one differs by chance.
pub(super) fn set_verdicts(subjects: &mut [(Family, RawPrices)], margin: f64) {
    for family in [Family::Priced, Family::Again] {
        for metric in Metric::ALL {
            let mut raws: Vec<&mut Raw> = subjects
                .iter_mut()
                .filter(|(of, _)| *of == family)
                .filter_map(|(_, prices)| prices.get_mut(metric))
                .collect();
            // Prices without a p-value were not tested and need no correction.
            let tested: Vec<f64> = raws.iter().filter_map(|raw| raw.p).collect();
            let mut adjusted = holm(&tested).into_iter();
            for raw in &mut raws {
                let p = raw.p.and_then(|_| adjusted.next()).unwrap_or(1.0);
                let more = match &raw.ratio {
                    Some(ratio) => verdict(ratio, p, margin),
                    None => verdict_of_difference(&raw.difference, p),
                };
                raw.price.verdict = Some(oriented(*metric, more));
            }
        }
    }
}

/// Turns a verdict on the value of a figure into one on the cost.
pub(crate) fn oriented(metric: Metric, verdict: Verdict) -> Verdict {
    if metric.more_is_worse() { verdict } else { verdict.reversed() }
}

/// The figures of a subject in one block. Outliers are marked, but not excluded from prices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct BlockFigure {
    /// Number of the block, from 1.
    pub block: u32,
    /// CPU of the system per response, in microseconds.
    pub cpu_us_per_request: Option<f64>,
    /// Expected responses per second.
    pub throughput_per_s: f64,
    /// Median latency, in milliseconds.
    pub latency_p50_ms: Option<f64>,
    /// 99th percentile of the latency, in milliseconds.
    pub latency_p99_ms: Option<f64>,
    /// CPU per response relative to the baseline in the same block; null if one of them has
    /// none or is invalid.
    pub ratio: Option<f64>,
    /// True if the ratio is far from those of the other blocks; without a ratio, the CPU.
    pub outlier: bool,
}

pub(super) fn by_block(
    subject: &ByBlock<'_>,
    baseline: &ByBlock<'_>,
    is_baseline: bool,
) -> Vec<BlockFigure> {
    let cpu = |figures: &ByBlock<'_>, block: &u32| {
        figures.get(block).and_then(|m| Metric::CpuUsPerRequest.of(m)).filter(|cpu| *cpu > 0.0)
    };
    let mut figures: Vec<BlockFigure> = subject
        .iter()
        .map(|(block, measurement)| {
            let own = cpu(subject, block);
            let ratio = own.zip(cpu(baseline, block)).map(|(own, baseline)| own / baseline);
            BlockFigure {
                block: *block,
                cpu_us_per_request: own,
                throughput_per_s: measurement.throughput_per_s,
                latency_p50_ms: measurement.latency.p50_ms,
                latency_p99_ms: measurement.latency.p99_ms,
                ratio,
                outlier: false,
            }
        })
        .collect();
    // The baseline's own ratios are all 1.
    let shown = |figure: &BlockFigure| {
        if is_baseline {
            figure.cpu_us_per_request
        } else {
            figure.ratio.or(figure.cpu_us_per_request)
        }
    };
    let values: Vec<f64> = figures.iter().filter_map(shown).map(f64::ln).collect();
    let mut scores = modified_z_scores(&values).into_iter();
    for figure in &mut figures {
        if shown(figure).is_some() {
            figure.outlier = scores.next().is_some_and(|score| score.abs() > OUTLIER_Z);
        }
    }
    figures
}
