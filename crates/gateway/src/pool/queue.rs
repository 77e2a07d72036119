//! Who waits for a connection to a backend, as none that it may go to has room.

use std::collections::VecDeque;

use super::Tried;
use super::hash::Key;

/// One of the queues of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane(pub(super) usize);

/// The queues of one thread for one pool, each in order of arrival: one for all, or one a backend where
/// requests have to stay together. How long somebody may wait is theirs to know.
#[derive(Debug)]
pub(super) struct Queues<W> {
    lanes: Box<[VecDeque<Waiting<W>>]>,
    /// How many may wait for each backend.
    max: usize,
}

/// Somebody who waits, and what decides about where they may go.
#[derive(Debug)]
pub(super) struct Waiting<W> {
    pub(super) waiter: W,
    pub(super) key: Key,
    pub(super) tried: Tried,
}

impl<W: PartialEq> Queues<W> {
    pub(super) fn new(lanes: usize, max: usize) -> Self {
        Self { lanes: (0..lanes).map(|_| VecDeque::new()).collect(), max }
    }

    pub(super) fn are_empty(&self) -> bool {
        self.lanes.iter().all(VecDeque::is_empty)
    }

    /// How many wait there.
    pub(super) fn len(&self, lane: Lane) -> usize {
        self.lanes[lane.0].len()
    }

    /// Whether one more may wait there, which is for so many backends.
    pub(super) fn have_room(&self, lane: Lane, backends: usize) -> bool {
        self.len(lane) < self.max.saturating_mul(backends)
    }

    /// One more waits. Only where there is room.
    pub(super) fn push(&mut self, lane: Lane, waiting: Waiting<W>) {
        self.lanes[lane.0].push_back(waiting);
    }

    /// Who has waited longest there of those who find a place to go, with that place.
    pub(super) fn pop_first<Place>(
        &mut self,
        lane: Lane,
        mut find: impl FnMut(&Waiting<W>) -> Option<Place>,
    ) -> Option<(W, Place)> {
        let queue = &mut self.lanes[lane.0];
        let (at, place) =
            queue.iter().enumerate().find_map(|(at, waiting)| Some((at, find(waiting)?)))?;
        Some((queue.remove(at)?.waiter, place))
    }

    /// Somebody waits no more. Whether they did.
    pub(super) fn leave(&mut self, lane: Lane, waiter: &W) -> bool {
        let queue = &mut self.lanes[lane.0];
        let place = queue.iter().position(|other| other.waiter == *waiter);
        place.and_then(|at| queue.remove(at)).is_some()
    }
}
