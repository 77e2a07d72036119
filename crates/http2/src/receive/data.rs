//! DATA frames.

use std::time::Instant;

use super::reader::{DataFrame, DataState, ReadState};
use crate::connection::{Connection, Event};
use crate::error::{ConnectionError, StreamError};
use crate::fields::Malformed;
use crate::frame::{FrameHeader, flags};
use crate::stream::Side;

impl Connection {
    /// Handles the header of a DATA frame.
    pub(super) fn on_data<'a>(
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
                        self.measure(stream, length, out);
                        self.reader.state = ReadState::Data(frame);
                        return if is_padded { Ok(None) } else { self.check_body(frame, out, now) };
                    }
                }
            }
        };
        if frame.end_stream {
            self.forget_late_reset(stream);
        }
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
    pub(super) fn read_data<'a>(
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
}

/// Takes as many of `left` bytes as `input` has.
fn take<'a>(left: &mut u32, input: &mut &'a [u8]) -> &'a [u8] {
    let (bytes, rest) = input.split_at(input.len().min(*left as usize));
    *input = rest;
    *left -= bytes.len() as u32;
    bytes
}
