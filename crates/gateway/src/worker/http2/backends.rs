//! HTTP/2 connections to backends: a stream acts as a connection of its own, which serves one request.
//!
//! Requests wait for the backend's settings, so that its limit of streams is known and nothing is sent to a backend that
//! does not speak HTTP/2. Memory per connection is bounded by the window of body, and heads of at most 128 KiB, for each stream
//! ([`Limits`]), and the frames to send: a response whose client does not take it stops only its own stream.

use std::io;
use std::time::Duration;

use tollgate_http1::MAX_HEAD_BYTES;
use tollgate_http2::{ErrorCode, Event, Limits, Rate, ResetCause};
use tollgate_tls::{HttpProtocol, TlsSession};

use super::connections::{Carrier, Stream, StreamEnd};
use crate::config::Pool;
use crate::headers::RequestSummary;
use crate::local_response::Reason;
use crate::worker::keys::{Http2Key, Key as _, UpstreamKey};
use crate::worker::link::Link;
use crate::worker::scratch::INPUT_BYTES;
use crate::worker::shared::Shared;
use crate::worker::upstreams::{BackendPlace, Upstream, Work};
use tollgate_tls::Received;

/// Reads of a connection before others have their turns.
const READS_PER_TURN: usize = 8;

/// Frames without use that a backend may send, such as PINGs that measure the bandwidth.
const GLITCHES: Rate = Rate { burst: 10_000, per_s: 1_000 };

/// A response has at most as many bytes in this process that its client has not taken as the window of its stream.
fn limits(pool: &Pool, streams_max: u32) -> Limits {
    let default = Limits::default();
    Limits {
        stream_window_max: pool.stream_window_max,
        // No response may take the window of another one, even while credit for half of the connection is not sent yet.
        connection_window: 2 * streams_max * pool.stream_window_max,
        // A backend may end any number of uploads early.
        resets: Rate::UNLIMITED,
        glitches: GLITCHES,
        ..default
    }
}

impl Shared {
    /// Adds a stream for a request, on a connection that has room or on a new one, which has the time `connect`.
    pub(in crate::worker) fn take_stream(
        &mut self,
        place: BackendPlace,
        streams_max: u32,
        connect: Duration,
        request: &RequestSummary,
        must_be_new: bool,
    ) -> io::Result<UpstreamKey> {
        let RequestSummary { is_idempotent, is_head, websocket_key, .. } = *request;
        let found = self.find_connection(place, streams_max, must_be_new, !is_idempotent);
        let (at, connection) = match found {
            Some(found) => found,
            None => self.connect_http2(place, streams_max, connect)?,
        };
        let serial = self.next_serial();
        let is_tls = self.upstreams[at].link.is_tls();
        self.http2[connection].requests += 1;
        let is_ready = self.http2[connection].is_ready;
        let now = self.now;
        Ok(self.upstreams.connections_mut().insert_with(|key| {
            let token = key.index();
            let stream = Stream::to_backend(connection, token, is_tls, is_head, websocket_key);
            let upstream = Upstream::new(Link::Stream(Box::new(stream)), serial, place, now);
            Upstream { is_reused: is_ready, is_connecting: !is_ready, ..upstream }
        }))
    }

