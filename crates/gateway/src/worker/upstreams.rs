//! Connections of a thread to backends, in use and idle, and its pools.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_net::{ConnectionId, EventSource, Serial};

use super::http2::StreamEnd;
use super::keys::{Arena, ExchangeId, GenerationKey, Http2Key, Key as _, UpstreamKey};
use super::link::Link;
use crate::cluster::{BackendId, PoolState};
use crate::config::{Pool, PoolId, Protocol};
use crate::generation::ConfigGeneration;
use crate::local_response::Reason;
use tollgate_tls::{Received, Transport};

/// A connection to a backend, or a stream of an HTTP/2 connection. It serves one request at a time; a connection is kept
/// only after a response that was read to its exact end, a stream never.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) link: Link,
    /// Distinguishes connections in the same place.
    pub(super) serial: Serial,
    pub(super) place: BackendPlace,
    pub(super) work: Work,
    /// The connection has been in use before: the backend may have closed it while it was idle.
    pub(super) is_reused: bool,
    /// No byte of a request or a response was sent or received yet.
    pub(super) is_connecting: bool,
    /// Cause of a failed TLS handshake or HTTP/2 connection, or of a header of the PROXY protocol that was not sent.
    pub(super) failure: Option<String>,
    /// The received part of an incomplete response head.
    pub(super) partial_head: Vec<u8>,
    pub(super) idle_since: Instant,
    /// End of the idle time; of an HTTP/2 connection that is not established, of the time to connect.
    pub(super) idle_until: Instant,
}

/// Work of a connection to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Idle,
    /// Serves the request of this client.
    Serves(ExchangeId),
    /// Serves requests by its streams, which are upstreams of their own.
    Carries(Http2Key),
}

impl Upstream {
    pub(super) fn new(link: Link, serial: Serial, place: BackendPlace, now: Instant) -> Self {
        Self {
            link,
            serial,
            place,
            work: Work::Idle,
            is_reused: false,
            is_connecting: true,
            failure: None,
            partial_head: Vec::new(),
            idle_since: now,
            idle_until: now,
        }
    }

    /// The client whose request it serves.
    pub(super) fn client(&self) -> Option<ExchangeId> {
        match self.work {
            Work::Serves(client) => Some(client),
            Work::Idle | Work::Carries(_) => None,
        }
    }

    pub(super) fn transport(&mut self) -> Option<&mut Transport> {
        match &mut self.link {
            Link::Connection(transport) => Some(transport),
            Link::Stream(_) => None,
        }
    }

    /// True if the backend has responded against the rules of HTTP/2.
    pub(super) fn has_invalid_response(&self) -> bool {
        let Link::Stream(stream) = &self.link else { return false };
        stream.is_open() && stream.early_end() == Some(StreamEnd::Failed(Reason::InvalidResponse))
    }

    /// True if a connection is open and no unexpected bytes have arrived. Messages of TLS, such as session tickets, are
    /// expected.
    pub(super) fn is_quiet(&mut self) -> bool {
        let Link::Connection(transport) = &mut self.link else { return false };
        !transport.is_closed() && matches!(transport.receive(&mut [0]), Ok(Received::Nothing))
    }

    /// True if the peer may have closed an idle connection, or sent something that no event has shown yet.
    fn has_unread_bytes(&self) -> bool {
        matches!(&self.link, Link::Connection(transport) if transport.has_unread_bytes())
    }
}

/// The token of a connection to a backend.
pub(super) fn upstream_token(key: UpstreamKey, serial: Serial) -> u64 {
    EventSource::Upstream(ConnectionId { key: key.index(), serial }).token()
}

/// A backend of a configuration that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BackendPlace {
    pub(super) generation: GenerationKey,
    pub(super) pool: PoolId,
    pub(super) backend: BackendId,
}

#[derive(Debug)]
pub(super) struct Generation {
    pub(super) shared: Arc<ConfigGeneration>,
    pools: Vec<UpstreamPool>,
    /// Active transactions. The last one ends a generation that is not current.
    transactions: usize,
}

#[derive(Debug)]
pub(super) struct UpstreamPool {
    pub(super) state: PoolState<ExchangeId>,
    /// Idle connections per backend; the last one was used most recently.
    idle: Vec<Vec<UpstreamKey>>,
    /// Time per backend for which it keeps idle connections open: as it has announced, or was seen to do.
    keep_alive: Vec<Option<Duration>>,
    /// HTTP/2 connections per backend that may take further requests.
    http2: Vec<Http2Backend>,
}

/// HTTP/2 connections to one backend.
#[derive(Clone, Debug)]
pub(super) struct Http2Backend {
    /// The oldest first.
    pub(super) connections: Vec<UpstreamKey>,
    /// The last limit of streams that the backend has announced.
    pub(super) streams: u32,
}

