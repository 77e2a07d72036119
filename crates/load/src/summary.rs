//! Result of a load: counts, latencies and failures of one thread or of all.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tollgate_stats::{EncodeError, LatencyHistogram};

use crate::workload::Workload;

/// Result of a load. Counts what finished in the window, whenever it was sent; only `sent`, `warm_up`,
/// `connects`, `connect_time`, `first_head` and the requests that never finished are of the whole run.
///
/// `sent = warm_up.responses + warm_up.failed + responses + failures.total() + in_flight`
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Length of the measurement, in seconds; 0 if it never started.
    #[serde(rename = "window_s", serialize_with = "seconds", deserialize_with = "from_seconds")]
    #[schemars(with = "f64")]
    pub window: Duration,
    /// Start of the measurement; of a sum of generators, the first one.
    #[serde(skip)]
    pub opened_at: Option<Instant>,
    /// Requests sent, including those whose connection failed.
    pub sent: u64,
    /// Requests that finished before the window.
    #[serde(skip)]
    pub warm_up: Progress,
    /// Complete responses, expected or not.
    pub responses: u64,
    /// Responses that were not the expected ones.
    pub unexpected: u64,
    /// Description of the first unexpected response.
    pub unexpected_example: Option<String>,
    /// Requests without a complete response.
    pub failures: Failures,
    /// Requests in flight at the end.
    pub in_flight: u64,
    /// Age of the oldest of them, in milliseconds.
    #[serde(
        rename = "oldest_in_flight_ms",
        serialize_with = "optional_ms",
        deserialize_with = "from_optional_ms"
    )]
    #[schemars(with = "Option<f64>")]
    pub oldest_in_flight: Option<Duration>,
    /// Open loop: requests that were due at the end, but not sent.
    pub unsent: u64,
    /// Time since the oldest of them was due, in milliseconds.
    #[serde(
        rename = "oldest_unsent_ms",
        serialize_with = "optional_ms",
        deserialize_with = "from_optional_ms"
    )]
    #[schemars(with = "Option<f64>")]
    pub oldest_unsent: Option<Duration>,
    /// Open loop: requests that were due while no connection was free, and waited for one.
    pub queued: u64,
    /// With a timer slack: responses without a receive timestamp of the kernel. Their latency is up to
    /// the slack too long.
    pub missing_timestamps: u64,
    /// Requests sent again: HTTP/1.1, on a new connection, because one before them in a pipeline ended the
    /// old one; the server may have processed both. HTTP/2, because the server refused their stream. Their
    /// latency starts at the first send.
    pub resent: u64,
    /// Bytes received, with heads and transfer codings.
    pub bytes_received: u64,
    /// Bytes of the requests that got a response.
    #[serde(skip)]
    pub bytes_sent: u64,
    /// Bytes of response bodies, without transfer codings.
    pub body_bytes: u64,
    /// HTTP/2: streams that the server allows on a connection; null without a limit, and for HTTP/1.1.
    pub streams_max: Option<u32>,
    /// Connections established, warm-up included.
    pub connects: u64,
    /// Responses that left the connection open for another request.
    pub kept_alive: u64,
    /// Connections closed by the generator because the server left them open for 200 ms after their
    /// last response. Without keep-alive this limits the rate: the server closes first, so that the
    /// generator keeps no ports in `TIME_WAIT`.
    pub force_closed: u64,
    /// Latency of responses and, as a lower bound, of timeouts. It ends when the response is complete.
    /// It starts in an open loop when the request was due, in a closed loop just before the write, and
    /// without keep-alive at the connect.
    #[serde(serialize_with = "distribution", deserialize_with = "from_distribution")]
    #[schemars(with = "Distribution")]
    pub latency: LatencyHistogram,
    /// Open loop: the same latency from the send. It leaves out the time that requests waited to be sent.
    #[serde(
        serialize_with = "optional_distribution",
        deserialize_with = "from_optional_distribution"
    )]
    #[schemars(with = "Option<Distribution>")]
    pub uncorrected_latency: Option<LatencyHistogram>,
    /// Open loop: delay caused by the generator itself, for each request: from the due time to the write
    /// or, if no connection was free, to the moment when the generator noticed that.
    #[serde(
        serialize_with = "optional_distribution",
        deserialize_with = "from_optional_distribution"
    )]
    #[schemars(with = "Option<Distribution>")]
    pub lateness: Option<LatencyHistogram>,
    /// Time to connect, warm-up included.
    #[serde(serialize_with = "distribution", deserialize_with = "from_distribution")]
    #[schemars(with = "Distribution")]
    pub connect_time: LatencyHistogram,
    /// Time from the established connection to the end of the TLS handshake, warm-up included; null without TLS.
    #[serde(
        serialize_with = "optional_distribution",
        deserialize_with = "from_optional_distribution"
    )]
    #[schemars(with = "Option<Distribution>")]
    pub handshake_time: Option<LatencyHistogram>,
    /// Handshakes that resumed an earlier session, warm-up included.
    pub resumed_handshakes: u64,
    /// Share of the handshakes that resumed an earlier session; null without TLS.
    pub resumption_rate: Option<f64>,
    /// TLS version and cipher suite of the first handshake; null without TLS.
    pub tls: Option<String>,
    /// Bytes received over TLS, handshakes and overhead of records included; of the whole load. Null without TLS.
    pub tls_bytes_received: Option<u64>,
    /// Bytes sent over TLS, as those received.
    pub tls_bytes_sent: Option<u64>,
    /// Time from the send to the first byte of the response; null if not recorded.
    #[serde(
        serialize_with = "optional_distribution",
        deserialize_with = "from_optional_distribution"
    )]
    #[schemars(with = "Option<Distribution>")]
    pub first_byte: Option<LatencyHistogram>,
    /// Sessions of a replay; null without one.
    pub replay: Option<ReplaySummary>,
    /// Responses per template, in the order of the workload.
    #[serde(skip)]
    pub templates: Vec<TemplateSummary>,
    /// Resource use of each thread of the generator.
    #[serde(skip)]
    pub threads: Vec<ThreadUsage>,
    /// Head of one of the first responses, as received. Empty if all came in pieces or were longer than
    /// [`MAX_CACHED_HEAD_BYTES`](tollgate_http1::MAX_CACHED_HEAD_BYTES).
    #[serde(skip)]
    pub first_head: Vec<u8>,
}

