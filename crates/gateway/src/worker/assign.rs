//! Choosing a backend for a transaction, and retries.

use std::io;

use super::http2::StreamEnd;
use super::keys::UpstreamKey;
use super::link::Link;
use super::transaction::{BackendState, Transaction};
use super::turn::{Flow, Turn};
use super::upstreams::{BackendPlace, Upstream, Work};
use crate::cluster::{BackendId, Choice};
use crate::config::{Pool, PoolId, Protocol, Timeouts};
use crate::connect_error::exhausted_resource;
use crate::local_response::{LocalResponse, Reason};
use crate::proxy_protocol;

impl Turn<'_> {
    /// Chooses a backend of a pool, and a connection to it or a place in a queue. If there is none, pauses after an
    /// earlier attempt that has `failed` where the pool has a pause; otherwise ends with an error response, after an
    /// earlier attempt with that for `failed`.
    pub(super) fn assign(&mut self, pool: PoolId, failed: Option<Reason>) -> Flow {
        let Self { id, client, transaction, shared } = self;
        let Transaction { generation, hash_key, .. } = **transaction;
        let Pool { queue_timeout, retry_pause, .. } = *shared.upstreams[generation].pool(pool);
        let now = shared.now;
        let state = shared.upstreams.pool_state(generation, pool);
        match state.choose(hash_key, &transaction.attempts, now) {
            Choice::Backend(backend) => self.connect(pool, backend),
            Choice::Queue(queue) => {
                state.enqueue(queue, *id, hash_key, &transaction.attempts);
                transaction.backend = BackendState::Queued { pool, queue };
                client.deadline = now + queue_timeout;
                shared.pool_counters(generation, pool).queued.add(1);
                match self.check_departure() {
                    Flow::Continue => Flow::Wait,
                    flow => flow,
                }
            }
            // Another request would have been queued for as long.
            Choice::QueueFull => {
                let response = LocalResponse::unavailable(Reason::QueueFull, queue_timeout);
                Flow::Respond(Box::new(response))
            }
            Choice::NoBackend => match (failed, retry_pause) {
                (Some(failed), Some(pause)) => {
                    transaction.backend = BackendState::Paused { pool, failed };
                    client.deadline = now + pause;
                    match self.check_departure() {
                        Flow::Continue => Flow::Wait,
                        flow => flow,
                    }
                }
                (Some(failed), None) => Flow::error(failed),
                (None, _) => Flow::Respond(Box::new(LocalResponse::unavailable(
                    Reason::NoBackend,
                    queue_timeout,
                ))),
            },
        }
    }

    /// Tries a request again after a pause.
    pub(super) fn try_again(&mut self, pool: PoolId, failed: Reason) -> Flow {
        self.transaction.backend = BackendState::Unassigned;
        self.transaction.attempts.forget_backends();
        let before = self.transaction.attempts.count();
        let flow = self.assign(pool, Some(failed));
        let is_paused = matches!(self.transaction.backend, BackendState::Paused { .. });
        // All backends are down, so that another pause would not end in an attempt either.
        if is_paused && self.transaction.attempts.count() == before {
            return Flow::error(failed);
        }
        flow
    }

    /// Takes an idle or a new connection to a backend on which the transaction counts as active.
    pub(super) fn connect(&mut self, pool: PoolId, backend: BackendId) -> Flow {
        let place = BackendPlace { generation: self.transaction.generation, pool, backend };
        self.transaction.backend = BackendState::Unassigned;
        let at = match self.acquire(place) {
            Ok(at) => at,
            Err(error) => {
                self.shared.release(place);
                return match exhausted_resource(&error) {
                    Some(resource) => {
                        self.shared.record_exhaustion(place, resource);
                        // An idle connection to another backend may do.
                        self.try_another(place, Reason::Exhausted)
                    }
                    None => {
                        self.shared.record_failure(place, &format!("cannot connect: {error}"));
                        self.try_another(place, Reason::ConnectFailed)
                    }
                };
            }
        };
        let Self { id, client, transaction, shared } = self;
        transaction.backend = BackendState::Assigned(at);
        transaction.last_backend = Some(backend);
        transaction.sends += 1;
        transaction.sent_at = shared.now;
        let upstream = &mut shared.upstreams[at];
        upstream.work = Work::Serves(*id);
        let is_connecting = upstream.is_connecting;
        let timeouts = shared.timeouts_of(transaction);
        let timeout = if is_connecting {
            timeouts.connect
        } else {
            timeouts.until_response(transaction.is_streaming)
        };
        client.deadline = shared.now + timeout;
        shared.backend_counters(place).requests.add(1);
        self.check_departure()
    }

    /// Takes an idle connection or connects; with HTTP/2, takes a stream.
    fn acquire(&mut self, place: BackendPlace) -> io::Result<UpstreamKey> {
        let Transaction { needs_new_connection, summary, .. } = &*self.transaction;
        match self.shared.upstreams.protocol(place) {
            Protocol::Http2 { streams_max } => {
                let Timeouts { connect, .. } = *self.shared.timeouts_of(self.transaction);
                self.shared.take_stream(place, streams_max, connect, summary, *needs_new_connection)
            }
            Protocol::Http1 => {
                if !needs_new_connection
                    && let Some(at) = self.shared.take_idle(place, !summary.is_idempotent)
                {
                    return Ok(at);
                }
                let at = self.shared.connect(place)?;
                let Self { client, shared, .. } = self;
                if let Some(version) =
                    shared.upstreams[place.generation].pool(place.pool).proxy_protocol
                {
                    let destination = client.destination(&shared.http2);
                    let header = proxy_protocol::write(version, client.source(), destination);
                    if let Link::Connection(transport) = &mut shared.upstreams[at].link {
                        transport.send_first(header);
                    }
                }
                Ok(at)
            }
        }
    }

    /// Continues the start of a new connection to a backend. Returns the step that follows, unless the TLS handshake is complete.
    pub(super) fn continue_handshake(&mut self, at: UpstreamKey) -> Option<Flow> {
        if !self.shared.upstreams[at].is_connecting {
            return None;
        }
        match self.shared.advance_handshake(at) {
            Ok(true) => None,
            Ok(false) => Some(Flow::Wait),
            Err(reason) => Some(self.retry(at, reason)),
        }
    }

    /// The backend failed before the first byte of a response. Retries the request where that is safe; otherwise, or if
    /// no retry is left, ends with the response for `failed`.
    pub(super) fn retry(&mut self, at: UpstreamKey, failed: Reason) -> Flow {
        let Upstream { place, is_reused, ref link, .. } = self.shared.upstreams[at];
        let is_refused = link.early_end() == Some(StreamEnd::Refused);
        let can_retry = self.transaction.can_retry(is_refused);
        let is_first = !self.transaction.needs_new_connection;
        if (is_reused || is_refused) && can_retry && is_first {
            // A backend may close an idle connection at any time, and refuse a stream. It has not failed, and the
            // transaction keeps its place there for a new connection.
            self.transaction.needs_new_connection = true;
            self.transaction.rewind();
            self.shared.close_upstream(at);
            return self.connect(place.pool, place.backend);
        }
        let failure = self.shared.upstreams[at].failure.take();
        self.drop_upstream();
        let cause = failure.as_deref().unwrap_or(match failed {
            Reason::ConnectFailed => "cannot connect",
            Reason::ConnectTimeout => "cannot connect in time",
            _ if is_refused => "it refuses streams",
            _ => "a connection was closed without a response",
        });
        // The first refusal does not count as a failure, even if the request cannot be sent again.
        if !(is_refused && is_first) {
            self.shared.record_failure(place, cause);
        }
        if !can_retry {
            return Flow::error(failed);
        }
        self.transaction.rewind();
        self.try_another(place, failed)
    }

    /// Assigns another backend to a request that was not sent, which is not a failure of the last one. Ends with the
    /// response for `refused` if no retry or backend is left.
    pub(super) fn try_another_unsent(&mut self, at: UpstreamKey, refused: Reason) -> Flow {
        let place = self.shared.upstreams[at].place;
        self.transaction.rewind();
        self.drop_upstream();
        self.try_another(place, refused)
    }

    /// Assigns another backend after that of `place` failed. Ends with the response for `failed` if no retry or backend is
    /// left.
    fn try_another(&mut self, place: BackendPlace, failed: Reason) -> Flow {
        self.transaction.attempts.add(place.backend);
        let BackendPlace { generation, pool, .. } = place;
        let retries = self.shared.upstreams[generation].pool(pool).retries as usize;
        if self.transaction.attempts.count() > retries {
            return Flow::error(failed);
        }
        self.shared.pool_counters(generation, pool).retries.add(1);
        self.assign(pool, Some(failed))
    }

    /// Counts a failure of the backend that serves the request.
    pub(super) fn record_failure(&mut self, cause: &str) {
        if let BackendState::Assigned(at) = self.transaction.backend {
            let Timeouts { response, body, .. } = *self.timeouts();
            self.shared.avoid_silent_connection(at, response.min(body));
            let place = self.shared.upstreams[at].place;
            self.shared.record_failure(place, cause);
        }
    }

    /// Closes the connection that serves the request, if there is one.
    pub(super) fn drop_upstream(&mut self) {
        if let BackendState::Assigned(at) = self.transaction.backend {
            self.transaction.backend = BackendState::Unassigned;
            let place = self.shared.close_upstream(at);
            self.shared.release(place);
        }
    }

    /// Keeps the connection after a complete response, provided that it is certainly at the end of the response;
    /// otherwise closes it.
    pub(super) fn give_back(&mut self, at: UpstreamKey, keep_alive: bool, has_surplus: bool) {
        let Self { transaction, shared, .. } = self;
        transaction.backend = BackendState::Unassigned;
        let is_complete = transaction.is_sent()
            && keep_alive
            && !has_surplus
            && transaction.generation == shared.upstreams.current()
            && shared.stop_by.is_none();
        let place = shared.upstreams[at].place;
        let pool = shared.upstreams[place.generation].pool(place.pool);
        let keepalive_timeout = pool.keepalive_timeout;
        let idle_until = shared.now + keepalive_timeout.unwrap_or(shared.timeouts.idle);
        let now = shared.now;
        let upstream = &mut shared.upstreams[at];
        upstream.work = Work::Idle;
        upstream.is_reused = true;
        upstream.is_connecting = false;
        upstream.idle_since = now;
        upstream.idle_until = idle_until;
        // A stream ends with its response.
        let is_clean = is_complete
            && !upstream.link.is_stream()
            && (!upstream.link.is_readable() || upstream.is_quiet());
        if !(is_clean && shared.upstreams.push_idle(at)) {
            shared.close_upstream(at);
        }
        shared.record_success(place, transaction.started_at);
        shared.release(place);
    }
}
