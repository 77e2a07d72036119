//! The threads of a run, and the caller's hold on them.

use std::convert::Infallible;
use std::io;
use std::panic::resume_unwind;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tollgate_eventloop::{Waker, pin_current_thread};
use tollgate_stats::LatencyHistogram;

use crate::error::Error;
use crate::live::Live;
use crate::outcome::{Outcome, Progress};
use crate::plan::{Arrivals, Plan};
use crate::recorder::Report;
use crate::window::Stage;
use crate::worker::Worker;

/// A run under way. Dropping it ends the run and waits for its threads.
#[derive(Debug)]
pub struct Generator {
    stage: Arc<Stage>,
    threads: Vec<Thread>,
    /// Nothing is ever sent: it disconnects when the last thread has ended.
    ended: Mutex<Receiver<Infallible>>,
}

#[derive(Debug)]
struct Thread {
    handle: JoinHandle<io::Result<Report>>,
    waker: Waker,
    live: Arc<Live>,
}

impl Generator {
    /// Starts the threads of a plan, which begin to send at once.
    ///
    /// # Errors
    ///
    /// The plan is outside its limits, or a thread cannot be started where it should run. Then
    /// nothing is left running.
    pub fn start(plan: Plan) -> Result<Self, Error> {
        plan.check()?;
        try_pinning(&plan.cpus)?;
        let plan = Arc::new(plan);
        let start = Instant::now() + lead(&plan);
        let (alive, ended) = mpsc::channel();
        let stage = Arc::new(Stage::new(start));
        let mut generator = Self { stage, threads: Vec::new(), ended: Mutex::new(ended) };
        for index in 0..plan.threads {
            let thread = Thread::start(&plan, index, &generator.stage, alive.clone())?;
            generator.threads.push(thread);
        }
        Ok(generator)
    }

    /// When the first request is sent, or is to be sent: an open loop opens its connections first.
    #[must_use]
    pub fn begins_at(&self) -> Instant {
        self.stage.start()
    }

    /// From now on, what finishes is measured; what came before was the warm-up. Each thread is
    /// woken and takes its own readings. A window opens once.
    pub fn open_window(&self) {
        self.stage.measure();
        self.wake();
    }

    /// Ends the run: each thread is woken, takes its own readings and sends nothing more.
    pub fn close_window(&self) {
        self.stage.end();
        self.wake();
    }

    /// Sends nothing more, and has what is under way answered; [`Generator::wait`] tells when it is.
    /// What of a schedule is due and not sent is left out.
    pub fn drain(&self) {
        self.stage.drain();
        self.wake();
    }

    /// Waits until the run has ended by itself, as [`Generator::is_done`] tells it, but no longer than
    /// this. Tells whether it has.
    #[must_use]
    pub fn wait(&self, longest: Duration) -> bool {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        match ended.recv_timeout(longest) {
            Ok(never) => match never {},
            Err(RecvTimeoutError::Disconnected) => {
                // The threads have let go of their ends, which is the last that they do but end.
                while !self.is_done() {
                    thread::yield_now();
                }
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
        }
    }

    /// Whether the run has ended by itself: its plan's requests are delivered, or every thread has
    /// failed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.threads.iter().all(|thread| thread.handle.is_finished())
    }

    /// What has finished since the start, warm-up included.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let mut sum = Progress::default();
        for thread in &self.threads {
            sum.add(&thread.live.progress());
        }
        sum
    }

    /// The latencies that the threads had measured when this was asked for the last time, and asks
    /// them anew. Each time costs every thread some tens of microseconds, so ask for what a person
    /// can read: twice a second.
    pub fn latency_so_far(&self) -> LatencyHistogram {
        let mut sum = LatencyHistogram::new();
        for latency in self.threads.iter().filter_map(|thread| thread.live.ask_latency()) {
            sum.merge(&latency);
        }
        self.wake();
        sum
    }

    /// Closes the window if it is open, waits for the threads and puts their figures together.
    ///
    /// # Errors
    ///
    /// A thread could not go on.
    pub fn finish(mut self) -> Result<Outcome, Error> {
        self.close_window();
        let joined: Vec<_> = self.threads.drain(..).map(|thread| thread.handle.join()).collect();
        let mut reports = Vec::new();
        for (thread, result) in joined.into_iter().enumerate() {
            // A panic is a defect of ours and goes on in the caller's thread.
            let report = result.unwrap_or_else(|panic| resume_unwind(panic));
            let doing = "sending the load";
            reports.push(report.map_err(|source| Error::Thread { thread, doing, source })?);
        }
        Ok(Outcome::of(reports))
    }

    fn wake(&self) {
        for thread in &self.threads {
            thread.waker.wake().expect("waking a thread that holds the other end cannot fail");
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
    /// `alive` is dropped when the thread ends, however it does.
    fn start(
        plan: &Arc<Plan>,
        index: usize,
        stage: &Arc<Stage>,
        alive: Sender<Infallible>,
    ) -> Result<Self, Error> {
        let failed = |doing| move |source| Error::Thread { thread: index, doing, source };
        let waker = Waker::new().map_err(failed("opening its waker"))?;
        let live = Arc::<Live>::default();
        let worker = Worker::new(plan, index, waker.clone(), stage, &live)
            .map_err(failed("opening its poller"))?;
        // One CPU each, so that threads do not push each other around.
        let cpu = plan.cpus.get(index % plan.cpus.len().max(1)).copied();
        let handle = thread::Builder::new()
            .name(format!("load-{index}"))
            .spawn(move || {
                let report = pin(cpu.as_slice()).and_then(|()| worker.run());
                drop(alive);
                report
            })
            .map_err(failed("starting it"))?;
        Ok(Self { handle, waker, live })
    }
}

/// How long after its start an open loop begins to send: time to open its connections. One that is not
/// open by then delays the requests that it is to carry, and they say so.
fn lead(plan: &Plan) -> Duration {
    match plan.arrivals {
        Arrivals::Open { .. } if plan.keep_alive => {
            LEAD_MIN + LEAD_PER_CONNECTION * u32::try_from(plan.connections).unwrap_or(u32::MAX)
        }
        Arrivals::Open { .. } => LEAD_MIN,
        Arrivals::Closed => Duration::ZERO,
    }
}

const LEAD_MIN: Duration = Duration::from_millis(10);
const LEAD_PER_CONNECTION: Duration = Duration::from_micros(50);

/// Whether threads may run on `cpus`, tried on a thread that ends right after, so that a plan which
/// cannot run fails before any request is sent.
fn try_pinning(cpus: &[usize]) -> Result<(), Error> {
    let pin_each = || cpus.iter().try_for_each(|cpu| pin(&[*cpu]));
    let tried = thread::scope(|scope| scope.spawn(pin_each).join());
    tried
        .unwrap_or_else(|panic| resume_unwind(panic))
        .map_err(|source| Error::Cpus { cpus: cpus.to_vec(), source })
}

fn pin(cpus: &[usize]) -> io::Result<()> {
    if cpus.is_empty() { Ok(()) } else { pin_current_thread(cpus) }
}
