//! One thread of a gateway: its listeners, its clients and its connections to backends.

mod answers;
mod backends;
mod books;
mod clients;
mod drain;
mod heads;
mod orders;
mod phases;
mod requests;
mod tunnels;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;
use tollgate_eventloop::{Event, Events, Interest, Poller, Waker, defer_accept, set_backlog};
use tollgate_ledger::{LogFile, ThreadLog};

use crate::config::{Address, Listener, Timeouts};
use crate::counters::Counters;
use crate::door::Door;
use crate::downstream::{Client, Stage};
use crate::orders::Orders;
use crate::phase::Inspector;
use crate::shortage::OnceAMinute;
use crate::site::{Plan, Site, Waiter};
use crate::tls::Identity;
use crate::tools::Tools;
use crate::upstream::Upstream;

/// The most events that one wait reports.
const EVENTS_A_WAIT: usize = 256;

/// The most connections that are accepted before the others have their turn.
const ACCEPTS_A_WAKE: usize = 64;

/// How long a client may wait for its last answer without the poller knowing it, and nobody notices that it has gone.
const UNWATCHED_MAX: Duration = Duration::from_millis(5);

/// How many steps one client's turn has before the others have theirs: each moves at most what one
/// read takes.
const STEPS_A_TURN: usize = 16;

/// One thread of a gateway.
pub(crate) struct Worker {
    poller: Poller,
    waker: Waker,
    orders: Arc<Orders>,
    /// Clients know them by their places, so that none is given to another.
    listeners: Vec<Listening>,
    clients: Slab<Client>,
    upstreams: Slab<Upstream>,
    sites: Slab<Site>,
    /// The configuration in force.
    site: usize,
    timeouts: Timeouts,
    tools: Tools,
    inspector: Option<Box<dyn Inspector>>,
    /// Those who have more to do though nothing happens on their sockets.
    ready: VecDeque<Waiter>,
    /// Those whom the poller is to know from a moment on, unless they are gone by then.
    unwatched: VecDeque<(Instant, Waiter)>,
    /// The number of the last connection, of either kind.
    serial: u32,
    counters: Arc<Counters>,
    /// Which thread it is, of all.
    index: usize,
    log: Option<ThreadLog>,
    /// The connections of each address, while there is a limit to them.
    per_client: HashMap<IpAddr, usize>,
    now: Instant,
    sweep_at: Instant,
    /// Set while nothing is accepted.
    accept_again_at: Option<Instant>,
    /// When something was left waiting last.
    paused_at: Option<Instant>,
    /// That something has run out.
    shortages_told: OnceAMinute,
    /// Set once told to stop.
    stop_by: Option<Instant>,
}

/// A listener of this thread.
#[derive(Debug)]
pub(crate) struct Listening {
    /// None: it was closed.
    pub(crate) socket: Option<Arc<OwnedFd>>,
    /// By which others know it.
    pub(crate) door: Arc<Door>,
    /// The thread's poller knows it, as it does unless the thread accepts nothing for a while.
    pub(crate) is_watched: bool,
    /// It is closed behind those who have arrived.
    pub(crate) is_closing: bool,
    /// The address that was asked for.
    pub(crate) address: Address,
    /// How many connections the kernel keeps that were not accepted yet.
    pub(crate) backlog: i32,
    /// What clients are shown over TLS. None: they speak in the clear.
    pub(crate) identity: Option<Identity>,
    /// What a client is taken to have asked for that names no host.
    pub(crate) own_host: String,
}

impl Listening {
    /// This socket, for what `listener` asks for.
    pub(crate) fn new(socket: Arc<OwnedFd>, listener: &Listener, own_host: String) -> Self {
        Self {
            door: Arc::new(Door::new(&socket)),
            socket: Some(socket),
            is_watched: false,
            is_closing: false,
            address: listener.address.clone(),
            backlog: listener.backlog(),
            identity: listener.tls.as_ref().map(|tls| tls.identity().clone()),
            own_host,
        }
    }

    /// Accepts from now on as `listener` asks, which is the one of this address in another configuration.
    fn adapt(&mut self, listener: &Listener) -> io::Result<()> {
        self.identity = listener.tls.as_ref().map(|tls| tls.identity().clone());
        self.backlog = listener.backlog();
        let Some(socket) = self.socket.as_ref().filter(|_| !self.is_closing) else {
            return Ok(());
        };
        set_backlog(socket, self.backlog)?;
        match self.address {
            Address::Tcp(_) => defer_accept(socket, listener.defer_accept),
            Address::Unix(_) => Ok(()),
        }
    }

    /// Whether it is the same socket.
    fn is(&self, other: &Self) -> bool {
        let sockets = self.socket.as_ref().zip(other.socket.as_ref());
        sockets.is_some_and(|(one, another)| Arc::ptr_eq(one, another))
    }
}

/// How a client goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// At once.
    On,
    /// When something happens on its socket or on its backend's, or at its deadline.
    Waits,
    /// It is over, and its connection is closed.
    Over,
}

