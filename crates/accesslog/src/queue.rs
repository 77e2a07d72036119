//! A thread that writes lines to a reader that may be slow. Callers never wait for the reader.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Limit for waiting until a slow reader has taken everything.
pub const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval between reports of dropped lines.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Allows an event once per interval.
#[derive(Clone, Copy, Debug)]
pub struct RateLimit {
    interval: Duration,
    allowed_at: Option<Instant>,
}

impl RateLimit {
    pub const fn new(interval: Duration) -> Self {
        Self { interval, allowed_at: None }
    }

    /// Returns true if the interval since the last allowed event has passed, and restarts it.
    pub fn allow(&mut self, now: Instant) -> bool {
        let is_allowed =
            self.allowed_at.is_none_or(|at| now.saturating_duration_since(at) >= self.interval);
        if is_allowed {
            self.allowed_at = Some(now);
        }
        is_allowed
    }
}

/// Destination of the lines of a queue.
pub(crate) trait Sink: Send {
    /// Writes whole lines.
    fn write_lines(&mut self, lines: &[u8]) -> Result<(), SinkError>;
}

#[derive(Debug)]
pub(crate) enum SinkError {
    /// Nothing more can be written.
    Closed(io::Error),
    /// Some of the lines are lost, and later ones may be written.
    Lost { lines: u64, cause: io::Error },
}

impl<Writer: Write + Send> Sink for Writer {
    fn write_lines(&mut self, lines: &[u8]) -> Result<(), SinkError> {
        self.write_all(lines).and_then(|()| self.flush()).map_err(SinkError::Closed)
    }
}

/// Queue of lines with the thread that writes them. The thread ends once the queue is dropped and written.
pub(crate) struct Queue {
    shared: Arc<Shared>,
}

#[derive(Clone, Copy)]
pub(crate) struct QueueConfig {
    /// Program and output as named in reports.
    pub(crate) program: &'static str,
    pub(crate) name: &'static str,
    pub(crate) thread: &'static str,
    /// Limit for queued bytes. Lines beyond it are dropped.
    pub(crate) max_bytes: usize,
    /// Reports dropped lines and failures; called by the queue's thread.
    pub(crate) report: fn(&str),
}

struct Shared {
    config: QueueConfig,
    state: Mutex<State>,
    /// Lines were added, or the queue was closed.
    added: Condvar,
    written: Condvar,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    /// Lines in `bytes`, and those that are being written.
    queued_lines: u64,
    /// Lines lost by a failure, to be returned by the next `add`.
    lost_lines: u64,
    /// All lines that were dropped or lost.
    dropped_lines: u64,
    /// Of these, those that were reported.
    reported_lines: u64,
    /// Why lines were lost since the last report.
    last_failure: Option<String>,
    is_writing: bool,
    /// The writer waits for `added`.
    is_idle: bool,
    has_failed: bool,
    is_closed: bool,
}

impl State {
    fn has_unreported(&self) -> bool {
        self.dropped_lines > self.reported_lines
    }
}

