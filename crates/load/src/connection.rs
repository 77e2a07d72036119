//! A connection: its socket, its state and the requests in flight on it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::time::{Duration, Instant};

use tollgate_http1::{BodySearch, ResponseScanner};
use tollgate_net::{Poller, Serial, Socket};
use tollgate_tls::{Received, TlsClient, TlsSession, Transport};
use tollgate_traffic::load_shape::Protocol;

use crate::http2::{self, Http2};
use crate::in_flight::InFlight;
use crate::plan::{Plan, Target};
use crate::workload::Workload;

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
    /// Distinguishes events of an old socket from those of the current one.
    pub(crate) serial: Serial,
}

#[derive(Debug)]
pub(crate) enum State {
    Closed,
    /// Waits before the next attempt, after a failed connect.
    RetryWait,
    Connecting(Stream),
    Open(Stream),
    /// After a handshake, waits for the session tickets that the next one needs.
    AwaitingTickets(Stream),
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
            serial: Serial::default(),
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
            State::Connecting(stream) | State::Open(stream) | State::AwaitingTickets(stream) => {
                stream.transport.session()
            }
            State::Closed | State::RetryWait => None,
        }
    }

    pub(crate) fn http2(&mut self) -> Option<&mut Http2> {
        match &mut self.state {
            State::Open(stream) => stream.http2.as_deref_mut(),
            State::Closed | State::RetryWait | State::Connecting(_) | State::AwaitingTickets(_) => {
                None
            }
        }
    }

    /// True if no request fails when the connection ends.
    pub(crate) fn is_idle(&self) -> bool {
        !self.has_started_front() && !self.is_unanswered()
    }

    /// True if requests wait for a handshake or a stream on a connection that has carried no response.
    pub(crate) fn is_unanswered(&self) -> bool {
        let is_fresh = |stream: &Stream| {
            (stream.http2.is_some() || stream.transport.is_tls()) && !stream.is_reused
        };
        matches!(&self.state, State::Open(stream) if is_fresh(stream)) && !self.in_flight.is_empty()
    }

    /// Number of requests in flight, those included that wait to be sent.
    pub(crate) fn len(&self) -> usize {
        self.in_flight.len() + self.streams().map_or(0, Http2::len)
    }

    fn streams(&self) -> Option<&Http2> {
        match &self.state {
            State::Open(stream) => stream.http2.as_deref(),
            State::Closed | State::RetryWait | State::Connecting(_) | State::AwaitingTickets(_) => {
                None
            }
        }
    }

    /// True until requests can be sent on it: while connecting, during the TLS handshake, before the server's settings.
    pub(crate) fn is_connecting(&self) -> bool {
        match &self.state {
            State::Connecting(_) => true,
            State::Open(stream) => {
                stream.transport.is_handshaking()
                    || stream.http2.as_ref().is_some_and(|http2| !http2.is_ready)
            }
            State::Closed | State::RetryWait | State::AwaitingTickets(_) => false,
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

    /// True if a send may continue what has waited for room.
    pub(crate) fn has_unsent(&self) -> bool {
        let State::Open(stream) = &self.state else { return false };
        let has_requests = self.sent < self.in_flight.len();
        has_requests || stream.http2.is_some() || stream.transport.is_handshaking()
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
        let Stream { transport, http2, .. } = stream;
        if transport.is_handshaking() {
            let is_flushed = transport.flush()?;
            transport.watch(poller, token, !is_flushed)?;
            return Ok(is_flushed);
        }
        if let Some(http2) = http2 {
            let is_all_sent = http2.flush(|bytes| transport.send(bytes))?;
            transport.watch(poller, token, !is_all_sent)?;
            return Ok(is_all_sent);
        }
        while self.sent < self.in_flight.len() {
            let first = &self.in_flight[self.sent].bytes(workload)[self.sent_bytes..];
            let (offered, mut bytes) = if self.sent + 1 == self.in_flight.len() {
                (first.len(), transport.send(first)?)
            } else {
                let rest = self.in_flight.range(self.sent + 1..);
                let rest = rest.map(|request| request.bytes(workload));
                let slices: Vec<IoSlice<'_>> =
                    std::iter::once(first).chain(rest).take(SLICES_MAX).map(IoSlice::new).collect();
                let offered = slices.iter().map(|slice| slice.len()).sum();
                if transport.is_tls() {
                    // One record for all, and one system call.
                    let joined: Vec<u8> =
                        slices.iter().flat_map(|slice| slice.iter().copied()).collect();
                    (offered, transport.send(&joined)?)
                } else {
                    (offered, transport.send_slices(&slices)?)
                }
            };
            let is_full = bytes < offered;
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
            if is_full {
                transport.watch(poller, token, true)?;
                return Ok(false);
            }
        }
        transport.watch(poller, token, false)?;
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

/// True if a failed send means that the server has closed the connection.
pub(crate) fn is_disconnect(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

/// A socket that connects or is connected, and the state of its response stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) connect_started: Instant,
    pub(crate) transport: Transport,
    pub(crate) scanner: ResponseScanner,
    pub(crate) search: BodySearch,
    /// `None` for HTTP/1.1.
    pub(crate) http2: Option<Box<Http2>>,
    /// Error of a send whose response may still be unread.
    pub(crate) send_error: Option<io::Error>,
    /// True after the first complete response.
    pub(crate) is_reused: bool,
}

impl Stream {
    /// Starts to connect.
    pub(crate) fn connect(plan: &Plan) -> io::Result<Self> {
        // The keys of the handshake are not part of the time to connect.
        let session = plan.tls.as_ref().map(TlsClient::connect).transpose()?;
        let connect_started = Instant::now();
        let socket = match &plan.target {
            Target::Tcp(address) => Socket::connect(*address)?,
            Target::Unix(path) => Socket::connect_unix(path)?,
        };
        Ok(Self {
            connect_started,
            transport: Transport::connecting(socket, session),
            scanner: ResponseScanner::default(),
            search: BodySearch::default(),
            http2: match plan.clients.protocol {
                Protocol::Http1 { .. } | Protocol::Http1Close | Protocol::Handshakes => None,
                Protocol::Http2 { .. } => {
                    let scheme = if plan.tls.is_some() { "https" } else { "http" };
                    Some(Box::new(Http2::new(scheme, Instant::now())))
                }
            },
            send_error: None,
            is_reused: false,
        })
    }

    /// True if the server accepts no more requests: it has closed its side, by `close_notify` or altogether, or a send has
    /// failed.
    pub(crate) fn is_shut(&self) -> bool {
        let has_ended = |session: &TlsSession| session.end().is_some();
        self.transport.is_read_shut()
            || self.send_error.is_some()
            || self.transport.session().is_some_and(has_ended)
    }

    /// True if another read may find more after one that has returned bytes.
    pub(crate) fn has_more(&self) -> bool {
        self.transport.is_readable() || self.is_shut()
    }

    /// Receives into the buffer. Returns true at the end of the stream and after an error.
    pub(crate) fn has_ended(&mut self, buffer: &mut [u8]) -> bool {
        matches!(self.transport.receive(buffer), Ok(Received::End) | Err(_))
    }

    /// True if session tickets have arrived, over TLS 1.3.
    pub(crate) fn has_tickets(&self) -> bool {
        self.transport.session().is_some_and(|session| session.tickets() > 0)
    }
}
