//! Received frames.

use std::time::Instant;

use crate::connection::{Connection, Event, RESET_STREAMS_MAX, ResetCause, Role};
use crate::error::{ConnectionError, ErrorCode, Flood, StreamError};
use crate::fields::{Fields, Malformed};
use crate::frame::{
    self, FRAME_HEADER_BYTES, FrameHeader, FrameType, PREFACE, STREAM_MAX, flags, setting,
};
use crate::stream::{Side, Stream};

/// State of reading frames.
#[derive(Debug)]
pub(crate) struct Reader {
    state: ReadState,
    /// Start of an incomplete frame other than DATA.
    partial: Vec<u8>,
    /// Field block that waits for CONTINUATION frames.
    block: Vec<u8>,
    pending: Option<PendingBlock>,
    /// The first frame must be SETTINGS.
    has_settings: bool,
}

#[derive(Clone, Copy, Debug)]
enum ReadState {
    /// Number of bytes of the preface read.
    Preface(usize),
    Frame,
    Data(DataFrame),
}

#[derive(Clone, Copy, Debug)]
struct PendingBlock {
    stream: u32,
    end_stream: bool,
    continuations: u32,
}

/// A DATA frame that is being read. Its pieces are delivered as they arrive.
#[derive(Clone, Copy, Debug)]
struct DataFrame {
    stream: u32,
    /// Payload bytes left; includes the padding and its length byte until that byte is read.
    left: u32,
    padding: u32,
    state: DataState,
    end_stream: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataState {
    /// Before the length of the padding.
    PadLength,
    Payload,
    /// After the payload.
    Padding,
    /// The stream no longer accepts data.
    Discard,
}

/// Capacity kept for incomplete frames and blocks.
const KEPT_BYTES: usize = 1024;

/// Window updates below this count as glitches.
const SMALL_INCREMENT: u32 = 1024;

impl Reader {
    pub(crate) fn new(role: Role) -> Self {
        let state = match role {
            Role::Client => ReadState::Frame,
            Role::Server => ReadState::Preface(0),
        };
        Self { state, partial: Vec::new(), block: Vec::new(), pending: None, has_settings: false }
    }

    pub(crate) fn shrink(&mut self) {
        self.partial.shrink_to_fit();
        self.block.shrink_to_fit();
    }
}

/// Clears a buffer, and frees it if it is large.
fn clear(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(KEPT_BYTES);
}

impl Connection {
    /// Consumes bytes up to the next event. `None`: all bytes are consumed. The head or trailers of an event are in
    /// `fields` until the next call. Replies are appended to `out`.
    ///
    /// # Errors
    ///
    /// The peer broke the protocol or exceeded a limit. A GOAWAY is appended to `out`; the connection must be closed when
    /// it is sent. Later calls return the same error.
    pub fn receive<'a>(
        &mut self,
        input: &mut &'a [u8],
        fields: &mut Fields,
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let result = self.read(input, fields, out, now);
        if let Err(error) = result {
            self.error = Some(error);
            frame::write_go_away(self.last_peer_stream(), error.code(), out);
        }
        result
    }

