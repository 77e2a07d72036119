//! What a subject costs over the baseline, paired block by block.

use crate::record::{Measurement, as_f64};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tollgate_stats::{
    Estimate, Interval, Pair, Verdict, difference, difference_p, half_width, ratio, ratio_p,
};

/// A figure that is priced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// CPU microseconds of the system for each answer.
    CpuUsPerRequest,
    /// Expected answers a second.
    ThroughputPerS,
    /// Mean latency in milliseconds.
    LatencyMeanMs,
    /// Shortest latency in milliseconds.
    LatencyMinMs,
    /// Median latency in milliseconds.
    LatencyP50Ms,
    /// 90th percentile of the latency in milliseconds.
    LatencyP90Ms,
    /// 99th percentile of the latency in milliseconds.
    LatencyP99Ms,
    /// Longest latency in milliseconds.
    LatencyMaxMs,
    /// Peak memory in bytes.
    MemoryPeakBytes,
}

/// The prices of a subject, by figure; one that cannot be formed is left out.
pub type Prices = BTreeMap<Metric, Price>;

/// What a subject costs over the baseline of the same block, in one figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Price {
    /// Blocks in which both subject and baseline are valid.
    pub n: usize,
    /// Subject over baseline; none where one of them is zero, as the CPU of no proxy is.
    pub ratio: Option<Range>,
    /// Subject minus baseline, in the figure's own unit.
    pub difference: Range,
    /// What that means, beside the other prices of this figure.
    pub verdict: Option<Verdict>,
}

/// How precise prices are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Precision {
    /// The widest half-width of an interval, as a share.
    pub half_width: f64,
    /// The smallest number of blocks behind one.
    pub n: usize,
}

/// A price before it is known how many others stand beside it.
#[derive(Debug, Clone)]
pub(super) struct Raw {
    pub(super) price: Price,
    pub(super) ratio: Option<Estimate>,
    pub(super) difference: Estimate,
    /// How likely blocks like these are where there is no difference; none where it cannot be told.
    pub(super) p: Option<f64>,
}

pub(super) type RawPrices = BTreeMap<Metric, Raw>;

/// An estimate and how far it may be off.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Range {
    /// The Hodges-Lehmann estimate.
    pub estimate: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// Whether the ends are those of a 95 % interval. Where there are too few blocks for one, they
    /// are the smallest and the largest value that was seen, and say nothing about the next.
    pub interval: bool,
}

impl Range {
    /// Whether the interval says that the ratio is not 1.
    pub fn excludes_one(&self) -> bool {
        self.interval && (self.low > 1.0 || self.high < 1.0)
    }
}

impl Metric {
    /// Every figure that is priced.
    pub const ALL: [Self; 9] = [
        Self::CpuUsPerRequest,
        Self::ThroughputPerS,
        Self::LatencyMeanMs,
        Self::LatencyMinMs,
        Self::LatencyP50Ms,
        Self::LatencyP90Ms,
        Self::LatencyP99Ms,
        Self::LatencyMaxMs,
        Self::MemoryPeakBytes,
    ];

    /// The name in machine-readable reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::CpuUsPerRequest => "cpu_us_per_request",
            Self::ThroughputPerS => "throughput_per_s",
            Self::LatencyMeanMs => "latency_mean_ms",
            Self::LatencyMinMs => "latency_min_ms",
            Self::LatencyP50Ms => "latency_p50_ms",
            Self::LatencyP90Ms => "latency_p90_ms",
            Self::LatencyP99Ms => "latency_p99_ms",
            Self::LatencyMaxMs => "latency_max_ms",
            Self::MemoryPeakBytes => "memory_peak_bytes",
        }
    }

    /// Whether a subject that has more of it costs more.
    pub fn more_is_worse(self) -> bool {
        self != Self::ThroughputPerS
    }

    /// The figure of one trial. A subject without processes uses no CPU and no memory; memory of
    /// processes that could not be read is not known, and so has no price.
    pub(crate) fn of(self, measurement: &Measurement) -> Option<f64> {
        match self {
            Self::CpuUsPerRequest => Some(measurement.system_cpu_us_per_request().unwrap_or(0.0)),
            Self::ThroughputPerS => Some(measurement.throughput_per_s),
            Self::LatencyMeanMs => measurement.latency.mean_ms,
            Self::LatencyMinMs => measurement.latency.min_ms,
            Self::LatencyP50Ms => measurement.latency.p50_ms,
            Self::LatencyP90Ms => measurement.latency.p90_ms,
            Self::LatencyP99Ms => measurement.latency.p99_ms,
            Self::LatencyMaxMs => measurement.latency.max_ms,
            Self::MemoryPeakBytes => match measurement.memory_peak_bytes {
                Some(bytes) => Some(as_f64(bytes)),
                None => measurement.cpu.system.is_none().then_some(0.0),
            },
        }
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

/// How precise the price of a subject in one figure is; none without an interval.
pub(super) fn precision(
    metric: Metric,
    subject: &ByBlock<'_>,
    baseline: &ByBlock<'_>,
    seed: u64,
) -> Option<Precision> {
    let pairs = pairs(metric, subject, baseline);
    let half_width = half_width(&ratio(&pairs, seed)?)?;
    Some(Precision { half_width, n: pairs.len() })
}

/// The valid measurements of a subject, by block.
pub(super) type ByBlock<'a> = BTreeMap<u32, &'a Measurement>;

fn pairs(metric: Metric, subject: &ByBlock<'_>, baseline: &ByBlock<'_>) -> Vec<Pair> {
    let pair = |(block, measurement): (&u32, &&Measurement)| {
        Some(Pair { subject: metric.of(measurement)?, baseline: metric.of(baseline.get(block)?)? })
    };
    subject.iter().filter_map(pair).collect()
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
