//! HTTP/2 connections of clients: a stream acts as a client of its own, with one request and its response in HTTP/1.1.
//!
//! Memory per connection is bounded by 1 MiB of request bodies ([`Limits`]), [`connections`](super::connections)' frames
//! to send with the TLS records of some, and for each of at most 100 streams one piece of a response.

use std::time::Duration;

use tollgate_http2::{Event, FieldLimits, Limits, ResetCause, StreamError};
use tollgate_tls::HttpProtocol;

use super::connections::{Carrier, Connections, Stream};
use super::message;
use crate::headers::WEBSOCKET;
use crate::local_response::{LocalResponse, Reason};
use crate::transport::Received;
use crate::worker::downstream::{Downstream, HeadRead};
use crate::worker::link::Link;
use crate::worker::{HEADROOM_BYTES, INPUT_BYTES, Stage, Step, Worker};

/// Requests of one connection before others have their turns.
const REQUESTS_PER_STEP: usize = 16;
/// Wait for the reply to the PING that follows an announced end.
const END_WAIT: Duration = Duration::from_secs(1);
/// Pseudo-fields of a request, with `:protocol`.
const PSEUDO_FIELDS: usize = 5;
/// Fields for cookies beyond the limit of headers: browsers send one for each cookie, and keep up to 180 for a site.
const COOKIE_CRUMBS: usize = 180;
/// Size of a field besides name and value (RFC 9113, section 6.5.2).
const FIELD_OVERHEAD: usize = 32;

/// Protocol that the first bytes of a connection select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worker) enum Detected {
    Http1,
    Http2,
    /// More bytes are needed.
    Unknown,
}

impl Worker {
    /// Decides on the protocol of a new connection by ALPN or, without TLS, by the preface of HTTP/2. Begins HTTP/2 with
    /// the input from `start` to `end`.
    pub(in crate::worker) fn detect_http2(
        &mut self,
        key: usize,
        start: usize,
        end: usize,
    ) -> Detected {
        let client = &mut self.clients[key];
        let Link::Connection(transport) = &client.link else { return Detected::Http1 };
        let input = &self.scratch.input[start..end];
        let Some(protocol) = transport.client_protocol(input) else { return Detected::Unknown };
        client.may_be_http2 = false;
        if protocol == HttpProtocol::Http1 {
            return Detected::Http1;
        }
        client.keep_unread(input);
        client.is_partial = false;
        client.deadline = self.now + self.timeouts.idle;
        let config = &self.generations[self.current].shared.config;
        let limits = &config.limits;
        // The limits for heads in HTTP/1.1 apply to the translated head.
        let fields = limits.headers + PSEUDO_FIELDS + COOKIE_CRUMBS;
        let bytes = limits.header_bytes + fields * FIELD_OVERHEAD;
        let limits = Limits {
            fields: FieldLimits { bytes, fields },
            extended_connect: config.requests.allow_upgrade(WEBSOCKET),
            ..Limits::default()
        };
        client.stage = Stage::Http2(self.http2.insert(Carrier::Client(key), limits, self.now));
        Detected::Http2
    }

    /// Reads and handles frames of a connection.
    pub(in crate::worker) fn serve_http2(&mut self, key: usize, connection: usize) -> Step {
        self.http2.schedule_flush(connection);
        if self.http2.is_congested(connection) {
            self.http2[connection].is_paused = true;
            return Step::Wait;
        }
        let mut input = std::mem::take(&mut self.http2.input);
        if input.is_empty() {
            input = vec![0; INPUT_BYTES].into_boxed_slice();
        }
        let step = self.read_frames(key, connection, &mut input);
        self.http2.input = input;
        step
    }

