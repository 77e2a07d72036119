//! Opening and closing connections, and timeouts.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use tollgate_net::PollEvent;
use tollgate_tls::{HttpProtocol, TlsClient};
use tollgate_traffic::load_shape::Protocol;

use super::Worker;
use super::closing::CLOSE_TIMEOUT;
use crate::connection::{Connection, State, Stream};
use crate::failures::RequestFailure;
use crate::in_flight::InFlight;

/// Wait after a failed connect, so that a closed port is not flooded.
const RETRY_WAIT: Duration = Duration::from_millis(10);

/// Minimum time between two checks of all timeouts: the precision of timeouts.
const TIMEOUT_CHECK_MIN: Duration = Duration::from_millis(1);

/// Maximum time between two checks of all timeouts.
const TIMEOUT_CHECK_MAX: Duration = Duration::from_secs(1);

impl Worker {
    /// Starts to connect and sends at once: over loopback the connection is established when the call
    /// returns, and a wait for the poller would cost three system calls.
    pub(super) fn connect(&mut self, index: usize) {
        let started_at = Instant::now();
        self.now = started_at;
        self.connections[index].serial.advance();
        let stream = match Stream::connect(&self.plan) {
            Ok(stream) => stream,
            Err(error) => return self.on_connect_error(index, &error),
        };
        self.enter(index, State::Connecting(stream));
        if self.connections[index].in_flight.is_empty() {
            return self.watch_connect(index);
        }
        let is_closed_loop = self.source.is_closed_loop();
        // If the send succeeds, the connection was established before.
        let connected_at = Instant::now();
        if self.plan.clients.protocol.keeps_connections() {
            self.now = connected_at;
            self.connections[index].set_send_time(self.now, is_closed_loop);
        }
        let token = self.token(index);
        let connection = &mut self.connections[index];
        match connection.send(&self.plan.workload, &self.poller, token) {
            Ok(is_all_sent) if is_all_sent || connection.has_started_front() => {
                self.on_connected(index, connected_at);
            }
            // Until the connection is established, the time of the requests runs from the connect.
            Ok(_) => connection.set_send_time(started_at, is_closed_loop),
            Err(error) if connection.has_started_front() => {
                self.on_connected(index, connected_at);
                self.on_send_error(index, error);
            }
            Err(error) => self.on_connect_error(index, &error),
        }
    }

    fn watch_connect(&mut self, index: usize) {
        let token = self.token(index);
        let State::Connecting(stream) = &mut self.connections[index].state else {
            return;
        };
        if let Err(error) = stream.transport.watch(&self.poller, token, true) {
            self.on_connect_error(index, &error);
        }
    }

    pub(super) fn on_connect_result(&mut self, index: usize) {
        let State::Connecting(stream) = &self.connections[index].state else {
            return;
        };
        match stream.transport.connect_error() {
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => return self.on_connect_error(index, &error),
        }
        self.on_connected(index, Instant::now());
        self.begin(index);
    }

    /// Ends a TLS handshake. Returns false if the connection has failed.
    pub(super) fn on_handshake(&mut self, index: usize) -> bool {
        self.now = Instant::now();
        let connection = &mut self.connections[index];
        let (State::Open(stream), Some(tls)) = (&connection.state, connection.tls()) else {
            return false;
        };
        self.metrics.handshake(self.now - connection.since, tls);
        if stream.http2.is_some() && tls.protocol() != HttpProtocol::Http2 {
            let reason = "the server does not choose HTTP/2 (h2) by ALPN";
            self.fail_connect(index, RequestFailure::Malformed(reason.to_owned()));
            return false;
        }
        if self.plan.clients.protocol == Protocol::Handshakes {
            self.complete_handshake(index);
            return false;
        }
        let serial = connection.serial;
        self.begin(index);
        self.connections[index].serial == serial
    }

    /// Completes the request that a handshake stands for, and ends the connection: at once, or after the session tickets that
    /// the next handshake needs, which the server might not send after `close_notify`.
    fn complete_handshake(&mut self, index: usize) {
        let resumes = self.plan.tls.as_ref().is_some_and(TlsClient::resumes);
        let connection = &mut self.connections[index];
        let mut awaits_tickets = false;
        if let State::Open(stream) = &mut connection.state {
            // In TLS 1.2, tickets are a part of the handshake. Over TLS 1.3, servers in Go send them with their first flight.
            let facts = stream.transport.tls_facts();
            let is_tls13 = facts.is_some_and(|facts| facts.version == "TLSv1.3");
            awaits_tickets = resumes && is_tls13 && !stream.has_tickets();
            if !awaits_tickets {
                // The handshake counts even if the server has gone since.
                stream.transport.finish_session().ok();
            }
        }
        if let Some(in_flight) = connection.pop() {
            self.in_flight -= 1;
            self.metrics.completed_handshake(&in_flight, self.now);
        }
        if awaits_tickets
            && let State::Open(stream) =
                std::mem::replace(&mut self.connections[index].state, State::Closed)
        {
            return self.enter(index, State::AwaitingTickets(stream));
        }
        self.close(index);
    }

