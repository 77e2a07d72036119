//! What a gateway has done: counted by each thread for itself, put together when asked.

mod history;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_ledger::Count;

use crate::config::Config;
use crate::shortage::Shortage;
use history::History;
pub(crate) use history::{BackendTotals, PoolTotals};

/// The statuses of the gateway's own answers.
pub(crate) const OWN_STATUSES: [u16; 12] =
    [200, 400, 404, 408, 413, 414, 431, 501, 502, 503, 504, 505];

/// What one thread has counted of its clients. On cache lines of its own (two, since processors fetch
/// pairs), so that no thread slows another down by counting.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ClientTally {
    /// Connections that were accepted.
    pub(crate) accepted: Count,
    /// Those of them that are closed.
    pub(crate) closed: Count,
    /// Connections that were closed at once, for there are enough of that client.
    pub(crate) refused: Count,
    /// Bytes that came.
    pub(crate) received_bytes: Count,
    /// Bytes that were sent.
    pub(crate) sent_bytes: Count,
    /// Lines of the access log that were left out, as nobody took them.
    pub(crate) lost_lines: Count,
    /// Requests that the gateway answered itself, by [`OWN_STATUSES`].
    own_answers: [Count; OWN_STATUSES.len()],
    /// Connections to backends that could not be begun, by [`Shortage::ALL`].
    shortages: [Count; Shortage::ALL.len()],
}

impl ClientTally {
    /// Counts a connection that could not be begun.
    pub(crate) fn ran_out(&self, shortage: Shortage) {
        if let Some(at) = Shortage::ALL.iter().position(|other| *other == shortage) {
            self.shortages[at].add(1);
        }
    }

    /// Counts an answer of the gateway's own.
    pub(crate) fn answered_itself(&self, status: u16) {
        if let Some(at) = OWN_STATUSES.iter().position(|own| *own == status) {
            self.own_answers[at].add(1);
        }
    }
}

/// What one thread has counted of one pool.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct PoolTally {
    /// Answers by the first digit of their status, from 1xx on.
    classes: [Count; 5],
    /// Tries on another backend.
    pub(crate) retries: Count,
    /// Requests that waited for a backend that had no room.
    pub(crate) queued: Count,
    /// One a backend.
    pub(crate) backends: Box<[BackendTally]>,
}

/// What one thread has counted of one backend.
#[derive(Debug, Default)]
pub(crate) struct BackendTally {
    /// Requests that were sent to it, tries included.
    pub(crate) requests: Count,
    /// Requests that it failed.
    pub(crate) failures: Count,
    /// Connections that were begun.
    pub(crate) connects: Count,
    /// Those of them that are closed, or never stood.
    pub(crate) closed: Count,
}

impl PoolTally {
    fn new(backends: usize) -> Self {
        Self {
            classes: Default::default(),
            retries: Count::default(),
            queued: Count::default(),
            backends: (0..backends).map(|_| BackendTally::default()).collect(),
        }
    }

    /// Counts an answer that came from a backend.
    #[inline]
    pub(crate) fn answered(&self, status: u16) {
        self.classes[usize::from(status / 100).clamp(1, 5) - 1].add(1);
    }
}

/// What all threads have counted of the pools of one configuration.
#[derive(Debug)]
pub(crate) struct PoolTallies {
    /// The pools' names, and the addresses of their backends.
    names: Vec<(String, Vec<String>)>,
    /// Thread by thread, pool by pool.
    threads: Box<[Box<[PoolTally]>]>,
}

impl PoolTallies {
    /// All zero.
    #[must_use]
    pub(crate) fn new(config: &Config) -> Self {
        let names = config.pools.iter().map(|pool| {
            let backends = pool.backends.iter().map(|backend| backend.address.to_string());
            (pool.name.clone(), backends.collect())
        });
        let of_thread =
            |_| config.pools.iter().map(|pool| PoolTally::new(pool.backends.len())).collect();
        Self { names: names.collect(), threads: (0..config.threads.get()).map(of_thread).collect() }
    }

