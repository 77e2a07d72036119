//! The threads of a load and the caller's handle to them.

use std::convert::Infallible;
use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit};
use tollgate_net::{Waker, pin_current_thread};
use tollgate_stats::LatencyHistogram;
use tollgate_traffic::load_shape::Protocol;

use crate::failures::Error;
use crate::metrics::{SharedProgress, ThreadSummary};
use crate::plan::{Arrivals, Plan};
use crate::series::{Recorder, Series};
use crate::summary::{Progress, Summary};
use crate::worker::{Control, START_WAIT_MAX, Worker};

/// Time from its start until an open loop begins to send, so that connections can be opened first. A
/// connection that is not open by then delays its requests, and their latency includes that. A TLS handshake costs
/// the server a signature.
const LEAD_MIN: Duration = Duration::from_millis(10);
const LEAD_PER_CONNECTION: Duration = Duration::from_micros(50);
const LEAD_PER_HANDSHAKE: Duration = Duration::from_millis(2);

/// A running load. Dropping it ends the load and waits for its threads.
#[derive(Debug)]
pub struct Generator {
    control: Arc<Control>,
    threads: Vec<Thread>,
    /// Disconnects when the last thread ends. Nothing is sent.
    ended: Mutex<Receiver<Infallible>>,
    /// `None` without a series, or when it was taken.
    series: Option<Series>,
}

#[derive(Debug)]
struct Thread {
    handle: JoinHandle<io::Result<ThreadSummary>>,
    waker: Waker,
    progress: Arc<SharedProgress>,
}

impl Generator {
    /// Starts the threads of a plan, which send at once.
    ///
    /// # Errors
    ///
    /// The plan is invalid, or a thread cannot start on its CPU. Then nothing is sent.
    pub fn start(plan: Plan) -> Result<Self, Error> {
        let start = Instant::now() + plan.lead_time();
        Self::start_at(plan, start)
    }

    /// Starts the threads of a plan, which send from `at` on: several generators start together. Threads of an open loop
    /// open their connections before. Returns at that time in a closed loop, which sends as soon as it is connected.
    /// A time that has passed is now.
    ///
    /// # Errors
    ///
    /// As [`Generator::start`].
    pub fn start_at(plan: Plan, at: Instant) -> Result<Self, Error> {
        plan.validate()?;
        if plan.clients.protocol == Protocol::Handshakes && plan.tls.is_none() {
            return Err(Error::Plan("cannot make handshakes without TLS".to_owned()));
        }
        // A replay renders each request when it is due.
        if matches!(plan.clients.protocol, Protocol::Http2 { .. }) && plan.replay().is_none() {
            plan.workload.render_http2();
        }
        check_cpus(&plan.cpus)?;
        let plan = Arc::new(plan);
        if plan.rate().is_none() {
            thread::sleep(at.saturating_duration_since(Instant::now()));
        }
        let start = at.max(Instant::now());
        let (alive, ended) = mpsc::channel();
        let (files_max, _) =
            getrlimit(Resource::RLIMIT_NOFILE).map_err(|source| Error::Files(source.into()))?;
        let control = Arc::new(Control::new(&plan, start, files_max));
        let (parts, received) = mpsc::channel();
        let series = plan.series.map(|length| Series::new(received, length, plan.clients.threads));
        let ended = Mutex::new(ended);
        let mut generator = Self { control, threads: Vec::new(), ended, series };
        for index in 0..plan.clients.threads {
            let recorder = plan.series.map(|length| Recorder::new(index, length, parts.clone()));
            let thread = Thread::start(&plan, index, &generator.control, alive.clone(), recorder)?;
            generator.threads.push(thread);
        }
        Ok(generator)
    }

    /// Takes the figures over time, to be read while the load runs; `None` without [`Plan::series`].
    pub fn take_series(&mut self) -> Option<Series> {
        self.series.take()
    }

    /// Time at which the first request is due. In a closed loop, it is sent when the connections are open.
    pub fn starts_at(&self) -> Instant {
        self.control.start
    }

    /// Ends the warm-up: requests that finish from now on are measured. Later calls have no effect.
    pub fn open_window(&self) {
        self.command(&self.control.measure);
    }

    /// Start of the window: that of a schedule without a warm-up, which may be in the future, else the opening. `None`
    /// until a thread has opened it, which in a closed loop is once its connections are open or one second has passed.
    pub fn window_start(&self) -> Option<Instant> {
        self.control.window_start.get().copied()
    }

    /// Ends the load. Requests in flight stay without a response.
    pub fn close_window(&self) {
        self.command(&self.control.stop);
    }

    /// Stops sending requests and waits for the responses to those in flight; [`Generator::wait`]
    /// reports the end. Scheduled requests that are due are not sent.
    pub fn drain(&self) {
        self.command(&self.control.drain);
    }

