//! Received frames: their boundaries, and the rules for all types.

mod control;
mod data;
mod message;
pub(crate) mod reader;

use std::time::Instant;

use crate::connection::{Connection, Event, ResetCause};
use crate::error::{ConnectionError, ErrorCode, Flood, StreamError};
use crate::fields::Fields;
use crate::frame::{self, FRAME_HEADER_BYTES, FrameHeader, FrameType, PREFACE, STREAM_MAX, flags};
use reader::{ReadState, clear};

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
}
