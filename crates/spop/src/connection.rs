//! State of a connection: the handshake, frames in pieces, and acknowledgements.

use crate::coraza::{Message, MessageError, Variables};
use crate::data::{Reader, Value};
use crate::error::{ConnectionError, StatusCode};
use crate::frame::{
    self, Frame, FrameType, LENGTH_BYTES, Limits, MAX_FRAME_BYTES, MIN_FRAME_BYTES,
};

/// Identifies a NOTIFY frame on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NotifyId {
    pub stream: u64,
    pub frame: u64,
}

/// Received event: each frame is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The handshake, which is answered. After a health check the connection is to be closed when the answer is sent.
    Hello { is_health_check: bool },
    /// A message, to be [acknowledged](Connection::acknowledge).
    Notify { id: NotifyId, message: Result<Message<'a>, MessageError> },
    /// HAProxy ends the connection, and the answer to that is appended: to be closed when it is sent.
    Disconnect { code: StatusCode, message: &'a [u8] },
    /// A frame of an unknown type, which is skipped.
    Skipped,
}

/// The agent's side of a connection of HAProxy, without its socket.
#[derive(Debug)]
pub struct Connection {
    reader: FrameReader,
    session: Session,
}

/// Received bytes of an incomplete frame.
#[derive(Debug, Default)]
struct FrameReader {
    partial: Vec<u8>,
    /// `partial` was complete at the last call.
    is_taken: bool,
}

#[derive(Debug)]
struct Session {
    limits: Limits,
    state: State,
    /// Length of a frame, in both directions.
    frame_bytes: u32,
    /// NOTIFY frames without their acknowledgements.
    pending: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    AwaitsHello,
    Open,
    /// The last frame is appended, so nothing more is sent.
    Closed,
    Failed(ConnectionError),
}

/// Memory kept for incomplete frames.
const KEPT_BYTES: usize = 4096;

impl Connection {
    pub fn new(limits: Limits) -> Self {
        let frame_bytes = limits.frame_bytes.clamp(MIN_FRAME_BYTES, MAX_FRAME_BYTES);
        let session = Session { limits, state: State::AwaitsHello, frame_bytes, pending: 0 };
        Self { reader: FrameReader::default(), session }
    }

    /// Consumes bytes up to the next event, and appends replies to `out`. `None`: all bytes are consumed, or the connection
    /// is closed or [full](Self::is_full).
    ///
    /// # Errors
    ///
    /// HAProxy broke the protocol or exceeded a limit. A DISCONNECT is appended to `out`; the connection must be closed when
    /// it is sent. Later calls return the same error.
    pub fn receive<'a, 'i: 'a>(
        &'a mut self,
        input: &mut &'i [u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let Self { reader, session } = self;
        match session.state {
            State::Failed(error) => return Err(error),
            State::Closed => return Ok(None),
            State::Open if session.is_full() => return Ok(None),
            State::AwaitsHello | State::Open => {}
        }
        let event = match reader.next(input, session.frame_bytes) {
            Ok(None) => return Ok(None),
            Ok(Some(bytes)) => session.on_frame(bytes, out),
            Err(error) => Err(error),
        };
        if let Err(error) = event {
            session.state = State::Failed(error);
            frame::push_disconnect(error.code(), &error.to_string(), out);
        }
        event.map(Some)
    }

    /// Answers a NOTIFY. Appends nothing once the connection is closed.
    pub fn acknowledge(&mut self, id: NotifyId, variables: &Variables<'_>, out: &mut Vec<u8>) {
        let session = &mut self.session;
        session.pending = session.pending.saturating_sub(1);
        if session.state == State::Open {
            let ids = (id.stream, id.frame);
            let end_max = out.len() + LENGTH_BYTES + session.frame_bytes as usize;
            frame::push(FrameType::ACK, ids, out, |out| variables.push(end_max, out));
        }
    }

    /// Ends the connection: to be closed when `out` is sent. HAProxy takes this as an error of what is pending.
    pub fn disconnect(&mut self, code: StatusCode, message: &str, out: &mut Vec<u8>) {
        if matches!(self.session.state, State::AwaitsHello | State::Open) {
            self.session.state = State::Closed;
            frame::push_disconnect(code, message, out);
        }
    }

    /// Number of NOTIFY frames without their acknowledgements.
    pub fn pending(&self) -> usize {
        self.session.pending
    }

    /// True if no more is received before an acknowledgement.
    pub fn is_full(&self) -> bool {
        self.session.is_full()
    }

    /// True after the handshake, and before the end.
    pub fn is_open(&self) -> bool {
        self.session.state == State::Open
    }

    /// True if HAProxy has sent a part of a frame.
    pub fn has_partial_frame(&self) -> bool {
        !self.reader.is_taken && !self.reader.partial.is_empty()
    }

    /// Memory of incomplete frames.
    pub fn held_bytes(&self) -> usize {
        self.reader.partial.capacity()
    }
}

