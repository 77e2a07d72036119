//! State of a thread for rule sets that share their compiled rules: regex caches, and transactions to use again.

use std::cell::RefCell;
use std::sync::Arc;

use tollgate_waf::{RuleSet, Transaction, Worker};

/// Compiled rules for which a thread keeps its regex caches, and transactions that it keeps for each.
const WORKERS_MAX: usize = 32;
const SPARE_TRANSACTIONS_MAX: usize = 64;

/// Caches of a thread for some compiled rules, and transactions to use again.
#[derive(Debug)]
pub(crate) struct Bound {
    /// One of the sets that share them.
    rules: Arc<RuleSet>,
    pub(crate) worker: Worker,
    spare: Vec<Transaction>,
}

thread_local! {
    /// The most recently used last.
    static WORKERS: RefCell<Vec<Bound>> = const { RefCell::new(Vec::new()) };
}

/// Runs a call with this thread's caches for a rule set, which are made at the first one.
pub(crate) fn with_bound<R>(rules: &Arc<RuleSet>, call: impl FnOnce(&mut Bound) -> R) -> R {
    WORKERS.with_borrow_mut(|workers| {
        match workers.iter().position(|bound| bound.rules.shares_rules_with(rules)) {
            Some(position) if position + 1 < workers.len() => {
                let bound = workers.remove(position);
                workers.push(bound);
            }
            Some(_) => {}
            None => {
                if workers.len() == WORKERS_MAX {
                    workers.remove(0);
                }
                let mut worker = Worker::new();
                let transaction = worker.warm_up(rules);
                workers.push(Bound { rules: Arc::clone(rules), worker, spare: vec![transaction] });
            }
        }
        let last = workers.len() - 1;
        call(&mut workers[last])
    })
}

/// Prepares this thread, and the processes that it forks, for a rule set.
pub(crate) fn warm_up(rules: &Arc<RuleSet>) {
    with_bound(rules, |_| ());
}

/// Drops everything that this thread keeps, of which a panic may have left anything.
pub(crate) fn discard() {
    WORKERS.with_borrow_mut(Vec::clear);
}

impl Bound {
    /// A transaction that was used before, if there is one, perhaps with another of the sets.
    pub(crate) fn spare(&mut self) -> Option<Transaction> {
        self.spare.pop()
    }

    /// Keeps an empty transaction for another use.
    pub(crate) fn keep(&mut self, transaction: Transaction) {
        if self.spare.len() < SPARE_TRANSACTIONS_MAX {
            self.spare.push(transaction);
        }
    }
}
