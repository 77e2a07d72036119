//! When the requests of an open loop are due.

use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::plan::Spacing;

/// The moments at which one thread's requests are due, counted from the start of the schedule;
/// endless, and the same again for every clone.
#[derive(Clone, Debug)]
pub(crate) enum Schedule {
    Constant {
        /// Between two requests of all threads, in nanoseconds.
        gap_ns: f64,
        /// The next one's number among those of all threads.
        number: u64,
        threads: u64,
    },
    Poisson {
        /// Between two requests of this thread, in nanoseconds, on average.
        mean_gap_ns: f64,
        at_ns: f64,
        random: Box<ChaCha8Rng>,
    },
}

impl Schedule {
    /// One thread's part of a schedule of this many requests a second over all threads.
    ///
    /// At constant gaps the threads take turns. Poisson processes add up to a Poisson process, so
    /// each thread draws one of its own.
    pub(crate) fn new(per_second: f64, spacing: Spacing, thread: usize, threads: usize) -> Self {
        let (thread, threads) = (thread as u64, threads as u64);
        match spacing {
            Spacing::Constant => {
                Self::Constant { gap_ns: NANOS_PER_SECOND / per_second, number: thread, threads }
            }
            Spacing::Poisson { seed } => {
                let mut random = Box::new(ChaCha8Rng::seed_from_u64(seed));
                random.set_stream(thread);
                let mean_gap_ns = NANOS_PER_SECOND * threads as f64 / per_second;
                Self::Poisson { mean_gap_ns, at_ns: 0.0, random }
            }
        }
    }

    /// The next moment.
    pub(crate) fn advance(&mut self) -> Duration {
        match self {
            Self::Constant { gap_ns, number, threads } => {
                // A product, and not a sum, so that errors of rounding do not add up.
                let at_ns = *number as f64 * *gap_ns;
                *number += *threads;
                nanos(at_ns)
            }
            Self::Poisson { mean_gap_ns, at_ns, random } => {
                // Inversion of the exponential distribution; the draw is below 1, so its
                // complement is above 0.
                let draw: f64 = random.random();
                *at_ns -= (1.0 - draw).ln() * *mean_gap_ns;
                nanos(*at_ns)
            }
        }
    }
}

const NANOS_PER_SECOND: f64 = 1e9;

/// Positive, and rounded to the nanosecond; what exceeds 584 years is as good as never.
fn nanos(ns: f64) -> Duration {
    Duration::from_nanos(ns.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments_ns(schedule: &mut Schedule, count: usize) -> Vec<u128> {
        (0..count).map(|_| schedule.advance().as_nanos()).collect()
    }

    #[test]
    fn constant_gaps_do_not_drift() {
        let mut schedule = Schedule::new(3.0, Spacing::Constant, 0, 1);
        let moments = moments_ns(&mut schedule, 3_000_001);
        assert_eq!(moments[..4], [0, 333_333_333, 666_666_667, 1_000_000_000]);
        assert_eq!(moments[3_000_000], 1_000_000_000_000_000);
    }

    #[test]
    fn threads_take_turns() {
        let of = |thread| moments_ns(&mut Schedule::new(1000.0, Spacing::Constant, thread, 2), 3);
        assert_eq!(of(0), [0, 2_000_000, 4_000_000]);
        assert_eq!(of(1), [1_000_000, 3_000_000, 5_000_000]);
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let n = 200_000_u32;
        let spacing = Spacing::Poisson { seed: 1 };
        let moments = moments_ns(&mut Schedule::new(1000.0, spacing, 1, 2), n as usize);
        let mut gaps: Vec<f64> =
            moments.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 2e6).collect();
        gaps.sort_by(f64::total_cmp);
        // Kolmogorov and Smirnov: the largest distance from 1 - exp(-x) stays below 1.63 / sqrt(n)
        // in 99 % of all draws; the seed is fixed, so this is one draw.
        let count = gaps.len() as f64;
        let distance = gaps
            .iter()
            .enumerate()
            .map(|(rank, gap)| ((rank as f64 + 0.5) / count - (1.0 - (-gap).exp())).abs())
            .fold(0.0, f64::max);
        assert!(distance < 1.63 / count.sqrt(), "{distance}");
    }

    #[test]
    fn seeds_and_threads_draw_apart_and_clones_alike() {
        let of = |seed, thread| Schedule::new(10.0, Spacing::Poisson { seed }, thread, 2);
        let first = moments_ns(&mut of(1, 0), 5);
        assert_eq!(first, moments_ns(&mut of(1, 0).clone(), 5));
        assert_ne!(first, moments_ns(&mut of(2, 0), 5));
        assert_ne!(first, moments_ns(&mut of(1, 1), 5));
    }
}
