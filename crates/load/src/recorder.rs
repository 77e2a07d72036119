//! One thread's books.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_stats::LatencyHistogram;
use tollgate_wire::Answer;

use crate::exchange::Exchange;
use crate::failure::{Failure, Failures};
use crate::live::Live;
use crate::outcome::Progress;
use crate::plan::{Arrivals, Plan};
use crate::usage::ThreadClock;
use crate::window::{ClosedWindow, OpenWindow};
use crate::workload::{Expectation, Request};

/// Counts what one thread does: everything over the whole run, and in detail while its window is
/// open.
#[derive(Debug)]
pub(crate) struct Recorder {
    window: Option<OpenWindow>,
    figures: Figures,
    sent: u64,
    finished: Progress,
    warm_up: Option<Progress>,
    first_head: Vec<u8>,
    live: Arc<Live>,
}

/// What finished in one thread's window.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) answered: u64,
    pub(crate) failures: Failures,
    pub(crate) latency: LatencyHistogram,
    pub(crate) open_loop: Option<OpenLoop>,
    pub(crate) connect_time: LatencyHistogram,
    pub(crate) first_byte: Option<LatencyHistogram>,
    pub(crate) templates: Vec<Tally>,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) body_bytes: u64,
    pub(crate) connects: u64,
    pub(crate) kept_alive: u64,
    pub(crate) cut_off: u64,
    pub(crate) resent: u64,
}

/// What there is to say of a schedule.
#[derive(Debug, Default)]
pub(crate) struct OpenLoop {
    pub(crate) latency_from_send: LatencyHistogram,
    pub(crate) lateness: LatencyHistogram,
    pub(crate) held: u64,
    pub(crate) missed_stamps: u64,
}

/// The answers to one template of the workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Few servers give one request more than one or two codes, so a short list beats a map.
    pub(crate) statuses: Vec<(u16, u64)>,
    pub(crate) unexpected: u64,
    pub(crate) unexpected_example: Option<String>,
    /// `None` where there is one template, whose latencies are those of the whole.
    pub(crate) latency: Option<LatencyHistogram>,
}

/// One thread's part of the outcome.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) window: Option<ClosedWindow>,
    pub(crate) figures: Figures,
    pub(crate) sent: u64,
    pub(crate) warm_up: Progress,
    pub(crate) first_head: Vec<u8>,
    pub(crate) unanswered: u64,
    pub(crate) oldest_unanswered: Option<Duration>,
    pub(crate) overdue: u64,
    pub(crate) oldest_overdue: Option<Duration>,
}

impl Recorder {
    /// Empty books for a plan.
    pub(crate) fn new(plan: &Plan, live: Arc<Live>) -> Self {
        let has_schedule = matches!(plan.arrivals, Arrivals::Open { .. });
        let templates = plan.workload.templates;
        // Made one by one and not copied, since the memory of an empty histogram is not used before
        // it is written to.
        let tally =
            |_| Tally { latency: (templates > 1).then(LatencyHistogram::new), ..Tally::default() };
        Self {
            window: None,
            figures: Figures {
                answered: 0,
                failures: Failures::default(),
                latency: LatencyHistogram::new(),
                open_loop: has_schedule.then(OpenLoop::default),
                connect_time: LatencyHistogram::new(),
                first_byte: plan.first_byte.then(LatencyHistogram::new),
                templates: (0..templates).map(tally).collect(),
                bytes_received: 0,
                bytes_sent: 0,
                body_bytes: 0,
                connects: 0,
                kept_alive: 0,
                cut_off: 0,
                resent: 0,
            },
            sent: 0,
            finished: Progress::default(),
            warm_up: None,
            first_head: Vec::new(),
            live,
        }
    }

    /// Opens the window, once; what finishes from now on is measured.
    pub(crate) fn open_window(&mut self, now: Instant, clock: &ThreadClock) -> io::Result<()> {
        if self.warm_up.is_none() {
            self.window = Some(OpenWindow::open(now, clock)?);
            self.warm_up = Some(self.finished);
        }
        Ok(())
    }

    /// The thread asked for events this long, and there were none.
    pub(crate) fn polled(&mut self, time: Duration) {
        if let Some(window) = &mut self.window {
            window.polled(time);
        }
    }

    pub(crate) fn begun(&mut self) {
        self.sent += 1;
    }

    pub(crate) fn connected(&mut self, after: Duration) {
        self.figures.connects += 1;
        self.figures.connect_time.record(nanos(after));
    }

    pub(crate) fn received(&mut self, bytes: usize) {
        if self.window.is_some() {
            self.figures.bytes_received += bytes as u64;
        }
    }

    pub(crate) fn resent(&mut self, requests: usize) {
        if self.window.is_some() {
            self.figures.resent += requests as u64;
        }
    }

    pub(crate) fn cut_off(&mut self) {
        if self.window.is_some() {
            self.figures.cut_off += 1;
        }
    }

