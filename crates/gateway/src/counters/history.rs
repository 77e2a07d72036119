//! What was counted of pools under all configurations that there have been, in bounded memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;
use std::sync::Arc;

use super::{BackendTally, PoolTallies};

/// How many pools that no configuration has any more are told apart, and how many such backends of a pool.
pub(super) const GONE_MAX: usize = 256;

/// What those are called together that left before them.
pub(super) const GONE: &str = "(gone)";

/// The pools' tallies. Those of an earlier configuration are kept as long as a thread may count there, which
/// is as long as a request is under way that began under it.
#[derive(Debug, Default)]
pub(super) struct History {
    live: Vec<Arc<PoolTallies>>,
    /// What was counted where nobody counts any more, by the pool's name.
    before: BTreeMap<String, PoolTotals>,
    /// How many configurations have ended.
    ended: u64,
}

/// All that was counted of pools of one name.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolTotals {
    pub(crate) classes: [u64; 5],
    pub(crate) retries: u64,
    pub(crate) queued: u64,
    /// By address.
    pub(crate) backends: BTreeMap<String, BackendTotals>,
    /// The last of those configurations with it that have ended.
    ended: u64,
}

/// All that was counted of one backend.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackendTotals {
    pub(crate) requests: u64,
    pub(crate) failures: u64,
    pub(crate) connects: u64,
    pub(crate) closed: u64,
    /// The last of those configurations with it that have ended.
    ended: u64,
}

impl History {
    /// Counts for one more configuration, which is in force from now on.
    pub(super) fn begin(&mut self, tallies: Arc<PoolTallies>) {
        self.live.push(tallies);
        self.end_what_is_over();
    }

    /// By the pool's name.
    pub(super) fn totals(&mut self) -> BTreeMap<String, PoolTotals> {
        self.end_what_is_over();
        let mut totals = self.before.clone();
        self.live.iter().for_each(|tallies| tallies.add_to(&mut totals, self.ended));
        totals
    }

    /// Keeps no more than the sums of what nobody adds to any more.
    fn end_what_is_over(&mut self) {
        // The last one is in force, whoever holds it.
        let newest = self.live.pop();
        // Who alone holds it also sees all that was counted by those who have let it go.
        for over in self.live.extract_if(.., |tallies| Arc::get_mut(tallies).is_some()) {
            self.ended += 1;
            over.add_to(&mut self.before, self.ended);
        }
        self.live.extend(newest);
        self.put_together();
    }

    /// Of what is in no configuration any more, tells the last ones apart and not all: names come and go for
    /// as long as the gateway runs.
    fn put_together(&mut self) {
        let named = || self.live.iter().flat_map(|tallies| &tallies.names);
        if self.before.len() > GONE_MAX {
            let pools = named().map(|(pool, _)| &**pool).collect();
            for over in take_oldest(&mut self.before, &pools, |totals| totals.ended) {
                self.before.entry(GONE.to_owned()).or_default().take_in(&over);
            }
        }
        for (name, pool) in &mut self.before {
            if pool.backends.len() <= GONE_MAX {
                continue;
            }
            let backends = named().filter(|(pool, _)| pool == name);
            let backends = backends.flat_map(|(_, backends)| backends).map(|at| &**at).collect();
            for over in take_oldest(&mut pool.backends, &backends, |totals| totals.ended) {
                *pool.backends.entry(GONE.to_owned()).or_default() += &over;
            }
        }
    }
}

/// Takes those out that ended longest ago, of those whose name is not `in_force`, as far as there are more of
/// them than are told apart.
fn take_oldest<Totals>(
    all: &mut BTreeMap<String, Totals>,
    in_force: &BTreeSet<&str>,
    ended: impl Fn(&Totals) -> u64,
) -> Vec<Totals> {
    let is_gone = |name: &str| name != GONE && !in_force.contains(name);
    let mut gone: Vec<(u64, String)> = all
        .iter()
        .filter(|(name, _)| is_gone(name))
        .map(|(name, totals)| (ended(totals), name.clone()))
        .collect();
    gone.sort_unstable();
    gone.truncate(gone.len().saturating_sub(GONE_MAX));
    gone.iter().filter_map(|(_, name)| all.remove(name)).collect()
}

impl PoolTallies {
    fn add_to(&self, totals: &mut BTreeMap<String, PoolTotals>, ended: u64) {
        for (at, (name, backends)) in self.names.iter().enumerate() {
            let pool = totals.entry(name.clone()).or_default();
            pool.ended = ended;
            for tally in self.threads.iter().map(|pools| &pools[at]) {
                for (sum, count) in pool.classes.iter_mut().zip(&tally.classes) {
                    *sum += count.get();
                }
                pool.retries += tally.retries.get();
                pool.queued += tally.queued.get();
                for (address, tally) in backends.iter().zip(&tally.backends) {
                    let backend = pool.backends.entry(address.clone()).or_default();
                    *backend += tally;
                    backend.ended = ended;
                }
            }
        }
    }
}

