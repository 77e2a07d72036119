//! HTTP/2 on one connection: requests as streams.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use tollgate_http1::BodySearch;
use tollgate_http2::{Connection, Field, Limits, MAX_MAX_FRAME_BYTES, Rate, Role};

use crate::connection::InFlight;
use crate::plan::Error;

/// Receive window of streams and connections, so large that flow control does not delay responses. The maximum is
/// 2^31 - 1.
const WINDOW: u32 = 1 << 30;

/// Capacity above which the memory of sent frames is freed.
const KEPT_BYTES: usize = 64 * 1024;

/// Connection-specific header fields, which HTTP/2 forbids (RFC 9113, section 8.2.2).
const DROPPED: &[&str] =
    &["connection", "http2-settings", "keep-alive", "proxy-connection", "te", "upgrade"];

/// A request for HTTP/2, made from its HTTP/1.1 text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http2Request {
    method: Vec<u8>,
    /// Names, in lower case, and values of the fields after `:method` and `:scheme`.
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
}

impl Http2Request {
    /// Fails unless the text is a request line, header fields and a body without a transfer coding.
    pub fn from_http1(text: &[u8]) -> Result<Self, Error> {
        let error = |reason: &str| {
            let start = &text[..text.len().min(60)];
            let start = start.escape_ascii();
            Error::Workload(format!("cannot send `{start}` over HTTP/2: {reason}"))
        };
        let end = text.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let end = end.ok_or_else(|| error("no blank line ends its head"))?;
        let mut lines = text[..end].split(|byte| *byte == b'\n').map(trim_end);
        let request_line = lines.next().unwrap_or_default();
        let mut words = request_line.splitn(2, |byte| *byte == b' ');
        let method = words.next().unwrap_or_default();
        let target = words.next().and_then(|rest| rest.strip_suffix(b" HTTP/1.1"));
        let target = target.ok_or_else(|| error("its first line does not end in HTTP/1.1"))?;
        let mut authority = None;
        let mut headers = Vec::new();
        for line in lines {
            let colon = line.iter().position(|byte| *byte == b':');
            let colon = colon.ok_or_else(|| error("a header line has no colon"))?;
            let (name, value) =
                (line[..colon].to_ascii_lowercase(), line[colon + 1..].trim_ascii());
            match name.as_slice() {
                b"host" => authority = Some(value.to_vec()),
                b"transfer-encoding" => return Err(error("its body has a transfer coding")),
                name if DROPPED.iter().any(|dropped| dropped.as_bytes() == name) => {}
                _ => headers.push((name, value.to_vec())),
            }
        }
        let mut fields = vec![(b":path".to_vec(), target.to_vec())];
        fields.extend(authority.map(|host| (b":authority".to_vec(), host)));
        fields.append(&mut headers);
        Ok(Self { method: method.to_vec(), fields, body: text[end + 4..].to_vec() })
    }

    /// Returns the fields of its head, pseudo-fields first.
    pub fn fields<'a>(&'a self, scheme: &'a [u8]) -> impl Iterator<Item = Field<'a>> {
        let first = [Field::new(b":method", &self.method), Field::new(b":scheme", scheme)];
        let rest = self.fields.iter().map(|(name, value)| Field::new(name, value));
        first.into_iter().chain(rest)
    }

    /// Returns its body, which may be empty.
    pub fn body(&self) -> &[u8] {
        &self.body
    }
}

fn trim_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The framing of one connection, and the requests that have a stream on it.
#[derive(Debug)]
pub(crate) struct Http2 {
    pub(crate) framing: Connection,
    scheme: &'static [u8],
    /// Frames to send.
    pub(crate) out: Vec<u8>,
    /// Number of bytes of `out` that are sent.
    sent: usize,
    /// True if the server's settings have arrived. No stream is opened before.
    pub(crate) is_ready: bool,
    pub(crate) last_received: Instant,
    /// By token.
    streams: Vec<Option<Stream>>,
    vacant: Vec<usize>,
    /// At most the time of the oldest send among the streams.
    oldest_sent: Option<Instant>,
    /// Tokens of streams whose body did not fit into the windows.
    unsent_bodies: VecDeque<usize>,
    /// Place in `out` of the first request, if nothing of any request with a stream was sent.
    unsent_from: Option<usize>,
}

/// A request with a stream, and its response so far.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) in_flight: InFlight,
    pub(crate) id: u32,
    /// Bytes of the body sent.
    body_sent: usize,
    /// In [`Http2::unsent_bodies`].
    is_body_queued: bool,
    /// 0 before the head of the response.
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    pub(crate) search: BodySearch,
}

