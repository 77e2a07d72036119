//! Rule sets with workers that are ready to run them.

use std::sync::{Arc, Mutex, PoisonError};

use tollgate_waf::{RuleSet, Worker};

/// A rule set, shared by all routes that have the same.
#[derive(Debug)]
pub struct Rules {
    pub set: Arc<RuleSet>,
    /// Workers whose caches are filled.
    warm: Mutex<Vec<Worker>>,
}

impl PartialEq for Rules {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.set, &other.set)
    }
}

impl Eq for Rules {}

impl Rules {
    pub fn new(set: RuleSet) -> Self {
        Self { set: Arc::new(set), warm: Mutex::default() }
    }

    /// Compiles the DFAs of the rules for responses and of common rules for requests, and fills the caches of a worker for each thread. That
    /// takes too long for the data path.
    pub fn warm_up(&self, threads: usize) {
        let mut warm = self.warm.lock().unwrap_or_else(PoisonError::into_inner);
        while warm.len() < threads {
            let mut worker = Worker::new();
            worker.warm_up(&self.set);
            warm.push(worker);
        }
    }

    /// Takes a worker whose caches are filled.
    pub fn warm_worker(&self) -> Option<Worker> {
        self.warm.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}
