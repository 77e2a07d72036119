//! Pauses of a thread before it waits for events, while many clients connect.

use std::time::{Duration, Instant};

/// Longest pause as a share of the time for which a connection is open: 1/16.
const PAUSE_SHARE: u32 = 16;
const PAUSE_MAX: Duration = Duration::from_micros(100);
/// Below this, a timer costs more than the pause saves.
const PAUSE_MIN: Duration = Duration::from_micros(20);
/// Longest mean time between new connections with pauses: 8,000 connections per second.
const GAP_MAX: Duration = Duration::from_micros(125);
/// Longest time since the last new connection with pauses.
const SILENCE_MAX: Duration = Duration::from_millis(1);
/// Weight of the last new connections in the mean: 1/16.
const MEAN_SHARE: u32 = 16;

/// Decides on pauses.
///
/// A thread that is faster than its clients has no work left after each new connection, sleeps, and is woken by the
/// packets of the next one. On the same machine, above all a virtual one, waking costs the sender 10 us, half as much as
/// the rest of its request. As network cards do with interrupts, the thread lets some connections arrive.
#[derive(Debug)]
pub(super) struct Coalescing {
    /// Mean time between new connections.
    gap: Duration,
    accepted_at: Instant,
}

impl Coalescing {
    pub(super) fn new(now: Instant) -> Self {
        Self { gap: SILENCE_MAX, accepted_at: now }
    }

    /// Records connections that were accepted together.
    pub(super) fn record(&mut self, accepted: u32, now: Instant) {
        let since = now.saturating_duration_since(self.accepted_at).min(SILENCE_MAX);
        let Some(gap) = since.checked_div(accepted) else { return };
        self.gap = (self.gap * (MEAN_SHARE - 1) + gap) / MEAN_SHARE;
        self.accepted_at = now;
    }

    /// Returns the pause, zero for none, given the number of open connections: by Little's law, each is open for that many
    /// gaps.
    pub(super) fn pause(&self, open: usize, now: Instant) -> Duration {
        let silence = now.saturating_duration_since(self.accepted_at);
        if self.gap > GAP_MAX || silence > SILENCE_MAX {
            return Duration::ZERO;
        }
        let open = u32::try_from(open).unwrap_or(u32::MAX);
        let pause = (self.gap.saturating_mul(open) / PAUSE_SHARE).min(PAUSE_MAX);
        if pause < PAUSE_MIN { Duration::ZERO } else { pause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// Coalescing after a second of new connections, `accepted` at a time with `gap` between.
    fn after(accepted: u32, gap: Duration) -> (Coalescing, Instant) {
        let mut now = Instant::now();
        let mut coalescing = Coalescing::new(now);
        for _ in 0..10_000 {
            now += gap;
            coalescing.record(accepted, now);
        }
        (coalescing, now)
    }

    #[test]
    fn pause_is_a_sixteenth_of_the_time_for_which_connections_are_open() {
        let (coalescing, now) = after(1, 40 * US);
        // Open for 400, 800 and 1,200 us, and for longer than 1,600.
        for (open, us) in [(10, 25), (20, 50), (30, 75), (41, 100), (usize::MAX, 100)] {
            let pause = coalescing.pause(open, now);
            assert!(pause.abs_diff(us * US) < US, "{open}: {pause:?}");
        }
        // A sixteenth of 280 us is too short.
        assert_eq!(coalescing.pause(7, now), Duration::ZERO);
        let (together, now) = after(4, 160 * US);
        assert!(together.pause(20, now).abs_diff(50 * US) < US);
    }

    #[test]
    fn no_pause_at_low_rates_of_new_connections() {
        let (at_start, now) = after(0, US);
        assert_eq!(at_start.pause(1_000, now), Duration::ZERO);
        let (slow, now) = after(1, 126 * US);
        assert_eq!(slow.pause(1_000, now), Duration::ZERO);
        let (fast, now) = after(1, 124 * US);
        assert_eq!(fast.pause(1_000, now), 100 * US);
        assert_eq!(fast.pause(1_000, now + 1_001 * US), Duration::ZERO);
    }

    #[test]
    fn pauses_end_soon_after_the_rate_has_fallen() {
        let (mut coalescing, mut now) = after(1, 30 * US);
        let mut slow = 0;
        while coalescing.pause(1_000, now) > Duration::ZERO {
            now += Duration::from_secs(1);
            coalescing.record(1, now);
            slow += 1;
        }
        // A second counts as a millisecond: means are 91 and 147 us.
        assert_eq!(slow, 2);
    }
}
