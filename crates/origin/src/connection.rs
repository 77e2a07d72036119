//! One client connection: reading, sending, deadlines and closing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use tollgate_eventloop::{Event, Interest, Socket, try_io};
use tollgate_http1::MAX_HEAD_BYTES;

use crate::config::Timeouts;
use crate::endpoints::ByteSource;
use crate::http1_connection::{CloseMode, Context, Http1Connection, Need, Receiving, ServerState};
use crate::output::{OutputBuffer, Sent};
use crate::state::{Metric, Shared};

/// Room for an incomplete head plus the same amount.
const INPUT_BYTES: usize = 2 * MAX_HEAD_BYTES;

/// Limit for reading after the last response.
const LINGER_MAX_BYTES: usize = 1 << 20;

/// Limit for bytes sent, and for bytes read, in one run of a connection.
const IO_BUDGET_BYTES: usize = 1 << 20;

/// Limit for bytes fetched in one run: some hundred microseconds of random bytes.
const FETCH_BUDGET_BYTES: usize = 256 << 10;

/// Buffers and state that the connections of a thread use in turn, so that an idle one holds no
/// memory.
pub(crate) struct Scratch {
    input: Box<[u8]>,
    output: OutputBuffer,
    source: ByteSource,
    pub(crate) shared: Shared,
    pub(crate) timeouts: Timeouts,
}

impl Scratch {
    pub(crate) fn new(shared: Shared, source: ByteSource, timeouts: Timeouts) -> Self {
        Self {
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            output: OutputBuffer::default(),
            source,
            shared,
            timeouts,
        }
    }
}

pub(crate) struct Connection {
    socket: Socket,
    /// Address for the access log, if there is one.
    peer: Box<str>,
    http: Http1Connection,
    phase: Phase,
    /// The socket may have bytes to read. Events are edge-triggered: a read that leaves room in its
    /// buffer has emptied the socket.
    is_readable: bool,
    /// The client has shut its side down. A read that leaves room does not show that.
    is_shut: bool,
    /// The socket was full once, so writability is watched.
    was_full: bool,
    /// Waits in the run queue of the worker.
    is_queued: bool,
    unread: Vec<u8>,
    unsent: OutputBuffer,
    /// Start of the request that is being received.
    request_started: Instant,
    deadline: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Reading,
    /// The socket is full; nothing is read until all output is sent.
    Writing,
    /// A response waits for its time; nothing is read until then.
    Waiting {
        until: Instant,
    },
    /// A response waits for bytes to be fetched.
    Fetching,
    /// All output is sent; further bytes of the client are discarded.
    Lingering {
        remaining_bytes: usize,
    },
}

/// Condition for the next run of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// At the next event of its socket.
    Event,
    At(Instant),
    /// After the other connections that are ready.
    Queue,
    /// Never; it is to be dropped.
    Close,
}

impl Connection {
    pub(crate) fn new(socket: Socket, peer: Box<str>, now: Instant, timeouts: &Timeouts) -> Self {
        Self {
            socket,
            peer,
            http: Http1Connection::default(),
            phase: Phase::Reading,
            is_readable: false,
            is_shut: false,
            was_full: false,
            is_queued: false,
            unread: Vec::new(),
            unsent: OutputBuffer::default(),
            request_started: now,
            deadline: now + timeouts.idle,
        }
    }

    pub(crate) fn interest(&self) -> Interest {
        if self.was_full { Interest::BothEdge } else { Interest::ReadableEdge }
    }

    /// Records an event. Returns true if the connection is to run now.
    pub(crate) fn on_event(&mut self, event: Event) -> bool {
        let is_end = event.is_read_closed() || event.is_closed();
        self.is_readable |= event.is_readable() || is_end;
        self.is_shut |= is_end;
        !self.is_queued && !matches!(self.phase, Phase::Waiting { .. })
    }

    /// True while a response is prepared; the socket is then ignored.
    pub(crate) fn is_preparing_response(&self) -> bool {
        matches!(self.phase, Phase::Waiting { .. } | Phase::Fetching)
    }

    /// Makes the next run read without an event.
    pub(crate) fn assume_readable(&mut self) {
        self.is_readable = true;
    }

    /// Removes the mark of the run queue. Returns false if there was none.
    pub(crate) fn take_queued(&mut self) -> bool {
        std::mem::take(&mut self.is_queued)
    }

