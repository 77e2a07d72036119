//! The figures of one subject: medians, the spread of its trials, and its responses by template.

use schemars::JsonSchema;
use serde::Serialize;
use tollgate_experiment::metric::ByBlock;
use tollgate_experiment::record::{Bottleneck, Measurement, TemplateOutcomes, as_f64};
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
    /// The share of attacks blocked, of those blocked or passed, from 0 to 1; null if there
    /// are none. Over all measured trials, invalid ones included, except trials in which
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
        measured: &[&Measurement],
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
            detection_rate: blocked(measured, Class::Malicious),
            false_positive_rate: blocked(measured, Class::Benign),
            bottleneck: commonest(valid.values().map(|m| m.bottleneck)),
        })
    }
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

fn blocked(measured: &[&Measurement], class: Class) -> Option<f64> {
    share(measured.iter().map(|m| m.blocked(class)))
}

/// Adds up counts of a part and a whole, and divides; `None` if the whole is 0.
pub(crate) fn share(counts: impl IntoIterator<Item = (u64, u64)>) -> Option<f64> {
    let add = |sum: (u64, u64), count: (u64, u64)| (sum.0 + count.0, sum.1 + count.1);
    let (part, whole) = counts.into_iter().fold((0, 0), add);
    (whole > 0).then(|| as_f64(part) / as_f64(whole))
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

/// The responses to one template over all measured trials of a subject, invalid trials
/// included, as in the detection rate and the false positive rate. Excludes trials
/// in which a process died.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TemplateFigures {
    /// Name of the template.
    pub name: String,
    /// Benign requests should pass, malicious ones should be blocked.
    pub class: Class,
    /// Family within the class, if the mix names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Number of responses.
    pub responses: u64,
    /// Responses with the status code with which the subject blocks.
    pub blocked: u64,
    /// Responses with the status code of a request that is not blocked.
    pub passed: u64,
    /// Other responses, such as errors of the system. They are neither detections, misses nor
    /// false positives.
    pub other: u64,
    /// Responses that differ from the expected one.
    pub unexpected: u64,
}

impl TemplateFigures {
    /// Requests that were blocked or passed.
    pub(crate) fn decided(&self) -> u64 {
        self.blocked + self.passed
    }
}

pub(super) fn by_template(measured: &[&Measurement]) -> Vec<TemplateFigures> {
    let mut all: Vec<TemplateFigures> = Vec::new();
    for record in measured.iter().flat_map(|measurement| &measurement.templates) {
        let known = all.iter().position(|one| one.name == record.name && one.class == record.class);
        let place = known.unwrap_or_else(|| {
            all.push(TemplateFigures {
                name: record.name.clone(),
                class: record.class,
                family: record.family.clone(),
                responses: 0,
                blocked: 0,
                passed: 0,
                other: 0,
                unexpected: 0,
            });
            all.len() - 1
        });
        let TemplateOutcomes { blocked, passed, other } = record.outcomes();
        let sum = &mut all[place];
        sum.responses += record.statuses.values().sum::<u64>();
        sum.blocked += blocked;
        sum.passed += passed;
        sum.other += other;
        sum.unexpected += record.unexpected;
    }
    all
}
