//! Commands of the gateway: switching to another configuration, and the end of a thread, where active requests finish or are
//! aborted after a timeout.

use std::io;
use std::sync::Arc;

use tollgate_accesslog::LogFile;
use tollgate_net::Sweep;

use super::event_loop::Worker;
use super::exchange::Stage;
use super::keys::{ExchangeKey, Key as _, ListenerKey};
use crate::command::Command;
use crate::config::Listener;
use crate::generation::ConfigGeneration;
use crate::listener::ThreadListener;
use crate::log;

impl Worker {
    pub(super) fn process_commands(&mut self) -> io::Result<()> {
        let mut is_reloaded = false;
        for command in self.commands.take()? {
            match command {
                Command::Reload { generation, added } => {
                    is_reloaded = true;
                    for listener in self.reload(&generation, added)? {
                        self.close_listener(listener)?;
                    }
                }
                Command::Drain if self.shared.stop_by.is_some() => {}
                Command::Drain if self.shared.timeouts.drain_delay.is_zero() => self.drain()?,
                Command::Drain => {
                    let at = self.shared.now + self.shared.timeouts.drain_delay;
                    self.drains_at.get_or_insert(at);
                }
            }
        }
        for (id, verdict) in self.shared.inspector.take_back() {
            let key = ExchangeKey::new(id.exchange);
            if let Some(exchange) = self.exchanges.get_mut(key)
                && let Some(next) = exchange.resume(&mut self.shared, id, verdict)
            {
                self.continue_turn(key, next);
            }
        }
        let ended = self.shared.upstreams.current_config().ended_checks();
        // Most wakes are for something else.
        let has_news = std::mem::replace(&mut self.shared.ended_checks, ended) != ended;
        if is_reloaded || has_news {
            self.retry_heads(is_reloaded);
        }
        Ok(())
    }

    /// Handles heads again whose checks have ended, or all of them, as after a reload.
    fn retry_heads(&mut self, all: bool) {
        for (client, check) in std::mem::take(&mut self.shared.awaiting_checks) {
            let is_waiting = self.is_connected(client)
                && matches!(self.exchanges[client.key].stage, Stage::AwaitCheck { .. });
            if !is_waiting {
                continue;
            }
            if !all && self.shared.upstreams.current_config().awaits(check) {
                self.shared.awaiting_checks.push((client, check));
                continue;
            }
            let next = self.exchanges[client.key].retry_head(&mut self.shared);
            self.continue_turn(client.key, next);
        }
    }

    /// Switches to another configuration. Active transactions finish under the one that they began with. Returns the
    /// listeners to close.
    fn reload(
        &mut self,
        generation: &Arc<ConfigGeneration>,
        added: Vec<ThreadListener>,
    ) -> io::Result<Vec<ListenerKey>> {
        for listener in added {
            self.add_listener(listener)?;
        }
        // Collected lines belong to the old file.
        self.flush_logs();
        let shared = &mut self.shared;
        shared.timeouts = generation.config.timeouts;
        shared.access_log = generation.access_log.as_ref().map(LogFile::thread_log);
        shared.inspector.reload(generation.audit_log.as_ref());
        shared.scratch.requests.clear();
        shared.scratch.responses.clear();
        // Idle connections belong to the old pools.
        shared.close_idle_if(|_| true);
        shared.upstreams.switch(Arc::clone(generation), shared.thread as u64);
        let mut removed = Vec::new();
        for (index, listener) in shared.listeners.iter_mut().enumerate() {
            let is_same = |configured: &&Listener| configured.address == listener.address;
            match generation.config.listeners.iter().find(is_same) {
                Some(configured) => {
                    listener.reconfigure(configured, self.acceptor.socket(index))?;
                    listener.count_handshakes(&shared.counters, shared.thread);
                }
                None => {
                    listener.remove();
                    removed.push(ListenerKey::new(index));
                }
            }
        }
        self.recount_clients();
        self.leave_http2(&removed);
        let sweep = Sweep::new(self.timeouts_in_use(), self.shared.now);
        if sweep.at() < self.next_sweep.at() {
            self.next_sweep = sweep;
        }
        Ok(removed)
    }

    /// Closes listeners and idle connections.
    pub(super) fn drain(&mut self) -> io::Result<()> {
        self.shared.stop_by = Some(self.shared.now + self.shared.timeouts.drain);
        (0..self.shared.listeners.len())
            .try_for_each(|index| self.close_listener(ListenerKey::new(index)))?;
        for key in self.exchanges.keys(|_| true) {
            // The turn of one client may have ended others.
            let Some(exchange) = self.exchanges.get_mut(key) else { continue };
            match exchange.stage {
                Stage::ProxyHeader { .. } | Stage::ReadHead | Stage::Spoe(_) => {
                    if let Some(transport) = exchange.client.transport() {
                        transport.assume_readable();
                    }
                    self.turn(key);
                }
                Stage::Http2(connection) => self.announce_end(key, connection),
                Stage::AwaitCheck { .. }
                | Stage::Transaction(_)
                | Stage::Finish { .. }
                | Stage::Linger { .. } => {}
            }
        }
        self.shared.close_idle_if(|_| true);
        if !self.exchanges.is_empty() {
            log(format_args!(
                "thread {} waits up to {} for active connections: {}",
                self.shared.thread,
                humantime::format_duration(self.shared.timeouts.drain),
                self.connections()
            ));
        }
        Ok(())
    }

    pub(super) fn abort_clients(&mut self) {
        if !self.exchanges.is_empty() {
            let (thread, count) = (self.shared.thread, self.connections());
            log(format_args!("thread {thread} aborts active connections: {count}"));
        }
        for key in self.exchanges.keys(|_| true) {
            // The end of a connection is that of its streams.
            if self.exchanges.get(key).is_some() {
                self.remove(key);
            }
        }
        self.flush_logs();
    }

    /// Hands collected lines to the writer, and counts those that it drops.
    pub(super) fn flush_logs(&mut self) {
        let shared = &mut self.shared;
        if let Some(access_log) = &mut shared.access_log {
            access_log.flush();
            let dropped = access_log.take_dropped();
            if dropped > 0 {
                shared.client_counters().dropped_lines.add(dropped);
            }
        }
        let dropped = shared.inspector.flush();
        if dropped > 0 {
            shared.client_counters().dropped_audit_lines.add(dropped);
        }
    }
}