    fn read<'a>(
        &mut self,
        input: &mut &'a [u8],
        fields: &mut Fields,
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        loop {
            let event = match self.reader.state {
                ReadState::Preface(read) => {
                    self.read_preface(read, input)?;
                    None
                }
                ReadState::Data(frame) => self.read_data(frame, input, out, now)?,
                ReadState::Frame => match self.read_frame(input, fields, out, now)? {
                    None => return Ok(None),
                    Some(event) => event,
                },
            };
            if event.is_some() {
                return Ok(event);
            }
            // A frame without payload ends without further bytes.
            let is_done =
                !matches!(self.reader.state, ReadState::Data(frame) if frame.needs_no_input());
            if input.is_empty() && is_done {
                return Ok(None);
            }
        }
    }

    fn read_preface(&mut self, read: usize, input: &mut &[u8]) -> Result<(), ConnectionError> {
        let count = input.len().min(PREFACE.len() - read);
        let (bytes, rest) = input.split_at(count);
        if bytes != &PREFACE[read..read + count] {
            return Err(ConnectionError::protocol("invalid preface"));
        }
        *input = rest;
        self.reader.state = match read + count {
            read if read == PREFACE.len() => ReadState::Frame,
            read => ReadState::Preface(read),
        };
        Ok(())
    }

    /// Reads one frame, or the header of a DATA frame. `None`: it is incomplete, and all bytes are consumed.
    fn read_frame<'a>(
        &mut self,
        input: &mut &'a [u8],
        fields: &mut Fields,
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Option<Event<'a>>>, ConnectionError> {
        if self.reader.partial.is_empty() {
            if let Some((bytes, rest)) = input.split_first_chunk() {
                let header = self.check_header(bytes)?;
                if header.kind == FrameType::DATA {
                    *input = rest;
                    return self.on_data(&header, out, now).map(Some);
                }
                if let Some((payload, rest)) = rest.split_at_checked(header.length as usize) {
                    *input = rest;
                    return self.on_frame(&header, payload, fields, out, now).map(Some);
                }
            }
            self.reader.partial.extend_from_slice(input);
            *input = &[];
            return Ok(None);
        }
        self.fill_partial(FRAME_HEADER_BYTES, input);
        let Some(bytes) = self.reader.partial.first_chunk::<FRAME_HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = self.check_header(&bytes.clone())?;
        if header.kind == FrameType::DATA {
            self.reader.partial.clear();
            return self.on_data(&header, out, now).map(Some);
        }
        let length = FRAME_HEADER_BYTES + header.length as usize;
        self.fill_partial(length, input);
        if self.reader.partial.len() < length {
            return Ok(None);
        }
        let mut frame = std::mem::take(&mut self.reader.partial);
        let event = self.on_frame(&header, &frame[FRAME_HEADER_BYTES..], fields, out, now);
        clear(&mut frame);
        self.reader.partial = frame;
        event.map(Some)
    }

    fn fill_partial(&mut self, length: usize, input: &mut &[u8]) {
        let missing = length.saturating_sub(self.reader.partial.len());
        let (bytes, rest) = input.split_at(missing.min(input.len()));
        self.reader.partial.extend_from_slice(bytes);
        *input = rest;
    }

    fn check_header(
        &self,
        bytes: &[u8; FRAME_HEADER_BYTES],
    ) -> Result<FrameHeader, ConnectionError> {
        let header = FrameHeader::parse(bytes);
        if header.length > self.limits.frame_bytes {
            return Err(ConnectionError::FRAME_SIZE);
        }
        if !self.reader.has_settings
            && (header.kind != FrameType::SETTINGS || header.has(flags::ACK))
        {
            return Err(ConnectionError::protocol("first frame is not SETTINGS"));
        }
        let is_continuation = header.kind == FrameType::CONTINUATION;
        match self.reader.pending {
            None if is_continuation => {
                Err(ConnectionError::protocol("CONTINUATION without a field block"))
            }
            Some(pending) if !is_continuation || pending.stream != header.stream => {
                Err(ConnectionError::protocol("another frame within a field block"))
            }
            _ => Ok(header),
        }
    }

    fn on_frame<'a>(
        &mut self,
        header: &FrameHeader,
        payload: &[u8],
        fields: &mut Fields,
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let is_of_stream = match header.kind {
            FrameType::SETTINGS | FrameType::PING | FrameType::GOAWAY => Some(false),
            FrameType::HEADERS | FrameType::PRIORITY | FrameType::RST_STREAM => Some(true),
            _ => None,
        };
        if is_of_stream.is_some_and(|is_of_stream| is_of_stream != (header.stream != 0)) {
            return Err(ConnectionError::protocol("frame type on a wrong stream"));
        }
        match header.kind {
            FrameType::HEADERS => self.on_headers(header, payload, fields, out, now),
            FrameType::CONTINUATION => self.on_continuation(header, payload, fields, out, now),
            FrameType::SETTINGS => self.on_settings(header, payload, out, now),
            FrameType::WINDOW_UPDATE => self.on_window_update(header.stream, payload, out, now),
            FrameType::RST_STREAM => self.on_reset(header.stream, payload, now),
            FrameType::PING => self.on_ping(header, payload, out, now),
            FrameType::GOAWAY => {
                let (last, code) =
                    payload.split_first_chunk().ok_or(ConnectionError::FRAME_SIZE)?;
                let code = code.first_chunk().ok_or(ConnectionError::FRAME_SIZE)?;
                if std::mem::replace(&mut self.peer_goes_away, true) {
                    self.glitch(now)?;
                }
                let last_stream = u32::from_be_bytes(*last) & STREAM_MAX;
                Ok(Some(Event::GoAway { last_stream, code: ErrorCode(u32::from_be_bytes(*code)) }))
            }
            FrameType::PUSH_PROMISE => Err(ConnectionError::protocol("push is disabled")),
            FrameType::PRIORITY if payload.len() != 5 => Err(ConnectionError::FRAME_SIZE),
            FrameType::PRIORITY => {
                frame::check_dependency(header.stream, payload)?;
                self.glitch(now).map(|()| None)
            }
            _ => self.glitch(now).map(|()| None),
        }
    }

    fn glitch(&mut self, now: Instant) -> Result<(), ConnectionError> {
        if self.glitches.take(now) { Ok(()) } else { Err(ConnectionError::Flood(Flood::Glitches)) }
    }

    /// Counts a reply to the peer.
    fn reply(&mut self) -> Result<(), ConnectionError> {
        self.queued_control_frames += 1;
        if self.queued_control_frames > self.limits.queued_control_frames {
            return Err(ConnectionError::Flood(Flood::QueuedControlFrames));
        }
        Ok(())
    }

    /// Counts a stream that the peer ended early.
    fn count_reset(&mut self, now: Instant) -> Result<(), ConnectionError> {
        if self.resets.take(now) { Ok(()) } else { Err(ConnectionError::Flood(Flood::Resets)) }
    }

    /// True if the stream was never opened.
    fn is_idle(&self, stream: u32) -> bool {
        stream.is_multiple_of(2) || stream > self.last_stream
    }

    /// True if the peer may not know yet that the stream takes nothing more.
    fn was_reset(&self, stream: u32) -> bool {
        self.reset_streams.contains(&stream) || self.go_away.is_some_and(|last| stream > last)
    }

    /// Ends a stream by an error of the peer.
    fn fail<'a>(
        &mut self,
        stream: u32,
        error: impl Into<StreamError>,
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let error = error.into();
        self.count_reset(now)?;
        self.reply()?;
        frame::write_reset(stream, error.code(), out);
        let Some(state) = self.streams.get_mut(stream) else {
            self.remember_reset(stream);
            return Ok(Some(Event::Refused { stream, error }));
        };
        state.is_reset = true;
        Ok(Some(Event::Reset { stream, token: state.token, cause: ResetCause::Error(error) }))
    }

    fn on_headers<'a>(
        &mut self,
        header: &FrameHeader,
        payload: &[u8],
        fields: &mut Fields,
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let stream = header.stream;
        if stream.is_multiple_of(2) || (self.role == Role::Client && stream > self.last_stream) {
            return Err(ConnectionError::protocol("HEADERS on a stream that the peer cannot open"));
        }
        let block = frame::field_block(header, payload)?;
        let end_stream = header.has(flags::END_STREAM);
        if header.has(flags::END_HEADERS) {
            return self.on_block(stream, end_stream, block, fields, out, now);
        }
        self.reader.block.extend_from_slice(block);
        self.reader.pending = Some(PendingBlock { stream, end_stream, continuations: 0 });
        Ok(None)
    }

    fn on_continuation<'a>(
        &mut self,
        header: &FrameHeader,
        payload: &[u8],
        fields: &mut Fields,
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let Some(pending) = &mut self.reader.pending else { return Ok(None) };
        pending.continuations += 1;
        if pending.continuations > self.limits.continuations {
            return Err(ConnectionError::Flood(Flood::Continuations));
        }
        self.reader.block.extend_from_slice(payload);
        if !header.has(flags::END_HEADERS) {
            return Ok(None);
        }
        let PendingBlock { stream, end_stream, .. } = *pending;
        self.reader.pending = None;
        let mut block = std::mem::take(&mut self.reader.block);
        let event = self.on_block(stream, end_stream, &block, fields, out, now);
        clear(&mut block);
        self.reader.block = block;
        event
    }

    /// Handles a whole field block. Each one is decoded, to keep the table in step.
    fn on_block<'a>(
        &mut self,
        id: u32,
        end_stream: bool,
        block: &[u8],
        fields: &mut Fields,
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        self.decoder.decode(block, self.limits.fields, fields)?;
        let Some(stream) = self.streams.get_mut(id) else {
            return self.on_request(id, end_stream, fields, out, now);
        };
        if stream.is_reset_by_peer {
            return Err(ConnectionError::STREAM_CLOSED);
        }
        if stream.is_reset {
            return self.glitch(now).map(|()| None);
        }
        let event = match stream.receive {
            Side::Head => on_response(stream, end_stream, fields),
            Side::Body => on_trailers(stream, end_stream, fields),
            Side::Ended => Err(StreamError::Closed),
        };
        match event {
            Ok(event) => {
                // Their number is unlimited, and no window bounds them.
                if matches!(event, Event::Response { status: ..200, .. }) {
                    self.glitch(now)?;
                }
                Ok(Some(event))
            }
            Err(error) => {
                fields.forget_checks();
                self.fail(id, error, out, now)
            }
        }
    }

    /// Handles a field block on a stream that is not in the table.
    fn on_request<'a>(
        &mut self,
        id: u32,
        end_stream: bool,
        fields: &mut Fields,
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        if id <= self.last_stream {
            if self.was_reset(id) {
                return self.glitch(now).map(|()| None);
            }
            // After this many resets, the stream may be one that was forgotten.
            if self.reset_streams.len() == RESET_STREAMS_MAX {
                return self.fail(id, StreamError::Closed, out, now);
            }
            return Err(ConnectionError::STREAM_CLOSED);
        }
        self.last_stream = id;
        if self.go_away.is_some_and(|last_stream| id > last_stream) {
            return Ok(None);
        }
        if self.streams.len() >= self.limits.streams as usize {
            return self.fail(id, StreamError::Refused, out, now);
        }
        let is_too_large = fields.is_truncated();
        let checked =
            if is_too_large { Ok(()) } else { check_request(fields, end_stream, &self.limits) };
        if let Err(malformed) = checked {
            fields.forget_checks();
            return self.fail(id, malformed, out, now);
        }
        let mut stream = Stream::new(id, 0, self.peer.initial_window, self.initial_receive_window);
        stream.receive = if end_stream { Side::Ended } else { Side::Body };
        stream.is_connect = fields.method() == "CONNECT";
        // RFC 9113, section 8.5: a tunnel has no length.
        stream.body_left = fields.content_length().filter(|_| !stream.is_connect);
        self.streams.insert(stream);
        Ok(Some(if is_too_large {
            Event::HeadTooLarge { stream: id, token: 0, end_stream }
        } else {
            Event::Request { stream: id, end_stream }
        }))
    }

    /// Handles the header of a DATA frame.
    fn on_data<'a>(
        &mut self,
        header: &FrameHeader,
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let FrameHeader { stream, length, .. } = *header;
        if self.is_idle(stream) {
            return Err(ConnectionError::protocol("DATA on an idle stream"));
        }
        self.receive_window -= i64::from(length);
        if self.receive_window < 0 {
            return Err(ConnectionError::flow_control("window of the connection exceeded"));
        }
        let is_padded = header.has(flags::PADDED);
        if is_padded && length == 0 {
            return Err(ConnectionError::FRAME_SIZE);
        }
        let mut frame = DataFrame {
            stream,
            left: length,
            padding: 0,
            state: if is_padded { DataState::PadLength } else { DataState::Payload },
            end_stream: header.has(flags::END_STREAM),
        };
        let error = match self.streams.get_mut(stream) {
            None => (!self.was_reset(stream)).then_some(StreamError::Closed),
            Some(state) if state.is_reset_by_peer => return Err(ConnectionError::STREAM_CLOSED),
            Some(state) if state.is_reset => None,
            Some(state) => {
                state.receive_window -= i64::from(length);
                match state.receive {
                    Side::Head => Some(Malformed::BodyBeforeHead.into()),
                    Side::Ended => Some(StreamError::Closed),
                    Side::Body if state.receive_window < 0 => Some(StreamError::FlowControl),
                    Side::Body => {
                        state.held += length;
                        self.reader.state = ReadState::Data(frame);
                        return if is_padded { Ok(None) } else { self.check_body(frame, out, now) };
                    }
                }
            }
        };
        frame.state = DataState::Discard;
        self.reader.state = ReadState::Data(frame);
        self.credit_connection(length, out);
        match error {
            Some(error) => self.fail(stream, error, out, now),
            None => self.glitch(now).map(|()| None),
        }
    }

    /// Checks the length of a DATA frame against the announced length of the body.
    fn check_body<'a>(
        &mut self,
        frame: DataFrame,
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        if frame.left == 0 && !frame.end_stream {
            self.glitch(now)?;
        }
        let Some(state) = self.streams.get_mut(frame.stream) else { return Ok(None) };
        let Some(body_left) = &mut state.body_left else { return Ok(None) };
        let length = u64::from(frame.left);
        if length > *body_left || (frame.end_stream && length < *body_left) {
            return self.fail(frame.stream, Malformed::BodyLength, out, now);
        }
        *body_left -= length;
        Ok(None)
    }

    /// Reads the rest of a DATA frame. Its bytes are held by the stream, whose release gives credit for them.
    fn read_data<'a>(
        &mut self,
        mut frame: DataFrame,
        input: &mut &'a [u8],
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let id = frame.stream;
        match frame.state {
            DataState::PadLength => {
                let Some((&padding, rest)) = input.split_first() else { return Ok(None) };
                *input = rest;
                frame.padding = u32::from(padding);
                let length = (frame.left - 1).checked_sub(frame.padding);
                frame.left = length.ok_or(ConnectionError::PADDING)?;
                frame.state = DataState::Payload;
                self.reader.state = ReadState::Data(frame);
                self.credit(id, 1 + usize::from(padding), out);
                self.check_body(frame, out, now)
            }
            DataState::Payload => {
                let open = self.streams.get_mut(id).filter(|state| !state.is_reset);
                let Some(state) = open else {
                    frame.state = DataState::Discard;
                    frame.left += frame.padding;
                    self.reader.state = ReadState::Data(frame);
                    return Ok(None);
                };
                let data = take(&mut frame.left, input);
                let is_end = frame.left == 0;
                if is_end {
                    frame.state = DataState::Padding;
                    frame.left = frame.padding;
                }
                self.reader.state = ReadState::Data(frame);
                let end_stream = is_end && frame.end_stream;
                if end_stream {
                    state.receive = Side::Ended;
                }
                let event = Event::Data { stream: id, token: state.token, data, end_stream };
                Ok((end_stream || !data.is_empty()).then_some(event))
            }
            DataState::Padding | DataState::Discard => {
                take(&mut frame.left, input);
                self.reader.state =
                    if frame.left == 0 { ReadState::Frame } else { ReadState::Data(frame) };
                Ok(None)
            }
        }
    }

    fn on_settings<'a>(
        &mut self,
        header: &FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        if header.has(flags::ACK) {
            if !payload.is_empty() {
                return Err(ConnectionError::FRAME_SIZE);
            }
            self.on_settings_ack();
            return self.glitch(now).map(|()| None);
        }
        let mut initial_window = self.peer.initial_window;
        for (identifier, value) in frame::settings(payload)? {
            let is_flag = value <= 1;
            match identifier {
                setting::HEADER_TABLE_SIZE => self.encoder.set_peer_limit(value),
                setting::ENABLE_PUSH if !is_flag || (self.role == Role::Client && value == 1) => {
                    return Err(ConnectionError::protocol("invalid ENABLE_PUSH"));
                }
                setting::MAX_CONCURRENT_STREAMS => self.peer.streams = value,
                setting::INITIAL_WINDOW_SIZE if value > STREAM_MAX => {
                    return Err(ConnectionError::flow_control("invalid INITIAL_WINDOW_SIZE"));
                }
                setting::INITIAL_WINDOW_SIZE => initial_window = i64::from(value),
                setting::MAX_FRAME_SIZE => {
                    if !(frame::MIN_MAX_FRAME_BYTES..=frame::MAX_MAX_FRAME_BYTES).contains(&value) {
                        return Err(ConnectionError::protocol("invalid MAX_FRAME_SIZE"));
                    }
                    self.peer.frame_bytes = value;
                }
                setting::ENABLE_CONNECT_PROTOCOL if !is_flag => {
                    return Err(ConnectionError::protocol("invalid ENABLE_CONNECT_PROTOCOL"));
                }
                setting::ENABLE_CONNECT_PROTOCOL => self.peer.extended_connect = value == 1,
                _ => {}
            }
        }
        let change = initial_window - self.peer.initial_window;
        self.peer.initial_window = initial_window;
        for stream in self.streams.iter_mut() {
            stream.send_window += change;
            if stream.send_window > i64::from(STREAM_MAX) {
                return Err(ConnectionError::flow_control(
                    "INITIAL_WINDOW_SIZE overflows a window",
                ));
            }
        }
        if std::mem::replace(&mut self.reader.has_settings, true) {
            self.glitch(now)?;
        }
        self.reply()?;
        frame::write(FrameType::SETTINGS, flags::ACK, 0, &[], out);
        Ok(Some(Event::Settings))
    }

    /// Enforces our settings, which the peer has acknowledged.
    fn on_settings_ack(&mut self) {
        let window = i64::from(self.limits.stream_window);
        let change = window - std::mem::replace(&mut self.initial_receive_window, window);
        if change != 0 {
            self.streams.iter_mut().for_each(|stream| stream.receive_window += change);
        }
        self.decoder.set_size_limit(self.limits.decoder_table_bytes);
    }

    fn on_window_update<'a>(
        &mut self,
        id: u32,
        payload: &[u8],
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let increment = frame::number(payload)? & STREAM_MAX;
        if increment < SMALL_INCREMENT {
            self.glitch(now)?;
        }
        let window_max = i64::from(STREAM_MAX);
        if id == 0 {
            if increment == 0 {
                return Err(ConnectionError::protocol("window increment of 0"));
            }
            self.send_window += i64::from(increment);
            if self.send_window > window_max {
                return Err(ConnectionError::flow_control("window of the connection overflows"));
            }
            return Ok(std::mem::take(&mut self.is_blocked).then_some(Event::Writable));
        }
        if self.is_idle(id) {
            return Err(ConnectionError::protocol("WINDOW_UPDATE on an idle stream"));
        }
        let Some(stream) = self.streams.get_mut(id).filter(|stream| !stream.is_reset) else {
            return self.glitch(now).map(|()| None);
        };
        stream.send_window += i64::from(increment);
        if increment == 0 {
            return self.fail(id, StreamError::ZeroIncrement, out, now);
        }
        if stream.send_window > window_max {
            return self.fail(id, StreamError::FlowControl, out, now);
        }
        if stream.send_window <= 0 || !std::mem::take(&mut stream.is_blocked) {
            return Ok(None);
        }
        Ok(Some(Event::StreamWritable { stream: id, token: stream.token }))
    }

    fn on_reset<'a>(
        &mut self,
        id: u32,
        payload: &[u8],
        now: Instant,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let code = ErrorCode(frame::number(payload)?);
        if self.is_idle(id) {
            return Err(ConnectionError::protocol("RST_STREAM on an idle stream"));
        }
        let Some(stream) = self.streams.get_mut(id).filter(|stream| !stream.is_closed()) else {
            return self.glitch(now).map(|()| None);
        };
        stream.is_reset = true;
        stream.is_reset_by_peer = true;
        let token = stream.token;
        self.count_reset(now)?;
        Ok(Some(Event::Reset { stream: id, token, cause: ResetCause::Peer(code) }))
    }

    fn on_ping<'a>(
        &mut self,
        header: &FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let Ok(payload) = payload.try_into() else { return Err(ConnectionError::FRAME_SIZE) };
        self.glitch(now)?;
        if header.has(flags::ACK) {
            return Ok(Some(Event::Pong(payload)));
        }
        self.reply()?;
        frame::write(FrameType::PING, flags::ACK, 0, &payload, out);
        Ok(None)
    }
}