impl Worker {
    pub(crate) fn new(
        listeners: Vec<Listening>,
        plan: Arc<Plan>,
        counters: Arc<Counters>,
        orders: Arc<Orders>,
        waker: Waker,
        index: usize,
        inspector: Option<Box<dyn Inspector>>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&waker, WAKER, Interest::Readable)?;
        let timeouts = plan.config.timeouts;
        let log = plan.log.as_ref().map(LogFile::of_thread);
        let mut sites = Slab::new();
        let site = sites.insert(Site::new(plan, index as u64));
        let now = Instant::now();
        let sweep_at = now + sweep_period(&sites);
        let mut worker = Self {
            poller,
            waker,
            orders,
            listeners: Vec::new(),
            clients: Slab::new(),
            upstreams: Slab::new(),
            sites,
            site,
            timeouts,
            tools: Tools::new(),
            inspector,
            ready: VecDeque::new(),
            unwatched: VecDeque::new(),
            serial: 0,
            counters,
            index,
            log,
            per_client: HashMap::new(),
            now,
            sweep_at,
            accept_again_at: None,
            paused_at: None,
            shortages_told: OnceAMinute::default(),
            stop_by: None,
        };
        listeners.into_iter().try_for_each(|listening| worker.listen(listening))?;
        Ok(worker)
    }

    /// Serves until told to stop, and finishes what is in flight.
    ///
    /// # Errors
    ///
    /// The poller's own.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_A_WAIT);
        while !self.stop_by.is_some_and(|by| self.is_through() || self.now >= by) {
            let timeout = self.timeout();
            self.turn_once(&mut events, timeout)?;
        }
        self.cut_off();
        Ok(())
    }

    /// Nobody is served, and nobody waits for that.
    fn is_through(&self) -> bool {
        self.clients.is_empty() && self.listeners.iter().all(|it| it.socket.is_none())
    }

    /// Waits once, and does what is to be done then. Says whether there was anything.
    pub(crate) fn turn_once(
        &mut self,
        events: &mut Events,
        timeout: Option<Duration>,
    ) -> io::Result<bool> {
        self.poller.wait(events, timeout)?;
        self.now = Instant::now();
        let has_more = !self.ready.is_empty();
        // All is noted before anything is done about it: a connection to a backend that has ended,
        // or has something to say that nobody asked for, is not given a request any more.
        for event in events.iter() {
            self.notice(event);
        }
        for event in events.iter() {
            self.turn_on_event(event)?;
        }
        for _ in 0..self.ready.len() {
            let Some(waiter) = self.ready.pop_front() else { break };
            if self.is_there(waiter) {
                self.turn(waiter.client)?;
            }
        }
        self.look_at_the_clock()?;
        self.flush_log();
        Ok(has_more || events.iter().next().is_some())
    }

    /// How long nothing is to be done unless an event comes.
    fn timeout(&self) -> Option<Duration> {
        if !self.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        let is_waited_for = !self.clients.is_empty() || !self.upstreams.is_empty();
        let watch_at = self.unwatched.front().map(|(at, _)| *at);
        [is_waited_for.then_some(self.sweep_at), self.accept_again_at, self.stop_by, watch_at]
            .into_iter()
            .flatten()
            .min()
            .map(|at| at.saturating_duration_since(self.now))
    }

    fn notice(&mut self, event: Event) {
        let Some(Side { is_upstream, key, serial }) = side(event.token) else {
            return;
        };
        if !is_upstream {
            if let Some(client) = self.clients.get_mut(key).filter(|it| it.serial == serial) {
                client.link.notice(event);
            }
        } else if let Some(upstream) = self.upstreams.get_mut(key)
            && upstream.serial == serial
        {
            upstream.link.notice(event);
            if upstream.client.is_none() && upstream.link.is_readable() {
                self.close_idle(key);
            }
        }
    }

    fn turn_on_event(&mut self, event: Event) -> io::Result<()> {
        match side(event.token) {
            None if event.token == WAKER => {
                self.waker.drain()?;
                self.obey()
            }
            None => self.accept((u64::MAX - 1 - event.token) as usize, ACCEPTS_A_WAKE),
            Some(Side { is_upstream: true, key, serial }) => match self.upstreams.get(key) {
                Some(upstream) if upstream.serial == serial => {
                    upstream.client.map_or(Ok(()), |client| self.turn(client))
                }
                _ => Ok(()),
            },
            Some(Side { is_upstream: false, key, serial }) => match self.clients.get(key) {
                Some(client) if client.serial == serial => {
                    if client.link.is_closed() && client.stage != Stage::Reading {
                        // There is nobody left to answer.
                        self.remove_client(key);
                        return Ok(());
                    }
                    self.turn(key)
                }
                _ => Ok(()),
            },
        }
    }

    /// Gives a client its turn, as far as it goes without waiting, and within bounds.
    fn turn(&mut self, key: usize) -> io::Result<()> {
        for _ in 0..STEPS_A_TURN {
            match self.step(key)? {
                Step::On => {}
                Step::Waits => {
                    self.watch_in_time(key);
                    return Ok(());
                }
                Step::Over => {
                    self.remove_client(key);
                    return Ok(());
                }
            }
        }
        self.ready.push_back(Waiter { client: key, serial: self.clients[key].serial });
        self.watch(key);
        Ok(())
    }

    fn step(&mut self, key: usize) -> io::Result<Step> {
        match self.clients[key].stage {
            Stage::Reading => self.read_request(key),
            Stage::Exchanging => self.go_on(key),
            Stage::Ending { lingers, .. } => Ok(self.end(key, lingers)),
            Stage::Lingering { until } => Ok(self.linger(key, until)),
        }
    }

    /// Has the poller tell of what is waited for; but of one whose answer is the last thing that
    /// happens to it only when that is not there in a moment: telling the poller costs more than forwarding does.
    fn watch_in_time(&mut self, key: usize) {
        let client = &mut self.clients[key];
        if !client.may_go_unwatched() {
            return self.watch(key);
        }
        if !client.is_to_be_watched {
            client.is_to_be_watched = true;
            let waiter = Waiter { client: key, serial: client.serial };
            self.unwatched.push_back((self.now + UNWATCHED_MAX, waiter));
        }
        if self.try_to_watch_upstream(key).is_err() {
            self.remove_client(key);
        }
    }

    /// Has the poller tell of what is waited for. For whom it cannot, as when the kernel has no memory for
    /// that, it is over; the others go on.
    fn watch(&mut self, key: usize) {
        if self.try_to_watch(key).is_err() {
            self.remove_client(key);
        }
    }

    fn try_to_watch(&mut self, key: usize) -> io::Result<()> {
        let client = &mut self.clients[key];
        let token = token(false, key, client.serial);
        let room = !client.unsent.is_empty();
        client.link.watch(&self.poller, token, room)?;
        self.try_to_watch_upstream(key)
    }

    fn try_to_watch_upstream(&mut self, key: usize) -> io::Result<()> {
        let Some(exchange) = &self.clients[key].exchange else {
            return Ok(());
        };
        if let Some(at) = exchange.upstream {
            let upstream = &mut self.upstreams[at];
            let room = !exchange.outgoing.is_sent();
            upstream.link.watch(&self.poller, token(true, at, upstream.serial), room)?;
        }
        Ok(())
    }

    fn is_there(&self, waiter: Waiter) -> bool {
        self.clients.get(waiter.client).is_some_and(|client| client.serial == waiter.serial)
    }

    fn next_serial(&mut self) -> u32 {
        self.serial = (self.serial + 1) & SERIAL_MASK;
        self.serial
    }

    fn watch_those_who_wait_on(&mut self) {
        while let Some((at, waiter)) = self.unwatched.front().copied()
            && (at <= self.now || !self.is_there(waiter))
        {
            self.unwatched.pop_front();
            if self.is_there(waiter) {
                self.watch(waiter.client);
            }
        }
    }

    fn look_at_the_clock(&mut self) -> io::Result<()> {
        if self.now >= self.sweep_at {
            self.sweep_at = self.now + sweep_period(&self.sites);
            self.sweep()?;
        }
        if self.accept_again_at.is_some_and(|at| self.now >= at) {
            self.accept_again()?;
        }
        self.watch_those_who_wait_on();
        Ok(())
    }
}

