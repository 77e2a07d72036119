//! The event loop of a thread: waits for events and times, and gives clients their turns.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tollgate_net::{
    Acceptor, ArrivalCoalescing, EventSource, Events, Interest, PeakMemory, PollEvent, Poller,
    Sweep, minimize_timer_slack, time_until_first,
};

use super::exchange::{Exchange, Next, Stage};
use super::keys::{Arena, ExchangeId, ExchangeKey, Key as _, ListenerKey, UpstreamKey};
use super::link::Link;
use super::shared::Shared;
use super::transaction::{BackendState, Transaction};
use super::upstreams::{Grant, Work, upstream_token};
use crate::command::CommandQueue;
use crate::config::Timeouts;
use crate::counters::Counters;
use crate::firewall::Inspector;
use crate::generation::ConfigGeneration;
use crate::listener::ThreadListener;

const EVENTS_PER_WAIT: usize = 256;
/// Longest time that a client waits for its last response without being registered with the poller, so that its
/// disconnection goes unnoticed.
const UNWATCHED_MAX: Duration = Duration::from_millis(5);
/// Steps of one client before others have their turns; each moves at most one read's bytes.
const STEPS_PER_TURN: usize = 16;

/// One thread of a gateway: its poller, its clients, and the times at which it acts.
pub(crate) struct Worker {
    pub(super) poller: Poller,
    pub(super) commands: Arc<CommandQueue>,
    pub(super) exchanges: Arena<ExchangeKey, Exchange>,
    pub(super) shared: Shared,
    /// Clients to be registered with the poller at a time, unless they are gone by then.
    pub(super) unwatched: VecDeque<(Instant, ExchangeId)>,
    /// Idle clients to close at the limit of connections, the longest idle first, each with its deadline when it was
    /// listed. Clients that are no longer idle are skipped.
    pub(super) reclaimable: VecDeque<(Instant, ExchangeId)>,
    pub(super) next_sweep: Sweep,
    /// When a drain begins.
    pub(super) drains_at: Option<Instant>,
    pub(super) acceptor: Acceptor,
    pub(super) coalescing: ArrivalCoalescing,
    memory: PeakMemory,
}

impl Worker {
    pub(crate) fn new(
        listeners: Vec<ThreadListener>,
        generation: Arc<ConfigGeneration>,
        counters: Arc<Counters>,
        commands: Arc<CommandQueue>,
        thread: usize,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(commands.waker(), EventSource::Waker.token(), Interest::Readable)?;
        let inspector = Inspector::new(thread, commands.waker().clone());
        let shared = Shared::new(generation, counters, thread, inspector);
        let now = shared.now;
        let mut worker = Self {
            poller,
            commands,
            exchanges: Arena::default(),
            shared,
            unwatched: VecDeque::new(),
            reclaimable: VecDeque::new(),
            next_sweep: Sweep::new([], now),
            drains_at: None,
            acceptor: Acceptor::default(),
            coalescing: ArrivalCoalescing::new(now),
            memory: PeakMemory::default(),
        };
        worker.next_sweep = Sweep::new(worker.timeouts_in_use(), now);
        listeners.into_iter().try_for_each(|listener| worker.add_listener(listener))?;
        Ok(worker)
    }

    /// Serves until drained.
    pub(crate) fn run(mut self) -> io::Result<()> {
        minimize_timer_slack()?;
        let mut events = Events::with_capacity(EVENTS_PER_WAIT);
        let is_over = |worker: &Self, by| worker.shared.now >= by || !worker.has_connections();
        while self.shared.stop_by.is_none_or(|by| !is_over(&self, by)) {
            let timeout = self.timeout();
            self.run_once(&mut events, timeout)?;
        }
        self.abort_clients();
        Ok(())
    }

    /// False once all clients are gone and all listeners are closed.
    fn has_connections(&self) -> bool {
        !self.exchanges.is_empty() || self.acceptor.open().next().is_some()
    }

