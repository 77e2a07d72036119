//! What a gateway does beside the data path: it asks backends whether they are well, and answers on the
//! admin listener.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::admin::Admin;
use crate::checks::Checks;
use crate::config::Config;
use crate::counters::Counters;
use crate::pool::PoolHealth;
use crate::view::View;

/// What is done beside the data path, until this is dropped.
#[derive(Debug)]
pub(crate) struct Aside {
    view: Arc<View>,
    checks: Option<Checks>,
    admin: Option<Admin>,
    /// What the configuration asked for.
    admin_asked: Option<SocketAddr>,
}

/// Why it is not done.
#[derive(Debug, thiserror::Error)]
pub enum AsideError {
    /// It cannot listen on the admin address.
    #[error(
        "the admin listener cannot listen on {address}; stop what listens there or choose another address"
    )]
    Admin {
        /// The address that was asked for.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// It cannot ask backends.
    #[error("backends cannot be checked; raise the limits on open files and on processes")]
    Checks(#[source] io::Error),
}

impl Aside {
    /// Starts with a configuration, what is known of its backends, and what is counted.
    pub(crate) fn start(
        counters: Arc<Counters>,
        config: &Config,
        health: &[Arc<PoolHealth>],
    ) -> Result<Self, AsideError> {
        let view = Arc::new(View::new(counters));
        let mut aside = Self { view, checks: None, admin: None, admin_asked: None };
        aside.change(config, health)?;
        Ok(aside)
    }

    /// Goes on with another configuration. If that cannot be, nothing has changed.
    pub(crate) fn change(
        &mut self,
        config: &Config,
        health: &[Arc<PoolHealth>],
    ) -> Result<(), AsideError> {
        let moves = config.admin != self.admin_asked;
        let admin = if moves { self.listen(config.admin)? } else { None };
        let are_checked = config.pools.iter().any(|pool| pool.health.is_some());
        match &self.checks {
            Some(checks) if are_checked && checks.go_on() => {
                checks.change(&config.pools, health).map_err(AsideError::Checks)?;
            }
            _ => {
                self.checks = Checks::start(&config.pools, health).map_err(AsideError::Checks)?;
            }
        }
        if moves {
            self.admin = admin;
            self.admin_asked = config.admin;
        }
        self.view.set_pools(config, health);
        Ok(())
    }

    fn listen(&self, address: Option<SocketAddr>) -> Result<Option<Admin>, AsideError> {
        address
            .map(|address| {
                Admin::start(address, Arc::clone(&self.view))
                    .map_err(|source| AsideError::Admin { address, source })
            })
            .transpose()
    }

    /// A configuration came after the first, and is in force or was refused.
    pub(crate) fn reloaded(&self, is_done: bool) {
        self.view.reloaded(is_done);
    }

    /// Tells those who ask that it is about to end.
    pub(crate) fn drain(&self) {
        self.view.set_draining();
    }

    /// Where the admin listener is; the port is the real one.
    pub(crate) fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }
}
