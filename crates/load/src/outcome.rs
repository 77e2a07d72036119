//! What a run came to.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tollgate_stats::LatencyHistogram;

use crate::failure::Failures;
use crate::recorder::{Figures, Report};

/// What a run came to. Figures count what finished in the window, whenever it began; only `sent`,
/// `warm_up`, `first_head` and what never finished are of the whole run. The books balance:
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
    /// Open loop: requests that were due when the window closed, and had not been sent.
    pub overdue: u64,
    /// How long the oldest of those had been due.
    pub oldest_overdue: Option<Duration>,
    /// Open loop: requests that were due while no connection was free, and waited for one.
    pub held: u64,
    /// With a timer slack: answers whose arrival the kernel has not noted. Their latency runs to the read,
    /// up to the slack later.
    pub missed_stamps: u64,
    /// Requests that were sent again, on a new connection, because one before them in a pipeline
    /// ended the old one. Their latency counts from the first time. The server may have seen both.
    pub resent: u64,
    /// Answers other than the expected one.
    pub unexpected: u64,
    /// The answers to each template of the workload, in its order.
    pub templates: Vec<TemplateTally>,
    /// Latencies in nanoseconds of all answers, and of all timeouts, whose true latency is at least
    /// what stands here. They run to the read that completed the answer or, with a timer slack, to the
    /// arrival of its last byte: in an open loop from the
    /// moment for which the request was scheduled, in a closed one from just before the write or,
    /// without keep-alive, from the start of the connect.
    pub latency: LatencyHistogram,
    /// Open loop: the same, from the send as in a closed one. It leaves out how long requests waited to be
    /// sent, and is kept beside the other to show how much that was.
    pub latency_from_send: Option<LatencyHistogram>,
    /// Open loop: how late the generator itself was, in nanoseconds, for every request: from the
    /// scheduled moment to the write, or, where no connection was free, to when it saw that.
    pub lateness: Option<LatencyHistogram>,
    /// How long connects took, in nanoseconds, over the whole run.
    pub connect_time: LatencyHistogram,
    /// If the plan asked for it: from the send to the first byte of the answer, in nanoseconds.
    pub first_byte: Option<LatencyHistogram>,
    /// What each thread used.
    pub threads: Vec<ThreadUsage>,
    /// Bytes of answers, heads and codings included.
    pub bytes_received: u64,
    /// Bytes of the requests that were answered, heads and codings included.
    pub bytes_sent: u64,
    /// Bytes of answers' bodies, without transfer codings.
    pub body_bytes: u64,
    /// Connections established, over the whole run: those that are kept are there before the window.
    pub connects: u64,
    /// Answers that left the connection open for another request.
    pub kept_alive: u64,
    /// Connections that carried their last answer, and that the server left open for another 200 ms.
    /// Then they were cut off. Without keep-alive, this is what limits the throughput of such a
    /// server: we close second, to keep no ports.
    pub cut_off: u64,
    /// The head of one of the first answers, as it came; empty if none came in one piece, of at most
    /// [`MAX_MEMO_BYTES`](tollgate_wire::MAX_MEMO_BYTES).
    pub first_head: Vec<u8>,
}

/// Requests that have finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// With a complete answer, expected or not.
    pub answered: u64,
    /// Without one.
    pub failed: u64,
    /// Of those with an answer: how many got another one than the expected.
    pub unexpected: u64,
    /// The latencies of all answers together, in nanoseconds.
    pub latency_ns_sum: u64,
}

/// The answers to one template of the workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateTally {
    /// How many answers had each status code.
    pub statuses: BTreeMap<u16, u64>,
    /// How many were not the expected one.
    pub unexpected: u64,
    /// The first of those, in words.
    pub unexpected_example: Option<String>,
    /// Latencies as in [`Outcome::latency`].
    pub latency: LatencyHistogram,
}

/// What one thread used over its own window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadUsage {
    /// CPU time in the program.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Time that it could have run, and waited for a CPU.
    pub waited: Duration,
    /// Time in which it asked for events instead of sleeping, and there were none: busy polling, and
    /// the last moments before a request of a schedule. It is part of the CPU time, and was there to
    /// be used.
    pub polled: Duration,
    /// The length of the window as the thread saw it.
    pub window: Duration,
}

