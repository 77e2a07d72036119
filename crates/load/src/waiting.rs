//! Waits of a thread for the next request or event.

use std::time::{Duration, Instant};

/// Time before a due request at which the thread wakes, if it has time to sleep. Well above the delay of a
/// timed wait after a long sleep, with cold caches (50 to 75 us).
const EARLY_WAKE: Duration = Duration::from_micros(80);

/// Length of the wait for the next due request.
///
/// A thread that sleeps until a request is due wakes some tens of microseconds late, and later after a
/// longer sleep. If there is time, the thread wakes early and polls until the request is due, so that
/// the request leaves within a few microseconds of its time. This costs at most the early time of CPU
/// per request, so requests with shorter gaps are not polled for.
#[derive(Debug, Default)]
pub(crate) struct RequestWait {
    /// The request of the last call.
    due: Option<Instant>,
    /// True if the thread wakes early for it.
    is_early: bool,
}

impl RequestWait {
    /// Returns how long the poller may wait for the request that is due next. The first call for a
    /// request decides if the thread wakes early, however often responses end the wait. A thread polls
    /// only while it `is_idle`: otherwise the server may need its CPU.
    pub(crate) fn timeout(&mut self, due: Instant, now: Instant, is_idle: bool) -> Duration {
        let left = due.saturating_duration_since(now);
        if self.due != Some(due) {
            self.due = Some(due);
            self.is_early = left > 2 * EARLY_WAKE;
        }
        let left_early = left.saturating_sub(EARLY_WAKE);
        if self.is_early && (is_idle || !left_early.is_zero()) { left_early } else { left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn wakes_early_for_a_distant_request_and_then_polls() {
        let start = Instant::now();
        let mut wait = RequestWait::default();
        let due = start + 1000 * US;
        assert_eq!(wait.timeout(due, start, true), 920 * US);
        // A response ends the wait; the rest of it is unchanged.
        assert_eq!(wait.timeout(due, start + 300 * US, true), 620 * US);
        // Between twice the early time and the early time the first decision holds.
        assert_eq!(wait.timeout(due, start + 900 * US, true), 20 * US);
        for now in [920, 921, 999, 1000, 1001] {
            assert_eq!(wait.timeout(due, start + now * US, true), Duration::ZERO, "{now}");
        }
    }

    #[test]
    fn does_not_poll_while_requests_are_in_flight() {
        let start = Instant::now();
        let mut wait = RequestWait::default();
        let due = start + 1000 * US;
        assert_eq!(wait.timeout(due, start, false), 920 * US);
        assert_eq!(wait.timeout(due, start + 920 * US, false), 80 * US);
        // The last response has arrived.
        assert_eq!(wait.timeout(due, start + 950 * US, true), Duration::ZERO);
    }

    #[test]
    fn sleeps_until_a_near_request_is_due() {
        let start = Instant::now();
        let mut wait = RequestWait::default();
        let near = start + 160 * US;
        assert_eq!(wait.timeout(near, start, true), 160 * US);
        assert_eq!(wait.timeout(near, start + 100 * US, true), 60 * US);
        assert_eq!(wait.timeout(near, start + 200 * US, true), Duration::ZERO);
    }

    #[test]
    fn decides_to_wake_early_for_each_request() {
        let start = Instant::now();
        let mut wait = RequestWait::default();
        assert_eq!(wait.timeout(start + 161 * US, start, true), 81 * US);
        assert_eq!(wait.timeout(start + 100 * US, start, true), 100 * US);
        assert_eq!(wait.timeout(start + 400 * US, start + 161 * US, true), 159 * US);
    }
}
