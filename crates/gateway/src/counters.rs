//! Counters: each thread counts on its own; readers add them up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_accesslog::Counter;
use tollgate_admin::DURATION_BOUNDS_US;

use crate::checks::CheckCounters;
use crate::compression::Encoders;
use crate::config::{Address, Config};
use crate::connect_error::{LOCAL_RESOURCES, LocalResource};
use crate::firewall::{FirewallCounters, Waiting};
use crate::limiter::Limiter;

/// Statuses of local responses that are counted each, with the usual ones of routes.
pub(crate) const LOCAL_STATUSES: [u16; 24] = [
    200, 204, 301, 302, 303, 307, 308, 400, 403, 404, 405, 408, 410, 413, 414, 415, 417, 429, 431,
    501, 502, 503, 504, 505,
];

/// Ends of responses before their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// The client has left, or its connection has failed.
    ClientClosed,
    /// The client takes no more of the response, or sends no more of its request.
    ClientStalled,
    /// The backend has sent nothing for `timeouts.body`.
    Stalled,
    /// The backend has closed its connection within the body.
    BrokenOff,
    /// The body violates its framing.
    Malformed,
    /// The firewall has blocked it after its start.
    Blocked,
    /// The gateway has stopped.
    Stopped,
}

impl Interruption {
    pub(crate) const ALL: [Self; 7] = [
        Self::ClientClosed,
        Self::ClientStalled,
        Self::Stalled,
        Self::BrokenOff,
        Self::Malformed,
        Self::Blocked,
        Self::Stopped,
    ];

    /// Its name in logs and metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::ClientClosed => "client-closed",
            Self::ClientStalled => "client-stalled",
            Self::Stalled => "stalled",
            Self::BrokenOff => "broken-off",
            Self::Malformed => "malformed",
            Self::Blocked => "blocked",
            Self::Stopped => "stopped",
        }
    }
}

/// Answers to messages of HAProxy's SPOE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpoeAnswer {
    Passed,
    Denied,
    Dropped,
    Redirected,
    /// A response is to be blocked, but its message asks for detection only.
    Detected,
    /// No verdict in time.
    Late,
    /// The message cannot be inspected: its arguments are missing or invalid.
    Invalid,
    /// The message names none of the applications.
    UnknownApplication,
    /// The request of a response does not wait, or no longer.
    UnknownId,
    /// The listener was removed from the configuration.
    NoListener,
    /// A state that should be impossible.
    Bug,
}

impl SpoeAnswer {
    pub(crate) const ALL: [Self; 11] = [
        Self::Passed,
        Self::Denied,
        Self::Dropped,
        Self::Redirected,
        Self::Detected,
        Self::Late,
        Self::Invalid,
        Self::UnknownApplication,
        Self::UnknownId,
        Self::NoListener,
        Self::Bug,
    ];

    /// Its name in metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Denied => "denied",
            Self::Dropped => "dropped",
            Self::Redirected => "redirected",
            Self::Detected => "detected",
            Self::Late => "late",
            Self::Invalid => "invalid",
            Self::UnknownApplication => "unknown-application",
            Self::UnknownId => "unknown-id",
            Self::NoListener => "no-listener",
            Self::Bug => "bug",
        }
    }
}

/// A histogram of durations, by [`DURATION_BOUNDS_US`].
#[derive(Debug, Default)]
pub(crate) struct DurationCounters {
    pub(crate) buckets: [Counter; DURATION_BOUNDS_US.len() + 1],
    pub(crate) sum_us: Counter,
}

impl DurationCounters {
    #[inline]
    pub(crate) fn add_us(&self, us: u64) {
        // Most are in the first buckets.
        let bucket = DURATION_BOUNDS_US.iter().position(|bound| us <= *bound);
        self.buckets[bucket.unwrap_or(DURATION_BOUNDS_US.len())].add(1);
        self.sum_us.add(us);
    }

    fn add(&self, more: &Self) {
        add_each(&self.buckets, &more.buckets);
        self.sum_us.add(more.sum_us.get());
    }
}

fn add_each(sums: &[Counter], more: &[Counter]) {
    for (sum, count) in sums.iter().zip(more) {
        sum.add(count.get());
    }
}

