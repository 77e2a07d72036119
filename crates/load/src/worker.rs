//! One thread of the generator: its event loop.

mod closing;
mod connect;
mod http2;
mod receive;
mod replay;
mod send;
mod sessions;
mod source;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use tollgate_http1::ResponseHeadCache;
use tollgate_http2::Fields;
use tollgate_net::{
    ConnectionId, EventSource, Events, IdlePolling, Interest, PollEvent, Poller,
    ResponseCoalescing, Waker, minimize_timer_slack, yield_cpu,
};

use crate::connection::{Connection, State};
use crate::metrics::{Metrics, SharedProgress, ThreadCpuClock, ThreadSummary};
use crate::plan::{Phases, Plan, share};
use crate::series::Recorder;
use crate::waiting::RequestWait;
use closing::ClosingConnections;
pub(crate) use send::START_WAIT_MAX;
use source::RequestSource;

/// Commands of the caller to all threads. Threads read them when they are woken.
#[derive(Debug)]
pub(crate) struct Control {
    /// Start of the schedule; in a closed loop, start of the generator.
    pub(crate) start: Instant,
    pub(crate) measure: AtomicBool,
    pub(crate) drain: AtomicBool,
    pub(crate) stop: AtomicBool,
    /// Start of window and series: that of a schedule without a warm-up, else the opening of the first thread's window.
    pub(crate) window_start: OnceLock<Instant>,
    /// Limit of the connections of a thread that the server is to close.
    closing_max: usize,
}

/// One thread's part of a plan.
#[derive(Debug)]
pub(crate) struct Worker {
    poller: Poller,
    waker: Waker,
    control: Arc<Control>,
    plan: Arc<Plan>,
    source: RequestSource,
    request_wait: RequestWait,
    /// See [`Plan::coalesces`].
    coalescing: Option<ResponseCoalescing>,
    metrics: Metrics,
    connections: Vec<Connection>,
    connections_max: usize,
    closing: ClosingConnections,
    /// Connections whose last read did not empty the socket.
    unread: Vec<usize>,
    heads: ResponseHeadCache,
    /// Fields of the last head over HTTP/2.
    fields: Fields,
    /// Number of connections started; the first ones.
    started: usize,
    started_at: Instant,
    /// True when connections are open, so that requests are sent.
    is_sending: bool,
    /// Work left in this turn of the event loop.
    budget: Budget,
    in_flight: usize,
    now: Instant,
    /// Time of the next check of timeouts; at most the end of the interval of a series.
    next_timeout_check: Instant,
    /// True until the window is open, if it is to be opened.
    opens_window: bool,
    /// End of the load, from the opening of the window on, if it has a length.
    ends_at: Option<Instant>,
    /// Start of polling without an event.
    idle_polling: IdlePolling,
}

/// Limits of the work between two calls of the poller.
#[derive(Debug, PartialEq, Eq)]
struct Budget {
    events: usize,
    sends: usize,
    new_connections: usize,
}

impl Budget {
    const TURN: Self = Self { events: EVENTS_PER_WAIT, sends: 64, new_connections: 4 };

    fn is_spent(&self) -> bool {
        self.events == 0 || !self.can_send()
    }

    fn can_send(&self) -> bool {
        self.sends > 0 && self.new_connections > 0
    }
}

const READ_BUFFER_BYTES: usize = 64 * 1024;
const EVENTS_PER_WAIT: usize = 256;

impl Control {
    pub(crate) fn new(plan: &Plan, start: Instant, files_max: u64) -> Self {
        let flag = || AtomicBool::new(false);
        let window_start = OnceLock::new();
        if plan.rate().is_some() && plan.phases != Phases::WarmUp {
            window_start.get_or_init(|| start);
        }
        let closing_max = plan.closing_max(files_max);
        Self { start, measure: flag(), drain: flag(), stop: flag(), window_start, closing_max }
    }
}

