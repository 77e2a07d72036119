//! Counters: each thread counts on its own; readers add them up.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_accesslog::Counter;
use tollgate_admin::DURATION_BOUNDS_US;

use crate::config::{Address, Config};
use crate::firewall::FirewallCounters;
use crate::transport::{LOCAL_RESOURCES, LocalResource};

/// Statuses of local responses.
pub(crate) const LOCAL_STATUSES: [u16; 16] =
    [200, 400, 403, 404, 405, 408, 413, 414, 415, 417, 431, 501, 502, 503, 504, 505];

/// One thread's histogram of durations.
#[derive(Debug, Default)]
pub(crate) struct DurationCounters {
    buckets: [Counter; DURATION_BOUNDS_US.len() + 1],
    sum_us: Counter,
}

impl DurationCounters {
    #[inline]
    pub(crate) fn add_us(&self, us: u64) {
        // Most are in the first buckets.
        let bucket = DURATION_BOUNDS_US.iter().position(|bound| us <= *bound);
        self.buckets[bucket.unwrap_or(DURATION_BOUNDS_US.len())].add(1);
        self.sum_us.add(us);
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
    /// Idle connections closed for others at the limit.
    pub(crate) reclaimed: Counter,
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
    /// By [`LOCAL_STATUSES`].
    local_responses: [Counter; LOCAL_STATUSES.len()],
    /// By [`LOCAL_RESOURCES`].
    resource_exhaustion: [Counter; LOCAL_RESOURCES.len()],
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

/// One thread's counters of one pool.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct PoolCounters {
    /// Responses by the first digit of their status, from 1xx.
    classes: [Counter; 5],
    pub(crate) retries: Counter,
    pub(crate) queued: Counter,
    /// From a request head to the end of the response.
    pub(crate) request_durations: DurationCounters,
    /// From the last choice of a backend to the head of its response.
    pub(crate) upstream_durations: DurationCounters,
    pub(crate) backends: Box<[BackendCounters]>,
}

/// One thread's counters of TLS handshakes.
#[derive(Debug, Default)]
pub(crate) struct HandshakeCounters {
    full: Counter,
    resumed: Counter,
    pub(crate) failed: Counter,
}

impl HandshakeCounters {
    pub(crate) fn count(&self, is_resumed: bool) {
        if is_resumed { self.resumed.add(1) } else { self.full.add(1) }
    }
}

/// One thread's counters of one backend.
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
                for (sum, count) in pool.classes.iter_mut().zip(&counters.classes) {
                    *sum += count.get();
                }
                pool.retries += counters.retries.get();
                pool.queued += counters.queued.get();
                pool.request_durations += &counters.request_durations;
                pool.upstream_durations += &counters.upstream_durations;
                for (address, counters) in backends.iter().zip(&counters.backends) {
                    *pool.backends.entry(address.clone()).or_default() += counters;
                }
            }
        }
    }
}

/// All counters since the start of the gateway, across configurations.
#[derive(Debug)]
pub(crate) struct Counters {
    clients: Box<[ClientCounters]>,
    pub(crate) firewall: FirewallCounters,
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
        Self { clients, firewall: FirewallCounters::default(), handshakes, pools }
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

    /// The sums over threads. Counters that change meanwhile are each exact, but not of the same instant.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for counters in &self.clients {
            // Closed before accepted, so that the difference is never negative.
            totals.closed += counters.closed.get();
            totals.accepted += counters.accepted.get();
            totals.refused += counters.refused.get();
            totals.reclaimed += counters.reclaimed.get();
            totals.http2_streams += counters.http2_streams.get();
            totals.http2_refused += counters.http2_refused.get();
            totals.http2_resets += counters.http2_resets.get();
            totals.http2_errors += counters.http2_errors.get();
            totals.received_bytes += counters.received_bytes.get();
            totals.sent_bytes += counters.sent_bytes.get();
            totals.dropped_lines += counters.dropped_lines.get();
            totals.dropped_audit_lines += counters.dropped_audit_lines.get();
            for (sum, count) in totals.local_responses.iter_mut().zip(&counters.local_responses) {
                *sum += count.get();
            }
            let exhaustion = totals.resource_exhaustion.iter_mut();
            for (sum, count) in exhaustion.zip(&counters.resource_exhaustion) {
                *sum += count.get();
            }
        }
        let handshakes = self.handshakes.lock().unwrap_or_else(PoisonError::into_inner);
        for ((listener, _), counters) in &*handshakes {
            // A removed listener no longer uses its counters.
            if Arc::strong_count(counters) > 1 {
                *totals.handshakes.entry(listener.clone()).or_default() += &**counters;
            }
        }
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retire();
        totals.pools = pools.ended.clone();
        pools.live.iter().for_each(|counters| counters.add_to(&mut totals.pools));
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