/// Sessions of a replay, of the whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplaySummary {
    /// Requests of the recording.
    pub planned: u64,
    /// Clients whose requests were sent.
    pub sessions: u64,
    /// Cookies that responses have set or removed.
    pub cookies: u64,
    /// Cookies that were invalid, or for another domain.
    pub rejected_cookies: u64,
    /// Values of variables that were found in responses.
    pub extractions: u64,
    /// Responses without the value of a variable that they should have.
    pub failed_extractions: u64,
    /// Description of the first of them.
    pub failed_extraction_example: Option<String>,
    /// Requests that were due before the response with a variable that they contain, and waited for it. Their latency
    /// includes the wait.
    pub awaited: u64,
    /// Requests sent without the value of a variable.
    pub without_value: u64,
}

impl ReplaySummary {
    fn merge(&mut self, other: Self) {
        self.planned += other.planned;
        self.sessions += other.sessions;
        self.cookies += other.cookies;
        self.rejected_cookies += other.rejected_cookies;
        self.extractions += other.extractions;
        self.failed_extractions += other.failed_extractions;
        keep_first(&mut self.failed_extraction_example, other.failed_extraction_example);
        self.awaited += other.awaited;
        self.without_value += other.without_value;
    }
}

/// Requests that have finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Complete responses, expected or not.
    pub responses: u64,
    /// Requests without a complete response.
    pub failed: u64,
    /// Unexpected responses.
    pub unexpected: u64,
    /// Sum of the latencies of all responses.
    pub latency_ns_sum: u64,
}

