//! Connections to backends: choosing a backend, connecting, and keeping connections for later requests.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use tollgate_tls::{certificate_rejection, describe_failure};

use super::http2::StreamEnd;
use super::link::Link;
use super::{ClientId, Step, Worker};
use crate::cluster::{BackendId, Choice, PoolState};
use crate::config::Protocol;
use crate::counters::{BackendCounters, PoolCounters};
use crate::generation::ConfigGeneration;
use crate::local_response::{LocalResponse, Reason};
use crate::log;
use crate::transport::{LocalResource, Received, Transport, exhausted_resource, is_connect_error};

/// A connection to a backend, or a stream of an HTTP/2 connection. It serves one request at a time; a connection is kept
/// only after a response that was read to its exact end, a stream never.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) link: Link,
    /// The connection is one of HTTP/2, by this index in [`Worker::http2`]: it serves requests by its streams, which are
    /// upstreams of their own.
    pub(super) http2: Option<usize>,
    /// Distinguishes connections in the same slot.
    pub(super) serial: u32,
    pub(super) place: Place,
    /// `None`: idle, or one of HTTP/2.
    pub(super) client: Option<usize>,
    /// The connection has been in use before: the backend may have closed it while it was idle.
    pub(super) is_reused: bool,
    /// No byte of a request or a response was sent or received yet.
    pub(super) is_connecting: bool,
    /// Cause of a failed TLS handshake or HTTP/2 connection.
    pub(super) failure: Option<String>,
    /// The received part of an incomplete response head.
    pub(super) partial_head: Vec<u8>,
    /// End of the idle time; of an HTTP/2 connection that is not established, of the time to connect.
    pub(super) idle_until: Instant,
}

impl Upstream {
    pub(super) fn new(link: Link, serial: u32, place: Place, now: Instant) -> Self {
        Self {
            link,
            http2: None,
            serial,
            place,
            client: None,
            is_reused: false,
            is_connecting: true,
            failure: None,
            partial_head: Vec::new(),
            idle_until: now,
        }
    }

    /// True if the backend has responded against the rules of HTTP/2.
    pub(super) fn has_invalid_response(&self) -> bool {
        let Link::Stream(stream) = &self.link else { return false };
        stream.is_open() && stream.early_end() == Some(StreamEnd::Failed(Reason::InvalidResponse))
    }
}

/// A backend of a configuration that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) generation: usize,
    pub(super) pool: usize,
    pub(super) backend: usize,
}

#[derive(Debug)]
pub(super) struct Generation {
    pub(super) shared: Arc<ConfigGeneration>,
    pub(super) pools: Vec<UpstreamPool>,
    /// Active transactions. The last one ends a generation that is not current.
    pub(super) transactions: usize,
}

#[derive(Debug)]
pub(super) struct UpstreamPool {
    pub(super) state: PoolState<ClientId>,
    /// Idle connections per backend; the last one was used most recently.
    idle: Vec<Vec<usize>>,
    /// HTTP/2 connections per backend that may take further requests.
    pub(super) http2: Vec<Http2Backend>,
}

/// HTTP/2 connections to one backend.
#[derive(Clone, Debug)]
pub(super) struct Http2Backend {
    /// The oldest first.
    pub(super) connections: Vec<usize>,
    /// The last limit of streams that the backend has announced.
    pub(super) streams: u32,
}

impl Generation {
    /// `seed` distinguishes the random choices of threads.
    pub(super) fn new(shared: Arc<ConfigGeneration>, seed: u64) -> Self {
        let pools = shared.config.pools.iter().zip(&shared.health).map(|(pool, health)| {
            let state = PoolState::new(pool, Arc::clone(health), seed);
            let backends = pool.backends.len();
            let http2 = Http2Backend { connections: Vec::new(), streams: u32::MAX };
            UpstreamPool { state, idle: vec![Vec::new(); backends], http2: vec![http2; backends] }
        });
        Self { pools: pools.collect(), shared, transactions: 0 }
    }
}