    /// Sends on a connection that has become ready, or the first bytes of its handshake.
    fn begin(&mut self, index: usize) {
        if self.plan.clients.protocol.keeps_connections() {
            self.connections[index].set_send_time(self.now, self.source.is_closed_loop());
        }
        self.send_next(index);
        // The requests of a schedule wait; handshakes and prefaces do not.
        if !self.source.is_closed_loop() || self.connections[index].is_connecting() {
            self.send(index);
        }
    }

    /// `at`: when the connection was established. A TLS handshake starts then.
    fn on_connected(&mut self, index: usize, at: Instant) {
        self.now = at;
        let connection = &mut self.connections[index];
        if let State::Connecting(stream) = std::mem::replace(&mut connection.state, State::Closed) {
            self.metrics.connected(at - stream.connect_started);
            self.enter(index, State::Open(stream));
        }
        self.now = Instant::now();
    }

    fn on_connect_error(&mut self, index: usize, error: &io::Error) {
        self.now = Instant::now();
        let front = self.connections[index].in_flight.front();
        let is_in_time =
            front.is_some_and(|front| self.now - front.sent < self.plan.clients.connect_timeout);
        match error.kind() {
            // The backlog of a unix-domain socket is full. Over TCP the kernel would wait for room.
            ErrorKind::WouldBlock if is_in_time => {}
            ErrorKind::WouldBlock => self.fail_front(index, RequestFailure::ConnectTimeout),
            _ => self.fail_front(index, RequestFailure::io("connect", error)),
        }
        self.wait_for_retry(index);
    }

    /// Fails a connection before its first request, with the request that waits for it.
    fn fail_connect(&mut self, index: usize, failure: RequestFailure) {
        self.fail_front(index, failure);
        self.wait_for_retry(index);
    }

    fn wait_for_retry(&mut self, index: usize) {
        self.disconnect(index);
        self.enter(index, State::RetryWait);
    }

    /// Drops the socket. Requests sent on it without a response will be sent again.
    pub(super) fn disconnect(&mut self, index: usize) {
        self.metrics.disconnected(self.connections[index].tls());
        let to_resend = self.connections[index].disconnect(self.now);
        self.metrics.resent(to_resend);
    }

    /// Replaces a connection that carries no further request, and leaves it to the server to close it. With requests on it
    /// that have no response, it is closed by force.
    pub(super) fn close(&mut self, index: usize) {
        if self.connections[index].has_started_front() {
            return self.force_close(index);
        }
        let token = self.token(index);
        match std::mem::replace(&mut self.connections[index].state, State::Closed) {
            State::Open(stream) if !stream.is_shut() => self.close_beside(token, stream),
            state => self.connections[index].state = state,
        }
        self.reconnect(index);
    }

    fn close_beside(&mut self, token: u64, stream: Stream) {
        self.now = Instant::now();
        let oldest = self.closing.add(token, stream, self.now);
        if let Some(stream) = oldest {
            self.reset(stream);
        }
        if let Some(deadline) = self.closing.deadline() {
            self.next_timeout_check = self.next_timeout_check.min(deadline);
        }
    }

    /// Handles an event of a connection that waits for the server to close it: the server has closed, continues to send, or
    /// makes room for the rest of a request that has its response already.
    pub(super) fn on_closing_event(&mut self, event: PollEvent, buffer: &mut [u8]) {
        if self.plan.clients.protocol == Protocol::Handshakes {
            let Some(stream) = self.closing.get_mut(event.token) else { return };
            stream.transport.on_event(event);
            let is_readable = event.is_readable() || event.is_closed();
            let is_over = is_readable && (stream.has_ended(buffer) || stream.has_tickets());
            if !is_over {
                return;
            }
        }
        if let Some(stream) = self.closing.take(event.token) {
            self.metrics.disconnected(stream.transport.session());
            if self.plan.clients.protocol == Protocol::Handshakes {
                // The server may be about to close, after its session tickets.
                stream.transport.reset();
            }
        }
    }

    /// Closes a connection that the server has left open.
    fn reset(&mut self, stream: Stream) {
        self.metrics.force_closed();
        self.metrics.disconnected(stream.transport.session());
        // A failure keeps the ports for a while and has no other effect.
        stream.transport.reset();
    }

