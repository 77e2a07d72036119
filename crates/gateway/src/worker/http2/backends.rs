//! HTTP/2 connections to backends: a stream acts as a connection of its own, which serves one request in HTTP/1.1.
//!
//! Requests wait for the backend's settings, so that its limit of streams is known and nothing is sent to a backend that
//! does not speak HTTP/2. Memory per connection is bounded by 64 KiB of body, and heads of at most 128 KiB, for each stream
//! ([`Limits`]), and the frames to send: a response whose client does not take it stops only its own stream.

use std::io;

use tollgate_http1::MAX_HEAD_BYTES;
use tollgate_http2::{ErrorCode, Event, Limits, Rate, ResetCause};
use tollgate_tls::{HttpProtocol, TlsSession};

use super::connections::{Carrier, Stream, StreamEnd};
use crate::headers::RequestSummary;
use crate::local_response::Reason;
use crate::transport::Received;
use crate::worker::link::Link;
use crate::worker::upstream::{Http2Backend, Place, Upstream};
use crate::worker::{INPUT_BYTES, Worker, connection_token};

/// Receive window of a stream. A response has at most as many bytes in this process that its client has not taken.
const STREAM_WINDOW: u32 = 64 << 10;

/// Reads of a connection before others have their turns.
const READS_PER_TURN: usize = 8;

/// Frames without use that a backend may send, such as PINGs that measure the bandwidth.
const GLITCHES: Rate = Rate { burst: 10_000, per_s: 1_000 };

fn limits(streams_max: u32) -> Limits {
    Limits {
        stream_window: STREAM_WINDOW,
        // No response may take the window of another one.
        connection_window: STREAM_WINDOW.saturating_mul(streams_max),
        // A backend may end any number of uploads early.
        resets: Rate::UNLIMITED,
        glitches: GLITCHES,
        ..Limits::default()
    }
}

impl Worker {
    /// Adds a stream for the request of a client, on a connection that has room or on a new one.
    pub(in crate::worker) fn take_stream(
        &mut self,
        key: usize,
        place: Place,
        streams_max: u32,
    ) -> io::Result<usize> {
        let Some(transaction) = &self.clients[key].transaction else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let RequestSummary { is_idempotent, is_head, websocket_key, .. } = transaction.request;
        let must_be_new = transaction.needs_new_connection;
        let at = match self.find_connection(place, streams_max, must_be_new, !is_idempotent) {
            Some(at) => at,
            None => self.connect_http2(place, streams_max)?,
        };
        let serial = self.next_serial();
        let (is_tls, Some(connection)) =
            (self.upstreams[at].link.is_tls(), self.upstreams[at].http2)
        else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let it = &mut self.http2[connection];
        it.requests += 1;
        let is_ready = it.is_ready;
        let entry = self.upstreams.vacant_entry();
        let token = entry.key();
        let stream = Stream::to_backend(connection, token, is_tls, is_head, websocket_key);
        let link = Link::Stream(Box::new(stream));
        let upstream = Upstream::new(link, serial, place, self.now);
        entry.insert(Upstream { is_reused: is_ready, is_connecting: !is_ready, ..upstream });
        Ok(token)
    }

    /// Finds the oldest connection with room for another stream. `must_be_new`: only one that is not established yet.
    /// `must_be_open`: reads an idle one first, so that the request is not sent if the backend has closed it.
    fn find_connection(
        &mut self,
        place: Place,
        streams_max: u32,
        must_be_new: bool,
        must_be_open: bool,
    ) -> Option<usize> {
        let backend = self.http2_backend(place);
        let assumed_max = backend.streams.max(1).min(streams_max) as usize;
        let mut next = 0;
        while let Some(&at) = self.http2_backend(place).connections.get(next) {
            next += 1;
            let Upstream { http2: Some(connection), link: Link::Connection(transport), .. } =
                &mut self.upstreams[at]
            else {
                continue;
            };
            let connection = *connection;
            if !self.http2[connection].is_ready {
                let is_failing = self.upstreams[at].idle_until <= self.now;
                if !is_failing && self.http2[connection].requests < assumed_max {
                    return Some(at);
                }
                continue;
            }
            if must_be_new {
                continue;
            }
            if must_be_open && self.http2[connection].requests == 0 {
                transport.assume_readable();
            }
            if transport.is_readable() {
                self.read_backend(at, connection);
                if !self.http2_backend(place).connections.contains(&at) {
                    // The next one has moved to its place.
                    next -= 1;
                    continue;
                }
            }
            let it = &self.http2[connection];
            let max = it.framing.peer_streams().min(streams_max) as usize;
            if it.requests < max && !it.framing.is_spent() {
                return Some(at);
            }
        }
        None
    }

