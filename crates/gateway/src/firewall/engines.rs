//! Workers of one thread, and memory, for the rule sets that it runs.

use std::sync::{Arc, Weak};

use tollgate_firewall::Rules;
use tollgate_waf::{Transaction, Worker};

use super::audit::AuditWriter;
use super::inspection::Inspection;
use super::route::Firewall;
use super::verdict::Outcome;

/// Transactions kept per rule set and thread, so that their memory is reused. A new one for each request would cost some
/// microseconds; each keeps about 100 kB at most.
const SPARE_TRANSACTIONS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Engines(Vec<Engine>);

#[derive(Debug)]
struct Engine {
    /// Of a configuration in use, or of one that has ended.
    rules: Weak<Rules>,
    worker: Worker,
    #[expect(clippy::vec_box, reason = "inspections own their transactions as boxes")]
    spare: Vec<Box<Transaction>>,
}

impl Engines {
    fn of(&mut self, rules: &Arc<Rules>) -> &mut Engine {
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

    /// The worker for the rules of a firewall.
    pub(super) fn worker(&mut self, firewall: &Firewall) -> &mut Worker {
        &mut self.of(&firewall.waf.rules).worker
    }

    /// An empty transaction, with the worker for it.
    pub(super) fn begin(&mut self, firewall: &Firewall) -> (Box<Transaction>, &mut Worker) {
        let engine = self.of(&firewall.waf.rules);
        let transaction = engine.spare.pop().unwrap_or_else(|| {
            let mut transaction = Transaction::new(Arc::clone(&firewall.waf.rules.set));
            transaction.collections(&firewall.collections);
            Box::new(transaction)
        });
        (transaction, &mut engine.worker)
    }

    /// Runs the rules of the log, counts and logs.
    pub(super) fn end(
        &mut self,
        mut inspection: Inspection,
        outcome: &Outcome,
        audit: Option<&mut AuditWriter>,
        thread: usize,
    ) {
        let engine = self.of(&inspection.firewall.waf.rules);
        if audit.is_some() || inspection.rules().set.keeps_state_when_logging() {
            inspection.run_logging(&mut engine.worker);
        }
        inspection.count(thread);
        if let Some(audit) = audit {
            audit.add(&inspection, outcome);
        }
        if engine.spare.len() < SPARE_TRANSACTIONS {
            let mut transaction = inspection.session.into_transaction();
            transaction.reset();
            engine.spare.push(transaction);
        }
    }

    /// Drops the engines of configurations that have ended, and whose transactions have.
    pub(super) fn drop_unused(&mut self) {
        self.0.retain(|engine| engine.rules.strong_count() > 0);
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
            engine.spare.push(Box::new(Transaction::new(Arc::clone(&old.set))));
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
