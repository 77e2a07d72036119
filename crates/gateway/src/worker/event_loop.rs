//! The event loop of a thread: waits for events, gives clients their turns, and enforces deadlines.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use tollgate_net::{Event, Events, minimize_timer_slack};

use super::accept::Accepted;
use super::downstream::{Downstream, HeadRead};
use super::link::Link;
use super::transaction::{ResponseState, Transaction};
use super::{ClientId, Source, Stage, Step, Worker, connection_token, source};
use crate::command::Command;
use crate::config::Timeouts;
use crate::local_response::{LocalResponse, Reason};

const EVENTS_PER_WAIT: usize = 256;
/// Connections accepted from a listener before others have their turns.
const ACCEPTS_PER_EVENT: usize = 64;
/// Likewise for a closing listener.
const ACCEPTS_BEFORE_CLOSE: usize = 65_536;
/// Longest time that a client waits for its last response without being registered with the poller, so that its
/// disconnection goes unnoticed.
const UNWATCHED_MAX: Duration = Duration::from_millis(5);
/// Steps of one client before others have their turns; each moves at most one read's bytes.
const STEPS_PER_TURN: usize = 16;

const SWEEP_MIN: Duration = Duration::from_millis(10);
pub(super) const SWEEP_MAX: Duration = Duration::from_secs(1);

impl Worker {
    /// Serves until drained.
    pub(crate) fn run(mut self) -> io::Result<()> {
        minimize_timer_slack()?;
        let mut events = Events::with_capacity(EVENTS_PER_WAIT);
        while self.stop_by.is_none_or(|by| self.now < by && self.has_connections()) {
            let timeout = self.timeout();
            self.run_once(&mut events, timeout)?;
        }
        self.abort_clients();
        Ok(())
    }

    /// False once all clients are gone and all listeners are closed.
    fn has_connections(&self) -> bool {
        !self.clients.is_empty() || self.listeners.iter().any(|it| it.socket.is_some())
    }

    /// Waits for events once and handles them. Returns false if there was nothing to do.
    pub(crate) fn run_once(
        &mut self,
        events: &mut Events,
        timeout: Option<Duration>,
    ) -> io::Result<bool> {
        self.wait(events, timeout)?;
        self.now = Instant::now();
        let has_more = !self.ready.is_empty();
        // All events are recorded before one is handled, so that no request is sent on a backend connection that has
        // ended or received unexpected bytes.
        for event in events.iter() {
            self.record_event(event);
        }
        // A new configuration applies to every request that follows it, and a new connection waits for the earlier ones.
        if events.iter().any(|event| matches!(source(event.token), Source::Commands)) {
            self.process_commands()?;
        }
        for event in events.iter() {
            self.handle_event(event);
        }
        for event in events.iter() {
            if let Source::Listener(index) = source(event.token) {
                self.accept(index, ACCEPTS_PER_EVENT)?;
            }
        }
        for _ in 0..self.ready.len() {
            let Some(client) = self.ready.pop_front() else { break };
            if self.is_connected(client) {
                self.turn(client.key);
            }
        }
        self.flush_http2();
        self.check_timers()?;
        self.flush_logs();
        Ok(has_more || events.iter().next().is_some())
    }

    fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        let pause = self.coalescing.pause(self.clients.len(), self.now);
        if pause.is_zero() || timeout == Some(Duration::ZERO) {
            return self.poller.wait(events, timeout);
        }
        self.poller.wait(events, Some(Duration::ZERO))?;
        if events.iter().next().is_none() {
            thread::sleep(pause);
            self.poller.wait(events, timeout)?;
        }
        Ok(())
    }

    /// Returns the time until the next deadline.
    fn timeout(&self) -> Option<Duration> {
        if !self.ready.is_empty() || self.http2.needs_flush() {
            return Some(Duration::ZERO);
        }
        let needs_sweep = !self.clients.is_empty() || !self.upstreams.is_empty();
        let watch_at = self.unwatched.front().map(|(at, _)| *at);
        [needs_sweep.then_some(self.sweep_at), self.accept_again_at, self.stop_by, watch_at]
            .into_iter()
            .flatten()
            .min()
            .map(|at| at.saturating_duration_since(self.now))
    }

    fn record_event(&mut self, event: Event) {
        match source(event.token) {
            Source::Client(client) => {
                if let Some(it) = self.clients.get_mut(client.key)
                    && it.serial == client.serial
                    && let Some(transport) = it.transport()
                {
                    transport.on_event(event);
                }
            }
            Source::Upstream { key, serial } => {
                if let Some(upstream) = self.upstreams.get_mut(key)
                    && upstream.serial == serial
                    && let Link::Connection(transport) = &mut upstream.link
                {
                    transport.on_event(event);
                    if upstream.client.is_none()
                        && upstream.http2.is_none()
                        && transport.is_readable()
                        && (!transport.is_tls() || !self.is_quiet(key))
                    {
                        self.close_idle(key);
                    }
                }
            }
            Source::Commands | Source::Listener(_) => {}
        }
    }

    /// Handles an event of a connection.
    fn handle_event(&mut self, event: Event) {
        match source(event.token) {
            Source::Upstream { key, serial } => {
                if let Some(upstream) = self.upstreams.get(key)
                    && upstream.serial == serial
                {
                    match (upstream.http2, upstream.client) {
                        (Some(connection), _) => self.read_backend(key, connection),
                        (None, Some(client)) => self.turn(client),
                        (None, None) => {}
                    }
                }
            }
            Source::Client(client) => {
                if let Some(it) = self.clients.get_mut(client.key)
                    && it.serial == client.serial
                {
                    let is_closed = it.transport().is_some_and(|transport| transport.is_closed());
                    // The last bytes of a tunnel are still forwarded.
                    let is_tunnel = it.transaction.as_ref().is_some_and(Transaction::is_tunnel);
                    let is_gone = is_closed && it.stage != Stage::ReadHead && !is_tunnel;
                    if is_gone || self.check_departure(client.key) == Step::Close {
                        self.remove_client(client.key);
                    } else {
                        self.turn(client.key);
                    }
                }
            }
            Source::Commands | Source::Listener(_) => {}
        }
    }

    fn process_commands(&mut self) -> io::Result<()> {
        for command in self.commands.take()? {
            match command {
                Command::Reload { generation, added } => {
                    for index in self.reload(&generation, added)? {
                        self.close_listener(index)?;
                    }
                }
                Command::Resume(id, verdict) => {
                    self.filter.take_back();
                    if let Some(step) = self.resume(id, verdict) {
                        self.continue_turn(id.client, step);
                    }
                }
                Command::Drain if self.stop_by.is_none() => self.drain()?,
                Command::Drain => {}
            }
        }
        Ok(())
    }

    /// Closes listeners and idle connections.
    fn drain(&mut self) -> io::Result<()> {
        self.stop_by = Some(self.now + self.timeouts.drain);
        (0..self.listeners.len()).try_for_each(|index| self.close_listener(index))?;
        let keys: Vec<usize> = self.clients.iter().map(|(key, _)| key).collect();
        for key in keys {
            // The turn of one client may have ended others.
            let Some(client) = self.clients.get_mut(key) else { continue };
            match client.stage {
                Stage::ReadHead => {
                    if let Some(transport) = client.transport() {
                        transport.assume_readable();
                    }
                    self.turn(key);
                }
                Stage::Http2(connection) => self.announce_end(key, connection),
                _ => {}
            }
        }
        self.close_idle_if(|_| true);
        self.log_drain();
        Ok(())
    }

    /// Accepts connections and gives each its first turn at once: most have sent their request.
    fn accept(&mut self, index: usize, max: usize) -> io::Result<()> {
        let mut accepted = 0;
        for _ in 0..max {
            match self.accept_one(index)? {
                Accepted::Client(key) => {
                    accepted += 1;
                    self.turn(key);
                }
                Accepted::Refused => {}
                Accepted::Nothing => break,
            }
        }
        self.coalescing.record(accepted, self.now);
        Ok(())
    }

    /// Closes a listener once all its queued connections are accepted.
    fn close_listener(&mut self, index: usize) -> io::Result<()> {
        self.start_closing(index)?;
        if self.accept_again_at.is_none() {
            self.accept(index, ACCEPTS_BEFORE_CLOSE)?;
        }
        Ok(())
    }

    fn resume_accepting(&mut self) -> io::Result<()> {
        self.accept_again_at = None;
        for index in 0..self.listeners.len() {
            if self.listeners[index].is_closing {
                self.accept(index, ACCEPTS_BEFORE_CLOSE)?;
            }
        }
        // These may have paused accepting again.
        if self.accept_again_at.is_none() { self.watch_listeners() } else { Ok(()) }
    }

    /// Gives a client its turn: steps until it would block.
    pub(super) fn turn(&mut self, key: usize) {
        for _ in 0..STEPS_PER_TURN {
            match self.step(key) {
                Step::Continue => {}
                Step::Wait => return self.watch_later(key),
                Step::Close => return self.remove_client(key),
            }
        }
        self.ready.push_back(ClientId { key, serial: self.clients[key].serial });
        self.watch(key);
    }

    fn step(&mut self, key: usize) -> Step {
        match self.clients[key].stage {
            Stage::ReadHead => match self.read_head(key) {
                HeadRead::Step(step) => step,
                HeadRead::Request { cached, verdict, start, end } => {
                    self.begin(key, &cached, verdict, start, end)
                }
            },
            Stage::Transaction => self.forward(key),
            Stage::Http2(connection) => self.serve_http2(key, connection),
            Stage::Finish { lingers, .. } => self.finish_client(key, lingers),
            Stage::Linger { until } => self.linger(key, until),
        }
    }

    /// Continues after a step that was taken outside a turn.
    pub(super) fn continue_turn(&mut self, key: usize, step: Step) {
        match step {
            Step::Close => self.remove_client(key),
            Step::Continue | Step::Wait => self.turn(key),
        }
    }

    /// Registers a waiting client with the poller, but a client that waits for its last response only after a moment:
    /// registering costs more than forwarding.
    fn watch_later(&mut self, key: usize) {
        let client = &mut self.clients[key];
        if !client.can_stay_unwatched() {
            return self.watch(key);
        }
        if !client.is_unwatched {
            client.is_unwatched = true;
            let id = ClientId { key, serial: client.serial };
            self.unwatched.push_back((self.now + UNWATCHED_MAX, id));
        }
        if self.try_watch_upstream(key).is_err() {
            self.remove_client(key);
        }
    }

    /// Registers a client and its backend connection with the poller. If the kernel has no memory for that, closes the
    /// client.
    pub(super) fn watch(&mut self, key: usize) {
        let client = &mut self.clients[key];
        let token = connection_token(false, key, client.serial);
        let has_unsent = match client.stage {
            Stage::Http2(connection) => self.http2.is_blocked(connection),
            _ => !client.unsent.is_empty(),
        };
        let watched = match &mut client.link {
            Link::Connection(transport) => transport.watch(&self.poller, token, has_unsent),
            Link::Stream(_) => Ok(()),
        };
        if watched.and_then(|()| self.try_watch_upstream(key)).is_err() {
            self.remove_client(key);
        }
    }

    fn try_watch_upstream(&mut self, key: usize) -> io::Result<()> {
        let Some(transaction) = &self.clients[key].transaction else {
            return Ok(());
        };
        if let Some(at) = transaction.upstream {
            let upstream = &mut self.upstreams[at];
            let token = connection_token(true, at, upstream.serial);
            let has_unsent = !transaction.request_buffer.is_sent();
            if let Link::Connection(transport) = &mut upstream.link {
                transport.watch(&self.poller, token, has_unsent)?;
            }
        }
        Ok(())
    }

    fn check_timers(&mut self) -> io::Result<()> {
        if self.now >= self.sweep_at {
            self.sweep_at = self.now + self.sweep_period();
            self.sweep();
        }
        if self.accept_again_at.is_some_and(|at| self.now >= at) {
            self.resume_accepting()?;
        }
        while let Some((at, client)) = self.unwatched.front().copied()
            && (at <= self.now || !self.is_connected(client))
        {
            self.unwatched.pop_front();
            if self.is_connected(client) {
                self.watch(client.key);
            }
        }
        Ok(())
    }

    /// Time between two checks of all deadlines: a quarter of the shortest timeout in use.
    pub(super) fn sweep_period(&self) -> Duration {
        let timeouts = self.generations.iter().flat_map(|(_, generation)| {
            let config = &generation.shared.config;
            // The end of a drain has its own timer.
            let Timeouts { connect, header, body, response, abandoned, idle, tunnel, .. } =
                config.timeouts;
            let queues = config.pools.iter().map(|pool| pool.queue_timeout);
            [connect, header, body, response, abandoned, idle, tunnel].into_iter().chain(queues)
        });
        (timeouts.min().unwrap_or(SWEEP_MAX) / 4).clamp(SWEEP_MIN, SWEEP_MAX)
    }

    /// Handles all expired deadlines.
    pub(super) fn sweep(&mut self) {
        let now = self.now;
        let is_late = |client: &Downstream| client.is_late(now);
        let late: Vec<usize> = self
            .clients
            .iter()
            .filter_map(|(key, client)| is_late(client).then_some(key))
            .collect();
        for key in late {
            // The end of one transaction may have ended others or moved their deadlines.
            if self.clients.get(key).is_some_and(is_late) {
                let step = self.handle_timeout(key);
                self.continue_turn(key, step);
            }
        }
        self.serve_queues();
        self.close_idle_if(|upstream| upstream.idle_until <= now);
        self.clients.iter().for_each(|(key, _)| self.count_bytes(key));
        self.http2.shrink();
    }

    fn handle_timeout(&mut self, key: usize) -> Step {
        let client = &mut self.clients[key];
        if let Some(transaction) = &mut client.transaction
            && client.deadline > self.now
        {
            // The time of an abandoned request starts with its end.
            if transaction.is_sent() || transaction.suspended.is_some() {
                return Step::Close;
            }
            transaction.abandoned_until = Some(self.now + self.timeouts.abandoned);
            return Step::Wait;
        }
        let client = &self.clients[key];
        let transaction = match (client.stage, &client.transaction) {
            (Stage::Http2(connection), _) => return self.time_out_http2(key, connection),
            (Stage::ReadHead, _) if !client.unread.is_empty() => {
                self.reject(key, None, &LocalResponse::error(Reason::HeadTimeout));
                return Step::Continue;
            }
            (Stage::Transaction, Some(transaction)) => transaction,
            _ => return Step::Close,
        };
        let is_head_missing = matches!(transaction.response, ResponseState::Head);
        if transaction.is_request_held {
            return self.respond(key, &LocalResponse::error(Reason::BodyTimeout));
        }
        if transaction.can_respond() && (transaction.suspended.is_some() || !is_head_missing) {
            let reason = if transaction.suspended.is_some() {
                Reason::FilterTimeout
            } else {
                self.record_upstream_failure(key, "a response stalled");
                Reason::ResponseTimeout
            };
            return self.respond(key, &LocalResponse::error(reason));
        }
        if !is_head_missing {
            if client.waits_for_response_body() {
                self.record_upstream_failure(key, "a response stalled");
            }
            return Step::Close;
        }
        let Some(at) = transaction.upstream else {
            let config = &self.generations[transaction.generation].shared.config;
            let queue_timeout = config.pools[transaction.pool].queue_timeout;
            return self
                .respond(key, &LocalResponse::unavailable(Reason::QueueTimeout, queue_timeout));
        };
        if self.upstreams[at].is_connecting {
            let assigned = self.retry(key, Reason::ConnectTimeout);
            return self.or_respond(key, assigned);
        }
        // The backend does not respond, or takes no more of the request.
        if transaction.request_body.is_done() || !transaction.request_buffer.is_sent() {
            self.record_upstream_failure(key, "no response in time");
            return self.respond(key, &LocalResponse::error(Reason::ResponseTimeout));
        }
        self.respond(key, &LocalResponse::error(Reason::BodyTimeout))
    }
}
