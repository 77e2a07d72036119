//! What was measured on one subject: medians for the table, and the spread of its trials.

use crate::record::{Measurement, as_f64};
use crate::trial::bottleneck::Bottleneck;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use tollgate_stats::{Summary, summarize};
use tollgate_traffic::Class;

/// Medians over the valid trials of a subject.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Figures {
    /// Valid trials.
    pub n: usize,
    /// CPU of the system for each answer, in microseconds.
    pub cpu_us_per_request: Option<f64>,
    /// The part of it that is spent in the program itself.
    pub user_cpu_us_per_request: Option<f64>,
    /// CPU of the origin for each answer, in microseconds; none where there is no origin.
    pub origin_cpu_us_per_request: Option<f64>,
    /// CPU of the generator for each answer, in microseconds.
    pub generator_cpu_us_per_request: Option<f64>,
    /// Expected answers a second.
    pub throughput_per_s: Option<f64>,
    /// Bytes of answers a second, heads and codings included.
    pub received_bytes_per_s: Option<f64>,
    /// Bytes of answered requests a second, heads and codings included.
    pub sent_bytes_per_s: Option<f64>,
    /// Mean latency, in milliseconds.
    pub latency_mean_ms: Option<f64>,
    /// Shortest latency of a trial, in milliseconds.
    pub latency_min_ms: Option<f64>,
    /// Median latency, in milliseconds.
    pub latency_p50_ms: Option<f64>,
    /// 90th percentile of the latency, in milliseconds; none where a trial has too few answers.
    pub latency_p90_ms: Option<f64>,
    /// 99th percentile of the latency, in milliseconds; none where a trial has too few answers.
    pub latency_p99_ms: Option<f64>,
    /// Longest latency of a trial, in milliseconds.
    pub latency_max_ms: Option<f64>,
    /// Peak memory of the system, in bytes.
    pub memory_peak_bytes: Option<f64>,
    /// From its start to its first right answer, in milliseconds.
    pub startup_ms: Option<f64>,
    /// The share of attacks that were blocked, of those blocked or let through, from 0 to 1; none where there
    /// is none of these. Over all measured trials: a trial that does not count because of what was answered counts here,
    /// one in which a process died does not.
    pub attacks_blocked: Option<f64>,
    /// The share of harmless requests that were blocked, likewise.
    pub harmless_blocked: Option<f64>,
    /// What held the throughput down in most trials.
    pub bottleneck: Option<Bottleneck>,
}

/// The spread of the valid trials of a subject.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Summaries {
    /// Expected answers a second.
    pub requests_per_s: Summary,
    /// Mean latency of a trial, in milliseconds.
    pub latency_ms: Summary,
    /// User time of the system's processes in a trial, in milliseconds.
    pub worker_user_ms: Option<Summary>,
}

impl Figures {
    pub(super) fn of(
        valid: &BTreeMap<u32, &Measurement>,
        measured: &[&Measurement],
        startup_ms: &[f64],
    ) -> Option<Self> {
        if valid.is_empty() {
            return None;
        }
        let median = |value: &dyn Fn(&Measurement) -> Option<f64>| {
            let values: Option<Vec<f64>> = valid.values().map(|m| value(m)).collect();
            summarize(&values?).map(|summary| summary.median)
        };
        Some(Self {
            n: valid.len(),
            cpu_us_per_request: median(&Measurement::system_cpu_us_per_request),
            user_cpu_us_per_request: median(&Measurement::system_user_us_per_request),
            origin_cpu_us_per_request: median(&Measurement::origin_cpu_us_per_request),
            generator_cpu_us_per_request: median(&|m| Some(m.generator_cpu_us_per_request())),
            throughput_per_s: median(&|m| Some(m.throughput_per_s)),
            received_bytes_per_s: median(&|m| m.received_bytes_per_s),
            sent_bytes_per_s: median(&|m| m.sent_bytes_per_s),
            latency_mean_ms: median(&|m| m.latency.mean_ms),
            latency_min_ms: median(&|m| m.latency.min_ms),
            latency_p50_ms: median(&|m| m.latency.p50_ms),
            latency_p90_ms: median(&|m| m.latency.p90_ms),
            latency_p99_ms: median(&|m| m.latency.p99_ms),
            latency_max_ms: median(&|m| m.latency.max_ms),
            memory_peak_bytes: median(&|m| m.memory_peak_bytes.map(as_f64)),
            startup_ms: summarize(startup_ms).map(|summary| summary.median),
            attacks_blocked: blocked(measured, Class::Malicious),
            harmless_blocked: blocked(measured, Class::Benign),
            bottleneck: commonest(valid.values().map(|m| m.bottleneck)),
        })
    }
}

impl Summaries {
    pub(super) fn of(valid: &BTreeMap<u32, &Measurement>) -> Option<Self> {
        let spread = |value: &dyn Fn(&Measurement) -> Option<f64>| {
            let values: Option<Vec<f64>> = valid.values().map(|m| value(m)).collect();
            summarize(&values?)
        };
        Some(Self {
            requests_per_s: spread(&|m| Some(m.throughput_per_s))?,
            latency_ms: spread(&|m| m.latency.mean_ms)?,
            worker_user_ms: spread(&|m| m.cpu.system.map(|cpu| as_f64(cpu.user_us) / 1e3)),
        })
    }
}

fn blocked(measured: &[&Measurement], class: Class) -> Option<f64> {
    let (blocked, told) = measured
        .iter()
        .map(|m| m.blocked(class))
        .fold((0, 0), |(all_blocked, all_told), (blocked, told)| {
            (all_blocked + blocked, all_told + told)
        });
    (told > 0).then(|| as_f64(blocked) / as_f64(told))
}

/// The commonest name. A tie goes against the system, because the throughput is then a lower bound
/// in half of the trials.
fn commonest(names: impl Iterator<Item = Bottleneck>) -> Option<Bottleneck> {
    let mut counts: Vec<(Bottleneck, usize)> = Vec::new();
    for name in names {
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    let rank = |(name, count): &(Bottleneck, usize)| (*count, *name != Bottleneck::System);
    counts.into_iter().max_by_key(rank).map(|(name, _)| name)
}
