//! Result of a load, of one thread or of all.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_stats::{Failures, LatencyHistogram};

use crate::distribution::{
    Distribution, distribution, from_distribution, from_micros, from_optional_distribution,
    from_optional_ms, from_seconds, micros, optional_distribution, optional_ms, seconds,
};
use crate::workload::Workload;

/// Result of a load. Counts what finished in the window, whenever it was sent; only `sent`, `warm_up`,
/// `connects`, `connect_time`, `first_headers` and the requests that never finished are of the whole run.
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
    /// Ages of the requests in flight at the end; `None` without any.
    #[serde(skip)]
    pub in_flight_ages: Option<LatencyHistogram>,
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
    /// HTTP/1.1: responses whose head has a line that continues the one before (RFC 9112, section 5.2).
    pub folded_heads: u64,
    /// HTTP/1.1: responses with `Content-Length` beside the transfer coding that overrides it (RFC 9112, section 6.3).
    pub double_framings: u64,
    /// Connections closed by the generator because the server left them open for 200 ms after their last response, or
    /// 256 later ones of the thread. The server closes first, so that the generator keeps no ports in `TIME_WAIT`;
    /// the next request does not wait for that.
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
    /// Headers of one of the first responses. `None` if the heads of all came in pieces or were longer than
    /// [`MAX_CACHED_HEAD_BYTES`](tollgate_http1::MAX_CACHED_HEAD_BYTES).
    #[serde(skip)]
    pub first_headers: Option<Vec<(String, String)>>,
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

    /// Requests in flight at the end for longer than the 99th percentile of the latency: latencies above it that are missing in
    /// the distribution.
    pub(crate) fn stalled(&self) -> u64 {
        let (Some(ages), Some(p99_ns)) = (&self.in_flight_ages, self.latency.value_at(0.99)) else {
            return 0;
        };
        ages.count() - ages.count_up_to(p99_ns)
    }

    /// True if the quantile `q` of the latency would be another one with the stalled requests, and is only a lower bound.
    pub(crate) fn is_lower_bound(&self, q: f64) -> bool {
        let stalled = self.stalled() as f64;
        stalled > 0.0 && (1.0 - q) * (self.latency.count() as f64 + stalled) <= stalled
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
        merge_optional(&mut self.in_flight_ages, other.in_flight_ages);
        self.unsent += other.unsent;
        self.oldest_unsent = self.oldest_unsent.max(other.oldest_unsent);
        self.queued += other.queued;
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
        self.folded_heads += other.folded_heads;
        self.double_framings += other.double_framings;
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
        self.first_headers = self.first_headers.take().or(other.first_headers);
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

fn keep_first<T>(first: &mut Option<T>, other: Option<T>) {
    if first.is_none() {
        *first = other;
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

/// Part of a whole; 0 of an empty one.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_share_leaves_out_idle_polling() {
        let ms = Duration::from_millis;
        let (user, system, waited, polled) = (ms(400), ms(400), ms(100), ms(300));
        let thread = ThreadUsage { user, system, waited, polled, window: ms(1_000) };
        assert!((thread.busy() - 0.6).abs() < 1e-9);
        assert_eq!(ThreadUsage { window: Duration::ZERO, ..thread }.busy(), 0.0);
    }
}
