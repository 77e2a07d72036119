//! State of a thread: caches and transactions for the rule sets that it runs, and which transactions it inspects.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Weak};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tollgate_waf::{Collections, Next, Transaction, Worker};

use crate::fault::guard;
use crate::rules::Rules;

/// Transactions kept per rule set and thread, so that their memory is reused. A new one for each request would cost some
/// microseconds; each keeps about 100 kB at most.
const SPARE_TRANSACTIONS_MAX: usize = 256;

/// Workers and memory for the rule sets that a thread runs.
#[derive(Debug, Default)]
pub struct Engines(Vec<Engine>);

/// Worker and memory for one rule set.
#[derive(Debug)]
pub struct Engine {
    /// Of a configuration in use, or of one that has ended.
    rules: Weak<Rules>,
    pub worker: Worker,
    #[expect(clippy::vec_box, reason = "inspections own their transactions as boxes")]
    spare: Vec<Box<Transaction>>,
}

impl Engines {
    pub fn of(&mut self, rules: &Arc<Rules>) -> &mut Engine {
        // While there is a weak reference, the address is that of no other rules.
        let is_same = |engine: &Engine| std::ptr::eq(engine.rules.as_ptr(), Arc::as_ptr(rules));
        let at = self.0.iter().position(is_same).unwrap_or_else(|| {
            self.drop_unused();
            let worker = rules.warm_worker().unwrap_or_default();
            self.0.push(Engine { rules: Arc::downgrade(rules), worker, spare: Vec::new() });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// Drops the engines of configurations that have ended, and whose transactions have.
    pub fn drop_unused(&mut self) {
        self.0.retain(|engine| engine.rules.strong_count() > 0);
    }
}

impl Engine {
    /// An empty transaction with these rules.
    pub fn transaction(
        &mut self,
        rules: &Arc<Rules>,
        collections: &Arc<Collections>,
    ) -> Box<Transaction> {
        self.spare.pop().unwrap_or_else(|| {
            let mut transaction = Transaction::new(Arc::clone(&rules.set));
            transaction.collections(collections);
            Box::new(transaction)
        })
    }

    /// Keeps the memory of a transaction that has ended.
    pub fn recycle(&mut self, mut transaction: Box<Transaction>) {
        if self.spare.len() < SPARE_TRANSACTIONS_MAX {
            transaction.reset();
            self.spare.push(transaction);
        }
    }
}

/// Runs the jobs of a helper thread until their sender is gone or `finish` returns false. `run` returns the next step of a job;
/// `finish` gets `None` after a panic.
pub fn serve<J>(
    jobs: impl IntoIterator<Item = J>,
    mut run: impl FnMut(&mut Engines, &mut J) -> Next,
    mut finish: impl FnMut(J, Option<Next>) -> bool,
) {
    let mut engines = Engines::default();
    for mut job in jobs {
        let next = guard(|| run(&mut engines, &mut job));
        if next.is_none() {
            // The panic may have left anything there.
            engines = Engines::default();
        }
        if !finish(job, next) {
            return;
        }
    }
}

/// Draws the transactions of a thread that are inspected, and numbers them.
#[derive(Debug)]
pub struct Sampler {
    random: ChaCha8Rng,
    /// Distinguishes the transactions of this thread from those of other threads and processes.
    series: u32,
    last_number: u32,
}

impl Default for Sampler {
    fn default() -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(RandomState::new().build_hasher().finish());
        let series = random.random();
        Self { random, series, last_number: 0 }
    }
}

impl Sampler {
    /// True for `percent` of the calls.
    pub fn is_drawn(&mut self, percent: u8) -> bool {
        percent >= 100 || self.random.random_range(0..100) < percent
    }

    /// Series and number of the next transaction.
    pub fn number(&mut self) -> (u32, u32) {
        self.last_number = self.last_number.wrapping_add(1);
        (self.series, self.last_number)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tollgate_waf::RuleSet;

    use super::*;

    fn rules() -> Arc<Rules> {
        let text = "SecRule ARGS \"@contains a\" \"id:1,phase:1,deny\"";
        Arc::new(Rules::new(RuleSet::builder().text("t.conf", text).build().unwrap()))
    }

    #[test]
    fn engines_of_ended_configurations_are_dropped() {
        let (old, new) = (rules(), rules());
        let set = Arc::downgrade(&old.set);
        let mut threads = [Engines::default(), Engines::default()];
        for engines in &mut threads {
            let engine = engines.of(&old);
            let transaction = engine.transaction(&old, &Arc::default());
            engine.recycle(transaction);
        }
        for engines in &mut threads {
            engines.of(&new);
            assert_eq!(engines.0.len(), 2, "a configuration in use keeps its engine");
        }
        drop(old);
        let [with_traffic, without] = &mut threads;
        with_traffic.of(&rules());
        without.drop_unused();
        assert_eq!(set.strong_count(), 0);
    }

    #[test]
    fn sample_has_its_share_and_numbers_differ() {
        let mut samplers = [Sampler::default(), Sampler::default()];
        let count = (0..10_000).filter(|_| samplers[0].is_drawn(10)).count();
        // Ten standard deviations.
        assert!((700..=1300).contains(&count), "{count}");
        assert!((0..100).all(|_| samplers[0].is_drawn(100) && !samplers[0].is_drawn(0)));
        let numbers: HashSet<_> = (0..4).map(|round| samplers[round % 2].number()).collect();
        assert_eq!(numbers.len(), 4);
    }

    #[test]
    fn helper_goes_on_after_a_panic_until_nobody_takes_its_results() {
        let run = |_: &mut Engines, job: &mut u32| {
            assert_ne!(*job, 1, "planted");
            Next::Hold
        };
        let mut finished = Vec::new();
        serve(0..9, run, |job, next| {
            finished.push((job, next));
            job < 2
        });
        assert_eq!(finished, [(0, Some(Next::Hold)), (1, None), (2, Some(Next::Hold))]);
    }
}
