//! The figures of one subject: medians, and the spread of its trials.

use super::catch::{TemplateFigures, blocked_rate};
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_records::metric::ByBlock;
use tollgate_records::trial::{Bottleneck, Measurement, as_f64};
use tollgate_stats::{Summary, summarize};
use tollgate_traffic::Class;

/// Medians over the valid trials of a subject.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Figures {
    /// Number of valid trials.
    pub n: usize,
    /// CPU of the system per response, in microseconds.
    pub cpu_us_per_request: Option<f64>,
    /// The part of it in user mode.
    pub user_cpu_us_per_request: Option<f64>,
    /// Share of it in softirqs, from 0 to 1: over loopback, the TCP work of its peers as receivers. Missing if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub softirq_share: Option<f64>,
    /// CPU of the origin per response, in microseconds; null without an origin.
    pub origin_cpu_us_per_request: Option<f64>,
    /// CPU of the generator per response, in microseconds.
    pub generator_cpu_us_per_request: Option<f64>,
    /// Expected responses per second.
    pub throughput_per_s: Option<f64>,
    /// Response bytes per second, headers and transfer coding included.
    pub received_bytes_per_s: Option<f64>,
    /// Bytes of answered requests per second, headers and transfer coding included.
    pub sent_bytes_per_s: Option<f64>,
    /// Mean latency, in milliseconds.
    pub latency_mean_ms: Option<f64>,
    /// Minimum latency of a trial, in milliseconds.
    pub latency_min_ms: Option<f64>,
    /// Median latency, in milliseconds.
    pub latency_p50_ms: Option<f64>,
    /// 90th percentile of the latency, in milliseconds; null if a trial has too few responses.
    pub latency_p90_ms: Option<f64>,
    /// 99th percentile of the latency, in milliseconds; null if a trial has too few responses.
    pub latency_p99_ms: Option<f64>,
    /// Maximum latency of a trial, in milliseconds.
    pub latency_max_ms: Option<f64>,
    /// Peak memory of the system, in bytes.
    pub memory_peak_bytes: Option<f64>,
    /// Time from the start to the first correct response, in milliseconds.
    pub startup_ms: Option<f64>,
    /// The share of attacks blocked, from 0 to 1: over templates by weight; null if there
    /// are none. From all measured trials, invalid ones included, except trials in which
    /// a process died.
    pub detection_rate: Option<f64>,
    /// The share of benign requests blocked, likewise.
    pub false_positive_rate: Option<f64>,
    /// The bottleneck of most trials.
    pub bottleneck: Option<Bottleneck>,
}

/// The spread of the valid trials of a subject.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Summaries {
    /// Expected responses per second.
    pub requests_per_s: Summary,
    /// Mean latency of a trial, in milliseconds.
    pub latency_ms: Summary,
    /// User time of the system's processes in a trial, in milliseconds.
    pub user_cpu_ms: Option<Summary>,
}

impl Figures {
    pub(super) fn of(
        valid: &ByBlock<'_>,
        templates: &[TemplateFigures],
        startup_ms: &[f64],
    ) -> Option<Self> {
        if valid.is_empty() {
            return None;
        }
        let median = |value: &dyn Fn(&Measurement) -> Option<f64>| {
            spread(valid, value).map(|summary| summary.median)
        };
        Some(Self {
            n: valid.len(),
            cpu_us_per_request: median(&Measurement::system_cpu_us_per_request),
            user_cpu_us_per_request: median(&Measurement::system_user_us_per_request),
            softirq_share: softirq_share(valid),
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
            detection_rate: blocked_rate(templates, Class::Malicious),
            false_positive_rate: blocked_rate(templates, Class::Benign),
            bottleneck: commonest(valid.values().map(|m| m.bottleneck)),
        })
    }
}

/// Over all trials, as a trial has few samples. `None` if one lacks it.
fn softirq_share(valid: &ByBlock<'_>) -> Option<f64> {
    let times = valid.values().map(|m| Some((m.cpu.system_softirq_us?, m.cpu.system?.total_us())));
    let times: Vec<(u64, u64)> = times.collect::<Option<_>>()?;
    let (softirq_us, all_us) = times.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (all_us > 0).then(|| as_f64(softirq_us) / as_f64(all_us))
}

impl Summaries {
    pub(super) fn of(valid: &ByBlock<'_>) -> Option<Self> {
        let user_ms = |m: &Measurement| m.cpu.system.map(|cpu| as_f64(cpu.user_us) / 1e3);
        Some(Self {
            requests_per_s: spread(valid, &|m| Some(m.throughput_per_s))?,
            latency_ms: spread(valid, &|m| m.latency.mean_ms)?,
            user_cpu_ms: spread(valid, &user_ms),
        })
    }
}

/// `None` if a trial lacks the figure.
fn spread(valid: &ByBlock<'_>, value: &dyn Fn(&Measurement) -> Option<f64>) -> Option<Summary> {
    let values: Option<Vec<f64>> = valid.values().map(|m| value(m)).collect();
    summarize(&values?)
}

/// The most frequent bottleneck. A tie goes against the system, because the throughput is then a lower bound
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
