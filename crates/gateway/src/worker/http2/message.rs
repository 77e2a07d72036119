//! Messages between HTTP/2 and the rest of a worker: heads as checked lists of fields, bodies as payload, and their ends.

use std::io;

use tollgate_http1::{BodyFraming, FieldList, ListedField};
use tollgate_http2::{Connection, Field, Fields};
use tollgate_net::SendBuffer;

use crate::headers::{ACCEPT, KEY, WEBSOCKET, WebSocketKey};

/// The field with its mark (RFC 7541, section 6.2.3), which is forwarded.
fn listed(Field { name, value, is_sensitive }: Field<'_>) -> ListedField<'_> {
    ListedField { name, value, is_sensitive }
}

/// The inverse of [`listed`].
fn field(ListedField { name, value, is_sensitive }: ListedField<'_>) -> Field<'_> {
    Field { name, value, is_sensitive }
}

/// True if a request opens a WebSocket (RFC 8441).
pub(super) fn is_websocket(fields: &Fields) -> bool {
    let protocol = fields.protocol().unwrap_or_default();
    protocol.as_bytes().eq_ignore_ascii_case(WEBSOCKET)
}

/// Writes the list of a request's fields, with those that HTTP/1.1 has: the framing of the body, and one cookie in place of
/// its crumbs (RFC 9113, section 8.2.3). `websocket`: the request opens a WebSocket, for which HTTP/1.1 has an upgrade with a
/// key.
pub(super) fn list_request(
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
    FieldList::push(out, b":method", method.as_bytes());
    let value = path.or(authority).unwrap_or_default().as_bytes();
    let is_sensitive = fields.iter().any(|field| field.name == b":path" && field.is_sensitive);
    FieldList::push_field(out, ListedField { name: b":path", value, is_sensitive });
    if let Some(authority) = authority {
        FieldList::push(out, b"host", authority.as_bytes());
    }
    let (mut crumbs, mut is_cookie_sensitive) = (0, false);
    for field in fields.headers() {
        match field.name {
            // Equal to the authority.
            b"host" if authority.is_some() => {}
            b"cookie" => {
                crumbs += 1;
                is_cookie_sensitive |= field.is_sensitive;
            }
            // The stream has no length, and the key is the gateway's.
            b"content-length" if websocket.is_some() => {}
            name if websocket.is_some() && name == KEY.as_bytes() => {}
            _ => {
                FieldList::push_field(out, listed(field));
            }
        }
    }
    if crumbs > 0 {
        FieldList::push_with(out, b"cookie", is_cookie_sensitive, |out| {
            for (at, crumb) in fields.all(b"cookie").enumerate() {
                let separator: &[u8] = if at == 0 { b"" } else { b"; " };
                out.extend_from_slice(separator);
                out.extend_from_slice(crumb);
            }
        });
    }
    if let Some(key) = websocket {
        FieldList::push(out, b"connection", b"upgrade");
        FieldList::push(out, b"upgrade", WEBSOCKET);
        FieldList::push(out, KEY.as_bytes(), key.as_bytes());
    } else if fields.content_length().is_none() {
        if !end_stream {
            FieldList::push(out, b"transfer-encoding", b"chunked");
        } else if matches!(method, "POST" | "PUT" | "PATCH") {
            // RFC 9110, section 8.6: some servers demand a length with these methods.
            FieldList::push(out, b"content-length", b"0");
        }
    }
    FieldList::end(out);
}

/// Writes the list of the fields of a response, which may be interim, with the framing of its body.
fn list_response(fields: &Fields, framing: Option<BodyFraming>, out: &mut Vec<u8>) {
    let mut digits = itoa::Buffer::new();
    FieldList::push(out, b":status", digits.format(fields.status()).as_bytes());
    for field in fields.headers() {
        FieldList::push_field(out, listed(field));
    }
    match framing {
        Some(BodyFraming::Chunked) => {
            FieldList::push(out, b"transfer-encoding", b"chunked");
        }
        Some(BodyFraming::Length(0)) if fields.content_length().is_none() => {
            FieldList::push(out, b"content-length", b"0");
        }
        _ => {}
    }
    FieldList::end(out);
}

/// Writes the list of the fields of a response that has opened a WebSocket, as HTTP/1.1 has them.
fn list_switch(fields: &Fields, key: WebSocketKey, out: &mut Vec<u8>) {
    FieldList::push(out, b":status", b"101");
    // RFC 9110, section 8.6: to be ignored in this response.
    let is_forwarded = |name: &[u8]| name != b"content-length" && name != ACCEPT.as_bytes();
    for field in fields.headers().filter(|field| is_forwarded(field.name)) {
        FieldList::push_field(out, listed(field));
    }
    FieldList::push(out, b"connection", b"upgrade");
    FieldList::push(out, b"upgrade", WEBSOCKET);
    FieldList::push(out, ACCEPT.as_bytes(), key.accept().as_bytes());
    FieldList::end(out);
}

/// The received part of a message that is not forwarded yet: at most a stream's window and, of a response, its heads.
#[derive(Debug)]
pub(super) struct Incoming {
    /// Lists of fields.
    heads: SendBuffer,
    payload: SendBuffer,
    kind: IncomingKind,
    /// Bytes of the payload that are not received yet, if it ends by its length. The last byte is held back until the peer ends
    /// the stream, as the message would be complete without that, and may have trailers.
    remaining: u64,
    has_ended: bool,
    /// The head is held back too, if no body follows.
    holds_end: bool,
    /// The message ends with its head.
    is_bodyless: bool,
    /// The trailers of a body that has ended, until its receiver takes the end. `None` if it ends by its length, without
    /// trailers.
    end: Option<Vec<u8>>,
}

/// End of a message's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IncomingKind {
    /// By its length, or there is none.
    Length,
    /// With the stream.
    Stream,
    /// With the stream, which is a tunnel.
    Tunnel,
}

impl Incoming {
    /// The body of a request, whose head is handled elsewhere.
    pub(super) fn request_body(length: Option<u64>) -> Self {
        match length {
            Some(remaining) => Self { remaining, ..Self::new(IncomingKind::Length) },
            None => Self::new(IncomingKind::Stream),
        }
    }

    /// The sending side of a client that opens a tunnel.
    pub(super) fn tunnel() -> Self {
        Self::new(IncomingKind::Tunnel)
    }

    /// Creates an empty response.
    pub(super) fn response() -> Self {
        Self { holds_end: true, ..Self::new(IncomingKind::Length) }
    }

    fn new(kind: IncomingKind) -> Self {
        Self {
            heads: SendBuffer::default(),
            payload: SendBuffer::default(),
            kind,
            remaining: 0,
            has_ended: false,
            holds_end: false,
            is_bodyless: false,
            end: None,
        }
    }

    /// Takes the head of a response, which may be interim. `websocket`: it responds to the opening of a WebSocket.
    pub(super) fn push_head(
        &mut self,
        fields: &Fields,
        end_stream: bool,
        is_to_head: bool,
        websocket: Option<WebSocketKey>,
    ) {
        self.has_ended = end_stream;
        if let (Some(key), 200..=299) = (websocket, fields.status()) {
            list_switch(fields, key, self.heads.tail());
            (self.kind, self.holds_end) = (IncomingKind::Tunnel, false);
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
        list_response(fields, framing, self.heads.tail());
        match framing {
            Some(BodyFraming::Chunked) => self.kind = IncomingKind::Stream,
            Some(BodyFraming::Length(length)) => self.remaining = length,
            _ => {}
        }
        self.is_bodyless = matches!(framing, Some(BodyFraming::Empty | BodyFraming::Length(0)));
    }

    /// Size of the heads that are not forwarded yet.
    pub(super) fn head_bytes(&self) -> usize {
        self.heads.unsent().len()
    }

    pub(super) fn is_readable(&self) -> bool {
        self.has_head()
            || self.has_payload()
            || self.end.is_some()
            || (self.kind == IncomingKind::Tunnel && self.has_ended)
    }

    /// True if all bytes of a tunnel that has ended are taken.
    pub(super) fn is_at_tunnel_end(&self) -> bool {
        self.kind == IncomingKind::Tunnel && self.has_ended && self.is_empty()
    }

    /// True if the next bytes to take, which may be none, end the body.
    pub(super) fn is_at_end(&self) -> bool {
        self.end.is_some() && self.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.heads.is_empty() && self.payload.is_empty()
    }

    fn has_head(&self) -> bool {
        !self.heads.is_empty() && (self.has_ended || !self.is_bodyless || !self.holds_end)
    }

    /// Memory of received bytes.
    pub(super) fn held_memory(&self) -> usize {
        self.heads.capacity() + self.payload.capacity()
    }

    fn has_payload(&self) -> bool {
        self.payload.unsent().len() > self.held_bytes()
    }

    fn held_bytes(&self) -> usize {
        let has_last = self.kind == IncomingKind::Length && self.remaining == 0;
        usize::from(has_last && !self.has_ended)
    }

    pub(super) fn push(&mut self, payload: &[u8]) {
        self.payload.push(payload);
        self.remaining = self.remaining.saturating_sub(payload.len() as u64);
    }

    /// Ends the message. Trailers without a body to end are dropped.
    pub(super) fn end<'f>(&mut self, trailers: impl Iterator<Item = Field<'f>>) {
        self.has_ended = true;
        let mut list = Vec::new();
        for field in trailers {
            FieldList::push_field(&mut list, listed(field));
        }
        let ends_body = match self.kind {
            IncomingKind::Stream => true,
            IncomingKind::Length => !list.is_empty() && !self.payload.is_empty(),
            IncomingKind::Tunnel => false,
        };
        if ends_body {
            self.end = Some(list);
        }
    }

    /// Moves what fits to the start of `buffer`: heads, and payload behind the last one. Returns the number of bytes, and of
    /// payload bytes among them.
    pub(super) fn take(&mut self, buffer: &mut [u8]) -> (usize, usize) {
        let mut head_bytes = 0;
        if self.has_head() {
            head_bytes = move_bytes(&mut self.heads, usize::MAX, buffer);
        }
        let mut payload_bytes = 0;
        if self.heads.is_empty() {
            let count = self.payload.unsent().len().saturating_sub(self.held_bytes());
            payload_bytes = move_bytes(&mut self.payload, count, &mut buffer[head_bytes..]);
        }
        (head_bytes + payload_bytes, payload_bytes)
    }

    /// Takes the end of a body without length, with its trailers, once all of its payload is taken.
    pub(super) fn take_end(&mut self) -> Option<Vec<u8>> {
        if self.is_empty() { self.end.take() } else { None }
    }
}

/// Moves at most `max` bytes to `to`. Returns their number.
fn move_bytes(from: &mut SendBuffer, max: usize, to: &mut [u8]) -> usize {
    let count = from.unsent().len().min(max).min(to.len());
    to[..count].copy_from_slice(&from.unsent()[..count]);
    from.advance(count);
    // A sender that is faster than the receiver keeps it from becoming empty. The rest that moves is shorter than what goes.
    if from.retained() > from.unsent().len() {
        from.discard_sent();
    }
    count
}

/// Continuation of a message behind the bytes that are sent.
#[derive(Clone, Copy, Debug)]
pub(in crate::worker) enum Following<'a> {
    Unknown,
    /// More of the message is here.
    More,
    /// None: the message ends with these trailers.
    End(FieldList<'a>),
}

/// Frames a message to send: a head or several, and payload.
#[derive(Debug)]
pub(super) struct MessageWriter {
    kind: Outgoing,
    state: WriteState,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteState {
    /// Before the final head.
    Head,
    Body,
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
}

impl MessageWriter {
    /// `is_to_head`: the request is a HEAD.
    pub(super) fn response(is_to_head: bool) -> Self {
        Self { kind: Outgoing::Response { is_to_head }, state: WriteState::Head }
    }

    /// `is_tls`: the backend is reached by TLS.
    pub(super) fn request(is_tls: bool) -> Self {
        let scheme = if is_tls { b"https" as &[u8] } else { b"http" };
        Self { kind: Outgoing::Request { scheme }, state: WriteState::Head }
    }

    /// True if the whole message is framed.
    pub(super) fn has_ended(&self) -> bool {
        self.state == WriteState::Ended
    }

    /// Frames as much as the windows and the limit of streams allow. A head must be passed as a whole. Returns the number of
    /// bytes that are done with: if these are all, and nothing follows, the message has ended.
    pub(super) fn write(
        &mut self,
        to: &mut FrameSink<'_>,
        bytes: &[u8],
        following: Following<'_>,
    ) -> io::Result<usize> {
        let mut done = 0;
        while self.state == WriteState::Head && done < bytes.len() {
            match self.write_head(to, &bytes[done..], following)? {
                0 => return Ok(done),
                head_bytes => done += head_bytes,
            }
        }
        match self.state {
            WriteState::Head => return Ok(done),
            // The body of a local response to a HEAD.
            WriteState::Ended => return Ok(bytes.len()),
            WriteState::Body => {}
        }
        let payload = &bytes[done..];
        let trailers = match following {
            Following::End(trailers) => Some(trailers),
            Following::Unknown | Following::More => None,
        };
        let ends = trailers.is_some_and(FieldList::is_empty);
        if !payload.is_empty() || ends {
            let sent = to.framing.send_data(*to.id, payload, ends, to.out);
            let sent = sent.map_err(io::Error::other)?;
            done += sent;
            if sent < payload.len() {
                return Ok(done);
            }
        }
        if let Some(trailers) = trailers {
            if !ends {
                let fields = trailers.iter().map(field);
                to.framing.send_trailers(*to.id, fields, to.out).map_err(io::Error::other)?;
            }
            self.state = WriteState::Ended;
        }
        Ok(done)
    }

    /// Returns the length of the head, or 0 if the connection takes no other stream.
    fn write_head(
        &mut self,
        to: &mut FrameSink<'_>,
        bytes: &[u8],
        following: Following<'_>,
    ) -> io::Result<usize> {
        let list = FieldList::new(bytes);
        let len = list.len().ok_or(io::ErrorKind::InvalidData)?;
        let is_all = len == bytes.len()
            && matches!(following, Following::End(trailers) if trailers.is_empty());
        let (is_final, ends) = match self.kind {
            Outgoing::Request { scheme } => {
                if !write_request(to, list, scheme, is_all) {
                    return Ok(0);
                }
                (true, is_all)
            }
            Outgoing::Response { is_to_head } => write_response(to, list, is_to_head, is_all)?,
        };
        self.state = match (is_final, ends) {
            (false, _) => WriteState::Head,
            (true, false) => WriteState::Body,
            (true, true) => WriteState::Ended,
        };
        Ok(len)
    }

    /// Writes the end of a message whose bytes are all framed.
    pub(super) fn finish(&mut self, to: &mut FrameSink<'_>, trailers: FieldList<'_>) {
        if self.state == WriteState::Body {
            // Without success, the stream is closed, and needs no end.
            self.write(to, b"", Following::End(trailers)).ok();
        }
    }
}

/// Opens a stream with the head of a request. Returns false if the connection takes no other stream.
fn write_request(
    to: &mut FrameSink<'_>,
    mut list: FieldList<'_>,
    scheme: &[u8],
    end_stream: bool,
) -> bool {
    let method = list.next_field().map(field);
    let is_pseudo = |field: &Field<'_>| field.name.starts_with(b":");
    let others = list.iter().map(field).take_while(is_pseudo);
    let pseudo = method.into_iter().chain([Field::new(b":scheme", scheme)]).chain(others);
    // The head has one host, which the gateway has checked or set.
    let is_host = |field: &Field<'_>| field.name == b"host";
    let host = list.iter().map(field).find(|field| is_host(field) && !field.value.is_empty());
    let authority = host.map(|host| Field::new(b":authority", host.value));
    let headers = list.iter().map(field).filter(|field| !is_pseudo(field) && !is_host(field));
    let fields = pseudo.chain(authority).chain(headers);
    match to.framing.send_request(fields, end_stream, to.token, to.out) {
        Some(id) => {
            *to.id = id;
            true
        }
        None => false,
    }
}

/// Writes the head of a response. Returns whether it is final, and whether it ends the message.
fn write_response(
    to: &mut FrameSink<'_>,
    mut list: FieldList<'_>,
    is_to_head: bool,
    is_all: bool,
) -> io::Result<(bool, bool)> {
    let status = list.next_field().filter(|field| field.name == b":status");
    let status = status.and_then(|field| str::from_utf8(field.value).ok()?.parse::<u16>().ok());
    let status = status.ok_or(io::ErrorKind::InvalidData)?;
    // RFC 8441, section 5: a WebSocket opens with 200, and without a proof.
    let is_switch = status == 101;
    let is_final = is_switch || status >= 200;
    let is_bodyless = is_to_head || is_all || matches!(status, 204 | 304);
    let ends = is_final && !is_switch && is_bodyless;
    let fields = list.iter().map(field);
    let fields = fields.filter(|field| !(is_switch && field.name == ACCEPT.as_bytes()));
    let status = if is_switch { 200 } else { status };
    let sent = to.framing.send_response(*to.id, status, fields, ends, to.out);
    sent.map_err(io::Error::other)?;
    Ok((is_final, ends))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_while_the_receiver_is_behind() {
        let mut buffer = SendBuffer::default();
        buffer.push(&[0; 100_000]);
        for _ in 0..1000 {
            buffer.push(&[0; 1000]);
            assert_eq!(move_bytes(&mut buffer, usize::MAX, &mut [0; 1000]), 1000);
        }
        assert_eq!(buffer.unsent().len(), 100_000);
        assert!(buffer.capacity() < 500_000, "{}", buffer.capacity());
    }
}