    /// Waits for events once and handles them. Returns false if there was nothing to do.
    pub(crate) fn run_once(
        &mut self,
        events: &mut Events,
        timeout: Option<Duration>,
    ) -> io::Result<bool> {
        self.wait(events, timeout)?;
        self.shared.now = Instant::now();
        let has_more = !self.shared.ready.is_empty();
        // All events are recorded before one is handled, so that no request is sent on a backend connection that has
        // ended or received unexpected bytes.
        for event in events.iter() {
            self.record_event(event);
        }
        // A new configuration applies to every request that follows it, and a new connection waits for the earlier ones.
        if events.iter().any(|event| EventSource::of_token(event.token) == EventSource::Waker) {
            self.process_commands()?;
        }
        for event in events.iter() {
            self.handle_event(event);
        }
        for event in events.iter() {
            if let EventSource::Listener(index) = EventSource::of_token(event.token) {
                self.accept_ready(ListenerKey::new(index))?;
            }
        }
        self.deliver_grants();
        for _ in 0..self.shared.ready.len() {
            let Some(client) = self.shared.ready.pop_front() else { break };
            if self.is_connected(client) {
                self.turn(client.key);
            }
        }
        self.flush_http2();
        self.check_timers()?;
        self.deliver_grants();
        self.flush_logs();
        Ok(has_more || events.iter().next().is_some())
    }

    /// Returns the time until the next deadline.
    fn timeout(&self) -> Option<Duration> {
        let Self { shared, exchanges, .. } = self;
        if !shared.ready.is_empty() || shared.http2.needs_flush() {
            return Some(Duration::ZERO);
        }
        let needs_sweep = !exchanges.is_empty() || !shared.upstreams.connections().is_empty();
        let watch_at = self.unwatched.front().map(|(at, _)| *at);
        let sweep_at = needs_sweep.then_some(self.next_sweep.at());
        let times =
            [sweep_at, self.acceptor.resumes_at(), shared.stop_by, watch_at, self.drains_at];
        time_until_first(times, shared.now)
    }

    fn check_timers(&mut self) -> io::Result<()> {
        let now = self.shared.now;
        if self.next_sweep.is_due(now) {
            self.next_sweep = Sweep::new(self.timeouts_in_use(), now);
            self.sweep();
        }
        if self.drains_at.is_some_and(|at| at <= now) {
            self.drains_at = None;
            self.drain()?;
        }
        self.resume_accepting()?;
        while let Some((at, client)) = self.unwatched.front().copied()
            && (at <= now || !self.is_connected(client))
        {
            self.unwatched.pop_front();
            if self.is_connected(client) {
                self.watch(client.key);
            }
        }
        Ok(())
    }

    /// Timeouts that a sweep enforces, of all configurations in use.
    pub(super) fn timeouts_in_use(&self) -> impl Iterator<Item = Duration> {
        self.shared.upstreams.generations().flat_map(|generation| {
            let config = &generation.shared.config;
            // The end of a drain has its own timer.
            let of_routes = config.routes.iter().filter_map(|route| route.timeouts);
            let rules = config.routes.iter().filter_map(|route| route.verdicts.as_ref());
            let of_bodies = rules.filter_map(|rules| rules.body_time);
            let timeouts = of_routes.chain([config.timeouts]).flat_map(|timeouts| {
                let Timeouts { connect, header, body, response, abandoned, .. } = timeouts;
                let Timeouts { stream, idle, tunnel, .. } = timeouts;
                [connect, header, body, response, abandoned, stream, idle, tunnel]
            });
            let of_pools = config.pools.iter().flat_map(|pool| {
                let given = [pool.keepalive_timeout, pool.retry_pause];
                std::iter::once(pool.queue_timeout).chain(given.into_iter().flatten())
            });
            timeouts.chain(of_pools).chain(of_bodies)
        })
    }

