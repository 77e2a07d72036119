//! What the thread does between two turns: it waits on the poller or, with slack, naps.

use std::mem;
use std::thread;
use std::time::{Duration, Instant};

use super::Worker;
use super::sending::Budget;
use crate::clocks::Clocks;
use crate::nap::Rest;

impl Worker {
    /// Naps if that is due, and says how long the poller may wait then.
    pub(super) fn rest(&mut self) -> Duration {
        let has_more = self.has_more();
        let has_acted = self.budget != Budget::TURN;
        // Connections are opened as fast as they can be.
        let Some(naps) = self.naps.as_mut().filter(|_| self.has_begun) else {
            return self.patience();
        };
        naps.turn(has_acted);
        match naps.next(has_more, Instant::now()) {
            Rest::None => Duration::ZERO,
            Rest::Wait => self.patience(),
            Rest::Nap(left) => {
                thread::sleep(left);
                self.wake();
                Duration::ZERO
            }
        }
    }

    /// The poller has waited for up to `patience`.
    pub(super) fn woke_after(&mut self, patience: Duration) {
        if !patience.is_zero() {
            self.wake();
        }
    }

    /// A turn is over that began with a wait of up to `patience`. If it did not wait and there was
    /// nothing to do, whoever else wants this CPU may have it for a moment.
    pub(super) fn turned_after(&mut self, patience: Duration) {
        let has_polled =
            patience.is_zero() && self.budget == Budget::TURN && self.unread.is_empty();
        let since = mem::replace(&mut self.idle_since, has_polled.then_some(self.now));
        if has_polled {
            if let Some(since) = since {
                self.recorder.polled(self.now - since);
            }
            thread::yield_now();
        }
    }

    fn wake(&mut self) {
        self.idle_since = None;
        if let Some(naps) = &mut self.naps {
            naps.wake(Instant::now());
            self.clocks = Clocks::read();
        }
    }

    /// Whether there is more to do at once.
    fn has_more(&self) -> bool {
        let is_opening = self.begun < self.slots.len();
        is_opening || self.budget.is_spent() || !self.unread.is_empty()
    }

    /// How long to wait for events: until it is time for the next request, or the next timeout.
    fn patience(&mut self) -> Duration {
        if self.plan.busy_poll || self.has_more() {
            return Duration::ZERO;
        }
        match &self.pacer {
            // What is held waits for a connection, and not for the clock.
            Some(pacer) => {
                let now = Instant::now();
                let sweep = self.next_sweep.saturating_duration_since(now);
                pacer.next_unseen().map_or(sweep, |due| self.pause.until(due, now).min(sweep))
            }
            None => self.next_sweep.saturating_duration_since(self.now),
        }
    }
}
