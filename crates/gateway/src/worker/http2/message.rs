//! Translation of messages between HTTP/2 and the HTTP/1.1 that the rest of a worker handles. A translated request passes
//! the same checks as one that was received in HTTP/1.1.

use std::io::{self, Write as _};
use std::ops::Range;

use memchr::memchr;
use tollgate_eventloop::SendBuffer;
use tollgate_http1::{BodyDecoder, BodyFraming, BodyPartKind, parse_length};
use tollgate_http2::{Connection, Field, Fields};

/// Longest coding of a chunk besides its payload.
const CHUNK_CODING_BYTES: usize = 16 + 4;

/// Writes the head of a request, with the framing of its body. Cookie crumbs are joined (RFC 9113, section 8.2.3).
pub(super) fn render_head(fields: &Fields, end_stream: bool, out: &mut Vec<u8>) {
    out.clear();
    let authority = fields.authority();
    let method = fields.method();
    // A CONNECT has no path.
    let target = fields.path().or(authority).unwrap_or_default();
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
    if fields.content_length().is_none() {
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

/// The received part of a request body that is not forwarded yet, at most a stream's window.
#[derive(Debug)]
pub(super) struct RequestBody {
    payload: SendBuffer,
    is_chunked: bool,
    /// End of a chunked body that has ended.
    tail: Option<Vec<u8>>,
}

impl RequestBody {
    /// `is_chunked`: the head has no length.
    pub(super) fn new(is_chunked: bool) -> Self {
        Self { payload: SendBuffer::default(), is_chunked, tail: None }
    }

    pub(super) fn is_readable(&self) -> bool {
        !self.payload.is_empty() || self.tail.is_some()
    }

    pub(super) fn push(&mut self, payload: &[u8]) {
        self.payload.push(payload);
    }

    /// Ends the body. Trailers need the chunked coding, and are dropped without.
    pub(super) fn end<'f>(&mut self, trailers: impl Iterator<Item = Field<'f>>) {
        if self.is_chunked {
            let tail = self.tail.insert(b"0\r\n".to_vec());
            trailers.for_each(|Field { name, value, .. }| push_line(tail, name, value));
            tail.extend_from_slice(b"\r\n");
        }
    }

    /// Moves what fits to the start of `buffer`. Returns the number of bytes, and of payload bytes among them.
    pub(super) fn take(&mut self, buffer: &mut [u8]) -> (usize, usize) {
        let payload = self.payload.unsent();
        let (mut count, mut room) = (payload.len().min(buffer.len()), &mut *buffer);
        if self.is_chunked && count > 0 {
            count = count.min(room.len().saturating_sub(CHUNK_CODING_BYTES));
            let written = write!(room, "{count:x}\r\n")
                .and_then(|()| room.write_all(&payload[..count]))
                .and_then(|()| room.write_all(b"\r\n"));
            written.expect("there is room for a chunk and its coding");
        } else {
            room.write_all(&payload[..count]).expect("there is room for the payload");
        }
        if count > 0 {
            self.payload.advance(count);
        }
        if self.payload.is_empty()
            && let Some(tail) = self.tail.take_if(|tail| tail.len() <= room.len())
        {
            room.write_all(&tail).expect("there is room for the tail");
        }
        let left = room.len();
        (buffer.len() - left, count)
    }
}

/// Translates the bytes of a response.
#[derive(Debug)]
pub(super) struct ResponseWriter {
    state: WriteState,
    /// The response has no body, whatever its head says.
    is_to_head: bool,
    /// Payload at the start of the next bytes that had no room in the windows.
    pending: usize,
    trailers: Vec<u8>,
}

#[derive(Debug)]
enum WriteState {
    /// Before the final head.
    Head,
    Body(BodyDecoder),
    Ended,
}

/// The place for the frames of a response.
pub(super) struct ResponseStream<'a> {
    pub(super) id: u32,
    pub(super) framing: &'a mut Connection,
    pub(super) out: &'a mut Vec<u8>,
    pub(super) fields: &'a mut ResponseFields,
}

