//! One thread of the generator: its connections, one after another as they become ready.

mod answers;
mod connections;
mod resting;
mod sending;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_eventloop::{Event, Events, Interest, Poller, Waker, wake_exactly};
use tollgate_wire::HeadMemo;

use crate::clocks::Clocks;
use crate::course::{Course, share};
use crate::live::Live;
use crate::nap::Naps;
use crate::pacer::Pacer;
use crate::pause::{EARLY, Pause};
use crate::plan::{Arrivals, Plan};
use crate::recorder::{Recorder, Report};
use crate::schedule::Schedule;
use crate::slot::{Slot, State};
use crate::usage::ThreadClock;
use crate::window::Stage;
use sending::Budget;

/// One thread's part of a plan under way.
#[derive(Debug)]
pub(crate) struct Worker {
    poller: Poller,
    waker: Waker,
    stage: Arc<Stage>,
    plan: Arc<Plan>,
    course: Course,
    /// `None` in a closed loop.
    pacer: Option<Pacer>,
    pause: Pause,
    /// `None` where the schedule has no slack.
    naps: Option<Naps>,
    /// With slack: read when the thread woke last.
    clocks: Clocks,
    recorder: Recorder,
    slots: Vec<Slot>,
    /// How many slots there may be.
    slots_max: usize,
    /// Open loop: slots that can take a request, the one that has waited longest first, so that
    /// every connection has its turn.
    offered: VecDeque<usize>,
    /// Slots whose last look at the socket did not empty it.
    unread: Vec<usize>,
    heads: HeadMemo,
    /// How many slots have begun; the first ones.
    begun: usize,
    /// Since when connections are opened.
    began: Instant,
    /// Whether requests are sent.
    has_begun: bool,
    /// What may still be done before the poller is asked again.
    budget: Budget,
    /// Requests under way on all slots.
    under_way: usize,
    /// The last look at the clock.
    now: Instant,
    /// When timeouts are looked at next.
    next_sweep: Instant,
    /// The window is to be opened as soon as the schedule has begun.
    wants_window: bool,
    /// Since when the poller has been asked over and over, and there was nothing to do.
    idle_since: Option<Instant>,
}

/// The least time between two looks at all timeouts, which is how exactly they are kept.
const SWEEP_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// The most time between two of them.
const SWEEP_INTERVAL_MAX: Duration = Duration::from_secs(1);