/// One thread's counters of its clients. Aligned to two cache lines, because processors prefetch pairs: avoids false
/// sharing between threads.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ClientCounters {
    pub(crate) accepted: Counter,
    pub(crate) closed: Counter,
    /// Connections closed at once by the limit per client.
    pub(crate) refused: Counter,
    /// Connections closed for lack of a header of the PROXY protocol.
    pub(crate) proxy_refused: Counter,
    /// Idle connections closed for others at the limit.
    pub(crate) reclaimed: Counter,
    /// States that should be impossible.
    pub(crate) bugs: Counter,
    /// Responses that the gateway has begun to compress, and their bytes before and after.
    pub(crate) compressed_responses: Counter,
    pub(crate) compression_received_bytes: Counter,
    pub(crate) compression_sent_bytes: Counter,
    /// Responses for which there was no encoder.
    pub(crate) compression_refused: Counter,
    /// Streams that HTTP/2 clients have opened.
    pub(crate) http2_streams: Counter,
    /// HTTP/2 streams refused: malformed requests, and streams above the limit.
    pub(crate) http2_refused: Counter,
    /// HTTP/2 streams that ended before their responses, by the client or its error.
    pub(crate) http2_resets: Counter,
    /// HTTP/2 connections ended by an error of the client or by a limit.
    pub(crate) http2_errors: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) sent_bytes: Counter,
    /// Access log lines that the reader was too slow for.
    pub(crate) dropped_lines: Counter,
    /// Dropped audit log lines.
    pub(crate) dropped_audit_lines: Counter,
    pub(crate) spoe_connections: Counter,
    /// Messages of SPOE by their answers, by [`SpoeAnswer::ALL`].
    pub(crate) spoe_answers: [Counter; SpoeAnswer::ALL.len()],
    /// Messages of SPOE whose bodies are truncated, and those that do not say.
    pub(crate) spoe_truncated: Counter,
    pub(crate) spoe_unknown_extents: Counter,
    /// Connections of SPOE ended by an error of HAProxy or by a limit.
    pub(crate) spoe_errors: Counter,
    /// By [`LOCAL_STATUSES`].
    pub(crate) local_responses: [Counter; LOCAL_STATUSES.len()],
    /// By [`LOCAL_RESOURCES`].
    pub(crate) resource_exhaustion: [Counter; LOCAL_RESOURCES.len()],
}

impl ClientCounters {
    pub(crate) fn count_exhaustion(&self, resource: &LocalResource) {
        if let Some(at) = LOCAL_RESOURCES.iter().position(|other| other == resource) {
            self.resource_exhaustion[at].add(1);
        }
    }

    pub(crate) fn count_local_response(&self, status: u16) {
        if let Some(at) = LOCAL_STATUSES.iter().position(|local| *local == status) {
            self.local_responses[at].add(1);
        }
    }
}

/// Counters of one pool: those of a thread, or sums over threads and configurations ([`PoolTotals`]).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct PoolCounters<Backends = Box<[BackendCounters]>> {
    /// Responses by the first digit of their status, from 1xx.
    pub(crate) classes: [Counter; 5],
    /// Requests whose responses ended early, or that have none, by [`Interruption::ALL`].
    pub(crate) interruptions: [Counter; Interruption::ALL.len()],
    pub(crate) retries: Counter,
    pub(crate) queued: Counter,
    pub(crate) buffered: Counter,
    pub(crate) buffered_responses: Counter,
    /// From a request head to the end of the response.
    pub(crate) request_durations: DurationCounters,
    /// From the last choice of a backend to the head of its response.
    pub(crate) upstream_durations: DurationCounters,
    pub(crate) backends: Backends,
}

/// Sums of one pool, and of its backends by address.
pub(crate) type PoolTotals = PoolCounters<BTreeMap<String, BackendCounters>>;

/// Counters of TLS handshakes.
#[derive(Debug, Default)]
pub(crate) struct HandshakeCounters {
    pub(crate) full: Counter,
    pub(crate) resumed: Counter,
    pub(crate) failed: Counter,
}

impl HandshakeCounters {
    pub(crate) fn count(&self, is_resumed: bool) {
        if is_resumed { self.resumed.add(1) } else { self.full.add(1) }
    }

    fn add(&self, more: &Self) {
        self.full.add(more.full.get());
        self.resumed.add(more.resumed.get());
        self.failed.add(more.failed.get());
    }
}

/// Counters of one backend, of a thread or the sums of several.
#[derive(Debug, Default)]
pub(crate) struct BackendCounters {
    /// Requests sent, retries included.
    pub(crate) requests: Counter,
    pub(crate) failures: Counter,
    /// Connections that were started, and those that are closed or failed.
    pub(crate) connects: Counter,
    pub(crate) closed: Counter,
    pub(crate) handshakes: HandshakeCounters,
}

impl BackendCounters {
    fn add(&self, more: &Self) {
        // Closed before connects, so that the difference is never negative.
        self.closed.add(more.closed.get());
        self.connects.add(more.connects.get());
        self.requests.add(more.requests.get());
        self.failures.add(more.failures.get());
        self.handshakes.add(&more.handshakes);
    }
}

impl PoolCounters {
    fn new(backends: usize) -> Self {
        let backends = (0..backends).map(|_| BackendCounters::default()).collect();
        Self { backends, ..Self::default() }
    }

    #[inline]
    pub(crate) fn count_response(&self, status: u16) {
        self.classes[usize::from(status / 100).clamp(1, 5) - 1].add(1);
    }
}