impl Generation {
    /// `seed` distinguishes the random choices of threads.
    fn new(shared: Arc<ConfigGeneration>, seed: u64) -> Self {
        let pools = shared.config.pools.iter().zip(&shared.health).map(|(pool, health)| {
            let state = PoolState::new(pool, Arc::clone(health), seed);
            let backends = pool.backends.len();
            let http2 = Http2Backend { connections: Vec::new(), streams: u32::MAX };
            UpstreamPool {
                state,
                idle: vec![Vec::new(); backends],
                keep_alive: vec![None; backends],
                http2: vec![http2; backends],
            }
        });
        Self { pools: pools.collect(), shared, transactions: 0 }
    }

    pub(super) fn pool(&self, pool: PoolId) -> &Pool {
        &self.shared.config.pools[pool.0]
    }
}

/// Room on a backend for a client that waited for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) client: ExchangeId,
    pub(super) place: BackendPlace,
}

/// Connections to backends, and the pools of all configurations in use.
#[derive(Debug)]
pub(super) struct Upstreams {
    connections: Arena<UpstreamKey, Upstream>,
    /// Configurations in use by a transaction, and the current one.
    generations: Arena<GenerationKey, Generation>,
    current: GenerationKey,
    /// Not delivered to their clients yet.
    grants: VecDeque<Grant>,
}

impl std::ops::Index<UpstreamKey> for Upstreams {
    type Output = Upstream;

    fn index(&self, at: UpstreamKey) -> &Upstream {
        &self.connections[at]
    }
}

impl std::ops::IndexMut<UpstreamKey> for Upstreams {
    fn index_mut(&mut self, at: UpstreamKey) -> &mut Upstream {
        &mut self.connections[at]
    }
}

impl std::ops::Index<GenerationKey> for Upstreams {
    type Output = Generation;

    fn index(&self, at: GenerationKey) -> &Generation {
        &self.generations[at]
    }
}

impl Upstreams {
    pub(super) fn new(shared: Arc<ConfigGeneration>, seed: u64) -> Self {
        let mut generations = Arena::default();
        let current = generations.insert(Generation::new(shared, seed));
        Self { connections: Arena::default(), generations, current, grants: VecDeque::new() }
    }

    pub(super) fn connections(&self) -> &Arena<UpstreamKey, Upstream> {
        &self.connections
    }

    pub(super) fn connections_mut(&mut self) -> &mut Arena<UpstreamKey, Upstream> {
        &mut self.connections
    }

    pub(super) fn generations(&self) -> impl Iterator<Item = &Generation> {
        self.generations.values()
    }

    pub(super) fn current(&self) -> GenerationKey {
        self.current
    }

    pub(super) fn current_config(&self) -> &ConfigGeneration {
        &self.generations[self.current].shared
    }

    /// Switches to another configuration. The old one remains until its last transaction has ended.
    pub(super) fn switch(&mut self, shared: Arc<ConfigGeneration>, seed: u64) {
        let old = self.current;
        self.current = self.generations.insert(Generation::new(shared, seed));
        if self.generations[old].transactions == 0 {
            self.generations.remove(old);
        }
    }

    /// A transaction begins under the current configuration.
    pub(super) fn begin_transaction(&mut self) -> GenerationKey {
        self.generations[self.current].transactions += 1;
        self.current
    }

    pub(super) fn end_transaction(&mut self, at: GenerationKey) {
        let generation = &mut self.generations[at];
        generation.transactions -= 1;
        if generation.transactions == 0 && at != self.current {
            self.generations.remove(at);
        }
    }

    pub(super) fn pool_state(
        &mut self,
        generation: GenerationKey,
        pool: PoolId,
    ) -> &mut PoolState<ExchangeId> {
        &mut self.generations[generation].pools[pool.0].state
    }

    pub(super) fn protocol(&self, place: BackendPlace) -> Protocol {
        self.generations[place.generation].pool(place.pool).protocol
    }

    pub(super) fn http2_backend(&mut self, place: BackendPlace) -> &mut Http2Backend {
        let pool = &mut self.generations[place.generation].pools[place.pool.0];
        &mut pool.http2[place.backend.0]
    }

    pub(super) fn http2_connections(&self, place: BackendPlace) -> &[UpstreamKey] {
        let pool = &self.generations[place.generation].pools[place.pool.0];
        &pool.http2[place.backend.0].connections
    }

    /// Forgets that an HTTP/2 connection may take further requests.
    pub(super) fn unlist_http2(&mut self, at: UpstreamKey) {
        let place = self.connections[at].place;
        self.http2_backend(place).connections.retain(|&other| other != at);
    }