    /// What this thread counts of this pool.
    #[inline]
    #[must_use]
    pub(crate) fn of(&self, thread: usize, pool: usize) -> &PoolTally {
        &self.threads[thread][pool]
    }
}

/// What a gateway has done since its start, under all its configurations.
#[derive(Debug)]
pub(crate) struct Counters {
    clients: Box<[ClientTally]>,
    /// Taken only by who asks, and when the configuration changes.
    pools: Mutex<History>,
}

impl Counters {
    /// Of so many threads, all zero.
    #[must_use]
    pub(crate) fn new(threads: usize) -> Self {
        let clients = (0..threads).map(|_| ClientTally::default()).collect();
        Self { clients, pools: Mutex::default() }
    }

    /// What this thread counts of its clients.
    #[inline]
    #[must_use]
    pub(crate) fn clients(&self, thread: usize) -> &ClientTally {
        &self.clients[thread]
    }

    /// Counts for a configuration from now on, beside the earlier ones.
    pub(crate) fn begin(&self, tallies: Arc<PoolTallies>) {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner).begin(tallies);
    }

    /// All that was counted. The numbers of threads that go on meanwhile are each right, but not all of
    /// the same moment.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for tally in &self.clients {
            // What is closed is read before what is accepted, which is never less.
            totals.closed += tally.closed.get();
            totals.accepted += tally.accepted.get();
            totals.refused += tally.refused.get();
            totals.received_bytes += tally.received_bytes.get();
            totals.sent_bytes += tally.sent_bytes.get();
            totals.lost_lines += tally.lost_lines.get();
            for (sum, count) in totals.own_answers.iter_mut().zip(&tally.own_answers) {
                *sum += count.get();
            }
            for (sum, count) in totals.shortages.iter_mut().zip(&tally.shortages) {
                *sum += count.get();
            }
        }
        totals.pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner).totals();
        totals
    }
}

/// All that was counted.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) accepted: u64,
    pub(crate) closed: u64,
    pub(crate) refused: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) lost_lines: u64,
    pub(crate) own_answers: [u64; OWN_STATUSES.len()],
    pub(crate) shortages: [u64; Shortage::ALL.len()],
    /// By name.
    pub(crate) pools: BTreeMap<String, PoolTotals>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Address;

    fn config(backend: u16) -> Config {
        let address = |port| Address::Tcp(([127, 0, 0, 1], port).into());
        let two = std::num::NonZeroUsize::new(2).unwrap();
        Config { threads: two, ..Config::new(address(1), address(backend)) }
    }

    #[test]
    fn threads_and_configurations_are_put_together_and_nothing_is_lost() {
        let counters = Counters::new(2);
        counters.clients(0).accepted.add(3);
        counters.clients(1).accepted.add(4);
        counters.clients(1).answered_itself(503);
        // There is no such answer of its own.
        counters.clients(1).answered_itself(204);

        let first = Arc::new(PoolTallies::new(&config(9001)));
        counters.begin(Arc::clone(&first));
        first.of(0, 0).answered(204);
        first.of(1, 0).answered(200);
        first.of(1, 0).backends[0].requests.add(2);
        let second = Arc::new(PoolTallies::new(&config(9002)));
        counters.begin(Arc::clone(&second));
        second.of(0, 0).answered(599);
        second.of(0, 0).backends[0].requests.add(1);
        // A request of before the change ends after it.
        first.of(1, 0).answered(302);

        for _ in 0..2 {
            let totals = counters.totals();
            assert_eq!(totals.accepted, 7);
            assert_eq!(totals.own_answers, [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
            let pool = &totals.pools["default"];
            assert_eq!(pool.classes, [0, 2, 1, 0, 1]);
            assert_eq!(pool.backends["127.0.0.1:9001"].requests, 2);
            assert_eq!(pool.backends["127.0.0.1:9002"].requests, 1);
        }
        drop(first);
        drop(second);
        assert_eq!(counters.totals().pools["default"].classes, [0, 2, 1, 0, 1]);
    }
}