    /// True if not even a part of a request was received.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Reading)
            && self.unread.is_empty()
            && self.http.is_between_requests()
    }

    /// Time of the response, if it waits for one.
    pub(crate) fn waiting_until(&self) -> Option<Instant> {
        match self.phase {
            Phase::Waiting { until } => Some(until),
            _ => None,
        }
    }

    /// Time at which the connection is closed, unless it runs before.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Reads, processes and sends as far as possible without waiting, within the budgets. `stop_by`
    /// is the time at which a stopping server ends. After an error, the connection is to be dropped.
    pub(crate) fn run(
        &mut self,
        scratch: &mut Scratch,
        now: Instant,
        stop_by: Option<Instant>,
    ) -> io::Result<Next> {
        let next = self.run_phase(scratch, now, stop_by)?;
        self.is_queued = next == Next::Queue;
        Ok(next)
    }

    fn run_phase(
        &mut self,
        scratch: &mut Scratch,
        now: Instant,
        stop_by: Option<Instant>,
    ) -> io::Result<Next> {
        // Another connection may have failed and left its output.
        scratch.output.clear();
        let mut send_budget_bytes = IO_BUDGET_BYTES;
        match self.phase {
            Phase::Lingering { remaining_bytes } => return self.linger(remaining_bytes, scratch),
            Phase::Writing => {
                std::mem::swap(&mut self.unsent, &mut scratch.output);
                if let Some(next) = self.flush(scratch, &mut send_budget_bytes, false, now)? {
                    return Ok(next);
                }
                self.unsent = OutputBuffer::default();
                self.deadline = now + scratch.timeouts.response;
            }
            Phase::Waiting { until } if is_after(until, stop_by) => return Ok(Next::Close),
            Phase::Waiting { until } if now < until => return Ok(Next::Event),
            Phase::Reading | Phase::Waiting { .. } | Phase::Fetching => {}
        }
        if self.phase != Phase::Reading {
            // Bytes that were read before come first. The client did not cause their delay.
            self.request_started = now;
            let input_bytes = self.restore_unread(scratch);
            let next = self.process(scratch, input_bytes, &mut send_budget_bytes, now, stop_by)?;
            if self.phase != Phase::Reading || next == Next::Close {
                return Ok(next);
            }
        }
        let mut read_bytes = 0;
        while self.is_readable {
            if read_bytes >= IO_BUDGET_BYTES {
                return Ok(Next::Queue);
            }
            let kept = self.restore_unread(scratch);
            let input_bytes = match self.receive(scratch, kept)? {
                None => return Ok(Next::Event),
                Some(0) => return Ok(Next::Close),
                Some(count) => kept + count,
            };
            read_bytes += input_bytes;
            let next = self.process(scratch, input_bytes, &mut send_budget_bytes, now, stop_by)?;
            if self.phase != Phase::Reading || next == Next::Close {
                return Ok(next);
            }
        }
        Ok(Next::Event)
    }

    /// Processes the input and sends the output until the connection has to wait. Keeps the rest of
    /// both.
    fn process(
        &mut self,
        scratch: &mut Scratch,
        input_bytes: usize,
        send_budget_bytes: &mut usize,
        now: Instant,
        stop_by: Option<Instant>,
    ) -> io::Result<Next> {
        let server = if stop_by.is_some() { ServerState::Stopping } else { ServerState::Running };
        let mut fetch_budget_bytes = FETCH_BUDGET_BYTES;
        let mut consumed = 0;
        let next = loop {
            let Scratch { input, output, shared, .. } = &mut *scratch;
            let input = &input[consumed..input_bytes];
            let (count, need) = self.http.advance(input, &mut Context { output, shared, server });
            consumed += count;
            let is_last = need == Need::Close(CloseMode::Immediate);
            if let Some(next) = self.flush(scratch, send_budget_bytes, is_last, now)? {
                break next;
            }
            match need {
                Need::Flush => {}
                Need::Fetch(source, bytes) if fetch_budget_bytes > 0 => {
                    let fetched = scratch.source.fetch(source, bytes)?;
                    self.http.fetched(fetched as u64);
                    fetch_budget_bytes = fetch_budget_bytes.saturating_sub(fetched);
                }
                Need::Fetch(..) => {
                    self.phase = Phase::Fetching;
                    self.deadline = now + scratch.timeouts.idle;
                    break Next::Queue;
                }
                // Responses that are due after the end are dropped.
                Need::Until(until) if is_after(until, stop_by) => break Next::Close,
                Need::Until(until) => {
                    self.phase = Phase::Waiting { until };
                    self.deadline = until + scratch.timeouts.idle;
                    break Next::At(until);
                }
                Need::Input => {
                    self.phase = Phase::Reading;
                    self.set_read_deadline(now, consumed, input_bytes, &scratch.timeouts);
                    break Next::Event;
                }
                Need::Close(CloseMode::Immediate) => {
                    // Sends bytes held back by the kernel; a close alone may discard them.
                    self.socket.shutdown_write()?;
                    break Next::Close;
                }
                Need::Close(CloseMode::Linger) => {
                    self.socket.shutdown_write()?;
                    self.deadline = now + scratch.timeouts.linger;
                    self.phase = Phase::Lingering { remaining_bytes: LINGER_MAX_BYTES };
                    consumed = input_bytes;
                    break if self.is_readable { Next::Queue } else { Next::Event };
                }
            }
        };
        self.unread.clear();
        if consumed < input_bytes {
            self.unread.extend_from_slice(&scratch.input[consumed..input_bytes]);
        } else if self.unread.capacity() > 0 {
            self.unread = Vec::new();
        }
        Ok(next)
    }

    fn set_read_deadline(
        &mut self,
        now: Instant,
        consumed: usize,
        input_bytes: usize,
        timeouts: &Timeouts,
    ) {
        match self.http.receiving() {
            Receiving::Head if consumed == input_bytes => {
                self.request_started = now;
                self.deadline = now + timeouts.idle;
            }
            Receiving::Head => {
                // Either a new head, or one that was already incomplete before this read.
                if consumed > 0 || self.unread.is_empty() {
                    self.request_started = now;
                }
                self.deadline = self.request_started + timeouts.head;
            }
            Receiving::Body { since, bytes } => {
                let allowed_s = bytes / timeouts.body_bytes_per_second.max(1);
                let rate_deadline = since + timeouts.body + Duration::from_secs(allowed_s);
                self.deadline = rate_deadline.min(now + timeouts.body);
            }
            Receiving::Nothing => {}
        }
    }

    /// Handles an expired deadline; the connection is to be dropped afterwards. A client whose
    /// request is incomplete gets an error response, if there is room for it.
    pub(crate) fn time_out(&mut self, scratch: &mut Scratch, now: Instant) -> io::Result<()> {
        if self.is_idle() || matches!(self.phase, Phase::Lingering { .. }) {
            return Ok(());
        }
        scratch.shared.counters.add(Metric::TimedOut, 1);
        if self.phase == Phase::Reading {
            let Scratch { output, shared, .. } = &mut *scratch;
            output.clear();
            self.http.time_out(&mut Context { output, shared, server: ServerState::Running });
            self.flush(scratch, &mut IO_BUDGET_BYTES.clone(), true, now)?;
            self.socket.shutdown_write()?;
        }
        Ok(())
    }

    /// Completes the access log before the connection is dropped.
    pub(crate) fn close(&mut self, scratch: &mut Scratch) {
        self.http.closed(&mut scratch.shared.log, &self.peer);
    }

    /// Sends the output. Keeps the rest, if any, and returns when to continue.
    fn flush(
        &mut self,
        scratch: &mut Scratch,
        budget_bytes: &mut usize,
        last: bool,
        now: Instant,
    ) -> io::Result<Option<Next>> {
        let Scratch { output, shared, .. } = &mut *scratch;
        let before = output.unsent_bytes();
        let sent = output.send(&mut &self.socket, budget_bytes, last);
        let sent_bytes = before - output.unsent_bytes();
        shared.counters.add(Metric::BytesOut, sent_bytes);
        self.http.sent(sent_bytes, &mut shared.log, &self.peer);
        let next = match sent? {
            Sent::All => return Ok(None),
            Sent::Partial => Next::Event,
            Sent::BudgetExhausted => Next::Queue,
        };
        self.was_full |= next == Next::Event;
        if sent_bytes > 0 || self.phase != Phase::Writing {
            self.deadline = now + scratch.timeouts.response;
        }
        std::mem::swap(&mut self.unsent, &mut scratch.output);
        self.phase = Phase::Writing;
        Ok(Some(next))
    }

    /// Copies the unread bytes to the input. Returns their number.
    fn restore_unread(&self, scratch: &mut Scratch) -> usize {
        scratch.input[..self.unread.len()].copy_from_slice(&self.unread);
        self.unread.len()
    }

    /// Reads once into the input, from `at` on. Returns `None` if the socket is empty, and 0 at the
    /// end of the stream.
    fn receive(&mut self, scratch: &mut Scratch, at: usize) -> io::Result<Option<usize>> {
        let room = scratch.input.len() - at;
        assert!(room > 0, "an incomplete head leaves room to read");
        let count = try_io(|| self.socket.receive(&mut scratch.input[at..]))?;
        scratch.shared.counters.add(Metric::BytesIn, count.unwrap_or(0) as u64);
        self.is_readable = match count {
            None => false,
            Some(count) => count == 0 || count == room || self.is_shut,
        };
        Ok(count)
    }

    fn linger(&mut self, mut remaining_bytes: usize, scratch: &mut Scratch) -> io::Result<Next> {
        while self.is_readable {
            match self.receive(scratch, 0)? {
                None => {}
                Some(count) if count > 0 && count < remaining_bytes => remaining_bytes -= count,
                Some(_) => return Ok(Next::Close),
            }
        }
        self.phase = Phase::Lingering { remaining_bytes };
        Ok(Next::Event)
    }
}

fn is_after(time: Instant, stop_by: Option<Instant>) -> bool {
    stop_by.is_some_and(|stop_by| time > stop_by)
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests;
