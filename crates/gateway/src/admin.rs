//! Pages of the admin listener: `/metrics` and `/healthz`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use tollgate_admin::{Pages, Reply};
use tollgate_tls::ManagedCertificate;

use crate::cluster::PoolHealth;
use crate::config::{Config, Pool};
use crate::counters::Counters;
use crate::metrics::{Orders, Process, Reloads, render};

/// Data of the admin listener. Its locks are never taken on the data path.
#[derive(Debug)]
pub(crate) struct AdminState {
    counters: Arc<Counters>,
    /// Pools of the current configuration.
    pools: Mutex<Vec<(Pool, Arc<PoolHealth>)>>,
    /// Certificates of the current configuration that an authority issues.
    certificates: Mutex<Vec<Arc<ManagedCertificate>>>,
    orders: Mutex<Orders>,
    reloads: Mutex<Reloads>,
    is_draining: AtomicBool,
    started_at: SystemTime,
}

impl AdminState {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self {
            counters,
            pools: Mutex::default(),
            certificates: Mutex::default(),
            orders: Mutex::default(),
            reloads: Mutex::default(),
            is_draining: AtomicBool::new(false),
            started_at: SystemTime::now(),
        }
    }

    /// Shows the state of another configuration.
    pub(crate) fn set_config(&self, config: &Config, health: &[Arc<PoolHealth>]) {
        let pools = config.pools.iter().cloned().zip(health.iter().cloned()).collect();
        *self.pools.lock().unwrap_or_else(PoisonError::into_inner) = pools;
        let certificates =
            config.acme.iter().flat_map(|acme| &acme.certificates).map(Arc::clone).collect();
        *self.certificates.lock().unwrap_or_else(PoisonError::into_inner) = certificates;
    }

    pub(crate) fn count_order(&self, is_issued: bool) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if is_issued {
            orders.issued += 1;
        } else {
            orders.failed += 1;
        }
    }

    pub(crate) fn count_reload(&self, is_applied: bool) {
        let mut reloads = self.reloads.lock().unwrap_or_else(PoisonError::into_inner);
        if is_applied {
            reloads.applied += 1;
        } else {
            reloads.rejected += 1;
        }
    }

    pub(crate) fn set_draining(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// The pages that the admin listener serves.
    pub(crate) fn pages(self: &Arc<Self>) -> Pages {
        let state = Arc::clone(self);
        Arc::new(move |path| match path {
            "/metrics" => Some(Reply::metrics(state.metrics())),
            "/healthz" if state.is_draining.load(Ordering::Relaxed) => {
                Some(Reply::health(false, "draining\n"))
            }
            "/healthz" => Some(Reply::health(true, "ok\n")),
            _ => None,
        })
    }

    fn metrics(&self) -> String {
        let reloads = *self.reloads.lock().unwrap_or_else(PoisonError::into_inner);
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let pools = pools.iter().map(|(pool, health)| (pool, &**health));
        let certificates = self.certificates.lock().unwrap_or_else(PoisonError::into_inner);
        let orders = *self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let process = Process { reloads, orders, certificates: &certificates };
        render(&self.counters, &pools, process, Instant::now(), self.started_at)
    }
}

#[cfg(test)]
mod tests;
