//! Requests that wait for a backend with room.

use std::collections::VecDeque;

use super::balance::{BackendId, HashKey};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueId(pub(super) usize);

/// Wait queues of one thread for one pool, in order of arrival: one for all backends, or with a consistent hash one
/// per backend. The owner of a request enforces its timeout.
#[derive(Debug)]
pub(super) struct WaitQueues<W> {
    queues: Box<[VecDeque<Pending<W>>]>,
    /// Limit of waiting requests per backend.
    max: usize,
}

/// A waiting request and the constraints on its backend.
#[derive(Debug)]
pub(super) struct Pending<W> {
    pub(super) waiter: W,
    pub(super) key: HashKey,
    pub(super) attempts: Attempts,
}

impl<W: PartialEq> WaitQueues<W> {
    pub(super) fn new(count: usize, max: usize) -> Self {
        Self { queues: (0..count).map(|_| VecDeque::new()).collect(), max }
    }

    pub(super) fn are_empty(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }

    pub(super) fn len(&self, queue: QueueId) -> usize {
        self.queues[queue.0].len()
    }

    /// True if a queue that serves this many backends has room for one more request.
    pub(super) fn have_room(&self, queue: QueueId, backends: usize) -> bool {
        self.len(queue) < self.max.saturating_mul(backends)
    }

    pub(super) fn push(&mut self, queue: QueueId, pending: Pending<W>) {
        self.queues[queue.0].push_back(pending);
    }

    /// Removes the oldest request for which `place` returns a backend.
    pub(super) fn pop_first(
        &mut self,
        queue: QueueId,
        mut place: impl FnMut(&Pending<W>) -> Option<usize>,
    ) -> Option<(W, usize)> {
        let queue = &mut self.queues[queue.0];
        let (at, backend) =
            queue.iter().enumerate().find_map(|(at, pending)| Some((at, place(pending)?)))?;
        Some((queue.remove(at)?.waiter, backend))
    }

    /// Returns true if the request was waiting.
    pub(super) fn remove(&mut self, queue: QueueId, waiter: &W) -> bool {
        let queue = &mut self.queues[queue.0];
        let at = queue.iter().position(|pending| pending.waiter == *waiter);
        at.and_then(|at| queue.remove(at)).is_some()
    }
}

/// The failed attempts of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempts {
    /// Backends on which it has failed since the last pause.
    failed: Vec<BackendId>,
    count: usize,
}

impl Attempts {
    pub(crate) fn add(&mut self, backend: BackendId) {
        self.failed.push(backend);
        self.count += 1;
    }

    pub(crate) fn contains(&self, backend: BackendId) -> bool {
        self.failed.contains(&backend)
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// All backends may be tried again.
    pub(crate) fn forget_backends(&mut self) {
        self.failed.clear();
    }
}
