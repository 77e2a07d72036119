//! Metrics of one thread: its summary while it runs, its CPU time, and the progress that other threads
//! may read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use tollgate_http1::Response;
use tollgate_stats::LatencyHistogram;
use tollgate_tls::{TlsSession, WireBytes};

use crate::failures::RequestFailure;
use crate::in_flight::InFlight;
use crate::plan::Plan;
use crate::series::Recorder;
use crate::summary::{Progress, ReplaySummary, Summary, TemplateSummary, ThreadUsage};
use crate::workload::Request;

/// Counts the events of one thread: all in `progress`, and in detail while its window is open.
#[derive(Debug)]
pub(crate) struct Metrics {
    summary: Summary,
    window: Option<Window>,
    progress: Progress,
    shared: Arc<SharedProgress>,
    /// True if each template has its own latency. A single one shares that of all requests.
    has_templates: bool,
    /// `None` without a series.
    series: Option<Box<Recorder>>,
}

#[derive(Debug)]
struct Window {
    opened_at: Instant,
    cpu: CpuTime,
    polled: Duration,
}

#[derive(Debug)]
pub(crate) struct ThreadSummary {
    pub(crate) summary: Summary,
    pub(crate) window: Option<(Instant, Instant)>,
}

impl Metrics {
    /// `planned`: number of requests of the thread.
    pub(crate) fn new(
        plan: &Plan,
        shared: Arc<SharedProgress>,
        series: Option<Recorder>,
        planned: Option<u64>,
    ) -> Self {
        let schedule_histogram = || plan.rate().is_some().then(LatencyHistogram::new);
        let templates = plan.workload.templates;
        let summary = Summary {
            uncorrected_latency: schedule_histogram(),
            lateness: schedule_histogram(),
            first_byte: plan.first_byte.then(LatencyHistogram::new),
            replay: plan.replay().map(|_| ReplaySummary {
                planned: planned.unwrap_or(0),
                ..ReplaySummary::default()
            }),
            // Not cloned, so that the memory of a histogram stays untouched until its first use.
            templates: (0..templates).map(|_| TemplateSummary::default()).collect(),
            ..Summary::default()
        };
        let has_templates = templates > 1;
        let (progress, series) = (Progress::default(), series.map(Box::new));
        Self { summary, window: None, progress, shared, has_templates, series }
    }

    /// Opens the window. Later calls have no effect. `origin`: start of the windows of all threads, set by the first one.
    /// A thread may have read its clock before that and set its window after it.
    pub(crate) fn open_window(
        &mut self,
        now: Instant,
        clock: &ThreadCpuClock,
        origin: &OnceLock<Instant>,
    ) -> io::Result<()> {
        if self.window.is_none() {
            let origin = *origin.get_or_init(|| now);
            let (opened_at, cpu) = (now.max(origin), clock.read()?);
            self.window = Some(Window { opened_at, cpu, polled: Duration::ZERO });
            self.summary.warm_up = self.progress;
            if let Some(series) = &mut self.series {
                series.open(origin, cpu.total(), &self.summary);
            }
        }
        Ok(())
    }

    /// End of the current interval of the series.
    pub(crate) fn interval_end(&self) -> Option<Instant> {
        self.series.as_ref()?.end()
    }

    /// Ends the current interval of the series if it is over.
    #[inline]
    pub(crate) fn advance_series(&mut self, now: Instant) {
        if self.series.is_some() {
            self.cut_series(now);
        }
    }

    fn cut_series(&mut self, now: Instant) {
        if let Some(series) = &mut self.series
            && series.is_due(now)
        {
            let Progress { responses, failed, .. } = self.progress;
            let cpu = cpu_time();
            series.cut(now, cpu, &self.summary, self.summary.sent - responses - failed);
        }
    }

    /// Counts of the sessions. Without a replay, nothing reads them.
    pub(crate) fn replay(&mut self) -> &mut ReplaySummary {
        self.summary.replay.get_or_insert_default()
    }

    pub(crate) fn polled(&mut self, time: Duration) {
        if let Some(window) = &mut self.window {
            window.polled += time;
        }
    }

    pub(crate) fn sent(&mut self, now: Instant) {
        self.advance_series(now);
        self.summary.sent += 1;
    }

    pub(crate) fn connected(&mut self, after: Duration) {
        self.summary.connects += 1;
        self.summary.connect_time.record(nanos(after));
    }