    /// A request of the schedule was seen to be due this late; `is_held`: no connection was free.
    pub(crate) fn due(&mut self, lateness: Duration, is_held: bool) {
        if self.window.is_some()
            && let Some(open_loop) = &mut self.figures.open_loop
        {
            open_loop.lateness.record(nanos(lateness));
            open_loop.held += u64::from(is_held);
        }
    }

    /// A request has its answer, which contains what it should or does not; `head` is the last
    /// answer's head where it is known.
    pub(crate) fn answered(
        &mut self,
        exchange: &Exchange,
        request: &Request,
        answer: Answer,
        contains: bool,
        now: Instant,
    ) {
        let latency = nanos(now - exchange.scheduled);
        let is_expected = request.expect.accepts(answer, contains);
        self.finished.answered += 1;
        self.finished.unexpected += u64::from(!is_expected);
        self.finished.latency_ns_sum += latency;
        self.live.publish(&self.finished);
        if self.window.is_none() {
            return;
        }
        let figures = &mut self.figures;
        figures.answered += 1;
        figures.body_bytes += answer.body_bytes;
        figures.bytes_sent += request.bytes.len() as u64;
        figures.kept_alive += u64::from(answer.keep_alive);
        figures.latency.record(latency);
        if let Some(open_loop) = &mut figures.open_loop {
            open_loop.latency_from_send.record(nanos(now - exchange.sent));
        }
        if let (Some(histogram), Some(first_byte)) = (&mut figures.first_byte, exchange.first_byte)
        {
            histogram.record(nanos(first_byte - exchange.sent));
        }
        let tally = &mut figures.templates[request.template];
        tally.count(answer, latency);
        if !is_expected {
            tally.count_unexpected(&request.expect, answer, contains);
        }
    }

    /// The answer that was recorded last should have a time stamp of its arrival, and has none.
    pub(crate) fn missed_stamp(&mut self) {
        if self.window.is_some()
            && let Some(open_loop) = &mut self.figures.open_loop
        {
            open_loop.missed_stamps += 1;
        }
    }

    /// A request has failed.
    pub(crate) fn failed(
        &mut self,
        exchange: &Exchange,
        template: usize,
        failure: Failure,
        now: Instant,
    ) {
        self.finished.failed += 1;
        self.live.publish(&self.finished);
        if self.window.is_none() {
            return;
        }
        // A timeout is a latency of at least its age. How long other failures took says nothing of
        // how long an answer takes.
        if failure.is_timeout() {
            let latency = nanos(now - exchange.scheduled);
            self.figures.latency.record(latency);
            if let Some(of_template) = &mut self.figures.templates[template].latency {
                of_template.record(latency);
            }
            if let Some(open_loop) = &mut self.figures.open_loop {
                open_loop.latency_from_send.record(nanos(now - exchange.sent));
            }
        }
        self.figures.failures.count(failure);
    }

    /// The head of an answer, of which the first one is kept.
    pub(crate) fn saw_head(&mut self, head: &[u8]) {
        if self.first_head.is_empty() {
            self.first_head = head.to_vec();
        }
    }

    /// Leaves a copy of the latencies so far where others can see it, if it was asked for.
    pub(crate) fn show(&self) {
        self.live.show(&self.figures.latency);
    }

    /// Closes the window and the books; `ages` are those of the requests still under way, `overdue`
    /// those that were due and not sent.
    pub(crate) fn close(
        self,
        now: Instant,
        clock: &ThreadClock,
        ages: impl Iterator<Item = Duration>,
        (overdue, oldest_overdue): (u64, Option<Duration>),
    ) -> io::Result<Report> {
        let (mut unanswered, mut oldest_unanswered) = (0, None);
        for age in ages {
            unanswered += 1;
            oldest_unanswered = oldest_unanswered.max(Some(age));
        }
        Ok(Report {
            window: self.window.map(|window| window.close(now, clock)).transpose()?,
            figures: self.figures,
            sent: self.sent,
            warm_up: self.warm_up.unwrap_or(self.finished),
            first_head: self.first_head,
            unanswered,
            oldest_unanswered,
            overdue,
            oldest_overdue,
        })
    }
}

impl Tally {
    fn count(&mut self, answer: Answer, latency: u64) {
        match self.statuses.iter_mut().find(|(status, _)| *status == answer.status) {
            Some((_, count)) => *count += 1,
            None => self.statuses.push((answer.status, 1)),
        }
        if let Some(of_template) = &mut self.latency {
            of_template.record(latency);
        }
    }

    fn count_unexpected(&mut self, expect: &Expectation, answer: Answer, contains: bool) {
        self.unexpected += 1;
        self.unexpected_example.get_or_insert_with(|| {
            let without = if contains { "" } else { " without the text" };
            let Answer { status, body_bytes, .. } = answer;
            format!("{status} with {body_bytes} bytes{without}, instead of {expect}")
        });
    }
}

/// A latency as histograms take it, which count all beyond an hour as that.
fn nanos(latency: Duration) -> u64 {
    latency.as_secs() * 1_000_000_000 + u64::from(latency.subsec_nanos())
}
