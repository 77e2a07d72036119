//! The figures of one subject: medians, and the spread of its trials.

use super::catch::blocked_rate;
use super::result::{Figures, Summaries, TemplateFigures};
use tollgate_records::metric::ByBlock;
use tollgate_records::trial::{Bottleneck, Measurement, as_f64};
use tollgate_stats::{Summary, summarize};
use tollgate_traffic::Class;

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
