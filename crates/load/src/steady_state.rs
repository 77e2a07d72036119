//! End of a warm-up: figures of short slices of the load, until they are steady.

use std::time::{Duration, Instant};

use tollgate_stats::{STEADY_SLICES, is_steady};

use crate::summary::Progress;

const SLICE: Duration = Duration::from_millis(200);

/// Shortest time after which figures can be steady.
pub const STEADY_AFTER: Duration = SLICE.saturating_mul(STEADY_SLICES as u32);

/// Time without a response after which waiting for a steady state is pointless.
const SILENCE_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slice {
    pub length: Duration,
    /// Responses, expected or not.
    pub responses: u64,
    /// Sum of their latencies.
    pub latency_ns_sum: u64,
}

/// Waits until figures that the caller chooses are steady. Returns false after `limit`, or after 5 seconds without a
/// response. `sample` waits until a time, then reads the counts of the load and the caller's own counters;
/// `figures` makes the figures of a slice from it and the counters at both of its ends.
pub fn becomes_steady<C, E>(
    limit: Duration,
    mut sample: impl FnMut(Instant) -> Result<(Instant, Progress, C), E>,
    figures: impl Fn(&Slice, &C, &C) -> Vec<f64>,
) -> Result<bool, E> {
    let start = Instant::now();
    let mut state = SteadyState::default();
    let mut before = sample(start)?;
    while before.0 - start < limit && !state.is_steady() && !state.is_silent() {
        let now = sample(before.0 + SLICE)?;
        let slice = Slice::between(now.0 - before.0, &before.1, &now.1);
        state.add(&slice, &figures(&slice, &before.2, &now.2));
        before = now;
    }
    Ok(state.is_steady())
}

#[derive(Debug, Default)]
struct SteadyState {
    /// Values of each figure over the comparable slices.
    figures: Vec<Vec<f64>>,
    /// Time since the last response.
    silence: Duration,
}

impl Slice {
    /// Creates the slice between two readings of the progress.
    fn between(length: Duration, before: &Progress, after: &Progress) -> Self {
        Self {
            length,
            responses: after.responses - before.responses,
            latency_ns_sum: after.latency_ns_sum - before.latency_ns_sum,
        }
    }

    pub fn throughput_per_s(&self) -> f64 {
        self.responses as f64 / self.length.as_secs_f64()
    }

    /// Mean latency; `None` without a response.
    pub fn latency_ns_mean(&self) -> Option<f64> {
        (self.responses > 0).then(|| self.latency_ns_sum as f64 / self.responses as f64)
    }
}

impl SteadyState {
    /// Adds a slice and its figures. A slice without a response, or with another number of figures,
    /// restarts the comparison.
    fn add(&mut self, slice: &Slice, figures: &[f64]) {
        if slice.responses == 0 {
            self.figures.clear();
            self.silence += slice.length;
            return;
        }
        self.silence = Duration::ZERO;
        if self.figures.len() != figures.len() {
            self.figures = vec![Vec::new(); figures.len()];
        }
        for (values, value) in self.figures.iter_mut().zip(figures) {
            values.push(*value);
        }
    }

    fn is_silent(&self) -> bool {
        self.silence >= SILENCE_MAX
    }

    /// True if there are figures and all are steady.
    fn is_steady(&self) -> bool {
        !self.figures.is_empty() && self.figures.iter().all(|values| is_steady(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_ends_when_steady_at_its_limit_or_in_silence() {
        let wait = |limit, per_slice: u64| {
            let mut samples = 0;
            let sample = |due| {
                let progress = Progress { responses: samples * per_slice, ..Progress::default() };
                samples += 1;
                Ok::<_, ()>((due, progress, ()))
            };
            let steady =
                becomes_steady(limit, sample, |slice, (), ()| vec![slice.throughput_per_s()]);
            (steady, samples)
        };
        assert_eq!(wait(Duration::from_secs(10), 100), (Ok(true), 6));
        assert_eq!(wait(Duration::from_millis(600), 100), (Ok(false), 4));
        assert_eq!(wait(Duration::from_secs(60), 0), (Ok(false), 26));
    }

    /// Slices of 200 ms with a number of responses and the latency of each.
    fn steady_state(slices: &[(u64, u64)]) -> SteadyState {
        let mut state = SteadyState::default();
        for (responses, latency_ns) in slices {
            let slice = Slice {
                length: SLICE,
                responses: *responses,
                latency_ns_sum: responses * latency_ns,
            };
            state.add(&slice, &[slice.throughput_per_s(), slice.latency_ns_mean().unwrap_or(0.0)]);
        }
        state
    }

    #[test]
    fn steady_when_every_figure_is() {
        assert!(steady_state(&[(100, 500); 5]).is_steady());
        assert!(!steady_state(&[(100, 500); 4]).is_steady());
        let with_last = |last| [(100, 500), (100, 500), (100, 500), (100, 500), last];
        assert!(!steady_state(&with_last((100, 700))).is_steady());
        assert!(!steady_state(&with_last((60, 500))).is_steady());
        assert!(!SteadyState::default().is_steady());
    }

    #[test]
    fn slice_is_the_difference_of_two_readings() {
        let before = Progress { responses: 10, latency_ns_sum: 1_000, ..Progress::default() };
        let after = Progress { responses: 110, latency_ns_sum: 51_000, ..Progress::default() };
        let slice = Slice::between(SLICE, &before, &after);
        assert_eq!((slice.throughput_per_s(), slice.latency_ns_mean()), (500.0, Some(500.0)));
        assert_eq!(Slice::between(SLICE, &after, &after).latency_ns_mean(), None);
    }

    #[test]
    fn silent_after_five_seconds_without_a_response() {
        // 25 slices of 200 ms are five seconds.
        assert!(steady_state(&[(0, 0); 25]).is_silent());
        assert!(!steady_state(&[(0, 0); 24]).is_silent());
        let mut interrupted = [(0, 0); 26];
        interrupted[13] = (1, 500);
        assert!(!steady_state(&interrupted).is_silent());
    }

    #[test]
    fn comparison_restarts_after_silence_and_with_another_number_of_figures() {
        let gap = [(100, 500), (100, 500), (100, 500), (0, 0), (100, 500), (100, 500)];
        assert!(!steady_state(&gap).is_steady());
        let mut state = steady_state(&[(100, 500); 5]);
        state.add(&Slice { length: SLICE, responses: 100, latency_ns_sum: 50_000 }, &[1.0]);
        assert!(!state.is_steady());
    }
}
