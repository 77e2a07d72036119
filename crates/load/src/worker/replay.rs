//! Sessions of a replay: each recorded client with its own connections, cookies and variables.
//!
//! A due request joins the queue of its session, which is served at once. It waits there only for a connection, if all are
//! in use, or for a response with a variable that it contains; other sessions go on.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::Worker;
use crate::connection::{Connection, InFlight, Replayed, State};
use crate::http2::Http2Head;
use crate::plan::Protocol;
use crate::replay::{Replay, Variable};
use crate::session::{Jar, Site, render};

/// The sessions of one thread.
#[derive(Debug)]
pub(super) struct Sessions {
    replay: Arc<Replay>,
    thread: usize,
    threads: usize,
    /// Number of requests of the thread.
    planned: u64,
    /// Position from which the next event is looked for.
    next: usize,
    /// From their first request to the last response.
    sessions: HashMap<u32, Session>,
    /// Session of each connection.
    owners: Vec<Option<u32>>,
    /// Connections without a session.
    vacant: Vec<usize>,
    /// Sessions that may go on.
    ready: VecDeque<u32>,
    /// Sessions that wait for a connection, with the due time of their first request.
    starved: BTreeSet<(Instant, u32)>,
    /// Number of requests in all queues.
    queued: u64,
    /// Connection from which the search for an idle one starts.
    hand: usize,
    /// False if the last search has found no idle connection, and none has become idle since.
    has_idle: bool,
}

#[derive(Debug)]
struct Session {
    jar: Jar,
    /// By variable.
    values: Box<[Option<Box<str>>]>,
    /// Requests in flight whose response sets the variable.
    pending: Box<[u32]>,
    /// Requests that are due, in their order.
    queue: VecDeque<Queued>,
    connections: Vec<usize>,
    /// Connections that may take a request; the one used last is taken first.
    free: Vec<usize>,
    /// Requests that are not due yet.
    left: u32,
    in_flight: u32,
    is_ready: bool,
    /// Its time among the sessions that wait for a connection.
    starved_since: Option<Instant>,
}

#[derive(Debug)]
struct Queued {
    request: usize,
    scheduled: Instant,
    /// True if it is counted as one that waits for a variable.
    is_awaiting: bool,
}

/// Reason why a session sends no further request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Served {
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
    fn await_variable(&mut self, is_last: bool) -> bool {
        let queued = if is_last { self.queue.back_mut() } else { self.queue.front_mut() };
        queued.is_some_and(|queued| !std::mem::replace(&mut queued.is_awaiting, true))
    }

    fn is_over(&self) -> bool {
        self.left == 0 && self.in_flight == 0 && self.queue.is_empty()
    }
}

