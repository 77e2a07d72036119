//! Connections that wait for a moment.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// Moments and who waits for them. A connection that is gone leaves its moment here until that comes,
/// or until [`prune`](Self::prune).
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, usize)>>,
}

/// Below this number no moment is worth looking for.
const PRUNE_MIN: usize = 1024;

impl Timers {
    /// `key` waits for `at`.
    pub(crate) fn add(&mut self, at: Instant, key: usize) {
        self.heap.push(Reverse((at, key)));
    }

    /// The next moment.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// One whose moment has come, with the moment.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(Instant, usize)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(due)| due)
    }

    /// Forgets the moments that nobody waits for any more, once there are many more moments than
    /// connections.
    pub(crate) fn prune(&mut self, connections: usize, waits: impl Fn(Instant, usize) -> bool) {
        if self.heap.len() > PRUNE_MIN.max(2 * connections) {
            self.heap.retain(|Reverse((at, key))| waits(*at, *key));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn moments_come_in_order_and_not_before_their_time() {
        let start = Instant::now();
        let at = |micros| start + Duration::from_micros(micros);
        let mut timers = Timers::default();
        assert_eq!((timers.next(), timers.pop_due(at(9))), (None, None));
        for (micros, key) in [(30, 1), (10, 2), (20, 3), (10, 4)] {
            timers.add(at(micros), key);
        }
        assert_eq!((timers.next(), timers.pop_due(at(9))), (Some(at(10)), None));
        let due: Vec<usize> =
            std::iter::from_fn(|| timers.pop_due(at(20)).map(|(_, key)| key)).collect();
        assert_eq!(due, [2, 4, 3]);
        assert_eq!(timers.pop_due(at(30)), Some((at(30), 1)));
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn moments_that_nobody_waits_for_do_not_pile_up() {
        let at = Instant::now();
        let mut timers = Timers::default();
        (0..=PRUNE_MIN).for_each(|key| timers.add(at, key));
        timers.prune(PRUNE_MIN, |_, _| false);
        assert_eq!(timers.heap.len(), PRUNE_MIN + 1);
        timers.prune(10, |_, key| key < 10);
        assert_eq!(timers.heap.len(), 10);
    }
}