    fn read_frames(&mut self, key: usize, connection: usize, input: &mut [u8]) -> Step {
        let client = &mut self.clients[key];
        let mut count = client.unread.len();
        if count > 0 {
            input[..count].copy_from_slice(&client.unread);
            client.keep_unread(b"");
        } else {
            let Link::Connection(transport) = &mut client.link else { return Step::Close };
            if !transport.is_readable() {
                return Step::Wait;
            }
            count = match transport.receive(input) {
                Ok(Received::Bytes(count)) => count,
                Ok(Received::Nothing) => return Step::Wait,
                Ok(Received::End) | Err(_) => return Step::Close,
            };
        }
        let mut bytes = &input[..count];
        let mut requests = 0;
        loop {
            match self.http2.next_event(connection, &mut bytes, self.now) {
                Ok(Some(event)) => {
                    let opens = matches!(event, Event::Request { .. } | Event::HeadTooLarge { .. });
                    requests += usize::from(opens);
                    self.on_frame(key, connection, event);
                }
                Ok(None) => break,
                Err(_) => {
                    self.client_counters().http2_errors.add(1);
                    self.remove_streams(connection);
                    self.end_http2(key, connection);
                    return Step::Continue;
                }
            }
            if requests == REQUESTS_PER_STEP || self.http2.is_congested(connection) {
                self.clients[key].keep_unread(bytes);
                break;
            }
        }
        self.http2.schedule_flush(connection);
        self.resume_waiting(connection);
        Step::Continue
    }

    fn on_frame(&mut self, key: usize, connection: usize, event: Event<'_>) {
        let Some(event) = self.on_event(connection, event) else { return };
        match event {
            Event::Request { stream, end_stream } => {
                self.open_stream(key, connection, stream, Some(end_stream));
            }
            Event::HeadTooLarge { stream, .. } => self.open_stream(key, connection, stream, None),
            Event::Reset { token, cause, .. } => {
                self.client_counters().http2_resets.add(1);
                if let ResetCause::Error(StreamError::Malformed(_)) = cause
                    && let Some(transaction) = &mut self.clients[token].transaction
                {
                    transaction.reason.get_or_insert(Reason::Malformed);
                }
                self.remove_client(token);
            }
            Event::Refused { error, .. } => {
                self.client_counters().http2_refused.add(1);
                if let StreamError::Malformed(_) = error {
                    let response = LocalResponse::error(Reason::Malformed);
                    self.log_directly(key, None, &response, 0);
                }
            }
            Event::Pong(_) if self.http2[connection].is_ending => self.http2.go_away(connection),
            _ => {}
        }
    }

    /// Begins the request of a new stream. `end_stream`: it has no body; `None`: its head is too large.
    fn open_stream(&mut self, key: usize, connection: usize, id: u32, end_stream: Option<bool>) {
        self.client_counters().http2_streams.add(1);
        let serial = self.next_serial();
        let client = &self.clients[key];
        let (ip, listener, is_tls) = (client.ip, client.listener, client.link.is_tls());
        let entry = self.clients.vacant_entry();
        let token = entry.key();
        let mut stream = Stream::of_client(connection, id, token, is_tls, &self.http2.fields);
        let websocket = stream.websocket;
        if websocket.is_some() && end_stream == Some(true) {
            stream.incoming.end(std::iter::empty());
        }
        let deadline = self.now + self.timeouts.header;
        let link = Link::Stream(Box::new(stream));
        entry.insert(Downstream::new(link, serial, ip, listener, deadline));
        self.http2.add_stream(connection, id, token);
        let Some(end_stream) = end_stream else {
            self.reject(token, None, &LocalResponse::error(Reason::HeadTooLarge));
            return self.turn(token);
        };
        let Connections { fields, head, .. } = &mut self.http2;
        message::render_request_head(fields, end_stream, websocket, head);
        let (start, end) = (HEADROOM_BYTES, HEADROOM_BYTES + head.len());
        self.scratch.input[start..end].copy_from_slice(head);
        let step = match self.take_head(token, start, end) {
            HeadRead::Request { cached, verdict, start, end } => {
                self.begin(token, &cached, verdict, start, end)
            }
            HeadRead::Step(step) => step,
        };
        self.continue_turn(token, step);
    }