    /// Closes a connection that the server should have closed, without keeping the pair of ports.
    pub(super) fn force_close(&mut self, index: usize) {
        self.metrics.disconnected(self.connections[index].tls());
        let state = std::mem::replace(&mut self.connections[index].state, State::Closed);
        if let State::AwaitingTickets(stream) | State::Open(stream) = state {
            // A failure keeps the ports for a while and has no other effect.
            stream.transport.reset();
        }
        self.reconnect(index);
    }

    /// Drops the socket, and opens a new one if there is something to send.
    pub(super) fn reconnect(&mut self, index: usize) {
        self.now = Instant::now();
        self.disconnect(index);
        self.take_requests(index);
        if self.connections[index].in_flight.is_empty() {
            self.send_next(index);
        } else {
            self.connect(index);
            self.free(index);
        }
    }

    /// Fails a connection with its front request; over HTTP/2, with all requests that have a stream.
    pub(super) fn fail(&mut self, index: usize, failure: RequestFailure) {
        self.now = Instant::now();
        if matches!(&self.connections[index].state, State::Open(stream) if stream.transport.is_handshaking())
        {
            return self.fail_connect(index, failure);
        }
        if self.fail_streams(index, &failure) == 0 {
            self.fail_front(index, failure);
        }
        self.reconnect(index);
    }

    pub(super) fn fail_front(&mut self, index: usize, failure: RequestFailure) {
        if let Some(in_flight) = self.connections[index].pop() {
            self.fail_in_flight(&in_flight, failure);
        }
    }

    pub(super) fn fail_in_flight(&mut self, in_flight: &InFlight, failure: RequestFailure) {
        self.in_flight -= 1;
        let template = self.plan.workload.requests[in_flight.request].template;
        self.metrics.failure(in_flight, template, failure, self.now);
        self.end_replayed(in_flight, false);
    }

    /// Fails all requests at the front that have timed out.
    fn time_out(&mut self, index: usize) {
        if self.connections[index].http2().is_some() {
            return self.time_out_streams(index);
        }
        while self.deadline(&self.connections[index]).is_some_and(|deadline| deadline <= self.now) {
            self.fail_front(index, RequestFailure::ResponseTimeout);
        }
        self.reconnect(index);
    }

    fn enter(&mut self, index: usize, state: State) {
        self.connections[index].enter(state, self.now);
        if let Some(deadline) = self.deadline(&self.connections[index]) {
            self.next_timeout_check = self.next_timeout_check.min(deadline);
        }
    }

    /// End of the time that a connection may stay in its state.
    fn deadline(&self, connection: &Connection) -> Option<Instant> {
        match &connection.state {
            State::Closed => None,
            State::RetryWait => Some(connection.since + RETRY_WAIT),
            State::Connecting(_) | State::Open(_) if connection.is_connecting() => {
                Some(connection.since + self.plan.clients.connect_timeout)
            }
            State::Connecting(_) | State::Open(_) => {
                connection.oldest_sent().map(|sent| sent + self.plan.clients.response_timeout)
            }
            State::AwaitingTickets(_) => Some(connection.since + CLOSE_TIMEOUT),
        }
    }

    /// Handles all timeouts that have expired, ends the interval of a series that is over, and schedules the next check.
    pub(super) fn check_timeouts(&mut self) {
        self.metrics.advance_series(self.now);
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            if self.deadline(connection).is_none_or(|deadline| deadline > self.now) {
                continue;
            }
            match &connection.state {
                State::Connecting(_) | State::Open(_) if connection.is_connecting() => {
                    self.fail_connect(index, RequestFailure::ConnectTimeout);
                }
                State::Connecting(_) | State::Open(_) => self.time_out(index),
                State::AwaitingTickets(_) => {
                    self.metrics.force_closed();
                    self.force_close(index);
                }
                State::RetryWait => self.reconnect(index),
                State::Closed => {}
            }
        }
        while let Some(stream) = self.closing.take_expired(self.now) {
            self.reset(stream);
        }
        let deadlines = self.connections.iter().filter_map(|connection| self.deadline(connection));
        let earliest = deadlines.chain(self.closing.deadline()).min();
        // The timeout of a request sent from now on expires no sooner than this.
        let latest = self.now + TIMEOUT_CHECK_MAX.min(self.plan.clients.response_timeout);
        let soonest = self.now + TIMEOUT_CHECK_MIN;
        self.next_timeout_check =
            earliest.map_or(latest, |deadline| deadline.clamp(soonest, latest.max(soonest)));
        if let Some(end) = self.metrics.interval_end().into_iter().chain(self.ends_at).min() {
            self.next_timeout_check = self.next_timeout_check.min(end);
        }
    }
}
