//! Who waits for a connection to a backend that has no room.

use std::collections::VecDeque;

/// The queues of one thread for the backends of one pool, each in order of arrival. How long somebody
/// may wait is theirs to know.
#[derive(Debug)]
pub(super) struct Queues<W> {
    queues: Box<[VecDeque<W>]>,
    /// How many may wait for each backend.
    max: usize,
}

impl<W: PartialEq> Queues<W> {
    pub(super) fn new(backends: usize, max: usize) -> Self {
        Self { queues: (0..backends).map(|_| VecDeque::new()).collect(), max }
    }

    /// How many wait for it.
    pub(super) fn len(&self, backend: usize) -> usize {
        self.queues[backend].len()
    }

    pub(super) fn has_room(&self, backend: usize) -> bool {
        self.len(backend) < self.max
    }

    /// One more waits. Only where there is room.
    pub(super) fn push(&mut self, backend: usize, waiter: W) {
        debug_assert!(self.has_room(backend), "whoever finds a queue full does not wait");
        self.queues[backend].push_back(waiter);
    }

    /// Who has waited longest for it.
    pub(super) fn pop(&mut self, backend: usize) -> Option<W> {
        self.queues[backend].pop_front()
    }

    /// Somebody waits no more. Whether they did.
    pub(super) fn leave(&mut self, backend: usize, waiter: &W) -> bool {
        let queue = &mut self.queues[backend];
        let place = queue.iter().position(|other| other == waiter);
        place.and_then(|at| queue.remove(at)).is_some()
    }
}
