//! A configuration in force: what all threads share of it, and what each has for itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tollgate_ledger::LogFile;

use crate::config::{self, AccessLog, Config, LogTarget};
use crate::counters::PoolTallies;
use crate::error::Error;
use crate::pool::{PoolHealth, PoolState};
use crate::routes::Routes;

/// A configuration, and what follows from it; the same for all threads.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) config: Config,
    pub(crate) routes: Routes,
    /// One a pool.
    pub(crate) health: Vec<Arc<PoolHealth>>,
    pub(crate) tallies: Arc<PoolTallies>,
    pub(crate) log: Option<LogFile>,
}

impl Plan {
    /// Of a configuration. What an earlier one knows of the same backends of pools of the same name is
    /// known from the beginning; others are taken for well.
    ///
    /// # Errors
    ///
    /// [`Error::AccessLog`].
    pub(crate) fn new(config: Config, before: Option<&Self>, now: Instant) -> Result<Self, Error> {
        let log_before = before.and_then(|before| before.log.as_ref());
        let log = config.access_log.as_ref().map(|log| open_log(log, log_before)).transpose()?;
        let health = config
            .pools
            .iter()
            .map(|pool| {
                let checks = pool.health.as_ref();
                let health = PoolHealth::new(pool.backends.len(), checks, pool.eject, now);
                if let Some(before) = before {
                    before.pass_on(pool, &health, now);
                }
                Arc::new(health)
            })
            .collect();
        let tallies = Arc::new(PoolTallies::new(&config));
        Ok(Self { routes: Routes::new(&config.routes), config, health, tallies, log })
    }

    fn pass_on(&self, pool: &config::Pool, health: &PoolHealth, now: Instant) {
        let Some(its) = self.config.pools.iter().position(|other| other.name == pool.name) else {
            return;
        };
        let old = &self.config.pools[its].backends;
        for (at, backend) in pool.backends.iter().enumerate() {
            if let Some(was) = old.iter().position(|other| other.address == backend.address) {
                health.take_over(at, &self.health[its], was, now);
            }
        }
    }
}

fn open_log(log: &AccessLog, before: Option<&LogFile>) -> Result<LogFile, Error> {
    LogFile::open(&log.to, log.format, "tollgate gateway", before).map_err(|source| {
        let path = match &log.to {
            LogTarget::Stdout => PathBuf::from("/dev/stdout"),
            LogTarget::File(path) => path.clone(),
        };
        Error::AccessLog { path, source }
    })
}

/// A configuration on one thread, with those who wait.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) plan: Arc<Plan>,
    pub(crate) pools: Vec<Pool>,
    /// Requests under way that began under it. A configuration that is no longer in force goes when
    /// there are none.
    pub(crate) exchanges: usize,
}

/// A pool on one thread.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) state: PoolState<Waiter>,
    /// Per backend, its connections that wait for a request; the one that waits shortest is the last.
    pub(crate) idle: Vec<Vec<usize>>,
}

/// A request that waits for a connection, by its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) client: usize,
    pub(crate) serial: u32,
}

impl Site {
    /// `seed`: what tells the draws of this thread from those of others.
    pub(crate) fn new(plan: Arc<Plan>, seed: u64) -> Self {
        let pools = plan
            .config
            .pools
            .iter()
            .zip(&plan.health)
            .map(|(pool, health)| Pool {
                state: PoolState::new(pool, Arc::clone(health), seed),
                idle: vec![Vec::new(); pool.backends.len()],
            })
            .collect();
        Self { plan, pools, exchanges: 0 }
    }
}