impl Sessions {
    pub(super) fn new(replay: &Arc<Replay>, thread: usize, threads: usize) -> Self {
        let is_own = |session: &usize| session % threads == thread;
        let own = (0..replay.requests.len()).filter(is_own);
        let planned = own.map(|session| u64::from(replay.requests[session])).sum();
        Self {
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

    pub(super) fn queued(&self) -> u64 {
        self.queued
    }

    /// Number of queued requests, and the age of the oldest.
    pub(super) fn unsent(&self, now: Instant) -> Option<(u64, Duration)> {
        let fronts = self.sessions.values().filter_map(|session| session.queue.front());
        let oldest = fronts.map(|front| front.scheduled).min()?;
        Some((self.queued, now.saturating_duration_since(oldest)))
    }

    /// Drops the queued requests.
    pub(super) fn end(&mut self) {
        self.sessions.values_mut().for_each(|session| session.queue.clear());
        self.queued = 0;
    }

    /// Queues the next request of the thread. Returns its session, and true if that has started.
    fn queue_next(&mut self, scheduled: Instant) -> Option<(u32, bool)> {
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
    fn wake(&mut self, id: u32) {
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
    fn next_ready(&mut self) -> Option<u32> {
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

impl Worker {
    /// Sends the requests that are due, and those that have waited, as far as they may be sent.
    pub(super) fn send_replay(&mut self) {
        while self.budget.can_send()
            && let Some(id) = self.sessions.as_mut().and_then(|sessions| sessions.next_ready())
        {
            self.serve(id);
        }
        let is_due = |worker: &Self| worker.pacer.as_ref().is_some_and(|it| it.is_due(worker.now));
        while is_due(self) && self.is_sending && self.budget.can_send() {
            self.now = Instant::now();
            let due = self.pacer.as_mut().and_then(|pacer| pacer.take(self.now));
            let (Some(due), Some(sessions)) = (due, self.sessions.as_mut()) else { return };
            let Some((id, is_new)) = sessions.queue_next(due.scheduled) else { return };
            self.metrics.replay().sessions += u64::from(is_new);
            let lateness = self.now - due.scheduled;
            let sends = self.budget.sends;
            let served = self.serve(id);
            self.metrics.due(lateness, served == Served::UntilConnection);
            if served == Served::UntilVariable
                && let Some(session) = self.session_mut(id)
                && session.await_variable(true)
            {
                self.metrics.replay().awaited += 1;
            }
            if self.budget.sends == sends {
                // One that is queued takes time, too.
                self.budget.sends -= 1;
            }
        }
    }

    fn session_mut(&mut self, id: u32) -> Option<&mut Session> {
        self.sessions.as_deref_mut()?.sessions.get_mut(&id)
    }

    /// Sends the queued requests of a session in their order, until one has to wait.
    fn serve(&mut self, id: u32) -> Served {
        loop {
            let Some(sessions) = self.sessions.as_deref_mut() else { return Served::Completely };
            let Some(session) = sessions.sessions.get_mut(&id) else { return Served::Completely };
            session.is_ready = false;
            if let Some(since) = session.starved_since.take() {
                sessions.starved.remove(&(since, id));
            }
            let Some(front) = session.queue.front() else {
                if session.is_over() {
                    self.end_session(id);
                }
                return Served::Completely;
            };
            let used = sessions.replay.used_by(front.request);
            if used.iter().any(|variable| session.pending[*variable] > 0) {
                if session.await_variable(false) {
                    self.metrics.replay().awaited += 1;
                }
                return Served::UntilVariable;
            }
            if !self.budget.can_send() {
                sessions.wake(id);
                return Served::UntilNextTurn;
            }
            let Some(index) = self.connection_of(id) else {
                self.starve(id);
                return Served::UntilConnection;
            };
            self.budget.sends -= 1;
            self.send_queued(id, index);
        }
    }

    /// Lets a session wait for a connection.
    fn starve(&mut self, id: u32) {
        if let Some(sessions) = self.sessions.as_deref_mut()
            && let Some(session) = sessions.sessions.get_mut(&id)
            && let Some(front) = session.queue.front()
        {
            session.starved_since = Some(front.scheduled);
            sessions.starved.insert((front.scheduled, id));
        }
    }

    /// Sends the first queued request of a session.
    fn send_queued(&mut self, id: u32, index: usize) {
        let Some(sessions) = self.sessions.as_deref_mut() else { return };
        let Some(session) = sessions.sessions.get_mut(&id) else { return };
        let Some(Queued { request, scheduled, .. }) = session.queue.pop_front() else { return };
        sessions.queued -= 1;
        let replay = &sessions.replay;
        let recorded = &self.plan.workload.requests[request].message;
        let value = |index: &usize| (&replay.variables[*index], session.values[*index].as_deref());
        let values: Vec<(&Variable, Option<&str>)> =
            replay.used_by(request).iter().map(value).collect();
        if values.iter().any(|(_, value)| value.is_none()) {
            self.metrics.replay().without_value += 1;
        }
        let changes = !session.jar.is_empty() || !values.is_empty();
        let message = match changes {
            true => render(recorded, &session.jar, &values, SystemTime::now()),
            false => recorded.clone(),
        };
        let http2 = match self.plan.protocol {
            Protocol::Http1 { .. } => None,
            Protocol::Http2 { .. } => Some(Http2Head::new(&message)),
        };
        let needs_body = replay.needs_body(request);
        let replayed = Box::new(Replayed::new(id, message, http2, needs_body));
        for variable in replay.set_by(request) {
            session.pending[*variable] += 1;
        }
        session.in_flight += 1;
        self.now = Instant::now();
        self.put(index, request, scheduled, Some(replayed));
        match &self.connections[index] {
            Connection { state: State::Closed, .. } => self.connect(index),
            // Sent with the others when the connection is ready.
            connection if connection.is_connecting() => {}
            _ => self.send(index),
        }
        self.free_of_session(index);
    }

    /// Returns a connection of a session that can take a request: one of its own, a new one, or the idle one of another
    /// session.
    fn connection_of(&mut self, id: u32) -> Option<usize> {
        loop {
            let sessions = self.sessions.as_deref_mut()?;
            let Some(index) = sessions.sessions.get_mut(&id)?.free.pop() else { break };
            if sessions.owners[index] == Some(id) {
                self.connections[index].is_free = false;
                if self.can_take(index) || self.is_joinable(index) {
                    return Some(index);
                }
            }
        }
        let vacant = self.sessions.as_deref_mut()?.vacant.pop();
        let index = vacant.or_else(|| self.add_vacant()).or_else(|| self.take_idle(id))?;
        let sessions = self.sessions.as_deref_mut()?;
        sessions.owners[index] = Some(id);
        sessions.sessions.get_mut(&id)?.connections.push(index);
        Some(index)
    }

    /// True for a connection over HTTP/2 that is being established and has room.
    fn is_joinable(&self, index: usize) -> bool {
        let (connection, concurrency) = (&self.connections[index], self.plan.concurrency());
        concurrency > 1 && connection.is_connecting() && connection.has_room(concurrency)
    }

    fn add_vacant(&mut self) -> Option<usize> {
        if self.connections.len() == self.connections_max {
            return None;
        }
        self.budget.new_connections -= 1;
        self.started += 1;
        self.connections.push(Connection::new(self.now));
        self.sessions.as_deref_mut()?.owners.push(None);
        Some(self.connections.len() - 1)
    }

    /// Takes an idle connection from another session.
    fn take_idle(&mut self, id: u32) -> Option<usize> {
        let sessions = self.sessions.as_deref_mut()?;
        let count = self.connections.len();
        let mut all = (0..count).map(|step| (sessions.hand + step) % count);
        let is_idle = |index: &usize| {
            let connection = &self.connections[*index];
            let is_waiting =
                connection.is_connecting() || matches!(connection.state, State::RetryWait);
            connection.len() == 0 && !is_waiting && sessions.owners[*index] != Some(id)
        };
        let found = if sessions.has_idle { all.find(is_idle) } else { None };
        let Some(index) = found else {
            sessions.has_idle = false;
            return None;
        };
        sessions.hand = index + 1;
        self.release(index);
        self.sessions.as_deref_mut()?.vacant.pop()
    }

    /// Ends the connections of a session that has no further request.
    fn end_session(&mut self, id: u32) {
        let Some(sessions) = self.sessions.as_deref_mut() else { return };
        let connections =
            sessions.sessions.get_mut(&id).map(|session| std::mem::take(&mut session.connections));
        for index in connections.unwrap_or_default() {
            self.release(index);
        }
        if let Some(sessions) = self.sessions.as_deref_mut() {
            sessions.sessions.remove(&id);
        }
    }

    /// Closes an idle connection, so that another session may use its place. A reset keeps no pair of ports.
    fn release(&mut self, index: usize) {
        self.metrics.disconnected(self.connections[index].tls());
        let state = std::mem::replace(&mut self.connections[index].state, State::Closed);
        if let State::Closing(stream) | State::Open(stream) = state {
            // A failure keeps the ports for a while and has no other effect.
            stream.socket.reset().ok();
        }
        let connection = &mut self.connections[index];
        connection.disconnect(self.now);
        connection.is_free = false;
        let Some(sessions) = self.sessions.as_deref_mut() else { return };
        if let Some(owner) = sessions.owners[index].take()
            && let Some(session) = sessions.sessions.get_mut(&owner)
        {
            session.connections.retain(|other| *other != index);
        }
        sessions.vacant.push(index);
        sessions.has_idle = true;
    }

    /// Gives a connection with room back to its session.
    pub(super) fn free_of_session(&mut self, index: usize) {
        let has_room = self.can_take(index) || self.is_joinable(index);
        let connection = &mut self.connections[index];
        let Some(sessions) = self.sessions.as_deref_mut() else { return };
        sessions.has_idle |= connection.len() == 0;
        let Some(id) = sessions.owners[index] else { return };
        let Some(session) = sessions.sessions.get_mut(&id) else { return };
        if has_room && !connection.is_free {
            connection.is_free = true;
            session.free.push(index);
        }
        sessions.wake(id);
    }

    /// Ends a request of a session. `is_complete`: it has a response, with cookies and values.
    pub(super) fn end_replayed(&mut self, in_flight: &InFlight, is_complete: bool) {
        let Some(replayed) = &in_flight.replayed else { return };
        let Some(sessions) = self.sessions.as_deref_mut() else { return };
        let Some(session) = sessions.sessions.get_mut(&replayed.session) else { return };
        session.in_flight -= 1;
        let counts = self.metrics.replay();
        let message = in_flight.message(&self.plan.workload);
        for index in sessions.replay.set_by(in_flight.request) {
            session.pending[*index] -= 1;
            if !is_complete {
                continue;
            }
            let variable = &sessions.replay.variables[*index];
            match variable.extract(&replayed.response) {
                Ok(value) => {
                    counts.extractions += 1;
                    session.values[*index] = Some(value);
                }
                Err(reason) => {
                    counts.failed_extractions += 1;
                    counts.failed_extraction_example.get_or_insert_with(|| {
                        let (method, path) = (message.method(), message.path().escape_debug());
                        format!("`{}` from {method} {path}: {reason}", variable.name)
                    });
                }
            }
        }
        if is_complete {
            for header in replayed.response.all("set-cookie") {
                match session.jar.set(header, Site::of(message), SystemTime::now()) {
                    true => counts.cookies += 1,
                    false => counts.rejected_cookies += 1,
                }
            }
        }
        sessions.wake(replayed.session);
    }
}