/// Responses to the requests of one template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TemplateSummary {
    /// Responses other than the expected ones.
    pub unexpected: u64,
    /// Description of the first of them.
    pub unexpected_example: Option<String>,
    /// Responses by status code.
    pub statuses: BTreeMap<u16, u64>,
    /// Latency, measured as that of all requests.
    #[serde(serialize_with = "distribution", deserialize_with = "from_distribution")]
    #[schemars(with = "Distribution")]
    pub latency: LatencyHistogram,
}

/// Resource use of one thread over its window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadUsage {
    /// CPU time in user mode, in microseconds.
    #[serde(rename = "user_us", serialize_with = "micros", deserialize_with = "from_micros")]
    #[schemars(with = "u64")]
    pub user: Duration,
    /// CPU time in the kernel, in microseconds.
    #[serde(rename = "system_us", serialize_with = "micros", deserialize_with = "from_micros")]
    #[schemars(with = "u64")]
    pub system: Duration,
    /// Time ready to run, but waiting for a CPU, in microseconds.
    #[serde(rename = "waited_us", serialize_with = "micros", deserialize_with = "from_micros")]
    #[schemars(with = "u64")]
    pub waited: Duration,
    /// CPU time polling without an event, in microseconds: busy polling, and the last moments before a
    /// request is due. Part of the CPU time.
    #[serde(rename = "polled_us", serialize_with = "micros", deserialize_with = "from_micros")]
    #[schemars(with = "u64")]
    pub polled: Duration,
    /// Length of the window, in microseconds.
    #[serde(rename = "window_us", serialize_with = "micros", deserialize_with = "from_micros")]
    #[schemars(with = "u64")]
    pub window: Duration,
}

/// Requests without a complete response, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failures {
    /// Nothing listens at the target. The request failed, and the connection waited for 10 ms.
    pub refused: u64,
    /// The connection or the stream was reset.
    pub reset: u64,
    /// The connect took longer than its timeout.
    pub connect_timeout: u64,
    /// The response took longer than its timeout.
    pub response_timeout: u64,
    /// The connection was closed after the request was sent, before any byte of the response.
    pub closed_early: u64,
    /// The response broke the protocol, or was incomplete, or longer than its framing says.
    pub malformed: u64,
    /// No local port was left: closed connections keep theirs for a while.
    #[serde(default)]
    pub no_port: u64,
    /// Any other error.
    pub other: u64,
    /// Description of the first malformed response.
    pub malformed_example: Option<String>,
    /// The first error of another kind.
    pub other_example: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) enum Failure {
    Refused,
    Reset,
    ConnectTimeout,
    ResponseTimeout,
    ClosedEarly,
    Malformed(String),
    NoPort,
    Other(String),
}

/// A distribution of times as reports print it, in milliseconds.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Distribution {
    /// Number of times.
    pub(crate) count: u64,
    /// Mean; null if the count is 0, as the next three.
    mean_ms: Option<f64>,
    /// Standard deviation of the whole population.
    stddev_ms: Option<f64>,
    /// Minimum.
    min_ms: Option<f64>,
    /// Maximum.
    max_ms: Option<f64>,
    /// Quantiles; null if fewer than ten times lie beyond.
    quantiles: Quantiles,
    /// The histogram in nanoseconds: HdrHistogram's V2 format, uncompressed, in base64.
    histogram_v2_base64: String,
}

/// Quantiles in milliseconds.
#[derive(Debug, Serialize, JsonSchema)]
struct Quantiles {
    /// Median.
    p50_ms: Option<f64>,
    /// 75th percentile.
    p75_ms: Option<f64>,
    /// 90th percentile.
    p90_ms: Option<f64>,
    /// 95th percentile.
    p95_ms: Option<f64>,
    /// 99th percentile.
    p99_ms: Option<f64>,
    /// 99.9th percentile.
    #[serde(rename = "p99.9_ms")]
    p99_9_ms: Option<f64>,
    /// 99.99th percentile.
    #[serde(rename = "p99.99_ms")]
    p99_99_ms: Option<f64>,
}

impl Summary {
    /// Responses per second; `None` for a window without length.
    pub fn throughput_per_s(&self) -> Option<f64> {
        let seconds = self.window.as_secs_f64();
        (seconds > 0.0).then(|| self.responses as f64 / seconds)
    }

