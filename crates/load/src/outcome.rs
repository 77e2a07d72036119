//! What a run came to.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tollgate_stats::LatencyHistogram;

use crate::failure::Failures;
use crate::recorder::{Figures, Report};

/// What a run came to. Figures count what finished in the window, whenever it began; only `sent`,
/// `warm_up` and the unanswered requests are of the whole run. The books balance:
///
/// `sent = warm_up.answered + warm_up.failed + answered + failures.total() + unanswered`
#[derive(Clone, Debug)]
pub struct Outcome {
    /// From the first thread's opening of the window to the last one's closing; zero if it was never
    /// opened.
    pub window: Duration,
    /// Requests begun, those included whose connection failed.
    pub sent: u64,
    /// What finished before the window opened.
    pub warm_up: Progress,
    /// Complete answers, expected or not.
    pub answered: u64,
    /// Requests without a complete answer.
    pub failures: Failures,
    /// Requests under way when the window closed.
    pub unanswered: u64,
    /// How long the oldest of those had been under way.
    pub oldest_unanswered: Option<Duration>,
    /// Answers other than the expected one.
    pub unexpected: u64,
    /// The answers to each request of the workload, in its order.
    pub per_request: Vec<RequestTally>,
    /// Latencies in nanoseconds of all answers, from just before the write to the read that
    /// completed the answer, and of all timeouts, whose true latency is at least what stands here.
    pub latency: LatencyHistogram,
    /// What each thread used.
    pub threads: Vec<ThreadUsage>,
    /// Bytes of answers, heads and codings included.
    pub bytes_received: u64,
    /// Connections established.
    pub connects: u64,
}

/// Requests that have finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// With a complete answer, expected or not.
    pub answered: u64,
    /// Without one.
    pub failed: u64,
}

/// The answers to one request of the workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestTally {
    /// How many answers had each status code.
    pub statuses: BTreeMap<u16, u64>,
    /// How many were not the expected one.
    pub unexpected: u64,
    /// The first of those, in words.
    pub unexpected_example: Option<String>,
}

/// What one thread used over its own window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadUsage {
    /// CPU time in the program.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// The length of the window as the thread saw it.
    pub window: Duration,
}

impl Outcome {
    /// Puts the reports of all threads together; all are of the same workload.
    pub(crate) fn of(reports: Vec<Report>) -> Self {
        let mut outcome = Self {
            window: Duration::ZERO,
            sent: 0,
            warm_up: Progress::default(),
            answered: 0,
            failures: Failures::default(),
            unanswered: 0,
            oldest_unanswered: None,
            unexpected: 0,
            per_request: Vec::new(),
            latency: LatencyHistogram::new(),
            threads: Vec::new(),
            bytes_received: 0,
            connects: 0,
        };
        let windows = reports.iter().filter_map(|report| report.window.as_ref());
        let opened: Option<Instant> = windows.clone().map(|window| window.opened).min();
        let closed: Option<Instant> = windows.map(|window| window.closed).max();
        if let (Some(opened), Some(closed)) = (opened, closed) {
            outcome.window = closed - opened;
        }
        for report in reports {
            outcome.sent += report.sent;
            outcome.warm_up.answered += report.warm_up.answered;
            outcome.warm_up.failed += report.warm_up.failed;
            outcome.unanswered += report.unanswered;
            outcome.oldest_unanswered = outcome.oldest_unanswered.max(report.oldest_unanswered);
            outcome.threads.extend(report.window.map(|window| window.usage));
            outcome.add(report.figures);
        }
        outcome
    }

    fn add(&mut self, figures: Figures) {
        self.answered += figures.answered;
        self.failures.merge(figures.failures);
        self.latency.merge(&figures.latency);
        self.bytes_received += figures.bytes_received;
        self.connects += figures.connects;
        self.per_request.resize_with(figures.per_request.len(), RequestTally::default);
        for (sum, tally) in self.per_request.iter_mut().zip(figures.per_request) {
            self.unexpected += tally.unexpected;
            sum.unexpected += tally.unexpected;
            sum.unexpected_example = sum.unexpected_example.take().or(tally.unexpected_example);
            for (status, count) in tally.statuses {
                *sum.statuses.entry(status).or_default() += count;
            }
        }
    }
}