impl Http2 {
    pub(crate) fn new(scheme: &'static str, now: Instant) -> Self {
        let limits = Limits {
            frame_bytes: MAX_MAX_FRAME_BYTES,
            stream_window: WINDOW,
            connection_window: WINDOW,
            resets: Rate::UNLIMITED,
            glitches: Rate::UNLIMITED,
            queued_control_frames: u32::MAX,
            ..Limits::default()
        };
        let mut out = Vec::new();
        Self {
            framing: Connection::new(Role::Client, limits, now, &mut out),
            scheme: scheme.as_bytes(),
            out,
            sent: 0,
            is_ready: false,
            last_received: now,
            streams: Vec::new(),
            vacant: Vec::new(),
            oldest_sent: None,
            unsent_bodies: VecDeque::new(),
            unsent_from: None,
        }
    }

    /// Number of requests with a stream.
    pub(crate) fn len(&self) -> usize {
        self.streams.len() - self.vacant.len()
    }

    /// True if the server accepts another stream now.
    pub(crate) fn can_open(&self) -> bool {
        self.is_ready && self.framing.can_open()
    }

    /// Limit of requests in flight, at most `concurrency`; 0 if no further stream can be opened. A server that allows no
    /// stream for now gets one request that waits and shows as a timeout.
    pub(crate) fn room(&self, concurrency: usize) -> usize {
        match self.framing.is_spent() {
            true => 0,
            false => concurrency.min((self.framing.peer_streams() as usize).max(1)),
        }
    }

    /// True if the connection has no stream and cannot open another.
    pub(crate) fn is_over(&self) -> bool {
        self.framing.is_spent() && self.len() == 0
    }

    /// True if no byte of the requests with a stream was sent.
    pub(crate) fn is_unsent(&self) -> bool {
        self.len() == 0 || self.unsent_from.is_some_and(|place| self.sent <= place)
    }

    /// Opens a stream. [`Http2::can_open`] must be true.
    pub(crate) fn open(&mut self, mut in_flight: InFlight, requests: &[Http2Request]) {
        let token = self.vacant.pop().unwrap_or_else(|| {
            self.streams.push(None);
            self.streams.len() - 1
        });
        let before = self.out.len();
        if self.len() == 1 {
            self.unsent_from = Some(before);
        }
        let request = in_flight.http2(requests);
        let fields = request.fields(self.scheme);
        let is_bodyless = request.body.is_empty();
        let id = self.framing.send_request(fields, is_bodyless, token, &mut self.out);
        let id = id.expect("the connection accepts another stream");
        in_flight.sent_bytes = (self.out.len() - before) as u64;
        self.oldest_sent =
            Some(self.oldest_sent.map_or(in_flight.sent, |oldest| oldest.min(in_flight.sent)));
        self.streams[token] = Some(Stream {
            in_flight,
            id,
            body_sent: 0,
            is_body_queued: false,
            status: 0,
            body_bytes: 0,
            search: BodySearch::default(),
        });
        if !is_bodyless {
            self.resume_body(token, requests);
        }
    }

    /// Sends as much of the body of a stream as the windows allow, and queues the stream for the rest.
    pub(crate) fn resume_body(&mut self, token: usize, requests: &[Http2Request]) {
        let Some(Some(stream)) = self.streams.get_mut(token) else { return };
        let rest = &stream.in_flight.http2(requests).body[stream.body_sent..];
        let before = self.out.len();
        // A closed stream accepts no more bytes.
        let sent = self.framing.send_data(stream.id, rest, true, &mut self.out);
        let sent = sent.unwrap_or(rest.len());
        let is_unsent = sent < rest.len();
        stream.body_sent += sent;
        stream.in_flight.sent_bytes += (self.out.len() - before) as u64;
        if is_unsent && !stream.is_body_queued {
            stream.is_body_queued = true;
            self.unsent_bodies.push_back(token);
        }
    }

    /// Continues the bodies that did not fit, as far as the window of the connection allows.
    pub(crate) fn resume_bodies(&mut self, requests: &[Http2Request]) {
        for _ in 0..self.unsent_bodies.len() {
            let Some(token) = self.unsent_bodies.pop_front() else { return };
            if let Some(stream) = &mut self.streams[token] {
                stream.is_body_queued = false;
            }
            self.resume_body(token, requests);
            // After the attempt, so that the framing announces further room.
            if self.framing.is_window_empty() && !self.unsent_bodies.is_empty() {
                return;
            }
        }
    }

