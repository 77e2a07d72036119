//! A connection: its socket, its state and the requests in flight on it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::time::{Duration, Instant};

use tollgate_http1::{
    BodySearch, MAX_HEAD_BYTES, RequestMessage, ResponseScanner, parse_response_head,
};
use tollgate_net::{Interest, Poller, Socket, try_io};
use tollgate_tls::{StreamEnd, TlsSession};

use crate::http2::{self, Http2, Http2Head};
use crate::plan::{Plan, Protocol, Target};
use crate::replay::Captured;
use crate::workload::Workload;

/// A request without a complete response. It survives its connection.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// Index in the workload.
    pub(crate) request: usize,
    /// Due time; in a closed loop, the same as `sent`.
    pub(crate) scheduled: Instant,
    /// Just before the first write; without keep-alive, the start of the connect.
    pub(crate) sent: Instant,
    /// True if any of it was sent on a connection that has ended since.
    pub(crate) was_sent: bool,
    /// Its bytes on the wire.
    pub(crate) sent_bytes: u64,
    /// Arrival of the first byte of its response, if the plan records it.
    pub(crate) first_byte: Option<Instant>,
    /// `None` without a replay.
    pub(crate) replayed: Option<Box<Replayed>>,
}

/// The part of a session in a request of a replay.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) session: u32,
    /// The request with cookies and values of the session.
    message: RequestMessage,
    /// `None` over HTTP/1.1.
    http2: Option<Http2Head>,
    /// HTTP/1.1: head of the response as received so far, without interim ones.
    head: Vec<u8>,
    has_head: bool,
    pub(crate) response: Captured,
}

impl Replayed {
    pub(crate) fn new(
        session: u32,
        message: RequestMessage,
        http2: Option<Http2Head>,
        needs_body: bool,
    ) -> Self {
        let response = Captured { body: needs_body.then(Vec::new), ..Captured::default() };
        Self { session, message, http2, head: Vec::new(), has_head: false, response }
    }

    /// Drops the part of a response that ended early.
    fn restart(&mut self) {
        let body = self.response.body.as_ref().map(|_| Vec::new());
        self.response = Captured { body, ..Captured::default() };
        self.head = Vec::new();
        self.has_head = false;
    }

    /// Takes the headers of an HTTP/1.1 response from its stream. Errors are those of the scanner, which reads the same
    /// bytes.
    pub(crate) fn capture(&mut self, bytes: &[u8], is_head: bool) {
        if self.has_head {
            return;
        }
        let room = MAX_HEAD_BYTES.saturating_sub(self.head.len());
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        while let Ok(Some(head)) = parse_response_head(&self.head, is_head) {
            if head.status < 200 {
                let len = head.len;
                self.head.drain(..len);
                continue;
            }
            self.has_head = true;
            let owned = |(name, value): (&str, &[u8])| (name.into(), value.into());
            self.response.headers = head.headers.iter().map(owned).collect();
            self.head = Vec::new();
            return;
        }
    }
}

impl InFlight {
    /// Prepares a request for another connection, after one has carried a part of it.
    fn restart(&mut self) {
        self.was_sent = true;
        if let Some(replayed) = &mut self.replayed {
            replayed.restart();
        }
    }

    pub(crate) fn message<'a>(&'a self, workload: &'a Workload) -> &'a RequestMessage {
        match &self.replayed {
            Some(replayed) => &replayed.message,
            None => &workload.requests[self.request].message,
        }
    }

    /// Returns the request as sent over HTTP/1.1.
    pub(crate) fn bytes<'a>(&'a self, workload: &'a Workload) -> &'a [u8] {
        self.message(workload).bytes()
    }

    pub(crate) fn http2_head<'a>(&'a self, workload: &'a Workload) -> &'a Http2Head {
        match self.replayed.as_ref().and_then(|replayed| replayed.http2.as_ref()) {
            Some(head) => head,
            None => &workload.http2_heads()[self.request],
        }
    }

    /// Sets the send time, unless a connection has carried the request before. In a closed loop it is the due time too.
    pub(crate) fn set_send_time(&mut self, now: Instant, is_closed_loop: bool) {
        if !self.was_sent {
            self.sent = now;
            if is_closed_loop {
                self.scheduled = now;
            }
        }
    }
}

/// One of the connections of a thread, through reconnects.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) state: State,
    /// HTTP/1.1: requests in the order of their responses. HTTP/2: those that wait for a stream.
    pub(crate) in_flight: VecDeque<InFlight>,
    /// Number of those that are sent completely on this connection.
    sent: usize,
    /// Bytes sent of the next one.
    sent_bytes: usize,
    pub(crate) since: Instant,
    /// True while it is in the worker's queue of free connections.
    pub(crate) is_free: bool,
    /// True while it is in the worker's list of connections to read again.
    pub(crate) is_unread: bool,
    /// Number of connects. Distinguishes events of an old socket from those of the current one.
    pub(crate) generation: u32,
}