impl PoolTotals {
    /// Adds those of another pool, whose backends are told apart no more.
    fn take_in(&mut self, other: &Self) {
        for (sum, count) in self.classes.iter_mut().zip(other.classes) {
            *sum += count;
        }
        self.retries += other.retries;
        self.queued += other.queued;
        let backends = self.backends.entry(GONE.to_owned()).or_default();
        other.backends.values().for_each(|backend| *backends += backend);
    }
}

impl AddAssign<&BackendTally> for BackendTotals {
    fn add_assign(&mut self, tally: &BackendTally) {
        // What is closed is read before what was begun, which is never less.
        self.closed += tally.closed.get();
        self.connects += tally.connects.get();
        self.requests += tally.requests.get();
        self.failures += tally.failures.get();
    }
}

impl AddAssign<&Self> for BackendTotals {
    fn add_assign(&mut self, other: &Self) {
        self.closed += other.closed;
        self.connects += other.connects;
        self.requests += other.requests;
        self.failures += other.failures;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Address, Config};

    const RELOADS: u16 = 10_000;

    fn config(pool: String, backend: u16) -> Config {
        let address = |port| Address::Tcp(([127, 0, 0, 1], port).into());
        let mut config = Config::new(address(1), address(backend));
        config.pools[0].name = pool;
        config
    }

    /// All answers of a class, and all requests to backends.
    fn sums(totals: &BTreeMap<String, PoolTotals>) -> (u64, u64) {
        let answers = totals.values().map(|pool| pool.classes[1]).sum();
        let backends = totals.values().flat_map(|pool| pool.backends.values());
        (answers, backends.map(|backend| backend.requests).sum())
    }

    #[test]
    fn ten_thousand_configurations_nobody_asked_about_take_no_more_memory_than_one() {
        let mut history = History::default();
        for _ in 0..RELOADS {
            let tallies = Arc::new(PoolTallies::new(&config("p".to_owned(), 9)));
            history.begin(Arc::clone(&tallies));
            tallies.of(0, 0).answered(200);
        }
        assert_eq!((history.live.len(), history.before.len()), (1, 1));
        assert_eq!(sums(&history.totals()), (u64::from(RELOADS), 0));
    }

    #[test]
    fn of_ten_thousand_backends_the_last_are_told_apart_and_none_is_lost() {
        let mut history = History::default();
        let mut last = (0, 0);
        for port in 1..=RELOADS {
            let tallies = Arc::new(PoolTallies::new(&config("p".to_owned(), port)));
            history.begin(Arc::clone(&tallies));
            tallies.of(0, 0).answered(200);
            tallies.of(0, 0).backends[0].requests.add(2);
            if port.is_multiple_of(100) {
                let now = sums(&history.totals());
                assert!(now >= last, "{now:?} after {last:?}");
                last = now;
            }
        }
        let totals = history.totals();
        let backends = &totals["p"].backends;
        assert_eq!(backends.len(), GONE_MAX + 2);
        assert_eq!(backends["127.0.0.1:10000"].requests, 2);
        assert_eq!(backends["127.0.0.1:9990"].requests, 2);
        assert!(!backends.contains_key("127.0.0.1:1"));
        assert_eq!(sums(&totals), (u64::from(RELOADS), 2 * u64::from(RELOADS)));
    }

    #[test]
    fn of_ten_thousand_pools_the_last_are_told_apart_and_none_is_lost() {
        let mut history = History::default();
        let under_way = Arc::new(PoolTallies::new(&config("p1".to_owned(), 1)));
        history.begin(Arc::clone(&under_way));
        for number in 2..=RELOADS {
            let tallies = Arc::new(PoolTallies::new(&config(format!("p{number}"), number)));
            history.begin(Arc::clone(&tallies));
            tallies.of(0, 0).answered(200);
            tallies.of(0, 0).backends[0].requests.add(2);
        }
        // A request that began under the first configuration is answered after all of them.
        under_way.of(0, 0).answered(200);
        under_way.of(0, 0).backends[0].requests.add(2);
        let totals = history.totals();
        // Those in force, the last that are gone, and the rest as one.
        assert_eq!(totals.len(), GONE_MAX + 3);
        assert_eq!(totals["p1"].classes[1], 1);
        assert_eq!(totals[GONE].backends.len(), 1);
        assert_eq!(sums(&totals), (u64::from(RELOADS), 2 * u64::from(RELOADS)));
    }
}