    fn http2_backend(&mut self, place: Place) -> &mut Http2Backend {
        &mut self.generations[place.generation].pools[place.pool].http2[place.backend]
    }

    fn connect_http2(&mut self, place: Place, streams_max: u32) -> io::Result<usize> {
        let at = self.connect(place)?;
        let connection = self.http2.insert(Carrier::Upstream(at), limits(streams_max), self.now);
        let upstream = &mut self.upstreams[at];
        upstream.http2 = Some(connection);
        upstream.idle_until = self.now + self.timeouts.connect;
        self.http2_backend(place).connections.push(at);
        let upstream = &mut self.upstreams[at];
        let token = connection_token(true, at, upstream.serial);
        if let Link::Connection(transport) = &mut upstream.link
            && let Err(error) = transport.watch(&self.poller, token, true)
        {
            self.close_backend(at, connection);
            return Err(error);
        }
        Ok(at)
    }

    /// Sends the frames of a connection, gives streams that wait for room their turns, and continues to read.
    pub(super) fn flush_backend(&mut self, at: usize, connection: usize) {
        match self.advance_http2_handshake(at, connection) {
            Some(true) => {}
            Some(false) => return self.watch_backend(at, connection),
            None => return,
        }
        let Upstream { serial, link: Link::Connection(transport), .. } = &mut self.upstreams[at]
        else {
            return;
        };
        let serial = *serial;
        match self.http2.flush(connection, transport) {
            Ok(true) => {}
            Ok(false) => self.watch_backend(at, connection),
            Err(_) => {
                // Reading shows why, after what the backend has sent before, unless it has ended only its receiving side.
                transport.assume_readable();
                self.read_backend(at, connection);
                let is_open = |it: &Upstream| it.serial == serial && !it.link.is_readable();
                if self.upstreams.get(at).is_some_and(is_open) {
                    self.fail_backend(at, connection, Reason::BackendClosed, "cannot send");
                }
                return;
            }
        }
        self.resume_waiting(connection);
        if self.upstreams.get(at).is_some_and(|it| it.serial == serial && it.link.is_readable()) {
            self.read_backend(at, connection);
        }
    }

    /// Registers a connection whose socket is full with the poller.
    fn watch_backend(&mut self, at: usize, connection: usize) {
        let upstream = &mut self.upstreams[at];
        let token = connection_token(true, at, upstream.serial);
        if let Link::Connection(transport) = &mut upstream.link
            && let Err(error) = transport.watch(&self.poller, token, true)
        {
            let cause = format!("cannot watch a connection: {error}");
            self.fail_backend(at, connection, Reason::Exhausted, &cause);
        }
    }

    /// Continues the TLS handshake of a connection, which must agree on HTTP/2. Returns true if it is complete, and `None`
    /// if it has failed.
    fn advance_http2_handshake(&mut self, at: usize, connection: usize) -> Option<bool> {
        let Link::Connection(transport) = &self.upstreams[at].link else { return Some(true) };
        if !transport.is_handshaking() {
            return Some(true);
        }
        let (reason, cause) = match self.advance_handshake(at) {
            Ok(false) => return Some(false),
            Ok(true) => {
                let Link::Connection(transport) = &self.upstreams[at].link else { return None };
                let protocol = transport.session().map(TlsSession::protocol);
                if protocol == Some(HttpProtocol::Http2) {
                    self.http2.schedule_turn(connection);
                    return Some(true);
                }
                (Reason::TlsHandshake, Some("it does not offer HTTP/2 by ALPN".to_owned()))
            }
            Err(reason) => (reason, self.upstreams[at].failure.take()),
        };
        let cause = cause.as_deref().unwrap_or("cannot connect");
        self.fail_backend(at, connection, reason, cause);
        None
    }

    /// Reads and handles the frames that have arrived. Streams that received something get their turns later, and frames are sent then.
    pub(in crate::worker) fn read_backend(&mut self, at: usize, connection: usize) {
        if self.advance_http2_handshake(at, connection) != Some(true) {
            return;
        }
        let mut input = std::mem::take(&mut self.http2.backend_input);
        if input.is_empty() {
            input = vec![0; INPUT_BYTES].into_boxed_slice();
        }
        let read = self.read_backend_frames(at, connection, &mut input);
        self.http2.backend_input = input;
        if let Err((reason, cause)) = read {
            return self.fail_backend(at, connection, reason, &cause);
        }
        let it = &self.http2[connection];
        if it.framing.is_spent() {
            let place = self.upstreams[at].place;
            self.http2_backend(place).connections.retain(|&other| other != at);
            if self.http2[connection].requests == 0 {
                return self.close_backend(at, connection);
            }
        }
        // Frames may have made room.
        self.http2.schedule_turn(connection);
    }

