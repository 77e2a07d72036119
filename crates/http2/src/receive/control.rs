//! SETTINGS, `WINDOW_UPDATE`, `RST_STREAM` and PING.

use std::time::Instant;

use crate::connection::{Connection, Event, LATE_RESET, ROUND_TRIP, ResetCause, Role};
use crate::error::{ConnectionError, ErrorCode, StreamError};
use crate::frame::{self, FrameHeader, FrameType, STREAM_MAX, flags, setting};

/// Window updates below this count as glitches.
const SMALL_INCREMENT: u32 = 1024;

impl Connection {
    pub(super) fn on_settings<'a>(
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

    pub(super) fn on_window_update<'a>(
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

    pub(super) fn on_reset<'a>(
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
            self.forget_late_reset(id);
            return self.glitch(now).map(|()| None);
        };
        stream.is_reset = true;
        stream.is_reset_by_peer = true;
        let token = stream.token;
        self.count_reset(now)?;
        Ok(Some(Event::Reset { stream: id, token, cause: ResetCause::Peer(code) }))
    }

    pub(super) fn on_ping<'a>(
        &mut self,
        header: &FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let Ok(payload) = payload.try_into() else { return Err(ConnectionError::FRAME_SIZE) };
        let is_reply = header.has(flags::ACK);
        if is_reply && (self.reset_late(payload, out) || self.end_round_trip(payload, out)) {
            return Ok(None);
        }
        self.glitch(now)?;
        if is_reply {
            // Late ones, too.
            let is_own = [LATE_RESET, ROUND_TRIP].iter().any(|kind| payload.starts_with(kind));
            return Ok((!is_own).then_some(Event::Pong(payload)));
        }
        self.reply()?;
        frame::write(FrameType::PING, flags::ACK, 0, &payload, out);
        Ok(None)
    }
}