impl Worker {
    /// Chooses a backend for a client's transaction and gives it a connection or a place in a queue. Returns the
    /// response for the client if there is no backend; after an earlier attempt, the response for `failed`.
    pub(super) fn assign(
        &mut self,
        key: usize,
        failed: Option<Reason>,
    ) -> Result<Step, LocalResponse> {
        let client = &mut self.clients[key];
        let Some(transaction) = &mut client.transaction else { return Ok(Step::Close) };
        let generation = &mut self.generations[transaction.generation];
        let queue_timeout = generation.shared.config.pools[transaction.pool].queue_timeout;
        let state = &mut generation.pools[transaction.pool].state;
        match state.choose(transaction.hash_key, &transaction.attempts, self.now) {
            Choice::Backend(backend) => self.connect_transaction(key, backend),
            Choice::Queue(queue) => {
                let id = ClientId { key, serial: client.serial };
                state.enqueue(queue, id, transaction.hash_key, &transaction.attempts);
                transaction.queue = Some(queue);
                client.deadline = self.now + queue_timeout;
                let (generation, pool) = (transaction.generation, transaction.pool);
                self.pool_counters(generation, pool).queued.add(1);
                match self.check_departure(key) {
                    Step::Close => Ok(Step::Close),
                    _ => Ok(Step::Wait),
                }
            }
            // Another request would have been queued for as long.
            Choice::QueueFull => Err(LocalResponse::unavailable(Reason::QueueFull, queue_timeout)),
            Choice::NoBackend => Err(match failed {
                Some(reason) => LocalResponse::error(reason),
                None => LocalResponse::unavailable(Reason::NoBackend, queue_timeout),
            }),
        }
    }

    /// Gives a transaction that counts as active on `backend` an idle or a new connection.
    pub(super) fn connect_transaction(
        &mut self,
        key: usize,
        backend: BackendId,
    ) -> Result<Step, LocalResponse> {
        let Some(transaction) = &mut self.clients[key].transaction else { return Ok(Step::Close) };
        transaction.queue = None;
        let place = Place {
            generation: transaction.generation,
            pool: transaction.pool,
            backend: backend.0,
        };
        let at = match self.acquire(key, place) {
            Ok(at) => at,
            Err(error) => {
                self.release(place);
                return match exhausted_resource(&error) {
                    Some(resource) => {
                        self.record_exhaustion(place, resource);
                        // An idle connection to another backend may do.
                        self.try_another(key, backend, Reason::Exhausted)
                    }
                    None => {
                        self.record_failure(place, &format!("cannot connect: {error}"));
                        self.try_another(key, backend, Reason::ConnectFailed)
                    }
                };
            }
        };
        let client = &mut self.clients[key];
        let Some(transaction) = &mut client.transaction else { return Ok(Step::Close) };
        transaction.upstream = Some(at);
        transaction.backend = Some(backend.0);
        transaction.sends += 1;
        transaction.sent_at = self.now;
        let upstream = &mut self.upstreams[at];
        upstream.client = Some(key);
        client.deadline = self.now
            + if upstream.is_connecting { self.timeouts.connect } else { self.timeouts.response };
        self.backend_counters(place).requests.add(1);
        Ok(self.check_departure(key))
    }

    /// Takes an idle connection or connects; with HTTP/2, takes a stream.
    fn acquire(&mut self, key: usize, place: Place) -> io::Result<usize> {
        match self.protocol(place) {
            Protocol::Http2 { streams_max } => self.take_stream(key, place, streams_max),
            Protocol::Http1 => match self.take_idle(key, place) {
                Some(at) => Ok(at),
                None => self.connect(place),
            },
        }
    }

    pub(super) fn protocol(&self, place: Place) -> Protocol {
        self.generations[place.generation].shared.config.pools[place.pool].protocol
    }

    /// Takes the idle connection that was used last, which is the most likely to be open.
    fn take_idle(&mut self, key: usize, place: Place) -> Option<usize> {
        let transaction = self.clients[key].transaction.as_ref()?;
        if transaction.needs_new_connection {
            return None;
        }
        let must_be_open = !transaction.request.is_idempotent;
        loop {
            let pool = &mut self.generations[place.generation].pools[place.pool];
            let at = pool.idle[place.backend].pop()?;
            // A request that cannot be repeated is not sent on a connection that the backend has closed.
            if must_be_open && !self.is_quiet(at) {
                self.close_upstream(at);
                continue;
            }
            return Some(at);
        }
    }