    /// Forgets the stream of a client that is removed.
    pub(in crate::worker) fn release_stream(&mut self, stream: &Stream) {
        self.http2.release(stream);
        let is_ending = self.http2[stream.connection].is_ending;
        if self.http2.is_idle(stream.connection)
            && !is_ending
            && let Some(client) = self.http2.client_of(stream)
        {
            self.clients[client].deadline = self.now + self.timeouts.idle;
        }
    }

    pub(super) fn flush_client(&mut self, key: usize, connection: usize) {
        let Some(transport) = self.clients[key].transport() else { return };
        let Ok(is_flushed) = self.http2.flush(connection, transport) else {
            return self.remove_client(key);
        };
        self.http2.end_turn(connection);
        if is_flushed && self.http2.is_idle(connection) && self.http2[connection].framing.is_spent()
        {
            self.end_http2(key, connection);
            return self.turn(key);
        }
        self.resume_waiting(connection);
        if !self.http2.is_congested(connection)
            && std::mem::take(&mut self.http2[connection].is_paused)
        {
            self.schedule_turn(key);
        }
        if !is_flushed {
            self.watch(key);
        }
    }

    /// Sends the frames of a stream's connection if there are many.
    pub(in crate::worker) fn flush_if_full(&mut self, key: usize) {
        let Link::Stream(stream) = &self.clients[key].link else { return };
        let connection = stream.connection;
        if let Carrier::Client(key) = self.http2[connection].carrier
            && let Some(transport) = self.clients[key].transport()
        {
            // The flush at the end of the turn handles an error.
            self.http2.flush_early(connection, transport).ok();
        }
    }

    /// Asks the client to open no more streams, and ends the connection after the open ones.
    pub(in crate::worker) fn announce_end(&mut self, key: usize, connection: usize) {
        self.http2.announce_end(connection);
        self.clients[key].deadline = self.now + END_WAIT;
    }

    /// Ends connections to listeners that a reload has removed, or that no longer speak HTTP/2. Others continue with the
    /// new configuration.
    pub(in crate::worker) fn leave_http2(&mut self, removed: &[usize]) {
        let leaving: Vec<(usize, usize)> = self
            .clients
            .iter()
            .filter(|(_, it)| removed.contains(&it.listener) || !self.listeners[it.listener].http2)
            .filter_map(|(key, client)| match client.stage {
                Stage::Http2(connection) => Some((key, connection)),
                _ => None,
            })
            .collect();
        leaving.into_iter().for_each(|(key, connection)| self.announce_end(key, connection));
    }

    /// Handles the deadline of a connection, which has a meaning only while it has no stream or is to end.
    pub(in crate::worker) fn time_out_http2(&mut self, key: usize, connection: usize) -> Step {
        let is_idle = self.http2.is_idle(connection);
        let is_ending = self.http2[connection].is_ending;
        if is_idle && self.http2[connection].framing.is_spent() {
            // It does not even take the end.
            return Step::Close;
        }
        if is_idle || is_ending {
            self.http2.go_away(connection);
        }
        self.clients[key].deadline = self.now + self.timeouts.idle;
        Step::Wait
    }

    /// Ends a connection without streams once its last frames are sent.
    fn end_http2(&mut self, key: usize, connection: usize) {
        let frames = self.http2.remove(connection);
        let client = &mut self.clients[key];
        client.unsent.push(&frames);
        client.keep_unread(b"");
        client.stage = Stage::Finish { lingers: true, ends_at_close: false };
        client.deadline = self.now + self.timeouts.body;
    }

    /// Forgets a connection that is removed, with its streams.
    pub(in crate::worker) fn abort_http2(&mut self, key: usize, connection: usize) {
        self.http2.go_away(connection);
        self.remove_streams(connection);
        // Frames that do not fit into the socket are lost with the connection.
        if let Some(transport) = self.clients[key].transport() {
            self.http2.flush(connection, transport).ok();
        }
        self.http2.remove(connection);
    }

    /// Cancels all requests of a connection.
    fn remove_streams(&mut self, connection: usize) {
        let tokens: Vec<usize> =
            self.http2[connection].framing.tokens().map(|(_, token)| token).collect();
        tokens.into_iter().for_each(|token| self.remove_client(token));
    }
}