    fn read_backend_frames(
        &mut self,
        at: usize,
        connection: usize,
        input: &mut [u8],
    ) -> Result<(), (Reason, String)> {
        for _ in 0..READS_PER_TURN {
            let upstream = &mut self.upstreams[at];
            let Link::Connection(transport) = &mut upstream.link else { return Ok(()) };
            if !transport.is_readable() {
                return Ok(());
            }
            let (closed, failed) = match upstream.is_connecting {
                true => (Reason::ConnectFailed, "cannot connect"),
                false => (Reason::BackendClosed, "a connection failed"),
            };
            let count = match transport.receive(input) {
                Ok(Received::Bytes(count)) => count,
                Ok(Received::Nothing) => return Ok(()),
                Ok(Received::End) => {
                    return Err((closed, "a connection was closed without a response".to_owned()));
                }
                Err(error) => return Err((closed, format!("{failed}: {error}"))),
            };
            upstream.is_connecting = false;
            let it = &mut self.http2[connection];
            it.last_received = self.now;
            let is_http1 = !it.is_ready && input.starts_with(b"HTTP/1.");
            let mut bytes = &input[..count];
            loop {
                match self.http2.next_event(connection, &mut bytes, self.now) {
                    Ok(Some(event)) => self.on_backend_frame(at, connection, event),
                    Ok(None) => break,
                    Err(_) if is_http1 => {
                        let cause = "it responds in HTTP/1.1 without having been asked".to_owned();
                        return Err((Reason::InvalidResponse, cause));
                    }
                    Err(error) => {
                        let cause = format!("invalid frames of HTTP/2: {error}");
                        return Err((Reason::InvalidResponse, cause));
                    }
                }
            }
        }
        Ok(())
    }

    fn on_backend_frame(&mut self, at: usize, connection: usize, event: Event<'_>) {
        let Some(event) = self.on_event(connection, event) else { return };
        match event {
            Event::Settings => self.on_backend_settings(at, connection),
            Event::Response { token, end_stream, .. } => {
                let Link::Stream(stream) = &mut self.upstreams[token].link else { return };
                // Interim responses have no flow control.
                if stream.incoming.head_bytes() > MAX_HEAD_BYTES {
                    self.http2.reset(connection, stream.id, ErrorCode::ENHANCE_YOUR_CALM);
                    let cause = "too many interim responses".to_owned();
                    let end = StreamEnd::Failed(Reason::InvalidResponse);
                    return self.end_stream(token, end, Some(cause));
                }
                let (is_to_head, websocket) = (stream.is_to_head, stream.websocket);
                let fields = &self.http2.fields;
                stream.incoming.push_head(fields, end_stream, is_to_head, websocket);
                self.schedule_stream(connection, token);
            }
            Event::HeadTooLarge { token, .. } => {
                let cause = "the head of a response is too large".to_owned();
                self.end_stream(token, StreamEnd::Failed(Reason::InvalidResponse), Some(cause));
            }
            Event::Reset { token, cause, .. } => {
                let (end, cause) = match cause {
                    ResetCause::Peer(ErrorCode::REFUSED_STREAM) => (StreamEnd::Refused, None),
                    ResetCause::Peer(code) => {
                        let cause = format!("a stream was reset: {code}");
                        (StreamEnd::Failed(Reason::BackendClosed), Some(cause))
                    }
                    ResetCause::Error(error) => {
                        let cause = format!("a response is invalid: {error}");
                        (StreamEnd::Failed(Reason::InvalidResponse), Some(cause))
                    }
                };
                // The connection is open, so that this is not the race with the end of an idle one.
                self.upstreams[token].is_reused = false;
                self.end_stream(token, end, cause);
            }
            Event::GoAway { last_stream, .. } => {
                for token in self.streams_of(connection) {
                    let Link::Stream(stream) = &self.upstreams[token].link else { continue };
                    if !stream.is_open() || stream.id > last_stream {
                        self.end_stream(token, StreamEnd::Refused, None);
                    }
                }
            }
            // No PING is sent, and a client receives no requests.
            _ => {}
        }
    }

