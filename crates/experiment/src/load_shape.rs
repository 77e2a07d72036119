//! The load of a case as its file has it: connections, rate, end of the measurement and of the warm-up.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::collections::BTreeMap;
use std::time::Duration;
use tollgate_load::{MAX_RATE, STEADY_AFTER};
use tollgate_records::case::SpacingFile;
use tollgate_records::units::{Percent, Span};

/// A rate relative to the throughput of the slowest subject in another case, a closed loop. The first valid trial of
/// each subject counts; the rate is the same for all subjects of a block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateOfFile {
    /// Name of the other case.
    pub case: String,
    /// Share of its throughput, such as `"50%"`.
    pub share: Percent,
}

/// Load of a case. In a closed loop each connection sends when its last response is complete. With a `rate`, in an open
/// loop, requests are sent on a schedule, independent of responses.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadFile {
    /// Concurrent connections.
    pub connections: u32,
    /// Open loop: limit of the connections if a request is due and none is free; by default `connections`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_max: Option<u32>,
    /// Open loop: requests per second. Without it the loop is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Open loop: gaps between requests, `constant` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spacing: Option<SpacingFile>,
    /// Length of the measurement; either this or `requests`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// Length with `--quick`; by default a fifth of `duration`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quick_duration: Option<Span>,
    /// Closed loop: number of requests of the measurement, which ends with the last response; either this or `duration`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u32>,
    /// Number with `--quick`; by default a fifth of `requests`, at least one per connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quick_requests: Option<u32>,
    /// Time limit for `requests`, one minute by default. A trial that takes longer is invalid.
    #[schemars(example = "2m")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_max: Option<Span>,
    /// Load before the measurement: a duration, one second by default, or `"steady"` to wait until throughput and CPU per
    /// request are steady.
    #[serde(default = "one_second", skip_serializing_if = "is_one_second")]
    #[schemars(with = "String")]
    pub warmup: WarmUp,
    /// Time limit for `warmup = "steady"`, 10 seconds by default.
    #[schemars(example = "20s")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup_max: Option<Span>,
    /// True if connections carry one request after another.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub keepalive: bool,
    /// HTTP/2: concurrent requests on each connection. A system may allow fewer.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub streams: u32,
    /// TLS: true if connections resume sessions by tickets, as of clients that return.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(skip_serializing_if = "is_shown")]
    #[schemars(example = true)]
    pub tls_resume: bool,
    /// True if generator and origin poll for events instead of sleeping, so that the system does not pay for waking
    /// them.
    #[schemars(example = false)]
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub busy_poll: bool,
    /// True if the CPUs of the system are kept from halting, as by the kernel's `idle=poll`, so that a wake-up costs the same
    /// after a long sleep as after a short one. Without `busy_poll`, those of generator and origin, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(skip_serializing_if = "is_shown")]
    #[schemars(example = true)]
    pub idle_poll: bool,
    /// Threads of the generator.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub threads: u32,
    /// Limit of the time to a complete response.
    #[serde(default = "ten_seconds", skip_serializing_if = "is_ten_seconds")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub timeout: Span,
}

/// End of the warm-up of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarmUp {
    For(Duration),
    /// Steady throughput and CPU per request.
    Steady,
}

/// End of the measurement of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    For(Duration),
    /// The response to the last request; the trial is invalid if that takes longer than `within`.
    Requests {
        requests: u32,
        within: Duration,
    },
}

/// In a shorter time, a slow system answers too few requests.
pub(crate) const SHORTEST_WINDOW: Duration = Duration::from_millis(150);
/// `--quick` divides durations by this.
pub(crate) const QUICK_DIVISOR: u32 = 5;
const STEADY: &str = "steady";
/// Default time limit of a steady warm-up.
const STEADY_LONGEST: Duration = Duration::from_secs(10);
/// Figures need half of this time to become steady.
pub(crate) const STEADY_SHORTEST: Duration = Duration::from_secs(2);
/// Default time limit of a number of requests.
const REQUESTS_LONGEST: Duration = Duration::from_secs(60);

impl LoadFile {
    /// Returns a closed loop of a fixed length.
    pub(crate) fn closed(connections: u32, duration: Span) -> Self {
        Self {
            connections,
            connections_max: None,
            rate: None,
            spacing: None,
            duration: Some(duration),
            quick_duration: None,
            requests: None,
            quick_requests: None,
            duration_max: None,
            warmup: one_second(),
            warmup_max: None,
            keepalive: yes(),
            streams: one(),
            tls_resume: false,
            busy_poll: yes(),
            idle_poll: false,
            threads: one(),
            timeout: ten_seconds(),
        }
    }

    /// Shortens the load for `--quick`.
    pub(crate) fn quick(mut self) -> Self {
        let fifth = |time: Span| Span((time.0 / QUICK_DIVISOR).max(SHORTEST_WINDOW));
        self.duration = self.quick_duration.or(self.duration.map(fifth));
        let fifth = |requests: u32| (requests / QUICK_DIVISOR).max(self.connections);
        self.requests = self.quick_requests.or(self.requests.map(fifth));
        match self.warmup {
            WarmUp::For(time) => self.warmup = WarmUp::For(time / QUICK_DIVISOR),
            WarmUp::Steady => {
                let most = (self.warmup_longest() / QUICK_DIVISOR).max(STEADY_SHORTEST);
                self.warmup_max = Some(Span(most));
            }
        }
        self
    }

    pub fn window(&self) -> Window {
        match (self.requests, self.duration) {
            (Some(requests), _) => Window::Requests {
                requests,
                within: self.duration_max.map_or(REQUESTS_LONGEST, |limit| limit.0),
            },
            (None, Some(time)) => Window::For(time.0),
            (None, None) => unreachable!("a load without `duration` and `requests` is invalid"),
        }
    }

