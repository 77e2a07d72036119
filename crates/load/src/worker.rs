//! One thread of the generator: its connections, one after another as they become ready.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_eventloop::{Event, Events, Interest, Poller, Waker};
use tollgate_wire::Answer;

use crate::connection::{Connection, Received};
use crate::course::{Course, share};
use crate::failure::Failure;
use crate::plan::Plan;
use crate::recorder::{Live, Recorder, Report};
use crate::slot::{Slot, State};
use crate::window::Stage;

/// One thread's part of a plan under way.
#[derive(Debug)]
pub(crate) struct Worker {
    poller: Poller,
    waker: Waker,
    stage: Arc<Stage>,
    plan: Arc<Plan>,
    course: Course,
    recorder: Recorder,
    slots: Vec<Slot>,
    /// Slots that are not idle.
    busy: usize,
    buffer: Vec<u8>,
    /// The last look at the clock: the end of one request and the start of the next.
    now: Instant,
    /// No slot's deadline is earlier.
    next_sweep: Instant,
}

/// How long a connection waits after a failed connect, so that a closed port is not hammered.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// How long the server may take to close a connection after its last answer.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// The least time between two looks at all deadlines, which is how exactly timeouts are kept.
const SWEEP_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// The most time between two of them.
const SWEEP_INTERVAL_MAX: Duration = Duration::from_secs(1);

const READ_BUFFER_BYTES: usize = 64 * 1024;
const EVENTS_PER_WAIT: usize = 256;
const WAKER_TOKEN: u64 = u64::MAX;