impl DataFrame {
    /// True if the next step needs no byte.
    fn needs_no_input(&self) -> bool {
        self.left == 0 && self.state != DataState::PadLength
    }
}

/// Takes as many of `left` bytes as `input` has.
fn take<'a>(left: &mut u32, input: &mut &'a [u8]) -> &'a [u8] {
    let (bytes, rest) = input.split_at(input.len().min(*left as usize));
    *input = rest;
    *left -= bytes.len() as u32;
    bytes
}

fn check_request(
    fields: &mut Fields,
    end_stream: bool,
    limits: &crate::limits::Limits,
) -> Result<(), Malformed> {
    fields.check_request(limits.extended_connect)?;
    if end_stream && fields.content_length().is_some_and(|length| length > 0) {
        return Err(Malformed::BodyLength);
    }
    Ok(())
}

/// Handles the head of a response.
fn on_response<'a>(
    stream: &mut Stream,
    end_stream: bool,
    fields: &mut Fields,
) -> Result<Event<'a>, StreamError> {
    let &mut Stream { id, token, .. } = stream;
    let receive = if end_stream { Side::Ended } else { Side::Body };
    if fields.is_truncated() {
        stream.receive = receive;
        return Ok(Event::HeadTooLarge { stream: id, token, end_stream });
    }
    fields.check_response()?;
    let status = fields.status();
    if status < 200 {
        // RFC 9113, section 8.1: an interim response does not end the stream.
        if end_stream {
            return Err(Malformed::Status.into());
        }
        return Ok(Event::Response { stream: id, token, status, end_stream });
    }
    let body = match status {
        _ if stream.is_head => Some(0),
        204 | 304 => Some(0),
        200..=299 if stream.is_connect => None,
        _ => fields.content_length(),
    };
    if end_stream && body.is_some_and(|length| length > 0) {
        return Err(Malformed::BodyLength.into());
    }
    stream.body_left = body;
    stream.receive = receive;
    Ok(Event::Response { stream: id, token, status, end_stream })
}

fn on_trailers<'a>(
    stream: &mut Stream,
    end_stream: bool,
    fields: &mut Fields,
) -> Result<Event<'a>, StreamError> {
    if !end_stream || fields.is_truncated() {
        return Err(Malformed::Trailers.into());
    }
    fields.check_trailers()?;
    if stream.body_left.is_some_and(|left| left > 0) {
        return Err(Malformed::BodyLength.into());
    }
    stream.receive = Side::Ended;
    Ok(Event::Trailers { stream: stream.id, token: stream.token })
}