impl PoolTotals {
    fn add<'a, Backends>(
        &mut self,
        more: &PoolCounters<Backends>,
        backends: impl Iterator<Item = (&'a String, &'a BackendCounters)>,
    ) {
        add_each(&self.classes, &more.classes);
        add_each(&self.interruptions, &more.interruptions);
        self.retries.add(more.retries.get());
        self.queued.add(more.queued.get());
        self.buffered.add(more.buffered.get());
        self.buffered_responses.add(more.buffered_responses.get());
        self.request_durations.add(&more.request_durations);
        self.upstream_durations.add(&more.upstream_durations);
        for (address, counters) in backends {
            self.backends.entry(address.clone()).or_default().add(counters);
        }
    }
}

/// All threads' counters of the pools of one configuration.
#[derive(Debug)]
pub(crate) struct GenerationCounters {
    /// Names of the pools and addresses of their backends.
    names: Vec<(String, Vec<String>)>,
    /// By thread, then by pool.
    threads: Box<[Box<[PoolCounters]>]>,
}

impl GenerationCounters {
    pub(crate) fn new(config: &Config) -> Self {
        let names = config.pools.iter().map(|pool| {
            let backends = pool.backends.iter().map(|backend| backend.address.to_string());
            (pool.name.clone(), backends.collect())
        });
        let of_thread =
            |_| config.pools.iter().map(|pool| PoolCounters::new(pool.backends.len())).collect();
        Self { names: names.collect(), threads: (0..config.threads.get()).map(of_thread).collect() }
    }

    #[inline]
    pub(crate) fn of(&self, thread: usize, pool: usize) -> &PoolCounters {
        &self.threads[thread][pool]
    }

    fn add_to(&self, totals: &mut BTreeMap<String, PoolTotals>) {
        for (at, (name, backends)) in self.names.iter().enumerate() {
            let pool = totals.entry(name.clone()).or_default();
            for counters in self.threads.iter().map(|pools| &pools[at]) {
                pool.add(counters, backends.iter().zip(&counters.backends));
            }
        }
    }
}

/// All counters since the start of the gateway, across configurations.
#[derive(Debug)]
pub(crate) struct Counters {
    clients: Box<[ClientCounters]>,
    pub(crate) firewall: FirewallCounters,
    /// Requests of SPOE that wait for their responses.
    pub(crate) waiting: Waiting,
    /// Clients of routes that limit them.
    pub(crate) limiter: Limiter,
    pub(crate) encoders: Encoders,
    pub(crate) passwords: Arc<CheckCounters>,
    /// Of listeners with TLS, by address and thread. Locked as `pools`.
    handshakes: Mutex<BTreeMap<(String, usize), Arc<HandshakeCounters>>>,
    /// Locked by readers and on reload, never on the data path.
    pools: Mutex<PoolHistory>,
}

#[derive(Debug, Default)]
struct PoolHistory {
    /// Configurations that a thread may still count for; the last one is current.
    live: Vec<Arc<GenerationCounters>>,
    /// Sums of the ended configurations, for pools and backends that a live one still has.
    ended: BTreeMap<String, PoolTotals>,
}

impl Counters {
    pub(crate) fn new(threads: usize) -> Self {
        let clients = (0..threads).map(|_| ClientCounters::default()).collect();
        let (handshakes, pools) = (Mutex::default(), Mutex::default());
        Self {
            clients,
            firewall: FirewallCounters::default(),
            waiting: Waiting::default(),
            limiter: Limiter::default(),
            encoders: Encoders::default(),
            passwords: Arc::default(),
            handshakes,
            pools,
        }
    }

    /// The counters of a thread's listener, which remain as long as they are in use.
    pub(crate) fn handshakes(&self, listener: &Address, thread: usize) -> Arc<HandshakeCounters> {
        let mut all = self.handshakes.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, counters| Arc::strong_count(counters) > 1);
        Arc::clone(all.entry((listener.to_string(), thread)).or_default())
    }

    #[inline]
    pub(crate) fn clients(&self, thread: usize) -> &ClientCounters {
        &self.clients[thread]
    }

    /// Adds the counters of a new current configuration.
    pub(crate) fn add_generation(&self, counters: Arc<GenerationCounters>) {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.live.push(counters);
        pools.retire();
    }

    /// Sums a counter of clients over the threads.
    pub(crate) fn client_total(&self, counter: impl Fn(&ClientCounters) -> &Counter) -> u64 {
        self.clients.iter().map(|counters| counter(counters).get()).sum()
    }

    /// Handshakes of the listeners in use, by address.
    pub(crate) fn handshake_totals(&self) -> BTreeMap<String, HandshakeCounters> {
        let mut totals: BTreeMap<String, HandshakeCounters> = BTreeMap::new();
        let handshakes = self.handshakes.lock().unwrap_or_else(PoisonError::into_inner);
        for ((listener, _), counters) in &*handshakes {
            // A removed listener no longer uses its counters.
            if Arc::strong_count(counters) > 1 {
                totals.entry(listener.clone()).or_default().add(counters);
            }
        }
        totals
    }

    /// Sums of the pools, by name. Counters that change meanwhile are each exact, but not of the same instant.
    pub(crate) fn pool_totals(&self) -> BTreeMap<String, PoolTotals> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retire();
        let mut totals: BTreeMap<String, PoolTotals> = BTreeMap::new();
        for (name, ended) in &pools.ended {
            totals.entry(name.clone()).or_default().add(ended, ended.backends.iter());
        }
        pools.live.iter().for_each(|counters| counters.add_to(&mut totals));
        totals
    }
}

