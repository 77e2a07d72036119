//! Caches and transactions that a thread keeps for the rule sets that it runs.

use std::sync::{Arc, Weak};

use tollgate_waf::{Collections, Transaction, Worker};

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

#[cfg(test)]
mod tests {
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
}
