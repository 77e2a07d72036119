//! The times at which a thread acts without an event.

use std::io;
use std::time::Duration;

use tollgate_net::{Sweep, time_until_first};

use super::event_loop::Worker;
use super::exchange::{Exchange, Stage};
use crate::config::Timeouts;

impl Worker {
    /// Returns the time until the next deadline.
    pub(super) fn timeout(&self) -> Option<Duration> {
        let Self { shared, exchanges, .. } = self;
        if !shared.ready.is_empty() || shared.http2.needs_flush() {
            return Some(Duration::ZERO);
        }
        let needs_sweep = !exchanges.is_empty() || !shared.upstreams.connections().is_empty();
        let watch_at = self.unwatched.front().map(|(at, _)| *at);
        let sweep_at = needs_sweep.then_some(self.next_sweep.at());
        let times = [sweep_at, self.acceptor.resumes_at(), shared.stop_by, watch_at];
        time_until_first(times, shared.now)
    }

    pub(super) fn check_timers(&mut self) -> io::Result<()> {
        let now = self.shared.now;
        if self.next_sweep.is_due(now) {
            self.next_sweep = Sweep::new(self.timeouts_in_use(), now);
            self.sweep();
        }
        self.resume_accepting()?;
        while let Some((at, client)) = self.unwatched.front().copied()
            && (at <= now || !self.is_connected(client))
        {
            self.unwatched.pop_front();
            if self.is_connected(client) {
                self.watch(client.key);
            }
        }
        Ok(())
    }

    /// Timeouts that a sweep enforces, of all configurations in use.
    pub(super) fn timeouts_in_use(&self) -> impl Iterator<Item = Duration> {
        self.shared.upstreams.generations().flat_map(|generation| {
            let config = &generation.shared.config;
            // The end of a drain has its own timer.
            let Timeouts { connect, header, body, response, abandoned, idle, tunnel, .. } =
                config.timeouts;
            let queues = config.pools.iter().map(|pool| pool.queue_timeout);
            [connect, header, body, response, abandoned, idle, tunnel].into_iter().chain(queues)
        })
    }

    /// Handles all expired deadlines.
    pub(super) fn sweep(&mut self) {
        let now = self.shared.now;
        let is_late = |exchange: &Exchange| exchange.is_late(now);
        for key in self.exchanges.keys(is_late) {
            // The end of one transaction may have ended others or moved their deadlines.
            if !self.exchanges.get(key).is_some_and(is_late) {
                continue;
            }
            let next = match self.exchanges[key].stage {
                Stage::Http2(connection) => self.time_out_http2(key, connection),
                _ => self.exchanges[key].time_out(&mut self.shared),
            };
            self.continue_turn(key, next);
        }
        self.shared.upstreams.serve_queues(now);
        self.shared.close_idle_if(|upstream| upstream.idle_until <= now);
        self.exchanges.values().for_each(|exchange| exchange.count_bytes(&self.shared));
        self.shared.http2.shrink();
    }
}
