//! Sessions of a replay: each recorded client with its own connections, cookies and variables.
//!
//! A due request joins the queue of its session, which is served at once. It waits there only for a connection, if all are
//! in use, or for a response with a variable that it contains; other sessions go on.

use std::time::{Instant, SystemTime};

use super::Worker;
use super::sessions::{Queued, Served, Session, Sessions};
use crate::connection::{Connection, State};
use crate::http2_head::Http2Head;
use crate::in_flight::{InFlight, Replayed};
use crate::replay::Variable;
use crate::session::{Site, render};
use tollgate_traffic::load_shape::Protocol;

impl Worker {
    /// Sends the requests that are due, and those that have waited, as far as they may be sent.
    pub(super) fn send_replay(&mut self) {
        while self.budget.can_send()
            && let Some(id) = self.source.sessions().and_then(Sessions::next_ready)
        {
            self.serve(id);
        }
        while self.is_sending
            && self.budget.can_send()
            && let Some(sessions) = self.source.sessions()
            && sessions.pacer.is_due(self.now)
        {
            self.now = Instant::now();
            let Some(due) = sessions.pacer.take(self.now) else { return };
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
        self.source.sessions()?.sessions.get_mut(&id)
    }

    /// Sends the queued requests of a session in their order, until one has to wait.
    fn serve(&mut self, id: u32) -> Served {
        loop {
            let Some(sessions) = self.source.sessions() else { return Served::Completely };
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
        if let Some(sessions) = self.source.sessions()
            && let Some(session) = sessions.sessions.get_mut(&id)
            && let Some(front) = session.queue.front()
        {
            session.starved_since = Some(front.scheduled);
            sessions.starved.insert((front.scheduled, id));
        }
    }

    /// Sends the first queued request of a session.
    fn send_queued(&mut self, id: u32, index: usize) {
        let Some(sessions) = self.source.sessions() else { return };
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
        let message = if changes {
            render(recorded, &session.jar, &values, SystemTime::now())
        } else {
            recorded.clone()
        };
        let http2 = match self.plan.clients.protocol {
            Protocol::Http2 { .. } => Some(Http2Head::new(&message)),
            Protocol::Http1 { .. } | Protocol::Http1Close | Protocol::Handshakes => None,
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
            let sessions = self.source.sessions()?;
            let Some(index) = sessions.sessions.get_mut(&id)?.free.pop() else { break };
            if sessions.owners[index] == Some(id) {
                self.connections[index].is_free = false;
                if self.can_take(index) || self.is_joinable(index) {
                    return Some(index);
                }
            }
        }
        let vacant = self.source.sessions()?.vacant.pop();
        let index = vacant.or_else(|| self.add_vacant()).or_else(|| self.take_idle(id))?;
        let sessions = self.source.sessions()?;
        sessions.owners[index] = Some(id);
        sessions.sessions.get_mut(&id)?.connections.push(index);
        Some(index)
    }

    /// True for a connection over HTTP/2 that is being established and has room.
    fn is_joinable(&self, index: usize) -> bool {
        let (connection, concurrency) =
            (&self.connections[index], self.plan.clients.protocol.concurrency());
        concurrency > 1 && connection.is_connecting() && connection.has_room(concurrency)
    }

    fn add_vacant(&mut self) -> Option<usize> {
        if self.connections.len() == self.connections_max {
            return None;
        }
        self.budget.new_connections -= 1;
        self.started += 1;
        self.connections.push(Connection::new(self.now));
        self.source.sessions()?.owners.push(None);
        Some(self.connections.len() - 1)
    }

    /// Takes an idle connection from another session.
    fn take_idle(&mut self, id: u32) -> Option<usize> {
        let sessions = self.source.sessions()?;
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
        self.source.sessions()?.vacant.pop()
    }

    /// Ends the connections of a session that has no further request.
    fn end_session(&mut self, id: u32) {
        let Some(sessions) = self.source.sessions() else { return };
        let connections =
            sessions.sessions.get_mut(&id).map(|session| std::mem::take(&mut session.connections));
        for index in connections.unwrap_or_default() {
            self.release(index);
        }
        if let Some(sessions) = self.source.sessions() {
            sessions.sessions.remove(&id);
        }
    }

    /// Closes an idle connection, so that another session may use its place. A reset keeps no pair of ports.
    fn release(&mut self, index: usize) {
        self.metrics.disconnected(self.connections[index].tls());
        let state = std::mem::replace(&mut self.connections[index].state, State::Closed);
        if let State::AwaitingTickets(stream) | State::Open(stream) = state {
            // A failure keeps the ports for a while and has no other effect.
            stream.transport.reset();
        }
        let connection = &mut self.connections[index];
        connection.disconnect(self.now);
        connection.is_free = false;
        let Some(sessions) = self.source.sessions() else { return };
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
        let Some(sessions) = self.source.sessions() else { return };
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
        let Some(sessions) = self.source.sessions() else { return };
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
                if session.jar.set(header, Site::of(message), SystemTime::now()) {
                    counts.cookies += 1;
                } else {
                    counts.rejected_cookies += 1;
                }
            }
        }
        sessions.wake(replayed.session);
    }
}
