//! Metrics of trials, and the valid trials of each block.

use crate::case::CaseManifest;
use crate::run_dir::RunRecords;
use crate::trial::{Measurement, TrialRecord, as_f64};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use strum::{Display, VariantArray};
use tollgate_stats::Pair;

/// A metric in which subjects are compared.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, VariantArray, Serialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Metric {
    /// CPU time of the system per response, in microseconds.
    CpuUsPerRequest,
    /// Expected responses per second.
    ThroughputPerS,
    /// Mean latency in milliseconds.
    LatencyMeanMs,
    /// Minimum latency in milliseconds.
    LatencyMinMs,
    /// Median latency in milliseconds.
    LatencyP50Ms,
    /// 90th percentile of the latency in milliseconds.
    LatencyP90Ms,
    /// 99th percentile of the latency in milliseconds.
    LatencyP99Ms,
    /// Maximum latency in milliseconds.
    LatencyMaxMs,
    /// Peak memory in bytes.
    MemoryPeakBytes,
}

impl Metric {
    pub const ALL: &[Self] = Self::VARIANTS;

    pub fn more_is_worse(self) -> bool {
        self != Self::ThroughputPerS
    }

    /// Returns the value of a trial. A subject without processes uses no CPU and no memory. Those of a server whose processes
    /// are not known are unknown, as is memory that could not be read.
    pub fn of(self, measurement: &Measurement) -> Option<f64> {
        match self {
            Self::CpuUsPerRequest | Self::MemoryPeakBytes if measurement.cpu.is_unknown => None,
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

#[derive(Debug, Clone, Copy)]
pub struct Valid<'a> {
    /// Time from the start of the system to its first expected response, in milliseconds.
    pub startup_ms: Option<f64>,
    pub measurement: &'a Measurement,
}

/// Valid measurements of a subject by block.
pub type ByBlock<'a> = BTreeMap<u32, &'a Measurement>;

/// Returns the valid trial of each block.
pub fn valid<'a>(run: &'a RunRecords, case: &'a str, subject: &'a str) -> BTreeMap<u32, Valid<'a>> {
    measured(run, case, subject)
        .filter(|(_, measurement)| measurement.invalid.is_empty())
        .map(|(trial, measurement)| {
            (trial.block, Valid { startup_ms: trial.startup_ms, measurement })
        })
        .collect()
}

/// Returns the valid measurement of each block.
pub(crate) fn by_block<'a>(run: &'a RunRecords, case: &'a str, subject: &'a str) -> ByBlock<'a> {
    let valid = valid(run, case, subject).into_iter();
    valid.map(|(block, valid)| (block, valid.measurement)).collect()
}

/// Returns all measured trials, valid or not, in their order.
pub fn measured<'a>(
    run: &'a RunRecords,
    case: &'a str,
    subject: &'a str,
) -> impl Iterator<Item = (&'a TrialRecord, &'a Measurement)> {
    let of_subject = move |trial: &&TrialRecord| trial.case == case && trial.subject == subject;
    let trials = run.trials.iter().filter(of_subject);
    trials.filter_map(|trial| Some((trial, trial.outcome.measurement()?)))
}

/// Returns the metric whose prices must be precise: CPU per request or, if the baseline uses no CPU, throughput, or the
/// median latency in an open loop, whose throughput is given.
pub fn judged_by(case: &CaseManifest, baseline: &ByBlock<'_>) -> Metric {
    match (has_no_cpu(baseline), case.load.open_loop().is_some()) {
        (false, _) => Metric::CpuUsPerRequest,
        (true, false) => Metric::ThroughputPerS,
        (true, true) => Metric::LatencyP50Ms,
    }
}

/// True if there are valid trials and none used any CPU: the subject has no processes, or unknown ones.
pub(crate) fn has_no_cpu(valid: &ByBlock<'_>) -> bool {
    let cpu = |m: &&Measurement| m.system_cpu_us_per_request().is_some_and(|cpu| cpu > 0.0);
    !valid.is_empty() && !valid.values().any(cpu)
}

/// Returns the values of each block in which both sides are valid and have the metric.
pub fn pairs(metric: Metric, subject: &ByBlock<'_>, baseline: &ByBlock<'_>) -> Vec<Pair> {
    let pair = |(block, measurement): (&u32, &&Measurement)| {
        Some(Pair { subject: metric.of(measurement)?, baseline: metric.of(baseline.get(block)?)? })
    };
    subject.iter().filter_map(pair).collect()
}
