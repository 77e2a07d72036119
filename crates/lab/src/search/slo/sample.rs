//! What goals look at.

use crate::record::as_f64;
use tollgate_stats::LatencyHistogram;

/// What goals look at: the requests of one trial.
#[derive(Debug)]
pub struct Sample<'a> {
    /// Latencies in nanoseconds of all answers and timeouts.
    pub latency: &'a LatencyHistogram,
    /// Requests that were never answered while the window was open, under way or never sent.
    pub waiting: Vec<Waiting>,
    /// Complete answers, expected or not.
    pub answered: u64,
    /// Those of them that were not the expected ones.
    pub unexpected: u64,
    /// Requests without an answer.
    pub failed: u64,
}

/// Requests that still waited when the window closed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waiting {
    /// How many.
    pub requests: u64,
    /// How long the oldest of them had, in nanoseconds. All count as that old, as no other age is
    /// known; so a goal is rather said to be broken than kept.
    pub oldest_ns: f64,
}

impl Sample<'_> {
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.iter().map(|waiting| waiting.requests).sum()
    }

    /// How many requests took longer than `limit_ns`, or have waited longer already.
    pub(super) fn beyond(&self, limit_ns: f64) -> u64 {
        // A limit is at most an hour, and whole nanoseconds are as fine as latencies are kept.
        let within = self.latency.count_up_to(limit_ns as u64);
        let older = self.waiting.iter().filter(|waiting| waiting.oldest_ns > limit_ns);
        self.latency.count() - within + older.map(|waiting| waiting.requests).sum::<u64>()
    }

    pub(super) fn mean_ns(&self) -> Option<f64> {
        let (sum, count) = match self.latency.mean_ns() {
            Some(mean_ns) => (mean_ns * as_f64(self.latency.count()), self.latency.count()),
            None => (0.0, 0),
        };
        let waited: f64 = self.waiting.iter().map(|w| as_f64(w.requests) * w.oldest_ns).sum();
        let all = count + self.waiting();
        (count > 0).then(|| (sum + waited) / as_f64(all))
    }
}