    /// Returns the same load, measured for a fixed time.
    pub fn lasting(self, time: Duration) -> Self {
        Self {
            duration: Some(Span(time)),
            requests: None,
            quick_requests: None,
            duration_max: None,
            ..self
        }
    }

    pub fn warmup_longest(&self) -> Duration {
        match self.warmup {
            WarmUp::For(time) => time,
            WarmUp::Steady => self.warmup_max.map_or(STEADY_LONGEST, |limit| limit.0),
        }
    }

    pub fn warmup_shortest(&self) -> Duration {
        match self.warmup {
            WarmUp::For(time) => time,
            WarmUp::Steady => STEADY_AFTER,
        }
    }

    pub fn connections_most(&self) -> u32 {
        self.connections_max.unwrap_or(self.connections)
    }

    /// Returns the gaps of an open loop, or `None` for a closed one.
    pub fn spacing(&self) -> Option<SpacingFile> {
        self.rate.map(|_| self.spacing.unwrap_or(SpacingFile::Constant))
    }
}

impl Window {
    /// Returns the minimum length, as far as it is known before the trial.
    pub fn shortest(self) -> Duration {
        match self {
            Self::For(time) => time,
            Self::Requests { .. } => Duration::ZERO,
        }
    }

    pub fn longest(self) -> Duration {
        match self {
            Self::For(time) | Self::Requests { within: time, .. } => time,
        }
    }

    pub fn requests(self) -> Option<u32> {
        match self {
            Self::For(_) => None,
            Self::Requests { requests, .. } => Some(requests),
        }
    }
}

impl<'de> Deserialize<'de> for WarmUp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == STEADY {
            return Ok(Self::Steady);
        }
        humantime::parse_duration(&text).map(Self::For).map_err(|error| {
            de::Error::custom(format!(
                "`{text}` is neither \"{STEADY}\" nor a duration such as \"1s\" or \"400ms\": {error}"
            ))
        })
    }
}

impl Serialize for WarmUp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::For(time) => Span(*time).serialize(serializer),
            Self::Steady => serializer.serialize_str(STEADY),
        }
    }
}

fn one_second() -> WarmUp {
    WarmUp::For(Duration::from_secs(1))
}

fn ten_seconds() -> Span {
    Span(Duration::from_secs(10))
}

fn yes() -> bool {
    true
}

fn one() -> u32 {
    1
}

/// Overrides `skip_serializing_if` in the JSON Schema, which shows the default of a field that is not skipped.
fn is_shown<T>(_: &T) -> bool {
    false
}

fn is_one_second(warmup: &WarmUp) -> bool {
    *warmup == one_second()
}

fn is_ten_seconds(timeout: &Span) -> bool {
    *timeout == ten_seconds()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_yes(flag: &bool) -> bool {
    *flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_one(count: &u32) -> bool {
    *count == one()
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValidThroughput<'a> {
    pub subject: &'a str,
    /// From 1.
    pub block: u32,
    pub throughput_per_s: f64,
}

/// Returns a share of the throughput of the slowest subject, each by its first valid trial: in requests per second, and
/// a whole number unless it is below one. `None` without a valid trial.
///
/// In each block the trials at this rate come last (`Schedule::with_last`), so the rate is the same for all subjects
/// of a block. It changes between blocks only if a subject that is slower than all others gets its first valid trial.
pub fn rate(share: f64, valid: &[ValidThroughput<'_>]) -> Option<f64> {
    let mut firsts: BTreeMap<&str, ValidThroughput<'_>> = BTreeMap::new();
    for valid in valid.iter().filter(|valid| valid.throughput_per_s > 0.0) {
        let first = firsts.entry(valid.subject).or_insert(*valid);
        if valid.block < first.block {
            *first = *valid;
        }
    }
    let slowest = firsts.values().map(|valid| valid.throughput_per_s).reduce(f64::min)?;
    let rate = slowest * share;
    Some(if rate < 1.0 { rate } else { rate.floor().min(MAX_RATE) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid(subject: &str, block: u32, throughput_per_s: f64) -> ValidThroughput<'_> {
        ValidThroughput { subject, block, throughput_per_s }
    }

    #[test]
    fn rate_is_a_share_of_the_lowest_throughput() {
        let of_three = [valid("a", 1, 12_000.0), valid("b", 1, 193.0), valid("c", 1, 900.0)];
        assert_eq!(rate(0.5, &of_three), Some(96.0));
        assert_eq!(rate(1.0, &[valid("a", 1, 193.9)]), Some(193.0));
        assert_eq!(rate(0.5, &[valid("a", 1, 1.5)]), Some(0.75));
    }

    #[test]
    fn later_blocks_do_not_change_the_rate() {
        let of_one = [valid("a", 2, 50.0), valid("a", 1, 200.0), valid("a", 3, 10.0)];
        assert_eq!(rate(0.5, &of_one), Some(100.0));
    }

    #[test]
    fn subject_counts_from_its_first_valid_trial() {
        // Half of the throughput of `a` exceeds that of `b`.
        let of_two = [valid("a", 1, 200.0), valid("b", 2, 30.0), valid("b", 3, 10.0)];
        assert_eq!(rate(0.5, &of_two[..1]), Some(100.0));
        assert_eq!(rate(0.5, &of_two), Some(15.0));
        assert_eq!(rate(0.5, &[valid("a", 1, 0.0), valid("a", 2, 80.0)]), Some(40.0));
        assert_eq!(rate(0.5, &[]), None);
        assert_eq!(rate(0.5, &[valid("a", 1, 0.0)]), None);
    }
}