#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) accepted: u64,
    pub(crate) closed: u64,
    pub(crate) refused: u64,
    pub(crate) reclaimed: u64,
    pub(crate) http2_streams: u64,
    pub(crate) http2_refused: u64,
    pub(crate) http2_resets: u64,
    pub(crate) http2_errors: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) dropped_lines: u64,
    pub(crate) dropped_audit_lines: u64,
    pub(crate) local_responses: [u64; LOCAL_STATUSES.len()],
    pub(crate) resource_exhaustion: [u64; LOCAL_RESOURCES.len()],
    /// By address of the listener.
    pub(crate) handshakes: BTreeMap<String, HandshakeTotals>,
    /// By name.
    pub(crate) pools: BTreeMap<String, PoolTotals>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PoolTotals {
    pub(crate) classes: [u64; 5],
    pub(crate) retries: u64,
    pub(crate) queued: u64,
    pub(crate) request_durations: DurationTotals,
    pub(crate) upstream_durations: DurationTotals,
    /// By address.
    pub(crate) backends: BTreeMap<String, BackendTotals>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct DurationTotals {
    /// By [`DURATION_BOUNDS_US`].
    pub(crate) buckets: [u64; DURATION_BOUNDS_US.len() + 1],
    pub(crate) sum_us: u64,
}

impl AddAssign<&DurationCounters> for DurationTotals {
    fn add_assign(&mut self, counters: &DurationCounters) {
        for (sum, count) in self.buckets.iter_mut().zip(&counters.buckets) {
            *sum += count.get();
        }
        self.sum_us += counters.sum_us.get();
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HandshakeTotals {
    pub(crate) full: u64,
    pub(crate) resumed: u64,
    pub(crate) failed: u64,
}

impl AddAssign<&HandshakeCounters> for HandshakeTotals {
    fn add_assign(&mut self, counters: &HandshakeCounters) {
        self.full += counters.full.get();
        self.resumed += counters.resumed.get();
        self.failed += counters.failed.get();
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct BackendTotals {
    pub(crate) requests: u64,
    pub(crate) failures: u64,
    pub(crate) connects: u64,
    pub(crate) closed: u64,
    pub(crate) handshakes: HandshakeTotals,
}

impl AddAssign<&BackendCounters> for BackendTotals {
    fn add_assign(&mut self, counters: &BackendCounters) {
        // Closed before connects, so that the difference is never negative.
        self.closed += counters.closed.get();
        self.connects += counters.connects.get();
        self.requests += counters.requests.get();
        self.failures += counters.failures.get();
        self.handshakes += &counters.handshakes;
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

    #[test]
    fn totals_sum_threads_and_configurations() {
        let mut config = config("p", 9001);
        config.threads = std::num::NonZeroUsize::new(2).unwrap();
        let counters = Counters::new(2);
        counters.clients(0).accepted.add(3);
        counters.clients(1).accepted.add(4);
        counters.clients(1).count_local_response(503);
        // Not a status of local responses.
        counters.clients(1).count_local_response(204);

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
            let totals = counters.totals();
            assert_eq!(totals.accepted, 7);
            assert_eq!(totals.local_responses, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
            let pool = &totals.pools["p"];
            assert_eq!(pool.classes, [0, 2, 1, 0, 1]);
            assert_eq!(pool.backends["127.0.0.1:9001"].requests, 3);
        }
        drop((first, second));
        assert_eq!(counters.totals().pools["p"].classes, [0, 2, 1, 0, 1]);
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
        assert_eq!(counters.totals().pools["old"].classes[1], 1);
        drop(active);
        let totals = counters.totals();
        assert_eq!(totals.pools.keys().collect::<Vec<_>>(), ["p"]);
        assert_eq!(totals.pools["p"].classes[1], 999);
        assert_eq!(totals.pools["p"].backends.keys().collect::<Vec<_>>(), ["127.0.0.1:1000"]);
        let pools = counters.pools.lock().unwrap();
        assert_eq!((pools.live.len(), pools.ended.len()), (1, 1));
        assert_eq!(pools.ended["p"].backends.len(), 0);
    }
}