    pub(crate) fn handshake(&mut self, after: Duration, tls: &TlsSession) {
        let summary = &mut self.summary;
        let histogram = summary.handshake_time.get_or_insert_with(LatencyHistogram::new);
        histogram.record(nanos(after));
        summary.resumed_handshakes += u64::from(tls.is_resumed());
        if summary.tls.is_none() {
            summary.tls = tls.facts().map(|facts| format!("{} {}", facts.version, facts.cipher));
        }
    }

    /// Counts the bytes of a TLS session that ends.
    pub(crate) fn disconnected(&mut self, tls: Option<&TlsSession>) {
        if let Some(tls) = tls {
            let WireBytes { received, sent } = tls.wire_bytes();
            *self.summary.tls_bytes_received.get_or_insert(0) += received;
            *self.summary.tls_bytes_sent.get_or_insert(0) += sent;
        }
    }

    pub(crate) fn received(&mut self, bytes: usize) {
        if self.window.is_some() {
            self.summary.bytes_received += bytes as u64;
        }
    }

    pub(crate) fn resent(&mut self, requests: usize) {
        if self.window.is_some() {
            self.summary.resent += requests as u64;
        }
    }

    pub(crate) fn force_closed(&mut self) {
        if self.window.is_some() {
            self.summary.force_closed += 1;
        }
    }

    /// Counts a request of the schedule. `is_queued`: it was due while no connection was free.
    pub(crate) fn due(&mut self, lateness: Duration, is_queued: bool) {
        if self.window.is_some()
            && let Some(histogram) = &mut self.summary.lateness
        {
            histogram.record(nanos(lateness));
            self.summary.queued += u64::from(is_queued);
        }
    }

    /// Counts a complete response. `has_pattern`: see [`Expectation::accepts`](crate::Expectation).
    pub(crate) fn response(
        &mut self,
        in_flight: &InFlight,
        request: &Request,
        response: Response,
        has_pattern: bool,
        now: Instant,
    ) {
        self.advance_series(now);
        let latency_ns = nanos(now - in_flight.scheduled);
        let is_expected = request.expect.accepts(response, has_pattern);
        self.progress.responses += 1;
        self.progress.unexpected += u64::from(!is_expected);
        self.progress.latency_ns_sum += latency_ns;
        self.shared.publish(&self.progress);
        if self.window.is_none() {
            return;
        }
        let summary = &mut self.summary;
        summary.responses += 1;
        summary.body_bytes += response.body_bytes;
        summary.bytes_sent += in_flight.sent_bytes;
        summary.kept_alive += u64::from(response.keep_alive);
        summary.folded_heads += u64::from(response.faults.is_folded);
        summary.double_framings += u64::from(response.faults.has_two_framings);
        summary.latency.record(latency_ns);
        if let Some(series) = &mut self.series {
            series.latency(latency_ns);
        }
        if let Some(histogram) = &mut summary.uncorrected_latency {
            histogram.record(nanos(now - in_flight.sent));
        }
        if let (Some(histogram), Some(first_byte)) = (&mut summary.first_byte, in_flight.first_byte)
        {
            histogram.record(nanos(first_byte - in_flight.sent));
        }
        let template = &mut summary.templates[request.template];
        *template.statuses.entry(response.status).or_default() += 1;
        if self.has_templates {
            template.latency.record(latency_ns);
        }
        if !is_expected {
            summary.unexpected += 1;
            template.unexpected += 1;
            template.unexpected_example.get_or_insert_with(|| {
                let pattern = if has_pattern { "" } else { " without the pattern" };
                let Response { status, body_bytes, .. } = response;
                format!("{status} with {body_bytes} bytes{pattern}, instead of {}", request.expect)
            });
        }
    }

    /// Counts a request that is complete with its handshake.
    pub(crate) fn completed_handshake(&mut self, in_flight: &InFlight, now: Instant) {
        self.advance_series(now);
        let latency_ns = nanos(now - in_flight.scheduled);
        self.progress.responses += 1;
        self.progress.latency_ns_sum += latency_ns;
        self.shared.publish(&self.progress);
        if self.window.is_none() {
            return;
        }
        self.summary.responses += 1;
        self.summary.latency.record(latency_ns);
        if let Some(series) = &mut self.series {
            series.latency(latency_ns);
        }
        if let Some(histogram) = &mut self.summary.uncorrected_latency {
            histogram.record(nanos(now - in_flight.sent));
        }
    }

