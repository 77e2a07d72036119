//! One client connection: reading, sending, deadlines and closing.

use std::io;
use std::time::{Duration, Instant};

use tollgate_accesslog::ThreadLog;
use tollgate_http1::MAX_HEAD_BYTES;
use tollgate_net::{PollEvent, Poller};
use tollgate_tls::{HttpProtocol, Received, Transport, is_plain_http};

use crate::config::Timeouts;
use crate::endpoints::ByteSource;
use crate::http1_connection::Http1Connection;
use crate::http2_connection::Http2Connection;
use crate::output::{OutputBuffer, Sent};
use crate::protocol::{CloseMode, Context, Need, Receiving, ServerState};
use crate::request::RequestError;
use crate::state::{Metric, Shared};

/// Room for an incomplete head plus the same amount.
const INPUT_BYTES: usize = 2 * MAX_HEAD_BYTES;

/// Limit for reading after the last response.
const LINGER_MAX_BYTES: usize = 1 << 20;

/// Limit for bytes sent, and for bytes read, in one run of a connection. A response of 1 MiB in the clear fits with its head;
/// a second call would send only its last bytes, which the kernel's pacing (BBR) delays.
const IO_BUDGET_BYTES: usize = (1 << 20) + (16 << 10);

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
    transport: Transport,
    /// Address for the access log, if there is one.
    peer: Box<str>,
    http: Http,
    phase: Phase,
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

enum Http {
    /// Before the first bytes of a client show its protocol.
    Undecided,
    Http1(Http1Connection),
    Http2(Box<Http2Connection>),
}

/// Bytes that one run of a connection may still take.
struct Budget {
    send_bytes: usize,
    fetch_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// HTTP/2: responses may be prepared meanwhile.
    Reading,
    /// The socket is full; nothing is read until all output is sent.
    Writing,
    /// HTTP/1: a response waits for its time; nothing is read until then.
    Waiting { until: Instant },
    /// HTTP/1: a response waits for bytes to be fetched.
    Fetching,
    /// All output is sent; further bytes of the client are discarded.
    Lingering { remaining_bytes: usize },
}

/// Condition for the next run of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// At the next event of its socket, or at [`Connection::wake_at`].
    Event,
    /// After the other connections that are ready.
    Queue,
    /// Never; it is to be dropped.
    Close,
}

impl Connection {
    pub(crate) fn new(
        transport: Transport,
        peer: Box<str>,
        now: Instant,
        timeouts: &Timeouts,
    ) -> Self {
        let first_timeout = if transport.is_tls() { timeouts.head } else { timeouts.idle };
        Self {
            transport,
            peer,
            http: Http::Undecided,
            phase: Phase::Reading,
            was_full: false,
            is_queued: false,
            unread: Vec::new(),
            unsent: OutputBuffer::default(),
            request_started: now,
            deadline: now + first_timeout,
        }
    }

    /// Registers with the poller, or changes what it reports. No system call if nothing changes.
    pub(crate) fn watch(&mut self, poller: &Poller, token: u64) -> io::Result<()> {
        self.transport.watch(poller, token, self.was_full)
    }

    /// Records an event. Returns true if the connection is to run now.
    pub(crate) fn on_event(&mut self, event: PollEvent) -> bool {
        self.transport.on_event(event);
        !self.is_queued && !matches!(self.phase, Phase::Waiting { .. })
    }

    /// True while a response is prepared; the socket is then ignored.
    pub(crate) fn is_preparing_response(&self) -> bool {
        matches!(self.phase, Phase::Waiting { .. } | Phase::Fetching)
    }

    /// Makes the next run read without an event.
    pub(crate) fn assume_readable(&mut self) {
        self.transport.assume_readable();
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

    /// Time of the next response that waits for its time.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        match (self.phase, &self.http) {
            (Phase::Waiting { until }, _) => Some(until),
            (Phase::Reading, Http::Http2(http)) => http.next_wait(),
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
        let mut budget = Budget { send_bytes: IO_BUDGET_BYTES, fetch_bytes: FETCH_BUDGET_BYTES };
        match self.phase {
            Phase::Lingering { remaining_bytes } => return self.linger(remaining_bytes, scratch),
            Phase::Writing => {
                std::mem::swap(&mut self.unsent, &mut scratch.output);
                if let Some(next) = self.flush(scratch, &mut budget, false, now)? {
                    return Ok(next);
                }
                self.unsent = OutputBuffer::default();
                self.deadline = now + scratch.timeouts.response;
            }
            Phase::Waiting { until } if is_after(until, stop_by) => return Ok(Next::Close),
            Phase::Waiting { until } if now < until => return Ok(Next::Event),
            Phase::Reading | Phase::Waiting { .. } | Phase::Fetching => {}
        }
        let mut next = Next::Event;
        if self.phase != Phase::Reading || self.http.is_due(now) {
            // Bytes that were read before come first. The client did not cause their delay.
            self.request_started = now;
            let input_bytes = self.restore_unread(scratch);
            next = self.process(scratch, input_bytes, &mut budget, now, stop_by)?;
            if self.phase != Phase::Reading || next == Next::Close {
                return Ok(next);
            }
        }
        let mut read_bytes = 0;
        while self.transport.is_readable() {
            if read_bytes >= IO_BUDGET_BYTES {
                return Ok(Next::Queue);
            }
            let kept = self.restore_unread(scratch);
            let input_bytes = match self.receive(scratch, kept) {
                Ok(None) => break,
                Ok(Some(0)) => return Ok(Next::Close),
                Ok(Some(count)) => kept + count,
                Err(error) if is_plain_http(&error) => {
                    return self.reject_plain_http(scratch, &mut budget, now);
                }
                Err(error) => return Err(error),
            };
            read_bytes += input_bytes;
            next = self.process(scratch, input_bytes, &mut budget, now, stop_by)?;
            if self.phase != Phase::Reading || next == Next::Close {
                return Ok(next);
            }
        }
        if stop_by.is_some() && self.http.accepts_streams() {
            next = self.process(scratch, 0, &mut budget, now, stop_by)?;
        }
        Ok(next)
    }