    /// Handles all expired deadlines.
    pub(super) fn sweep(&mut self) {
        let now = self.shared.now;
        let is_late = |exchange: &Exchange| exchange.is_late(now);
        for key in self.exchanges.keys(is_late) {
            // The end of one transaction may have ended others or moved their deadlines.
            if !self.exchanges.get(key).is_some_and(is_late) {
                continue;
            }
            let next = match self.exchanges[key].stage {
                Stage::Http2(connection) => self.time_out_http2(key, connection),
                _ => self.exchanges[key].time_out(&mut self.shared),
            };
            self.continue_turn(key, next);
        }
        let Shared { inspector, counters, .. } = &mut self.shared;
        inspector.end_expired(&counters.waiting, now);
        self.shared.upstreams.serve_queues(now);
        self.shared.close_idle_if(|upstream| upstream.idle_until <= now);
        self.exchanges.values().for_each(|exchange| exchange.count_bytes(&self.shared));
        self.shared.http2.shrink();
        let held_bytes: usize = self.exchanges.values().map(Exchange::held_bytes).sum();
        self.memory.observe(held_bytes + self.shared.http2.held_bytes());
    }

    fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        let pause = self.coalescing.pause(self.exchanges.len(), self.shared.now);
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

    fn record_event(&mut self, event: PollEvent) {
        match EventSource::of_token(event.token) {
            EventSource::Downstream(id) => {
                let id = ExchangeId::of(id);
                if let Some(exchange) = self.exchanges.get_mut(id.key)
                    && exchange.id == id
                    && let Some(transport) = exchange.client.transport()
                {
                    transport.on_event(event);
                }
            }
            EventSource::Upstream(id) => {
                let key = UpstreamKey::new(id.key);
                if let Some(upstream) = self.shared.upstreams.connections_mut().get_mut(key)
                    && upstream.serial == id.serial
                    && let Link::Connection(transport) = &mut upstream.link
                {
                    transport.on_event(event);
                    if upstream.work == Work::Idle
                        && transport.is_readable()
                        && (!transport.is_tls() || !upstream.is_quiet())
                    {
                        self.shared.upstreams.learn_from_close(key, self.shared.now);
                        self.shared.close_idle(key);
                    }
                }
            }
            EventSource::Waker | EventSource::Listener(_) => {}
        }
    }

    /// Handles an event of a connection.
    fn handle_event(&mut self, event: PollEvent) {
        match EventSource::of_token(event.token) {
            EventSource::Upstream(id) => {
                let key = UpstreamKey::new(id.key);
                let upstream = self.shared.upstreams.connections().get(key);
                let upstream = upstream.filter(|upstream| upstream.serial == id.serial);
                let work = upstream.map(|upstream| upstream.work);
                match work {
                    Some(Work::Carries(connection)) => self.shared.read_backend(key, connection),
                    Some(Work::Serves(client)) => self.turn(client.key),
                    Some(Work::Idle) | None => {}
                }
            }
            EventSource::Downstream(id) => {
                let id = ExchangeId::of(id);
                if let Some(exchange) = self.exchanges.get_mut(id.key)
                    && exchange.id == id
                {
                    let transport = exchange.client.transport();
                    let is_closed = transport.is_some_and(|transport| transport.is_closed());
                    // The last bytes of a tunnel are still forwarded.
                    let is_tunnel = exchange.transaction().is_some_and(Transaction::is_tunnel);
                    let is_reading = matches!(exchange.stage, Stage::ReadHead);
                    let is_gone = is_closed && !is_reading && !is_tunnel;
                    if is_gone || exchange.check_departure(&mut self.shared) == Next::Close {
                        self.remove(id.key);
                    } else {
                        self.turn(id.key);
                    }
                }
            }
            EventSource::Waker | EventSource::Listener(_) => {}
        }
    }

    /// Tells clients that there is room for their requests. They continue after the turn of the client whose room they
    /// take.
    fn deliver_grants(&mut self) {
        while let Some(Grant { client, place }) = self.shared.upstreams.next_grant() {
            let is_same = |exchange: &&mut Exchange| exchange.id == client;
            let exchange = self.exchanges.get_mut(client.key).filter(is_same);
            match exchange.map(|exchange| &mut exchange.stage) {
                Some(Stage::Transaction(transaction))
                    if matches!(transaction.backend, BackendState::Queued { .. }) =>
                {
                    let (pool, backend) = (place.pool, place.backend);
                    transaction.backend = BackendState::Reserved { pool, backend };
                    self.shared.ready.push_back(client);
                }
                _ => {
                    self.shared.report_bug("a client that does not wait gets room on a backend");
                    self.shared.release(place);
                }
            }
        }
    }

