//! The end of a thread: active requests finish, or are aborted after a timeout.

use std::io;

use super::event_loop::Worker;
use super::exchange::Stage;
use super::keys::{Key as _, ListenerKey};
use crate::log;

impl Worker {
    /// Closes listeners and idle connections.
    pub(super) fn drain(&mut self) -> io::Result<()> {
        self.shared.stop_by = Some(self.shared.now + self.shared.timeouts.drain);
        (0..self.shared.listeners.len())
            .try_for_each(|index| self.close_listener(ListenerKey::new(index)))?;
        for key in self.exchanges.keys(|_| true) {
            // The turn of one client may have ended others.
            let Some(exchange) = self.exchanges.get_mut(key) else { continue };
            match exchange.stage {
                Stage::ReadHead => {
                    if let Some(transport) = exchange.client.transport() {
                        transport.assume_readable();
                    }
                    self.turn(key);
                }
                Stage::Http2(connection) => self.announce_end(key, connection),
                Stage::Transaction(_) | Stage::Finish { .. } | Stage::Linger { .. } => {}
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
