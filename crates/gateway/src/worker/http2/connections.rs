//! The HTTP/2 connections of a thread and their streams: frames on one side, messages in HTTP/1.1 on the other.

use std::collections::VecDeque;
use std::io;
use std::ops::{Index, IndexMut};
use std::time::Instant;

use slab::Slab;
use tollgate_http2::{self as http2, ConnectionError, ErrorCode, Event, Fields, Limits, Role};

use super::message::{RequestBody, ResponseFields, ResponseStream, ResponseWriter};
use crate::transport::{Received, Transport};

/// Frames that wait to be sent on one connection. At this size its streams wait, and its frames are no longer read.
const OUT_BYTES_MAX: usize = 64 << 10;

/// The HTTP/2 connections of a thread.
#[derive(Debug, Default)]
pub(in crate::worker) struct Connections {
    slab: Slab<Connection>,
    /// Number of streams of all connections.
    streams: usize,
    /// Connections with frames to send. Each is listed once.
    unflushed: VecDeque<usize>,
    /// Bytes received. One connection after the other uses it.
    pub(super) input: Box<[u8]>,
    /// The last field section received.
    pub(super) fields: Fields,
    /// The last head sent.
    response_fields: ResponseFields,
    /// The last request head, translated.
    pub(super) head: Vec<u8>,
}

/// An HTTP/2 connection. Its socket belongs to a client of its own.
#[derive(Debug)]
pub(in crate::worker) struct Connection {
    /// The key of that client.
    pub(super) client: usize,
    pub(super) framing: http2::Connection,
    /// Frames to send.
    out: Vec<u8>,
    /// Number of bytes of `out` that are sent.
    sent: usize,
    /// Listed in [`Connections::unflushed`].
    is_unflushed: bool,
    /// The socket has no room.
    is_blocked: bool,
    /// Its frames are not read until those of the gateway are sent.
    pub(super) is_paused: bool,
    /// Streams, by the keys of their clients, that wait for room, in the order of their turns.
    waiting: VecDeque<usize>,
    /// The client was asked to open no more streams.
    pub(super) is_ending: bool,
}

/// A stream: the link of a client that has one request.
#[derive(Debug)]
pub(in crate::worker) struct Stream {
    pub(super) connection: usize,
    id: u32,
    /// The key of the client.
    client: usize,
    pub(in crate::worker) is_tls: bool,
    pub(super) body: RequestBody,
    response: ResponseWriter,
    /// Listed in [`Connection::waiting`].
    pub(super) is_waiting: bool,
}

impl Stream {
    /// The fields of the request are those received last.
    pub(super) fn new(
        connection: usize,
        id: u32,
        client: usize,
        is_tls: bool,
        fields: &Fields,
    ) -> Self {
        Self {
            connection,
            id,
            client,
            is_tls,
            body: RequestBody::new(fields.content_length().is_none()),
            response: ResponseWriter::new(fields.method() == "HEAD"),
            is_waiting: false,
        }
    }

    pub(in crate::worker) fn is_readable(&self) -> bool {
        self.body.is_readable()
    }
}

impl Connection {
    fn unsent_bytes(&self) -> usize {
        self.out.len() - self.sent
    }

    fn has_room(&self) -> bool {
        self.unsent_bytes() < OUT_BYTES_MAX
    }
}

impl Index<usize> for Connections {
    type Output = Connection;

    fn index(&self, at: usize) -> &Connection {
        &self.slab[at]
    }
}

impl IndexMut<usize> for Connections {
    fn index_mut(&mut self, at: usize) -> &mut Connection {
        &mut self.slab[at]
    }
}

impl Connections {
    /// Adds the connection of a client, and sends its settings.
    pub(super) fn insert(&mut self, client: usize, limits: Limits, now: Instant) -> usize {
        let mut out = Vec::new();
        let framing = http2::Connection::new(Role::Server, limits, now, &mut out);
        let at = self.slab.insert(Connection {
            client,
            framing,
            out,
            sent: 0,
            is_unflushed: false,
            is_blocked: false,
            is_paused: false,
            waiting: VecDeque::new(),
            is_ending: false,
        });
        self.schedule_flush(at);
        at
    }

    /// Removes a connection. Returns its unsent frames.
    pub(super) fn remove(&mut self, at: usize) -> Vec<u8> {
        let mut connection = self.slab.remove(at);
        if connection.is_unflushed {
            self.unflushed.retain(|&other| other != at);
        }
        connection.out.drain(..connection.sent);
        connection.out
    }

    /// Number of streams of all connections.
    pub(in crate::worker) fn streams(&self) -> usize {
        self.streams
    }

    /// The key of the client whose connection has this stream.
    pub(in crate::worker) fn client_of(&self, stream: &Stream) -> usize {
        self.slab[stream.connection].client
    }

    /// True if a connection has no stream.
    pub(in crate::worker) fn is_idle(&self, at: usize) -> bool {
        self.slab[at].framing.streams() == 0
    }

    /// True if frames of a connection wait for room in its socket.
    pub(in crate::worker) fn is_blocked(&self, at: usize) -> bool {
        self.slab[at].is_blocked
    }

    /// True if a connection has frames to send and was not tried yet.
    pub(in crate::worker) fn needs_flush(&self) -> bool {
        !self.unflushed.is_empty()
    }

    pub(super) fn unflushed(&self) -> usize {
        self.unflushed.len()
    }

    pub(super) fn next_unflushed(&mut self) -> Option<usize> {
        let at = self.unflushed.pop_front()?;
        self.slab[at].is_unflushed = false;
        Some(at)
    }