    /// Records the server's limit of streams. The lowest one counts.
    pub(crate) fn stream_limit(&mut self, streams: u32) {
        if streams == u32::MAX {
            return;
        }
        let limit = &mut self.summary.streams_max;
        *limit = Some(limit.map_or(streams, |known| known.min(streams)));
    }

    pub(crate) fn failure(
        &mut self,
        in_flight: &InFlight,
        template: usize,
        failure: RequestFailure,
        now: Instant,
    ) {
        self.advance_series(now);
        self.progress.failed += 1;
        self.shared.publish(&self.progress);
        if self.window.is_none() {
            return;
        }
        // A timeout is a lower bound of a latency. Other failures say nothing about latency.
        if failure.is_timeout() {
            let latency_ns = nanos(now - in_flight.scheduled);
            self.summary.latency.record(latency_ns);
            if let Some(series) = &mut self.series {
                series.latency(latency_ns);
            }
            if self.has_templates {
                self.summary.templates[template].latency.record(latency_ns);
            }
            if let Some(histogram) = &mut self.summary.uncorrected_latency {
                histogram.record(nanos(now - in_flight.sent));
            }
        }
        failure.count(&mut self.summary.failures);
    }

    pub(crate) fn needs_first_headers(&self) -> bool {
        self.summary.first_headers.is_none()
    }

    pub(crate) fn set_first_headers<'a>(
        &mut self,
        headers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.summary.first_headers =
            Some(headers.map(|(name, value)| (text(name), text(value))).collect());
    }

    /// Shares a copy of the latencies, if another thread has requested one.
    pub(crate) fn share_latency(&self) {
        self.shared.share_latency(&self.summary.latency);
    }

    /// Closes the window. `ages`: of the requests in flight; `unsent`: number and age of the oldest.
    pub(crate) fn finish(
        self,
        now: Instant,
        clock: &ThreadCpuClock,
        ages: impl Iterator<Item = Duration>,
        unsent: (u64, Option<Duration>),
    ) -> io::Result<ThreadSummary> {
        let mut summary = self.summary;
        let cpu = clock.read()?;
        if let Some(series) = self.series {
            let Progress { responses, failed, .. } = self.progress;
            series.finish(now, cpu.total(), &summary, summary.sent - responses - failed);
        }
        for age in ages {
            summary.in_flight += 1;
            summary.oldest_in_flight = summary.oldest_in_flight.max(Some(age));
            let histogram = summary.in_flight_ages.get_or_insert_with(LatencyHistogram::new);
            histogram.record(nanos(age));
        }
        (summary.unsent, summary.oldest_unsent) = unsent;
        let examples = summary.templates.iter().filter_map(|t| t.unexpected_example.clone());
        summary.unexpected_example = examples.into_iter().next();
        let Some(window) = self.window else {
            summary.warm_up = self.progress;
            return Ok(ThreadSummary { summary, window: None });
        };
        summary.threads.push(ThreadUsage {
            // CPU times of the kernel never decrease.
            user: cpu.user.saturating_sub(window.cpu.user),
            system: cpu.system.saturating_sub(window.cpu.system),
            waited: cpu.waited.saturating_sub(window.cpu.waited),
            polled: window.polled,
            window: now - window.opened_at,
        });
        Ok(ThreadSummary { summary, window: Some((window.opened_at, now)) })
    }
}

/// Progress of one thread for other threads. On separate cache lines, to avoid false sharing.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct SharedProgress {
    responses: AtomicU64,
    failed: AtomicU64,
    unexpected: AtomicU64,
    latency_ns_sum: AtomicU64,
    latency_requested: AtomicBool,
    latency: Mutex<Option<LatencyHistogram>>,
}

impl SharedProgress {
    fn publish(&self, progress: &Progress) {
        self.responses.store(progress.responses, Ordering::Relaxed);
        self.failed.store(progress.failed, Ordering::Relaxed);
        self.unexpected.store(progress.unexpected, Ordering::Relaxed);
        self.latency_ns_sum.store(progress.latency_ns_sum, Ordering::Relaxed);
    }

    pub(crate) fn progress(&self) -> Progress {
        Progress {
            responses: self.responses.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            unexpected: self.unexpected.load(Ordering::Relaxed),
            latency_ns_sum: self.latency_ns_sum.load(Ordering::Relaxed),
        }
    }

