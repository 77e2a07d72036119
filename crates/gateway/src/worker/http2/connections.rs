//! The HTTP/2 connections of a thread and their streams: frames on one side, messages on the other.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::ops::{Index, IndexMut};
use std::time::Instant;

use tollgate_accesslog::Tls as LoggedTls;
use tollgate_http1::FieldList;
use tollgate_http2::{self as http2, ConnectionError, ErrorCode, Event, Fields, Limits, Role};
use tollgate_net::SendBuffer;
use tollgate_tls::{ClientCertificate, SessionFacts};

use super::message::{Following, FrameSink, Incoming, MessageWriter, is_websocket};
use crate::headers::WebSocketKey;
use crate::local_response::Reason;
use crate::worker::keys::{Arena, ExchangeKey, Http2Key, Key as _, UpstreamKey};
use tollgate_tls::{Received, Transport};

/// Frames that wait to be sent on one connection. At this size they are sent before the end of the turn, while the CPU
/// has them in its cache; if the socket has no room its streams wait, and its frames are no longer read.
const OUT_BYTES_MAX: usize = 60 << 10;

/// Bytes that a stream may send while others wait for room. Fewer make a backend wait more often.
const TURN_BYTES: usize = 256 << 10;

/// Bytes that a connection may send before the end of the turn, while other connections of the thread wait.
const EARLY_BYTES: usize = 512 << 10;

/// Frames to send. It keeps its memory, which connections use in turn.
type Frames = SendBuffer<{ usize::MAX }>;

/// The HTTP/2 connections of a thread.
#[derive(Debug, Default)]
pub(in crate::worker) struct Connections {
    arena: Arena<Http2Key, Connection>,
    /// Number of streams of clients.
    client_streams: usize,
    /// Memory of frames that are sent, for the next ones of any connection.
    spare: Frames,
    /// Connections with frames to send. Each is listed once.
    unflushed: VecDeque<Http2Key>,
    /// Bytes received from a client. One connection after the other uses it.
    pub(super) input: Box<[u8]>,
    /// Bytes received from a backend, also while the frames of a client are handled.
    pub(super) backend_input: Box<[u8]>,
    /// The last field section received.
    pub(super) fields: Fields,
    /// The list of the last request's fields.
    pub(super) request: Vec<u8>,
}

/// An HTTP/2 connection.
#[derive(Debug)]
pub(in crate::worker) struct Connection {
    pub(super) carrier: Carrier,
    pub(super) framing: http2::Connection,
    out: Frames,
    /// Listed in [`Connections::unflushed`].
    is_unflushed: bool,
    /// The socket has no room.
    is_blocked: bool,
    /// Bytes sent before the end of the turn.
    early_bytes: usize,
    /// Its frames are not read until those of the gateway are sent.
    pub(super) is_paused: bool,
    /// Streams to a backend, by their tokens, that wait to be opened. They need no window.
    opening: VecDeque<usize>,
    /// Open streams, by their tokens, that wait for room, in the order of their turns.
    waiting: VecDeque<usize>,
    /// A client was asked to open no more streams.
    pub(super) is_ending: bool,
    /// Streams to a backend, also those that are not opened yet.
    pub(in crate::worker) requests: usize,
    /// The backend has sent its settings, so that requests can be sent.
    pub(super) is_ready: bool,
    pub(super) last_received: Instant,
    /// Of a client.
    pub(in crate::worker) tls: Option<TlsFacts>,
    /// The address at which that of a client was accepted, over TCP.
    pub(in crate::worker) local: Option<SocketAddr>,
}

/// Facts of the TLS session of a client, for its streams.
#[derive(Debug)]
pub(in crate::worker) struct TlsFacts {
    version: &'static str,
    cipher: &'static str,
    server_name: Option<Box<str>>,
    client_certificate: Option<Box<[u8]>>,
}

impl TlsFacts {
    pub(in crate::worker) fn of(transport: &Transport) -> Option<Self> {
        let SessionFacts { version, cipher, server_name, client_certificate } =
            transport.tls_facts()?;
        Some(Self {
            version,
            cipher,
            server_name: server_name.map(Box::from),
            client_certificate: client_certificate.map(|certificate| Box::from(certificate.0)),
        })
    }

    pub(in crate::worker) fn client_certificate(&self) -> Option<ClientCertificate<'_>> {
        self.client_certificate.as_deref().map(ClientCertificate)
    }

    pub(in crate::worker) fn logged(&self) -> LoggedTls<'_> {
        let Self { version, cipher, server_name, .. } = self;
        LoggedTls { version, cipher, server_name: server_name.as_deref() }
    }
}

