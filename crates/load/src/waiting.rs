//! Waits of a thread for the next request or event, and the offset between the clocks of sends and of receive timestamps.

use std::time::{Duration, Instant, SystemTime};

/// Time before a due request at which the thread wakes, if it has time to sleep. Well above the delay of a
/// timed wait after a long sleep, with cold caches (50 to 75 us).
pub(crate) const EARLY_WAKE: Duration = Duration::from_micros(80);

/// Length of the wait for the next due request.
///
/// A thread that sleeps until a request is due wakes some tens of microseconds late, and later after a
/// longer sleep. If there is time, the thread wakes early and polls until the request is due, so that
/// the request leaves within a few microseconds of its time. This costs at most the early time of CPU
/// per request, so requests with shorter gaps are not polled for.
#[derive(Debug)]
pub(crate) struct RequestWait {
    early: Duration,
    /// The request of the last call.
    due: Option<Instant>,
    /// True if the thread wakes early for it.
    is_early: bool,
}

impl RequestWait {
    /// Creates waits that end `early` before a request is due. Zero: when it is due.
    pub(crate) fn new(early: Duration) -> Self {
        Self { early, due: None, is_early: false }
    }

    /// Returns how long the poller may wait for the request that is due next. The first call for a
    /// request decides if the thread wakes early, however often responses end the wait. A thread polls
    /// only while it `is_idle`: otherwise the server may need its CPU.
    pub(crate) fn timeout(&mut self, due: Instant, now: Instant, is_idle: bool) -> Duration {
        let left = due.saturating_duration_since(now);
        if self.due != Some(due) {
            self.due = Some(due);
            self.is_early = left > 2 * self.early;
        }
        let left_early = left.saturating_sub(self.early);
        if self.is_early && (is_idle || !left_early.is_zero()) { left_early } else { left }
    }
}

/// Next action of a thread with timer slack after a turn of its event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    None,
    /// Sleeps, then processes all events that came meanwhile.
    Sleep(Duration),
    Event,
}

/// Waits of a thread with timer slack.
///
/// After a turn with work, the thread sleeps until the slack since its last wake-up is over. Responses
/// do not wake it, so that one wake-up serves all that arrived and fell due meanwhile. After a turn
/// without work it waits for events, so a low rate wakes no more often than its requests and responses
/// do.
#[derive(Debug)]
pub(crate) struct SlackWait {
    slack: Duration,
    /// End of the last sleep or wait.
    woke_at: Instant,
    /// True if the thread sent or received since.
    has_worked: bool,
}

impl SlackWait {
    pub(crate) fn new(slack: Duration, now: Instant) -> Self {
        Self { slack, woke_at: now, has_worked: false }
    }

    pub(crate) fn wake(&mut self, now: Instant) {
        self.woke_at = now;
        self.has_worked = false;
    }

    /// Returns the wait after a turn. `has_worked`: the turn sent or received; `has_more`: it left work.
    pub(crate) fn after_turn(&mut self, has_worked: bool, has_more: bool, now: Instant) -> Wait {
        self.has_worked |= has_worked;
        match (has_more, self.has_worked) {
            (true, _) => Wait::None,
            (false, false) => Wait::Event,
            (false, true) => {
                Wait::Sleep((self.woke_at + self.slack).saturating_duration_since(now))
            }
        }
    }
}

/// Pause of a closed loop over multiplexed connections before it waits for events.
///
/// A server that writes each response by itself wakes a thread for the first of many. Without a pause, the thread reads
/// few responses at a time and sends as few requests, and both sides pay more system calls and wake-ups for each. As
/// network cards do with interrupts, the thread lets some responses arrive: for a time too short beside the latency to
/// show in it, or to leave streams unused.
#[derive(Debug, Default)]
pub(crate) struct Coalescing {
    /// Time to the head of a response. Follows quick responses at once and slow ones gradually, so that quick ones are
    /// not delayed among slow ones.
    latency: Duration,
}

/// Longest pause as a share of the latency: 1/128.
const PAUSE_SHARE: u32 = 128;
const PAUSE_MAX: Duration = Duration::from_micros(100);
/// Below this, a timer costs more than the pause saves.
const PAUSE_MIN: Duration = Duration::from_micros(20);
/// Growth with each slower response: 1/64.
const GROWTH_SHARE: u32 = 64;

impl Coalescing {
    /// Records the time from the send of a request to the head of its response.
    pub(crate) fn record(&mut self, latency: Duration) {
        let grown = self.latency + self.latency / GROWTH_SHARE;
        self.latency = if self.latency.is_zero() { latency } else { latency.min(grown) };
    }

    /// Returns the pause, zero if it would be too short.
    pub(crate) fn pause(&self) -> Duration {
        let pause = (self.latency / PAUSE_SHARE).min(PAUSE_MAX);
        if pause < PAUSE_MIN { Duration::ZERO } else { pause }
    }
}

/// Offset between the kernel's time of day, which stamps received packets, and the monotonic clock.
/// Read at every wake-up, because the time of day may be adjusted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockOffset {
    monotonic: Instant,
    time_of_day: SystemTime,
}

/// Two readings within this time count as simultaneous.
const SIMULTANEOUS: Duration = Duration::from_micros(1);
/// Limit of attempts to read both clocks without an interruption between them.
const CLOCK_READS_MAX: usize = 4;

impl ClockOffset {
    pub(crate) fn read() -> Self {
        let mut best = Self { monotonic: Instant::now(), time_of_day: SystemTime::now() };
        let mut best_gap = best.monotonic.elapsed();
        for _ in 1..CLOCK_READS_MAX {
            if best_gap <= SIMULTANEOUS {
                break;
            }
            let read = Self { monotonic: Instant::now(), time_of_day: SystemTime::now() };
            let gap = read.monotonic.elapsed();
            if gap < best_gap {
                (best, best_gap) = (read, gap);
            }
        }
        best
    }

