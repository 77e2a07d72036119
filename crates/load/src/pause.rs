//! How long an open loop waits for the next request of its schedule.

use std::time::{Duration, Instant};

/// How long before a request is due the thread wakes, where it has time to sleep: well above what a
/// timed wait is late by after a long sleep, with caches that went cold (50 to 75 us).
pub(crate) const EARLY: Duration = Duration::from_micros(80);

/// The wait for one request after another.
///
/// A thread that sleeps until a request is due wakes some tens of microseconds after it, and the
/// longer it slept the later. So where there is time, it wakes [`EARLY`] and looks at the poller without
/// waiting from then on: the request leaves within a few microseconds of its moment, and answers are
/// handled as ever. That costs at most `EARLY` of CPU for each request, so a schedule with shorter gaps
/// goes without.
#[derive(Debug)]
pub(crate) struct Pause {
    early: Duration,
    /// The request that was asked for last.
    due: Option<Instant>,
    /// Whether it was far enough away to wake early for it.
    is_early: bool,
}

impl Pause {
    /// Waits that end so long before a request is due, where there is time.
    pub(crate) fn new(early: Duration) -> Self {
        Self { early, due: None, is_early: false }
    }

    /// How long the poller may wait for the request that is due next. What was decided when this was
    /// first asked for it stands, however often answers end the wait.
    pub(crate) fn until(&mut self, due: Instant, now: Instant) -> Duration {
        let left = due.saturating_duration_since(now);
        if self.due != Some(due) {
            self.due = Some(due);
            self.is_early = left > 2 * self.early;
        }
        if self.is_early { left.saturating_sub(self.early) } else { left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn a_request_that_is_far_away_is_woken_for_early_and_then_polled_for() {
        let start = Instant::now();
        let mut pause = Pause::new(EARLY);
        let due = start + 1000 * US;
        assert_eq!(pause.until(due, start), 920 * US);
        // An answer ends the wait, and the rest of it is as long.
        assert_eq!(pause.until(due, start + 300 * US), 620 * US);
        // Between twice EARLY and EARLY the first decision stands.
        assert_eq!(pause.until(due, start + 900 * US), 20 * US);
        for now in [920, 921, 999, 1000, 1001] {
            assert_eq!(pause.until(due, start + now * US), Duration::ZERO, "{now}");
        }
    }

    #[test]
    fn a_request_that_is_near_is_slept_for_until_it_is_due() {
        let start = Instant::now();
        let mut pause = Pause::new(EARLY);
        let near = start + 160 * US;
        assert_eq!(pause.until(near, start), 160 * US);
        assert_eq!(pause.until(near, start + 100 * US), 60 * US);
        assert_eq!(pause.until(near, start + 200 * US), Duration::ZERO);
    }

    #[test]
    fn without_an_early_waking_every_request_is_slept_for() {
        let start = Instant::now();
        let mut pause = Pause::new(Duration::ZERO);
        let due = start + 1000 * US;
        assert_eq!(pause.until(due, start), 1000 * US);
        assert_eq!(pause.until(due, start + 999 * US), US);
        assert_eq!(pause.until(due, start + 1001 * US), Duration::ZERO);
    }

    #[test]
    fn each_request_has_a_decision_of_its_own() {
        let start = Instant::now();
        let mut pause = Pause::new(EARLY);
        assert_eq!(pause.until(start + 161 * US, start), 81 * US);
        assert_eq!(pause.until(start + 100 * US, start), 100 * US);
        assert_eq!(pause.until(start + 400 * US, start + 161 * US), 159 * US);
    }
}
