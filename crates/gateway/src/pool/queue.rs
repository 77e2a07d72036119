//! Who waits for a connection to a backend that has no room.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The queues of one thread for the backends of one pool, each in order of arrival.
#[derive(Debug)]
pub(super) struct Queues<W> {
    queues: Box<[VecDeque<(Instant, W)>]>,
    /// How many may wait for each backend.
    max: usize,
    timeout: Duration,
    waiting: usize,
}

impl<W: PartialEq> Queues<W> {
    pub(super) fn new(backends: usize, max: usize, timeout: Duration) -> Self {
        let queues = (0..backends).map(|_| VecDeque::new()).collect();
        Self { queues, max, timeout, waiting: 0 }
    }

    /// How many wait for it.
    pub(super) fn len(&self, backend: usize) -> usize {
        self.queues[backend].len()
    }

    /// How many wait in all.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn has_room(&self, backend: usize) -> bool {
        self.len(backend) < self.max
    }

    /// One more waits. Only where there is room.
    pub(super) fn push(&mut self, backend: usize, waiter: W, now: Instant) {
        debug_assert!(self.has_room(backend), "whoever finds a queue full does not wait");
        self.queues[backend].push_back((now + self.timeout, waiter));
        self.waiting += 1;
    }

    /// Who has waited longest for it.
    pub(super) fn pop(&mut self, backend: usize) -> Option<W> {
        let (_, waiter) = self.queues[backend].pop_front()?;
        self.waiting -= 1;
        Some(waiter)
    }

    /// One whose time is over.
    pub(super) fn pop_late(&mut self, now: Instant) -> Option<W> {
        if self.waiting == 0 {
            return None;
        }
        // All wait equally long, so the first of a queue is the first whose time is over.
        let is_late =
            |queue: &VecDeque<(Instant, W)>| queue.front().is_some_and(|(at, _)| *at <= now);
        let backend = self.queues.iter().position(is_late)?;
        self.pop(backend)
    }

    /// When the next one's time is over.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if self.waiting == 0 {
            return None;
        }
        self.queues.iter().filter_map(|queue| queue.front()).map(|(at, _)| *at).min()
    }

    /// Somebody waits no more. Whether they did.
    pub(super) fn leave(&mut self, backend: usize, waiter: &W) -> bool {
        let queue = &mut self.queues[backend];
        let Some(at) = queue.iter().position(|(_, other)| other == waiter) else {
            return false;
        };
        queue.remove(at);
        self.waiting -= 1;
        true
    }
}
