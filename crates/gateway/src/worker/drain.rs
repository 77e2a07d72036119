//! Reloading and draining a thread: active requests finish, or are aborted after a timeout.

use std::io;
use std::sync::Arc;

use tollgate_accesslog::LogFile;

use super::Worker;
use super::upstream::Generation;
use crate::config::Listener;
use crate::generation::ConfigGeneration;
use crate::listener::ThreadListener;
use crate::log;

impl Worker {
    /// Switches to another configuration. Active transactions finish under the one that they began with. Returns the
    /// listeners to close.
    pub(super) fn reload(
        &mut self,
        shared: &Arc<ConfigGeneration>,
        added: Vec<ThreadListener>,
    ) -> io::Result<Vec<usize>> {
        for listener in added {
            self.add_listener(listener)?;
        }
        let old = self.current;
        self.timeouts = shared.config.timeouts;
        let generation = Generation::new(Arc::clone(shared), self.thread as u64);
        self.current = self.generations.insert(generation);
        // Collected lines belong to the old file.
        self.flush_logs();
        self.access_log = shared.access_log.as_ref().map(LogFile::thread_log);
        self.filter.reload(shared);
        self.recount_clients();
        let mut removed = Vec::new();
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            let is_same = |configured: &&Listener| configured.address == listener.address;
            match shared.config.listeners.iter().find(is_same) {
                Some(configured) => {
                    listener.reconfigure(configured)?;
                    listener.count_handshakes(&self.counters, self.thread);
                }
                None => removed.push(index),
            }
        }
        self.leave_http2(&removed);
        self.scratch.requests.clear();
        self.scratch.responses.clear();
        self.sweep_at = self.sweep_at.min(self.now + self.sweep_period());
        // Idle connections belong to the old pools.
        self.close_idle_if(|_| true);
        if self.generations[old].transactions == 0 {
            self.generations.remove(old);
        }
        Ok(removed)
    }

    /// Logs the active clients that a drain waits for.
    pub(super) fn log_drain(&self) {
        if !self.clients.is_empty() {
            log(format_args!(
                "thread {} waits up to {} for active connections: {}",
                self.thread,
                humantime::format_duration(self.timeouts.drain),
                self.connections()
            ));
        }
    }

    pub(super) fn abort_clients(&mut self) {
        if !self.clients.is_empty() {
            let count = self.connections();
            log(format_args!("thread {} aborts active connections: {count}", self.thread));
        }
        let keys: Vec<usize> = self.clients.iter().map(|(key, _)| key).collect();
        for key in keys {
            // The end of a connection is that of its streams.
            if self.clients.contains(key) {
                self.remove_client(key);
            }
        }
        self.flush_logs();
    }

    /// Hands collected lines to the writer, and counts those that it drops.
    pub(super) fn flush_logs(&mut self) {
        if let Some(access_log) = &mut self.access_log {
            access_log.flush();
            let dropped = access_log.take_dropped();
            if dropped > 0 {
                self.client_counters().dropped_lines.add(dropped);
            }
        }
        let dropped = self.filter.flush();
        if dropped > 0 {
            self.client_counters().dropped_audit_lines.add(dropped);
        }
    }
}
