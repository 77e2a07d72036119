//! A place for one connection, through all its sockets.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::time::{Duration, Instant};

use tollgate_eventloop::Poller;

use crate::exchange::Exchange;
use crate::link::Link;
use crate::workload::Request;

/// A place for one connection, which is replaced when it ends.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) state: State,
    /// Requests under way, in the order of their answers. They outlive the connection.
    pub(crate) under_way: VecDeque<Exchange>,
    /// How many of those are sent as a whole on this connection.
    sent: usize,
    /// How much of the one after them is sent.
    sent_bytes: usize,
    /// When the state began.
    pub(crate) since: Instant,
    /// Whether it waits among those that can take a request.
    pub(crate) is_offered: bool,
    /// Whether it waits among those whose socket is not empty.
    pub(crate) is_unread: bool,
    /// How many connections it has had, so that what the poller tells of an old one is not taken for
    /// the new one's.
    pub(crate) generation: u32,
}

/// What a slot does.
#[derive(Debug)]
pub(crate) enum State {
    /// It has no connection.
    Down,
    /// Waiting, after a connect that failed.
    Pausing,
    Connecting(Link),
    Open(Link),
    /// Waiting for the server to close, after the last answer that it wanted to give.
    Closing(Link),
}

/// How far the requests of a slot could be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    All,
    /// There is no room for the rest.
    Part,
}

/// How many requests one system call sends.
const SLICES_MAX: usize = 64;

impl Slot {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            state: State::Down,
            under_way: VecDeque::with_capacity(1),
            sent: 0,
            sent_bytes: 0,
            since: now,
            is_offered: false,
            is_unread: false,
            generation: 0,
        }
    }

    pub(crate) fn enter(&mut self, state: State, now: Instant) {
        self.state = state;
        self.since = now;
    }

    /// Leaves the connection, and says how many requests had been sent on it, the last one perhaps in
    /// part, and will have to be sent again.
    pub(crate) fn leave(&mut self, now: Instant) -> usize {
        let to_resend = self.sent + usize::from(self.sent_bytes > 0);
        for exchange in self.under_way.range_mut(..to_resend) {
            exchange.was_sent = true;
        }
        self.sent = 0;
        self.sent_bytes = 0;
        self.enter(State::Down, now);
        to_resend
    }

    /// The connection is there: requests that no connection has carried yet begin now. In a closed
    /// loop that is also what they were scheduled for.
    pub(crate) fn restamp(&mut self, now: Instant, is_closed_loop: bool) {
        for exchange in self.under_way.iter_mut().filter(|exchange| !exchange.was_sent) {
            exchange.sent = now;
            if is_closed_loop {
                exchange.scheduled = now;
            }
        }
    }

    /// Whether the front request is sent as a whole.
    pub(crate) fn has_sent_front(&self) -> bool {
        self.sent > 0
    }

    /// Whether a second request follows the front one on this connection.
    pub(crate) fn awaits_several(&self) -> bool {
        self.sent > 1 || (self.sent == 1 && self.sent_bytes > 0)
    }

    /// Whether anything of the front request is sent.
    pub(crate) fn has_begun_front(&self) -> bool {
        self.sent > 0 || self.sent_bytes > 0
    }

    /// Takes the front request out, for it has ended.
    pub(crate) fn pop(&mut self) -> Option<Exchange> {
        let exchange = self.under_way.pop_front()?;
        if self.sent > 0 {
            self.sent -= 1;
        } else {
            self.sent_bytes = 0;
        }
        Some(exchange)
    }

    /// Sends what is not sent yet, as far as there is room; several requests with one system call.
    /// The poller tells when there is room again. Without a connection, nothing is sent.
    pub(crate) fn send(
        &mut self,
        requests: &[Request],
        poller: &Poller,
        token: u64,
    ) -> io::Result<Sent> {
        let (State::Open(link) | State::Connecting(link)) = &mut self.state else {
            return Ok(Sent::Part);
        };
        while self.sent < self.under_way.len() {
            let bytes_of = |exchange: &Exchange| requests[exchange.request].bytes.as_slice();
            let first = &bytes_of(&self.under_way[self.sent])[self.sent_bytes..];
            let result = if self.sent + 1 == self.under_way.len() {
                link.socket.send(first)
            } else {
                let rest = self.under_way.range(self.sent + 1..).map(bytes_of);
                let slices: Vec<IoSlice<'_>> =
                    std::iter::once(first).chain(rest).take(SLICES_MAX).map(IoSlice::new).collect();
                link.socket.send_slices(&slices)
            };
            match result {
                Ok(mut bytes) => {
                    while self.sent < self.under_way.len() {
                        let left = bytes_of(&self.under_way[self.sent]).len() - self.sent_bytes;
                        if bytes < left {
                            self.sent_bytes += bytes;
                            break;
                        }
                        bytes -= left;
                        self.sent += 1;
                        self.sent_bytes = 0;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    link.watch(poller, token, true)?;
                    return Ok(Sent::Part);
                }
                Err(error) => return Err(error),
            }
        }
        link.watch(poller, token, false)?;
        Ok(Sent::All)
    }

    /// Whether a failed send means that the server had closed the connection between two requests,
    /// and saw nothing of the next one.
    pub(crate) fn was_closed_between(&self, error: &io::Error) -> bool {
        let is_reused = matches!(&self.state, State::Open(link) if link.is_reused);
        is_reused && !self.has_begun_front() && is_gone(error)
    }

    /// The ages of the requests under way.
    pub(crate) fn ages(&self, now: Instant) -> impl Iterator<Item = Duration> {
        self.under_way.iter().map(move |exchange| now.saturating_duration_since(exchange.scheduled))
    }
}

/// Whether a failed send means that the server has closed the connection.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}
