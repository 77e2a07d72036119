//! What a thread does that it is told from outside.

use std::io;
use std::sync::Arc;

use tollgate_ledger::LogFile;

use super::Worker;
use crate::config::{Address, Listener};
use crate::orders::Reload;
use crate::site::Site;
use crate::upstream::Upstream;

impl Worker {
    /// Looks for what there is to be obeyed.
    pub(super) fn obey(&mut self) -> io::Result<()> {
        if let Some(reload) = self.orders.take_reload() {
            self.reload(reload)?;
        }
        for (id, verdict) in self.orders.take_resumed() {
            self.resume(id, verdict)?;
        }
        if self.orders.drains() && self.stop_by.is_none() {
            self.drain()?;
        }
        Ok(())
    }

    /// Serves by another configuration from now on. What is under way ends as it began.
    fn reload(&mut self, reload: Reload) -> io::Result<()> {
        let Reload { plan, added } = reload;
        let wanted: Vec<Address> =
            plan.config.listeners.iter().map(|listener| listener.address.clone()).collect();
        for listening in added {
            self.listen(listening)?;
        }
        let old = self.site;
        self.timeouts = plan.config.timeouts;
        self.site = self.sites.insert(Site::new(Arc::clone(&plan), self.index as u64));
        // A line that is due goes to the file of its time.
        self.flush_log();
        self.log = plan.log.as_ref().map(LogFile::of_thread);
        self.count_clients();
        for listening in &mut self.listeners {
            let same = |listener: &&Listener| listener.address == listening.address;
            if let Some(listener) = plan.config.listeners.iter().find(same) {
                listening.adapt(listener)?;
            }
        }
        self.tools.requests.clear();
        self.tools.answers.clear();
        self.sweep_at = self.sweep_at.min(self.now + super::sweep_period(&self.sites));
        // Connections that wait are of the old backends; those of the new ones are made as needed.
        self.close_all_idle();
        if self.sites[old].exchanges == 0 {
            self.sites.remove(old);
        }
        for place in 0..self.listeners.len() {
            if !wanted.contains(&self.listeners[place].address) {
                self.close_listener(place)?;
            }
        }
        Ok(())
    }

    /// Closes the connections to backends that wait for a request.
    pub(super) fn close_all_idle(&mut self) {
        let is_idle = |(at, upstream): (usize, &Upstream)| upstream.client.is_none().then_some(at);
        let idle: Vec<usize> = self.upstreams.iter().filter_map(is_idle).collect();
        idle.into_iter().for_each(|at| self.close_idle(at));
    }
}
