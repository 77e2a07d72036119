//! Taking requests and sending them.

use std::io;
use std::time::{Duration, Instant};

use super::Worker;
use super::source::RequestSource;
use crate::connection::{Connection, State, is_disconnect};
use crate::failures::RequestFailure;
use crate::in_flight::{InFlight, Replayed};
use crate::metrics::ThreadCpuClock;

/// Limit of connections started between two calls of the poller.
const STARTS_PER_TURN_MAX: usize = 16;

/// Time for which the first requests wait for connections. Slower connections join later.
pub(crate) const START_WAIT_MAX: Duration = Duration::from_secs(1);

impl Worker {
    /// Opens connections, some per turn, so that the poller can report those that are established.
    ///
    /// With keep-alive, all are opened before the first request: a server that processes requests of the
    /// first ones is slow to accept the others, whose requests would wait for that. Without keep-alive, a
    /// connection starts with its request.
    pub(super) fn start_connections(&mut self) {
        let end = self.connections.len().min(self.started + STARTS_PER_TURN_MAX);
        for index in self.started..end {
            if self.plan.clients.protocol.keeps_connections() {
                self.connect(index);
            } else {
                self.reconnect(index);
            }
        }
        self.started = self.started.max(end);
    }

    /// Sends the first requests when all connections are established, have failed or take too long.
    pub(super) fn start_sending(&mut self, clock: &ThreadCpuClock) -> io::Result<()> {
        if self.is_sending {
            return Ok(());
        }
        let is_starting = self.started < self.connections.len()
            || self.connections.iter().any(Connection::is_connecting);
        if is_starting && self.now - self.started_at < START_WAIT_MAX {
            return Ok(());
        }
        self.started = self.connections.len();
        self.is_sending = true;
        self.open_window(clock)?;
        for index in 0..self.connections.len() {
            self.now = Instant::now();
            match self.connections[index].state {
                State::Open(_) => self.send_next(index),
                State::Closed => self.reconnect(index),
                // In a closed loop, its requests wait from now on, and count as in flight.
                State::Connecting(_) => self.take_requests(index),
                State::RetryWait | State::AwaitingTickets(_) => {}
            }
        }
        // Requests that became due while the connections were opened.
        self.send_due();
        Ok(())
    }

    /// Uses the room of a connection: sends the next requests of a closed loop, or frees the connection for a scheduled
    /// request.
    pub(super) fn send_next(&mut self, index: usize) {
        if !self.is_sending {
            return;
        }
        if self.source.is_closed_loop() {
            self.take_requests(index);
            self.send(index);
        } else {
            self.free(index);
        }
    }

    /// Closed loop: takes requests until the pipeline of a connection is full.
    pub(super) fn take_requests(&mut self, index: usize) {
        while self.is_sending
            && self.connections[index].has_room(self.plan.clients.protocol.concurrency())
            && let RequestSource::Closed(source) = &mut self.source
            && let Some(request) = source.take()
        {
            self.put(index, request, self.now, None);
        }
    }

    /// Sends the requests of a schedule that are due.
    #[inline]
    pub(super) fn send_due(&mut self) {
        if !self.source.is_closed_loop() {
            self.send_schedule();
        }
    }

    #[inline(never)]
    fn send_schedule(&mut self) {
        match &self.source {
            RequestSource::Closed(_) => {}
            // The last reading of the clock is cheaper than a new one. Handlers renew it, and so does the
            // event loop after the last of them.
            RequestSource::Open(source) if !source.pacer.is_due(self.now) => {}
            RequestSource::Open(_) => self.send_open_loop(),
            RequestSource::Replay(_) => self.send_replay(),
        }
    }

    /// Sends due requests while there are connections for them. After a number of sends the poller is called first, so that
    /// responses are not left unread.
    fn send_open_loop(&mut self) {
        loop {
            self.now = Instant::now();
            if !matches!(&self.source, RequestSource::Open(source) if source.pacer.is_due(self.now))
            {
                return;
            }
            if self.budget.sends == 0 {
                return;
            }
            let Some(index) = self.next_free().or_else(|| self.add_connection()) else {
                return self.queue_due();
            };
            self.budget.sends -= 1;
            self.send_scheduled(index);
        }
    }

    /// Sends the next due request on a connection with room.
    fn send_scheduled(&mut self, index: usize) {
        let Some(source) = self.source.open_loop() else { return };
        let Some(due) = source.pacer.take(self.now) else { return };
        let request = source.take();
        if !due.was_queued {
            self.metrics.due(self.now - due.scheduled, false);
        }
        self.put(index, request, due.scheduled, None);
        match self.connections[index].state {
            State::Closed => self.connect(index),
            _ => self.send(index),
        }
        self.free(index);
    }

