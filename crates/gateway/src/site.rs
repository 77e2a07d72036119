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
    /// known from the beginning; others are taken for well. A pool of the same backends goes on with what is
    /// known, so that requests which are still under way count for it as well.
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
                if let Some(same) = before.and_then(|before| before.health_of_same(pool)) {
                    return Arc::clone(same);
                }
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

    /// What is known of a pool of this name, if it has the same backends and loses them in the same way.
    fn health_of_same(&self, pool: &config::Pool) -> Option<&Arc<PoolHealth>> {
        let its = self.config.pools.iter().position(|other| other.name == pool.name)?;
        let other = &self.config.pools[its];
        let addresses = |pool: &config::Pool| {
            pool.backends.iter().map(|backend| backend.address.clone()).collect::<Vec<_>>()
        };
        let is_same = addresses(other) == addresses(pool)
            && other.eject == pool.eject
            && other.health.is_some() == pool.health.is_some();
        is_same.then(|| &self.health[its])
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use super::*;
    use crate::config::{Address, Backend, Ejection};

    fn address(port: u16) -> Address {
        Address::Tcp(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    #[test]
    fn a_pool_of_the_same_backends_goes_on_with_what_is_known_and_another_takes_it_over() {
        let now = Instant::now();
        let mut config = Config::new(address(1), address(2));
        let eject = Ejection { failures: 2, for_time: Duration::from_secs(9) };
        config.pools[0].eject = Some(eject);
        let first = Plan::new(config.clone(), None, now).unwrap();
        config.pools[0].backends[0].weight = 7;
        config.pools[0].retries = 0;
        let second = Plan::new(config.clone(), Some(&first), now).unwrap();
        // A request that is under way under the first, and one of the second.
        assert!(!first.health[0].failed(0, now));
        assert!(second.health[0].failed(0, now));
        for change in [
            |pool: &mut config::Pool| pool.backends.push(Backend::new(address(3))),
            |pool: &mut config::Pool| {
                pool.eject = Some(Ejection { failures: 3, for_time: Duration::from_secs(9) });
            },
        ] {
            let mut config = config.clone();
            change(&mut config.pools[0]);
            let third = Plan::new(config, Some(&second), now).unwrap();
            assert!(!Arc::ptr_eq(&third.health[0], &second.health[0]));
            assert_eq!(third.health[0].ejections(0), 1);
        }
    }
}