#[derive(Debug)]
pub(crate) enum State {
    Closed,
    /// Waits before the next attempt, after a failed connect.
    RetryWait,
    Connecting(Stream),
    Open(Stream),
    /// Waits for the server to close, after the last response of the connection.
    Closing(Stream),
}

/// Limit of requests sent by one system call.
const SLICES_MAX: usize = 64;

impl Connection {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            state: State::Closed,
            in_flight: VecDeque::with_capacity(1),
            sent: 0,
            sent_bytes: 0,
            since: now,
            is_free: false,
            is_unread: false,
            generation: 0,
        }
    }

    pub(crate) fn enter(&mut self, state: State, now: Instant) {
        self.state = state;
        self.since = now;
    }

    /// Drops the socket. Returns the number of requests sent on it, completely or in part, which have to
    /// be sent again.
    pub(crate) fn disconnect(&mut self, now: Instant) -> usize {
        let to_resend = self.sent + usize::from(self.sent_bytes > 0);
        self.in_flight.range_mut(..to_resend).for_each(InFlight::restart);
        self.sent = 0;
        self.sent_bytes = 0;
        let with_stream = self.resend_where(|_| true);
        self.enter(State::Closed, now);
        to_resend + with_stream
    }

    /// HTTP/2: queues requests again whose streams match. Returns their number.
    pub(crate) fn resend_where(&mut self, predicate: impl Fn(&http2::Stream) -> bool) -> usize {
        let mut streams = self.http2().map_or_else(Vec::new, |http2| http2.take_where(predicate));
        streams.sort_unstable_by_key(|stream| stream.id);
        let count = streams.len();
        for stream in streams.into_iter().rev() {
            self.resend(stream.in_flight);
        }
        count
    }

    /// Queues a request again.
    pub(crate) fn resend(&mut self, mut in_flight: InFlight) {
        in_flight.restart();
        self.in_flight.push_front(InFlight { first_byte: None, ..in_flight });
    }

    /// TLS session of the socket.
    pub(crate) fn tls(&self) -> Option<&TlsSession> {
        match &self.state {
            State::Connecting(stream) | State::Open(stream) | State::Closing(stream) => {
                stream.tls.as_deref()
            }
            State::Closed | State::RetryWait => None,
        }
    }

    pub(crate) fn http2(&mut self) -> Option<&mut Http2> {
        match &mut self.state {
            State::Open(stream) => stream.http2.as_deref_mut(),
            State::Closed | State::RetryWait | State::Connecting(_) | State::Closing(_) => None,
        }
    }

    /// True if no request fails when the connection ends.
    pub(crate) fn is_idle(&self) -> bool {
        !self.has_started_front() && !self.is_unanswered()
    }

    /// True if requests wait for a handshake or a stream on a connection that has carried no response.
    pub(crate) fn is_unanswered(&self) -> bool {
        let is_fresh =
            |stream: &Stream| (stream.http2.is_some() || stream.tls.is_some()) && !stream.is_reused;
        matches!(&self.state, State::Open(stream) if is_fresh(stream)) && !self.in_flight.is_empty()
    }

    /// Number of requests in flight, those included that wait to be sent.
    pub(crate) fn len(&self) -> usize {
        self.in_flight.len() + self.streams().map_or(0, Http2::len)
    }

    fn streams(&self) -> Option<&Http2> {
        match &self.state {
            State::Open(stream) => stream.http2.as_deref(),
            State::Closed | State::RetryWait | State::Connecting(_) | State::Closing(_) => None,
        }
    }

    /// True until requests can be sent on it: while connecting, during the TLS handshake, before the server's settings.
    pub(crate) fn is_connecting(&self) -> bool {
        match &self.state {
            State::Connecting(_) => true,
            State::Open(stream) => {
                stream.is_handshaking()
                    || stream.http2.as_ref().is_some_and(|http2| !http2.is_ready)
            }
            State::Closed | State::RetryWait | State::Closing(_) => false,
        }
    }

    /// Returns a time that is at most that of the oldest send among the requests in flight.
    pub(crate) fn oldest_sent(&self) -> Option<Instant> {
        match self.streams() {
            None => self.in_flight.front().map(|request| request.sent),
            Some(http2) => {
                let waiting = self.in_flight.iter().map(|request| request.sent);
                waiting.chain(http2.oldest_sent()).min()
            }
        }
    }

    /// True if another request may be in flight.
    pub(crate) fn has_room(&self, concurrency: usize) -> bool {
        let room = match self.streams() {
            Some(http2) if http2.is_ready => http2.room(concurrency),
            _ => concurrency,
        };
        self.len() < room
    }

    /// Sets the send time of requests that no connection has carried yet.
    pub(crate) fn set_send_time(&mut self, now: Instant, is_closed_loop: bool) {
        for request in &mut self.in_flight {
            request.set_send_time(now, is_closed_loop);
        }
    }

    pub(crate) fn has_sent_front(&self) -> bool {
        self.sent > 0
    }

    pub(crate) fn has_started_front(&self) -> bool {
        self.sent > 0 || self.sent_bytes > 0 || self.streams().is_some_and(|http2| http2.len() > 0)
    }

    pub(crate) fn has_started_second(&self) -> bool {
        self.sent > 1 || (self.sent == 1 && self.sent_bytes > 0)
    }

    pub(crate) fn pop(&mut self) -> Option<InFlight> {
        let request = self.in_flight.pop_front()?;
        if self.sent > 0 {
            self.sent -= 1;
        } else {
            self.sent_bytes = 0;
        }
        Some(request)
    }

    /// Sends the unsent bytes, several requests by one system call. Returns true if all are sent.
    /// Otherwise the poller reports when there is room again. Sends nothing without a socket.
    pub(crate) fn send(
        &mut self,
        workload: &Workload,
        poller: &Poller,
        token: u64,
    ) -> io::Result<bool> {
        let (State::Open(stream) | State::Connecting(stream)) = &mut self.state else {
            return Ok(false);
        };
        if let Some(tls) = stream.tls.as_mut().filter(|tls| tls.is_handshaking()) {
            let is_flushed = tls.flush(&stream.socket)?;
            stream.watch(poller, token, !is_flushed)?;
            return Ok(is_flushed);
        }
        if let Stream { http2: Some(http2), socket, tls, .. } = &mut *stream {
            let is_all_sent = http2.flush(|bytes| send(socket, tls, bytes))?;
            stream.watch(poller, token, !is_all_sent)?;
            return Ok(is_all_sent);
        }
        while self.sent < self.in_flight.len() {
            let first = &self.in_flight[self.sent].bytes(workload)[self.sent_bytes..];
            let sent = if self.sent + 1 == self.in_flight.len() {
                send(&stream.socket, &mut stream.tls, first)?
            } else {
                let rest = self.in_flight.range(self.sent + 1..);
                let rest = rest.map(|request| request.bytes(workload));
                let slices: Vec<IoSlice<'_>> =
                    std::iter::once(first).chain(rest).take(SLICES_MAX).map(IoSlice::new).collect();
                match &mut stream.tls {
                    None => try_io(|| stream.socket.send_slices(&slices))?,
                    tls => {
                        let joined: Vec<u8> =
                            slices.iter().flat_map(|slice| slice.iter().copied()).collect();
                        send(&stream.socket, tls, &joined)?
                    }
                }
            };
            let Some(mut bytes) = sent else {
                stream.watch(poller, token, true)?;
                return Ok(false);
            };
            while self.sent < self.in_flight.len() {
                let left = self.in_flight[self.sent].bytes(workload).len() - self.sent_bytes;
                if bytes < left {
                    self.sent_bytes += bytes;
                    break;
                }
                bytes -= left;
                self.sent += 1;
                self.sent_bytes = 0;
            }
        }
        stream.watch(poller, token, false)?;
        Ok(true)
    }

    /// True if a failed send means that the server closed between two requests: it has read nothing of
    /// the second one.
    pub(crate) fn was_closed_while_idle(&self, error: &io::Error) -> bool {
        let is_reused = matches!(&self.state, State::Open(stream) if stream.is_reused);
        let has_started = match self.streams() {
            Some(http2) => !http2.is_unsent(),
            None => self.has_started_front(),
        };
        is_reused && !has_started && is_disconnect(error)
    }

    /// Queues the requests of streams again whose frames were not sent.
    pub(crate) fn take_back(&mut self) {
        let mut streams = self.http2().map_or_else(Vec::new, |http2| http2.take_where(|_| true));
        streams.sort_unstable_by_key(|stream| stream.id);
        for stream in streams.into_iter().rev() {
            self.in_flight.push_front(stream.in_flight);
        }
    }

    pub(crate) fn ages(&self, now: Instant) -> impl Iterator<Item = Duration> {
        let with_stream = self.streams().into_iter().flat_map(Http2::in_flight);
        self.in_flight
            .iter()
            .chain(with_stream)
            .map(move |request| now.saturating_duration_since(request.scheduled))
    }
}