    /// Converts a receive timestamp. The result is kept within `earliest` and `latest`: an adjustment of
    /// the time of day between timestamp and reading would move it.
    pub(crate) fn to_instant(
        self,
        timestamp: SystemTime,
        earliest: Instant,
        latest: Instant,
    ) -> Instant {
        let instant = match self.time_of_day.duration_since(timestamp) {
            Ok(before) => self.monotonic.checked_sub(before),
            Err(ahead) => self.monotonic.checked_add(ahead.duration()),
        };
        instant.unwrap_or(latest).min(latest).max(earliest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn coalescing_pauses_for_a_small_share_of_the_lower_latencies() {
        let mut coalescing = Coalescing::default();
        let mut after = |count: usize, latency: Duration| {
            (0..count).for_each(|_| coalescing.record(latency));
            coalescing.pause()
        };
        assert_eq!(after(0, MS), Duration::ZERO);
        assert_eq!(after(1, 10_240 * US), 80 * US);
        // A quick response counts at once, a slow one for 1/64 more.
        assert_eq!(after(1, 3_200 * US), 25 * US);
        assert_eq!(after(1, 1000 * MS), 25 * US + 25 * US / 64);
        assert_eq!(after(1_000, 1000 * MS), PAUSE_MAX);
        assert_eq!(after(1, 2_500 * US), Duration::ZERO);
    }

    #[test]
    fn wakes_early_for_a_distant_request_and_then_polls() {
        let start = Instant::now();
        let mut wait = RequestWait::new(EARLY_WAKE);
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
        let mut wait = RequestWait::new(EARLY_WAKE);
        let due = start + 1000 * US;
        assert_eq!(wait.timeout(due, start, false), 920 * US);
        assert_eq!(wait.timeout(due, start + 920 * US, false), 80 * US);
        // The last response has arrived.
        assert_eq!(wait.timeout(due, start + 950 * US, true), Duration::ZERO);
    }

    #[test]
    fn sleeps_until_a_near_request_is_due() {
        let start = Instant::now();
        let mut wait = RequestWait::new(EARLY_WAKE);
        let near = start + 160 * US;
        assert_eq!(wait.timeout(near, start, true), 160 * US);
        assert_eq!(wait.timeout(near, start + 100 * US, true), 60 * US);
        assert_eq!(wait.timeout(near, start + 200 * US, true), Duration::ZERO);
        let mut never_early = RequestWait::new(Duration::ZERO);
        assert_eq!(never_early.timeout(start + 1000 * US, start, true), 1000 * US);
        assert_eq!(never_early.timeout(start + 1000 * US, start + 999 * US, true), US);
    }

    #[test]
    fn decides_to_wake_early_for_each_request() {
        let start = Instant::now();
        let mut wait = RequestWait::new(EARLY_WAKE);
        assert_eq!(wait.timeout(start + 161 * US, start, true), 81 * US);
        assert_eq!(wait.timeout(start + 100 * US, start, true), 100 * US);
        assert_eq!(wait.timeout(start + 400 * US, start + 161 * US, true), 159 * US);
    }

    #[test]
    fn slack_is_slept_after_turns_with_work() {
        let start = Instant::now();
        let mut wait = SlackWait::new(500 * US, start);
        assert_eq!(wait.after_turn(true, true, start + 100 * US), Wait::None);
        assert_eq!(wait.after_turn(false, false, start + 120 * US), Wait::Sleep(380 * US));
        wait.wake(start + 510 * US);
        assert_eq!(wait.after_turn(true, false, start + 510 * US), Wait::Sleep(500 * US));
        // A thread without time to sleep continues at once.
        assert_eq!(wait.after_turn(false, false, start + 1020 * US), Wait::Sleep(Duration::ZERO));
    }

    #[test]
    fn events_are_awaited_after_a_sleep_without_work() {
        let start = Instant::now();
        let mut wait = SlackWait::new(500 * US, start);
        assert_eq!(wait.after_turn(false, false, start), Wait::Event);
        assert_eq!(wait.after_turn(true, false, start), Wait::Sleep(500 * US));
        wait.wake(start + 500 * US);
        assert_eq!(wait.after_turn(false, false, start + 501 * US), Wait::Event);
    }

    #[test]
    fn clock_offset_converts_timestamps_within_bounds() {
        let monotonic = Instant::now();
        let time_of_day = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let offset = ClockOffset { monotonic, time_of_day };
        let (sent, now) = (monotonic - 5 * MS, monotonic + 2 * MS);
        assert_eq!(offset.to_instant(time_of_day - 3 * MS, sent, now), monotonic - 3 * MS);
        assert_eq!(offset.to_instant(time_of_day + MS, sent, now), monotonic + MS);
        // An adjusted time of day moves nothing before the send or after now.
        let hour = Duration::from_secs(3600);
        assert_eq!(offset.to_instant(time_of_day - hour, sent, now), sent);
        assert_eq!(offset.to_instant(time_of_day + hour, sent, now), now);
        assert_eq!(offset.to_instant(SystemTime::UNIX_EPOCH, sent, now), sent);
    }

    #[test]
    fn clock_offset_reads_both_clocks_at_once() {
        let offset = ClockOffset::read();
        let before = Instant::now();
        let time_of_day = SystemTime::now();
        let after = Instant::now();
        let instant = offset.to_instant(time_of_day, before - 1000 * MS, after + 1000 * MS);
        assert!(instant + 10 * MS >= before, "{:?}", before - instant);
        assert!(instant <= after + 10 * MS, "{:?}", instant - after);
    }
}