    /// Queues the requests that are due until a connection is free.
    fn queue_due(&mut self) {
        self.metrics.advance_series(self.now);
        if let Some(source) = self.source.open_loop() {
            source.pacer.queue(self.now, |late| self.metrics.due(late, true));
        }
    }

    /// Adds a request to those in flight on a connection.
    pub(super) fn put(
        &mut self,
        index: usize,
        request: usize,
        scheduled: Instant,
        replayed: Option<Box<Replayed>>,
    ) {
        self.metrics.sent(self.now);
        self.in_flight += 1;
        let mut in_flight = InFlight {
            request,
            scheduled,
            sent: self.now,
            was_sent: false,
            sent_bytes: 0,
            first_byte: None,
            replayed,
        };
        in_flight.sent_bytes = in_flight.bytes(&self.plan.workload).len() as u64;
        self.connections[index].in_flight.push_back(in_flight);
    }

    /// Queues a connection for the next request of a schedule, if it has room and is not queued.
    pub(super) fn free(&mut self, index: usize) {
        match &self.source {
            RequestSource::Closed(_) => return,
            RequestSource::Open(_) => {}
            RequestSource::Replay(_) => return self.free_of_session(index),
        }
        let can_take = self.can_take(index);
        let connection = &mut self.connections[index];
        if can_take
            && !connection.is_free
            && let Some(source) = self.source.open_loop()
        {
            connection.is_free = true;
            source.free.push_back(index);
        }
    }

    pub(super) fn can_take(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        let has_room = connection.has_room(self.plan.clients.protocol.concurrency());
        let is_usable = match &connection.state {
            State::Closed => true,
            State::Open(stream) => {
                !stream.is_shut()
                    && !stream.transport.is_handshaking()
                    && stream.http2.as_ref().is_none_or(|http2| http2.can_open())
            }
            State::RetryWait | State::Connecting(_) | State::AwaitingTickets(_) => false,
        };
        has_room && is_usable
    }

    /// Takes the first free connection that can still take a request.
    fn next_free(&mut self) -> Option<usize> {
        while let Some(index) = self.source.open_loop()?.free.pop_front() {
            self.connections[index].is_free = false;
            if self.can_take(index) {
                return Some(index);
            }
        }
        None
    }

    /// Adds a connection up to the limit of the plan. After a few in a turn the poller is called first: it
    /// may report a free connection.
    fn add_connection(&mut self) -> Option<usize> {
        let is_full = self.connections.len() == self.connections_max;
        if !self.is_sending || is_full || self.budget.new_connections == 0 {
            return None;
        }
        // With one request at a time, every connection is full.
        if self.plan.clients.protocol.concurrency() > 1 && self.has_room_soon() {
            return None;
        }
        self.budget.new_connections -= 1;
        self.started += 1;
        self.connections.push(Connection::new(self.now));
        Some(self.connections.len() - 1)
    }

    /// True if connections that are being established have room for all queued requests and the next one.
    fn has_room_soon(&mut self) -> bool {
        let mut needed = self.source.open_loop().map_or(0, |source| source.pacer.queued()) + 1;
        for connection in self.connections.iter().filter(|connection| connection.is_connecting()) {
            let room =
                self.plan.clients.protocol.concurrency().saturating_sub(connection.len()) as u64;
            if room >= needed {
                return true;
            }
            needed -= room;
        }
        false
    }

    pub(super) fn send(&mut self, index: usize) {
        self.open_streams(index);
        let token = self.token(index);
        let connection = &mut self.connections[index];
        match connection.send(&self.plan.workload, &self.poller, token) {
            Ok(_) => {}
            Err(error) if connection.was_closed_while_idle(&error) => {
                connection.take_back();
                self.disconnect(index);
                self.connect(index);
            }
            Err(error) => self.on_send_error(index, error),
        }
    }

    /// Handles a failed send. A server that rejects the rest of a request may have sent a response before
    /// it closed, so the socket is read first.
    pub(super) fn on_send_error(&mut self, index: usize, error: io::Error) {
        let connection = &mut self.connections[index];
        let may_have_response = connection.has_started_front() && is_disconnect(&error);
        match &mut connection.state {
            State::Open(stream) if may_have_response => {
                stream.send_error = Some(error);
                self.read_again(index);
            }
            _ => self.fail(index, RequestFailure::io("send", &error)),
        }
    }
}