    /// Processes the input and sends the output until the connection has to wait. Keeps the rest of
    /// both.
    fn process(
        &mut self,
        scratch: &mut Scratch,
        input_bytes: usize,
        budget: &mut Budget,
        now: Instant,
        stop_by: Option<Instant>,
    ) -> io::Result<Next> {
        let server = if stop_by.is_some() { ServerState::Stopping } else { ServerState::Running };
        let mut consumed = 0;
        let next = loop {
            let Scratch { input, output, shared, .. } = &mut *scratch;
            let input = &input[consumed..input_bytes];
            let mut context = Context { output, shared, server };
            if matches!(self.http, Http::Undecided) {
                self.http = Http::select(&self.transport, input, &mut context);
            }
            let (count, need) = self.http.advance(input, &mut context);
            consumed += count;
            let is_last = need == Need::Close(CloseMode::Immediate);
            if let Some(next) = self.flush(scratch, budget, is_last, now)? {
                break next;
            }
            match need {
                Need::Flush => {}
                Need::Fetch(source, bytes) if budget.fetch_bytes > 0 => {
                    let fetched = scratch.source.fetch(source, bytes)?;
                    self.http.fetched(fetched as u64);
                    budget.fetch_bytes = budget.fetch_bytes.saturating_sub(fetched);
                }
                Need::Fetch(..) => {
                    let is_http2 = matches!(self.http, Http::Http2(_));
                    self.phase = if is_http2 { Phase::Reading } else { Phase::Fetching };
                    self.deadline = now + scratch.timeouts.idle;
                    break Next::Queue;
                }
                // Responses that are due after the end are dropped.
                Need::Until(until) if is_after(until, stop_by) => break Next::Close,
                Need::Until(until) => {
                    self.phase = Phase::Waiting { until };
                    self.deadline = until + scratch.timeouts.idle;
                    break Next::Event;
                }
                Need::Input => {
                    self.phase = Phase::Reading;
                    if let Http::Http2(http) = &self.http
                        && http.is_waiting()
                        && http.next_wait().is_some_and(|until| is_after(until, stop_by))
                    {
                        break Next::Close;
                    }
                    self.set_read_deadline(now, consumed, input_bytes, &scratch.timeouts);
                    break Next::Event;
                }
                Need::Close(CloseMode::Immediate) => {
                    // Sends bytes held back by the kernel; a close alone may discard them.
                    if self.transport.shutdown()? {
                        break Next::Close;
                    }
                    consumed = input_bytes;
                    break self.linger_after_shutdown(&scratch.timeouts, now);
                }
                Need::Close(CloseMode::Linger) => {
                    self.transport.shutdown()?;
                    consumed = input_bytes;
                    break self.linger_after_shutdown(&scratch.timeouts, now);
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

    fn linger_after_shutdown(&mut self, timeouts: &Timeouts, now: Instant) -> Next {
        self.deadline = now + timeouts.linger;
        self.phase = Phase::Lingering { remaining_bytes: LINGER_MAX_BYTES };
        if self.transport.is_readable() { Next::Queue } else { Next::Event }
    }

    /// Responds without TLS to a client that sent plain HTTP where TLS is expected, and closes.
    fn reject_plain_http(
        &mut self,
        scratch: &mut Scratch,
        budget: &mut Budget,
        now: Instant,
    ) -> io::Result<Next> {
        self.transport.end_tls();
        let mut http = Http1Connection::default();
        let Scratch { output, shared, .. } = &mut *scratch;
        let mut context = Context { output, shared, server: ServerState::Running };
        http.reject_pending(&RequestError::PlainHttp, &mut context);
        self.http = Http::Http1(http);
        if let Some(next) = self.flush(scratch, budget, false, now)? {
            return Ok(next);
        }
        self.transport.shutdown()?;
        Ok(self.linger_after_shutdown(&scratch.timeouts, now))
    }

    fn set_read_deadline(
        &mut self,
        now: Instant,
        consumed: usize,
        input_bytes: usize,
        timeouts: &Timeouts,
    ) {
        let receiving = match &self.http {
            Http::Undecided => Receiving::Head,
            Http::Http1(http) => http.receiving(),
            Http::Http2(http) => {
                self.deadline = http.deadline(now, timeouts);
                return;
            }
        };
        match receiving {
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
        let is_idle = self.is_idle();
        let says_goodbye = !is_idle || matches!(self.http, Http::Http2(_));
        if matches!(self.phase, Phase::Lingering { .. }) || !says_goodbye {
            return Ok(());
        }
        if !is_idle {
            scratch.shared.counters.add(Metric::TimedOut, 1);
        }
        if self.phase == Phase::Reading {
            let Scratch { output, shared, .. } = &mut *scratch;
            output.clear();
            self.http.time_out(&mut Context { output, shared, server: ServerState::Running });
            let mut budget = Budget { send_bytes: IO_BUDGET_BYTES, fetch_bytes: 0 };
            self.flush(scratch, &mut budget, true, now)?;
            self.transport.shutdown()?;
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
        budget: &mut Budget,
        last: bool,
        now: Instant,
    ) -> io::Result<Option<Next>> {
        let Scratch { output, shared, .. } = &mut *scratch;
        let before = output.unsent_bytes();
        let sent = output.send(&mut self.transport, &mut budget.send_bytes, last);
        let sent_bytes = before - output.unsent_bytes();
        shared.counters.add(Metric::BytesOut, sent_bytes);
        let is_all = output.unsent_bytes() == 0;
        self.http.sent(sent_bytes, is_all, &mut shared.log, &self.peer);
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
        let count = match self.transport.receive(&mut scratch.input[at..])? {
            Received::Nothing => None,
            Received::End => Some(0),
            Received::Bytes(count) => Some(count),
        };
        scratch.shared.counters.add(Metric::BytesIn, count.unwrap_or(0) as u64);
        Ok(count)
    }

    fn linger(&mut self, mut remaining_bytes: usize, scratch: &mut Scratch) -> io::Result<Next> {
        while self.transport.is_readable() {
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

impl Http {
    /// Selects the protocol by the first bytes of the client.
    fn select(transport: &Transport, input: &[u8], context: &mut Context<'_>) -> Self {
        match transport.client_protocol(input) {
            None => Self::Undecided,
            Some(HttpProtocol::Http1) => Self::Http1(Http1Connection::default()),
            Some(HttpProtocol::Http2) => Self::Http2(Box::new(Http2Connection::new(context))),
        }
    }

    #[inline]
    fn advance(&mut self, input: &[u8], context: &mut Context<'_>) -> (usize, Need) {
        match self {
            Self::Undecided => (0, Need::Input),
            Self::Http1(http) => http.advance(input, context),
            Self::Http2(http) => http.advance(input, context),
        }
    }

    fn fetched(&mut self, bytes: u64) {
        match self {
            Self::Undecided => {}
            Self::Http1(http) => http.fetched(bytes),
            Self::Http2(http) => http.fetched(bytes),
        }
    }

    #[inline]
    fn sent(&mut self, bytes: u64, is_all: bool, log: &mut Option<ThreadLog>, peer: &str) {
        match self {
            Self::Undecided => {}
            Self::Http1(http) => http.sent(bytes, log, peer),
            Self::Http2(http) => http.sent(bytes, is_all, log, peer),
        }
    }

    fn closed(&mut self, log: &mut Option<ThreadLog>, peer: &str) {
        match self {
            Self::Undecided => {}
            Self::Http1(http) => http.closed(log, peer),
            Self::Http2(http) => http.closed(log, peer),
        }
    }

    fn is_between_requests(&self) -> bool {
        match self {
            Self::Undecided => true,
            Self::Http1(http) => http.is_between_requests(),
            Self::Http2(http) => http.is_idle(),
        }
    }

    /// True if there is work without an event.
    fn is_due(&self, now: Instant) -> bool {
        matches!(self, Self::Http2(http) if http.is_due(now))
    }

    /// True if the connection must still announce that the server is stopping.
    fn accepts_streams(&self) -> bool {
        matches!(self, Self::Http2(http) if http.accepts_streams())
    }

    fn time_out(&mut self, context: &mut Context<'_>) {
        match self {
            Self::Undecided => Http1Connection::default().time_out(context),
            Self::Http1(http) => http.time_out(context),
            Self::Http2(http) => http.time_out(context),
        }
    }
}

#[cfg(test)]
mod tests;