impl PoolHistory {
    /// Sums up configurations that no thread counts for any more, and drops removed pools and backends.
    fn retire(&mut self) {
        let current = self.live.pop();
        // `get_mut` also synchronizes with the threads that have dropped theirs.
        for over in self.live.extract_if(.., |counters| Arc::get_mut(counters).is_some()) {
            over.add_to(&mut self.ended);
        }
        self.live.extend(current);
        let names = || self.live.iter().flat_map(|counters| &counters.names);
        self.ended.retain(|name, totals| {
            let same = || names().filter(|(pool, _)| pool == name);
            totals.backends.retain(|address, _| same().any(|(_, all)| all.contains(address)));
            same().next().is_some()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pool: &str, backend: u16) -> Config {
        let address = |port| Address::Tcp(([127, 0, 0, 1], port).into());
        let mut config = Config::new(address(1), address(backend));
        config.pools[0].name = pool.to_owned();
        config
    }

    fn generation(pool: &str, backend: u16) -> Arc<GenerationCounters> {
        Arc::new(GenerationCounters::new(&config(pool, backend)))
    }

    fn values(counters: &[Counter]) -> Vec<u64> {
        counters.iter().map(Counter::get).collect()
    }

    #[test]
    fn totals_sum_threads_and_configurations() {
        let mut config = config("p", 9001);
        config.threads = std::num::NonZeroUsize::new(2).unwrap();
        let counters = Counters::new(2);
        counters.clients(0).accepted.add(3);
        counters.clients(1).accepted.add(4);
        counters.clients(1).count_local_response(503);
        // Not counted on its own.
        counters.clients(1).count_local_response(299);

        let first = Arc::new(GenerationCounters::new(&config));
        counters.add_generation(Arc::clone(&first));
        first.of(0, 0).count_response(204);
        first.of(1, 0).count_response(200);
        first.of(1, 0).backends[0].requests.add(2);
        let second = Arc::new(GenerationCounters::new(&config));
        counters.add_generation(Arc::clone(&second));
        second.of(0, 0).count_response(599);
        second.of(0, 0).backends[0].requests.add(1);
        // A request from before the reload ends after it.
        first.of(1, 0).count_response(302);

        for _ in 0..2 {
            assert_eq!(counters.client_total(|client| &client.accepted), 7);
            let of_status =
                |at| counters.client_total(|client: &ClientCounters| &client.local_responses[at]);
            let by_status: Vec<u64> = (0..LOCAL_STATUSES.len()).map(of_status).collect();
            assert_eq!(
                by_status,
                [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]
            );
            let pool = &counters.pool_totals()["p"];
            assert_eq!(values(&pool.classes), [0, 2, 1, 0, 1]);
            assert_eq!(pool.backends["127.0.0.1:9001"].requests.get(), 3);
        }
        drop((first, second));
        assert_eq!(values(&counters.pool_totals()["p"].classes), [0, 2, 1, 0, 1]);
    }

    #[test]
    fn removed_pools_and_backends_are_counted_until_their_last_request() {
        let counters = Counters::new(1);
        let active = generation("old", 1);
        counters.add_generation(Arc::clone(&active));
        for port in 2..=1_000 {
            let current = generation("p", port);
            counters.add_generation(Arc::clone(&current));
            current.of(0, 0).count_response(200);
        }
        active.of(0, 0).count_response(200);
        assert_eq!(counters.pool_totals()["old"].classes[1].get(), 1);
        drop(active);
        let totals = counters.pool_totals();
        assert_eq!(totals.keys().collect::<Vec<_>>(), ["p"]);
        assert_eq!(totals["p"].classes[1].get(), 999);
        assert_eq!(totals["p"].backends.keys().collect::<Vec<_>>(), ["127.0.0.1:1000"]);
        let pools = counters.pools.lock().unwrap();
        assert_eq!((pools.live.len(), pools.ended.len()), (1, 1));
        assert_eq!(pools.ended["p"].backends.len(), 0);
    }
}