impl Queue {
    pub(crate) fn start(to: Box<dyn Sink>, config: QueueConfig) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            config,
            state: Mutex::default(),
            added: Condvar::new(),
            written: Condvar::new(),
        });
        let writer = Arc::clone(&shared);
        thread::Builder::new().name(config.thread.to_owned()).spawn(move || writer.run(to))?;
        Ok(Self { shared })
    }

    /// Adds `count` lines. Returns the number of lines dropped: all or none of these, and, once, those that were lost in
    /// writing.
    pub(crate) fn add(&self, lines: &[u8], count: u64) -> u64 {
        let mut state = self.shared.lock();
        let lost = std::mem::take(&mut state.lost_lines);
        if state.has_failed || state.bytes.len() + lines.len() > self.shared.config.max_bytes {
            state.dropped_lines += count;
            return count + lost;
        }
        state.bytes.extend_from_slice(lines);
        state.queued_lines += count;
        if std::mem::take(&mut state.is_idle) {
            self.shared.added.notify_one();
        }
        lost
    }

    /// Returns true if writing has failed, after which all lines are dropped.
    pub(crate) fn has_failed(&self) -> bool {
        self.shared.lock().has_failed
    }

    /// Waits until everything is written, for `timeout` at most, and reports dropped lines. Returns the number of bytes still queued.
    pub(crate) fn finish(&self, timeout: Duration) -> usize {
        let is_busy = |state: &mut State| state.is_writing || !state.bytes.is_empty();
        let result = self.shared.written.wait_timeout_while(self.shared.lock(), timeout, is_busy);
        let (state, _) = result.unwrap_or_else(PoisonError::into_inner);
        let queued_bytes = state.bytes.len();
        drop(state);
        self.shared.report_dropped();
        queued_bytes
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.added.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut to: Box<dyn Sink>) {
        let QueueConfig { program, name, report, .. } = self.config;
        let mut lines = Vec::new();
        let mut rate_limit = RateLimit::new(REPORT_INTERVAL);
        while let Some(line_count) = self.take(&mut lines) {
            let result = if lines.is_empty() { Ok(()) } else { to.write_lines(&lines) };
            lines.clear();
            let mut state = self.lock();
            state.is_writing = false;
            let lost = match &result {
                Ok(()) => 0,
                Err(SinkError::Lost { lines, .. }) => *lines,
                Err(SinkError::Closed(_)) => {
                    state.has_failed = true;
                    state.bytes = Vec::new();
                    state.queued_lines
                }
            };
            state.queued_lines -= line_count.max(lost);
            state.lost_lines += lost;
            state.dropped_lines += lost;
            if let Err(SinkError::Lost { cause, .. }) = &result {
                state.last_failure = Some(cause.to_string());
            }
            let has_unreported = state.has_unreported();
            drop(state);
            self.written.notify_all();
            if let Err(SinkError::Closed(error)) = result {
                report(&format!("{program}: {name} write failed: {error}; logging disabled"));
                return;
            }
            if has_unreported && rate_limit.allow(Instant::now()) {
                self.report_dropped();
            }
        }
        self.report_dropped();
    }

    /// Reports the lines that were dropped since the last report.
    fn report_dropped(&self) {
        let QueueConfig { program, name, report, .. } = self.config;
        let mut state = self.lock();
        if !state.has_unreported() {
            return;
        }
        let dropped_lines = state.dropped_lines;
        state.reported_lines = dropped_lines;
        let cause = match state.last_failure.take() {
            Some(cause) => format!("{name} write failed: {cause}"),
            None if state.has_failed => format!("{name} write failed"),
            None => format!("reader of {name} is too slow"),
        };
        drop(state);
        report(&format!("{program}: {cause}: {dropped_lines} lines dropped so far"));
    }

    /// Waits for lines, takes all of them, and returns their number: `None` once the queue is closed and empty, and 0 after
    /// a while if a report is due.
    fn take(&self, lines: &mut Vec<u8>) -> Option<u64> {
        let mut state = self.lock();
        while state.bytes.is_empty() {
            if state.is_closed {
                return None;
            }
            state.is_idle = true;
            if state.has_unreported() {
                let result = self.added.wait_timeout(state, REPORT_INTERVAL);
                let (guard, timeout) = result.unwrap_or_else(PoisonError::into_inner);
                state = guard;
                if timeout.timed_out() {
                    break;
                }
            } else {
                state = self.added.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        state.is_idle = false;
        state.is_writing = true;
        std::mem::swap(&mut state.bytes, lines);
        Some(state.queued_lines)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// Takes one write per permit, and passes it on.
    struct SlowReader {
        permits: Receiver<()>,
        writes: Sender<Vec<u8>>,
    }

    impl Write for SlowReader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.permits.recv().map_err(io::Error::other)?;
            self.writes.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const CONFIG: QueueConfig = QueueConfig {
        program: "test",
        name: "output",
        thread: "test",
        max_bytes: 4 << 20,
        report: |_| {},
    };

    fn slow_queue(config: QueueConfig) -> (Queue, Sender<()>, Receiver<Vec<u8>>) {
        let ((permit, permits), (writes, written)) = (channel(), channel());
        let queue = Queue::start(Box::new(SlowReader { permits, writes }), config).unwrap();
        (queue, permit, written)
    }

    fn await_writing(queue: &Queue) {
        while !queue.shared.lock().is_writing {
            thread::yield_now();
        }
    }

    #[test]
    fn slow_reader_gets_lines_within_the_limit_in_order() {
        let (queue, permit, written) = slow_queue(CONFIG);
        assert_eq!(queue.add(b"first\n", 1), 0);
        await_writing(&queue);
        let half = vec![b'h'; CONFIG.max_bytes / 2];
        assert_eq!(queue.add(&half, 7), 0);
        assert_eq!(queue.add(b"small\n", 1), 0);
        assert_eq!(queue.add(&half, 7), 7);
        assert_eq!(queue.add(b"last\n", 2), 0);
        assert_eq!(queue.finish(Duration::from_millis(10)), half.len() + 11);
        (0..2).for_each(|_| permit.send(()).unwrap());
        assert_eq!(written.recv_timeout(TIMEOUT).unwrap(), b"first\n");
        let rest = written.recv_timeout(TIMEOUT).unwrap();
        assert_eq!(rest, [&half[..], b"small\n", b"last\n"].concat());
        assert_eq!(queue.finish(TIMEOUT), 0);
        assert_eq!(queue.add(&half, 7), 0);
        assert_eq!(queue.shared.lock().dropped_lines, 7);
    }

    /// Loses every other batch.
    struct LossySink {
        batches: u64,
    }

    impl Sink for LossySink {
        fn write_lines(&mut self, lines: &[u8]) -> Result<(), SinkError> {
            self.batches += 1;
            let count = lines.iter().filter(|byte| **byte == b'\n').count() as u64;
            if self.batches.is_multiple_of(2) {
                return Ok(());
            }
            Err(SinkError::Lost { lines: count, cause: io::Error::other("it is down") })
        }
    }

    #[test]
    fn lost_lines_are_counted_once_and_later_ones_are_written() {
        static REPORTS: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let report = |text: &str| REPORTS.lock().unwrap().push(text.to_owned());
        let queue =
            Queue::start(Box::new(LossySink { batches: 0 }), QueueConfig { report, ..CONFIG })
                .unwrap();
        assert_eq!(queue.add(b"a\nb\n", 2), 0);
        assert_eq!(queue.finish(TIMEOUT), 0);
        assert_eq!(queue.add(b"c\n", 1), 2);
        assert_eq!(queue.finish(TIMEOUT), 0);
        assert_eq!(queue.add(b"d\n", 1), 0);
        assert!(!queue.has_failed());
        let reports = REPORTS.lock().unwrap().clone();
        assert_eq!(reports, ["test: output write failed: it is down: 2 lines dropped so far"]);
    }

    #[test]
    fn queued_lines_are_written_after_drop() {
        let (queue, permit, written) = slow_queue(CONFIG);
        assert_eq!(queue.add(b"a\n", 1), 0);
        drop(queue);
        permit.send(()).unwrap();
        assert_eq!(written.recv_timeout(TIMEOUT).unwrap(), b"a\n");
        // The thread ends, and drops its writer.
        assert!(written.recv_timeout(TIMEOUT).is_err());
    }

    #[test]
    fn lines_after_an_error_are_dropped_and_those_before_are_counted() {
        let (queue, permit, _) = slow_queue(CONFIG);
        drop(permit);
        assert_eq!(queue.add(b"a\n", 1), 0);
        assert_eq!(queue.finish(TIMEOUT), 0);
        assert_eq!(queue.add(b"b\n", 1), 2);
        assert_eq!(queue.add(b"c\n", 1), 1);
    }

    #[test]
    fn dropped_lines_are_reported_once_the_reader_reads() {
        static REPORTS: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let report = |message: &str| REPORTS.lock().unwrap().push(message.to_owned());
        let (queue, permit, written) = slow_queue(QueueConfig { max_bytes: 10, report, ..CONFIG });
        assert_eq!(queue.add(b"1234567\n", 1), 0);
        await_writing(&queue);
        assert_eq!(queue.add(b"12345678901\n", 1), 1);
        assert_eq!(queue.add(b"12\n", 1), 0);
        assert_eq!(queue.add(b"1234567\n", 2), 2);
        assert_eq!(*REPORTS.lock().unwrap(), [""; 0]);
        permit.send(()).unwrap();
        written.recv_timeout(TIMEOUT).unwrap();
        permit.send(()).unwrap();
        written.recv_timeout(TIMEOUT).unwrap();
        // The report precedes the second write.
        let expected = ["test: reader of output is too slow: 3 lines dropped so far"];
        assert_eq!(*REPORTS.lock().unwrap(), expected);
    }

    #[test]
    fn lines_that_are_dropped_within_the_interval_are_reported_at_the_end() {
        let (reports, received) = channel();
        static REPORTS: Mutex<Option<Sender<String>>> = Mutex::new(None);
        *REPORTS.lock().unwrap() = Some(reports);
        let report =
            |text: &str| REPORTS.lock().unwrap().as_ref().unwrap().send(text.to_owned()).unwrap();
        let queue =
            Queue::start(Box::new(LossySink { batches: 0 }), QueueConfig { report, ..CONFIG })
                .unwrap();
        for line in ["a\n", "b\n", "c\n"] {
            queue.add(line.as_bytes(), 1);
            assert_eq!(queue.finish(TIMEOUT), 0);
        }
        drop(queue);
        for count in 1..=2 {
            let expected =
                format!("test: output write failed: it is down: {count} lines dropped so far");
            assert_eq!(received.recv_timeout(TIMEOUT).unwrap(), expected);
        }
    }

    #[test]
    fn rate_limit_allows_one_event_per_interval() {
        let start = Instant::now();
        let mut limit = RateLimit::new(Duration::from_secs(60));
        let allowed =
            [0, 1, 59, 60, 119, 120].map(|second| limit.allow(start + Duration::from_secs(second)));
        assert_eq!(allowed, [true, false, false, true, false, true]);
    }
}
