//! Figures over time: the measurement in intervals of equal length, of each thread and of all.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use tollgate_stats::{Failures, LatencyHistogram};

use crate::rate::Rate;
use crate::summary::Summary;

/// One interval of the measurement. A request counts where it finished, as in the [`Summary`], so the counts and latencies
/// of all intervals add up to those of the summary. Complete when the next one starts: nothing is added later.
#[derive(Clone, Debug, Default)]
pub struct Interval {
    /// Time from the start of the measurement.
    pub start: Duration,
    /// Time from the start of the measurement. The last interval ends with the measurement.
    pub end: Duration,
    /// Requests sent.
    pub sent: u64,
    /// Complete responses, expected or not.
    pub responses: u64,
    /// Responses that were not the expected ones.
    pub unexpected: u64,
    /// Requests without a complete response; without examples.
    pub failures: Failures,
    /// Open loop: requests that became due while no connection was free.
    pub queued: u64,
    /// Bytes received, with heads and transfer codings.
    pub bytes_received: u64,
    /// Requests in flight at the end of the interval.
    pub in_flight: u64,
    /// CPU time of the threads of the generator, those included that have ended.
    pub cpu: Duration,
    /// Latency, as in the [`Summary`].
    pub latency: LatencyHistogram,
}

impl Interval {
    /// Mean rate that the schedule has in the interval; `None` for one without length. The schedule starts with the
    /// measurement or has a constant rate.
    pub fn scheduled_per_s(&self, rate: &Rate) -> Option<f64> {
        let length_s = self.end.saturating_sub(self.start).as_secs_f64();
        let requests = rate.requests_until(self.end) - rate.requests_until(self.start);
        (length_s > 0.0).then(|| requests / length_s)
    }

    /// Adds the interval that follows.
    pub fn append(&mut self, next: &Self) {
        self.end = next.end;
        self.sent += next.sent;
        self.responses += next.responses;
        self.unexpected += next.unexpected;
        self.failures.merge(next.failures.clone());
        self.queued += next.queued;
        self.bytes_received += next.bytes_received;
        self.in_flight = next.in_flight;
        self.cpu += next.cpu;
        self.latency.merge(&next.latency);
    }
}

/// One thread's part of an interval.
#[derive(Debug)]
pub(crate) struct Part {
    thread: usize,
    index: u64,
    /// End of the window in this interval, since the start of the series; `None` before the last part.
    closed_at: Option<Duration>,
    counts: Counts,
    in_flight: u64,
    cpu: Duration,
    latency: LatencyHistogram,
}

/// The counts of a [`Summary`] that grow, as of a time.
#[derive(Clone, Debug, Default, PartialEq)]
struct Counts {
    sent: u64,
    responses: u64,
    unexpected: u64,
    failures: Failures,
    queued: u64,
    bytes_received: u64,
}

impl Counts {
    fn of(summary: &Summary) -> Self {
        Self {
            sent: summary.sent,
            responses: summary.responses,
            unexpected: summary.unexpected,
            failures: summary.failures.counts(),
            queued: summary.queued,
            bytes_received: summary.bytes_received,
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            sent: self.sent - before.sent,
            responses: self.responses - before.responses,
            unexpected: self.unexpected - before.unexpected,
            failures: self.failures.since(&before.failures),
            queued: self.queued - before.queued,
            bytes_received: self.bytes_received - before.bytes_received,
        }
    }
}

/// Cuts the figures of one thread into intervals.
#[derive(Debug)]
pub(crate) struct Recorder {
    thread: usize,
    length: Duration,
    parts: Sender<Part>,
    /// `None` before the window.
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    /// Start of the first interval of all threads.
    origin: Instant,
    index: u64,
    /// Its end: the first time of the next one.
    end: Instant,
    latency: LatencyHistogram,
    /// Counts and CPU time at its start.
    counts: Counts,
    cpu: Duration,
}

impl Recorder {
    pub(crate) fn new(thread: usize, length: Duration, parts: Sender<Part>) -> Self {
        Self { thread, length, parts, current: None }
    }