    /// Responses per second of CPU time of the generator, without idle polling; `None` without CPU time.
    pub fn responses_per_cpu_s(&self) -> Option<f64> {
        let used = |thread: &ThreadUsage| {
            (thread.user + thread.system).saturating_sub(thread.polled).as_secs_f64()
        };
        let cpu_s: f64 = self.threads.iter().map(used).sum();
        (cpu_s > 0.0).then(|| self.responses as f64 / cpu_s)
    }

    /// Responses by status code, over all templates.
    pub fn statuses(&self) -> BTreeMap<u16, u64> {
        let mut sum = BTreeMap::new();
        for (status, count) in self.templates.iter().flat_map(|template| &template.statuses) {
            *sum.entry(*status).or_default() += count;
        }
        sum
    }

    /// Responses by status code to requests that expect no status.
    pub(crate) fn unjudged_statuses(&self, workload: &Workload) -> BTreeMap<u16, u64> {
        let mut sum = BTreeMap::new();
        for (index, template) in self.templates.iter().enumerate() {
            let mut requests = workload.requests.iter().filter(|one| one.template == index);
            if requests.any(|request| request.expect.status.is_some()) {
                continue;
            }
            for (status, count) in &template.statuses {
                *sum.entry(*status).or_default() += count;
            }
        }
        sum
    }

    /// Responses 4xx and 5xx to requests that expect no status.
    pub(crate) fn error_responses(&self, workload: &Workload) -> [u64; 2] {
        let statuses = self.unjudged_statuses(workload);
        [400..500, 500..600].map(|range| statuses.range(range).map(|(_, count)| count).sum())
    }

    /// Share of the requests of an open loop that were due, but not sent; warm-up included.
    pub fn unsent_share(&self) -> f64 {
        share(self.unsent, self.sent + self.unsent)
    }

    /// Share of the requests due in the window that waited for a connection.
    pub(crate) fn queued_share(&self) -> f64 {
        // Each request due in the window has a lateness.
        share(self.queued, self.lateness.as_ref().map_or(0, LatencyHistogram::count))
    }

    /// Share of the finished requests without the expected response.
    pub(crate) fn wrong_share(&self) -> f64 {
        let failed = self.failures.total();
        share(failed + self.unexpected, failed + self.responses)
    }

    /// Adds the counts of another thread. `window` is left to the caller.
    pub(crate) fn merge(&mut self, other: Self) {
        self.opened_at = self.opened_at.into_iter().chain(other.opened_at).min();
        self.sent += other.sent;
        self.warm_up.add(&other.warm_up);
        self.responses += other.responses;
        self.unexpected += other.unexpected;
        keep_first(&mut self.unexpected_example, other.unexpected_example);
        self.failures.merge(other.failures);
        self.in_flight += other.in_flight;
        self.oldest_in_flight = self.oldest_in_flight.max(other.oldest_in_flight);
        self.unsent += other.unsent;
        self.oldest_unsent = self.oldest_unsent.max(other.oldest_unsent);
        self.queued += other.queued;
        self.missing_timestamps += other.missing_timestamps;
        self.resent += other.resent;
        self.bytes_received += other.bytes_received;
        self.bytes_sent += other.bytes_sent;
        self.body_bytes += other.body_bytes;
        self.streams_max = match (self.streams_max, other.streams_max) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.connects += other.connects;
        self.kept_alive += other.kept_alive;
        self.force_closed += other.force_closed;
        self.latency.merge(&other.latency);
        merge_optional(&mut self.uncorrected_latency, other.uncorrected_latency);
        merge_optional(&mut self.lateness, other.lateness);
        self.connect_time.merge(&other.connect_time);
        merge_optional(&mut self.handshake_time, other.handshake_time);
        self.resumed_handshakes += other.resumed_handshakes;
        self.resumption_rate =
            self.handshake_time.as_ref().map(|time| share(self.resumed_handshakes, time.count()));
        keep_first(&mut self.tls, other.tls);
        self.tls_bytes_received = sum_of(self.tls_bytes_received, other.tls_bytes_received);
        self.tls_bytes_sent = sum_of(self.tls_bytes_sent, other.tls_bytes_sent);
        merge_optional(&mut self.first_byte, other.first_byte);
        match (&mut self.replay, other.replay) {
            (Some(sum), Some(other)) => sum.merge(other),
            (sum, other) => *sum = sum.take().or(other),
        }
        self.templates.resize_with(other.templates.len(), TemplateSummary::default);
        for (sum, template) in self.templates.iter_mut().zip(other.templates) {
            sum.merge(template);
        }
        self.threads.extend(other.threads);
        if self.first_head.is_empty() {
            self.first_head = other.first_head;
        }
    }
}

