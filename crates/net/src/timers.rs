//! Times at which a thread has to act without an event.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Returns the time until the first of `times`; `None` without any.
pub fn time_until_first(
    times: impl IntoIterator<Item = Option<Instant>>,
    now: Instant,
) -> Option<Duration> {
    times.into_iter().flatten().min().map(|at| at.saturating_duration_since(now))
}

/// Regular check of all deadlines of a thread, which is cheaper than a timer for each while most of them move before they
/// expire. A deadline is enforced late by up to a quarter of the shortest timeout, a second at most.
#[derive(Debug)]
pub struct Sweep {
    period: Duration,
    at: Instant,
}

impl Sweep {
    const PERIOD_MIN: Duration = Duration::from_millis(10);
    const PERIOD_MAX: Duration = Duration::from_secs(1);

    /// Schedules the first check.
    pub fn new(timeouts: impl IntoIterator<Item = Duration>, now: Instant) -> Self {
        let shortest = timeouts.into_iter().min().unwrap_or(Duration::MAX);
        let period = (shortest / 4).clamp(Self::PERIOD_MIN, Self::PERIOD_MAX);
        Self { period, at: now + period }
    }

    /// Time of the next check.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// Returns true if deadlines are to be checked, and schedules the next check.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.at;
        if is_due {
            self.at = now + self.period;
        }
        is_due
    }
}

/// Keys that wait for a time each.
#[derive(Debug)]
pub struct Timers<K>(BTreeSet<(Instant, K)>);

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<K: Copy + Ord> Timers<K> {
    pub fn insert(&mut self, at: Instant, key: K) {
        self.0.insert((at, key));
    }

    /// Removes a timer that was set for this time, if it is not over.
    pub fn remove(&mut self, at: Instant, key: K) {
        self.0.remove(&(at, key));
    }

    /// Time of the first timer.
    pub fn first(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Time of the last timer.
    pub fn last(&self) -> Option<Instant> {
        self.0.last().map(|(at, _)| *at)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes the first timer that is over, and returns its key.
    pub fn pop_due(&mut self, now: Instant) -> Option<K> {
        let (at, key) = *self.0.first()?;
        if at > now {
            return None;
        }
        self.0.pop_first();
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn sweeps_come_four_times_per_shortest_timeout() {
        let start = Instant::now();
        let after =
            |timeouts: &[Duration]| Sweep::new(timeouts.iter().copied(), start).at() - start;
        assert_eq!(after(&[60_000 * MS, 1_000 * MS]), 250 * MS);
        assert_eq!(after(&[60_000 * MS]), 1_000 * MS);
        assert_eq!(after(&[60_000 * MS, Duration::ZERO]), 10 * MS);
        assert_eq!(after(&[]), 1_000 * MS);

        let mut sweep = Sweep::new([400 * MS], start);
        assert!(!sweep.is_due(start + 99 * MS));
        assert!(sweep.is_due(start + 130 * MS));
        assert_eq!(sweep.at(), start + 230 * MS);
    }

    #[test]
    fn first_of_several_times_is_awaited() {
        let now = Instant::now();
        assert_eq!(time_until_first([None, None], now), None);
        let times = [Some(now + 5 * MS), None, Some(now + 3 * MS)];
        assert_eq!(time_until_first(times, now), Some(3 * MS));
        assert_eq!(time_until_first([Some(now)], now + MS), Some(Duration::ZERO));
    }

    #[test]
    fn timers_end_in_the_order_of_their_times() {
        let start = Instant::now();
        let mut timers = Timers::default();
        for (ms, key) in [(3, 'c'), (1, 'a'), (2, 'x'), (2, 'b')] {
            timers.insert(start + ms * MS, key);
        }
        timers.remove(start + 2 * MS, 'x');
        assert_eq!((timers.first(), timers.last()), (Some(start + MS), Some(start + 3 * MS)));
        assert_eq!(timers.pop_due(start), None);
        assert_eq!(timers.pop_due(start + 2 * MS), Some('a'));
        assert_eq!(timers.pop_due(start + 2 * MS), Some('b'));
        assert_eq!(timers.pop_due(start + 2 * MS), None);
        assert_eq!((timers.len(), timers.is_empty()), (1, false));
    }
}
