//! Field blocks: heads and trailers.

use std::time::Instant;

use super::reader::{PendingBlock, clear};
use crate::connection::{Connection, Event, RESET_STREAMS_MAX, Role};
use crate::error::{ConnectionError, Flood, StreamError};
use crate::fields::{Fields, Malformed};
use crate::frame::{self, FrameHeader, flags};
use crate::limits::Limits;
use crate::stream::{Side, Stream};

impl Connection {
    pub(super) fn on_headers<'a>(
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

    pub(super) fn on_continuation<'a>(
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
            // RFC 9113, section 8.5.
            Side::Body if stream.is_connect => Err(Malformed::HeadersInTunnel.into()),
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
                self.forget_late_reset(id);
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
}

fn check_request(fields: &mut Fields, end_stream: bool, limits: &Limits) -> Result<(), Malformed> {
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
        200..=299 if stream.is_connect => None,
        204 | 304 => Some(0),
        _ => fields.content_length(),
    };
    if end_stream && body.is_some_and(|length| length > 0) {
        return Err(Malformed::BodyLength.into());
    }
    stream.is_connect &= matches!(status, 200..=299);
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
