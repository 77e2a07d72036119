//! Trial records: one JSON object per line of `trials.ndjson`, from which all reports are made.
//!
//! CPU times are in microseconds over the measured window, latencies in milliseconds, memory in bytes.

use crate::validity::Invalid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use strum::Display;
use thiserror::Error;
use tollgate_stats::{Failures, LATENESS_MAX, LatencyHistogram, UNSENT_SHARE_MAX};
use tollgate_traffic::Class;
use tollgate_traffic::load_shape::{LoadProgram, Spacing};

/// Version of the format; readers reject other versions.
pub const SCHEMA: u32 = 3;

/// One case on one subject.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrialRecord {
    pub schema: u32,
    pub case: String,
    pub subject: String,
    /// From 1.
    pub block: u32,
    /// Position in the block, from 1.
    pub position: u32,
    /// More than 1 for a repetition of an invalid trial.
    #[serde(default = "first")]
    pub attempt: u32,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// Duration, including start and stop.
    #[serde(default)]
    pub duration_s: f64,
    /// Time from the start of the first process of the system to its first expected response.
    pub startup_ms: Option<f64>,
    pub outcome: TrialOutcome,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrialOutcome {
    /// Valid if `invalid` is empty.
    Measured(Box<Measurement>),
    /// The subject did not pass the probe.
    Refused(Refusal),
    /// The trial ended before its measurement.
    Failed(TrialFailure),
}

/// Figures of the window.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measurement {
    pub window_s: f64,
    /// Responses in the window, expected or not.
    pub responses: u64,
    /// Expected responses per second.
    pub throughput_per_s: f64,
    /// Bytes of the responses per second, with heads and codings. Older records lack it.
    #[serde(default)]
    pub received_bytes_per_s: Option<f64>,
    /// Bytes per second of the requests that got a response, with heads and codings. Older records lack it.
    #[serde(default)]
    pub sent_bytes_per_s: Option<f64>,
    /// Latency from the send in a closed loop, from the due time in an open loop.
    pub latency: LatencyRecord,
    /// `None` in a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_loop: Option<OpenLoopRecord>,
    pub cpu: CpuRecord,
    /// Peak memory of the processes of the system.
    pub memory_peak_bytes: Option<u64>,
    /// CPUs that the processes of an attached server may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached_cpus: Vec<usize>,
    pub templates: Vec<TemplateRecord>,
    /// Verdicts on the requests of the corpus, in its order: `b` blocked, `p` passed, `o` another response or none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub corpus: String,
    /// Requests to each of several origins, by their own counters, read just before and after the window. Empty for
    /// one origin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origin_requests: Vec<u64>,
    pub unexpected: u64,
    /// Requests without a response.
    pub failures: Failures,
    /// Requests in flight when the window closed.
    pub in_flight: u64,
    /// Age of the oldest request in flight.
    pub oldest_in_flight_ms: Option<f64>,
    pub noise: Noise,
    /// Older records lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<WarmUpRecord>,
    pub bottleneck: Bottleneck,
    /// Violated rules.
    pub invalid: Vec<Invalid>,
    /// Absent for a trial on one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<HostsRecord>,
    /// The foreign program that sent the load. Absent for tollgate's own generator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientRecord>,
}

/// A foreign program that sent the load of a trial. Responses, failures, throughput and latency are those that it printed;
/// the window is the life of its process, and its CPU time that of the whole process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRecord {
    pub name: LoadProgram,
    /// First line of its version.
    pub version: String,
    /// The program and its arguments.
    pub command: Vec<String>,
}

/// Hosts of a trial, and their figures beside those of the processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostsRecord {
    pub system: HostRecord,
    /// `None` without an origin.
    pub origin: Option<HostRecord>,
    pub generators: Vec<GeneratorRecord>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostRecord {
    pub host: String,
    /// CPU time of the whole host in the window, with the work of its network cards, which is that of no process.
    pub busy_us: u64,
    /// The agent's part of it. The agent of a generator sends the load.
    pub agent_us: u64,
    /// Limit of the error of its clock.
    pub clock_error_us: f64,
    /// Change of its clock against that of the coordinator from the begin of the trial to its end.
    pub clock_drift_us: f64,
}

/// Figures of one generator, whose sum the trial has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GeneratorRecord {
    #[serde(flatten)]
    pub host: HostRecord,
    pub responses: u64,
    pub window_s: f64,
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    /// Busiest thread: share of the window in which it ran or waited for a CPU.
    pub busy: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WarmUpRecord {
    pub duration_s: f64,
    /// True if the figures were steady at its end; `None` for a fixed duration.
    pub steady: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenLoopRecord {
    pub rate_per_s: f64,
    pub spacing: Spacing,
    /// Latency from the send, without the time that requests waited to be sent.
    pub uncorrected_latency: LatencyRecord,
    /// Delay caused by the generator itself; not left out if there are few requests.
    pub lateness_p99_ms: Option<f64>,
    /// Requests that became due in the window, as far as noticed.
    pub due: u64,
    /// Those of them that waited for a free connection.
    pub queued: u64,
    /// Requests due when the window closed, but not sent.
    pub unsent: u64,
    /// Time since the oldest of them was due.
    pub oldest_unsent_ms: Option<f64>,
}

/// Latency of a trial. Quantiles with too few responses are left out, and figures that a foreign client does not report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyRecord {
    pub mean_ms: Option<f64>,
    pub min_ms: Option<f64>,
    pub max_ms: Option<f64>,
    pub p50_ms: Option<f64>,
    pub p90_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub p999_ms: Option<f64>,
    /// The histogram in nanoseconds: HdrHistogram's V2 format in base64. Absent for a foreign client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram_v2_base64: Option<String>,
}