impl TemplateSummary {
    pub fn responses(&self) -> u64 {
        self.statuses.values().sum()
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.unexpected += other.unexpected;
        keep_first(&mut self.unexpected_example, other.unexpected_example);
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        // A merge reads all counters, and most threads have not touched the counters of an empty histogram.
        if other.latency.count() > 0 {
            self.latency.merge(&other.latency);
        }
    }
}

impl Progress {
    pub fn add(&mut self, other: &Self) {
        self.responses += other.responses;
        self.failed += other.failed;
        self.unexpected += other.unexpected;
        self.latency_ns_sum += other.latency_ns_sum;
    }
}

impl ThreadUsage {
    /// Share of the window in which the thread had work and ran or waited for a CPU; 0 for a window
    /// without length.
    pub fn busy(&self) -> f64 {
        let window_s = self.window.as_secs_f64();
        let wanted = self.user + self.system + self.waited;
        let needed_s = wanted.saturating_sub(self.polled).as_secs_f64();
        if window_s > 0.0 { needed_s / window_s } else { 0.0 }
    }
}

impl Failures {
    pub fn total(&self) -> u64 {
        self.by_kind().iter().map(|(_, count)| count).sum()
    }

    pub fn timeouts(&self) -> u64 {
        self.connect_timeout + self.response_timeout
    }

    pub fn by_kind(&self) -> [(&'static str, u64); 8] {
        [
            ("refused", self.refused),
            ("reset", self.reset),
            ("connect_timeout", self.connect_timeout),
            ("response_timeout", self.response_timeout),
            ("closed_early", self.closed_early),
            ("malformed", self.malformed),
            ("no_port", self.no_port),
            ("other", self.other),
        ]
    }

    /// Lists the kinds that occurred, with counts and examples: `reset: 1, malformed: 2, REASON`.
    pub fn describe(&self) -> String {
        let kinds = self.by_kind().into_iter().filter(|(_, count)| *count > 0);
        let mut parts: Vec<String> =
            kinds.map(|(kind, count)| format!("{kind}: {count}")).collect();
        let examples = [&self.malformed_example, &self.other_example];
        parts.extend(examples.into_iter().flatten().cloned());
        parts.join(", ")
    }

    pub(crate) fn count(&mut self, failure: Failure) {
        match failure {
            Failure::Refused => self.refused += 1,
            Failure::Reset => self.reset += 1,
            Failure::ConnectTimeout => self.connect_timeout += 1,
            Failure::ResponseTimeout => self.response_timeout += 1,
            Failure::ClosedEarly => self.closed_early += 1,
            Failure::Malformed(reason) => {
                self.malformed += 1;
                self.malformed_example.get_or_insert(reason);
            }
            Failure::NoPort => self.no_port += 1,
            Failure::Other(reason) => {
                self.other += 1;
                self.other_example.get_or_insert(reason);
            }
        }
    }

    /// The counts, without examples.
    pub(crate) fn counts(&self) -> Self {
        Self { malformed_example: None, other_example: None, ..*self }
    }

    /// The counts since an earlier state.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            refused: self.refused - before.refused,
            reset: self.reset - before.reset,
            connect_timeout: self.connect_timeout - before.connect_timeout,
            response_timeout: self.response_timeout - before.response_timeout,
            closed_early: self.closed_early - before.closed_early,
            malformed: self.malformed - before.malformed,
            no_port: self.no_port - before.no_port,
            other: self.other - before.other,
            malformed_example: None,
            other_example: None,
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.refused += other.refused;
        self.reset += other.reset;
        self.connect_timeout += other.connect_timeout;
        self.response_timeout += other.response_timeout;
        self.closed_early += other.closed_early;
        self.malformed += other.malformed;
        self.no_port += other.no_port;
        self.other += other.other;
        keep_first(&mut self.malformed_example, other.malformed_example);
        keep_first(&mut self.other_example, other.other_example);
    }
}

