//! Tests by literal bytes and values derived by hand, and against the crate `h2`.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

// Frames, stream states and flow control.
mod connection;
// Rules for fields.
mod fields;
// Limits against floods.
mod floods;
// HPACK: examples of RFC 7541, properties.
mod hpack;
// Requests and responses with h2 as the peer, in both roles.
mod peers;

use std::time::Instant;

use tollgate_http2::{
    Connection, ConnectionError, Event, Field, Fields, FrameHeader, FrameType, Limits, PREFACE,
    Role, flags,
};

fn frame(kind: FrameType, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader { length: payload.len() as u32, kind, flags, stream };
    [&header.to_bytes()[..], payload].concat()
}

/// A frame of a list of them.
type Frame = (FrameType, u8, u32, Vec<u8>);

fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk() {
        let header = FrameHeader::parse(header);
        let (payload, rest) = rest.split_at(header.length as usize);
        frames.push((header.kind, header.flags, header.stream, payload.to_vec()));
        bytes = rest;
    }
    assert!(bytes.is_empty());
    frames
}

fn reset(stream: u32, code: u32) -> Frame {
    (FrameType::RST_STREAM, 0, stream, code.to_be_bytes().to_vec())
}

fn window_update(stream: u32, increment: u32) -> Frame {
    (FrameType::WINDOW_UPDATE, 0, stream, increment.to_be_bytes().to_vec())
}

/// GET of / from `a`, in three static indices and a literal.
const GET: &[u8] = b"\x82\x86\x84\x01\x01a";
/// As GET, with POST.
const POST: &[u8] = b"\x83\x86\x84\x01\x01a";

fn headers(stream: u32, end_stream: bool, block: &[u8]) -> Vec<u8> {
    let flags = flags::END_HEADERS | if end_stream { flags::END_STREAM } else { 0 };
    frame(FrameType::HEADERS, flags, stream, block)
}

fn data(stream: u32, end_stream: bool, payload: &[u8]) -> Vec<u8> {
    frame(FrameType::DATA, u8::from(end_stream), stream, payload)
}

/// One side of a connection, and what it sends.
struct Side {
    connection: Connection,
    fields: Fields,
    out: Vec<u8>,
    now: Instant,
}

impl Side {
    /// A connection after the exchange of preface and settings.
    fn new(role: Role, limits: Limits) -> Self {
        let mut side = Self::fresh(role, limits);
        if role == Role::Server {
            assert_eq!(side.receive(PREFACE), Ok(vec![]));
        }
        let settings = frame(FrameType::SETTINGS, 0, 0, &[]);
        assert_eq!(side.receive(&settings), Ok(vec!["Settings".to_owned()]));
        assert_eq!(side.receive(&frame(FrameType::SETTINGS, flags::ACK, 0, &[])), Ok(vec![]));
        assert_eq!(side.sent(), [(FrameType::SETTINGS, flags::ACK, 0, vec![])]);
        side
    }

    fn fresh(role: Role, limits: Limits) -> Self {
        let now = Instant::now();
        let connection = Connection::new(role, limits, now, &mut Vec::new());
        Self { connection, fields: Fields::default(), out: Vec::new(), now }
    }

    fn server() -> Self {
        Self::new(Role::Server, Limits::default())
    }

    fn client() -> Self {
        Self::new(Role::Client, Limits::default())
    }

    /// Returns the events as text, heads and trailers with their fields.
    fn receive(&mut self, mut input: &[u8]) -> Result<Vec<String>, ConnectionError> {
        let mut events = Vec::new();
        let Self { connection, fields, out, now } = self;
        while let Some(event) = connection.receive(&mut input, fields, out, *now)? {
            let mut text = format!("{event:?}");
            let has_fields = matches!(
                event,
                Event::Request { .. }
                    | Event::Response { .. }
                    | Event::Trailers { .. }
                    | Event::HeadTooLarge { .. }
            );
            if has_fields {
                for Field { name, value, .. } in fields.iter() {
                    text += &format!(" {}={}", name.escape_ascii(), value.escape_ascii());
                }
            }
            events.push(text);
        }
        assert!(input.is_empty());
        Ok(events)
    }

    /// Returns the frames sent since the last call.
    fn sent(&mut self) -> Vec<Frame> {
        frames(&std::mem::take(&mut self.out))
    }

    /// Client: sends a request.
    fn request(&mut self, method: &str, end_stream: bool) -> u32 {
        let fields = [
            Field::new(b":method", method.as_bytes()),
            Field::new(b":scheme", b"http"),
            Field::new(b":path", b"/"),
            Field::new(b":authority", b"a"),
        ];
        self.connection.send_request(fields, end_stream, 7, &mut self.out).unwrap()
    }
}