/// CPU time by role. The servers' clocks are read from outside and the generator's by its threads, so their windows
/// differ by the time to wake a thread.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CpuRecord {
    /// Time between the two readings of the servers' clocks.
    pub servers_window_s: f64,
    /// `None` for a subject without processes, or if it is unknown.
    pub system: Option<CpuTime>,
    /// Part of it in softirqs, by samples at clock ticks. Over loopback, the TCP work of a receiver is a softirq of the
    /// sender. `None` if the system shares its CPUs or if the kernel accounts softirqs apart from processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_softirq_us: Option<u64>,
    /// True for a server whose processes are not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unknown: bool,
    /// `None` without an origin.
    pub origin: Option<CpuTime>,
    /// Part of the origin's time that it polled without an event instead of sleeping.
    #[serde(default)]
    pub origin_polled_us: u64,
    pub generator: CpuTime,
    /// Part of the generator's time that it polled without an event instead of sleeping.
    #[serde(default)]
    pub generator_polled_us: u64,
}

/// Responses to one template in the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateRecord {
    pub name: String,
    pub class: Class,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Frequency relative to the other templates of the mix; 0 for the probe only.
    pub weight: u32,
    /// Response to the request of the probe. Records made before it was kept lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<ProbeOutcome>,
    /// Responses by status code.
    pub statuses: BTreeMap<u16, u64>,
    /// Responses with the status code of blocked requests.
    pub blocked: u64,
    /// Other responses with the status code of passed requests.
    pub passed: u64,
    pub unexpected: u64,
    /// Description of the first unexpected response.
    pub unexpected_example: Option<String>,
}

/// CPU time in user mode and in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuTime {
    pub user_us: u64,
    pub system_us: u64,
}

/// Disturbances in a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// CPU time that the hypervisor gave to others, in percent of the capacity of the CPUs in use.
    pub steal_percent: f64,
    /// CPU time of other processes, in percent of the capacity of the CPUs in use.
    pub background_cpu_percent: f64,
    /// Time in which a task waited for a CPU, in percent of the window; `None` if the kernel does not count it. Most of
    /// it comes from a closed loop that saturates its CPUs.
    pub cpu_pressure_percent: Option<f64>,
    /// Of the whole machine.
    pub context_switches: u64,
}

/// The role that limited the throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Bottleneck {
    /// The CPUs of the system were saturated: the throughput is that of the system.
    System,
    /// The CPUs of the generator were saturated, or it sent late: the throughput is a lower bound.
    Generator,
    /// The CPUs of the origin were saturated: the throughput is a lower bound.
    Origin,
    /// No CPU was saturated.
    None,
}

/// A subject that did not pass the probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// One line.
    pub reason: String,
    pub responses: Vec<ProbeResponse>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeResponse {
    pub template: String,
    pub class: Class,
    /// Description of the expected response.
    pub expected: String,
    /// Description of the response.
    pub actual: String,
    pub as_expected: bool,
    pub outcome: ProbeOutcome,
}

/// Verdict shown by a response to the probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeOutcome {
    /// It has the status code of blocked requests.
    Blocked,
    /// It has the status code for passed requests.
    Passed,
    /// It has another one.
    Other,
}

/// A trial that ended before its measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialFailure {
    pub step: TrialStep,
    pub reason: String,
    /// Last lines of the processes' output.
    pub log: Vec<String>,
}

/// The step of a trial that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrialStep {
    #[error("it could not be configured")]
    Configure,
    #[error("it did not start")]
    Start,
    #[error("it could not be reached")]
    Reach,
    #[error("the origin ended")]
    Origin,
    #[error("the probe failed")]
    Probe,
    #[error("the load could not be sent")]
    Load,
    /// The fault of the machines, not of the subject.
    #[error("a host was lost")]
    Host,
}

fn first() -> u32 {
    1
}

impl ProbeOutcome {
    /// Returns the verdict of a response with this status. `blocked` is the status of blocked requests, `passed` that of
    /// others if it is known. Without it, an error that an origin does not send is neither: the server rejected the request
    /// for another reason.
    pub fn of(status: u16, blocked: u16, passed: Option<u16>) -> Self {
        match (status, passed) {
            _ if status == blocked => Self::Blocked,
            (_, Some(passed)) if passed == status => Self::Passed,
            (..400 | 404, None) => Self::Passed,
            _ => Self::Other,
        }
    }

