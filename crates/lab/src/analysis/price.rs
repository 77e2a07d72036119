//! What a subject costs over the baseline, paired block by block.

use crate::record::{Measurement, as_f64};
use serde::Serialize;
use std::collections::BTreeMap;
use tollgate_stats::{Estimate, Interval, Pair, difference, ratio};

/// A figure that is priced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// CPU microseconds of the system for each answer.
    CpuUsPerRequest,
    /// Expected answers a second.
    ThroughputPerS,
    /// Mean latency in milliseconds.
    LatencyMeanMs,
    /// Median latency in milliseconds.
    LatencyP50Ms,
    /// 99th percentile of the latency in milliseconds.
    LatencyP99Ms,
    /// Peak memory in bytes.
    MemoryPeakBytes,
}

/// The prices of a subject, by figure; one that cannot be formed is left out.
pub type Prices = BTreeMap<Metric, Price>;

/// What a subject costs over the baseline of the same block, in one figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Price {
    /// Blocks in which both subject and baseline are valid.
    pub n: usize,
    /// Subject over baseline; none where one of them is zero, as the CPU of no proxy is.
    pub ratio: Option<Range>,
    /// Subject minus baseline, in the figure's own unit.
    pub difference: Range,
}

/// An estimate and how far it may be off.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
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

impl Metric {
    /// Every figure that is priced.
    pub const ALL: [Self; 6] = [
        Self::CpuUsPerRequest,
        Self::ThroughputPerS,
        Self::LatencyMeanMs,
        Self::LatencyP50Ms,
        Self::LatencyP99Ms,
        Self::MemoryPeakBytes,
    ];

    /// The name in machine-readable reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::CpuUsPerRequest => "cpu_us_per_request",
            Self::ThroughputPerS => "throughput_per_s",
            Self::LatencyMeanMs => "latency_mean_ms",
            Self::LatencyP50Ms => "latency_p50_ms",
            Self::LatencyP99Ms => "latency_p99_ms",
            Self::MemoryPeakBytes => "memory_peak_bytes",
        }
    }

    /// The figure of one trial. A subject without processes uses no CPU and no memory.
    pub(crate) fn of(self, measurement: &Measurement) -> Option<f64> {
        match self {
            Self::CpuUsPerRequest => Some(measurement.system_cpu_us_per_request().unwrap_or(0.0)),
            Self::ThroughputPerS => Some(measurement.throughput_per_s),
            Self::LatencyMeanMs => measurement.latency.mean_ms,
            Self::LatencyP50Ms => measurement.latency.p50_ms,
            Self::LatencyP99Ms => measurement.latency.p99_ms,
            Self::MemoryPeakBytes => Some(as_f64(measurement.memory_peak_bytes.unwrap_or(0))),
        }
    }
}

/// Prices a subject: only blocks in which both sides are valid and have the figure count.
pub(super) fn prices(
    subject: &BTreeMap<u32, &Measurement>,
    baseline: &BTreeMap<u32, &Measurement>,
    seed: u64,
) -> Prices {
    Metric::ALL
        .into_iter()
        .filter_map(|metric| {
            let pairs: Vec<Pair> = subject
                .iter()
                .filter_map(|(block, measurement)| {
                    Some(Pair {
                        subject: metric.of(measurement)?,
                        baseline: metric.of(baseline.get(block)?)?,
                    })
                })
                .collect();
            let price = Price {
                n: pairs.len(),
                ratio: ratio(&pairs, seed).map(Range::from),
                difference: difference(&pairs, seed)?.into(),
            };
            Some((metric, price))
        })
        .collect()
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
