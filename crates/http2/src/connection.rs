//! Connection state, and sending.

use std::collections::VecDeque;
use std::time::Instant;

use crate::error::{ConnectionError, ErrorCode, StreamClosed, StreamError};
use crate::fields::Field;
use crate::frame::{
    self, FRAME_HEADER_BYTES, FrameHeader, FrameType, MIN_MAX_FRAME_BYTES, PREFACE, STREAM_MAX,
    flags, setting,
};
use crate::hpack::{Decoder, Encoder};
use crate::limits::{Budget, Limits};
use crate::receive::reader::Reader;
use crate::stream::{Side, Stream, StreamTable};

/// Side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

/// One side of an HTTP/2 connection, without its socket.
///
/// [`receive`](Self::receive) turns received bytes into events. All methods append the frames to send to a buffer of the
/// caller, which sends it in order.
///
/// Each stream has an identifier and a token chosen by the caller, such as the index of its transaction. The caller
/// must [`release`](Self::release) each stream that it has opened or that an [`Event::Request`] or
/// [`Event::HeadTooLarge`] has named; until then the stream counts as concurrent. A server that releases a stream only
/// when its work for it has ended is safe from clients that open and reset streams.
#[derive(Debug)]
pub struct Connection {
    pub(crate) role: Role,
    pub(crate) limits: Limits,
    pub(crate) reader: Reader,
    pub(crate) decoder: Decoder,
    pub(crate) encoder: Encoder,
    pub(crate) streams: StreamTable,
    /// Highest identifier of a stream so far. Clients open all of them.
    pub(crate) last_stream: u32,
    /// Recently released streams that were reset. Frames may still arrive on them.
    pub(crate) reset_streams: VecDeque<u32>,
    /// Server: released streams whose upload is to be stopped, each after the reply to a PING.
    late_resets: VecDeque<u32>,
    pub(crate) peer: PeerSettings,
    pub(crate) send_window: i64,
    pub(crate) receive_window: i64,
    /// Credit not yet sent to the peer.
    credit: u32,
    /// The measurement in progress.
    pub(crate) round_trip: Option<RoundTrip>,
    /// The connection window cut a send short.
    pub(crate) is_blocked: bool,
    /// Receive window of a new stream. At least the initial one of the protocol until the peer has acknowledged ours.
    pub(crate) initial_receive_window: i64,
    pub(crate) resets: Budget,
    pub(crate) glitches: Budget,
    pub(crate) queued_control_frames: u32,
    /// Last stream of the GOAWAY sent.
    pub(crate) go_away: Option<u32>,
    pub(crate) peer_goes_away: bool,
    pub(crate) error: Option<ConnectionError>,
}

/// Settings of the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerSettings {
    pub(crate) streams: u32,
    pub(crate) initial_window: i64,
    pub(crate) frame_bytes: u32,
    pub(crate) extended_connect: bool,
}