/// Sends what there is room for; `None` if there is none.
fn send(
    socket: &Socket,
    tls: &mut Option<Box<TlsSession>>,
    bytes: &[u8],
) -> io::Result<Option<usize>> {
    match tls {
        None => try_io(|| socket.send(bytes)),
        Some(tls) => Ok(Some(tls.send(socket, bytes)?).filter(|sent| *sent > 0)),
    }
}

/// True if a failed send means that the server has closed the connection.
pub(crate) fn is_disconnect(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

/// Result of a read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    /// 0 at the end of the stream.
    pub(crate) bytes: usize,
    /// True if another read may find more.
    pub(crate) has_more: bool,
}

/// A socket that connects or is connected, and the state of its response stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) connect_started: Instant,
    pub(crate) socket: Socket,
    /// `None` without TLS.
    pub(crate) tls: Option<Box<TlsSession>>,
    pub(crate) scanner: ResponseScanner,
    pub(crate) search: BodySearch,
    /// `None` for HTTP/1.1.
    pub(crate) http2: Option<Box<Http2>>,
    /// True if the server has sent its last byte, so that no event announces the end of the stream.
    pub(crate) is_shut: bool,
    /// Error of a send whose response may still be unread.
    pub(crate) send_error: Option<io::Error>,
    /// True after the first complete response.
    pub(crate) is_reused: bool,
    /// True if the poller reports room to write; `None` before the socket is registered.
    watches_room: Option<bool>,
}

