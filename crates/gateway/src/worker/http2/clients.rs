//! HTTP/2 connections of clients: a stream acts as a client of its own, with one request and its response.
//!
//! Memory per connection is bounded by 1 MiB of request bodies ([`Limits`](tollgate_http2::Limits)),
//! [`connections`](super::connections)' frames to send with the TLS records of some, and for each of at most 100 streams one
//! piece of a response.

use std::time::Duration;

use tollgate_http2::{Event, ResetCause, StreamError};

use super::connections::{Connections, Stream};
use super::message;
use crate::local_response::{LocalResponse, Reason};
use crate::worker::client::Client;
use crate::worker::event_loop::Worker;
use crate::worker::exchange::{Exchange, Next, Stage};
use crate::worker::head::Attempt;
use crate::worker::keys::{ExchangeId, ExchangeKey, Http2Key, Key as _, ListenerKey};
use crate::worker::link::Link;
use crate::worker::scratch::{HEADROOM_BYTES, INPUT_BYTES};
use tollgate_tls::Received;

/// Requests of one connection before others have their turns.
const REQUESTS_PER_STEP: usize = 16;
/// Wait for the reply to the PING that follows an announced end.
const END_WAIT: Duration = Duration::from_secs(1);

impl Worker {
    /// Reads and handles frames of a connection.
    pub(in crate::worker) fn serve_http2(
        &mut self,
        key: ExchangeKey,
        connection: Http2Key,
    ) -> Next {
        let http2 = &mut self.shared.http2;
        http2.schedule_flush(connection);
        if http2.is_congested(connection) {
            http2[connection].is_paused = true;
            return Next::Wait;
        }
        let mut input = std::mem::take(&mut http2.input);
        if input.is_empty() {
            input = vec![0; INPUT_BYTES].into_boxed_slice();
        }
        let next = self.read_frames(key, connection, &mut input);
        self.shared.http2.input = input;
        next
    }

    fn read_frames(&mut self, key: ExchangeKey, connection: Http2Key, input: &mut [u8]) -> Next {
        let client = &mut self.exchanges[key].client;
        let mut count = client.unread.len();
        if count > 0 {
            input[..count].copy_from_slice(&client.unread);
            client.keep_unread(b"");
        } else {
            let Link::Connection(transport) = &mut client.link else {
                self.shared.report_bug("a stream has frames");
                return Next::Close;
            };
            if !transport.is_readable() {
                return Next::Wait;
            }
            count = match transport.receive(input) {
                Ok(Received::Bytes(count)) => count,
                Ok(Received::Nothing) => return Next::Wait,
                Ok(Received::End) | Err(_) => return Next::Close,
            };
        }
        let mut bytes = &input[..count];
        let mut requests = 0;
        loop {
            match self.shared.http2.next_event(connection, &mut bytes, self.shared.now) {
                Ok(Some(event)) => {
                    let opens = matches!(event, Event::Request { .. } | Event::HeadTooLarge { .. });
                    requests += usize::from(opens);
                    self.on_frame(key, connection, event);
                }
                Ok(None) => break,
                Err(_) => {
                    self.shared.client_counters().http2_errors.add(1);
                    self.remove_streams(connection);
                    self.end_http2(key, connection);
                    return Next::Continue;
                }
            }
            if requests == REQUESTS_PER_STEP || self.shared.http2.is_congested(connection) {
                self.exchanges[key].client.keep_unread(bytes);
                break;
            }
        }
        // Frames may have made room.
        self.shared.http2.schedule_turn(connection);
        Next::Continue
    }

    fn on_frame(&mut self, key: ExchangeKey, connection: Http2Key, event: Event<'_>) {
        match event {
            Event::Request { stream, end_stream } => {
                self.open_stream(key, connection, stream, Some(end_stream));
            }
            Event::HeadTooLarge { stream, .. } => self.open_stream(key, connection, stream, None),
            Event::Data { token, data, end_stream, .. } => {
                let token = ExchangeKey::new(token);
                if let Link::Stream(stream) = &mut self.exchanges[token].client.link
                    && stream.take_data(data, end_stream)
                {
                    self.schedule(token);
                }
            }
            Event::Trailers { token, .. } => {
                let token = ExchangeKey::new(token);
                if let Link::Stream(stream) = &mut self.exchanges[token].client.link {
                    stream.incoming.end(self.shared.http2.fields.headers());
                    self.schedule(token);
                }
            }
            Event::StreamWritable { token, .. } => self.schedule(ExchangeKey::new(token)),
            Event::Settings => {
                for token in self.shared.http2[connection].framing.unblocked_by_settings() {
                    self.schedule(ExchangeKey::new(token));
                }
            }
            Event::Reset { token, cause, .. } => {
                let token = ExchangeKey::new(token);
                self.shared.client_counters().http2_resets.add(1);
                if let ResetCause::Error(StreamError::Malformed(_)) = cause
                    && let Stage::Transaction(transaction) = &mut self.exchanges[token].stage
                {
                    transaction.reason.get_or_insert(Reason::Malformed);
                }
                self.remove(token);
            }
            Event::Refused { error, .. } => {
                self.shared.client_counters().http2_refused.add(1);
                if let StreamError::Malformed(_) = error {
                    let response = LocalResponse::error(Reason::Malformed);
                    self.exchanges[key].log_directly(&mut self.shared, None, &response, 0);
                }
            }
            Event::Pong(_) if self.shared.http2[connection].is_ending => {
                self.shared.http2.go_away(connection);
            }
            // Streams that wait for room have their turns after all received frames.
            _ => {}
        }
    }

    /// Gives a client its turn after all events.
    fn schedule(&mut self, key: ExchangeKey) {
        self.shared.ready.push_back(self.exchanges[key].id);
    }