impl ResponseWriter {
    /// `is_to_head`: the request is a HEAD.
    pub(super) fn new(is_to_head: bool) -> Self {
        Self { state: WriteState::Head, is_to_head, pending: 0, trailers: Vec::new() }
    }

    /// True if the whole response is framed.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, WriteState::Ended)
    }

    /// Frames as much as the windows allow. A head must be passed as a whole. Returns the number of bytes that are done
    /// with; the next call must continue behind them.
    pub(super) fn write(&mut self, to: &mut ResponseStream<'_>, bytes: &[u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            match &mut self.state {
                WriteState::Head => done += self.write_head(to, rest)?,
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
                        let sent = to.framing.send_data(to.id, payload, is_last, to.out);
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

    fn write_head(&mut self, to: &mut ResponseStream<'_>, bytes: &[u8]) -> io::Result<usize> {
        let head = to.fields.read(bytes).ok_or(io::ErrorKind::InvalidData)?;
        let framing = match head.status {
            ..200 => None,
            204 | 304 => Some(BodyFraming::Empty),
            _ if self.is_to_head => Some(BodyFraming::Empty),
            _ => Some(head.framing),
        };
        let is_bodyless = matches!(framing, Some(BodyFraming::Empty | BodyFraming::Length(0)));
        let fields = to.fields.iter(bytes);
        let sent = to.framing.send_response(to.id, head.status, fields, is_bodyless, to.out);
        sent.map_err(io::Error::other)?;
        self.state = match framing {
            None => WriteState::Head,
            Some(_) if is_bodyless => WriteState::Ended,
            Some(framing) => WriteState::Body(BodyDecoder::new(framing)),
        };
        Ok(head.len)
    }

    /// Writes the end of a chunked body.
    fn write_end(&mut self, to: &mut ResponseStream<'_>) -> io::Result<()> {
        if self.trailers.is_empty() {
            let sent = to.framing.send_data(to.id, b"", true, to.out);
            return sent.map(|_| ()).map_err(io::Error::other);
        }
        // Without a start line, all lines are fields.
        to.fields.clear();
        to.fields.read_lines(&self.trailers, 0);
        let fields = to.fields.iter(&self.trailers);
        to.framing.send_trailers(to.id, fields, to.out).map_err(io::Error::other)
    }

    /// Writes the end of a response whose body has neither length nor coding.
    pub(super) fn finish(&mut self, to: &mut ResponseStream<'_>) {
        if matches!(&self.state, WriteState::Body(decoder) if decoder.ends_at_close())
            // Otherwise the stream is closed, and needs no end.
            && to.framing.send_data(to.id, b"", true, to.out).is_ok()
        {
            self.state = WriteState::Ended;
        }
    }
}

/// The fields of a response head or trailer section. Its memory is reused.
#[derive(Debug, Default)]
pub(super) struct ResponseFields {
    /// In lower case, concatenated.
    names: Vec<u8>,
    /// Places of the names in `names`, and of the values in the section.
    places: Vec<(Range<usize>, Range<usize>)>,
}

struct ResponseHead {
    status: u16,
    framing: BodyFraming,
    len: usize,
}

impl ResponseFields {
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
    fn read(&mut self, bytes: &[u8]) -> Option<ResponseHead> {
        self.clear();
        let status = bytes.get(b"HTTP/1.1 ".len()..)?.first_chunk::<3>()?;
        let status = status.iter().fold(0, |number, digit| 10 * number + u16::from(digit - b'0'));
        let start = memchr(b'\n', bytes)? + 1;
        let len = self.read_lines(bytes, start)?;
        let mut framing = BodyFraming::UntilClose;
        // The framing is that of the stream, and the connection has no options.
        let names = &self.names;
        self.places.retain(|(name, value)| match &names[name.clone()] {
            b"transfer-encoding" => {
                framing = BodyFraming::Chunked;
                false
            }
            b"content-length" => {
                if let Some(length) = parse_length(&bytes[value.clone()]) {
                    framing = BodyFraming::Length(length);
                }
                true
            }
            b"connection" | b"keep-alive" | b"proxy-connection" | b"upgrade" => false,
            _ => true,
        });
        Some(ResponseHead { status, framing, len })
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