    /// True if a connection is open and no unexpected bytes have arrived. Messages of TLS, such as session tickets, are
    /// expected.
    pub(super) fn is_quiet(&mut self, at: usize) -> bool {
        let Link::Connection(transport) = &mut self.upstreams[at].link else { return false };
        !transport.is_closed() && matches!(transport.receive(&mut [0]), Ok(Received::Nothing))
    }

    pub(super) fn connect(&mut self, place: Place) -> io::Result<usize> {
        let config = &self.generations[place.generation].shared.config;
        let backend = &config.pools[place.pool].backends[place.backend];
        let transport = Transport::connect(&backend.address, backend.tls.as_ref())?;
        let serial = self.next_serial();
        self.backend_counters(place).connects.add(1);
        let link = Link::Connection(transport);
        Ok(self.upstreams.insert(Upstream::new(link, serial, place, self.now)))
    }

    /// Continues the TLS handshake of a new connection to a backend. Returns the step that follows, unless the
    /// handshake is complete.
    pub(super) fn continue_handshake(&mut self, key: usize, at: usize) -> Option<Step> {
        if !self.upstreams[at].is_connecting {
            return None;
        }
        match self.advance_handshake(at) {
            Ok(true) => None,
            Ok(false) => Some(Step::Wait),
            Err(reason) => {
                let assigned = self.retry(key, reason);
                Some(self.or_respond(key, assigned))
            }
        }
    }

    /// Continues the TLS handshake of a connection. Returns true if none is in progress.
    pub(super) fn advance_handshake(&mut self, at: usize) -> Result<bool, Reason> {
        let upstream = &mut self.upstreams[at];
        let Link::Connection(transport) = &mut upstream.link else { return Ok(true) };
        if !transport.is_handshaking() {
            return Ok(true);
        }
        let place = upstream.place;
        match transport.handshake() {
            Ok(false) => Ok(false),
            Ok(true) => {
                let is_resumed = transport.is_resumed();
                self.backend_counters(place).handshakes.count(is_resumed);
                Ok(true)
            }
            Err(error) => {
                let reason = match certificate_rejection(&error) {
                    Some(_) => Reason::TlsCertificate,
                    None if is_connect_error(&error) => Reason::ConnectFailed,
                    None => Reason::TlsHandshake,
                };
                if reason != Reason::ConnectFailed {
                    upstream.failure =
                        Some(format!("the TLS handshake failed: {}", describe_failure(&error)));
                    self.backend_counters(place).handshakes.failed.add(1);
                }
                Err(reason)
            }
        }
    }

    /// Closes a connection, or ends a stream, which is reset unless it has ended.
    pub(super) fn close_upstream(&mut self, at: usize) -> Place {
        let Upstream { link, place, .. } = self.upstreams.remove(at);
        match link {
            Link::Connection(_) => self.backend_counters(place).closed.add(1),
            Link::Stream(stream) => self.release_request(&stream),
        }
        place
    }

    /// The backend failed before the first byte of a response. Retries the request where that is safe; otherwise, or if
    /// no retry is left, returns the response for `failed`.
    pub(super) fn retry(&mut self, key: usize, failed: Reason) -> Result<Step, LocalResponse> {
        let Some(transaction) = &mut self.clients[key].transaction else { return Ok(Step::Close) };
        let Some(at) = transaction.upstream else { return Ok(Step::Close) };
        let Upstream { place, is_reused, ref link, .. } = self.upstreams[at];
        let is_refused = link.early_end() == Some(StreamEnd::Refused);
        let can_retry = transaction.can_retry(is_refused);
        let is_first = !transaction.needs_new_connection;
        if (is_reused || is_refused) && can_retry && is_first {
            // A backend may close an idle connection at any time, and refuse a stream. It has not failed, and the
            // transaction keeps its place there for a new connection.
            transaction.upstream = None;
            transaction.needs_new_connection = true;
            transaction.rewind();
            self.close_upstream(at);
            return self.connect_transaction(key, BackendId(place.backend));
        }
        let failure = self.upstreams[at].failure.take();
        self.drop_upstream(key);
        let cause = failure.as_deref().unwrap_or(match failed {
            Reason::ConnectFailed => "cannot connect",
            Reason::ConnectTimeout => "cannot connect in time",
            _ if is_refused => "it refuses streams",
            _ => "a connection was closed without a response",
        });
        // The first refusal does not count as a failure, even if the request cannot be sent again.
        if !(is_refused && is_first) {
            self.record_failure(place, cause);
        }
        let Some(transaction) = &mut self.clients[key].transaction else { return Ok(Step::Close) };
        if !can_retry {
            return Err(LocalResponse::error(failed));
        }
        transaction.rewind();
        self.try_another(key, BackendId(place.backend), failed)
    }