impl Stream {
    /// Starts to connect.
    pub(crate) fn connect(plan: &Plan) -> io::Result<Self> {
        // The keys of the handshake are not part of the time to connect.
        let tls = plan.tls.as_ref().map(|client| client.connect().map(Box::new)).transpose()?;
        let connect_started = Instant::now();
        let socket = match &plan.target {
            Target::Tcp(address) => Socket::connect(*address)?,
            Target::Unix(path) => Socket::connect_unix(path)?,
        };
        Ok(Self {
            connect_started,
            socket,
            tls,
            scanner: ResponseScanner::default(),
            search: BodySearch::default(),
            http2: match plan.protocol {
                Protocol::Http1 { .. } => None,
                Protocol::Http2 { .. } => {
                    let scheme = if plan.tls.is_some() { "https" } else { "http" };
                    Some(Box::new(Http2::new(scheme, Instant::now())))
                }
            },
            is_shut: false,
            send_error: None,
            is_reused: false,
            watches_room: None,
        })
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// True if the server closed the connection without ending the TLS session.
    pub(crate) fn is_truncated(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.end() == Some(StreamEnd::Truncated))
    }

    /// Receives into the buffer.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        if let Some(tls) = &mut self.tls {
            let (bytes, has_more) = tls.receive(&self.socket, buffer, self.is_shut)?;
            // After `close_notify` the server accepts no more requests, even if the connection is still open.
            self.is_shut |= tls.end().is_some();
            return Ok(Received { bytes, has_more });
        }
        let bytes = self.socket.receive(buffer)?;
        Ok(Received { bytes, has_more: bytes == buffer.len() || self.is_shut })
    }

    /// Receives into the buffer. Returns true at the end of the stream and after an error.
    pub(crate) fn has_ended(&mut self, buffer: &mut [u8]) -> bool {
        match self.receive(buffer) {
            Ok(received) => received.bytes == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }

    /// True if session tickets have arrived, over TLS 1.3.
    pub(crate) fn has_tickets(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.tickets() > 0)
    }

    /// Registers for received bytes and, if `room`, for room to write. No system call if nothing changes.
    pub(crate) fn watch(&mut self, poller: &Poller, token: u64, room: bool) -> io::Result<()> {
        let interest = if room { Interest::BothEdge } else { Interest::ReadableEdge };
        match self.watches_room {
            Some(watched) if watched == room => return Ok(()),
            Some(_) => poller.modify(&self.socket, token, interest)?,
            None => poller.add(&self.socket, token, interest)?,
        }
        self.watches_room = Some(room);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Request;

    #[test]
    fn restarted_request_has_no_part_of_its_first_response() {
        let mut replayed = Replayed::new(0, Request::get("/").message, None, true);
        replayed.capture(b"HTTP/1.1 200 OK\r\nX: 1\r\nContent-Length: 9\r\n\r\n", false);
        replayed.response.add_body(b"half");
        replayed.restart();
        replayed.capture(b"HTTP/1.1 200 OK\r\nY: 2\r\nContent-Length: 3\r\n\r\n", false);
        replayed.response.add_body(b"all");
        let names: Vec<&str> = replayed.response.headers.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["Y", "Content-Length"]);
        assert_eq!(replayed.response.body.as_deref(), Some(&b"all"[..]));
    }
}