/// Owner of the socket of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worker) enum Carrier {
    Client(ExchangeKey),
    Upstream(UpstreamKey),
    /// The connection to a backend is closed; what was received is still read.
    Closed,
}

/// A stream: the link to a client that has one request, or to a backend that serves one.
#[derive(Debug)]
pub(in crate::worker) struct Stream {
    pub(in crate::worker) connection: Http2Key,
    /// 0 before a request has opened it.
    pub(super) id: u32,
    /// The key of the client or upstream with this link.
    token: usize,
    pub(in crate::worker) is_tls: bool,
    /// Of a request that is a HEAD.
    pub(super) is_to_head: bool,
    /// Of a request that opens a WebSocket. The side over HTTP/1.1, if there is one, uses the key.
    pub(in crate::worker) websocket: Option<WebSocketKey>,
    pub(super) incoming: Incoming,
    outgoing: MessageWriter,
    /// Listed in [`Connection::opening`] or [`Connection::waiting`].
    pub(in crate::worker) is_waiting: bool,
    /// Bytes sent since it last waited for its turn.
    pub(super) turn_bytes: usize,
    /// Set once a backend or its connection has failed.
    end: Option<StreamEnd>,
}

/// Room for the next part of a body on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worker) enum Room {
    /// Bytes that the windows take. What follows may need no window, such as trailers.
    Window(usize),
    /// Other streams wait for their turns.
    PastTurn,
    /// The connection has none.
    Full,
}

/// Reason why a backend ended a stream early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worker) enum StreamEnd {
    /// It has not processed the request, and may take it on another connection (RFC 9113, section 8.7).
    Refused,
    /// It does not take a WebSocket, so that the request was not sent.
    NoWebSocket,
    Failed(Reason),
}

impl Stream {
    /// A request of a client. Its fields are those received last.
    pub(super) fn of_client(
        connection: Http2Key,
        id: u32,
        token: usize,
        is_tls: bool,
        fields: &Fields,
    ) -> Self {
        let is_to_head = fields.method() == "HEAD";
        let websocket = is_websocket(fields).then(WebSocketKey::generate);
        let incoming = match websocket {
            Some(_) => Incoming::tunnel(),
            None => Incoming::request_body(fields.content_length()),
        };
        Self {
            connection,
            id,
            token,
            is_tls,
            is_to_head,
            websocket,
            incoming,
            outgoing: MessageWriter::response(is_to_head),
            is_waiting: false,
            turn_bytes: 0,
            end: None,
        }
    }

    /// A request to a backend, which is opened by its head.
    pub(super) fn to_backend(
        connection: Http2Key,
        token: usize,
        is_tls: bool,
        is_to_head: bool,
        websocket: Option<WebSocketKey>,
    ) -> Self {
        Self {
            connection,
            id: 0,
            token,
            is_tls,
            is_to_head,
            websocket,
            incoming: Incoming::response(),
            outgoing: MessageWriter::request(is_tls),
            is_waiting: false,
            turn_bytes: 0,
            end: None,
        }
    }

    /// Takes received bytes of the body. Returns true if they are the first of those that wait: otherwise its client has a
    /// turn already, or waits until its peer takes bytes.
    pub(super) fn take_data(&mut self, data: &[u8], end_stream: bool) -> bool {
        let was_readable = self.is_readable();
        self.incoming.push(data);
        if end_stream {
            self.incoming.end(std::iter::empty());
        }
        !was_readable
    }

    /// True if there are bytes to receive, or no more will come.
    pub(in crate::worker) fn is_readable(&self) -> bool {
        self.end.is_some() || self.incoming.is_readable()
    }

    /// Takes the end of a body without length, with its trailers, once all of its payload is received.
    pub(in crate::worker) fn take_end(&mut self) -> Option<Vec<u8>> {
        self.incoming.take_end()
    }

    /// Memory of received bytes.
    pub(in crate::worker) fn held_bytes(&self) -> usize {
        self.incoming.held_memory()
    }

    /// Ends a stream to a backend. The rest of what was received is still read.
    pub(super) fn end(&mut self, end: StreamEnd) {
        self.end.get_or_insert(end);
    }

    /// Set once no more can be sent, and nothing more is received.
    pub(in crate::worker) fn early_end(&self) -> Option<StreamEnd> {
        self.end
    }

    /// True if all bytes of a tunnel that the peer has ended are taken.
    pub(in crate::worker) fn has_ended_tunnel(&self) -> bool {
        self.incoming.is_at_tunnel_end()
    }