    /// Opens the window. `cpu`: CPU time of the thread now, here and below.
    pub(crate) fn open(&mut self, origin: Instant, cpu: Duration, summary: &Summary) {
        self.current = Some(Current {
            origin,
            index: 0,
            end: origin + self.length,
            latency: LatencyHistogram::new(),
            counts: Counts::of(summary),
            cpu,
        });
    }

    /// End of the current interval; `None` before the window.
    pub(crate) fn end(&self) -> Option<Instant> {
        self.current.as_ref().map(|current| current.end)
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.current.as_ref().is_some_and(|current| now >= current.end)
    }

    /// Counts a latency in the current interval.
    pub(crate) fn latency(&mut self, ns: u64) {
        if let Some(current) = &mut self.current {
            current.latency.record(ns);
        }
    }

    /// Ends the current interval, which is due, and starts the one that contains `now`.
    pub(crate) fn cut(&mut self, now: Instant, cpu: Duration, summary: &Summary, in_flight: u64) {
        let Some(current) = &self.current else { return };
        let index = (now.saturating_duration_since(current.origin).as_nanos()
            / self.length.as_nanos()) as u64;
        let end = end_of(index, self.length);
        self.send(None, cpu, summary, in_flight);
        if let Some(current) = &mut self.current {
            current.index = index;
            current.end = current.origin + end;
        }
    }

    /// Ends the last interval with the window.
    pub(crate) fn finish(mut self, now: Instant, cpu: Duration, summary: &Summary, in_flight: u64) {
        if self.is_due(now) {
            self.cut(now, cpu, summary, in_flight);
        }
        let origin = self.current.as_ref().map(|current| current.origin);
        if let Some(origin) = origin {
            self.send(Some(now.saturating_duration_since(origin)), cpu, summary, in_flight);
        }
    }

    fn send(
        &mut self,
        closed_at: Option<Duration>,
        cpu: Duration,
        summary: &Summary,
        in_flight: u64,
    ) {
        let Some(current) = &mut self.current else { return };
        let counts = Counts::of(summary);
        let part = Part {
            thread: self.thread,
            index: current.index,
            closed_at,
            counts: counts.since(&current.counts),
            in_flight,
            // CPU times of the kernel never decrease.
            cpu: cpu.saturating_sub(current.cpu),
            latency: std::mem::take(&mut current.latency),
        };
        (current.counts, current.cpu) = (counts, cpu);
        // Fails if nobody reads the series any more.
        self.parts.send(part).ok();
    }
}

