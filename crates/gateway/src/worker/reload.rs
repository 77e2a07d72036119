//! Commands of the gateway, and switching to another configuration.

use std::io;
use std::sync::Arc;

use tollgate_accesslog::LogFile;
use tollgate_net::Sweep;

use super::event_loop::Worker;
use super::keys::{ExchangeKey, Key as _, ListenerKey};
use crate::command::Command;
use crate::config::Listener;
use crate::generation::ConfigGeneration;
use crate::listener::ThreadListener;

impl Worker {
    pub(super) fn process_commands(&mut self) -> io::Result<()> {
        for command in self.commands.take()? {
            match command {
                Command::Reload { generation, added } => {
                    for listener in self.reload(&generation, added)? {
                        self.close_listener(listener)?;
                    }
                }
                Command::Drain if self.shared.stop_by.is_none() => self.drain()?,
                Command::Drain => {}
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
        Ok(())
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
                None => removed.push(ListenerKey::new(index)),
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
}