    pub(in crate::worker) fn is_open(&self) -> bool {
        self.id != 0
    }
}

impl Connection {
    fn has_room(&self) -> bool {
        self.out.unsent().len() < OUT_BYTES_MAX
    }

    /// False for a connection to a backend that has not sent its settings.
    fn can_send(&self) -> bool {
        self.is_ready || matches!(self.carrier, Carrier::Client(_))
    }

    /// True if streams wait for room.
    fn is_awaited(&self) -> bool {
        !self.opening.is_empty() || !self.waiting.is_empty()
    }

    /// Lists a stream among those that wait for room.
    fn await_room(&mut self, stream: &mut Stream) {
        if std::mem::replace(&mut stream.is_waiting, true) {
            return;
        }
        let queue = if stream.is_open() { &mut self.waiting } else { &mut self.opening };
        queue.push_back(stream.token);
    }

    fn forget_waiting(&mut self, token: usize) {
        self.opening.retain(|&other| other != token);
        self.waiting.retain(|&other| other != token);
    }

    fn takes_payload(&self) -> bool {
        self.has_room() && self.can_send() && !self.framing.is_window_empty()
    }
}

impl Index<Http2Key> for Connections {
    type Output = Connection;

    fn index(&self, at: Http2Key) -> &Connection {
        &self.arena[at]
    }
}

impl IndexMut<Http2Key> for Connections {
    fn index_mut(&mut self, at: Http2Key) -> &mut Connection {
        &mut self.arena[at]
    }
}

impl Connections {
    /// Adds a connection, and sends its settings.
    pub(in crate::worker) fn insert(
        &mut self,
        carrier: Carrier,
        limits: Limits,
        now: Instant,
    ) -> Http2Key {
        let mut out = Frames::default();
        let role = match carrier {
            Carrier::Client(_) => Role::Server,
            Carrier::Upstream(_) | Carrier::Closed => Role::Client,
        };
        let framing = http2::Connection::new(role, limits, now, out.tail());
        let at = self.arena.insert(Connection {
            carrier,
            framing,
            out,
            is_unflushed: false,
            is_blocked: false,
            early_bytes: 0,
            is_paused: false,
            opening: VecDeque::new(),
            waiting: VecDeque::new(),
            is_ending: false,
            requests: 0,
            is_ready: false,
            last_received: now,
            tls: None,
            local: None,
        });
        self.schedule_flush(at);
        at
    }

    /// Removes a connection. Returns its unsent frames.
    pub(super) fn remove(&mut self, at: Http2Key) -> Frames {
        let connection = self.arena.remove(at);
        if connection.is_unflushed {
            self.unflushed.retain(|&other| other != at);
        }
        connection.out
    }

    /// Number of streams of clients.
    pub(in crate::worker) fn client_streams(&self) -> usize {
        self.client_streams
    }

    /// The key of the client whose connection has this stream.
    pub(in crate::worker) fn client_of(&self, stream: &Stream) -> Option<ExchangeKey> {
        match self.arena[stream.connection].carrier {
            Carrier::Client(key) => Some(key),
            Carrier::Upstream(_) | Carrier::Closed => None,
        }
    }

    /// True if a connection has no stream.
    pub(in crate::worker) fn is_idle(&self, at: Http2Key) -> bool {
        self.arena[at].framing.streams() == 0
    }

    /// True if frames of a connection wait for room in its socket.
    pub(in crate::worker) fn is_blocked(&self, at: Http2Key) -> bool {
        self.arena[at].is_blocked
    }

    /// True if a connection has frames to send and was not tried yet.
    pub(in crate::worker) fn needs_flush(&self) -> bool {
        !self.unflushed.is_empty()
    }

    pub(super) fn unflushed(&self) -> usize {
        self.unflushed.len()
    }

    pub(super) fn next_unflushed(&mut self) -> Option<Http2Key> {
        let at = self.unflushed.pop_front()?;
        self.arena[at].is_unflushed = false;
        Some(at)
    }

    /// Sends the frames of a connection at the end of the turn, so that one call sends those of all its streams.
    pub(super) fn schedule_flush(&mut self, at: Http2Key) {
        if !self.arena[at].out.is_empty() {
            self.schedule_turn(at);
        }
    }

    /// As [`schedule_flush`](Self::schedule_flush), also without frames: streams that wait for room get their turns.
    pub(super) fn schedule_turn(&mut self, at: Http2Key) {
        if !std::mem::replace(&mut self.arena[at].is_unflushed, true) {
            self.unflushed.push_back(at);
        }
    }