    fn idle(&mut self, place: BackendPlace) -> &mut Vec<UpstreamKey> {
        let pool = &mut self.generations[place.generation].pools[place.pool.0];
        &mut pool.idle[place.backend.0]
    }

    fn keep_alive(&mut self, place: BackendPlace) -> &mut Option<Duration> {
        let pool = &mut self.generations[place.generation].pools[place.pool.0];
        &mut pool.keep_alive[place.backend.0]
    }

    /// A backend keeps idle connections open for this time.
    pub(super) fn learn_keep_alive(&mut self, place: BackendPlace, time: Duration) {
        *self.keep_alive(place) = Some(time);
    }

    /// A backend has closed an idle connection.
    pub(super) fn learn_from_close(&mut self, at: UpstreamKey, now: Instant) {
        let Upstream { place, idle_since, .. } = self.connections[at];
        self.learn_keep_alive(place, now.saturating_duration_since(idle_since));
    }

    /// True if the backend may close a connection before a request reaches it.
    fn is_near_its_end(&mut self, at: UpstreamKey, now: Instant) -> bool {
        let Upstream { place, idle_since, .. } = self.connections[at];
        let idle = now.saturating_duration_since(idle_since);
        self.keep_alive(place).is_some_and(|time| idle >= time / 2)
    }

    /// Takes the idle connection that was used last, which is the most likely to be open. Returns true with it if it can
    /// be used, and false if it is to be closed. With `must_be_open`, `None` if the backend may close all soon.
    pub(super) fn pop_idle(
        &mut self,
        place: BackendPlace,
        must_be_open: bool,
        now: Instant,
    ) -> Option<(UpstreamKey, bool)> {
        let at = *self.idle(place).last()?;
        if must_be_open && self.is_near_its_end(at, now) {
            return None;
        }
        self.idle(place).pop();
        // What a backend has sent behind a response must not become the next response. Events show only what had arrived at the
        // last wait, and a batch of events may take a millisecond: the system call is the only way to see the rest. A request
        // that cannot be repeated is not sent on a connection that the backend has closed.
        let upstream = &mut self.connections[at];
        let is_doubtful = must_be_open || upstream.has_unread_bytes();
        Some((at, !is_doubtful || upstream.is_quiet()))
    }

    /// Keeps a connection for later requests. Returns false if it must be closed instead.
    pub(super) fn push_idle(&mut self, at: UpstreamKey) -> bool {
        let Upstream { place, link, .. } = &self.connections[at];
        let place = *place;
        // An unwatched connection could close unnoticed.
        let is_watched = matches!(link, Link::Connection(transport) if transport.is_watched());
        let max = self.generations[place.generation].pool(place.pool).keepalive_max;
        let idle = self.idle(place);
        let has_room = idle.len() < max;
        if is_watched && has_room {
            idle.push(at);
        }
        is_watched && has_room
    }

    pub(super) fn forget_idle(&mut self, at: UpstreamKey) {
        let place = self.connections[at].place;
        self.idle(place).retain(|&other| other != at);
    }

    /// Frees the room of a transaction on its backend for the next waiting one.
    pub(super) fn release(&mut self, place: BackendPlace, now: Instant) {
        self.pool_state(place.generation, place.pool).release(place.backend);
        self.serve_queue(place.generation, place.pool, now);
    }

    /// Grants free room in a pool to the transaction that has waited longest. Returns false if there is none.
    fn serve_queue(&mut self, generation: GenerationKey, pool: PoolId, now: Instant) -> bool {
        let Some((client, backend)) = self.pool_state(generation, pool).next(now) else {
            return false;
        };
        self.grants.push_back(Grant { client, place: BackendPlace { generation, pool, backend } });
        true
    }

    /// Serves all queues, since a backend that came up may have room.
    pub(super) fn serve_queues(&mut self, now: Instant) {
        let pools: Vec<(GenerationKey, PoolId)> = self
            .generations
            .iter()
            .flat_map(|(at, generation)| {
                (0..generation.pools.len()).map(move |pool| (at, PoolId(pool)))
            })
            .collect();
        for (generation, pool) in pools {
            while self.serve_queue(generation, pool, now) {}
        }
    }

    /// Takes back a grant to a client that does not wait any more.
    pub(super) fn withdraw_grant(&mut self, client: ExchangeId) -> Option<BackendPlace> {
        let at = self.grants.iter().position(|grant| grant.client == client)?;
        self.grants.remove(at).map(|grant| grant.place)
    }

    pub(super) fn next_grant(&mut self) -> Option<Grant> {
        self.grants.pop_front()
    }
}
