//! The end of a thread: what is in flight is waited for, and what does not end in time is cut off.

use std::fmt;
use std::io;

use tollgate_ledger::messages;

use super::Worker;
use crate::downstream::{Client, Stage};
use crate::exchange::{Answer, Exchange};

/// What the clients of a thread are at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InFlight {
    /// Those whose heads have not come to their ends among them.
    requests: usize,
    tunnels: usize,
    /// Connections whose last answer is on its way, or that are sending still behind it.
    endings: usize,
}

impl Worker {
    /// Closes the listeners, behind all who have arrived, and what is idle.
    pub(super) fn drain(&mut self) -> io::Result<()> {
        self.stop_by = Some(self.now + self.timeouts.drain);
        (0..self.listeners.len()).try_for_each(|place| self.close_listener(place))?;
        let keys: Vec<usize> = self.clients.iter().map(|(key, _)| key).collect();
        for key in keys {
            // A turn may have ended others than its own.
            let Some(client) = self.clients.get_mut(key) else { continue };
            if client.stage == Stage::Reading {
                client.link.look_again();
                self.turn(key)?;
            }
        }
        self.close_all_idle();
        let waited_for = self.in_flight();
        if !self.clients.is_empty() {
            messages::tell(&format!(
                "tollgate gateway: thread {} waits for {waited_for} to end, at most {}",
                self.index,
                humantime::format_duration(self.timeouts.drain)
            ));
        }
        Ok(())
    }

    /// Ends all that has not finished in time, as a client's deadline does.
    pub(super) fn cut_off(&mut self) {
        if !self.clients.is_empty() {
            let cut_off = self.in_flight();
            messages::tell(&format!(
                "tollgate gateway: thread {} has cut off {cut_off}",
                self.index
            ));
        }
        let keys: Vec<usize> = self.clients.iter().map(|(key, _)| key).collect();
        for key in keys {
            // The end of one may have been that of another.
            if self.clients.contains(key) {
                self.remove_client(key);
            }
        }
        self.flush_log();
    }

    fn in_flight(&self) -> InFlight {
        let mut in_flight = InFlight::default();
        self.clients.iter().for_each(|(_, client)| in_flight.add(client));
        in_flight
    }
}

impl InFlight {
    fn add(&mut self, client: &Client) {
        let is_tunnel = |exchange: &Exchange| matches!(exchange.answer, Answer::Tunnel { .. });
        match client.stage {
            Stage::Exchanging if client.exchange.as_ref().is_some_and(is_tunnel) => {
                self.tunnels += 1;
            }
            Stage::Exchanging | Stage::Reading => self.requests += 1,
            Stage::Ending { .. } | Stage::Lingering { .. } => self.endings += 1,
        }
    }
}

impl fmt::Display for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.requests, "request", "requests"),
            (self.tunnels, "tunnel", "tunnels"),
            (self.endings, "closing connection", "closing connections"),
        ];
        let there = parts.into_iter().filter(|(count, ..)| *count > 0);
        for (at, (count, one, many)) in there.enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{count} {}", if count == 1 { one } else { many })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_not_told() {
        let told = |requests, tunnels, endings| InFlight { requests, tunnels, endings }.to_string();
        assert_eq!(told(1, 0, 0), "1 request");
        assert_eq!(told(2, 1, 0), "2 requests, 1 tunnel");
        assert_eq!(told(0, 3, 1), "3 tunnels, 1 closing connection");
    }
}