/// End of an interval since the start of the series.
fn end_of(index: u64, length: Duration) -> Duration {
    let ns = u128::from(index + 1) * length.as_nanos();
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// The intervals of a running load, in order and without gaps. An interval is returned when all threads have finished it;
/// the iterator waits for that, and ends after the threads. Reading it in time keeps memory constant.
#[derive(Debug)]
pub struct Series {
    parts: Receiver<Part>,
    length: Duration,
    /// Parts of intervals that are not returned yet.
    pending: BTreeMap<u64, Vec<Part>>,
    /// Of each thread: number of the intervals that it has finished.
    finished: Vec<u64>,
    /// Of each thread: requests in flight at the end of its last interval.
    in_flight: Vec<u64>,
    next: u64,
}

impl Series {
    pub(crate) fn new(parts: Receiver<Part>, length: Duration, threads: usize) -> Self {
        let (finished, in_flight) = (vec![0; threads], vec![0; threads]);
        Self { parts, length, pending: BTreeMap::new(), finished, in_flight, next: 0 }
    }

    fn add(&mut self, part: Part) {
        self.finished[part.thread] = match part.closed_at {
            Some(_) => u64::MAX,
            None => part.index + 1,
        };
        self.pending.entry(part.index).or_default().push(part);
    }

    /// Merges the parts of the next interval. A thread without a part was off its CPU throughout.
    fn merge_next(&mut self) -> Interval {
        let index = self.next;
        self.next += 1;
        let mut sum =
            Interval { start: end_of(index, self.length) - self.length, ..Interval::default() };
        let parts = self.pending.remove(&index).unwrap_or_default();
        let is_last =
            self.pending.is_empty() && self.finished.iter().all(|thread| *thread == u64::MAX);
        let closed_at = parts.iter().filter_map(|part| part.closed_at).max().filter(|_| is_last);
        sum.end = closed_at.unwrap_or_else(|| end_of(index, self.length));
        for part in parts {
            let Counts { sent, responses, unexpected, failures, queued, bytes_received } =
                part.counts;
            sum.sent += sent;
            sum.responses += responses;
            sum.unexpected += unexpected;
            sum.failures.merge(failures);
            sum.queued += queued;
            sum.bytes_received += bytes_received;
            sum.cpu += part.cpu;
            if part.latency.count() > 0 {
                sum.latency.merge(&part.latency);
            }
            self.in_flight[part.thread] = part.in_flight;
        }
        sum.in_flight = self.in_flight.iter().sum();
        sum
    }
}

impl Iterator for Series {
    type Item = Interval;

    fn next(&mut self) -> Option<Interval> {
        loop {
            if self.finished.iter().all(|finished| *finished > self.next) {
                // After the last part of the last thread.
                let is_over = self.finished.iter().all(|finished| *finished == u64::MAX)
                    && self.pending.is_empty();
                return (!is_over).then(|| self.merge_next());
            }
            match self.parts.recv() {
                Ok(part) => self.add(part),
                // The threads have ended, some of them before their window.
                Err(_) => self.finished.fill(u64::MAX),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use proptest::prelude::*;

    use super::*;
    use crate::failures::RequestFailure;

    const MS: Duration = Duration::from_millis(1);

    /// One event of one thread: a response or a failure.
    #[derive(Clone, Copy, Debug)]
    struct Event {
        at_ms: u32,
        is_failure: bool,
        latency_us: u64,
    }

    /// Runs the events of each thread through a recorder, with a window that each closes at its end. Returns the
    /// intervals and the sum of the summaries.
    fn run(threads: &[(Vec<Event>, u32)], length: Duration) -> (Vec<Interval>, Summary) {
        let (sender, receiver) = channel();
        let start = Instant::now();
        // CPU time of a thread that works half of the time.
        let cpu = |now: Instant| (now - start) / 2;
        let mut sum = Summary::default();
        for (thread, (events, end_ms)) in threads.iter().enumerate() {
            let mut recorder = Recorder::new(thread, length, sender.clone());
            let mut summary = Summary::default();
            recorder.open(start, Duration::ZERO, &summary);
            for event in events {
                let now = start + event.at_ms * MS;
                if recorder.is_due(now) {
                    recorder.cut(now, cpu(now), &summary, 1);
                }
                summary.sent += 1;
                if event.is_failure {
                    RequestFailure::Reset.count(&mut summary.failures);
                } else {
                    summary.responses += 1;
                    summary.latency.record(event.latency_us * 1_000);
                    recorder.latency(event.latency_us * 1_000);
                }
            }
            let end = start + *end_ms * MS;
            recorder.finish(end, cpu(end), &summary, 1);
            sum.merge(summary);
        }
        drop(sender);
        (Series::new(receiver, length, threads.len()).collect(), sum)
    }

    fn event(at_ms: u32) -> Event {
        Event { at_ms, is_failure: false, latency_us: 1 }
    }

    #[test]
    fn an_interval_contains_its_start_and_not_its_end() {
        let events = [0, 9, 10, 19, 20].map(event).to_vec();
        let (intervals, _) = run(&[(events, 25)], 10 * MS);
        let responses: Vec<u64> = intervals.iter().map(|interval| interval.responses).collect();
        assert_eq!(responses, [2, 2, 1]);
        let ends: Vec<Duration> = intervals.iter().map(|interval| interval.end).collect();
        assert_eq!(ends, [10 * MS, 20 * MS, 25 * MS]);
        assert_eq!(intervals[2].start, 20 * MS);
    }

    #[test]
    fn a_time_without_events_has_empty_intervals() {
        // The second thread was off its CPU from 5 to 35 ms, and the third ended at 12 ms.
        let threads = [
            ([5, 15, 25, 35].map(event).to_vec(), 40),
            ([4, 36].map(event).to_vec(), 38),
            (vec![event(11)], 12),
        ];
        let (intervals, _) = run(&threads, 10 * MS);
        let figures: Vec<_> = intervals
            .iter()
            .map(|one| (one.start / 10, one.end, one.responses, one.in_flight))
            .collect();
        let expected = [(0, 10, 2, 3), (1, 20, 2, 3), (2, 30, 1, 3), (3, 40, 2, 3)];
        assert_eq!(figures[..4], expected.map(|(start, end, n, m)| (start * MS, end * MS, n, m)));
        // A window that ends with an interval has no time in the next one.
        assert_eq!((intervals.len(), intervals[4].start, intervals[4].end), (5, 40 * MS, 40 * MS));
        assert_eq!(intervals[4].sent, 0);
        let (alone, _) = run(&[(vec![event(3), event(47)], 50)], 10 * MS);
        let responses: Vec<u64> = alone.iter().map(|interval| interval.responses).collect();
        assert_eq!(responses[..5], [1, 0, 0, 0, 1]);
    }

    #[test]
    fn an_interval_lasts_beyond_the_end_of_a_thread() {
        // The first thread ended at 12 ms, and the second was off its CPU from 5 to 25 ms.
        let threads = [([2, 11].map(event).to_vec(), 12), ([5, 25].map(event).to_vec(), 25)];
        let (intervals, _) = run(&threads, 10 * MS);
        let ends: Vec<Duration> = intervals.iter().map(|interval| interval.end).collect();
        assert_eq!(ends, [10 * MS, 20 * MS, 25 * MS]);
    }

    #[test]
    fn interval_is_returned_before_the_load_ends() {
        let (sender, receiver) = channel();
        let start = Instant::now();
        let mut recorder = Recorder::new(0, 10 * MS, sender);
        let mut summary = Summary::default();
        recorder.open(start, Duration::ZERO, &summary);
        summary.responses = 3;
        recorder.cut(start + 10 * MS, MS, &summary, 2);
        let mut series = Series::new(receiver, 10 * MS, 1);
        let first = series.next().unwrap();
        assert_eq!((first.responses, first.in_flight), (3, 2));
        drop(recorder);
        assert!(series.next().is_none());
    }

    proptest! {
        #[test]
        fn intervals_add_up_to_the_summary(
            threads in prop::collection::vec(
                (prop::collection::vec((0..200_u32, any::<bool>(), 1..5_000_000_u64), 0..40), 0..250_u32),
                1..4,
            ),
            length_ms in 1..60_u32,
        ) {
            let threads: Vec<(Vec<Event>, u32)> = threads
                .into_iter()
                .map(|(mut events, end_ms)| {
                    events.sort_unstable();
                    let event = |(at_ms, is_failure, latency_us)| Event { at_ms, is_failure, latency_us };
                    let end_ms = events.last().map_or(end_ms, |last| end_ms.max(last.0));
                    (events.into_iter().map(event).collect(), end_ms)
                })
                .collect();
            let last_end_ms = threads.iter().map(|(_, end_ms)| *end_ms).max();
            let cpu: Duration = threads.iter().map(|(_, end_ms)| *end_ms * MS / 2).sum();
            let (intervals, summary) = run(&threads, length_ms * MS);
            let mut sum = Interval::default();
            for interval in &intervals {
                prop_assert_eq!(interval.start, sum.end);
                sum.end = interval.end;
                sum.sent += interval.sent;
                sum.responses += interval.responses;
                sum.cpu += interval.cpu;
                sum.failures.merge(interval.failures.clone());
                sum.latency.merge(&interval.latency);
            }
            prop_assert_eq!(Some(sum.end), last_end_ms.map(|end_ms| end_ms * MS));
            prop_assert_eq!(sum.cpu, cpu);
            prop_assert_eq!((sum.sent, sum.responses), (summary.sent, summary.responses));
            prop_assert_eq!(sum.failures, summary.failures);
            prop_assert!(sum.latency == summary.latency);
        }
    }
}
