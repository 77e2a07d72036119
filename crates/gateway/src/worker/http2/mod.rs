//! HTTP/2 connections of clients and to backends. Only this module knows of frames and streams: a stream acts as a
//! connection of its own with one request, in HTTP/1.1.

mod backends;
mod clients;
mod connections;
mod message;

use slab::Slab;
use tollgate_http2::Event;

use super::downstream::Downstream;
use super::link::Link;
use super::upstream::Upstream;
use super::{ClientId, Worker};
pub(super) use clients::Detected;
use connections::Carrier;
pub(super) use connections::{Connections, Stream, StreamEnd};

/// Turns of streams that wait for room, between two looks at the sockets.
const FLUSH_ROUNDS: usize = 4;

impl Worker {
    /// Gives a client its turn after all events.
    fn schedule_turn(&mut self, key: usize) {
        self.ready.push_back(ClientId { key, serial: self.clients[key].serial });
    }

    /// Sends the frames of all connections, and gives streams that wait for room their turns.
    pub(super) fn flush_http2(&mut self) {
        for _ in 0..FLUSH_ROUNDS {
            for _ in 0..self.http2.unflushed() {
                let Some(connection) = self.http2.next_unflushed() else { return };
                match self.http2[connection].carrier {
                    Carrier::Client(key) => self.flush_client(key, connection),
                    Carrier::Upstream(at) => self.flush_backend(at, connection),
                    Carrier::Closed => {}
                }
            }
        }
    }

    /// Gives streams that wait for room their turns, as long as there is room. The turn of one may close a connection to
    /// a backend.
    fn resume_waiting(&mut self, connection: usize) {
        for _ in 0..self.http2.waiting(connection) {
            let Some(token) = self.http2.next_waiting(connection) else { return };
            let carrier = self.http2[connection].carrier;
            let found = stream(&mut self.clients, &mut self.upstreams, carrier, token);
            let Some((stream, client)) = found else { continue };
            (stream.is_waiting, stream.turn_bytes) = (false, 0);
            if let Some(key) = client {
                self.turn(key);
            }
        }
    }

    /// Handles an event that means the same for clients and backends. Returns the event if the caller must handle it, too.
    fn on_event<'a>(&mut self, connection: usize, event: Event<'a>) -> Option<Event<'a>> {
        match event {
            Event::Data { token, data, end_stream, .. } => {
                let carrier = self.http2[connection].carrier;
                let found = stream(&mut self.clients, &mut self.upstreams, carrier, token);
                let (stream, client) = found?;
                let was_readable = stream.is_readable();
                stream.incoming.push(data);
                if end_stream {
                    stream.incoming.end(std::iter::empty());
                }
                // Otherwise it has a turn already, or waits until its peer takes bytes.
                if !was_readable && let Some(key) = client {
                    self.schedule_turn(key);
                }
                None
            }
            Event::Trailers { token, .. } => {
                let carrier = self.http2[connection].carrier;
                let found = stream(&mut self.clients, &mut self.upstreams, carrier, token);
                let (stream, client) = found?;
                stream.incoming.end(self.http2.fields.headers());
                if let Some(key) = client {
                    self.schedule_turn(key);
                }
                None
            }
            Event::StreamWritable { token, .. } => {
                self.schedule_stream(connection, token);
                None
            }
            Event::Settings => {
                for token in self.http2[connection].framing.unblocked_by_settings() {
                    self.schedule_stream(connection, token);
                }
                Some(event)
            }
            // Streams that wait for room have their turns after all received frames.
            Event::Writable => None,
            event => Some(event),
        }
    }

    /// Gives the client of a stream its turn after all events.
    fn schedule_stream(&mut self, connection: usize, token: usize) {
        let carrier = self.http2[connection].carrier;
        if let Some((_, Some(key))) = stream(&mut self.clients, &mut self.upstreams, carrier, token)
        {
            self.schedule_turn(key);
        }
    }
}

/// The stream of a connection with this token, and the client whose request it serves.
fn stream<'a>(
    clients: &'a mut Slab<Downstream>,
    upstreams: &'a mut Slab<Upstream>,
    carrier: Carrier,
    token: usize,
) -> Option<(&'a mut Stream, Option<usize>)> {
    let (link, client) = match carrier {
        Carrier::Client(_) => (&mut clients[token].link, Some(token)),
        Carrier::Upstream(_) | Carrier::Closed => {
            let upstream = &mut upstreams[token];
            (&mut upstream.link, upstream.client)
        }
    };
    match link {
        Link::Stream(stream) => Some((stream, client)),
        Link::Connection(_) => None,
    }
}