impl Failure {
    /// True if the latency of the request is known to be at least its age.
    pub(crate) fn is_timeout(&self) -> bool {
        matches!(self, Self::ConnectTimeout | Self::ResponseTimeout)
    }

    /// Classifies a system error. `action` is the failed call: `connect`, `send` or `receive`.
    pub(crate) fn io(action: &str, error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::Refused,
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Self::Reset,
            ErrorKind::AddrNotAvailable => Self::NoPort,
            _ => Self::Other(format!("cannot {action}: {error}")),
        }
    }

    /// A malformed response. The reason includes its sources.
    pub(crate) fn malformed(reason: &(dyn StdError + 'static)) -> Self {
        let sources = std::iter::successors(Some(reason), |&error| error.source());
        let chain: Vec<String> = sources.map(ToString::to_string).collect();
        Self::Malformed(chain.join(": "))
    }
}

impl Distribution {
    pub(crate) fn new(histogram: &LatencyHistogram) -> Result<Self, EncodeError> {
        let quantile_ms = |q| histogram.quantile_ns(q).map(ns_to_ms);
        Ok(Self {
            count: histogram.count(),
            mean_ms: histogram.mean_ns().map(|ns| ns / NS_PER_MS),
            stddev_ms: histogram.stdev_ns().map(|ns| ns / NS_PER_MS),
            min_ms: histogram.min_ns().map(ns_to_ms),
            max_ms: histogram.max_ns().map(ns_to_ms),
            quantiles: Quantiles {
                p50_ms: quantile_ms(0.5),
                p75_ms: quantile_ms(0.75),
                p90_ms: quantile_ms(0.9),
                p95_ms: quantile_ms(0.95),
                p99_ms: quantile_ms(0.99),
                p99_9_ms: quantile_ms(0.999),
                p99_99_ms: quantile_ms(0.9999),
            },
            histogram_v2_base64: histogram.to_v2_base64()?,
        })
    }

    /// Names and values in the order of tables.
    pub(crate) fn figures_ms(&self) -> [(&'static str, Option<f64>); 11] {
        let quantiles = &self.quantiles;
        [
            ("mean", self.mean_ms),
            ("stddev", self.stddev_ms),
            ("min", self.min_ms),
            ("p50", quantiles.p50_ms),
            ("p75", quantiles.p75_ms),
            ("p90", quantiles.p90_ms),
            ("p95", quantiles.p95_ms),
            ("p99", quantiles.p99_ms),
            ("p99.9", quantiles.p99_9_ms),
            ("p99.99", quantiles.p99_99_ms),
            ("max", self.max_ms),
        ]
    }
}

pub(crate) const NS_PER_MS: f64 = 1e6;

pub(crate) fn ns_to_ms(ns: u64) -> f64 {
    ns as f64 / NS_PER_MS
}

/// The part of a [`Distribution`] that the others are derived from.
#[derive(Deserialize)]
struct EncodedHistogram {
    histogram_v2_base64: String,
}

/// Part of a whole; 0 of an empty one.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn keep_first(first: &mut Option<String>, other: Option<String>) {
    if first.is_none() {
        *first = other;
    }
}

fn sum_of(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => one.or(other),
    }
}

fn merge_optional(sum: &mut Option<LatencyHistogram>, part: Option<LatencyHistogram>) {
    match (sum.as_mut(), part) {
        (Some(sum), Some(part)) => sum.merge(&part),
        (None, part) => *sum = part,
        (Some(_), None) => {}
    }
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

fn micros<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_micros()).map_err(S::Error::custom)?)
}