    /// Sends the frames by `send`, which returns `None` if there is no room. Returns true if all are sent.
    pub(crate) fn flush(
        &mut self,
        mut send: impl FnMut(&[u8]) -> io::Result<Option<usize>>,
    ) -> io::Result<bool> {
        while self.sent < self.out.len() {
            let Some(bytes) = send(&self.out[self.sent..])? else {
                // More may be appended before there is room.
                self.unsent_from = self.unsent_from.and_then(|place| place.checked_sub(self.sent));
                self.out.drain(..self.sent);
                self.sent = 0;
                return Ok(false);
            };
            self.sent += bytes;
        }
        self.out.clear();
        self.out.shrink_to(KEPT_BYTES);
        self.sent = 0;
        self.unsent_from = None;
        self.framing.flushed();
        Ok(true)
    }

    pub(crate) fn stream_mut(&mut self, token: usize) -> Option<&mut Stream> {
        self.streams.get_mut(token)?.as_mut()
    }

    /// Ends a stream. One that has not ended is cancelled.
    pub(crate) fn take(&mut self, token: usize) -> Option<Stream> {
        let stream = self.streams.get_mut(token)?.take()?;
        self.vacant.push(token);
        if stream.is_body_queued {
            self.unsent_bodies.retain(|queued| *queued != token);
        }
        self.framing.release(stream.id, &mut self.out);
        Some(stream)
    }

    /// Ends the streams for which `predicate` is true.
    pub(crate) fn take_where(&mut self, predicate: impl Fn(&Stream) -> bool) -> Vec<Stream> {
        (0..self.streams.len())
            .filter_map(|token| {
                let is_taken = self.streams[token].as_ref().is_some_and(&predicate);
                if is_taken { self.take(token) } else { None }
            })
            .collect()
    }

    pub(crate) fn in_flight(&self) -> impl Iterator<Item = &InFlight> {
        self.streams.iter().flatten().map(|stream| &stream.in_flight)
    }

    /// Returns a time that is at most that of the oldest send.
    pub(crate) fn oldest_sent(&self) -> Option<Instant> {
        if self.len() == 0 { None } else { self.oldest_sent }
    }

    /// Makes [`Http2::oldest_sent`] exact.
    pub(crate) fn update_oldest_sent(&mut self) {
        self.oldest_sent = self.in_flight().map(|in_flight| in_flight.sent).min();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http1_text_becomes_fields_and_body() {
        let text = b"POST /a?b=c HTTP/1.1\r\nHost: shop.example:81\r\nConnection: close\r\nX-A:  b \r\nContent-Length: 2\r\n\r\nhi";
        let request = Http2Request::from_http1(text).unwrap();
        let field = |(name, value): &(Vec<u8>, Vec<u8>)| {
            format!("{}={}", name.escape_ascii(), value.escape_ascii())
        };
        let fields: Vec<_> = request.fields.iter().map(field).collect();
        let expected = [":path=/a?b=c", ":authority=shop.example:81", "x-a=b", "content-length=2"];
        assert_eq!(fields, expected);
        assert_eq!((request.method, request.body), (b"POST".to_vec(), b"hi".to_vec()));
    }

    #[test]
    fn requests_are_unsent_until_their_first_byte() {
        let request = Http2Request::from_http1(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let now = Instant::now();
        let in_flight = || InFlight {
            request: 0,
            scheduled: now,
            sent: now,
            was_sent: false,
            sent_bytes: 0,
            first_byte: None,
            replayed: None,
        };
        let requests = [request];
        let mut http2 = Http2::new("http", now);
        // Preface and settings are sent in part.
        let preface = http2.out.len();
        http2.open(in_flight(), &requests);
        assert!(http2.is_unsent());
        let mut room = [Some(preface - 1), None].into_iter();
        assert!(!http2.flush(|_| Ok(room.next().flatten())).unwrap());
        assert!(http2.is_unsent());
        let mut room = [Some(2), None].into_iter();
        assert!(!http2.flush(|_| Ok(room.next().flatten())).unwrap());
        assert!(!http2.is_unsent());
        assert!(http2.flush(|bytes| Ok(Some(bytes.len()))).unwrap());
        http2.open(in_flight(), &requests);
        // The first request is on the wire.
        assert!(!http2.is_unsent());
        assert!(http2.flush(|bytes| Ok(Some(bytes.len()))).unwrap());
        assert_eq!(http2.take_where(|_| true).len(), 2);
        assert!(http2.is_unsent());
        http2.open(in_flight(), &requests);
        http2.open(in_flight(), &requests);
        assert!(http2.is_unsent());
    }

    #[test]
    fn text_that_is_no_plain_request_is_rejected() {
        for (text, reason) in [
            ("GET / HTTP/1.1\r\n", "no blank line ends its head"),
            ("GET / HTTP/1.0\r\n\r\n", "its first line does not end in HTTP/1.1"),
            ("GET / HTTP/1.1\r\na\r\n\r\n", "a header line has no colon"),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "its body has a transfer"),
        ] {
            let error = Http2Request::from_http1(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("cannot send `") && error.contains(reason), "{error}");
        }
    }
}
