//! HTTP/2 on one connection: requests as streams.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use tollgate_eventloop::{Socket, try_io};
use tollgate_http1::BodySearch;
use tollgate_http2::{Connection, Field, FieldLimits, Limits, MAX_MAX_FRAME_BYTES, Rate, Role};

use crate::connection::InFlight;
use crate::plan::Error;

/// Windows near the maximum of 2^31 - 1, so that flow control does not limit the measured figures.
const WINDOW: u32 = 1 << 30;

/// Capacity above which the memory of sent frames is freed.
const KEPT_BYTES: usize = 64 * 1024;

/// Header fields that HTTP/2 has no use for (RFC 9113, section 8.2.2), and `Host`, which becomes `:authority`.
const DROPPED: &[&str] =
    &["connection", "host", "http2-settings", "keep-alive", "proxy-connection", "te", "upgrade"];

/// A request for HTTP/2, made from its HTTP/1.1 text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Http2Request {
    /// Names, in lower case, and values; pseudo-fields first.
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
}

impl Http2Request {
    /// Fails unless the text is a request line, header fields and a body without a transfer coding.
    pub(crate) fn from_http1(text: &[u8]) -> Result<Self, Error> {
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
        let pseudo = |name: &str, value: &[u8]| (name.as_bytes().to_vec(), value.to_vec());
        let mut fields =
            vec![pseudo(":method", method), pseudo(":scheme", b"http"), pseudo(":path", target)];
        fields.extend(authority.map(|host| (b":authority".to_vec(), host)));
        fields.append(&mut headers);
        Ok(Self { fields, body: text[end + 4..].to_vec() })
    }
}

fn trim_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The framing of one connection, and the requests that have a stream on it.
#[derive(Debug)]
pub(crate) struct Http2 {
    pub(crate) framing: Connection,
    /// Frames to send.
    pub(crate) out: Vec<u8>,
    /// Number of bytes of `out` that are sent.
    sent: usize,
    /// True if the server's settings have arrived. No stream is opened before.
    pub(crate) is_ready: bool,
    /// By the token of its stream.
    exchanges: Vec<Option<Exchange>>,
    vacant: Vec<usize>,
    /// Exchanges whose bodies did not fit into the windows.
    unsent_bodies: VecDeque<usize>,
}

/// A request with a stream, and its response so far.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) in_flight: InFlight,
    stream: u32,
    /// Bytes of the body sent.
    body_sent: usize,
    /// 0 before the head of the response.
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    pub(crate) search: BodySearch,
}

impl Http2 {
    pub(crate) fn new(now: Instant) -> Self {
        let limits = Limits {
            frame_bytes: MAX_MAX_FRAME_BYTES,
            fields: FieldLimits::default(),
            stream_window: WINDOW,
            connection_window: WINDOW,
            resets: Rate::UNLIMITED,
            glitches: Rate::UNLIMITED,
            ..Limits::default()
        };
        let mut out = Vec::new();
        Self {
            framing: Connection::new(Role::Client, limits, now, &mut out),
            out,
            sent: 0,
            is_ready: false,
            exchanges: Vec::new(),
            vacant: Vec::new(),
            unsent_bodies: VecDeque::new(),
        }
    }

    /// Number of requests with a stream.
    pub(crate) fn len(&self) -> usize {
        self.exchanges.len() - self.vacant.len()
    }

    /// True if the server accepts another stream now.
    pub(crate) fn can_open(&self) -> bool {
        self.is_ready && self.framing.can_open()
    }

    /// Opens a stream. [`Http2::can_open`] must be true.
    pub(crate) fn open(&mut self, mut in_flight: InFlight, request: &Http2Request) {
        let token = self.vacant.pop().unwrap_or_else(|| {
            self.exchanges.push(None);
            self.exchanges.len() - 1
        });
        let before = self.out.len();
        let fields = request.fields.iter().map(|(name, value)| Field::new(name, value));
        let is_bodyless = request.body.is_empty();
        let stream = self.framing.send_request(fields, is_bodyless, token, &mut self.out);
        let stream = stream.expect("the connection accepts another stream");
        in_flight.sent_bytes = (self.out.len() - before) as u64;
        self.exchanges[token] = Some(Exchange {
            in_flight,
            stream,
            body_sent: 0,
            status: 0,
            body_bytes: 0,
            search: BodySearch::default(),
        });
        if !is_bodyless {
            self.send_body(token, &request.body);
        }
    }

    /// Sends as much of a body as the windows allow.
    fn send_body(&mut self, token: usize, body: &[u8]) {
        let Some(exchange) = &mut self.exchanges[token] else { return };
        let rest = &body[exchange.body_sent..];
        let before = self.out.len();
        // The stream may be reset; its event follows.
        let sent = self.framing.send_data(exchange.stream, rest, true, &mut self.out);
        let sent = sent.unwrap_or(rest.len());
        exchange.body_sent += sent;
        exchange.in_flight.sent_bytes += (self.out.len() - before) as u64;
        if sent < rest.len() {
            self.unsent_bodies.push_back(token);
        }
    }

    /// Continues the bodies that did not fit.
    pub(crate) fn resume_bodies(&mut self, requests: &[Http2Request]) {
        for _ in 0..self.unsent_bodies.len() {
            let Some(token) = self.unsent_bodies.pop_front() else { return };
            if let Some(exchange) = &self.exchanges[token] {
                let request = exchange.in_flight.request;
                self.send_body(token, &requests[request].body);
            }
        }
    }

    /// Sends the frames. Returns true if all are sent.
    pub(crate) fn flush(&mut self, socket: &Socket) -> io::Result<bool> {
        while self.sent < self.out.len() {
            match try_io(|| socket.send(&self.out[self.sent..]))? {
                Some(bytes) => self.sent += bytes,
                None => return Ok(false),
            }
        }
        self.out.clear();
        self.out.shrink_to(KEPT_BYTES);
        self.sent = 0;
        self.framing.flushed();
        Ok(true)
    }

    pub(crate) fn exchange(&mut self, token: usize) -> Option<&mut Exchange> {
        self.exchanges.get_mut(token)?.as_mut()
    }

    /// Ends an exchange. A stream that has not ended is cancelled.
    pub(crate) fn take(&mut self, token: usize) -> Option<Exchange> {
        let exchange = self.exchanges.get_mut(token)?.take()?;
        self.vacant.push(token);
        self.unsent_bodies.retain(|unsent| *unsent != token);
        self.framing.release(exchange.stream, &mut self.out);
        Some(exchange)
    }

    /// Ends an exchange for which `predicate` is true.
    pub(crate) fn take_one(&mut self, predicate: impl Fn(&Exchange) -> bool) -> Option<Exchange> {
        let is_one = |exchange: &Option<Exchange>| exchange.as_ref().is_some_and(&predicate);
        let token = self.exchanges.iter().position(is_one)?;
        self.take(token)
    }

    pub(crate) fn in_flight(&self) -> impl Iterator<Item = &InFlight> {
        self.exchanges.iter().flatten().map(|exchange| &exchange.in_flight)
    }
}

impl Exchange {
    pub(crate) fn stream(&self) -> u32 {
        self.stream
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
        let expected = [
            ":method=POST",
            ":scheme=http",
            ":path=/a?b=c",
            ":authority=shop.example:81",
            "x-a=b",
            "content-length=2",
        ];
        assert_eq!(fields, expected);
        assert_eq!(request.body, b"hi");
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