impl Worker {
    /// Creates a thread's part of a validated plan.
    pub(crate) fn new(
        plan: &Arc<Plan>,
        thread: usize,
        waker: Waker,
        control: &Arc<Control>,
        progress: &Arc<SharedProgress>,
        series: Option<Recorder>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&waker, EventSource::Waker.token(), Interest::Readable)?;
        let now = Instant::now();
        let (thread, threads) = plan.shard.thread(thread, plan.clients.threads);
        let share = |total: u64| share(total, thread, threads);
        let source = RequestSource::new(plan, control.start, thread, threads);
        let planned = source.planned();
        let connections_max = share(plan.connections_max() as u64);
        let connections = share(plan.connections() as u64);
        let (connections, connections_max) = match &source {
            // Further connections would have nothing to send.
            RequestSource::Closed(_) => {
                let connections = connections.min(planned.unwrap_or(u64::MAX));
                (connections, connections)
            }
            RequestSource::Open(_) | RequestSource::Replay(_) => (connections, connections_max),
        };
        Ok(Self {
            poller,
            waker,
            control: Arc::clone(control),
            plan: Arc::clone(plan),
            source,
            request_wait: RequestWait::default(),
            coalescing: plan.coalesces().then(ResponseCoalescing::default),
            metrics: Metrics::new(plan, Arc::clone(progress), series, planned),
            connections: (0..connections).map(|_| Connection::new(now)).collect(),
            connections_max: connections_max as usize,
            closing: ClosingConnections::new(control.closing_max),
            unread: Vec::new(),
            heads: ResponseHeadCache::default(),
            fields: Fields::default(),
            started: 0,
            started_at: now,
            is_sending: false,
            budget: Budget::TURN,
            in_flight: 0,
            now,
            next_timeout_check: now,
            opens_window: plan.phases != Phases::WarmUp,
            ends_at: None,
            idle_polling: IdlePolling::default(),
        })
    }

    /// Sends until the run is stopped or all requests of the plan have finished.
    pub(crate) fn run(mut self) -> io::Result<ThreadSummary> {
        minimize_timer_slack()?;
        let clock = ThreadCpuClock::open()?;
        let mut buffer = vec![0; READ_BUFFER_BYTES];
        let mut events = Events::with_capacity(EVENTS_PER_WAIT);
        self.now = Instant::now();
        self.started_at = self.now;
        if !self.plan.clients.protocol.keeps_connections() {
            self.is_sending = true;
            self.open_window(&clock)?;
        }
        self.start_connections();
        self.start_sending(&clock)?;
        'turns: while !self.is_finished() && !self.is_over() && !self.is_stopped() {
            let timeout = self.wait_before_poll();
            self.poller.wait(&mut events, Some(timeout))?;
            if !timeout.is_zero() {
                self.idle_polling.busy_turn();
            }
            self.budget = Budget::TURN;
            let before = self.now;
            self.open_window(&clock)?;
            for event in events.iter() {
                self.budget.events -= 1;
                match EventSource::of_token(event.token) {
                    EventSource::Waker => self.process_commands()?,
                    EventSource::Upstream(id) => self.process_event(id.key, event, &mut buffer),
                    EventSource::Listener(_) | EventSource::Downstream(_) => {
                        unreachable!("the generator accepts no connections")
                    }
                }
                if self.is_stopped() {
                    break 'turns;
                }
                self.open_window(&clock)?;
                self.send_due();
            }
            for index in std::mem::take(&mut self.unread) {
                if self.is_stopped() {
                    break 'turns;
                }
                self.connections[index].is_unread = false;
                self.receive(index, &mut buffer);
                self.open_window(&clock)?;
                self.send_due();
            }
            if self.now == before {
                self.now = Instant::now();
            }
            self.open_window(&clock)?;
            self.send_due();
            self.count_polling(timeout);
            if self.now >= self.next_timeout_check {
                self.check_timeouts();
                // Requests that a timeout has let go on.
                self.send_due();
            }
            self.start_connections();
            self.start_sending(&clock)?;
        }
        self.finish(&clock)
    }

    fn is_stopped(&self) -> bool {
        self.control.stop.load(Ordering::Acquire)
    }

    /// True if all requests of the plan have finished; never without a limit. A length is waited for, unless a recording ends
    /// before it.
    fn is_finished(&self) -> bool {
        let may_end = self.ends_at.is_none() || matches!(self.source, RequestSource::Replay(_));
        may_end && self.source.is_done() && self.in_flight == 0
    }

    /// True if the length of the load has passed. Then all requests that were due are sent, or queued for a connection.
    fn is_over(&mut self) -> bool {
        let is_over = self.ends_at.is_some_and(|end| self.now >= end);
        if is_over {
            self.send_due();
        }
        is_over
    }

    fn process_commands(&mut self) -> io::Result<()> {
        self.waker.drain()?;
        self.now = Instant::now();
        self.opens_window |= self.control.measure.load(Ordering::Acquire) && !self.is_stopped();
        if self.control.drain.load(Ordering::Acquire) {
            self.source.end();
            self.ends_at = None;
        }
        self.metrics.share_latency();
        Ok(())
    }

    /// Opens the window if it is to be opened, but not before the first request is sent or, on a
    /// schedule, due: requests that wait for the first connections are queued, and count.
    #[inline]
    fn open_window(&mut self, clock: &ThreadCpuClock) -> io::Result<()> {
        if self.opens_window { self.try_open_window(clock) } else { Ok(()) }
    }

    #[cold]
    fn try_open_window(&mut self, clock: &ThreadCpuClock) -> io::Result<()> {
        self.now = Instant::now();
        let has_started = self.is_sending || !self.source.is_closed_loop();
        if self.now >= self.control.start && has_started {
            self.metrics.open_window(self.now, clock, &self.control.window_start)?;
            self.opens_window = false;
            let begin = self.control.window_start.get().copied().unwrap_or(self.now);
            self.ends_at = self.plan.length().map(|length| begin + length);
            if let Some(end) = self.ends_at {
                self.next_timeout_check = self.next_timeout_check.min(end);
            }
            if let Some(end) = self.metrics.interval_end() {
                self.next_timeout_check = self.next_timeout_check.min(end);
            }
        }
        Ok(())
    }

    fn process_event(&mut self, index: usize, event: PollEvent, buffer: &mut [u8]) {
        if event.token != self.token(index) {
            // A connection that was replaced.
            return self.on_closing_event(event, buffer);
        }
        let is_readable = event.is_readable() || event.is_closed();
        match &mut self.connections[index].state {
            State::Connecting(_) => {
                // Before the event is recorded, which may send and consume the error of the connect.
                self.on_connect_result(index);
                if event.token == self.token(index)
                    && let State::Open(stream) = &mut self.connections[index].state
                {
                    stream.transport.on_event(event);
                    if is_readable {
                        self.receive(index, buffer);
                    }
                }
            }
            State::Open(stream) => {
                stream.transport.on_event(event);
                // Most events of a connection that once waited for room report it.
                if event.is_writable() && self.connections[index].has_unsent() {
                    self.send(index);
                }
                if is_readable {
                    self.receive(index, buffer);
                }
            }
            State::AwaitingTickets(stream) => {
                stream.transport.on_event(event);
                // An error is as good as the server's close.
                if is_readable && (stream.has_ended(buffer) || stream.has_tickets()) {
                    self.force_close(index);
                }
            }
            State::Closed | State::RetryWait => {}
        }
    }

    fn token(&self, index: usize) -> u64 {
        let serial = self.connections[index].serial;
        EventSource::Upstream(ConnectionId { key: index, serial }).token()
    }

    /// Sleeps if coalescing asks for it. Returns how long the poller may wait then.
    fn wait_before_poll(&mut self) -> Duration {
        if let Some(coalescing) = &self.coalescing
            && !self.has_more()
        {
            let pause = coalescing.pause();
            if !pause.is_zero() {
                thread::sleep(pause);
            }
        }
        self.poll_timeout()
    }

    /// Longest wait of the poller: until the next request is due or the next timeout is checked.
    fn poll_timeout(&mut self) -> Duration {
        if self.plan.clients.busy_poll || self.has_more() {
            return Duration::ZERO;
        }
        if self.source.is_closed_loop() {
            return self.next_timeout_check.saturating_duration_since(self.now);
        }
        let now = Instant::now();
        let left = self.next_timeout_check.saturating_duration_since(now);
        let is_idle = self.in_flight == 0;
        match self.source.next_due() {
            Some(due) => self.request_wait.timeout(due, now, is_idle).min(left),
            None => left,
        }
    }

    /// True if there is work that needs no event.
    fn has_more(&self) -> bool {
        let is_starting = self.started < self.connections.len();
        let has_work = is_starting || self.budget.is_spent() || !self.unread.is_empty();
        has_work || self.source.has_ready()
    }

    /// Counts the CPU time since the last turn as polling if neither turn waited nor had work.
    fn count_polling(&mut self, timeout: Duration) {
        let is_idle = timeout.is_zero() && self.budget == Budget::TURN && self.unread.is_empty();
        if !is_idle {
            return self.idle_polling.busy_turn();
        }
        self.metrics.polled(self.idle_polling.idle_turn());
        if self.plan.clients.busy_poll {
            yield_cpu();
        }
    }

    fn finish(mut self, clock: &ThreadCpuClock) -> io::Result<ThreadSummary> {
        let now = Instant::now();
        for connection in &self.connections {
            self.metrics.disconnected(connection.tls());
        }
        for stream in self.closing.streams() {
            self.metrics.disconnected(stream.transport.session());
        }
        let unsent = self.source.unsent(now);
        let ages = self.connections.iter().flat_map(|connection| connection.ages(now));
        self.metrics.finish(now, clock, ages, unsent)
    }
}