    /// Finds the oldest connection with room for another stream. `must_be_new`: only one that is not established yet.
    /// `must_be_open`: reads an idle one first, so that the request is not sent if the backend has closed it.
    fn find_connection(
        &mut self,
        place: BackendPlace,
        streams_max: u32,
        must_be_new: bool,
        must_be_open: bool,
    ) -> Option<(UpstreamKey, Http2Key)> {
        let backend = self.upstreams.http2_backend(place);
        let assumed_max = backend.streams.max(1).min(streams_max) as usize;
        let mut next = 0;
        while let Some(&at) = self.upstreams.http2_backend(place).connections.get(next) {
            next += 1;
            let Upstream {
                work: Work::Carries(connection), link: Link::Connection(transport), ..
            } = &mut self.upstreams[at]
            else {
                continue;
            };
            let connection = *connection;
            if !self.http2[connection].is_ready {
                let is_failing = self.upstreams[at].idle_until <= self.now;
                if !is_failing && self.http2[connection].requests < assumed_max {
                    return Some((at, connection));
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
                if !self.upstreams.http2_backend(place).connections.contains(&at) {
                    // The next one has moved to its place.
                    next -= 1;
                    continue;
                }
            }
            let framing = &self.http2[connection].framing;
            let max = framing.peer_streams().min(streams_max) as usize;
            if self.http2[connection].requests < max && !framing.is_spent() {
                return Some((at, connection));
            }
        }
        None
    }

    /// Opens a connection. It is registered with the poller when its settings are sent.
    fn connect_http2(
        &mut self,
        place: BackendPlace,
        streams_max: u32,
        connect: Duration,
    ) -> io::Result<(UpstreamKey, Http2Key)> {
        let at = self.connect(place)?;
        let connection = self.http2.insert(
            Carrier::Upstream(at),
            limits(self.upstreams[place.generation].pool(place.pool), streams_max),
            self.now,
        );
        let upstream = &mut self.upstreams[at];
        upstream.work = Work::Carries(connection);
        upstream.idle_until = self.now + connect;
        self.upstreams.http2_backend(place).connections.push(at);
        Ok((at, connection))
    }

    /// Continues the TLS handshake of a connection, which must agree on HTTP/2. Returns true if it is complete, and `None`
    /// if it has failed.
    pub(super) fn advance_http2_handshake(
        &mut self,
        at: UpstreamKey,
        connection: Http2Key,
    ) -> Option<bool> {
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
    pub(in crate::worker) fn read_backend(&mut self, at: UpstreamKey, connection: Http2Key) {
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
        let state = &self.http2[connection];
        if state.framing.is_spent() {
            self.upstreams.unlist_http2(at);
            if self.http2[connection].requests == 0 {
                return self.close_backend(at, connection);
            }
        }
        // Frames may have made room.
        self.http2.schedule_turn(connection);
    }

    fn read_backend_frames(
        &mut self,
        at: UpstreamKey,
        connection: Http2Key,
        input: &mut [u8],
    ) -> Result<(), (Reason, String)> {
        for _ in 0..READS_PER_TURN {
            let upstream = &mut self.upstreams[at];
            let Link::Connection(transport) = &mut upstream.link else { return Ok(()) };
            if !transport.is_readable() {
                return Ok(());
            }
            let (closed, failed) = if upstream.is_connecting {
                (Reason::ConnectFailed, "cannot connect")
            } else {
                (Reason::BackendClosed, "a connection failed")
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
            let state = &mut self.http2[connection];
            state.last_received = self.now;
            let is_http1 = !state.is_ready && input.starts_with(b"HTTP/1.");
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

    fn on_backend_frame(&mut self, at: UpstreamKey, connection: Http2Key, event: Event<'_>) {
        match event {
            Event::Data { token, data, end_stream, .. } => {
                let token = UpstreamKey::new(token);
                if let Link::Stream(stream) = &mut self.upstreams[token].link
                    && stream.take_data(data, end_stream)
                {
                    self.schedule_stream(token);
                }
            }
            Event::Trailers { token, .. } => {
                let token = UpstreamKey::new(token);
                if let Link::Stream(stream) = &mut self.upstreams[token].link {
                    stream.incoming.end(self.http2.fields.headers());
                    self.schedule_stream(token);
                }
            }
            Event::StreamWritable { token, .. } => self.schedule_stream(UpstreamKey::new(token)),
            Event::Settings => {
                for token in self.http2[connection].framing.unblocked_by_settings() {
                    self.schedule_stream(UpstreamKey::new(token));
                }
                self.on_backend_settings(at, connection);
            }
            Event::Response { token, end_stream, .. } => {
                let token = UpstreamKey::new(token);
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
                self.schedule_stream(token);
            }
            Event::HeadTooLarge { token, .. } => {
                let cause = "the head of a response is too large".to_owned();
                let end = StreamEnd::Failed(Reason::InvalidResponse);
                self.end_stream(UpstreamKey::new(token), end, Some(cause));
            }
            Event::Reset { token, cause, .. } => {
                let token = UpstreamKey::new(token);
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
            // A client receives no requests, and the replies to PINGs are those that measure round trips.
            _ => {}
        }
    }

    /// The first settings establish a connection. Requests for which it has no room get another one.
    fn on_backend_settings(&mut self, at: UpstreamKey, connection: Http2Key) {
        let state = &mut self.http2[connection];
        let streams = state.framing.peer_streams();
        let was_ready = std::mem::replace(&mut state.is_ready, true);
        let place = self.upstreams[at].place;
        self.upstreams.http2_backend(place).streams = streams;
        let surplus = self.http2[connection].requests.saturating_sub(streams as usize);
        if !was_ready && surplus > 0 {
            for token in self.streams_of(connection).into_iter().rev().take(surplus) {
                self.end_stream(token, StreamEnd::Refused, None);
            }
        }
    }

    /// The upstreams that are streams of a connection.
    fn streams_of(&self, connection: Http2Key) -> Vec<UpstreamKey> {
        let is_stream =
            |link: &Link| matches!(link, Link::Stream(stream) if stream.connection == connection);
        self.upstreams.connections().keys(|upstream| is_stream(&upstream.link))
    }

    /// Gives the client of a stream its turn after all events.
    fn schedule_stream(&mut self, token: UpstreamKey) {
        self.ready.extend(self.upstreams[token].client());
    }

    /// Ends a stream whose response is not complete.
    fn end_stream(&mut self, token: UpstreamKey, end: StreamEnd, cause: Option<String>) {
        let upstream = &mut self.upstreams[token];
        if let Link::Stream(stream) = &mut upstream.link {
            stream.end(end);
            upstream.failure = upstream.failure.take().or(cause);
            self.schedule_stream(token);
        }
    }

    /// Ends the streams of a connection that has failed, and closes it.
    pub(super) fn fail_backend(
        &mut self,
        at: UpstreamKey,
        connection: Http2Key,
        reason: Reason,
        cause: &str,
    ) {
        for token in self.streams_of(connection) {
            self.end_stream(token, StreamEnd::Failed(reason), Some(cause.to_owned()));
        }
        self.close_backend(at, connection);
    }

    /// Closes a connection. Its streams, which must have ended, remain until their clients have read them.
    pub(in crate::worker) fn close_backend(&mut self, at: UpstreamKey, connection: Http2Key) {
        self.upstreams.unlist_http2(at);
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
        let state = &self.http2[connection];
        if state.requests > 0 {
            return;
        }
        let at = match state.carrier {
            Carrier::Upstream(at) => at,
            Carrier::Client(_) | Carrier::Closed => {
                self.http2.remove(connection);
                return;
            }
        };
        let has_room = state.framing.can_open();
        let can_serve = state.is_ready && has_room && self.stop_by.is_none();
        let place = self.upstreams[at].place;
        let Pool { keepalive_max, keepalive_timeout, .. } =
            *self.upstreams[place.generation].pool(place.pool);
        let others = self.upstreams.http2_connections(place);
        let is_idle = |other: &&UpstreamKey| match self.upstreams[**other].work {
            Work::Carries(connection) => self.http2[connection].requests == 0,
            Work::Idle | Work::Serves(_) => false,
        };
        let idle = others.iter().filter(is_idle).count();
        let is_listed = others.contains(&at);
        let is_current = place.generation == self.upstreams.current();
        if can_serve && is_listed && is_current && idle <= keepalive_max {
            let keepalive_timeout = keepalive_timeout.unwrap_or(self.timeouts.idle);
            self.upstreams[at].idle_until = self.now + keepalive_timeout;
        } else {
            self.close_backend(at, connection);
        }
    }

    /// Sends no more requests on a connection on which nothing has arrived for this time: the backend may be
    /// gone without having closed it.
    pub(in crate::worker) fn avoid_silent_connection(&mut self, at: UpstreamKey, limit: Duration) {
        let Link::Stream(stream) = &self.upstreams[at].link else { return };
        let state = &self.http2[stream.connection];
        let silence = self.now.saturating_duration_since(state.last_received);
        if let Carrier::Upstream(at) = state.carrier
            && silence >= limit
        {
            self.upstreams.unlist_http2(at);
        }
    }
}
