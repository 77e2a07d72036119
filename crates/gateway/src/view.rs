//! What can be seen of a gateway from beside the data path.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::config::{Config, Pool};
use crate::counters::Counters;
use crate::metrics::{Reloads, render};
use crate::pool::PoolHealth;

/// What can be seen of a gateway. The locks are taken by who looks and when the configuration changes,
/// and never on the data path.
#[derive(Debug)]
pub(crate) struct View {
    counters: Arc<Counters>,
    /// Those that are in force.
    pools: Mutex<Vec<(Pool, Arc<PoolHealth>)>>,
    reloads: Mutex<Reloads>,
    is_draining: AtomicBool,
}

impl View {
    /// Of a gateway without pools so far.
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self {
            counters,
            pools: Mutex::default(),
            reloads: Mutex::default(),
            is_draining: AtomicBool::new(false),
        }
    }

    /// These pools are in force from now on.
    pub(crate) fn set_pools(&self, config: &Config, health: &[Arc<PoolHealth>]) {
        let pools = config.pools.iter().cloned().zip(health.iter().cloned()).collect();
        *self.pools.lock().unwrap_or_else(PoisonError::into_inner) = pools;
    }

    /// Another configuration came, and is in force or was refused.
    pub(crate) fn reloaded(&self, is_done: bool) {
        let mut reloads = self.reloads.lock().unwrap_or_else(PoisonError::into_inner);
        if is_done {
            reloads.done += 1;
        } else {
            reloads.refused += 1;
        }
    }

    /// It finishes what is in flight, and then ends.
    pub(crate) fn set_draining(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Whether it is about to end.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// The text of `/metrics`.
    pub(crate) fn metrics(&self, now: Instant) -> String {
        let reloads = *self.reloads.lock().unwrap_or_else(PoisonError::into_inner);
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let pools = pools.iter().map(|(pool, health)| (pool, &**health));
        render(&self.counters.totals(), &pools, reloads, now)
    }
}
