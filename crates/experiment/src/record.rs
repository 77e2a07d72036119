//! What is kept of a trial: one JSON object a line in `trials.ndjson`.
//!
//! Every report is made from these records. Times of CPUs are in microseconds over the measured
//! window, latencies in milliseconds, memory in bytes.

use crate::experiment::SpacingFile;
use crate::validity::Invalid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tollgate_load::Failures;
use tollgate_stats::LatencyHistogram;
use tollgate_traffic::Class;

/// The version of the record's shape; a reader refuses what it does not know.
pub const SCHEMA: u32 = 2;

/// One trial: one case on one subject.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrialRecord {
    /// The version of the record's shape.
    pub schema: u32,
    /// The case's name.
    pub case: String,
    /// The subject's name.
    pub subject: String,
    /// The block, from 1.
    pub block: u32,
    /// The place in the block, from 1.
    pub position: u32,
    /// 1, and more where the same was tried in this block before and does not count.
    #[serde(default = "first")]
    pub attempt: u32,
    /// When the trial began, RFC 3339, UTC.
    pub started_at: String,
    /// How long it took, starting and stopping included, in seconds.
    #[serde(default)]
    pub duration_s: f64,
    /// From starting the system's first process to its first right answer, in milliseconds.
    pub startup_ms: Option<f64>,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a trial.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It was measured; whether the figures count is in `invalid`.
    Measured(Box<Measurement>),
    /// The probe found that the subject does not do what it says.
    Refused(Refusal),
    /// It could not be brought to the point of being measured.
    Failed(Failure),
}

/// What was measured over the window.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measurement {
    /// The length of the window in seconds.
    pub window_s: f64,
    /// Answers that came in during the window, expected or not.
    pub responses: u64,
    /// Expected answers a second.
    pub throughput_per_s: f64,
    /// Bytes of those answers a second, heads and codings included; none in records of old.
    #[serde(default)]
    pub received_bytes_per_s: Option<f64>,
    /// Bytes of the requests that they answer a second, heads and codings included; likewise.
    #[serde(default)]
    pub sent_bytes_per_s: Option<f64>,
    /// Latency of the answers: from the send in a closed loop, from the moment for which the request
    /// was scheduled in an open one.
    pub latency: LatencyRecord,
    /// What there is to say of a schedule; none in a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_loop: Option<OpenLoopRecord>,
    /// CPU time over the window, by role.
    pub cpu: CpuRecord,
    /// Peak memory of the system's processes.
    pub memory_peak_bytes: Option<u64>,
    /// What each template was answered.
    pub templates: Vec<TemplateRecord>,
    /// What each of several origins was asked, by its own counters, in their order; empty where there is
    /// one. They are read just before the window and just after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origin_requests: Vec<u64>,
    /// Answers other than the expected ones.
    pub unexpected: u64,
    /// Requests that got no answer, by kind.
    pub failures: Failures,
    /// Requests under way when the window closed.
    pub in_flight: u64,
    /// How long the oldest of them had been under way.
    pub oldest_in_flight_ms: Option<f64>,
    /// What the machine did besides.
    pub noise: Noise,
    /// How the warm-up went; none in a record from before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<WarmUpRecord>,
    /// The templates whose request was blocked in the probe before it, where the run compares subjects
    /// in that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_in_probe: Option<Vec<String>>,
    /// What held the throughput down.
    pub bottleneck: Bottleneck,
    /// Why the figures do not count; empty when they do.
    pub invalid: Vec<Invalid>,
}

/// The load before the window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WarmUpRecord {
    /// How long it was, in seconds.
    pub duration_s: f64,
    /// Whether the figures stood still at its end; none where nobody waited for that.
    pub steady: Option<bool>,
}

/// How the schedule of an open loop was kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenLoopRecord {
    /// Requests a second, as asked for.
    pub rate_per_s: f64,
    /// How they were spaced.
    pub spacing: SpacingFile,
    /// Latency of the same answers from the send. It leaves out how long they waited to be sent.
    pub uncorrected_latency: LatencyRecord,
    /// How late the generator itself was for one request in a hundred, however few there were.
    pub lateness_p99_ms: Option<f64>,
    /// Requests that were seen to be due in the window.
    pub due: u64,
    /// How many of them found no connection free, and waited for one.
    pub queued: u64,
    /// Requests that were due when the window closed, and had not been sent.
    pub unsent: u64,
    /// How long the oldest of those had been due.
    pub oldest_unsent_ms: Option<f64>,
}

/// Latency of a trial, in milliseconds. A quantile with too few answers behind it is left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatencyRecord {
    /// The mean.
    pub mean_ms: Option<f64>,
    /// The shortest.
    pub min_ms: Option<f64>,
    /// The longest.
    pub max_ms: Option<f64>,
    /// The median.
    pub p50_ms: Option<f64>,
    /// The 90th percentile.
    pub p90_ms: Option<f64>,
    /// The 95th percentile.
    pub p95_ms: Option<f64>,
    /// The 99th percentile.
    pub p99_ms: Option<f64>,
    /// The 99.9th percentile.
    pub p999_ms: Option<f64>,
    /// The whole histogram, in nanoseconds: HdrHistogram's V2 encoding in base64.
    pub histogram_v2_base64: String,
}