fn optional_ms<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64() * 1e3).serialize(serializer)
}

fn distribution<S: Serializer>(
    histogram: &LatencyHistogram,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    Distribution::new(histogram).map_err(S::Error::custom)?.serialize(serializer)
}

fn optional_distribution<S: Serializer>(
    histogram: &Option<LatencyHistogram>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let distribution = histogram.as_ref().map(Distribution::new).transpose();
    distribution.map_err(S::Error::custom)?.serialize(serializer)
}

fn from_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(D::Error::custom)
}

fn from_micros<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_micros)
}

fn from_optional_ms<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    let ms = Option::<f64>::deserialize(deserializer)?;
    let time = ms.map(|ms| Duration::try_from_secs_f64(ms / 1e3)).transpose();
    time.map_err(D::Error::custom)
}

fn from_distribution<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<LatencyHistogram, D::Error> {
    let encoded = EncodedHistogram::deserialize(deserializer)?;
    LatencyHistogram::from_v2_base64(&encoded.histogram_v2_base64).map_err(D::Error::custom)
}

fn from_optional_distribution<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<LatencyHistogram>, D::Error> {
    let encoded = Option::<EncodedHistogram>::deserialize(deserializer)?;
    let histogram =
        encoded.map(|encoded| LatencyHistogram::from_v2_base64(&encoded.histogram_v2_base64));
    histogram.transpose().map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_are_classified() {
        let kind = |errno| {
            let mut failures = Failures::default();
            failures.count(Failure::io("connect", &io::Error::from_raw_os_error(errno)));
            let found = failures.by_kind().into_iter().find(|(_, count)| *count == 1);
            found.map(|(kind, _)| kind)
        };
        // EADDRNOTAVAIL, ECONNREFUSED, ECONNRESET, EPIPE, EHOSTUNREACH on Linux.
        let kinds = [99, 111, 104, 32, 113].map(kind);
        assert_eq!(kinds, ["no_port", "refused", "reset", "reset", "other"].map(Some));
    }

    #[test]
    fn failures_are_described_by_kind_with_the_first_example() {
        let mut failures = Failures::default();
        assert_eq!((failures.total(), failures.describe().as_str()), (0, ""));
        failures.count(Failure::Reset);
        failures.count(Failure::Malformed("no status".to_owned()));
        failures.count(Failure::Malformed("no length".to_owned()));
        assert_eq!(failures.total(), 3);
        assert_eq!(failures.describe(), "reset: 1, malformed: 2, no status");
    }

    #[test]
    fn quantiles_with_less_than_ten_times_beyond_are_null() {
        let mut histogram = LatencyHistogram::new();
        for us in (1_000..=10_000).step_by(10) {
            histogram.record(us * 1_000);
        }
        let latency = Distribution::new(&histogram).unwrap();
        assert_eq!(latency.count, 901);
        // Three digits: 5,500 us are within 0.1 %.
        assert!((latency.quantiles.p50_ms.unwrap() - 5.5).abs() < 0.0055);
        assert!((latency.quantiles.p95_ms.unwrap() - 9.55).abs() < 0.00955);
        assert_eq!(latency.quantiles.p99_ms, None);
        assert!((latency.mean_ms.unwrap() - 5.5).abs() < 0.0055);
        let empty = Distribution::new(&LatencyHistogram::new()).unwrap();
        assert!(empty.figures_ms().iter().all(|(_, value)| value.is_none()));
    }

    #[test]
    fn busy_share_leaves_out_idle_polling() {
        let ms = Duration::from_millis;
        let (user, system, waited, polled) = (ms(400), ms(400), ms(100), ms(300));
        let thread = ThreadUsage { user, system, waited, polled, window: ms(1_000) };
        assert!((thread.busy() - 0.6).abs() < 1e-9);
        assert_eq!(ThreadUsage { window: Duration::ZERO, ..thread }.busy(), 0.0);
    }
}