    /// Assigns another backend to a request that was not sent, which is not a failure of the last one. Returns the
    /// response for `refused` if no retry or backend is left.
    pub(super) fn try_another_unsent(
        &mut self,
        key: usize,
        refused: Reason,
    ) -> Result<Step, LocalResponse> {
        let Some(transaction) = &mut self.clients[key].transaction else { return Ok(Step::Close) };
        let Some(at) = transaction.upstream else { return Ok(Step::Close) };
        let backend = BackendId(self.upstreams[at].place.backend);
        transaction.rewind();
        self.drop_upstream(key);
        self.try_another(key, backend, refused)
    }

    /// Assigns another backend after `backend` failed. Returns the response for `failed` if no retry or backend is left.
    fn try_another(
        &mut self,
        key: usize,
        backend: BackendId,
        failed: Reason,
    ) -> Result<Step, LocalResponse> {
        let Some(transaction) = &mut self.clients[key].transaction else { return Ok(Step::Close) };
        transaction.attempts.add(backend);
        let attempts = transaction.attempts.count();
        let (generation, pool) = (transaction.generation, transaction.pool);
        let retries = self.generations[generation].shared.config.pools[pool].retries as usize;
        if attempts > retries {
            return Err(LocalResponse::error(failed));
        }
        self.pool_counters(generation, pool).retries.add(1);
        self.assign(key, Some(failed))
    }

    /// Counts a failure for the backend that serves this client.
    pub(super) fn record_upstream_failure(&mut self, key: usize, cause: &str) {
        if let Some(transaction) = &self.clients[key].transaction
            && let Some(at) = transaction.upstream
        {
            self.avoid_silent_connection(at);
            self.record_failure(self.upstreams[at].place, cause);
        }
    }

    pub(super) fn record_failure(&mut self, place: Place, cause: &str) {
        self.backend_counters(place).failures.add(1);
        let generation = &self.generations[place.generation];
        let pool = &generation.shared.config.pools[place.pool];
        let (backend, name) = (&pool.backends[place.backend].address, &pool.name);
        let failure = generation.shared.health[place.pool].record_failure(place.backend, self.now);
        if failure.is_new {
            log(format_args!("backend {backend} of pool {name} fails requests: {cause}"));
        }
        if failure.ejects {
            log(format_args!("backend {backend} of pool {name} ejected after repeated failures"));
        }
    }

    /// Records a complete response to a request that began at this time.
    fn record_success(&self, place: Place, started_at: Instant) {
        let generation = &self.generations[place.generation];
        if generation.shared.health[place.pool].record_success(place.backend, started_at) {
            let pool = &generation.shared.config.pools[place.pool];
            let address = &pool.backends[place.backend].address;
            log(format_args!("backend {address} of pool {} serves requests again", pool.name));
        }
    }

    fn record_exhaustion(&mut self, place: Place, resource: &LocalResource) {
        self.client_counters().count_exhaustion(resource);
        if self.exhaustion_log.allow(self.now) {
            let pool = &self.generations[place.generation].shared.config.pools[place.pool];
            log(format_args!(
                "cannot connect to backend {} of pool {}: {}; {} (logged once a minute, counted in /metrics)",
                pool.backends[place.backend].address, pool.name, resource.error, resource.advice
            ));
        }
    }

    /// Closes the connection that serves a client, if there is one.
    pub(super) fn drop_upstream(&mut self, key: usize) {
        let Some(transaction) = &mut self.clients[key].transaction else { return };
        if let Some(at) = transaction.upstream.take() {
            let place = self.close_upstream(at);
            self.release(place);
        }
    }

