//! One thread's books.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate_stats::LatencyHistogram;
use tollgate_wire::Answer;

use crate::failure::{Failure, Failures};
use crate::outcome::Progress;
use crate::window::{ClosedWindow, OpenWindow};
use crate::workload::Expectation;

/// Counts what one thread does: everything over the whole run, and in detail while its window is
/// open.
#[derive(Debug)]
pub(crate) struct Recorder {
    window: Option<OpenWindow>,
    figures: Figures,
    sent: u64,
    finished: Progress,
    warm_up: Option<Progress>,
    live: Arc<Live>,
}

/// How far one thread has come, for others to look at while it runs. On cache lines of its own, so
/// that threads do not slow each other down by counting.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Live {
    answered: AtomicU64,
    failed: AtomicU64,
}

/// What finished in one thread's window.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) answered: u64,
    pub(crate) failures: Failures,
    pub(crate) latency: LatencyHistogram,
    pub(crate) per_request: Vec<Tally>,
    pub(crate) bytes_received: u64,
    pub(crate) connects: u64,
}

/// The answers to one request of the workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Few servers give one request more than one or two codes, so a short list beats a map.
    pub(crate) statuses: Vec<(u16, u64)>,
    pub(crate) unexpected: u64,
    pub(crate) unexpected_example: Option<String>,
    pub(crate) latency: LatencyHistogram,
}

/// One thread's part of the outcome.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) window: Option<ClosedWindow>,
    pub(crate) figures: Figures,
    pub(crate) sent: u64,
    pub(crate) warm_up: Progress,
    pub(crate) unanswered: u64,
    pub(crate) oldest_unanswered: Option<Duration>,
}

impl Live {
    pub(crate) fn progress(&self) -> Progress {
        Progress {
            answered: self.answered.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }
}

impl Recorder {
    /// Empty books for a workload of this many requests.
    pub(crate) fn new(requests: usize, live: Arc<Live>) -> Self {
        Self {
            window: None,
            figures: Figures {
                answered: 0,
                failures: Failures::default(),
                latency: LatencyHistogram::new(),
                per_request: vec![Tally::default(); requests],
                bytes_received: 0,
                connects: 0,
            },
            sent: 0,
            finished: Progress::default(),
            warm_up: None,
            live,
        }
    }

    /// Opens the window, once; what finishes from now on is measured.
    pub(crate) fn open_window(&mut self, now: Instant) -> io::Result<()> {
        if self.warm_up.is_none() {
            self.window = Some(OpenWindow::open(now)?);
            self.warm_up = Some(self.finished);
        }
        Ok(())
    }

    pub(crate) fn begun(&mut self) {
        self.sent += 1;
    }

    pub(crate) fn connected(&mut self) {
        if self.window.is_some() {
            self.figures.connects += 1;
        }
    }

    pub(crate) fn received(&mut self, bytes: usize) {
        if self.window.is_some() {
            self.figures.bytes_received += bytes as u64;
        }
    }

    /// The request at `index` of the workload was answered after `latency`.
    pub(crate) fn answered(
        &mut self,
        index: usize,
        expect: &Expectation,
        answer: Answer,
        latency: Duration,
    ) {
        self.finished.answered += 1;
        self.live.answered.store(self.finished.answered, Ordering::Relaxed);
        if self.window.is_some() {
            self.figures.answered += 1;
            self.figures.latency.record(nanos(latency));
            self.figures.per_request[index].count(expect, answer);
            self.figures.per_request[index].latency.record(nanos(latency));
        }
    }

    /// A request has failed at this age.
    pub(crate) fn failed(&mut self, failure: Failure, age: Duration) {
        self.finished.failed += 1;
        self.live.failed.store(self.finished.failed, Ordering::Relaxed);
        if self.window.is_some() {
            if failure.is_timeout() {
                self.figures.latency.record(nanos(age));
            }
            self.figures.failures.count(failure);
        }
    }

    /// Closes the window and the books; `ages` are those of the requests still under way.
    pub(crate) fn close(
        self,
        now: Instant,
        ages: impl Iterator<Item = Duration> + Clone,
    ) -> io::Result<Report> {
        Ok(Report {
            window: self.window.map(|window| window.close(now)).transpose()?,
            figures: self.figures,
            sent: self.sent,
            warm_up: self.warm_up.unwrap_or(self.finished),
            unanswered: ages.clone().count() as u64,
            oldest_unanswered: ages.max(),
        })
    }
}

impl Tally {
    fn count(&mut self, expect: &Expectation, answer: Answer) {
        match self.statuses.iter_mut().find(|(status, _)| *status == answer.status) {
            Some((_, count)) => *count += 1,
            None => self.statuses.push((answer.status, 1)),
        }
        if !(expect.status.is_none_or(|s| s == answer.status)
            && expect.body_bytes.is_none_or(|b| b == answer.body_bytes))
        {
            self.unexpected += 1;
            self.unexpected_example.get_or_insert_with(|| {
                format!("{} with {} bytes, instead of {expect}", answer.status, answer.body_bytes)
            });
        }
    }
}

/// A latency as histograms take it. Timeouts are at most an hour, so it always fits.
fn nanos(latency: Duration) -> u64 {
    latency.as_secs() * 1_000_000_000 + u64::from(latency.subsec_nanos())
}