impl Worker {
    /// A thread's part of a plan that has been checked.
    pub(crate) fn new(
        plan: &Arc<Plan>,
        thread: usize,
        waker: Waker,
        stage: &Arc<Stage>,
        live: &Arc<Live>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&waker, WAKER_TOKEN, Interest::Readable)?;
        let now = Instant::now();
        let connections = share(plan.connections as u64, thread as u64, plan.threads as u64);
        Ok(Self {
            poller,
            waker,
            stage: Arc::clone(stage),
            plan: Arc::clone(plan),
            course: Course::new(plan, thread),
            recorder: Recorder::new(plan.workload.templates, Arc::clone(live)),
            slots: (0..connections).map(|_| Slot::new(now)).collect(),
            busy: 0,
            buffer: vec![0; READ_BUFFER_BYTES],
            now,
            next_sweep: now,
        })
    }

    /// Sends until the stage is over or the plan's requests are delivered.
    pub(crate) fn run(mut self) -> io::Result<Report> {
        self.now = Instant::now();
        if self.plan.requests.is_some() {
            self.recorder.open_window(self.now)?;
        }
        self.busy = self.slots.len();
        for index in 0..self.slots.len() {
            self.begin(index);
        }
        let mut events = Events::with_capacity(EVENTS_PER_WAIT);
        while self.busy > 0 && !self.stage.is_over() {
            let patience = self.next_sweep.saturating_duration_since(self.now);
            self.poller.wait(&mut events, Some(patience))?;
            let before = self.now;
            for event in events.iter() {
                if event.token == WAKER_TOKEN {
                    self.on_wake()?;
                } else {
                    self.on_ready(event);
                }
            }
            if self.now == before {
                self.now = Instant::now();
            }
            if self.now >= self.next_sweep {
                self.sweep();
            }
        }
        let now = Instant::now();
        let ages = self.slots.iter().filter_map(|slot| slot.age(now));
        self.recorder.close(now, ages)
    }

    fn on_wake(&mut self) -> io::Result<()> {
        self.waker.drain()?;
        self.now = Instant::now();
        if self.stage.is_measuring() && !self.stage.is_over() {
            self.recorder.open_window(self.now)?;
        }
        Ok(())
    }

    fn on_ready(&mut self, event: Event) {
        // Tokens of connections are indices into the slots.
        let index = event.token as usize;
        match self.slots[index].state {
            State::Connecting(_) => self.establish(index),
            State::Exchanging(_) => {
                if event.is_writable() {
                    self.send(index);
                }
                if event.is_readable() || event.is_closed() {
                    self.receive(index);
                }
            }
            // The server has closed, keeps on sending, or makes room for the rest of a request that
            // it has answered already.
            State::Closing(_) => self.replace(index),
            // Without a socket there is nothing to be ready.
            State::Idle | State::Pausing => {}
        }
    }

    /// Takes the next request, and sends it on the slot's connection or on a new one.
    fn begin(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let Some(request) = self.course.take() else {
            slot.rest();
            self.busy -= 1;
            return;
        };
        self.recorder.begun();
        slot.request = request;
        slot.begun = self.now;
        if matches!(slot.state, State::Exchanging(_)) {
            self.set_deadline(index, self.plan.answer_timeout);
            self.send(index);
        } else {
            self.connect(index);
        }
    }

    fn connect(&mut self, index: usize) {
        match Connection::start(
            &self.poller,
            index as u64,
            match self.plan.target {
                crate::plan::Target::Tcp(a) => a,
                crate::plan::Target::Unix(_) => unreachable!(),
            },
        ) {
            Ok(connection) => {
                self.slots[index].state = State::Connecting(connection);
                self.set_deadline(index, self.plan.connect_timeout);
            }
            Err(error) => {
                self.slots[index].rest();
                self.fail(index, Failure::io("connecting", &error));
            }
        }
    }

    fn establish(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let State::Connecting(mut connection) = std::mem::replace(&mut slot.state, State::Idle)
        else {
            return;
        };
        if let Err(error) = connection.establish(&self.poller) {
            return self.fail(index, Failure::io("connecting", &error));
        }
        slot.state = State::Exchanging(connection);
        self.recorder.connected();
        self.now = Instant::now();
        if self.plan.keep_alive {
            slot.begun = self.now;
        }
        self.set_deadline(index, self.plan.answer_timeout);
        self.send(index);
    }

    fn send(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let State::Exchanging(connection) = &mut slot.state else {
            return;
        };
        let request = self.course.request(slot.request);
        match connection.send(&self.poller, &request.bytes) {
            Ok(()) => {}
            Err(error) if connection.was_closed_between(&error) => self.connect(index),
            Err(error) => self.fail(index, Failure::io("sending", &error)),
        }
    }

    fn receive(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let State::Exchanging(connection) = &mut slot.state else {
            return;
        };
        let request = self.course.request(slot.request);
        let (received, bytes) = connection.receive(&mut self.buffer, request.is_head);
        self.recorder.received(bytes);
        match received {
            Received::Part => {}
            Received::Answer(answer) => self.finish(index, answer),
            Received::Failure(failure) => self.fail(index, failure),
        }
    }

    fn finish(&mut self, index: usize, answer: Answer) {
        self.now = Instant::now();
        let slot = &mut self.slots[index];
        let request = self.course.request(slot.request);
        self.recorder.answered(request.template, &request.expect, answer, self.now - slot.begun);
        let State::Exchanging(connection) = &mut slot.state else {
            return;
        };
        // A server that answers before it has the whole request will not take another after it.
        let carries_on =
            self.plan.keep_alive && answer.keep_alive && connection.has_sent(&request.bytes);
        if carries_on {
            connection.reuse();
        }
        if carries_on || self.course.is_over() {
            self.begin(index);
        } else {
            self.part(index);
        }
    }

    /// Waits for the server to close a connection that carries no further request.
    ///
    /// The side that closes first keeps the pair of ports for a minute (`TIME_WAIT`). On our side that
    /// would leave about 28,000 connects a minute towards one target before connecting fails, so the
    /// server goes first, as it has announced, and only one that does not is cut off.
    fn part(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if let State::Exchanging(connection) = std::mem::replace(&mut slot.state, State::Idle) {
            slot.state = State::Closing(connection);
            self.set_deadline(index, CLOSE_TIMEOUT);
        }
    }

    /// Goes on with a new connection.
    fn replace(&mut self, index: usize) {
        self.now = Instant::now();
        self.slots[index].rest();
        self.begin(index);
    }

    fn fail(&mut self, index: usize, failure: Failure) {
        self.now = Instant::now();
        let slot = &mut self.slots[index];
        self.recorder.failed(failure, self.now - slot.begun);
        let was_connected = matches!(slot.state, State::Exchanging(_));
        slot.rest();
        if was_connected || self.course.is_over() {
            self.begin(index);
        } else {
            slot.state = State::Pausing;
            self.set_deadline(index, RETRY_PAUSE);
        }
    }

    fn set_deadline(&mut self, index: usize, timeout: Duration) {
        let deadline = self.now + timeout;
        self.slots[index].deadline = Some(deadline);
        self.next_sweep = self.next_sweep.min(deadline);
    }

    /// Ends what has lasted too long, and finds out when the next look is worth its while.
    fn sweep(&mut self) {
        for index in 0..self.slots.len() {
            if self.slots[index].is_due(self.now) {
                match self.slots[index].state {
                    State::Connecting(_) => self.fail(index, Failure::ConnectTimeout),
                    State::Exchanging(_) => self.fail(index, Failure::AnswerTimeout),
                    State::Closing(_) | State::Pausing => self.replace(index),
                    State::Idle => {}
                }
            }
        }
        let earliest = self.slots.iter().filter_map(|slot| slot.deadline).min();
        let latest = self.now + SWEEP_INTERVAL_MAX;
        let soonest = self.now + SWEEP_INTERVAL_MIN;
        self.next_sweep = earliest.map_or(latest, |deadline| deadline.clamp(soonest, latest));
    }
}