    /// Sends frames. Returns true if none are left.
    pub(super) fn flush(&mut self, at: Http2Key, transport: &mut Transport) -> io::Result<bool> {
        let connection = &mut self.arena[at];
        if connection.out.is_empty() {
            return Ok(true);
        }
        connection.out.send(|frames| transport.send(frames))?;
        connection.is_blocked = !connection.out.is_empty();
        if connection.is_blocked {
            connection.out.discard_sent();
            return Ok(false);
        }
        connection.framing.flushed();
        if connection.out.capacity() > self.spare.capacity() {
            std::mem::swap(&mut connection.out, &mut self.spare);
        }
        Ok(true)
    }

    /// As [`flush`](Self::flush), before the end of the turn if there are many frames.
    pub(super) fn flush_early(
        &mut self,
        at: Http2Key,
        transport: &mut Transport,
    ) -> io::Result<()> {
        let connection = &mut self.arena[at];
        let is_due = !connection.has_room() && !connection.is_blocked;
        if is_due && connection.early_bytes < EARLY_BYTES {
            connection.early_bytes += connection.out.unsent().len();
            self.flush(at, transport)?;
        }
        Ok(())
    }

    /// The turn of a connection ends.
    pub(super) fn end_turn(&mut self, at: Http2Key) {
        self.arena[at].early_bytes = 0;
    }

    /// Frees the buffers of connections without streams. Requests to a backend that has not sent its settings wait without
    /// a stream in the framing.
    pub(in crate::worker) fn shrink(&mut self) {
        self.spare = Frames::default();
        for connection in self.arena.values_mut() {
            let has_streams = connection.framing.streams() > 0 || connection.is_awaited();
            if !has_streams && connection.out.is_empty() {
                connection.out = Frames::default();
                connection.opening = VecDeque::new();
                connection.waiting = VecDeque::new();
                connection.framing.shrink();
            }
        }
    }

    /// Memory of frames to send.
    pub(in crate::worker) fn held_bytes(&self) -> usize {
        self.arena.values().map(|connection| connection.out.capacity()).sum()
    }

