//! Offsets between the monotonic clocks of two hosts.
//!
//! A reading of the remote clock, taken between a send and a receive, is off by at most half of the round trip. The
//! round trip with the shortest time gives the best bound.

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Round trips of one estimate.
pub const ROUND_TRIPS: usize = 50;

/// Reads the monotonic clock of this host, in nanoseconds.
pub fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has a monotonic clock");
    let (seconds, ns) = (time.tv_sec().unsigned_abs(), time.tv_nsec().unsigned_abs());
    seconds * 1_000_000_000 + ns
}

/// Both clocks at one time: the closest of a few readings, as the thread may lose its CPU between two.
fn both_now() -> (Instant, u64) {
    let reading = || {
        let (before_ns, now, after_ns) = (now_ns(), Instant::now(), now_ns());
        (after_ns - before_ns, now, before_ns)
    };
    let readings = (0..5).map(|_| reading());
    let (_, now, now_ns) = readings.min_by_key(|(taken_ns, ..)| *taken_ns).expect("five readings");
    (now, now_ns)
}

/// Converts a reading of the monotonic clock. Times before the start of the clock are now.
pub fn to_instant(at_ns: u64) -> Instant {
    let (now, now_ns) = both_now();
    match at_ns.checked_sub(now_ns) {
        Some(left) => now + Duration::from_nanos(left),
        None => now.checked_sub(Duration::from_nanos(now_ns - at_ns)).unwrap_or(now),
    }
}

/// Converts a time to a reading of the monotonic clock.
pub fn from_instant(at: Instant) -> u64 {
    let (now, now_ns) = both_now();
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    match at.checked_duration_since(now) {
        Some(left) => now_ns.saturating_add(nanos(left)),
        None => now_ns.saturating_sub(nanos(now - at)),
    }
}

/// One reading of a remote clock, in nanoseconds. `sent` and `received` are readings of the own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrip {
    pub sent_ns: u64,
    pub remote_ns: u64,
    pub received_ns: u64,
}

/// Offset of a remote clock: remote time minus own time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    pub offset_ns: i64,
    /// Shortest round trip. The error of the offset is at most half of it.
    pub round_trip_ns_min: u64,
    /// Median round trip.
    pub round_trip_ns_p50: u64,
    /// Own time of the estimate.
    pub at_ns: u64,
}

impl ClockOffset {
    /// Estimates the offset; `None` without round trips.
    pub fn estimate(round_trips: &[RoundTrip]) -> Option<Self> {
        let length = |trip: &RoundTrip| trip.received_ns.saturating_sub(trip.sent_ns);
        let best = round_trips.iter().min_by_key(|trip| length(trip))?;
        let mut lengths: Vec<u64> = round_trips.iter().map(length).collect();
        lengths.sort_unstable();
        let round_trip_ns_min = length(best);
        let middle_ns = best.sent_ns + round_trip_ns_min / 2;
        Some(Self {
            offset_ns: best.remote_ns.wrapping_sub(middle_ns).cast_signed(),
            round_trip_ns_min,
            round_trip_ns_p50: lengths[lengths.len() / 2],
            at_ns: middle_ns,
        })
    }

    /// Limit of the error of the offset.
    pub fn error_ns(&self) -> u64 {
        self.round_trip_ns_min.div_ceil(2)
    }

    /// Converts own time to remote time.
    pub fn to_remote(&self, own_ns: u64) -> u64 {
        own_ns.saturating_add_signed(self.offset_ns)
    }

    /// Converts remote time to own time.
    pub fn to_own(&self, remote_ns: u64) -> u64 {
        remote_ns.saturating_add_signed(self.offset_ns.saturating_neg())
    }

    /// Limit of the error of this offset until a later estimate.
    pub fn error_until(&self, later: &Self) -> Duration {
        let error_ns = self.offset_ns.abs_diff(later.offset_ns).saturating_add(later.error_ns());
        Duration::from_nanos(error_ns.max(self.error_ns()))
    }

    /// Change of the offset until a later estimate.
    pub fn drift(&self, later: &Self) -> Drift {
        Drift {
            change_ns: later.offset_ns.saturating_sub(self.offset_ns),
            error_ns: self.error_ns() + later.error_ns(),
            elapsed_ns: later.at_ns.saturating_sub(self.at_ns),
        }
    }
}

/// Change of an offset over a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    pub change_ns: i64,
    /// Limit of the error of the change.
    pub error_ns: u64,
    pub elapsed_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortest_round_trip_decides() {
        let trip = |sent_ns, remote_ns, received_ns| RoundTrip { sent_ns, remote_ns, received_ns };
        // The remote clock is 5,000 ahead. The second trip is short and asymmetric: 30 there, 10 back.
        let trips =
            [trip(1_000, 6_400, 1_500), trip(2_000, 7_030, 2_040), trip(3_000, 8_100, 3_900)];
        let offset = ClockOffset::estimate(&trips).unwrap();
        assert_eq!((offset.round_trip_ns_min, offset.round_trip_ns_p50), (40, 500));
        assert_eq!(offset.offset_ns, 5_010);
        assert!(offset.offset_ns.abs_diff(5_000) <= offset.error_ns());
        assert_eq!((offset.to_remote(100), offset.to_own(5_110)), (5_110, 100));
        assert_eq!(ClockOffset::estimate(&[]), None);
    }

    #[test]
    fn remote_clock_may_be_behind() {
        let trip = RoundTrip { sent_ns: 9_000, remote_ns: 4_010, received_ns: 9_020 };
        let offset = ClockOffset::estimate(&[trip]).unwrap();
        assert_eq!(offset.offset_ns, -5_000);
        assert_eq!((offset.to_remote(9_000), offset.to_own(4_000)), (4_000, 9_000));
    }

    #[test]
    fn drift_and_later_error_include_both_estimates() {
        let at = |offset_ns, round_trip_ns_min, at_ns| ClockOffset {
            offset_ns,
            round_trip_ns_min,
            round_trip_ns_p50: 0,
            at_ns,
        };
        let (first, later) = (at(100, 40, 0), at(-200, 60, 1_000_000));
        let drift = Drift { change_ns: -300, error_ns: 50, elapsed_ns: 1_000_000 };
        assert_eq!(first.drift(&later), drift);
        // At the end, the offset is wrong by the change and by the error of its estimate.
        assert_eq!(first.error_until(&later), Duration::from_nanos(330));
        // The first estimate was the worse one.
        assert_eq!(at(100, 900, 0).error_until(&at(100, 60, 9)), Duration::from_nanos(450));
    }

    #[test]
    fn instants_are_converted_both_ways() {
        let later = Instant::now() + Duration::from_secs(1);
        let back = to_instant(from_instant(later));
        let error = back.max(later) - back.min(later);
        assert!(error < Duration::from_millis(20), "{error:?}");
    }
}