    /// Sends the frames of a connection at the end of the turn, so that one call sends those of all its streams.
    pub(super) fn schedule_flush(&mut self, at: usize) {
        let connection = &mut self.slab[at];
        if connection.unsent_bytes() > 0 && !connection.is_unflushed {
            connection.is_unflushed = true;
            self.unflushed.push_back(at);
        }
    }

    /// Sends frames. Returns true if none are left.
    pub(super) fn flush(&mut self, at: usize, transport: &mut Transport) -> io::Result<bool> {
        let connection = &mut self.slab[at];
        connection.sent += transport.send(&connection.out[connection.sent..])?;
        connection.is_blocked = connection.unsent_bytes() > 0;
        if connection.is_blocked {
            connection.out.drain(..connection.sent);
            connection.sent = 0;
            return Ok(false);
        }
        connection.out.clear();
        connection.sent = 0;
        connection.framing.flushed();
        Ok(true)
    }

    /// Frees the buffers of connections without streams.
    pub(in crate::worker) fn shrink(&mut self) {
        for (_, connection) in &mut self.slab {
            if connection.framing.streams() == 0 && connection.out.is_empty() {
                connection.out = Vec::new();
                connection.waiting = VecDeque::new();
                connection.framing.shrink();
            }
        }
    }

    /// The next event in received bytes.
    pub(super) fn next_event<'a>(
        &mut self,
        at: usize,
        bytes: &mut &'a [u8],
        now: Instant,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let Connection { framing, out, .. } = &mut self.slab[at];
        framing.receive(bytes, &mut self.fields, out, now)
    }

    /// True if no more frames of a connection are to be read until its own are sent.
    pub(super) fn is_congested(&self, at: usize) -> bool {
        !self.slab[at].has_room()
    }

    /// Asks a client to open no more streams. Those that it opens before it knows of that are served: the reply to the
    /// PING shows that it knows.
    pub(super) fn announce_end(&mut self, at: usize) {
        let Connection { framing, out, is_ending, .. } = &mut self.slab[at];
        if !std::mem::replace(is_ending, true) {
            framing.announce_go_away(out);
            framing.ping(*b"draining", out);
        }
        self.schedule_flush(at);
    }

    /// Rejects further streams.
    pub(super) fn go_away(&mut self, at: usize) {
        let Connection { framing, out, is_ending, .. } = &mut self.slab[at];
        *is_ending = true;
        if !framing.is_spent() {
            framing.go_away(ErrorCode::NO_ERROR, out);
        }
        self.schedule_flush(at);
    }

    /// Counts a stream, whose client has this key.
    pub(super) fn add_stream(&mut self, at: usize, id: u32, client: usize) {
        self.streams += 1;
        self.slab[at].framing.set_token(id, client);
    }

    /// Forgets a stream. Resets it unless both messages are complete.
    pub(super) fn release(&mut self, stream: &Stream) {
        self.streams -= 1;
        let Connection { framing, out, waiting, .. } = &mut self.slab[stream.connection];
        if stream.is_waiting {
            waiting.retain(|&other| other != stream.client);
        }
        if !stream.response.has_ended() {
            framing.reset(stream.id, ErrorCode::INTERNAL_ERROR, out);
        }
        framing.release(stream.id, out);
        self.schedule_flush(stream.connection);
    }

    /// Moves bytes of a request to `buffer`, and gives the client credit for them: the last ones are sent to the backend.
    pub(in crate::worker) fn receive(
        &mut self,
        stream: &mut Stream,
        buffer: &mut [u8],
    ) -> Received {
        let (count, payload_bytes) = stream.body.take(buffer);
        if count == 0 {
            return Received::Nothing;
        }
        let Connection { framing, out, .. } = &mut self.slab[stream.connection];
        framing.credit(stream.id, payload_bytes, out);
        self.schedule_flush(stream.connection);
        Received::Bytes(count)
    }

    /// Frames bytes of a response, a head as a whole. Returns the number of bytes that there was room for.
    pub(in crate::worker) fn send(
        &mut self,
        stream: &mut Stream,
        bytes: &[u8],
    ) -> io::Result<usize> {
        let connection = &mut self.slab[stream.connection];
        let mut done = 0;
        if connection.has_room() {
            let Connection { framing, out, .. } = connection;
            let fields = &mut self.response_fields;
            let mut to = ResponseStream { id: stream.id, framing, out, fields };
            done = stream.response.write(&mut to, bytes)?;
        }
        // An event announces room in the window of a stream.
        let waits = !connection.has_room() || connection.framing.is_window_empty();
        if done < bytes.len() && waits && !stream.is_waiting {
            stream.is_waiting = true;
            connection.waiting.push_back(stream.client);
        }
        self.schedule_flush(stream.connection);
        Ok(done)
    }

    /// Ends a response whose bytes are all sent.
    pub(in crate::worker) fn finish(&mut self, stream: &mut Stream) {
        let Connection { framing, out, .. } = &mut self.slab[stream.connection];
        let fields = &mut self.response_fields;
        stream.response.finish(&mut ResponseStream { id: stream.id, framing, out, fields });
    }

    /// Number of streams that wait for room on a connection.
    pub(super) fn waiting(&self, at: usize) -> usize {
        self.slab[at].waiting.len()
    }

    /// Takes the stream, by the key of its client, that has waited longest for room, if there is room.
    pub(super) fn next_waiting(&mut self, at: usize) -> Option<usize> {
        let connection = &mut self.slab[at];
        let has_room = connection.has_room() && !connection.framing.is_window_empty();
        if has_room { connection.waiting.pop_front() } else { None }
    }
}