impl FrameReader {
    /// Takes a frame without its length, from the input if it is there as a whole.
    fn next<'a, 'i: 'a>(
        &'a mut self,
        input: &mut &'i [u8],
        frame_bytes: u32,
    ) -> Result<Option<&'a [u8]>, ConnectionError> {
        if std::mem::take(&mut self.is_taken) {
            self.partial.clear();
            self.partial.shrink_to(KEPT_BYTES);
        }
        if self.partial.is_empty()
            && let Some((length, rest)) = input.split_first_chunk()
            && let Some((frame, rest)) = rest.split_at_checked(check_length(*length, frame_bytes)?)
        {
            *input = rest;
            return Ok(Some(frame));
        }
        self.fill(LENGTH_BYTES, input);
        let Some(length) = self.partial.first_chunk() else { return Ok(None) };
        let end = LENGTH_BYTES + check_length(*length, frame_bytes)?;
        self.fill(end, input);
        self.is_taken = self.partial.len() == end;
        Ok(self.is_taken.then(|| &self.partial[LENGTH_BYTES..]))
    }

    /// Moves bytes of the input to the incomplete frame, up to its length.
    fn fill(&mut self, length: usize, input: &mut &[u8]) {
        let missing = length.saturating_sub(self.partial.len());
        let (bytes, rest) = input.split_at(missing.min(input.len()));
        self.partial.extend_from_slice(bytes);
        *input = rest;
    }
}

fn check_length(length: [u8; LENGTH_BYTES], frame_bytes: u32) -> Result<usize, ConnectionError> {
    let length = u32::from_be_bytes(length);
    if length > frame_bytes { Err(ConnectionError::TooBig) } else { Ok(length as usize) }
}

impl Session {
    fn is_full(&self) -> bool {
        self.pending >= self.limits.pending
    }

    fn on_frame<'a>(
        &mut self,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<Event<'a>, ConnectionError> {
        let frame = Frame::parse(bytes)?;
        match (frame.kind, self.state) {
            (FrameType::HAPROXY_HELLO, State::AwaitsHello) => self.on_hello(&frame, out),
            (FrameType::HAPROXY_HELLO, _) => Err(ConnectionError::Invalid("second HELLO")),
            (_, State::AwaitsHello) => Err(ConnectionError::Invalid("first frame is not HELLO")),
            (FrameType::NOTIFY, _) => {
                let message = Message::parse(frame.payload, &self.limits)?;
                self.pending += 1;
                let id = NotifyId { stream: frame.stream, frame: frame.frame };
                Ok(Event::Notify { id, message })
            }
            (FrameType::HAPROXY_DISCONNECT, _) => {
                let event = disconnect(&frame)?;
                self.state = State::Closed;
                frame::push_disconnect(StatusCode::NORMAL, "", out);
                Ok(event)
            }
            (FrameType::AGENT_HELLO | FrameType::AGENT_DISCONNECT | FrameType::ACK, _) => {
                Err(ConnectionError::Invalid("frame of an agent"))
            }
            _ => Ok(Event::Skipped),
        }
    }

    fn on_hello(
        &mut self,
        frame: &Frame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Event<'static>, ConnectionError> {
        frame.check_ids()?;
        let (mut versions, mut frame_size, mut capabilities) = (None, None, None);
        let mut is_health_check = false;
        let mut items = frame.payload;
        while !items.is_empty() {
            let (name, value) = (items.string()?, items.value()?);
            match name {
                b"supported-versions" => versions = Some(text(value)?),
                b"max-frame-size" => frame_size = Some(number(value)?),
                b"capabilities" => capabilities = Some(text(value)?),
                b"healthcheck" => is_health_check = value == Value::Bool(true),
                // Such as engine-id, which concerns connections without pipelining.
                _ => {}
            }
        }
        let versions = versions.ok_or(ConnectionError::NoVersion)?;
        let frame_size = frame_size.ok_or(ConnectionError::NoFrameSize)?;
        let capabilities = capabilities.ok_or(ConnectionError::NoCapabilities)?;
        // A version includes the earlier ones of its major version.
        if !list(versions).any(|version| version.starts_with(b"2.")) {
            return Err(ConnectionError::BadVersion);
        }
        if frame_size < u64::from(MIN_FRAME_BYTES) {
            return Err(ConnectionError::BadFrameSize);
        }
        self.frame_bytes = u32::try_from(frame_size).unwrap_or(u32::MAX).min(self.frame_bytes);
        let pipelining: &[u8] = b"pipelining";
        let common = list(capabilities).find(|name| *name == pipelining).unwrap_or_default();
        frame::push(FrameType::AGENT_HELLO, (0, 0), out, |out| {
            frame::push_named(b"version", Value::String(b"2.0"), out);
            frame::push_named(b"max-frame-size", Value::Uint32(self.frame_bytes), out);
            frame::push_named(b"capabilities", Value::String(common), out);
        });
        self.state = if is_health_check { State::Closed } else { State::Open };
        Ok(Event::Hello { is_health_check })
    }
}

fn disconnect<'a>(frame: &Frame<'a>) -> Result<Event<'a>, ConnectionError> {
    frame.check_ids()?;
    let (mut code, mut message) = (StatusCode::NORMAL, &b""[..]);
    let mut items: Reader<'a> = frame.payload;
    while !items.is_empty() {
        match (items.string()?, items.value()?) {
            (b"status-code", value) => code = StatusCode(number(value)?),
            (b"message", value) => message = text(value)?,
            _ => {}
        }
    }
    Ok(Event::Disconnect { code, message })
}

fn text(value: Value<'_>) -> Result<&[u8], ConnectionError> {
    value.bytes().ok_or(ConnectionError::Invalid("item is not a string"))
}

fn number(value: Value<'_>) -> Result<u64, ConnectionError> {
    value.number().ok_or(ConnectionError::Invalid("item is not a number"))
}

/// The items of a list with commas.
fn list(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}