    /// Begins the request of a new stream, which has its turn after all events. `end_stream`: it has no body; `None`: its
    /// head is too large.
    fn open_stream(
        &mut self,
        key: ExchangeKey,
        connection: Http2Key,
        id: u32,
        end_stream: Option<bool>,
    ) {
        let shared = &mut self.shared;
        shared.client_counters().http2_streams.add(1);
        let serial = shared.next_serial();
        let Client { peer, listener, ref link, .. } = self.exchanges[key].client;
        let is_tls = link.is_tls();
        let deadline = shared.now + shared.timeouts.header;
        let fields = &shared.http2.fields;
        let mut websocket = None;
        let token = self.exchanges.insert_with(|token| {
            let mut stream = Stream::of_client(connection, id, token.index(), is_tls, fields);
            websocket = stream.websocket;
            if websocket.is_some() && end_stream == Some(true) {
                stream.incoming.end(std::iter::empty());
            }
            let client = Client::new(Link::Stream(Box::new(stream)), peer, listener, deadline);
            Exchange::new(ExchangeId { key: token, serial }, client, Stage::ReadHead)
        });
        shared.http2.add_stream(connection, id, token);
        let exchange = &mut self.exchanges[token];
        let Some(end_stream) = end_stream else {
            exchange.reject(shared, None, &LocalResponse::error(Reason::HeadTooLarge));
            return self.schedule(token);
        };
        let Connections { fields, request, .. } = &mut shared.http2;
        message::list_request(fields, end_stream, websocket, request);
        // A list has names and lengths that the limits of HTTP/2 do not count.
        if request.len() > INPUT_BYTES {
            exchange.reject(shared, None, &LocalResponse::error(Reason::HeadTooLarge));
            return self.schedule(token);
        }
        let (start, end) = (HEADROOM_BYTES, HEADROOM_BYTES + request.len());
        shared.scratch.input[start..end].copy_from_slice(request);
        match exchange.take_head(shared, start, end, Attempt::First) {
            Next::Continue => self.schedule(token),
            Next::Wait => self.watch_later(token),
            Next::Close => self.remove(token),
        }
    }

    /// Forgets the stream of a client that was removed.
    pub(in crate::worker) fn release_stream(&mut self, stream: &Stream) {
        let http2 = &mut self.shared.http2;
        http2.release(stream);
        let is_ending = http2[stream.connection].is_ending;
        if http2.is_idle(stream.connection)
            && !is_ending
            && let Some(client) = http2.client_of(stream)
        {
            self.exchanges[client].client.deadline = self.shared.now + self.shared.timeouts.idle;
        }
    }

    /// Asks the client to open no more streams, and ends the connection after the open ones.
    pub(in crate::worker) fn announce_end(&mut self, key: ExchangeKey, connection: Http2Key) {
        self.shared.http2.announce_end(connection);
        self.exchanges[key].client.deadline = self.shared.now + END_WAIT;
    }

    /// Ends connections to listeners that a reload has removed, or that no longer speak HTTP/2. Others continue with the
    /// new configuration.
    pub(in crate::worker) fn leave_http2(&mut self, removed: &[ListenerKey]) {
        let leaves = |listener: ListenerKey| {
            removed.contains(&listener) || !self.shared.listener(listener).http2
        };
        let leaving: Vec<(ExchangeKey, Http2Key)> = self
            .exchanges
            .iter()
            .filter(|(_, exchange)| leaves(exchange.client.listener))
            .filter_map(|(key, exchange)| match exchange.stage {
                Stage::Http2(connection) => Some((key, connection)),
                _ => None,
            })
            .collect();
        leaving.into_iter().for_each(|(key, connection)| self.announce_end(key, connection));
    }

    /// Handles the deadline of a connection, which has a meaning only while it has no stream or is to end.
    pub(in crate::worker) fn time_out_http2(
        &mut self,
        key: ExchangeKey,
        connection: Http2Key,
    ) -> Next {
        let http2 = &mut self.shared.http2;
        let is_idle = http2.is_idle(connection);
        if is_idle && http2[connection].framing.is_spent() {
            // It does not even take the end.
            return Next::Close;
        }
        if is_idle || http2[connection].is_ending {
            http2.go_away(connection);
        }
        self.exchanges[key].client.deadline = self.shared.now + self.shared.timeouts.idle;
        Next::Wait
    }

    /// Ends a connection without streams once its last frames are sent.
    pub(super) fn end_http2(&mut self, key: ExchangeKey, connection: Http2Key) {
        let frames = self.shared.http2.remove(connection);
        let exchange = &mut self.exchanges[key];
        exchange.client.unsent.push(frames.unsent());
        exchange.client.keep_unread(b"");
        exchange.client.deadline = self.shared.now + self.shared.timeouts.body;
        exchange.stage = Stage::Finish { lingers: true, ends_at_close: false };
    }

    /// Forgets a connection that is removed, with its streams.
    pub(in crate::worker) fn abort_http2(&mut self, key: ExchangeKey, connection: Http2Key) {
        self.shared.http2.go_away(connection);
        self.remove_streams(connection);
        // Frames that do not fit into the socket are lost with the connection.
        if let Some(transport) = self.exchanges[key].client.transport() {
            self.shared.http2.flush(connection, transport).ok();
        }
        self.shared.http2.remove(connection);
    }

    /// Cancels all requests of a connection.
    fn remove_streams(&mut self, connection: Http2Key) {
        let framing = &self.shared.http2[connection].framing;
        let tokens: Vec<_> = framing.tokens().map(|(_, token)| ExchangeKey::new(token)).collect();
        tokens.into_iter().for_each(|token| self.remove(token));
    }
}