    /// Waits up to `timeout` until the load is done. Returns [`Generator::is_done`].
    pub fn wait(&self, timeout: Duration) -> bool {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        match ended.recv_timeout(timeout) {
            Ok(never) => match never {},
            Err(RecvTimeoutError::Disconnected) => {
                // The threads drop their senders just before they end.
                while !self.is_done() {
                    thread::yield_now();
                }
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
        }
    }

    /// True if all threads have ended: all requests of the plan have finished, or the threads failed.
    pub fn is_done(&self) -> bool {
        self.threads.iter().all(|thread| thread.handle.is_finished())
    }

    /// Requests finished since the start, warm-up included.
    pub fn progress(&self) -> Progress {
        let mut sum = Progress::default();
        for thread in &self.threads {
            sum.add(&thread.progress.progress());
        }
        sum
    }

    /// Returns the latencies measured until the last call, and has the threads copy their current ones
    /// for the next call. This costs each thread some tens of microseconds: call it twice per second at
    /// most.
    pub fn live_latency(&self) -> LatencyHistogram {
        let mut sum = LatencyHistogram::new();
        for latency in self.threads.iter().filter_map(|thread| thread.progress.take_latency()) {
            sum.merge(&latency);
        }
        self.wake();
        sum
    }

    /// Ends the load, waits for the threads and merges their metrics.
    pub fn finish(mut self) -> Result<Summary, Error> {
        self.close_window();
        let joined: Vec<_> = self.threads.drain(..).map(|thread| thread.handle.join()).collect();
        let mut summary = Summary::default();
        let mut ends = Vec::new();
        for (thread, result) in joined.into_iter().enumerate() {
            // A panic is a defect of this crate and continues in the thread of the caller.
            let result = result.unwrap_or_else(|panic| resume_unwind(panic));
            let action = "send the load";
            let ended = result.map_err(|source| Error::Thread { thread, action, source })?;
            ends.extend(ended.window.map(|(_, closed_at)| closed_at));
            summary.merge(ended.summary);
        }
        let closed_at = ends.into_iter().max();
        // A schedule does not wait for threads that start late.
        if let (Some(opened_at), Some(closed_at)) = (self.window_start(), closed_at) {
            summary.window = closed_at - opened_at;
            summary.opened_at = Some(opened_at);
        }
        if let [only] = &mut summary.templates[..] {
            only.latency = summary.latency.clone();
        }
        Ok(summary)
    }

    fn command(&self, flag: &AtomicBool) {
        flag.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        for thread in &self.threads {
            thread.waker.wake().expect("the thread holds the other end of its waker");
        }
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        self.close_window();
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.handle.join()
                && !thread::panicking()
            {
                resume_unwind(panic);
            }
        }
    }
}

impl Thread {
    /// `alive` is dropped when the thread ends, however it ends.
    fn start(
        plan: &Arc<Plan>,
        index: usize,
        control: &Arc<Control>,
        alive: Sender<Infallible>,
        recorder: Option<Recorder>,
    ) -> Result<Self, Error> {
        let failed = |action| move |source| Error::Thread { thread: index, action, source };
        let waker = Waker::new().map_err(failed("open its waker"))?;
        let progress = Arc::<SharedProgress>::default();
        let worker = Worker::new(plan, index, waker.clone(), control, &progress, recorder)
            .map_err(failed("open its poller"))?;
        // One CPU each, so that threads do not compete.
        let cpu = plan.cpus.get(index % plan.cpus.len().max(1)).copied();
        let handle = thread::Builder::new()
            .name(format!("load-{index}"))
            .spawn(move || {
                let result = cpu.map_or(Ok(()), |cpu| pin_current_thread(&[cpu]));
                let result = result.and_then(|()| worker.run());
                drop(alive);
                result
            })
            .map_err(failed("start"))?;
        Ok(Self { handle, waker, progress })
    }
}

impl Plan {
    /// Time from the start of a generator until it sends, in which an open loop opens its connections.
    pub fn lead_time(&self) -> Duration {
        // Of its own part of the plan.
        let connections = self.connections().div_ceil(self.shard.count);
        match self.arrivals {
            Arrivals::Open { .. } if self.clients.protocol.keeps_connections() => {
                let connections = u32::try_from(connections).unwrap_or(u32::MAX);
                let with_tls = || (LEAD_PER_HANDSHAKE * connections).min(START_WAIT_MAX);
                let handshakes = self.tls.as_ref().map_or(Duration::ZERO, |_| with_tls());
                LEAD_MIN + LEAD_PER_CONNECTION * connections + handshakes
            }
            Arrivals::Open { .. } | Arrivals::Replay(_) => LEAD_MIN,
            Arrivals::Closed { .. } => Duration::ZERO,
        }
    }
}

/// Pins a thread to each CPU in turn, so that a plan that cannot run fails before its first request.
fn check_cpus(cpus: &[usize]) -> Result<(), Error> {
    let pin_each = || cpus.iter().try_for_each(|cpu| pin_current_thread(&[*cpu]));
    thread::scope(|scope| scope.spawn(pin_each).join())
        .unwrap_or_else(|panic| resume_unwind(panic))
        .map_err(|source| Error::Cpus { cpus: cpus.to_vec(), source })
}