/// CPU time by role. The servers' clocks are read from outside while the generator's threads read
/// their own, so the two windows differ by what it takes to wake a thread.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CpuRecord {
    /// The time between the two readings of the servers' clocks, in seconds.
    pub servers_window_s: f64,
    /// The system's processes; none for a subject without any.
    pub system: Option<CpuTime>,
    /// The origin; none behind a system that answers by itself.
    pub origin: Option<CpuTime>,
    /// The generator's threads.
    pub generator: CpuTime,
    /// How much of that was spent asking for events when there were none, in microseconds; that is,
    /// instead of sleeping.
    #[serde(default)]
    pub generator_polled_us: u64,
}

/// What one template was answered during the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateRecord {
    /// The template's name.
    pub name: String,
    /// Whether it should be let through.
    pub class: Class,
    /// Which requests of its class it is one of, where the mix says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Answers by status code.
    pub statuses: BTreeMap<u16, u64>,
    /// Answers with the status code that the system blocks with.
    pub blocked: u64,
    /// Those of the others with the status code that the request gets when nothing blocks it; none in records
    /// of old, in which all others pass for let through.
    #[serde(default)]
    pub passed: Option<u64>,
    /// Answers other than the expected one.
    pub unexpected: u64,
    /// The first of those, in words.
    pub unexpected_example: Option<String>,
}

/// CPU time spent, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuTime {
    /// In the program itself.
    pub user_us: u64,
    /// In the kernel on its behalf.
    pub system_us: u64,
}

/// Noise over a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Time that the hypervisor gave to others, in percent of the time of the CPUs in use.
    pub steal_percent: f64,
    /// Time that other processes used, in percent of the time of the CPUs in use.
    pub background_cpu_percent: f64,
    /// Time in which some task waited for a CPU, in percent of the window; none where the kernel
    /// does not count it. A closed loop that saturates its CPUs makes most of it itself.
    pub cpu_pressure_percent: Option<f64>,
    /// Context switches of the whole machine.
    pub context_switches: u64,
}

/// What held the throughput down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Bottleneck {
    /// The system's CPUs were spent: the throughput is the system's.
    System,
    /// The generator's CPUs were spent, or it sent late: the throughput is a lower bound.
    Generator,
    /// The origin's CPUs were spent: the throughput is a lower bound.
    Origin,
    /// No CPU was spent: the connections waited for each other.
    None,
}

/// A subject that does not do what it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What it did instead, in one line.
    pub reason: String,
    /// Each request of the probe and its answer.
    pub responses: Vec<ProbeResponse>,
}

/// One request of the probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeResponse {
    /// The template's name.
    pub template: String,
    /// Whether it should be let through.
    pub class: Class,
    /// What had to come, in words.
    pub expected: String,
    /// What came, in words.
    pub actual: String,
    /// Whether that is what had to come.
    pub as_expected: bool,
    /// Whether it is what comes when nothing blocks the request.
    pub passed: bool,
}

/// A trial that could not be brought to the point of being measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The step that failed.
    pub step: Step,
    /// Why.
    pub reason: String,
    /// The last lines that the process printed.
    pub log: Vec<String>,
}

/// The steps of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// Rendering the configs.
    Configure,
    /// Starting the processes until they answer.
    Start,
    /// Answering as the origin, behind the system.
    Origin,
    /// Sending one request of each template.
    Probe,
    /// Sending the load.
    Load,
}

fn first() -> u32 {
    1
}

impl LatencyRecord {
    /// The figures of a histogram in nanoseconds.
    ///
    /// # Errors
    ///
    /// The histogram cannot be encoded.
    pub fn of(histogram: &LatencyHistogram) -> Result<Self, tollgate_stats::EncodeError> {
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds below 2^53 are exact")]
        let ms = |ns: u64| ns as f64 / 1e6;
        let quantile = |q: f64| histogram.quantile_ns(q).map(ms);
        Ok(Self {
            mean_ms: histogram.mean_ns().map(|ns| ns / 1e6),
            min_ms: histogram.min_ns().map(ms),
            max_ms: histogram.max_ns().map(ms),
            p50_ms: quantile(0.5),
            p90_ms: quantile(0.9),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
            p999_ms: quantile(0.999),
            histogram_v2_base64: histogram.to_v2_base64()?,
        })
    }
}

impl OpenLoopRecord {
    /// Whether the generator was itself too late for its figures to be the system's.
    pub fn is_late(&self) -> bool {
        self.lateness_p99_ms.is_some_and(|lateness_ms| lateness_ms > LATE_MS)
    }