    /// Takes the shared copy of the latencies and requests the next one. The caller has to wake the
    /// thread.
    pub(crate) fn take_latency(&self) -> Option<LatencyHistogram> {
        self.latency_requested.store(true, Ordering::Relaxed);
        // A thread that panics with the lock held leaves the copy valid.
        self.latency.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn share_latency(&self, latency: &LatencyHistogram) {
        if self.latency_requested.swap(false, Ordering::Relaxed) {
            let mut shared = self.latency.lock().unwrap_or_else(PoisonError::into_inner);
            *shared = Some(latency.clone());
        }
    }
}

/// Converts to nanoseconds. Histograms count all times beyond an hour as one hour.
fn nanos(time: Duration) -> u64 {
    time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos())
}

#[derive(Clone, Copy, Debug)]
struct CpuTime {
    user: Duration,
    system: Duration,
    /// Time ready to run, but waiting for a CPU.
    waited: Duration,
}

impl CpuTime {
    fn total(&self) -> Duration {
        self.user + self.system
    }
}

/// Reads the CPU time of the thread that opened it.
#[derive(Debug)]
pub(crate) struct ThreadCpuClock {
    /// Kept open, so that a reading needs no descriptor when connections use all.
    schedstat: File,
}

/// Nanoseconds on a CPU, nanoseconds waiting for one, and number of timeslices
/// (Documentation/scheduler/sched-stats.rst of the kernel).
const SCHEDSTAT: &str = "/proc/thread-self/schedstat";

/// Three numbers of 64 bits and separators.
const SCHEDSTAT_BYTES_MAX: usize = 64;

impl ThreadCpuClock {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { schedstat: File::open(SCHEDSTAT)? })
    }

    /// Reads the clock on the thread that opened it. The sum of user and system time is exact; the kernel
    /// splits it by samples at clock ticks.
    fn read(&self) -> io::Result<CpuTime> {
        let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
        let mut text = [0; SCHEDSTAT_BYTES_MAX];
        let bytes = self.schedstat.read_at(&mut text, 0)?;
        Ok(CpuTime {
            user: duration(usage.user_time()),
            system: duration(usage.system_time()),
            waited: waited(&String::from_utf8_lossy(&text[..bytes]))?,
        })
    }
}

/// The second number of schedstat.
fn waited(schedstat: &str) -> io::Result<Duration> {
    let second = schedstat.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok());
    second.map(Duration::from_nanos).ok_or_else(|| {
        let reason = format!("cannot parse {SCHEDSTAT} `{}`: no second number", schedstat.trim());
        io::Error::new(io::ErrorKind::InvalidData, reason)
    })
}

/// CPU time of the calling thread, in user mode and in the kernel.
fn cpu_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("Linux has the usage of a thread");
    duration(usage.user_time()) + duration(usage.system_time())
}

fn duration(time: TimeVal) -> Duration {
    // CPU time is never negative.
    let micros = time.tv_sec().unsigned_abs() * 1_000_000 + time.tv_usec().unsigned_abs();
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_clock_advances_with_work() {
        let clock = ThreadCpuClock::open().unwrap();
        let before = clock.read().unwrap();
        let is_later = |now: CpuTime| now.total() > before.total();
        let end = Instant::now() + Duration::from_secs(10);
        while !is_later(clock.read().unwrap()) {
            assert!(Instant::now() < end);
        }
    }

    #[test]
    fn windows_of_all_threads_start_when_the_first_one_opens() {
        let clock = ThreadCpuClock::open().unwrap();
        let (origin, start, ms) = (OnceLock::new(), Instant::now(), Duration::from_millis(1));
        // The second thread has read its clock before the first, and opens its window after it.
        let windows = [start + 2 * ms, start].map(|now| {
            let mut metrics = Metrics {
                summary: Summary::default(),
                window: None,
                progress: Progress::default(),
                shared: Arc::default(),
                has_templates: false,
                series: None,
            };
            metrics.open_window(now, &clock, &origin).unwrap();
            let ended = metrics.finish(start + 9 * ms, &clock, std::iter::empty(), (0, None));
            ended.unwrap().window.unwrap()
        });
        assert_eq!(windows, [(start + 2 * ms, start + 9 * ms); 2]);
    }

    #[test]
    fn wait_is_the_second_number_of_schedstat() {
        assert_eq!(waited("900 1500 3\n").unwrap(), Duration::from_nanos(1500));
        assert!(waited("900").unwrap_err().to_string().contains("`900`: no second number"));
    }
}
