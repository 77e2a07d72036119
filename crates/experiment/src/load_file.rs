//! The load of a case as it is written: keys, whose values are checked once, when they become a [`LoadShape`].

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::collections::BTreeMap;
use std::time::Duration;
use tollgate_traffic::load_shape::{
    CaseArrivals, CaseProtocol, CaseRate, Clients, LoadProgram, LoadShape, MAX_CONNECTIONS,
    MAX_RATE, MAX_STREAMS, MAX_THREADS, OpenLoop, Protocol, Spacing, TlsSessions, WarmUp, Window,
};
use tollgate_traffic::units::{Percent, Span};

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
    /// Program that sends the load: `tollgate`, `wrk`, `ab` or `h2load`. The others send one GET again and again in a closed
    /// loop, after a warm-up by tollgate, and need `busy_poll = false`.
    #[serde(default, skip_serializing_if = "LoadProgram::is_own")]
    #[schemars(skip_serializing_if = "is_shown")]
    #[schemars(extend("examples" = ["wrk"]))]
    pub client: LoadProgram,
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
    pub spacing: Option<Spacing>,
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
    pub warmup: WarmUpFile,
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
pub enum WarmUpFile {
    For(Duration),
    /// Steady throughput and CPU per request.
    Steady,
}

/// A key of a load, and the reason why its value is invalid.
pub(crate) type LoadFlaw = (&'static str, String);

/// In a shorter time, a slow system answers too few requests.
const SHORTEST_WINDOW: Duration = Duration::from_millis(150);
/// `--quick` divides durations by this.
pub(crate) const QUICK_DIVISOR: u32 = 5;
const STEADY: &str = "steady";
/// Default time limit of a steady warm-up.
const STEADY_LONGEST: Duration = Duration::from_secs(10);
/// Figures need half of this time to become steady.
const STEADY_SHORTEST: Duration = Duration::from_secs(2);
/// Default time limit of a number of requests.
const REQUESTS_LONGEST: Duration = Duration::from_secs(60);
/// An hour of requests at the rate of one core.
const REQUESTS_MAX: usize = 1_000_000_000;
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(3600);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl LoadFile {
    /// Returns a closed loop of a fixed length.
    pub(crate) fn closed(connections: u32, duration: Span) -> Self {
        Self {
            client: LoadProgram::default(),
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

    /// Shortens the load for `--quick`. `is_own`: false if foreign clients send it, which count whole seconds.
    pub(crate) fn quick(mut self, is_own: bool) -> Self {
        let fifth = |time: Span| {
            let time = (time.0 / QUICK_DIVISOR).max(SHORTEST_WINDOW);
            Span(if is_own { time } else { Duration::from_secs(time.as_secs().max(1)) })
        };
        self.duration = self.quick_duration.or(self.duration.map(fifth));
        let fifth = |requests: u32| (requests / QUICK_DIVISOR).max(self.connections);
        self.requests = self.quick_requests.or(self.requests.map(fifth));
        match self.warmup {
            WarmUpFile::For(time) => self.warmup = WarmUpFile::For(time / QUICK_DIVISOR),
            WarmUpFile::Steady => {
                let most = (self.steady_longest() / QUICK_DIVISOR).max(STEADY_SHORTEST);
                self.warmup_max = Some(Span(most));
            }
        }
        self
    }

    fn steady_longest(&self) -> Duration {
        self.warmup_max.map_or(STEADY_LONGEST, |limit| limit.0)
    }

    /// Checks all values and returns the load. `rate_of`: the rate relative to another case.
    pub fn shape(
        &self,
        protocol: CaseProtocol,
        rate_of: Option<&RateOfFile>,
    ) -> Result<LoadShape, LoadFlaw> {
        self.check_ranges()?;
        let window = self.window(self.rate.is_some() || rate_of.is_some())?;
        let warm_up = match (self.warmup, self.warmup_max) {
            (WarmUpFile::For(_), Some(_)) => {
                return Err(requires("warmup_max", "`warmup = \"steady\"`"));
            }
            (WarmUpFile::For(time), None) => WarmUp::For(time),
            (WarmUpFile::Steady, _) => WarmUp::Steady { within: self.steady_longest() },
        };
        Ok(LoadShape {
            program: self.client,
            arrivals: self.arrivals(rate_of)?,
            clients: Clients {
                protocol: self.protocol(protocol)?,
                threads: self.threads as usize,
                busy_poll: self.busy_poll,
                connect_timeout: CONNECT_TIMEOUT,
                response_timeout: self.timeout.0,
            },
            tls: match (protocol.is_tls(), self.tls_resume) {
                (true, true) => TlsSessions::Resumed,
                (true, false) => TlsSessions::New,
                (false, false) => TlsSessions::Off,
                (false, true) => {
                    let message = format!(
                        "sessions are resumed over TLS, not with `protocol = \"{protocol}\"`; use https or https-h2"
                    );
                    return Err(("tls_resume", message));
                }
            },
            warm_up,
            window,
            idle_poll: self.idle_poll,
        })
    }

    fn check_ranges(&self) -> Result<(), LoadFlaw> {
        let count = |count: Option<u32>, high| count.map_or(Ok(()), |count| between(count, high));
        let time =
            |time: Option<Span>, low| time.map_or(Ok(()), |time| in_range(time, low, LONGEST));
        let warmup = match self.warmup {
            WarmUpFile::For(time) => Some(Span(time)),
            WarmUpFile::Steady => None,
        };
        let rate = match self.rate {
            Some(rate) if !(rate > 0.0 && rate <= MAX_RATE) => {
                Err(format!("expected a rate above 0 and at most {MAX_RATE}, got {rate}"))
            }
            _ => Ok(()),
        };
        let ranges = [
            ("connections", between(self.connections, MAX_CONNECTIONS)),
            ("connections_max", count(self.connections_max, MAX_CONNECTIONS)),
            ("threads", between(self.threads, MAX_THREADS.min(self.connections as usize))),
            ("streams", between(self.streams, MAX_STREAMS)),
            ("requests", count(self.requests, REQUESTS_MAX)),
            ("quick_requests", count(self.quick_requests, REQUESTS_MAX)),
            ("duration", time(self.duration, SHORTEST_WINDOW)),
            ("quick_duration", time(self.quick_duration, SHORTEST_WINDOW)),
            ("duration_max", time(self.duration_max, SHORTEST_WINDOW)),
            ("warmup", time(warmup, Duration::ZERO)),
            ("warmup_max", time(self.warmup_max, STEADY_SHORTEST)),
            ("timeout", time(Some(self.timeout), SHORTEST_TIMEOUT)),
            ("rate", rate),
        ];
        ranges.into_iter().try_for_each(|(key, result)| result.map_err(|message| (key, message)))
    }

    fn window(&self, is_open: bool) -> Result<Window, LoadFlaw> {
        let connections = self.connections;
        let of_requests = [
            ("quick_requests", self.quick_requests.is_some()),
            ("duration_max", self.duration_max.is_some()),
        ];
        let of_time = [
            ("duration", self.duration.is_some()),
            ("quick_duration", self.quick_duration.is_some()),
        ];
        let Some(requests) = self.requests else {
            if let Some(key) = set(of_requests) {
                return Err(requires(key, "`requests`; add them"));
            }
            let Some(duration) = self.duration else {
                let message = "no `duration` and no `requests`; add one of them";
                return Err(("duration", message.to_owned()));
            };
            return Ok(Window::For(duration.0));
        };
        if let Some(key) = set(of_time) {
            let message = format!("`{key}` and `requests` exclude each other; remove one of them");
            return Err((key, message));
        }
        if is_open {
            let message = "`requests` are for a closed loop; with a rate, use `duration`";
            return Err(("requests", message.to_owned()));
        }
        for (key, count) in [("requests", Some(requests)), ("quick_requests", self.quick_requests)]
        {
            if let Some(count) = count.filter(|count| *count < connections) {
                let message =
                    format!("{count} is less than one for each of {connections} connections");
                return Err((key, message));
            }
        }
        let within = self.duration_max.map_or(REQUESTS_LONGEST, |limit| limit.0);
        Ok(Window::Requests { requests, within })
    }

    fn arrivals(&self, rate_of: Option<&RateOfFile>) -> Result<CaseArrivals, LoadFlaw> {
        let connections = self.connections as usize;
        let rate = match (self.rate, rate_of) {
            (Some(_), Some(_)) => {
                let message = "the case also has `rate_of`; remove one of them";
                return Err(("rate", message.to_owned()));
            }
            (Some(per_s), None) => CaseRate::PerS(per_s),
            (None, Some(RateOfFile { case, share })) => {
                CaseRate::ShareOf { case: case.clone(), share: *share, per_s: None }
            }
            (None, None) => {
                let of_open_loop = [
                    ("spacing", self.spacing.is_some()),
                    ("connections_max", self.connections_max.is_some()),
                ];
                return match set(of_open_loop) {
                    Some(key) => {
                        Err(requires(key, "an open loop; add a `rate`, or a `rate_of` to the case"))
                    }
                    None => Ok(CaseArrivals::Closed { connections }),
                };
            }
        };
        let connections_max = self.connections_max.map_or(connections, |most| most as usize);
        if connections_max < connections {
            let message = format!(
                "{connections_max} is less than the {connections} connections at the start"
            );
            return Err(("connections_max", message));
        }
        let spacing = self.spacing.unwrap_or(Spacing::Constant);
        Ok(CaseArrivals::Open(OpenLoop { rate, spacing, connections, connections_max }))
    }

    fn protocol(&self, protocol: CaseProtocol) -> Result<Protocol, LoadFlaw> {
        if protocol.is_http2() {
            if self.keepalive {
                return Ok(Protocol::Http2 { streams: self.streams as usize });
            }
            let message = format!(
                "one request per connection requires HTTP/1.1, not `protocol = \"{protocol}\"`; use h1 or https"
            );
            return Err(("keepalive", message));
        }
        if self.streams > 1 {
            let message = format!(
                "several streams require HTTP/2, not `protocol = \"{protocol}\"`; use h2 or https-h2"
            );
            return Err(("streams", message));
        }
        Ok(if self.keepalive { Protocol::Http1 { pipeline: 1 } } else { Protocol::Http1Close })
    }
}

fn requires(key: &'static str, what: &str) -> LoadFlaw {
    (key, format!("`{key}` requires {what}"))
}

fn set<const N: usize>(keys: [(&'static str, bool); N]) -> Option<&'static str> {
    keys.into_iter().find(|(_, is_set)| *is_set).map(|(key, _)| key)
}

pub(crate) fn between(value: u32, high: usize) -> Result<(), String> {
    if (1..=high).contains(&(value as usize)) {
        Ok(())
    } else {
        Err(format!("expected 1 to {high}, got {value}"))
    }
}

pub(crate) fn in_range(span: Span, shortest: Duration, longest: Duration) -> Result<(), String> {
    if (shortest..=longest).contains(&span.0) {
        Ok(())
    } else {
        Err(format!("expected {} to {}, got {span}", Span(shortest), Span(longest)))
    }
}

impl<'de> Deserialize<'de> for WarmUpFile {
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

impl Serialize for WarmUpFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::For(time) => Span(*time).serialize(serializer),
            Self::Steady => serializer.serialize_str(STEADY),
        }
    }
}

fn one_second() -> WarmUpFile {
    WarmUpFile::For(Duration::from_secs(1))
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

fn is_one_second(warmup: &WarmUpFile) -> bool {
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