/// Received event. Heads and trailers are in the [`Fields`](crate::Fields) passed to [`Connection::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Server: the head of a request. [`Connection::set_token`] assigns a token to its stream.
    Request { stream: u32, end_stream: bool },
    /// Client: the head of a response, which may be interim (1xx).
    Response { stream: u32, token: usize, status: u16, end_stream: bool },
    /// A head whose fields exceed the limits. A server may respond; the token of its stream is 0.
    HeadTooLarge { stream: u32, token: usize, end_stream: bool },
    /// A piece of a body, which needs [`Connection::credit`]. Empty only at the end.
    Data { stream: u32, token: usize, data: &'a [u8], end_stream: bool },
    /// Trailers, which end their stream.
    Trailers { stream: u32, token: usize },
    /// The stream is closed before its end.
    Reset { stream: u32, token: usize, cause: ResetCause },
    /// Server: a request was rejected with `RST_STREAM`. There is no stream to release.
    Refused { stream: u32, error: StreamError },
    /// There is room again for a body that did not fit.
    StreamWritable { stream: u32, token: usize },
    /// There is room again for the bodies of all streams.
    Writable,
    /// The peer has sent settings; there may be room for more streams and bodies.
    Settings,
    /// The peer accepts no more streams. A client may resend the requests of streams above `last_stream`.
    GoAway { last_stream: u32, code: ErrorCode },
    /// Reply to [`Connection::ping`].
    Pong([u8; 8]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetCause {
    Peer(ErrorCode),
    /// The peer broke a rule; it has been sent `RST_STREAM`.
    Error(StreamError),
}

/// Initial windows of the protocol (RFC 9113, section 6.9.2).
const PROTOCOL_WINDOW: u32 = 65_535;

/// Glitches offset by each HEADERS or DATA frame sent.
const GLITCHES_PAID: u32 = 2;

impl Connection {
    /// Creates a connection and appends its first frames to `out`.
    pub fn new(role: Role, limits: Limits, now: Instant, out: &mut Vec<u8>) -> Self {
        let connection_window = limits.connection_window.clamp(PROTOCOL_WINDOW, STREAM_MAX);
        let stream_window = limits.stream_window.min(STREAM_MAX);
        let frame_bytes = limits.frame_bytes.clamp(MIN_MAX_FRAME_BYTES, frame::MAX_MAX_FRAME_BYTES);
        let limits = Limits { connection_window, stream_window, frame_bytes, ..limits };
        let fields_bytes = u32::try_from(limits.fields.bytes).unwrap_or(u32::MAX);
        let mut settings = vec![
            (setting::INITIAL_WINDOW_SIZE, stream_window),
            (setting::MAX_HEADER_LIST_SIZE, fields_bytes),
            (setting::MAX_FRAME_SIZE, frame_bytes),
            (setting::HEADER_TABLE_SIZE, limits.decoder_table_bytes),
        ];
        match role {
            Role::Client => {
                out.extend_from_slice(PREFACE);
                settings.push((setting::ENABLE_PUSH, 0));
            }
            Role::Server => {
                settings.push((setting::MAX_CONCURRENT_STREAMS, limits.streams));
                if limits.extended_connect {
                    settings.push((setting::ENABLE_CONNECT_PROTOCOL, 1));
                }
            }
        }
        frame::write_settings(&settings, out);
        if connection_window > PROTOCOL_WINDOW {
            frame::write_window_update(0, connection_window - PROTOCOL_WINDOW, out);
        }
        let mut decoder = Decoder::default();
        if limits.decoder_table_bytes > crate::hpack::DEFAULT_TABLE_SIZE {
            decoder.set_size_limit(limits.decoder_table_bytes);
        }
        Self {
            role,
            limits,
            reader: Reader::new(role == Role::Server),
            decoder,
            encoder: Encoder::new(limits.encoder_table_bytes),
            streams: StreamTable::default(),
            last_stream: 0,
            reset_streams: VecDeque::new(),
            late_resets: VecDeque::new(),
            peer: PeerSettings {
                streams: u32::MAX,
                initial_window: i64::from(PROTOCOL_WINDOW),
                frame_bytes: MIN_MAX_FRAME_BYTES,
                extended_connect: false,
            },
            send_window: i64::from(PROTOCOL_WINDOW),
            receive_window: i64::from(connection_window),
            credit: 0,
            round_trip: None,
            is_blocked: false,
            initial_receive_window: i64::from(stream_window.max(PROTOCOL_WINDOW)),
            resets: Budget::new(limits.resets, now),
            glitches: Budget::new(limits.glitches, now),
            queued_control_frames: 0,
            go_away: None,
            peer_goes_away: false,
            error: None,
        }
    }

    /// Number of streams that are not released.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Returns identifiers and tokens of all streams that are not released, in no order.
    pub fn tokens(&self) -> impl Iterator<Item = (u32, usize)> {
        self.streams.iter().map(|stream| (stream.id, stream.token))
    }

    /// Returns the tokens of streams for whose bodies a higher initial window has made room. To be called after
    /// [`Event::Settings`], as no [`Event::StreamWritable`] follows for them.
    pub fn unblocked_by_settings(&mut self) -> Vec<usize> {
        let streams = self.streams.iter_mut().filter(|stream| stream.send_window > 0);
        let unblocked = streams
            .filter_map(|stream| std::mem::take(&mut stream.is_blocked).then_some(stream.token));
        unblocked.collect()
    }

    pub fn set_token(&mut self, stream: u32, token: usize) {
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.token = token;
        }
    }

    /// Number of concurrent streams that the peer allows; `u32::MAX` without a limit.
    pub fn peer_streams(&self) -> u32 {
        self.peer.streams
    }

    /// True if the window of the connection takes no body now.
    pub fn is_window_empty(&self) -> bool {
        self.send_window <= 0
    }

    /// Number of body bytes that the windows of a stream and of the connection take now.
    pub fn send_window(&self, stream: u32) -> usize {
        let window = self.streams.get(stream).map_or(0, |stream| stream.send_window);
        usize::try_from(window.min(self.send_window)).unwrap_or(0)
    }

    /// Client: true if the peer allows another stream now. See also [`is_spent`](Self::is_spent).
    pub fn can_open(&self) -> bool {
        !self.is_spent() && self.streams.len() < self.peer.streams as usize
    }

    /// True if no more streams can be opened: the connection failed, either side sent GOAWAY, or identifiers have run
    /// out.
    pub fn is_spent(&self) -> bool {
        self.error.is_some()
            || self.peer_goes_away
            || self.go_away.is_some()
            || self.last_stream > STREAM_MAX - 2
    }

    /// Client: true if the server takes extended CONNECT (RFC 8441).
    pub fn peer_takes_extended_connect(&self) -> bool {
        self.peer.extended_connect
    }

    /// Client: sends the head of a request. Returns its stream, or `None` unless [`can_open`](Self::can_open). The
    /// fields must follow the rules of RFC 9113, section 8, pseudo-fields first.
    pub fn send_request<'f>(
        &mut self,
        fields: impl IntoIterator<Item = Field<'f>>,
        end_stream: bool,
        token: usize,
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        if self.role == Role::Server || !self.can_open() {
            return None;
        }
        let id = if self.last_stream == 0 { 1 } else { self.last_stream + 2 };
        self.last_stream = id;
        let mut stream =
            Stream::new(id, token, self.peer.initial_window, self.initial_receive_window);
        stream.send = if end_stream { Side::Ended } else { Side::Body };
        let fields = fields.into_iter().inspect(|field| {
            if field.name == b":method" {
                stream.is_head = field.value == b"HEAD";
                stream.is_connect = field.value == b"CONNECT";
            }
        });
        self.write_fields(id, end_stream, None, fields, out);
        self.streams.insert(stream);
        Some(id)
    }

    /// Server: sends the head of a response, without `:status` in its fields. Interim ones (1xx) may precede it.
    pub fn send_response<'f>(
        &mut self,
        stream: u32,
        status: u16,
        fields: impl IntoIterator<Item = Field<'f>>,
        end_stream: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), StreamClosed> {
        let state = self.streams.get_mut(stream).filter(|state| state.can_send(Side::Head));
        let state = state.ok_or(StreamClosed)?;
        if status >= 200 {
            state.send = if end_stream { Side::Ended } else { Side::Body };
        }
        let mut digits = itoa::Buffer::new();
        let status = digits.format(status).as_bytes();
        self.write_fields(stream, end_stream, Some(status), fields, out);
        Ok(())
    }

    /// Sends trailers, which end the message.
    pub fn send_trailers<'f>(
        &mut self,
        stream: u32,
        fields: impl IntoIterator<Item = Field<'f>>,
        out: &mut Vec<u8>,
    ) -> Result<(), StreamClosed> {
        let state = self.streams.get_mut(stream).filter(|state| state.can_send(Side::Body));
        state.ok_or(StreamClosed)?.send = Side::Ended;
        self.write_fields(stream, true, None, fields, out);
        Ok(())
    }

    /// Sends as much of a body as the windows allow. Returns the number of bytes. If that is less than there are,
    /// [`Event::StreamWritable`], [`Event::Writable`] or [`Event::Settings`] announces room. `end_stream`: the body ends
    /// with these bytes; it has ended when all are sent.
    pub fn send_data(
        &mut self,
        stream: u32,
        bytes: &[u8],
        end_stream: bool,
        out: &mut Vec<u8>,
    ) -> Result<usize, StreamClosed> {
        let mut sent = 0;
        loop {
            let rest = &bytes[sent..];
            let Some(count) = self.start_data(stream, rest.len(), end_stream, out)? else {
                return Ok(sent);
            };
            out.extend_from_slice(&rest[..count]);
            sent += count;
            if sent == bytes.len() {
                return Ok(sent);
            }
        }
    }

    /// Appends the header of one DATA frame and returns its payload length, at most `available`. The caller must append
    /// that many bytes to `out` next. `None`: a window is empty, and nothing was appended. Otherwise as
    /// [`send_data`](Self::send_data).
    pub fn start_data(
        &mut self,
        stream: u32,
        available: usize,
        end_stream: bool,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>, StreamClosed> {
        let state = self.streams.get_mut(stream).filter(|state| state.can_send(Side::Body));
        let state = state.ok_or(StreamClosed)?;
        let window = state.send_window.min(self.send_window).max(0);
        let count = (available as u64).min(window as u64).min(u64::from(self.peer.frame_bytes));
        if count < available as u64 && window < available as i64 {
            state.is_blocked |= state.send_window < available as i64;
            self.is_blocked |= self.send_window < available as i64;
        }
        if count == 0 && (available > 0 || !end_stream) {
            return Ok(None);
        }
        state.send_window -= count as i64;
        self.send_window -= count as i64;
        let is_end = end_stream && count == available as u64;
        if is_end {
            state.send = Side::Ended;
        }
        let flags = if is_end { flags::END_STREAM } else { 0 };
        let header = FrameHeader { length: count as u32, kind: FrameType::DATA, flags, stream };
        out.extend_from_slice(&header.to_bytes());
        self.glitches.give_back(GLITCHES_PAID);
        Ok(Some(count as usize))
    }

    /// Gives the peer credit for bytes of [`Event::Data`] that the caller has consumed. Credit is sent when half of a
    /// window is due. A release gives the rest.
    pub fn credit(&mut self, stream: u32, bytes: usize, out: &mut Vec<u8>) {
        let Some(state) = self.streams.get_mut(stream) else { return };
        let bytes = (state.held as usize).min(bytes) as u32;
        state.held -= bytes;
        if state.receive == Side::Body && !state.is_reset {
            state.credit += bytes;
            if state.credit >= (self.limits.stream_window + state.growth).div_ceil(2) {
                state.is_long = true;
                state.receive_window += i64::from(state.credit);
                frame::write_window_update(stream, std::mem::take(&mut state.credit), out);
            }
        }
        self.credit_connection(bytes, out);
    }

    /// Begins to measure a round trip at the first of these bytes, or adds them to the one in progress.
    pub(crate) fn measure(&mut self, stream: u32, length: u32, out: &mut Vec<u8>) {
        match &mut self.round_trip {
            Some(trip) if trip.stream == stream => {
                trip.received = trip.received.saturating_add(length);
            }
            Some(_) => {}
            None => {
                let Some(state) = self.streams.get(stream) else { return };
                let window = self.limits.stream_window + state.growth;
                let is_long =
                    state.is_long && state.body_left.is_none_or(|left| left > u64::from(window));
                if is_long && window < self.limits.stream_window_max {
                    self.round_trip = Some(RoundTrip { stream, received: length });
                    self.ping(RoundTrip::payload(stream), out);
                }
            }
        }
    }

    /// Ends the round trip, if this is the reply to its PING. The window of its stream doubles if the peer has sent half of it
    /// in that time and the caller has consumed at least as much. Returns false if it is another reply.
    pub(crate) fn end_round_trip(&mut self, payload: [u8; 8], out: &mut Vec<u8>) -> bool {
        let is_reply = |trip: &mut RoundTrip| payload == RoundTrip::payload(trip.stream);
        let Some(trip) = self.round_trip.take_if(is_reply) else { return false };
        let open = self.streams.get_mut(trip.stream);
        if let Some(state) = open.filter(|state| state.receive == Side::Body && !state.is_reset) {
            let window = self.limits.stream_window + state.growth;
            let growth = window.min(self.limits.stream_window_max.saturating_sub(window));
            if growth > 0 && trip.received >= window.div_ceil(2) && state.held <= window / 2 {
                state.growth += growth;
                state.receive_window += i64::from(growth);
                frame::write_window_update(trip.stream, growth, out);
            }
        }
        true
    }

    pub(crate) fn credit_connection(&mut self, bytes: u32, out: &mut Vec<u8>) {
        self.credit += bytes;
        if self.credit >= self.limits.connection_window / 2 {
            self.receive_window += i64::from(self.credit);
            frame::write_window_update(0, std::mem::take(&mut self.credit), out);
        }
    }

    /// Resets a stream that has not ended. The caller must still release it.
    pub fn reset(&mut self, stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
        if let Some(state) = self.streams.get_mut(stream).filter(|state| !state.is_closed()) {
            state.is_reset = true;
            frame::write_reset(stream, code, out);
        }
    }

    /// Forgets a stream. Resets it if it has not ended: a client cancels its request; a server that has responded to an
    /// incomplete request stops the upload (RFC 9113, section 8.1). The latter waits for the reply to a PING, as clients
    /// such as curl drop a response whose stream is reset before they have read it.
    pub fn release(&mut self, stream: u32, out: &mut Vec<u8>) {
        let Some(state) = self.streams.get(stream) else { return };
        let has_responded = self.role == Role::Server && state.send == Side::Ended;
        let is_late =
            has_responded && !state.is_closed() && self.late_resets.len() < LATE_RESETS_MAX;
        if is_late {
            self.late_resets.push_back(stream);
            self.ping(late_reset_payload(stream), out);
        } else {
            let code = if has_responded { ErrorCode::NO_ERROR } else { ErrorCode::CANCEL };
            self.reset(stream, code, out);
        }
        self.round_trip.take_if(|trip| trip.stream == stream);
        if let Some(state) = self.streams.remove(stream) {
            if is_late || state.is_reset && !state.is_reset_by_peer {
                self.remember_reset(stream);
            }
            self.credit_connection(state.held, out);
        }
    }

    /// Stops an upload whose response the peer has read, unless it has ended. Returns false if none waits for this reply.
    pub(crate) fn reset_late(&mut self, payload: [u8; 8], out: &mut Vec<u8>) -> bool {
        let mut waiting = self.late_resets.iter().copied();
        let stream = waiting.find(|stream| late_reset_payload(*stream) == payload);
        if let Some(stream) = stream {
            self.forget_late_reset(stream);
            frame::write_reset(stream, ErrorCode::NO_ERROR, out);
        }
        stream.is_some()
    }

    /// The peer has ended or reset a stream that may wait for a reset.
    pub(crate) fn forget_late_reset(&mut self, stream: u32) {
        self.late_resets.retain(|late| *late != stream);
    }

    /// Sends a PING, whose reply is [`Event::Pong`].
    pub fn ping(&self, payload: [u8; 8], out: &mut Vec<u8>) {
        frame::write(FrameType::PING, 0, 0, &payload, out);
    }

    /// Server: announces the end of the connection, but still accepts streams opened before the client learns of it.
    /// [`go_away`](Self::go_away) should follow after a round trip.
    pub fn announce_go_away(&self, out: &mut Vec<u8>) {
        frame::write_go_away(STREAM_MAX, ErrorCode::NO_ERROR, out);
    }

    /// Rejects further streams. Open streams may finish.
    pub fn go_away(&mut self, code: ErrorCode, out: &mut Vec<u8>) {
        let last_stream = self.last_peer_stream();
        self.go_away = Some(last_stream);
        frame::write_go_away(last_stream, code, out);
    }

    /// Reports that all bytes appended so far are sent.
    pub fn flushed(&mut self) {
        self.queued_control_frames = 0;
    }

    /// Frees the memory of a connection without streams.
    pub fn shrink(&mut self) {
        self.streams.shrink();
        self.reader.shrink();
        self.reset_streams.shrink_to_fit();
        self.late_resets.shrink_to_fit();
    }

    pub(crate) fn last_peer_stream(&self) -> u32 {
        if self.role == Role::Server { self.last_stream } else { 0 }
    }

    pub(crate) fn remember_reset(&mut self, stream: u32) {
        if self.reset_streams.len() == RESET_STREAMS_MAX {
            self.reset_streams.pop_front();
        }
        self.reset_streams.push_back(stream);
    }

    /// Appends a HEADERS frame, and CONTINUATION frames if the block exceeds the peer's frame size.
    fn write_fields<'f>(
        &mut self,
        stream: u32,
        end_stream: bool,
        status: Option<&[u8]>,
        fields: impl IntoIterator<Item = Field<'f>>,
        out: &mut Vec<u8>,
    ) {
        self.glitches.give_back(GLITCHES_PAID);
        let start = out.len();
        out.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
        self.encoder.start(out);
        if let Some(status) = status {
            self.encoder.encode(b":status", status, false, out);
        }
        for field in fields {
            self.encoder.encode(field.name, field.value, field.is_sensitive, out);
        }
        let block = start + FRAME_HEADER_BYTES;
        let frame_max = self.peer.frame_bytes as usize;
        let rest = if out.len() - block > frame_max {
            out.split_off(block + frame_max)
        } else {
            Vec::new()
        };
        let end_headers = |is_last| if is_last { flags::END_HEADERS } else { 0 };
        let end_stream = if end_stream { flags::END_STREAM } else { 0 };
        let header = FrameHeader {
            length: (out.len() - block) as u32,
            kind: FrameType::HEADERS,
            flags: end_stream | end_headers(rest.is_empty()),
            stream,
        };
        out[start..block].copy_from_slice(&header.to_bytes());
        let mut chunks = rest.chunks(frame_max).peekable();
        while let Some(chunk) = chunks.next() {
            let flags = end_headers(chunks.peek().is_none());
            frame::write(FrameType::CONTINUATION, flags, stream, chunk, out);
        }
    }
}

/// A round trip in which the peer sends DATA on a stream, from a PING at the first frame to its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    pub(crate) stream: u32,
    /// Bytes of DATA, with the first frame.
    pub(crate) received: u32,
}

impl RoundTrip {
    pub(crate) fn payload(stream: u32) -> [u8; 8] {
        ping_payload(ROUND_TRIP, stream)
    }
}

fn late_reset_payload(stream: u32) -> [u8; 8] {
    ping_payload(LATE_RESET, stream)
}

fn ping_payload([s, t, o, p]: [u8; 4], stream: u32) -> [u8; 8] {
    let [a, b, c, d] = stream.to_be_bytes();
    [s, t, o, p, a, b, c, d]
}

/// Begin of the payload of a PING that measures a round trip.
pub(crate) const ROUND_TRIP: [u8; 4] = *b"trip";

/// Begin of the payload of a PING whose reply stops an upload.
pub(crate) const LATE_RESET: [u8; 4] = *b"stop";

/// Limit of uploads that wait to be stopped. Further ones are stopped at once, as a peer may send no replies to PING.
const LATE_RESETS_MAX: usize = 64;

/// Number of streams in [`Connection::reset_streams`].
pub(crate) const RESET_STREAMS_MAX: usize = 128;