    /// The first settings establish a connection. Requests for which it has no room get another one.
    fn on_backend_settings(&mut self, at: usize, connection: usize) {
        let it = &mut self.http2[connection];
        let streams = it.framing.peer_streams();
        let was_ready = std::mem::replace(&mut it.is_ready, true);
        let place = self.upstreams[at].place;
        self.http2_backend(place).streams = streams;
        let surplus = self.http2[connection].requests.saturating_sub(streams as usize);
        if !was_ready && surplus > 0 {
            for token in self.streams_of(connection).into_iter().rev().take(surplus) {
                self.end_stream(token, StreamEnd::Refused, None);
            }
        }
    }

    /// The upstreams that are streams of a connection.
    fn streams_of(&self, connection: usize) -> Vec<usize> {
        let is_stream =
            |link: &Link| matches!(link, Link::Stream(stream) if stream.connection == connection);
        self.upstreams.iter().filter(|(_, it)| is_stream(&it.link)).map(|(at, _)| at).collect()
    }

    /// Ends a stream whose response is not complete.
    fn end_stream(&mut self, token: usize, end: StreamEnd, cause: Option<String>) {
        let upstream = &mut self.upstreams[token];
        if let Link::Stream(stream) = &mut upstream.link {
            stream.end(end);
            let connection = stream.connection;
            upstream.failure = upstream.failure.take().or(cause);
            self.schedule_stream(connection, token);
        }
    }

    /// Ends the streams of a connection that has failed, and closes it.
    fn fail_backend(&mut self, at: usize, connection: usize, reason: Reason, cause: &str) {
        for token in self.streams_of(connection) {
            self.end_stream(token, StreamEnd::Failed(reason), Some(cause.to_owned()));
        }
        self.close_backend(at, connection);
    }

    /// Closes a connection. Its streams, which must have ended, remain until their clients have read them.
    pub(in crate::worker) fn close_backend(&mut self, at: usize, connection: usize) {
        let place = self.upstreams[at].place;
        self.http2_backend(place).connections.retain(|&other| other != at);
        self.http2.go_away(connection);
        if let Link::Connection(transport) = &mut self.upstreams[at].link
            && !transport.is_handshaking()
        {
            // Frames that do not fit into the socket are lost with the connection.
            self.http2.flush(connection, transport).ok();
        }
        self.close_upstream(at);
        if self.http2[connection].requests == 0 {
            self.http2.remove(connection);
        } else {
            self.http2[connection].carrier = Carrier::Closed;
        }
    }

    /// Forgets a stream. A connection without streams is kept for other requests, if it can be.
    pub(in crate::worker) fn release_request(&mut self, stream: &Stream) {
        let connection = stream.connection;
        self.http2.release(stream);
        let it = &self.http2[connection];
        if it.requests > 0 {
            return;
        }
        let at = match it.carrier {
            Carrier::Upstream(at) => at,
            Carrier::Client(_) | Carrier::Closed => {
                self.http2.remove(connection);
                return;
            }
        };
        let has_room = it.framing.can_open();
        let can_serve = it.is_ready && has_room && self.stop_by.is_none();
        let place = self.upstreams[at].place;
        let generation = &self.generations[place.generation];
        let keepalive_max = generation.shared.config.pools[place.pool].keepalive_max;
        let others = generation.pools[place.pool].http2[place.backend].connections.iter();
        let is_idle = |other: &&usize| {
            let http2 = self.upstreams[**other].http2;
            http2.is_some_and(|connection| self.http2[connection].requests == 0)
        };
        let idle = others.clone().filter(is_idle).count();
        let is_listed = others.clone().any(|&other| other == at);
        if can_serve && is_listed && place.generation == self.current && idle <= keepalive_max {
            self.upstreams[at].idle_until = self.now + self.timeouts.idle;
        } else {
            self.close_backend(at, connection);
        }
    }

    /// Sends no more requests on a connection on which nothing has arrived for the time of a response: the backend may be
    /// gone without having closed it.
    pub(in crate::worker) fn avoid_silent_connection(&mut self, at: usize) {
        let Link::Stream(stream) = &self.upstreams[at].link else { return };
        let it = &self.http2[stream.connection];
        let silence = self.now.saturating_duration_since(it.last_received);
        if let Carrier::Upstream(at) = it.carrier
            && silence >= self.timeouts.response.min(self.timeouts.body)
        {
            let place = self.upstreams[at].place;
            self.http2_backend(place).connections.retain(|&other| other != at);
        }
    }
}
