//! The kernel's time of day on the clock that all else is timed by.

use std::time::{Duration, Instant, SystemTime};

/// Both clocks, read at the same moment. Read anew at every waking, so that the time of day may be
/// adjusted meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    steady: Instant,
    of_day: SystemTime,
}

/// Two readings this close are of the same moment.
const CLOSE: Duration = Duration::from_micros(1);
/// How often they are tried for: something may come between once, but hardly each time.
const TRIES_MAX: usize = 4;

impl Clocks {
    /// Reads both.
    pub(crate) fn read() -> Self {
        let mut best = Self { steady: Instant::now(), of_day: SystemTime::now() };
        let mut gap = best.steady.elapsed();
        for _ in 1..TRIES_MAX {
            if gap <= CLOSE {
                break;
            }
            let steady = Instant::now();
            let of_day = SystemTime::now();
            let taken = steady.elapsed();
            if taken < gap {
                (best, gap) = (Self { steady, of_day }, taken);
            }
        }
        best
    }

    /// When it was `of_day`, not before `earliest` nor after `latest`: a step of the time of day
    /// between the stamp and the reading would move it that far.
    pub(crate) fn instant_of(
        &self,
        of_day: SystemTime,
        earliest: Instant,
        latest: Instant,
    ) -> Instant {
        let moment = match self.of_day.duration_since(of_day) {
            Ok(before) => self.steady.checked_sub(before),
            Err(ahead) => self.steady.checked_add(ahead.duration()),
        };
        // A moment that the clock cannot tell is as wrong as one after `latest`.
        moment.unwrap_or(latest).min(latest).max(earliest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_time_of_day_is_as_long_ago_as_it_was() {
        let steady = Instant::now();
        let of_day = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let clocks = Clocks { steady, of_day };
        let (sent, now) = (steady - 5 * MS, steady + 2 * MS);
        assert_eq!(clocks.instant_of(of_day - 3 * MS, sent, now), steady - 3 * MS);
        assert_eq!(clocks.instant_of(of_day + MS, sent, now), steady + MS);
    }

    #[test]
    fn a_step_of_the_time_of_day_moves_nothing_before_the_send_or_after_now() {
        let steady = Instant::now();
        let of_day = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let clocks = Clocks { steady, of_day };
        let (sent, now) = (steady - 5 * MS, steady + 2 * MS);
        let hour = Duration::from_secs(3600);
        assert_eq!(clocks.instant_of(of_day - hour, sent, now), sent);
        assert_eq!(clocks.instant_of(of_day + hour, sent, now), now);
        assert_eq!(clocks.instant_of(SystemTime::UNIX_EPOCH, sent, now), sent);
    }

    #[test]
    fn both_clocks_are_read_together() {
        let clocks = Clocks::read();
        let before = Instant::now();
        let of_day = SystemTime::now();
        let after = Instant::now();
        let (earliest, latest) = (before - 1000 * MS, after + 1000 * MS);
        let moment = clocks.instant_of(of_day, earliest, latest);
        // As exact as the pair is, however long it takes to read the other clocks.
        assert!(moment + 10 * MS >= before, "{:?}", before - moment);
        assert!(moment <= after + 10 * MS, "{:?}", moment - after);
    }
}