    /// The next event in received bytes.
    pub(super) fn next_event<'a>(
        &mut self,
        at: Http2Key,
        bytes: &mut &'a [u8],
        now: Instant,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let Connection { framing, out, .. } = &mut self.arena[at];
        framing.receive(bytes, &mut self.fields, out.tail(), now)
    }

    /// True if no more frames of a connection are to be read until its own are sent.
    pub(super) fn is_congested(&self, at: Http2Key) -> bool {
        !self.arena[at].has_room()
    }

    /// Asks a client to open no more streams. Those that it opens before it knows of that are served: the reply to the
    /// PING shows that it knows.
    pub(super) fn announce_end(&mut self, at: Http2Key) {
        let Connection { framing, out, is_ending, .. } = &mut self.arena[at];
        if !std::mem::replace(is_ending, true) {
            framing.announce_go_away(out.tail());
            framing.ping(*b"draining", out.tail());
        }
        self.schedule_flush(at);
    }

    /// Rejects further streams.
    pub(super) fn go_away(&mut self, at: Http2Key) {
        let Connection { framing, out, is_ending, .. } = &mut self.arena[at];
        *is_ending = true;
        if !framing.is_spent() {
            framing.go_away(ErrorCode::NO_ERROR, out.tail());
        }
        self.schedule_flush(at);
    }

    /// Resets a stream, which must still be released.
    pub(super) fn reset(&mut self, at: Http2Key, id: u32, code: ErrorCode) {
        let Connection { framing, out, .. } = &mut self.arena[at];
        framing.reset(id, code, out.tail());
        self.schedule_flush(at);
    }

    /// Counts a stream, whose client has this key.
    pub(super) fn add_stream(&mut self, at: Http2Key, id: u32, client: ExchangeKey) {
        self.client_streams += 1;
        self.arena[at].framing.set_token(id, client.index());
    }

    /// Forgets a stream. Resets it unless both messages are complete.
    pub(super) fn release(&mut self, stream: &Stream) {
        let connection = &mut self.arena[stream.connection];
        if stream.is_waiting {
            connection.forget_waiting(stream.token);
        }
        let Connection { carrier, framing, out, requests, .. } = connection;
        match carrier {
            Carrier::Client(_) => {
                self.client_streams -= 1;
                if !stream.outgoing.has_ended() {
                    // RFC 8441, section 5: the reset of a connection.
                    let code = match stream.websocket {
                        Some(_) => ErrorCode::CANCEL,
                        None => ErrorCode::INTERNAL_ERROR,
                    };
                    framing.reset(stream.id, code, out.tail());
                }
            }
            Carrier::Upstream(_) | Carrier::Closed => *requests -= 1,
        }
        framing.release(stream.id, out.tail());
        self.schedule_flush(stream.connection);
    }

    /// Moves bytes of a message to `buffer`, and gives the peer credit for them: the last ones are forwarded. None: they are
    /// followed by the [end](Stream::take_end).
    pub(in crate::worker) fn receive(
        &mut self,
        stream: &mut Stream,
        buffer: &mut [u8],
    ) -> Received {
        let (count, payload_bytes) = stream.incoming.take(buffer);
        if count == 0 && !stream.incoming.is_at_end() {
            let has_ended = stream.end.is_some() || stream.has_ended_tunnel();
            return if has_ended { Received::End } else { Received::Nothing };
        }
        let Connection { framing, out, .. } = &mut self.arena[stream.connection];
        framing.credit(stream.id, payload_bytes, out.tail());
        self.schedule_flush(stream.connection);
        Received::Bytes(count)
    }

    /// Frames bytes of a message, a head as a whole. Returns the number of bytes that there was room for: if these are all,
    /// and nothing follows, the message has ended.
    pub(in crate::worker) fn send(
        &mut self,
        stream: &mut Stream,
        bytes: &[u8],
        following: Following<'_>,
    ) -> io::Result<usize> {
        if stream.end.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let connection = &mut self.arena[stream.connection];
        if connection.out.is_empty() && self.spare.capacity() > connection.out.capacity() {
            std::mem::swap(&mut connection.out, &mut self.spare);
        }
        let mut done = 0;
        let was_open = stream.is_open();
        // The end alone needs little room.
        if (connection.has_room() || bytes.is_empty()) && connection.can_send() {
            if !was_open
                && stream.websocket.is_some()
                && !connection.framing.peer_takes_extended_connect()
            {
                stream.end(StreamEnd::NoWebSocket);
                return Err(io::ErrorKind::Unsupported.into());
            }
            let Connection { framing, out, .. } = connection;
            let Stream { id, token, outgoing, .. } = stream;
            let mut to = FrameSink { id, token: *token, framing, out: out.tail() };
            done = outgoing.write(&mut to, bytes, following)?;
            stream.turn_bytes += done;
        }
        // An event announces room in the window of a stream.
        let connection = &mut self.arena[stream.connection];
        let waits = !stream.is_open() || !connection.takes_payload();
        if !was_open && stream.is_open() && std::mem::take(&mut stream.is_waiting) {
            connection.forget_waiting(stream.token);
        }
        if done < bytes.len() && waits {
            connection.await_room(stream);
        }
        self.schedule_flush(stream.connection);
        Ok(done)
    }

    /// Returns the room for the next part of a body. Without room, the stream has a turn once there is some.
    pub(in crate::worker) fn room(&mut self, stream: &mut Stream) -> Room {
        let connection = &mut self.arena[stream.connection];
        if !connection.has_room() {
            connection.await_room(stream);
            return Room::Full;
        }
        if stream.turn_bytes >= TURN_BYTES && !connection.waiting.is_empty() {
            connection.await_room(stream);
            return Room::PastTurn;
        }
        Room::Window(connection.framing.send_window(stream.id))
    }

    /// Ends a response or one direction of a tunnel, whose bytes are all sent.
    pub(in crate::worker) fn finish(&mut self, stream: &mut Stream, trailers: FieldList<'_>) {
        let Connection { framing, out, .. } = &mut self.arena[stream.connection];
        let Stream { id, token, outgoing, .. } = stream;
        outgoing.finish(&mut FrameSink { id, token: *token, framing, out: out.tail() }, trailers);
        self.schedule_flush(stream.connection);
    }

    /// Number of streams that wait for room on a connection.
    pub(super) fn waiting(&self, at: Http2Key) -> usize {
        self.arena
            .get(at)
            .map_or(0, |connection| connection.opening.len() + connection.waiting.len())
    }

    /// Takes the stream, by its token, that has waited longest for room, if there is room. Streams to open precede. A stream
    /// may have only trailers left, which need no window.
    pub(super) fn next_waiting(&mut self, at: Http2Key) -> Option<usize> {
        let connection = self
            .arena
            .get_mut(at)
            .filter(|connection| connection.has_room() && connection.can_send())?;
        if connection.framing.can_open()
            && let Some(token) = connection.opening.pop_front()
        {
            return Some(token);
        }
        connection.waiting.pop_front()
    }
}
