//! Translation of messages between HTTP/2 and the HTTP/1.1 that the rest of a worker handles. A translated message passes
//! the same checks as one that was received in HTTP/1.1.

use std::io::{self, Write as _};
use std::ops::Range;

use memchr::memchr;
use tollgate_http1::{BodyDecoder, BodyFraming, BodyPartKind, parse_length};
use tollgate_http2::{Connection, Field, Fields};
use tollgate_net::SendBuffer;

use crate::headers::{ACCEPT, KEY, WEBSOCKET, WebSocketKey};

/// Longest coding of a chunk besides its payload.
const CHUNK_CODING_BYTES: usize = 16 + 4;

/// True if a request opens a WebSocket (RFC 8441).
pub(super) fn is_websocket(fields: &Fields) -> bool {
    let protocol = fields.protocol().unwrap_or_default();
    protocol.as_bytes().eq_ignore_ascii_case(WEBSOCKET)
}

/// Writes the head of a request, with the framing of its body. Cookie crumbs are joined (RFC 9113, section 8.2.3).
/// `websocket`: the request opens a WebSocket, for which HTTP/1.1 has an upgrade with a key.
pub(super) fn render_request_head(
    fields: &Fields,
    end_stream: bool,
    websocket: Option<WebSocketKey>,
    out: &mut Vec<u8>,
) {
    out.clear();
    let authority = fields.authority();
    let (method, path) = match (websocket, fields.method()) {
        (Some(_), _) => ("GET", fields.path()),
        // The path of other protocols is of no use, as they are rejected.
        (None, "CONNECT") => ("CONNECT", None),
        (None, method) => (method, fields.path()),
    };
    let target = path.or(authority).unwrap_or_default();
    for part in [method, " ", target, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    if let Some(authority) = authority {
        push_line(out, b"host", authority.as_bytes());
    }
    let mut crumbs = 0;
    for Field { name, value, .. } in fields.headers() {
        match name {
            // Equal to the authority.
            b"host" if authority.is_some() => {}
            b"cookie" => crumbs += 1,
            // The stream has no length, and the key is the gateway's.
            b"content-length" if websocket.is_some() => {}
            _ if websocket.is_some() && name == KEY.as_bytes() => {}
            _ => push_line(out, name, value),
        }
    }
    if crumbs > 0 {
        out.extend_from_slice(b"cookie: ");
        for (at, crumb) in fields.all(b"cookie").enumerate() {
            let separator: &[u8] = if at == 0 { b"" } else { b"; " };
            out.extend_from_slice(separator);
            out.extend_from_slice(crumb);
        }
        out.extend_from_slice(b"\r\n");
    }
    if let Some(key) = websocket {
        push_line(out, b"connection", b"upgrade");
        push_line(out, b"upgrade", WEBSOCKET);
        push_line(out, KEY.as_bytes(), key.as_bytes());
    } else if fields.content_length().is_none() {
        if !end_stream {
            push_line(out, b"transfer-encoding", b"chunked");
        } else if matches!(method, "POST" | "PUT" | "PATCH") {
            // RFC 9110, section 8.6: some servers demand a length with these methods.
            push_line(out, b"content-length", b"0");
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn push_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Writes the head of a response, which may be interim, with the framing of its body.
fn render_response_head(fields: &Fields, framing: Option<BodyFraming>, out: &mut Vec<u8>) {
    write!(out, "HTTP/1.1 {} \r\n", fields.status()).expect("writing to a vector cannot fail");
    fields.headers().for_each(|Field { name, value, .. }| push_line(out, name, value));
    match framing {
        Some(BodyFraming::Chunked) => push_line(out, b"transfer-encoding", b"chunked"),
        Some(BodyFraming::Length(0)) if fields.content_length().is_none() => {
            push_line(out, b"content-length", b"0");
        }
        _ => {}
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes the head of a response that has opened a WebSocket.
fn render_switch(fields: &Fields, key: WebSocketKey, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 101 Switching Protocols\r\n");
    // RFC 9110, section 8.6: to be ignored in this response.
    let is_forwarded = |name: &[u8]| name != b"content-length" && name != ACCEPT.as_bytes();
    let headers = fields.headers().filter(|field| is_forwarded(field.name));
    headers.for_each(|Field { name, value, .. }| push_line(out, name, value));
    push_line(out, b"connection", b"upgrade");
    push_line(out, b"upgrade", WEBSOCKET);
    push_line(out, ACCEPT.as_bytes(), key.accept().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// The received part of a message that is not forwarded yet: at most a stream's window and, of a response, its heads.
#[derive(Debug)]
pub(super) struct Incoming {
    head: SendBuffer,
    payload: SendBuffer,
    is_chunked: bool,
    has_ended: bool,
    /// The last byte is held back until the peer ends the stream, as the message would be complete without that.
    holds_end: bool,
    /// The message ends with its head.
    is_bodyless: bool,
    /// End of a chunked body that has ended.
    tail: Option<Vec<u8>>,
    /// The payload is that of a tunnel, which ends when the stream does.
    is_tunnel: bool,
}

impl Incoming {
    /// The body of a request, whose head is handled elsewhere. `is_chunked`: the head has no length.
    pub(super) fn request_body(is_chunked: bool) -> Self {
        Self {
            head: SendBuffer::default(),
            payload: SendBuffer::default(),
            is_chunked,
            has_ended: false,
            holds_end: false,
            is_bodyless: false,
            tail: None,
            is_tunnel: false,
        }
    }

    /// The sending side of a client that opens a tunnel.
    pub(super) fn tunnel() -> Self {
        Self { is_tunnel: true, ..Self::request_body(false) }
    }

    /// Creates an empty response.
    pub(super) fn response() -> Self {
        Self { holds_end: true, ..Self::request_body(false) }
    }

    /// Takes the head of a response, which may be interim. `websocket`: it responds to the opening of a WebSocket.
    pub(super) fn push_head(
        &mut self,
        fields: &Fields,
        end_stream: bool,
        is_to_head: bool,
        websocket: Option<WebSocketKey>,
    ) {
        let mut head = Vec::new();
        if let (Some(key), 200..=299) = (websocket, fields.status()) {
            render_switch(fields, key, &mut head);
            self.head.push(&head);
            (self.is_tunnel, self.has_ended, self.holds_end) = (true, end_stream, false);
            return;
        }
        let framing = match (fields.status(), fields.content_length()) {
            (..200, _) => None,
            (204 | 304, _) => Some(BodyFraming::Empty),
            _ if is_to_head => Some(BodyFraming::Empty),
            (_, Some(length)) => Some(BodyFraming::Length(length)),
            (_, None) if end_stream => Some(BodyFraming::Length(0)),
            (_, None) => Some(BodyFraming::Chunked),
        };
        render_response_head(fields, framing, &mut head);
        self.head.push(&head);
        self.is_chunked = framing == Some(BodyFraming::Chunked);
        self.is_bodyless = matches!(framing, Some(BodyFraming::Empty | BodyFraming::Length(0)));
        self.has_ended = end_stream;
    }

    /// Size of the heads that are not forwarded yet.
    pub(super) fn head_bytes(&self) -> usize {
        self.head.unsent().len()
    }

    pub(super) fn is_readable(&self) -> bool {
        self.has_head()
            || self.has_payload()
            || self.tail.is_some()
            || (self.is_tunnel && self.has_ended)
    }

    /// True if all bytes of a tunnel that has ended are taken.
    pub(super) fn is_at_tunnel_end(&self) -> bool {
        self.is_tunnel && self.has_ended && self.head.is_empty() && self.payload.is_empty()
    }

    fn has_head(&self) -> bool {
        !self.head.is_empty() && (self.has_ended || !self.is_bodyless || !self.holds_end)
    }

    fn has_payload(&self) -> bool {
        self.payload.unsent().len() > self.held_bytes()
    }

    fn held_bytes(&self) -> usize {
        usize::from(self.holds_end && !self.is_chunked && !self.has_ended)
    }

    pub(super) fn push(&mut self, payload: &[u8]) {
        self.payload.push(payload);
    }

    /// Ends the message. Trailers need the chunked coding, and are dropped without.
    pub(super) fn end<'f>(&mut self, trailers: impl Iterator<Item = Field<'f>>) {
        self.has_ended = true;
        if self.is_chunked {
            let tail = self.tail.insert(b"0\r\n".to_vec());
            trailers.for_each(|Field { name, value, .. }| push_line(tail, name, value));
            tail.extend_from_slice(b"\r\n");
        }
    }

    /// Moves what fits to the start of `buffer`. Returns the number of bytes, and of payload bytes among them.
    pub(super) fn take(&mut self, buffer: &mut [u8]) -> (usize, usize) {
        let mut room = &mut *buffer;
        if self.has_head() {
            let count = self.head.unsent().len().min(room.len());
            room.write_all(&self.head.unsent()[..count]).expect("there is room for the head");
            self.head.advance(count);
        }
        let mut count = 0;
        if self.head.is_empty() {
            count = self.take_payload(&mut room);
            if self.payload.is_empty()
                && let Some(tail) = self.tail.take_if(|tail| tail.len() <= room.len())
            {
                room.write_all(&tail).expect("there is room for the tail");
            }
        }
        let left = room.len();
        (buffer.len() - left, count)
    }

    fn take_payload(&mut self, room: &mut &mut [u8]) -> usize {
        let payload = self.payload.unsent();
        let room_bytes = match self.is_chunked {
            true => room.len().saturating_sub(CHUNK_CODING_BYTES),
            false => room.len(),
        };
        let count = payload.len().saturating_sub(self.held_bytes()).min(room_bytes);
        if count == 0 {
            return 0;
        }
        let payload = &payload[..count];
        let written = match self.is_chunked {
            true => write!(room, "{count:x}\r\n")
                .and_then(|()| room.write_all(payload))
                .and_then(|()| room.write_all(b"\r\n")),
            false => room.write_all(payload),
        };
        written.expect("there is room for the payload and its coding");
        self.payload.advance(count);
        count
    }
}

/// Translates the bytes of a message to send.
#[derive(Debug)]
pub(super) struct MessageWriter {
    kind: Outgoing,
    state: WriteState,
    /// Payload at the start of the next bytes that had no room in the windows.
    pending: usize,
    trailers: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Outgoing {
    Request {
        scheme: &'static [u8],
    },
    /// `is_to_head`: it has no body, whatever its head says.
    Response {
        is_to_head: bool,
    },
}

#[derive(Debug)]
enum WriteState {
    /// Before the final head.
    Head,
    Body(BodyDecoder),
    Ended,
}

/// The place for the frames of a message.
pub(super) struct FrameSink<'a> {
    /// The stream; 0 before a request has opened it.
    pub(super) id: &'a mut u32,
    /// For a stream to open.
    pub(super) token: usize,
    pub(super) framing: &'a mut Connection,
    pub(super) out: &'a mut Vec<u8>,
    pub(super) fields: &'a mut HeadFields,
}

impl MessageWriter {
    /// `is_to_head`: the request is a HEAD.
    pub(super) fn response(is_to_head: bool) -> Self {
        Self::new(Outgoing::Response { is_to_head })
    }

    /// `is_tls`: the backend is reached by TLS.
    pub(super) fn request(is_tls: bool) -> Self {
        Self::new(Outgoing::Request { scheme: if is_tls { b"https" } else { b"http" } })
    }

    fn new(kind: Outgoing) -> Self {
        Self { kind, state: WriteState::Head, pending: 0, trailers: Vec::new() }
    }

    /// True if the whole message is framed.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, WriteState::Ended)
    }

    /// Frames as much as the windows and the limit of streams allow. A head must be passed as a whole. Returns the
    /// number of bytes that are done with; the next call must continue behind them.
    pub(super) fn write(&mut self, to: &mut FrameSink<'_>, bytes: &[u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            match &mut self.state {
                WriteState::Head => match self.write_head(to, rest)? {
                    0 => return Ok(done),
                    head_bytes => done += head_bytes,
                },
                WriteState::Body(decoder) => {
                    if self.pending == 0 {
                        let part = decoder.next_part(rest).map_err(io::Error::other)?;
                        let Some(part) = part else {
                            return Err(io::ErrorKind::InvalidData.into());
                        };
                        match part.kind {
                            BodyPartKind::Payload => self.pending = part.len,
                            BodyPartKind::Trailer => {
                                self.trailers.extend_from_slice(&rest[..part.len]);
                                done += part.len;
                            }
                            BodyPartKind::Coding | BodyPartKind::Skipped => done += part.len,
                        }
                    }
                    let is_last = decoder.is_done();
                    if self.pending > 0 {
                        let payload = &rest[..self.pending];
                        let sent = to.framing.send_data(*to.id, payload, is_last, to.out);
                        let sent = sent.map_err(io::Error::other)?;
                        self.pending -= sent;
                        done += sent;
                        if self.pending > 0 {
                            return Ok(done);
                        }
                    } else if is_last {
                        self.write_end(to)?;
                    }
                    if is_last {
                        self.state = WriteState::Ended;
                    }
                }
                // The body of a local response to a HEAD.
                WriteState::Ended => return Ok(bytes.len()),
            }
        }
        Ok(done)
    }

    /// Returns the length of the head, or 0 if the connection takes no other stream.
    fn write_head(&mut self, to: &mut FrameSink<'_>, bytes: &[u8]) -> io::Result<usize> {
        let head = to.fields.read(bytes).ok_or(io::ErrorKind::InvalidData)?;
        let framing = match self.kind {
            Outgoing::Request { scheme } => {
                let framing = match head.is_upgrade {
                    true => BodyFraming::UntilClose,
                    false => head.framing.unwrap_or(BodyFraming::Empty),
                };
                if !write_request(to, &head, scheme, is_bodyless(framing), bytes) {
                    return Ok(0);
                }
                Some(framing)
            }
            Outgoing::Response { is_to_head } => {
                let status = head.start_line[1].iter();
                let status = status.fold(0, |number, digit| 10 * number + u16::from(digit - b'0'));
                let framing = match status {
                    101 => Some(BodyFraming::UntilClose),
                    ..200 => None,
                    204 | 304 => Some(BodyFraming::Empty),
                    _ if is_to_head => Some(BodyFraming::Empty),
                    _ => Some(head.framing.unwrap_or(BodyFraming::UntilClose)),
                };
                let ends = framing.is_some_and(is_bodyless);
                // RFC 8441, section 5: a WebSocket opens with 200, and without a proof.
                let is_switch = status == 101;
                let status = if is_switch { 200 } else { status };
                let fields = to.fields.iter(bytes);
                let fields = fields.filter(|field| !(is_switch && field.name == ACCEPT.as_bytes()));
                let sent = to.framing.send_response(*to.id, status, fields, ends, to.out);
                sent.map_err(io::Error::other)?;
                framing
            }
        };
        self.state = match framing {
            None => WriteState::Head,
            Some(framing) if is_bodyless(framing) => WriteState::Ended,
            Some(framing) => WriteState::Body(BodyDecoder::new(framing)),
        };
        Ok(head.len)
    }

    /// Writes the end of a chunked body.
    fn write_end(&mut self, to: &mut FrameSink<'_>) -> io::Result<()> {
        if self.trailers.is_empty() {
            let sent = to.framing.send_data(*to.id, b"", true, to.out);
            return sent.map(|_| ()).map_err(io::Error::other);
        }
        // Without a start line, all lines are fields.
        to.fields.clear();
        to.fields.read_lines(&self.trailers, 0);
        let fields = to.fields.iter(&self.trailers);
        to.framing.send_trailers(*to.id, fields, to.out).map_err(io::Error::other)
    }

    /// Writes the end of a response whose body has neither length nor coding.
    pub(super) fn finish(&mut self, to: &mut FrameSink<'_>) {
        if matches!(&self.state, WriteState::Body(decoder) if decoder.ends_at_close())
            // Otherwise the stream is closed, and needs no end.
            && to.framing.send_data(*to.id, b"", true, to.out).is_ok()
        {
            self.state = WriteState::Ended;
        }
    }
}

fn is_bodyless(framing: BodyFraming) -> bool {
    matches!(framing, BodyFraming::Empty | BodyFraming::Length(0))
}

/// Opens a stream with the head of a request. Returns false if the connection takes no other stream.
fn write_request(
    to: &mut FrameSink<'_>,
    head: &Head<'_>,
    scheme: &[u8],
    end_stream: bool,
    bytes: &[u8],
) -> bool {
    let FrameSink { framing, out, fields, .. } = to;
    let [method, path, _] = head.start_line;
    let method = if head.is_upgrade { b"CONNECT" } else { method };
    let pseudo = [(&b":method"[..], method), (b":scheme", scheme), (b":path", path)];
    let protocol = head.is_upgrade.then_some((&b":protocol"[..], WEBSOCKET));
    let pseudo = pseudo.into_iter().chain(protocol);
    let pseudo = pseudo.map(|(name, value)| Field::new(name, value));
    // The head has one host, which the gateway has checked or set.
    let host = fields.iter(bytes).find(|field| field.name == b"host" && !field.value.is_empty());
    let authority = host.map(|host| Field::new(b":authority", host.value));
    let is_dropped = |name: &[u8]| name == b"host" || (head.is_upgrade && name == KEY.as_bytes());
    let headers = fields.iter(bytes).filter(|field| !is_dropped(field.name));
    let fields = pseudo.chain(authority).chain(headers);
    match framing.send_request(fields, end_stream, to.token, out) {
        Some(id) => {
            *to.id = id;
            true
        }
        None => false,
    }
}

/// The fields of a head or trailer section. Its memory is reused.
#[derive(Debug, Default)]
pub(super) struct HeadFields {
    /// In lower case, concatenated.
    names: Vec<u8>,
    /// Places of the names in `names`, and of the values in the section.
    places: Vec<(Range<usize>, Range<usize>)>,
}

/// A head that the gateway has rendered.
struct Head<'a> {
    /// Method, target and version, or version, status and phrase.
    start_line: [&'a [u8]; 3],
    /// As announced by a length or a coding.
    framing: Option<BodyFraming>,
    /// It opens a WebSocket or, as a response, has opened it.
    is_upgrade: bool,
    len: usize,
}

impl HeadFields {
    fn clear(&mut self) {
        self.names.clear();
        self.places.clear();
    }

    fn iter<'a>(&'a self, section: &'a [u8]) -> impl Iterator<Item = Field<'a>> {
        let field = |(name, value): &(Range<usize>, Range<usize>)| {
            Field::new(&self.names[name.clone()], &section[value.clone()])
        };
        self.places.iter().map(field)
    }

    /// Reads the head at the start of `bytes`, which the gateway has rendered. `None`: it is incomplete.
    fn read<'a>(&mut self, bytes: &'a [u8]) -> Option<Head<'a>> {
        self.clear();
        let start = memchr(b'\n', bytes)? + 1;
        let mut parts = bytes[..start].trim_ascii_end().splitn(3, |&byte| byte == b' ');
        let start_line = [parts.next()?, parts.next()?, parts.next().unwrap_or_default()];
        let len = self.read_lines(bytes, start)?;
        let (mut framing, mut is_upgrade) = (None, false);
        // The framing is that of the stream, and the connection has no options.
        let names = &self.names;
        self.places.retain(|(name, value)| match &names[name.clone()] {
            b"transfer-encoding" => {
                framing = Some(BodyFraming::Chunked);
                false
            }
            b"content-length" => {
                if let Some(length) = parse_length(&bytes[value.clone()]) {
                    framing = Some(BodyFraming::Length(length));
                }
                true
            }
            b"upgrade" => {
                is_upgrade = true;
                false
            }
            b"connection" | b"keep-alive" | b"proxy-connection" => false,
            _ => true,
        });
        Some(Head { start_line, framing, is_upgrade, len })
    }

    /// Adds the fields from `start` to an empty line or the end. Returns the position behind the empty line.
    fn read_lines(&mut self, section: &[u8], mut start: usize) -> Option<usize> {
        while let Some(length) = memchr(b'\n', &section[start..]) {
            let end = start + length;
            let line = section[start..end].trim_ascii_end();
            if line.is_empty() {
                return Some(end + 1);
            }
            if let Some(colon) = memchr(b':', line) {
                let at = self.names.len();
                self.names.extend(line[..colon].iter().map(u8::to_ascii_lowercase));
                let value = line[colon + 1..].trim_ascii_start();
                let value_end = start + line.len();
                self.places.push((at..self.names.len(), value_end - value.len()..value_end));
            }
            start = end + 1;
        }
        None
    }
}