    /// Whether more than 1 % of what was due was never sent: the rate was not held.
    pub fn fell_behind(&self) -> bool {
        let due = self.due.max(self.unsent);
        as_f64(self.unsent) > OVERDUE_SHARE_MAX * as_f64(due)
    }
}

/// A generator that is later than this for one request in a hundred is not on schedule: it is well
/// above what waking up a thread takes (some tens of microseconds).
const LATE_MS: f64 = 1.0;

/// The share of an open loop's requests that may be due and never sent.
const OVERDUE_SHARE_MAX: f64 = 0.01;

impl TrialRecord {
    /// How its warm-up went, where it came to one.
    pub fn warm_up(&self) -> Option<WarmUpRecord> {
        match &self.outcome {
            Outcome::Measured(measurement) => measurement.warm_up,
            Outcome::Refused(_) | Outcome::Failed(_) => None,
        }
    }
}

impl Measurement {
    /// CPU microseconds of the system for each answer; none for a subject without processes.
    pub fn system_cpu_us_per_request(&self) -> Option<f64> {
        self.cpu.system.map(|cpu| self.per_request(cpu.total_us(), self.cpu.servers_window_s))
    }

    /// The part of it that was spent in the program itself.
    pub fn system_user_us_per_request(&self) -> Option<f64> {
        self.cpu.system.map(|cpu| self.per_request(cpu.user_us, self.cpu.servers_window_s))
    }

    /// CPU microseconds of the origin for each answer; none where there is no origin.
    pub fn origin_cpu_us_per_request(&self) -> Option<f64> {
        self.cpu.origin.map(|cpu| self.per_request(cpu.total_us(), self.cpu.servers_window_s))
    }

    /// CPU microseconds of the generator for each answer.
    pub fn generator_cpu_us_per_request(&self) -> f64 {
        self.per_request(self.cpu.generator.total_us(), self.window_s)
    }

    /// CPU time over one window by answers over another: each is taken as a rate first.
    fn per_request(&self, cpu_us: u64, cpu_window_s: f64) -> f64 {
        let answers_per_s = as_f64(self.responses.max(1)) / self.window_s;
        as_f64(cpu_us) / cpu_window_s / answers_per_s
    }

    /// Of the requests of a class: how many were blocked, and how many were blocked or let through. An answer
    /// that is neither says nothing of what the system made of the request.
    pub fn blocked(&self, class: Class) -> (u64, u64) {
        let of_class = self.templates.iter().filter(|template| template.class == class);
        of_class.map(TemplateRecord::outcomes).fold((0, 0), |(blocked, told), fates| {
            (blocked + fates.blocked, told + fates.blocked + fates.passed)
        })
    }
}

/// What became of the requests of one template that were answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TemplateOutcomes {
    /// Answered with the status code that the system blocks with.
    pub blocked: u64,
    /// Answered with the status code of a request that nothing blocks.
    pub passed: u64,
    /// Answered with anything else.
    pub other: u64,
}

impl TemplateRecord {
    /// What became of its requests.
    pub fn outcomes(&self) -> TemplateOutcomes {
        let answered: u64 = self.statuses.values().sum();
        let blocked = self.blocked.min(answered);
        let rest = answered - blocked;
        let passed = self.passed.map_or(rest, |passed| passed.min(rest));
        TemplateOutcomes { blocked, passed, other: rest - passed }
    }
}

impl CpuTime {
    /// User and system time together, in microseconds.
    pub fn total_us(self) -> u64 {
        self.user_us + self.system_us
    }
}

impl std::fmt::Display for Bottleneck {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(match self {
            Self::System => "system",
            Self::Generator => "generator",
            Self::Origin => "origin",
            Self::None => "none",
        })
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Configure => "its config could not be made",
            Self::Start => "it did not start",
            Self::Origin => "the origin was lost",
            Self::Probe => "the probe got no answer",
            Self::Load => "the load could not be sent",
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts and microseconds stay below 2^53")]
pub fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_loop(due: u64, unsent: u64, lateness_p99_ms: f64) -> OpenLoopRecord {
        OpenLoopRecord {
            rate_per_s: 1_000.0,
            spacing: SpacingFile::Constant,
            uncorrected_latency: LatencyRecord::of(&LatencyHistogram::new()).unwrap(),
            lateness_p99_ms: Some(lateness_p99_ms),
            due,
            queued: 0,
            unsent,
            oldest_unsent_ms: None,
        }
    }

    #[test]
    fn a_schedule_that_one_in_a_hundred_missed_was_not_kept() {
        assert!(!open_loop(1_000, 10, 1.0).fell_behind());
        assert!(open_loop(1_000, 11, 1.0).fell_behind());
        // What was never even seen to be due was due all the same.
        assert!(open_loop(0, 3, 1.0).fell_behind());
        assert!(!open_loop(0, 0, 1.0).fell_behind());
    }

    #[test]
    fn a_generator_is_late_above_a_millisecond() {
        assert!(!open_loop(1_000, 0, 1.0).is_late());
        assert!(open_loop(1_000, 0, 1.01).is_late());
    }
}