impl Outcome {
    /// Puts the reports of all threads together; all are of the same workload.
    pub(crate) fn of(reports: Vec<Report>) -> Self {
        let mut outcome = Self::empty();
        let windows = reports.iter().filter_map(|report| report.window.as_ref());
        let opened: Option<Instant> = windows.clone().map(|window| window.opened).min();
        let closed: Option<Instant> = windows.map(|window| window.closed).max();
        if let (Some(opened), Some(closed)) = (opened, closed) {
            outcome.window = closed - opened;
        }
        for report in reports {
            outcome.sent += report.sent;
            outcome.warm_up.add(&report.warm_up);
            outcome.unanswered += report.unanswered;
            outcome.oldest_unanswered = outcome.oldest_unanswered.max(report.oldest_unanswered);
            outcome.overdue += report.overdue;
            outcome.oldest_overdue = outcome.oldest_overdue.max(report.oldest_overdue);
            outcome.threads.extend(report.window.map(|window| window.usage));
            if outcome.first_head.is_empty() {
                outcome.first_head = report.first_head;
            }
            outcome.add(report.figures);
        }
        if let [only] = &mut outcome.templates[..] {
            only.latency = outcome.latency.clone();
        }
        outcome
    }

    fn empty() -> Self {
        Self {
            window: Duration::ZERO,
            sent: 0,
            warm_up: Progress::default(),
            answered: 0,
            failures: Failures::default(),
            unanswered: 0,
            oldest_unanswered: None,
            overdue: 0,
            oldest_overdue: None,
            held: 0,
            missed_stamps: 0,
            resent: 0,
            unexpected: 0,
            templates: Vec::new(),
            latency: LatencyHistogram::new(),
            latency_from_send: None,
            lateness: None,
            connect_time: LatencyHistogram::new(),
            first_byte: None,
            threads: Vec::new(),
            bytes_received: 0,
            bytes_sent: 0,
            body_bytes: 0,
            connects: 0,
            kept_alive: 0,
            cut_off: 0,
            first_head: Vec::new(),
        }
    }

    fn add(&mut self, figures: Figures) {
        self.answered += figures.answered;
        self.failures.merge(figures.failures);
        self.latency.merge(&figures.latency);
        if let Some(open_loop) = figures.open_loop {
            merge(&mut self.latency_from_send, open_loop.latency_from_send);
            merge(&mut self.lateness, open_loop.lateness);
            self.held += open_loop.held;
            self.missed_stamps += open_loop.missed_stamps;
        }
        self.connect_time.merge(&figures.connect_time);
        if let Some(first_byte) = figures.first_byte {
            merge(&mut self.first_byte, first_byte);
        }
        self.bytes_received += figures.bytes_received;
        self.bytes_sent += figures.bytes_sent;
        self.body_bytes += figures.body_bytes;
        self.connects += figures.connects;
        self.kept_alive += figures.kept_alive;
        self.cut_off += figures.cut_off;
        self.resent += figures.resent;
        self.templates.resize_with(figures.templates.len(), TemplateTally::default);
        for (sum, tally) in self.templates.iter_mut().zip(figures.templates) {
            self.unexpected += tally.unexpected;
            sum.unexpected += tally.unexpected;
            sum.unexpected_example = sum.unexpected_example.take().or(tally.unexpected_example);
            if let Some(latency) = tally.latency.filter(|latency| latency.count() > 0) {
                sum.latency.merge(&latency);
            }
            for (status, count) in tally.statuses {
                *sum.statuses.entry(status).or_default() += count;
            }
        }
    }
}

impl Progress {
    pub(crate) fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.failed += other.failed;
        self.unexpected += other.unexpected;
        self.latency_ns_sum += other.latency_ns_sum;
    }
}

fn merge(sum: &mut Option<LatencyHistogram>, part: LatencyHistogram) {
    match sum {
        Some(sum) => sum.merge(&part),
        None => *sum = Some(part),
    }
}
