//! A configuration in use, shared by all threads.

use std::sync::Arc;
use std::time::Instant;

use tollgate_accesslog::LogFile;

use crate::basic_auth::PasswordChecks;
use crate::checks::CheckId;
use crate::cluster::PoolHealth;
use crate::config::{Config, Pool};
use crate::counters::{Counters, GenerationCounters};
use crate::firewall::{AuditFile, Firewall};
use crate::local_api::LocalApi;
use crate::router::Router;

/// A configuration and its derived state. A reload creates a new one; active requests finish under the one that they
/// began with.
#[derive(Debug)]
pub(crate) struct ConfigGeneration {
    pub(crate) config: Config,
    pub(crate) router: Router,
    /// One per pool.
    pub(crate) health: Vec<Arc<PoolHealth>>,
    pub(crate) counters: Arc<GenerationCounters>,
    pub(crate) access_log: Option<LogFile>,
    pub(crate) audit_log: Option<AuditFile>,
    /// The same as that of the last configuration if its settings are.
    pub(crate) local_api: Option<Arc<LocalApi>>,
    /// One per route; `None`: nothing is inspected.
    pub(crate) firewalls: Vec<Option<Arc<Firewall>>>,
    /// One per route; `None`: no password is asked for. Those of the same users are the same, across reloads, too.
    pub(crate) passwords: Vec<Option<Arc<PasswordChecks>>>,
}

/// The open logs of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    pub(crate) access: Option<LogFile>,
    pub(crate) audit: Option<LogFile>,
}

impl ConfigGeneration {
    /// A pool with the same backends and health settings as in `old` shares its health, so that active requests count
    /// for both. Other backends of a pool of the same name inherit a copy; new ones start as up,
    /// and slowly.
    pub(crate) fn new(
        config: Config,
        logs: Logs,
        all_counters: &Counters,
        old: Option<&Self>,
        now: Instant,
    ) -> Self {
        let health = config
            .pools
            .iter()
            .map(|pool| match old.and_then(|old| old.pool(&pool.name)) {
                Some((old_pool, health)) if has_same_health(old_pool, pool) => Arc::clone(health),
                Some((old_pool, old_health)) => {
                    let health = PoolHealth::new(pool, now);
                    for (at, backend) in pool.backends.iter().enumerate() {
                        let mut old_backends = old_pool.backends.iter();
                        match old_backends.position(|old| old.address == backend.address) {
                            Some(old_at) => health.inherit(at, old_health, old_at, now),
                            None => health.start_slowly(at, now),
                        }
                    }
                    Arc::new(health)
                }
                None => Arc::new(PoolHealth::new(pool, now)),
            })
            .collect();
        let counters = Arc::new(GenerationCounters::new(&config));
        let firewall = &all_counters.firewall;
        let local_api = config.local_api.as_ref().map(|settings| {
            let of_old = old.and_then(|old| old.local_api.as_ref());
            of_old.filter(|old| old.config == *settings).map_or_else(
                || Arc::new(LocalApi::new(settings.clone(), Arc::clone(&firewall.local_api))),
                Arc::clone,
            )
        });
        let mut known: Vec<Arc<PasswordChecks>> =
            old.iter().flat_map(|old| old.passwords.iter().flatten()).map(Arc::clone).collect();
        let passwords = config.routes.iter().map(|route| {
            let users = &route.basic_auth()?.users;
            let found = known.iter().find(|checks| checks.users == *users).map(Arc::clone);
            Some(found.unwrap_or_else(|| {
                let checks = Arc::new(PasswordChecks::new(users, &all_counters.passwords));
                known.push(Arc::clone(&checks));
                checks
            }))
        });
        let passwords = passwords.collect();
        let settings = config.audit_log.clone().map(Arc::new);
        Self {
            router: Router::new(&config.routes, config.requests.path),
            health,
            counters,
            access_log: logs.access,
            audit_log: settings
                .zip(logs.audit)
                .map(|(settings, file)| AuditFile { file, settings }),
            firewalls: Firewall::of_routes(&config, firewall, local_api.as_ref()),
            local_api,
            passwords,
            config,
        }
    }

    /// Number of checks of credentials that have ended. It changes before the threads that wait are woken.
    pub(crate) fn ended_checks(&self) -> u64 {
        let of_keys = self.local_api.as_ref().map_or(0, |api| api.ended_checks());
        let of_passwords =
            self.passwords.iter().flatten().map(|passwords| passwords.checks.ended());
        of_keys + of_passwords.sum::<u64>()
    }

    /// True until a check of credentials has ended.
    pub(crate) fn awaits(&self, id: CheckId) -> bool {
        self.local_api.as_ref().is_some_and(|api| api.awaits(id))
            || self.passwords.iter().flatten().any(|passwords| passwords.checks.awaits(id))
    }

    pub(crate) fn logs(&self) -> Logs {
        let audit = self.audit_log.as_ref().map(|audit| audit.file.clone());
        Logs { access: self.access_log.clone(), audit }
    }

    pub(crate) fn log_files(&self) -> impl Iterator<Item = &LogFile> {
        self.access_log.iter().chain(self.audit_log.iter().map(|audit| &audit.file))
    }

    fn pool(&self, name: &str) -> Option<(&Pool, &Arc<PoolHealth>)> {
        self.config.pools.iter().zip(&self.health).find(|(pool, _)| pool.name == name)
    }
}

/// True if the two pools can share health.
fn has_same_health(one: &Pool, other: &Pool) -> bool {
    let addresses = |pool: &Pool| {
        pool.backends.iter().map(|backend| backend.address.clone()).collect::<Vec<_>>()
    };
    addresses(one) == addresses(other)
        && one.eject == other.eject
        && one.slow_start == other.slow_start
        && one.health.is_some() == other.health.is_some()
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

    fn generation(
        config: Config,
        old: Option<&ConfigGeneration>,
        now: Instant,
    ) -> ConfigGeneration {
        ConfigGeneration::new(config, Logs::default(), &Counters::new(1), old, now)
    }

    #[test]
    fn pool_with_same_backends_shares_health_and_changed_pool_inherits_it() {
        let now = Instant::now();
        let mut config = Config::new(address(1), address(2));
        let eject = Ejection { failures: 2, duration: Duration::from_secs(9) };
        config.pools[0].eject = Some(eject);
        let first = generation(config.clone(), None, now);
        config.pools[0].backends[0].weight = 7;
        config.pools[0].retries = 0;
        let second = generation(config.clone(), Some(&first), now);
        // One failed request of each generation.
        assert!(!first.health[0].record_failure(0, now).ejects);
        assert!(second.health[0].record_failure(0, now).ejects);
        for change in [
            |pool: &mut Pool| pool.backends.push(Backend::new(address(3))),
            |pool: &mut Pool| {
                pool.eject = Some(Ejection { failures: 3, duration: Duration::from_secs(9) });
            },
        ] {
            let mut config = config.clone();
            change(&mut config.pools[0]);
            let third = generation(config, Some(&second), now);
            assert!(!Arc::ptr_eq(&third.health[0], &second.health[0]));
            assert_eq!(third.health[0].ejections(0), 1);
        }
    }
}
