//! Whether a warm-up is over: figures of the load, slice by slice, until they stand still.

use crate::outcome::Progress;
use std::time::Duration;
use tollgate_stats::{STEADY_SLICES, is_steady};

/// How long figures are added up before they are compared.
pub const SLICE: Duration = Duration::from_millis(200);

/// How long figures have to be looked at before they can stand still.
pub const STEADY_AFTER: Duration = SLICE.saturating_mul(STEADY_SLICES as u32);

/// How long to go on where nothing is answered: what has not answered by then is not warming up.
const SILENT_LONGEST: Duration = Duration::from_secs(5);

/// What came of one slice of a warm-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slice {
    /// How long it was.
    pub lasted: Duration,
    /// Answers in it, expected or not.
    pub answered: u64,
    /// The latencies of those added up, in nanoseconds.
    pub latency_ns_sum: u64,
}

/// The figures of a warm-up, slice by slice. Which figures they are is the caller's choice.
#[derive(Debug, Default)]
pub struct Slices {
    /// The values of each figure, of the slices that can be compared.
    figures: Vec<Vec<f64>>,
    /// How long nothing has been answered.
    silent: Duration,
}

impl Slice {
    /// The slice between two looks at the progress.
    #[must_use]
    pub fn between(lasted: Duration, before: &Progress, after: &Progress) -> Self {
        Self {
            lasted,
            answered: after.answered - before.answered,
            latency_ns_sum: after.latency_ns_sum - before.latency_ns_sum,
        }
    }

    /// Answers a second.
    #[must_use]
    pub fn throughput_per_s(&self) -> f64 {
        self.answered as f64 / self.lasted.as_secs_f64()
    }

    /// The mean latency in nanoseconds; none without an answer.
    #[must_use]
    pub fn latency_ns_mean(&self) -> Option<f64> {
        (self.answered > 0).then(|| self.latency_ns_sum as f64 / self.answered as f64)
    }
}

impl Slices {
    /// Adds a slice with the figures that are to stand still. A slice without an answer has none, and
    /// nothing before it is compared with what comes after it; nor where a figure came or went.
    pub fn add(&mut self, slice: &Slice, figures: &[f64]) {
        if slice.answered == 0 {
            self.figures.clear();
            self.silent += slice.lasted;
            return;
        }
        self.silent = Duration::ZERO;
        if self.figures.len() != figures.len() {
            self.figures = vec![Vec::new(); figures.len()];
        }
        for (values, value) in self.figures.iter_mut().zip(figures) {
            values.push(*value);
        }
    }

    /// Whether nothing has been answered for so long that nothing is to be waited for.
    #[must_use]
    pub fn are_silent(&self) -> bool {
        self.silent >= SILENT_LONGEST
    }

    /// Whether every figure stands still; where there is none, nothing does.
    #[must_use]
    pub fn are_steady(&self) -> bool {
        !self.figures.is_empty() && self.figures.iter().all(|values| is_steady(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slices of 200 ms, each with so many answers of so many nanoseconds.
    fn slices(each: &[(u64, u64)]) -> Slices {
        let mut slices = Slices::default();
        let mut before = Progress::default();
        for (answers, latency_ns) in each {
            let mut after = before;
            after.answered += answers;
            after.latency_ns_sum += answers * latency_ns;
            let slice = Slice::between(SLICE, &before, &after);
            slices.add(&slice, &[slice.throughput_per_s(), slice.latency_ns_mean().unwrap_or(0.0)]);
            before = after;
        }
        slices
    }

    #[test]
    fn slices_are_steady_when_every_figure_stands_still() {
        assert!(slices(&[(100, 500); 5]).are_steady());
        assert!(!slices(&[(100, 500); 4]).are_steady());
        assert!(
            !slices(&[(100, 500), (100, 500), (100, 500), (100, 500), (100, 700)]).are_steady()
        );
        assert!(!slices(&[(100, 500), (100, 500), (100, 500), (100, 500), (60, 500)]).are_steady());
        assert!(!Slices::default().are_steady());
    }

    #[test]
    fn a_slice_is_what_came_between_two_looks() {
        let before = Progress { answered: 10, latency_ns_sum: 1_000, ..Progress::default() };
        let after = Progress { answered: 110, latency_ns_sum: 51_000, ..Progress::default() };
        let slice = Slice::between(SLICE, &before, &after);
        assert_eq!((slice.throughput_per_s(), slice.latency_ns_mean()), (500.0, Some(500.0)));
        assert_eq!(Slice::between(SLICE, &after, &after).latency_ns_mean(), None);
    }

    #[test]
    fn five_seconds_without_an_answer_are_silence() {
        // 25 slices of 200 ms are five seconds.
        assert!(slices(&[(0, 0); 25]).are_silent());
        assert!(!slices(&[(0, 0); 24]).are_silent());
        let mut interrupted = [(0, 0); 26];
        interrupted[13] = (1, 500);
        assert!(!slices(&interrupted).are_silent());
    }

    #[test]
    fn a_slice_without_answers_starts_anew() {
        let gap = [(100, 500), (100, 500), (100, 500), (0, 0), (100, 500), (100, 500)];
        assert!(!slices(&gap).are_steady());
    }

    #[test]
    fn a_figure_that_comes_or_goes_starts_anew() {
        let mut slices = Slices::default();
        let slice = Slice { lasted: SLICE, answered: 1, latency_ns_sum: 1 };
        for _ in 0..5 {
            slices.add(&slice, &[1.0]);
        }
        assert!(slices.are_steady());
        slices.add(&slice, &[1.0, 2.0]);
        assert!(!slices.are_steady());
    }
}