const READ_BUFFER_BYTES: usize = 64 * 1024;
const EVENTS_PER_WAIT: usize = 256;
const WAKER_TOKEN: u64 = u64::MAX;
/// A token holds a slot's index, and above it the number of its connection. There are far fewer slots
/// than indices, so none is the waker's.
const INDEX_BITS: u32 = 32;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

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
        let naps = (!plan.timer_slack.is_zero()).then(|| Naps::new(plan.timer_slack, now));
        // What may be late need not be woken for early.
        let early = if naps.is_some() { Duration::ZERO } else { EARLY };
        let of_thread = |total: usize| share(total as u64, thread as u64, plan.threads as u64);
        let requests = plan.requests.map(|all| share(all, thread as u64, plan.threads as u64));
        let mut connections = of_thread(plan.connections);
        let (pacer, slots_max) = match plan.arrivals {
            Arrivals::Closed => {
                // More would have nothing to send.
                connections = connections.min(requests.unwrap_or(u64::MAX));
                (None, connections)
            }
            Arrivals::Open { per_second, spacing } => {
                let schedule = Schedule::new(per_second, spacing, thread, plan.threads);
                let pacer = Pacer::new(schedule, stage.start(), requests);
                (Some(pacer), of_thread(plan.connections_max))
            }
        };
        Ok(Self {
            poller,
            waker,
            stage: Arc::clone(stage),
            plan: Arc::clone(plan),
            course: Course::new(plan, thread),
            pacer,
            pause: Pause::new(early),
            naps,
            clocks: Clocks::read(),
            recorder: Recorder::new(plan, Arc::clone(live)),
            slots: (0..connections).map(|_| Slot::new(now)).collect(),
            slots_max: slots_max as usize,
            offered: VecDeque::new(),
            unread: Vec::new(),
            heads: HeadMemo::new(),
            begun: 0,
            began: now,
            has_begun: false,
            budget: Budget::TURN,
            under_way: 0,
            now,
            next_sweep: now,
            wants_window: !plan.warm_up,
            idle_since: None,
        })
    }

    /// Sends until the stage is over or the plan's requests are delivered.
    pub(crate) fn run(mut self) -> io::Result<Report> {
        wake_exactly()?;
        let clock = ThreadClock::open()?;
        let mut buffer = vec![0; READ_BUFFER_BYTES];
        let mut events = Events::with_capacity(EVENTS_PER_WAIT);
        self.now = Instant::now();
        self.began = self.now;
        if !self.plan.keep_alive {
            self.has_begun = true;
            self.open_window(&clock)?;
        }
        self.begin();
        self.begin_sending(&clock)?;
        'turns: while !self.is_finished() && !self.stage.is_over() {
            let patience = self.rest();
            self.poller.wait(&mut events, Some(patience))?;
            self.woke_after(patience);
            self.budget = Budget::TURN;
            let before = self.now;
            self.open_window(&clock)?;
            for event in events.iter() {
                self.budget.events -= 1;
                if event.token == WAKER_TOKEN {
                    self.on_wake()?;
                } else {
                    self.on_ready(event, &mut buffer);
                }
                if self.stage.is_over() {
                    break 'turns;
                }
                self.open_window(&clock)?;
                self.send_between();
            }
            for index in std::mem::take(&mut self.unread) {
                if self.stage.is_over() {
                    break 'turns;
                }
                self.slots[index].is_unread = false;
                self.receive(index, &mut buffer);
                self.open_window(&clock)?;
                self.send_between();
            }
            if self.now == before {
                self.now = Instant::now();
            }
            self.open_window(&clock)?;
            self.send_due();
            self.turned_after(patience);
            if self.now >= self.next_sweep {
                self.sweep();
            }
            self.begin();
            self.begin_sending(&clock)?;
        }
        self.close(&clock)
    }

    /// Whether all requests of the plan have ended. Without a number of them, it never is.
    fn is_finished(&self) -> bool {
        let is_all_sent = match &self.pacer {
            Some(pacer) => pacer.next().is_none(),
            None => self.course.is_over(),
        };
        is_all_sent && self.under_way == 0
    }

    fn on_wake(&mut self) -> io::Result<()> {
        self.waker.drain()?;
        self.now = Instant::now();
        self.wants_window |= self.stage.is_measuring() && !self.stage.is_over();
        if self.stage.is_draining() {
            self.course.end();
            if let Some(pacer) = &mut self.pacer {
                pacer.end();
            }
        }
        self.recorder.show();
        Ok(())
    }

    /// Opens the window if that is wanted, but not before the first request is sent or, on a schedule,
    /// due: those that have to wait for the first connections are held, and count.
    fn open_window(&mut self, clock: &ThreadClock) -> io::Result<()> {
        if self.wants_window {
            self.now = Instant::now();
            let may_begin = self.has_begun || self.pacer.is_some();
            if self.now >= self.stage.start() && may_begin {
                self.recorder.open_window(self.now, clock)?;
                self.wants_window = false;
            }
        }
        Ok(())
    }

    fn on_ready(&mut self, event: Event, buffer: &mut [u8]) {
        let index = (event.token & INDEX_MASK) as usize;
        if event.token != self.token(index) {
            // It tells of a connection that has been replaced in this turn.
            return;
        }
        let is_readable = event.is_readable() || event.is_closed();
        match &mut self.slots[index].state {
            State::Connecting(link) => {
                link.is_shut |= event.is_shut();
                self.establish(index);
                if is_readable {
                    self.receive(index, buffer);
                }
            }
            State::Open(link) => {
                link.is_shut |= event.is_shut();
                if event.is_writable() {
                    self.send(index);
                }
                if is_readable {
                    self.receive(index, buffer);
                }
            }
            // The server has closed, keeps on sending, or makes room for the rest of a request that
            // it has answered already.
            State::Closing(_) => self.go_on(index),
            // Without a socket there is nothing to be ready.
            State::Down | State::Pausing => {}
        }
    }

    /// What the poller calls the connection of a slot.
    fn token(&self, index: usize) -> u64 {
        u64::from(self.slots[index].generation) << INDEX_BITS | index as u64
    }

    fn close(self, clock: &ThreadClock) -> io::Result<Report> {
        let now = Instant::now();
        let overdue = match self.pacer {
            Some(pacer) => pacer.overdue(now),
            None => (0, None),
        };
        let ages = self.slots.iter().flat_map(|slot| slot.ages(now));
        self.recorder.close(now, clock, ages, overdue)
    }
}
