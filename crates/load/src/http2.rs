//! HTTP/2 on one connection: requests as streams.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use tollgate_http1::BodySearch;
use tollgate_http2::{Connection, Limits, MAX_MAX_FRAME_BYTES, Rate, Role};
use tollgate_net::SendBuffer;

use crate::in_flight::InFlight;
use crate::workload::Workload;

/// Receive window of streams and connections, so large that flow control does not delay responses. The maximum is
/// 2^31 - 1.
const WINDOW: u32 = 1 << 30;

/// Capacity above which the memory of sent frames is freed.
const KEPT_BYTES: usize = 64 * 1024;

/// The framing of one connection, and the requests that have a stream on it.
#[derive(Debug)]
pub(crate) struct Http2 {
    pub(crate) framing: Connection,
    scheme: &'static [u8],
    /// Frames to send.
    pub(crate) out: SendBuffer<KEPT_BYTES>,
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
            out: SendBuffer::new(out),
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
        if self.framing.is_spent() {
            0
        } else {
            concurrency.min((self.framing.peer_streams() as usize).max(1))
        }
    }

    /// True if the connection has no stream and cannot open another.
    pub(crate) fn is_over(&self) -> bool {
        self.framing.is_spent() && self.len() == 0
    }

    /// True if no byte of the requests with a stream was sent.
    pub(crate) fn is_unsent(&self) -> bool {
        self.len() == 0 || self.unsent_from.is_some_and(|place| self.out.retained() <= place)
    }

    /// Opens a stream. [`Http2::can_open`] must be true.
    pub(crate) fn open(&mut self, mut in_flight: InFlight, workload: &Workload) {
        let token = self.vacant.pop().unwrap_or_else(|| {
            self.streams.push(None);
            self.streams.len() - 1
        });
        let before = self.out.tail().len();
        if self.len() == 1 {
            self.unsent_from = Some(before);
        }
        let fields = in_flight.http2_head(workload).fields(self.scheme);
        let is_bodyless = in_flight.message(workload).body().is_empty();
        let id = self.framing.send_request(fields, is_bodyless, token, self.out.tail());
        let id = id.expect("the connection accepts another stream");
        in_flight.sent_bytes = (self.out.tail().len() - before) as u64;
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
            self.resume_body(token, workload);
        }
    }

    /// Sends as much of the body of a stream as the windows allow, and queues the stream for the rest.
    pub(crate) fn resume_body(&mut self, token: usize, workload: &Workload) {
        let Some(Some(stream)) = self.streams.get_mut(token) else { return };
        let rest = &stream.in_flight.message(workload).body()[stream.body_sent..];
        let before = self.out.tail().len();
        // A closed stream accepts no more bytes.
        let sent = self.framing.send_data(stream.id, rest, true, self.out.tail());
        let sent = sent.unwrap_or(rest.len());
        let is_unsent = sent < rest.len();
        stream.body_sent += sent;
        stream.in_flight.sent_bytes += (self.out.tail().len() - before) as u64;
        if is_unsent && !stream.is_body_queued {
            stream.is_body_queued = true;
            self.unsent_bodies.push_back(token);
        }
    }

    /// Continues the bodies that did not fit, as far as the window of the connection allows.
    pub(crate) fn resume_bodies(&mut self, workload: &Workload) {
        for _ in 0..self.unsent_bodies.len() {
            let Some(token) = self.unsent_bodies.pop_front() else { return };
            if let Some(stream) = &mut self.streams[token] {
                stream.is_body_queued = false;
            }
            self.resume_body(token, workload);
            // After the attempt, so that the framing announces further room.
            if self.framing.is_window_empty() && !self.unsent_bodies.is_empty() {
                return;
            }
        }
    }

    /// Sends the frames by `send`, which may return fewer bytes than given if there is no more room. Returns true if all are
    /// sent.
    pub(crate) fn flush(
        &mut self,
        send: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        self.out.send(send)?;
        if !self.out.is_empty() {
            // More may be appended before there is room.
            let sent = self.out.retained();
            self.unsent_from = self.unsent_from.and_then(|place| place.checked_sub(sent));
            self.out.discard_sent();
            return Ok(false);
        }
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
        self.framing.release(stream.id, self.out.tail());
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
    use crate::workload::Request;

    #[test]
    fn requests_are_unsent_until_their_first_byte() {
        let workload = Workload::new(vec![Request::get("/")], vec![0]).unwrap();
        workload.render_http2();
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
        let mut http2 = Http2::new("http", now);
        // Preface and settings are sent in part.
        let preface = http2.out.unsent().len();
        http2.open(in_flight(), &workload);
        assert!(http2.is_unsent());
        assert!(!http2.flush(|_| Ok(preface - 1)).unwrap());
        assert!(http2.is_unsent());
        assert!(!http2.flush(|_| Ok(2)).unwrap());
        assert!(!http2.is_unsent());
        assert!(http2.flush(|bytes| Ok(bytes.len())).unwrap());
        http2.open(in_flight(), &workload);
        // The first request is on the wire.
        assert!(!http2.is_unsent());
        assert!(http2.flush(|bytes| Ok(bytes.len())).unwrap());
        assert_eq!(http2.take_where(|_| true).len(), 2);
        assert!(http2.is_unsent());
        http2.open(in_flight(), &workload);
        http2.open(in_flight(), &workload);
        assert!(http2.is_unsent());
    }
}