    pub(super) fn is_connected(&self, client: ExchangeId) -> bool {
        self.exchanges.get(client.key).is_some_and(|exchange| exchange.id == client)
    }

    /// Gives a client its turn: steps until it would block.
    pub(super) fn turn(&mut self, key: ExchangeKey) {
        for _ in 0..STEPS_PER_TURN {
            let next = match self.exchanges[key].stage {
                Stage::Http2(connection) => self.serve_http2(key, connection),
                _ => self.exchanges[key].step(&mut self.shared),
            };
            match next {
                Next::Continue => self.flush_if_full(key),
                Next::Wait => {
                    let client = &mut self.exchanges[key].client;
                    if client.reserved_bytes > 0 && client.unsent.is_empty() {
                        self.shared.release_reserved(client);
                    }
                    return self.watch_later(key);
                }
                Next::Close => return self.remove(key),
            }
        }
        self.shared.ready.push_back(self.exchanges[key].id);
        self.watch(key);
    }

    /// Continues after a step that was taken outside a turn.
    pub(super) fn continue_turn(&mut self, key: ExchangeKey, next: Next) {
        match next {
            Next::Close => self.remove(key),
            Next::Continue | Next::Wait => self.turn(key),
        }
    }

    /// Registers a waiting client with the poller, but a client that waits for its last response only after a moment:
    /// registering costs more than forwarding.
    pub(super) fn watch_later(&mut self, key: ExchangeKey) {
        let exchange = &mut self.exchanges[key];
        if !exchange.can_stay_unwatched() {
            return self.watch(key);
        }
        if !exchange.is_unwatched {
            exchange.is_unwatched = true;
            self.unwatched.push_back((self.shared.now + UNWATCHED_MAX, exchange.id));
        }
        if self.try_watch_upstream(key).is_err() {
            self.remove(key);
        }
    }

    /// Registers a client and its backend connection with the poller. If the kernel has no memory for that, closes the
    /// client.
    pub(super) fn watch(&mut self, key: ExchangeKey) {
        let exchange = &mut self.exchanges[key];
        let has_unsent = match exchange.stage {
            Stage::Http2(connection) => self.shared.http2.is_blocked(connection),
            _ => !exchange.client.unsent.is_empty(),
        };
        let watched = match &mut exchange.client.link {
            Link::Connection(transport) => {
                transport.watch(&self.poller, exchange.id.token(), has_unsent)
            }
            Link::Stream(_) => Ok(()),
        };
        if watched.and_then(|()| self.try_watch_upstream(key)).is_err() {
            self.remove(key);
        }
    }

    fn try_watch_upstream(&mut self, key: ExchangeKey) -> io::Result<()> {
        if let Some(transaction) = self.exchanges[key].transaction()
            && let BackendState::Assigned(at) = transaction.backend
        {
            let upstream = &mut self.shared.upstreams[at];
            let token = upstream_token(at, upstream.serial);
            let has_unsent = !transaction.request_buffer.is_sent();
            if let Link::Connection(transport) = &mut upstream.link {
                transport.watch(&self.poller, token, has_unsent)?;
            }
        }
        Ok(())
    }

    /// Removes a client with its transaction.
    pub(super) fn remove(&mut self, key: ExchangeKey) {
        if let Stage::Http2(connection) = self.exchanges[key].stage {
            self.abort_http2(key, connection);
        }
        let exchange = self.exchanges.remove(key);
        self.memory.freed(exchange.held_bytes());
        let peer = exchange.client.peer;
        if let Some(stream) = exchange.close(&mut self.shared) {
            return self.release_stream(&stream);
        }
        self.shared.discount(peer);
        self.acceptor.end_pause(self.shared.now);
    }
}