    /// Letter in [`Measurement::corpus`].
    pub fn letter(self) -> char {
        match self {
            Self::Blocked => 'b',
            Self::Passed => 'p',
            Self::Other => 'o',
        }
    }
}

impl LatencyRecord {
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
            histogram_v2_base64: Some(histogram.to_v2_base64()?),
        })
    }
}

impl OpenLoopRecord {
    /// True if the generator was not on schedule, so that latencies include its own delay.
    pub fn is_late(&self) -> bool {
        self.lateness_p99_ms.is_some_and(|ms| ms > LATENESS_MAX.as_secs_f64() * 1e3)
    }

    /// True if too many due requests were not sent: the rate was not reached.
    pub fn fell_behind(&self) -> bool {
        // A request that was not even noticed as due was due too.
        let due = self.due.max(self.unsent);
        as_f64(self.unsent) > UNSENT_SHARE_MAX * as_f64(due)
    }
}

impl TrialRecord {
    pub fn warm_up(&self) -> Option<WarmUpRecord> {
        self.outcome.measurement()?.warm_up
    }
}

impl TrialOutcome {
    /// `None` if the trial ended before its measurement.
    pub fn measurement(&self) -> Option<&Measurement> {
        match self {
            Self::Measured(measurement) => Some(measurement),
            Self::Refused(_) | Self::Failed(_) => None,
        }
    }

    pub fn is_valid(&self) -> bool {
        self.measurement().is_some_and(|measurement| measurement.invalid.is_empty())
    }

    /// Returns why the trial has no valid figures; empty for a valid one.
    pub fn why_not_valid(&self) -> Vec<String> {
        match self {
            Self::Measured(measurement) => {
                measurement.invalid.iter().map(ToString::to_string).collect()
            }
            Self::Refused(refusal) => vec![format!("refused: {}", refusal.reason)],
            Self::Failed(failure) => vec![format!("{}: {}", failure.step, failure.reason)],
        }
    }
}

impl Measurement {
    /// CPU time of the system per response; `None` without processes.
    pub fn system_cpu_us_per_request(&self) -> Option<f64> {
        self.cpu.system.map(|cpu| self.per_request(cpu.total_us(), self.cpu.servers_window_s))
    }

    /// Part of this time in user mode.
    pub fn system_user_us_per_request(&self) -> Option<f64> {
        self.cpu.system.map(|cpu| self.per_request(cpu.user_us, self.cpu.servers_window_s))
    }

    pub fn origin_cpu_us_per_request(&self) -> Option<f64> {
        self.cpu.origin.map(|cpu| {
            let worked_us = cpu.total_us().saturating_sub(self.cpu.origin_polled_us);
            self.per_request(worked_us, self.cpu.servers_window_s)
        })
    }

    pub fn generator_cpu_us_per_request(&self) -> f64 {
        let polled_us = self.cpu.generator_polled_us;
        self.per_request(self.cpu.generator.total_us().saturating_sub(polled_us), self.window_s)
    }

    /// Divides the rates, as CPU time and responses have different windows.
    fn per_request(&self, cpu_us: u64, cpu_window_s: f64) -> f64 {
        let responses_per_s = as_f64(self.responses.max(1)) / self.window_s;
        as_f64(cpu_us) / cpu_window_s / responses_per_s
    }
}

impl TemplateRecord {
    pub fn responses(&self) -> u64 {
        self.statuses.values().sum()
    }
}

impl CpuTime {
    pub fn total_us(self) -> u64 {
        self.user_us + self.system_us
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
            spacing: Spacing::Constant,
            uncorrected_latency: LatencyRecord::of(&LatencyHistogram::new()).unwrap(),
            lateness_p99_ms: Some(lateness_p99_ms),
            due,
            queued: 0,
            unsent,
            oldest_unsent_ms: None,
        }
    }

    #[test]
    fn error_of_a_server_is_no_verdict_on_a_request_without_expected_status() {
        let outcomes = |passed| {
            [403, 200, 302, 404, 400, 405, 502]
                .map(|status| ProbeOutcome::of(status, 403, passed).letter())
        };
        assert_eq!(outcomes(None).iter().collect::<String>(), "bpppooo");
        assert_eq!(outcomes(Some(404)).iter().collect::<String>(), "boopooo");
    }

    #[test]
    fn more_than_one_unsent_request_in_a_hundred_falls_behind() {
        assert!(!open_loop(1_000, 10, 1.0).fell_behind());
        assert!(open_loop(1_000, 11, 1.0).fell_behind());
        // Not even noticed as due.
        assert!(open_loop(0, 3, 1.0).fell_behind());
        assert!(!open_loop(0, 0, 1.0).fell_behind());
    }

    #[test]
    fn generator_is_late_above_one_millisecond() {
        assert!(!open_loop(1_000, 0, 1.0).is_late());
        assert!(open_loop(1_000, 0, 1.01).is_late());
    }
}
