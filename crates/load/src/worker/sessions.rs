//! Sessions of a replay on one thread: their queues, and which of them may go on.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::pacing::{Pacer, Schedule};
use crate::rate::Rate;
use crate::replay::Replay;
use crate::session::Jar;

/// The sessions of one thread.
#[derive(Debug)]
pub(super) struct Sessions {
    /// When the next request is due.
    pub(super) pacer: Pacer,
    pub(super) replay: Arc<Replay>,
    thread: usize,
    threads: usize,
    /// Number of requests of the thread.
    planned: u64,
    /// Position from which the next event is looked for.
    next: usize,
    /// From their first request to the last response.
    pub(super) sessions: HashMap<u32, Session>,
    /// Session of each connection.
    pub(super) owners: Vec<Option<u32>>,
    /// Connections without a session.
    pub(super) vacant: Vec<usize>,
    /// Sessions that may go on.
    ready: VecDeque<u32>,
    /// Sessions that wait for a connection, with the due time of their first request.
    pub(super) starved: BTreeSet<(Instant, u32)>,
    /// Number of requests in all queues.
    pub(super) queued: u64,
    /// Connection from which the search for an idle one starts.
    pub(super) hand: usize,
    /// False if the last search has found no idle connection, and none has become idle since.
    pub(super) has_idle: bool,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) jar: Jar,
    /// By variable.
    pub(super) values: Box<[Option<Box<str>>]>,
    /// Requests in flight whose response sets the variable.
    pub(super) pending: Box<[u32]>,
    /// Requests that are due, in their order.
    pub(super) queue: VecDeque<Queued>,
    pub(super) connections: Vec<usize>,
    /// Connections that may take a request; the one used last is taken first.
    pub(super) free: Vec<usize>,
    /// Requests that are not due yet.
    left: u32,
    pub(super) in_flight: u32,
    pub(super) is_ready: bool,
    /// Its time among the sessions that wait for a connection.
    pub(super) starved_since: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Queued {
    pub(super) request: usize,
    pub(super) scheduled: Instant,
    /// True if it is counted as one that waits for a variable.
    is_awaiting: bool,
}

/// Reason why a session sends no further request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Served {
    /// Its queue is empty.
    Completely,
    /// The poller is called first.
    UntilNextTurn,
    UntilConnection,
    UntilVariable,
}

impl Session {
    fn new(replay: &Replay, left: u32) -> Self {
        let variables = replay.variables.len();
        Self {
            jar: Jar::default(),
            values: vec![None; variables].into(),
            pending: vec![0; variables].into(),
            queue: VecDeque::new(),
            connections: Vec::new(),
            free: Vec::new(),
            left,
            in_flight: 0,
            is_ready: false,
            starved_since: None,
        }
    }

    /// Marks the first or the last request of the queue as one that waits for a variable. Returns true if it was not.
    pub(super) fn await_variable(&mut self, is_last: bool) -> bool {
        let queued = if is_last { self.queue.back_mut() } else { self.queue.front_mut() };
        queued.is_some_and(|queued| !std::mem::replace(&mut queued.is_awaiting, true))
    }

    pub(super) fn is_over(&self) -> bool {
        self.left == 0 && self.in_flight == 0 && self.queue.is_empty()
    }
}

impl Sessions {
    /// Creates the sessions of one of `threads`, whose requests are due from `start` on.
    pub(super) fn new(
        replay: &Arc<Replay>,
        rate: &Rate,
        start: Instant,
        thread: usize,
        threads: usize,
    ) -> Self {
        let is_own = |session: &usize| session % threads == thread;
        let own = (0..replay.requests.len()).filter(is_own);
        let planned = own.map(|session| u64::from(replay.requests[session])).sum();
        let schedule = Schedule::of_replay(rate, replay, thread, threads);
        Self {
            pacer: Pacer::new(schedule, start, Some(planned), None),
            replay: Arc::clone(replay),
            thread,
            threads,
            planned,
            next: 0,
            sessions: HashMap::new(),
            owners: Vec::new(),
            vacant: Vec::new(),
            ready: VecDeque::new(),
            starved: BTreeSet::new(),
            queued: 0,
            hand: 0,
            has_idle: false,
        }
    }

    pub(super) fn planned(&self) -> u64 {
        self.planned
    }

    /// True if all requests are sent, or dropped.
    pub(super) fn is_done(&self) -> bool {
        self.pacer.next().is_none() && self.queued == 0
    }

    /// Number of requests that are due and not sent, and the age of the oldest; see [`Pacer::unsent`].
    pub(super) fn unsent(self, now: Instant, grace: Duration) -> (u64, Option<Duration>) {
        let (due, oldest_due) = self.pacer.unsent(now, grace);
        let fronts = self.sessions.values().filter_map(|session| session.queue.front());
        let oldest_queued =
            fronts.map(|front| now.saturating_duration_since(front.scheduled)).max();
        (due + self.queued, oldest_due.max(oldest_queued))
    }

    /// Drops the requests that are not sent.
    pub(super) fn end(&mut self) {
        self.pacer.end();
        self.sessions.values_mut().for_each(|session| session.queue.clear());
        self.queued = 0;
    }

    /// Queues the next request of the thread. Returns its session, and true if that has started.
    pub(super) fn queue_next(&mut self, scheduled: Instant) -> Option<(u32, bool)> {
        let position = self.replay.next_of(self.thread, self.threads, self.next)?;
        self.next = position + 1;
        let event = self.replay.events[position];
        let id = event.session;
        let is_new = !self.sessions.contains_key(&id);
        let new = || Session::new(&self.replay, self.replay.requests[id as usize]);
        let session = self.sessions.entry(id).or_insert_with(new);
        session.left -= 1;
        let request = event.request as usize;
        session.queue.push_back(Queued { request, scheduled, is_awaiting: false });
        self.queued += 1;
        Some((id, is_new))
    }

    /// Marks a session that may go on, or that is over.
    pub(super) fn wake(&mut self, id: u32) {
        if let Some(session) = self.sessions.get_mut(&id)
            && !session.is_ready
            && (!session.queue.is_empty() || session.is_over())
        {
            session.is_ready = true;
            self.ready.push_back(id);
        }
    }

    /// True if a session may go on without an event.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty() || (self.has_idle && !self.starved.is_empty())
    }

    /// Takes a session that may go on. One that waits for a connection comes first if its request is older: the other
    /// hands its idle connection over.
    pub(super) fn next_ready(&mut self) -> Option<u32> {
        let starved = self.starved.first().filter(|_| self.has_idle);
        let Some(&ready) = self.ready.front() else { return starved.map(|(_, id)| *id) };
        let front = self.sessions.get(&ready).and_then(|session| session.queue.front());
        if let (Some((since, id)), Some(front)) = (starved, front)
            && *since < front.scheduled
        {
            return Some(*id);
        }
        self.ready.pop_front()
    }
}
