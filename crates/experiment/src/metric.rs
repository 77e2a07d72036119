//! The figures of a trial that are priced.

use crate::record::{Measurement, as_f64};
use schemars::JsonSchema;
use serde::Serialize;

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
    pub fn of(self, measurement: &Measurement) -> Option<f64> {
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