/// How often connections are looked through for those whose time is over: under one of these
/// configurations.
fn sweep_period(sites: &Slab<Site>) -> Duration {
    let shortest = sites.iter().flat_map(|(_, site)| {
        let config = &site.plan.config;
        // The end of a drain has a moment of its own.
        let Timeouts { connect, header, body, answer, idle, tunnel, drain: _ } = config.timeouts;
        let queues = config.pools.iter().map(|pool| pool.queue_timeout);
        [connect, header, body, answer, idle, tunnel].into_iter().chain(queues)
    });
    (shortest.min().unwrap_or(SWEEP_MAX) / 4).clamp(SWEEP_MIN, SWEEP_MAX)
}

const SWEEP_MIN: Duration = Duration::from_millis(10);
const SWEEP_MAX: Duration = Duration::from_secs(1);

/// What a token says of a connection.
struct Side {
    is_upstream: bool,
    key: usize,
    serial: u32,
}

const WAKER: u64 = u64::MAX;

/// One bit less than fits, so that no connection has the token of a listener.
const SERIAL_MASK: u32 = (1 << 30) - 1;

const KEY_BITS: u32 = 32;

fn token(is_upstream: bool, key: usize, serial: u32) -> u64 {
    (u64::from(serial) << (KEY_BITS + 1)) | ((key as u64) << 1) | u64::from(is_upstream)
}

/// None: it is that of a listener or of the waker.
fn side(token: u64) -> Option<Side> {
    let serial = (token >> (KEY_BITS + 1)) as u32;
    (serial <= SERIAL_MASK).then_some(Side {
        is_upstream: token & 1 == 1,
        key: ((token >> 1) & u64::from(u32::MAX)) as usize,
        serial,
    })
}

fn listener_token(place: usize) -> u64 {
    u64::MAX - 1 - place as u64
}

#[cfg(test)]
mod tests;
