//! Pauses of a thread before it waits for events, so that one wake-up serves several.
//!
//! A thread that is faster than its peers has no work left after each message, sleeps, and is woken by the next one. On the
//! same machine, above all a virtual one, waking costs the sender 10 us, half as much as the rest of its request. As network
//! cards do with interrupts, the thread lets some messages arrive, for a time too short to show beside the time for which
//! each waits anyway.

use std::time::{Duration, Instant};

const PAUSE_MAX: Duration = Duration::from_micros(100);
/// Below this, a timer costs more than the pause saves.
const PAUSE_MIN: Duration = Duration::from_micros(20);

/// Returns the pause at a share of `1 / share` of `time`; zero if it would be too short.
fn pause(time: Duration, share: u32) -> Duration {
    let pause = (time / share).min(PAUSE_MAX);
    if pause < PAUSE_MIN { Duration::ZERO } else { pause }
}

/// Pauses of a server while many clients connect.
#[derive(Debug)]
pub struct ArrivalCoalescing {
    /// Mean time between new connections.
    gap: Duration,
    accepted_at: Instant,
}

impl ArrivalCoalescing {
    /// Longest pause as a share of the time for which a connection is open: 1/16.
    const PAUSE_SHARE: u32 = 16;
    /// Longest mean time between new connections with pauses: 8,000 connections per second.
    const GAP_MAX: Duration = Duration::from_micros(125);
    /// Longest time since the last new connection with pauses.
    const SILENCE_MAX: Duration = Duration::from_millis(1);
    /// Weight of the last new connections in the mean: 1/16.
    const MEAN_SHARE: u32 = 16;

    pub fn new(now: Instant) -> Self {
        Self { gap: Self::SILENCE_MAX, accepted_at: now }
    }

    /// Records connections that were accepted together.
    pub fn record(&mut self, accepted: u32, now: Instant) {
        let since = now.saturating_duration_since(self.accepted_at).min(Self::SILENCE_MAX);
        let Some(gap) = since.checked_div(accepted) else { return };
        self.gap = (self.gap * (Self::MEAN_SHARE - 1) + gap) / Self::MEAN_SHARE;
        self.accepted_at = now;
    }

    /// Returns the pause, zero for none, given the number of open connections: by Little's law, each is open for that many
    /// gaps.
    pub fn pause(&self, open: usize, now: Instant) -> Duration {
        let silence = now.saturating_duration_since(self.accepted_at);
        if self.gap > Self::GAP_MAX || silence > Self::SILENCE_MAX {
            return Duration::ZERO;
        }
        let open = u32::try_from(open).unwrap_or(u32::MAX);
        pause(self.gap.saturating_mul(open), Self::PAUSE_SHARE)
    }
}

/// Pauses of a client over multiplexed connections. A server that writes each response by itself wakes a thread for the
/// first of many. Without a pause, the thread reads few responses at a time and sends as few requests, and both sides pay
/// more system calls and wake-ups for each.
#[derive(Debug, Default)]
pub struct ResponseCoalescing {
    /// Time to the head of a response. Follows quick responses at once and slow ones gradually, so that quick ones are
    /// not delayed among slow ones.
    latency: Duration,
}

impl ResponseCoalescing {
    /// Longest pause as a share of the latency: 1/128.
    const PAUSE_SHARE: u32 = 128;
    /// Growth with each slower response: 1/64.
    const GROWTH_SHARE: u32 = 64;

    /// Records the time from the send of a request to the head of its response.
    pub fn record(&mut self, latency: Duration) {
        let grown = self.latency + self.latency / Self::GROWTH_SHARE;
        self.latency = if self.latency.is_zero() { latency } else { latency.min(grown) };
    }

    /// Returns the pause, zero for none.
    pub fn pause(&self) -> Duration {
        pause(self.latency, Self::PAUSE_SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);
    const MS: Duration = Duration::from_millis(1);

    /// Coalescing after a second of new connections, `accepted` at a time with `gap` between.
    fn after(accepted: u32, gap: Duration) -> (ArrivalCoalescing, Instant) {
        let mut now = Instant::now();
        let mut coalescing = ArrivalCoalescing::new(now);
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
    fn pauses_end_soon_after_the_rate_of_new_connections_has_fallen() {
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

    #[test]
    fn pause_is_a_small_share_of_the_lower_latencies() {
        let mut coalescing = ResponseCoalescing::default();
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
}