    /// Keeps the connection after a complete response, provided that it is certainly at the end of the response;
    /// otherwise closes it.
    pub(super) fn give_back_upstream(&mut self, key: usize, keep_alive: bool, has_surplus: bool) {
        let Some(transaction) = &mut self.clients[key].transaction else { return };
        let Some(at) = transaction.upstream.take() else { return };
        let is_complete = transaction.is_sent()
            && keep_alive
            && !has_surplus
            && transaction.generation == self.current
            && self.stop_by.is_none();
        let upstream = &mut self.upstreams[at];
        let (place, started_at) = (upstream.place, transaction.started_at);
        upstream.client = None;
        upstream.is_reused = true;
        upstream.is_connecting = false;
        upstream.idle_until = self.now + self.timeouts.idle;
        // A stream ends with its response.
        let is_clean = is_complete
            && !upstream.link.is_stream()
            && (!upstream.link.is_readable() || self.is_quiet(at));
        let generation = &mut self.generations[place.generation];
        let keepalive_max = generation.shared.config.pools[place.pool].keepalive_max;
        let idle = &mut generation.pools[place.pool].idle[place.backend];
        // An unwatched connection could close unnoticed.
        let is_watched =
            |link: &Link| matches!(link, Link::Connection(transport) if transport.is_watched());
        if is_clean && idle.len() < keepalive_max && is_watched(&self.upstreams[at].link) {
            idle.push(at);
        } else {
            self.close_upstream(at);
        }
        self.record_success(place, started_at);
        self.release(place);
    }

    /// Frees the place of a transaction on its backend for the next waiting one.
    pub(super) fn release(&mut self, place: Place) {
        let pool = &mut self.generations[place.generation].pools[place.pool];
        pool.state.release(BackendId(place.backend));
        self.serve_queue(place.generation, place.pool);
    }

    /// Gives free room in a pool to the transaction that has waited longest. Returns false if there is none.
    fn serve_queue(&mut self, generation: usize, pool: usize) -> bool {
        // A waiting client may have disconnected.
        loop {
            let state = &mut self.generations[generation].pools[pool].state;
            let Some((client, backend)) = state.next(self.now) else {
                return false;
            };
            if self.is_connected(client)
                && let Some(transaction) = &mut self.clients[client.key].transaction
                && transaction.queue.take().is_some()
            {
                transaction.reserved = Some(backend);
                // It continues after the turn of the client whose room it takes.
                self.ready.push_back(client);
                return true;
            }
            self.generations[generation].pools[pool].state.release(backend);
        }
    }

    /// Serves all queues, since a backend that came up may have room.
    pub(super) fn serve_queues(&mut self) {
        let pools: Vec<(usize, usize)> = self
            .generations
            .iter()
            .flat_map(|(at, generation)| (0..generation.pools.len()).map(move |pool| (at, pool)))
            .collect();
        for (generation, pool) in pools {
            while self.serve_queue(generation, pool) {}
        }
    }

    pub(super) fn close_idle(&mut self, at: usize) {
        if let Some(connection) = self.upstreams[at].http2 {
            return self.close_backend(at, connection);
        }
        let place = self.upstreams[at].place;
        let pool = &mut self.generations[place.generation].pools[place.pool];
        pool.idle[place.backend].retain(|&other| other != at);
        self.close_upstream(at);
    }

    /// Closes the idle connections that `is_over` selects.
    pub(super) fn close_idle_if(&mut self, is_over: impl Fn(&Upstream) -> bool) {
        let idle = self.upstreams.iter().filter(|(_, upstream)| match upstream.http2 {
            Some(connection) => self.http2[connection].requests == 0,
            None => upstream.client.is_none(),
        });
        let over: Vec<usize> =
            idle.filter(|(_, upstream)| is_over(upstream)).map(|(at, _)| at).collect();
        over.into_iter().for_each(|at| self.close_idle(at));
    }

    pub(super) fn pool_counters(&self, generation: usize, pool: usize) -> &PoolCounters {
        self.generations[generation].shared.counters.of(self.thread, pool)
    }

    pub(super) fn backend_counters(&self, place: Place) -> &BackendCounters {
        &self.pool_counters(place.generation, place.pool).backends[place.backend]
    }
}
