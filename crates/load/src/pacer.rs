//! Keeping to a schedule: which request is due, and how late that was seen.

use std::time::{Duration, Instant};

use crate::schedule::Schedule;

/// One thread's way along its schedule.
///
/// A request that finds no free connection when it is due is *held*. Held requests are not stored:
/// the schedule is walked twice, once by what is sent, and once, ahead of it, by what has been seen
/// to be due, so memory stays the same however long a server stalls.
#[derive(Debug)]
pub(crate) struct Pacer {
    to_send: Cursor,
    to_see: Cursor,
}

/// A request that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) scheduled: Instant,
    /// It had been seen to be due before, while no connection was free.
    pub(crate) was_held: bool,
}

/// A place in the schedule.
#[derive(Clone, Debug)]
struct Cursor {
    schedule: Schedule,
    start: Instant,
    /// How many requests lie before this place.
    passed: u64,
    /// How many there are in all; `None` for no end.
    limit: Option<u64>,
    /// When the request at this place is due; `None` after the last one.
    next: Option<Instant>,
}

impl Pacer {
    /// A schedule that begins at `start` and has `limit` requests.
    pub(crate) fn new(schedule: Schedule, start: Instant, limit: Option<u64>) -> Self {
        let mut to_send = Cursor { schedule, start, passed: 0, limit, next: None };
        to_send.look();
        Self { to_see: to_send.clone(), to_send }
    }

    /// When the next request is due that has not been sent; `None` when all have been.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.to_send.next
    }

    /// When the next request is due that is not held.
    pub(crate) fn next_unseen(&self) -> Option<Instant> {
        self.to_see.next
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.to_send.next.is_some_and(|next| next <= now)
    }

    /// Takes the next request if it is due.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Due> {
        let scheduled = self.to_send.next.filter(|next| *next <= now)?;
        let was_held = self.to_see.passed > self.to_send.passed;
        if !was_held {
            self.to_see.step();
        }
        self.to_send.step();
        Some(Due { scheduled, was_held })
    }

    /// Holds what is due and not held yet; `on_held` is told of each how long it has been due.
    pub(crate) fn hold(&mut self, now: Instant, mut on_held: impl FnMut(Duration)) {
        while let Some(scheduled) = self.to_see.next.filter(|next| *next <= now) {
            on_held(now - scheduled);
            self.to_see.step();
        }
    }

    /// Nothing more is due.
    pub(crate) fn end(&mut self) {
        self.to_send.next = None;
        self.to_see = self.to_send.clone();
    }

    /// Ends the schedule: how many requests were due and never taken, and since when the oldest.
    pub(crate) fn overdue(mut self, now: Instant) -> (u64, Option<Duration>) {
        let oldest = self.to_send.next.filter(|next| *next <= now).map(|next| now - next);
        // What is held has been counted already, however much it is.
        self.hold(now, |_| {});
        (self.to_see.passed - self.to_send.passed, oldest)
    }
}

impl Cursor {
    fn step(&mut self) {
        self.passed += 1;
        self.look();
    }

    fn look(&mut self) {
        let is_over = self.limit.is_some_and(|limit| self.passed >= limit);
        self.next = if is_over { None } else { Some(self.start + self.schedule.advance()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Spacing;

    const MS: Duration = Duration::from_millis(1);

    /// One request a millisecond.
    fn pacer(start: Instant, limit: Option<u64>) -> Pacer {
        Pacer::new(Schedule::new(1000.0, Spacing::Constant, 0, 1), start, limit)
    }

    fn due(scheduled: Instant, was_held: bool) -> Option<Due> {
        Some(Due { scheduled, was_held })
    }

    #[test]
    fn requests_are_taken_when_they_are_due_and_not_before() {
        let start = Instant::now();
        let mut pacer = pacer(start, None);
        assert_eq!(pacer.take(start), due(start, false));
        assert_eq!(pacer.take(start + MS / 2), None);
        assert_eq!(pacer.next(), Some(start + MS));
        assert_eq!(pacer.take(start + 2 * MS), due(start + MS, false));
        assert_eq!(pacer.take(start + 2 * MS), due(start + 2 * MS, false));
        assert_eq!(pacer.take(start + 2 * MS), None);
    }

    #[test]
    fn held_requests_keep_their_moment_and_are_seen_once() {
        let start = Instant::now();
        let mut pacer = pacer(start, None);
        let mut held = Vec::new();
        pacer.hold(start + MS, |late| held.push(late));
        pacer.hold(start + MS, |late| held.push(late));
        pacer.hold(start + 2 * MS, |late| held.push(late));
        assert_eq!(held, [MS, Duration::ZERO, Duration::ZERO]);
        assert_eq!(pacer.next_unseen(), Some(start + 3 * MS));
        let now = start + 5 * MS;
        for (place, was_held) in [(0, true), (1, true), (2, true), (3, false)] {
            assert_eq!(pacer.take(now), due(start + place * MS, was_held));
        }
        assert_eq!(pacer.next_unseen(), Some(start + 4 * MS));
    }

    #[test]
    fn a_schedule_ends_and_counts_what_it_owes() {
        let start = Instant::now();
        let mut short = pacer(start, Some(2));
        assert!(short.take(start).is_some());
        assert!(short.take(start + 9 * MS).is_some());
        assert_eq!((short.take(start + 9 * MS), short.next()), (None, None));
        assert_eq!(short.overdue(start + 9 * MS), (0, None));

        assert_eq!(pacer(start, Some(5)).overdue(start + 2 * MS), (3, Some(2 * MS)));
        assert_eq!(pacer(start, Some(2)).overdue(start + 9 * MS), (2, Some(9 * MS)));
        let mut begun = pacer(start, None);
        begun.take(start);
        begun.hold(start + 3 * MS, |_| {});
        assert_eq!(begun.overdue(start + 3 * MS), (3, Some(2 * MS)));
    }
}
