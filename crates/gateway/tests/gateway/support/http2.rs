//! An HTTP/2 client or server that sends literal frames. Its field blocks are literals without indexing, so that a test can send
//! anything; it shares no code with the gateway but the decoder of field blocks.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use tollgate_gateway::config::Address;
use tollgate_http2::{Decoder, FieldLimits, Fields};

use super::peer::connect;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const PROTOCOL_ERROR: u32 = 1;
pub(crate) const INTERNAL_ERROR: u32 = 2;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Parameter of SETTINGS.
pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;

/// The fields of a request that the gateway forwards as [`GET`](super::GET), without a header.
pub(crate) const GET_FIELDS: &[(&str, &str)] =
    &[(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", "/a")];

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// Frames of the gateway on one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    /// Statuses of interim responses.
    pub(crate) interim: Vec<String>,
    pub(crate) status: String,
    /// A request's fields include the pseudo-fields.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    pub(crate) has_ended: bool,
    pub(crate) reset: Option<u32>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The status and the body, as text.
    pub(crate) fn text(&self) -> (&str, &str) {
        (&self.status, std::str::from_utf8(&self.body).unwrap())
    }
}

/// A client or server over a connection, which may be one of TLS.
pub(crate) struct Http2Peer<Stream = TcpStream> {
    stream: Stream,
    decoder: Decoder,
    received: HashMap<u32, Received>,
    /// Last stream and code of each GOAWAY.
    pub(crate) go_aways: Vec<(u32, u32)>,
}

impl Http2Peer {
    /// Opens a connection, with prior knowledge.
    pub(crate) fn connect(address: &Address) -> Self {
        Self::over(connect(address).unwrap(), &[])
    }

    pub(crate) fn with_settings(address: &Address, settings: &[(u16, u32)]) -> Self {
        Self::over(connect(address).unwrap(), settings)
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.stream
    }
}

impl<Stream: Read + Write> Http2Peer<Stream> {
    pub(crate) fn over(stream: Stream, settings: &[(u16, u32)]) -> Self {
        let mut peer = Self::new(stream);
        peer.stream.write_all(PREFACE).unwrap();
        peer.settings(settings);
        peer
    }

    /// A backend, which has read the preface but sent no settings.
    #[track_caller]
    pub(crate) fn serve(stream: Stream) -> Self {
        let mut peer = Self::new(stream);
        let mut preface = vec![0; PREFACE.len()];
        peer.stream.read_exact(&mut preface).unwrap();
        assert_eq!(preface.escape_ascii().to_string(), PREFACE.escape_ascii().to_string());
        peer
    }

    fn new(stream: Stream) -> Self {
        let (decoder, received) = (Decoder::default(), HashMap::new());
        Self { stream, decoder, received, go_aways: Vec::new() }
    }

    pub(crate) fn settings(&mut self, settings: &[(u16, u32)]) {
        let mut payload = Vec::new();
        for (parameter, value) in settings {
            payload.extend_from_slice(&parameter.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        self.frame(SETTINGS, 0, 0, &payload);
    }

    /// Waits for the head of the next request on this stream.
    #[track_caller]
    pub(crate) fn head(&mut self, stream: u32) -> Vec<(String, String)> {
        self.wait(stream, |received| !received.headers.is_empty()).headers
    }

    /// Sends a response, or its head alone if `body` is `None`.
    #[track_caller]
    pub(crate) fn respond(&mut self, stream: u32, fields: &[(&str, &str)], body: Option<&str>) {
        self.request(stream, false, fields);
        if let Some(body) = body {
            self.data(stream, true, body.as_bytes());
        }
    }

    #[track_caller]
    pub(crate) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.try_frame(kind, flags, stream, payload).unwrap();
    }

    /// Sends to a gateway that may have closed the connection.
    pub(crate) fn try_frame(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> std::io::Result<()> {
        self.stream.write_all(&frame(kind, flags, stream, payload))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn request(&mut self, stream: u32, end_stream: bool, fields: &[(&str, &str)]) {
        let flags = END_HEADERS | if end_stream { END_STREAM } else { 0 };
        self.frame(HEADERS, flags, stream, &block(fields));
    }

    pub(crate) fn data(&mut self, stream: u32, end_stream: bool, bytes: &[u8]) {
        self.frame(DATA, u8::from(end_stream), stream, bytes);
    }

    /// Sends DATA, as much as a window that begins at 64 KiB allows, until the gateway gives so much credit at once.
    #[track_caller]
    pub(crate) fn send_until_credit(&mut self, stream: u32, bytes: u32) {
        let (mut window, mut sent) = (64 << 10, 0);
        loop {
            while window > 0 {
                let count = window.min(16 << 10);
                self.data(stream, false, &vec![b'x'; count as usize]);
                (window, sent) = (window - count, sent + count);
            }
            assert!(sent < 40_000_000, "the window does not grow");
            let frame = self.turn().unwrap();
            if frame.kind == WINDOW_UPDATE && frame.stream == stream {
                let credit = u32::from_be_bytes(frame.payload.try_into().unwrap());
                if credit >= bytes {
                    return;
                }
                window += credit;
            }
        }
    }

    pub(crate) fn reset(&mut self, stream: u32, code: u32) {
        self.frame(RST_STREAM, 0, stream, &code.to_be_bytes());
    }

    pub(crate) fn window_update(&mut self, stream: u32, bytes: u32) {
        self.frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
    }

    /// Reads one frame; `None` at the end of the connection.
    pub(crate) fn read_frame(&mut self) -> Option<Frame> {
        let mut header = [0; 9];
        match self.stream.read_exact(&mut header) {
            Ok(()) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                ) =>
            {
                return None;
            }
            Err(error) => panic!("{error}"),
        }
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).unwrap();
        let stream = u32::from_be_bytes(header[5..].try_into().unwrap());
        Some(Frame { kind: header[3], flags: header[4], stream, payload })
    }

    /// Reads a frame and applies it. Acknowledges settings and PING, and gives no credit.
    #[track_caller]
    pub(crate) fn turn(&mut self) -> Option<Frame> {
        let frame = self.read_frame()?;
        let number = |at: usize| u32::from_be_bytes(frame.payload[at..at + 4].try_into().unwrap());
        let received = self.received.entry(frame.stream).or_default();
        match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => {
                self.try_frame(SETTINGS, ACK, 0, b"").ok();
            }
            PING if frame.flags & ACK == 0 => {
                self.try_frame(PING, ACK, 0, &frame.payload).ok();
            }
            GOAWAY => self.go_aways.push((number(0), number(4))),
            RST_STREAM => received.reset = Some(number(0)),
            DATA => received.body.extend_from_slice(&frame.payload),
            HEADERS => {
                assert_eq!(frame.flags & END_HEADERS, END_HEADERS);
                let mut fields = Fields::default();
                let limits = FieldLimits { bytes: 1 << 20, fields: 1000 };
                self.decoder.decode(&frame.payload, limits, &mut fields).unwrap();
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                let mut list: Vec<(String, String)> =
                    fields.iter().map(|field| (text(field.name), text(field.value))).collect();
                let received = self.received.get_mut(&frame.stream).unwrap();
                match list.iter().position(|(name, _)| name == ":status") {
                    None if list.iter().any(|(name, _)| name == ":method") => {
                        received.headers = list;
                    }
                    None => received.trailers = list,
                    Some(at) => match list.remove(at).1 {
                        status if status.starts_with('1') => received.interim.push(status),
                        status => (received.status, received.headers) = (status, list),
                    },
                }
            }
            _ => {}
        }
        if matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0 {
            self.received.get_mut(&frame.stream).unwrap().has_ended = true;
        }
        Some(frame)
    }

    /// Waits until the gateway has ended or reset a stream.
    #[track_caller]
    pub(crate) fn response(&mut self, stream: u32) -> Received {
        self.wait(stream, |received| received.has_ended || received.reset.is_some())
    }

    /// Waits until what was received on a stream meets a condition.
    #[track_caller]
    pub(crate) fn wait(&mut self, stream: u32, until: impl Fn(&Received) -> bool) -> Received {
        loop {
            if let Some(received) = self.received.get(&stream).filter(|received| until(received)) {
                return received.clone();
            }
            let so_far = self.received.get(&stream).cloned();
            assert!(self.turn().is_some(), "the connection ended: {so_far:?}, {:?}", self.go_aways);
        }
    }

    /// True if a frame has arrived on this stream.
    pub(crate) fn has_received(&self, stream: u32) -> bool {
        self.received.contains_key(&stream)
    }

    /// Waits for the acknowledgement of a PING, so that the gateway has read all frames before it.
    #[track_caller]
    pub(crate) fn round_trip(&mut self) {
        self.frame(PING, 0, 0, b"roundtrp");
        while !matches!(self.turn(), Some(Frame { kind: PING, flags: ACK, .. })) {
            assert!(self.go_aways.is_empty(), "{:?}", self.go_aways);
        }
    }

    /// Reads to the end of the connection. Returns the code of the last GOAWAY.
    #[track_caller]
    pub(crate) fn expect_end(&mut self) -> u32 {
        while self.turn().is_some() {}
        self.go_aways.last().expect("a GOAWAY before the end").1
    }
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A field block of literals (RFC 7541, section 6.2.2).
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            push_length(&mut block, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

fn push_length(block: &mut Vec<u8>, length: usize) {
    if length < 127 {
        return block.push(length as u8);
    }
    block.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        block.push(rest as u8 | 128);
        rest >>= 7;
    }
    block.push(rest as u8);
}
