//! Buffers and caches that the exchanges of a thread use in turn.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tollgate_accesslog::{LogFile, RateLimit, ThreadLog};
use tollgate_net::Serial;

use super::client::Client;
use super::http2::Connections;
use super::keys::{ExchangeId, GenerationKey, Key as _, ListenerKey};
use super::per_client::ClientCounts;
use super::scratch::Scratch;
use super::transaction::{Hold, ResponseState, Transaction};
use super::upstreams::{BackendPlace, Upstreams};
use crate::checks::CheckId;
use crate::config::{PoolId, Timeouts};
use crate::counters::{BackendCounters, ClientCounters, Counters, PoolCounters};
use crate::firewall::Inspector;
use crate::generation::ConfigGeneration;
use crate::limiter::network;
use crate::listener::ThreadListener;
use crate::{LOG_INTERVAL, log};

/// Room beyond the payload that may wait: sizes of chunks, and a short trailer section.
const FRAMING_BYTES: usize = 1 << 10;

pub(super) struct Shared {
    pub(super) upstreams: Upstreams,
    /// HTTP/2 connections of clients and to backends.
    pub(super) http2: Connections,
    pub(super) inspector: Inspector,
    /// By [`ListenerKey`].
    pub(super) listeners: Vec<ThreadListener>,
    pub(super) scratch: Scratch,
    /// By network. Empty without `limits.connections_per_client`.
    pub(super) connections_per_client: ClientCounts,
    pub(super) timeouts: Timeouts,
    pub(super) now: Instant,
    /// Set while draining.
    pub(super) stop_by: Option<Instant>,
    /// Clients with more work that no event announces.
    pub(super) ready: VecDeque<ExchangeId>,
    pub(super) counters: Arc<Counters>,
    pub(super) thread: usize,
    pub(super) access_log: Option<ThreadLog>,
    /// Memory that is reserved for bodies which are received in full before a backend is chosen, by their announced bytes, and
    /// for responses that wait for their clients.
    pub(super) buffered_bytes: u64,
    pub(super) exhaustion_log: RateLimit,
    pub(super) websocket_log: RateLimit,
    pub(super) spoe_log: RateLimit,
    /// Clients whose heads wait for these checks of their credentials.
    pub(super) awaiting_checks: Vec<(ExchangeId, CheckId)>,
    /// Checks that had ended when these heads were last handled.
    pub(super) ended_checks: u64,
    pub(super) proxy_log: RateLimit,
    bug_log: RateLimit,
    serial: Serial,
    /// Start, end and microseconds of the last duration that was computed.
    last_duration: (Instant, Instant, u64),
}

impl Shared {
    pub(super) fn new(
        generation: Arc<ConfigGeneration>,
        counters: Arc<Counters>,
        thread: usize,
        mut inspector: Inspector,
    ) -> Self {
        let now = Instant::now();
        inspector.reload(generation.audit_log.as_ref());
        Self {
            timeouts: generation.config.timeouts,
            access_log: generation.access_log.as_ref().map(LogFile::thread_log),
            upstreams: Upstreams::new(generation, thread as u64),
            http2: Connections::default(),
            inspector,
            listeners: Vec::new(),
            scratch: Scratch::new(),
            connections_per_client: ClientCounts::default(),
            now,
            stop_by: None,
            ready: VecDeque::new(),
            counters,
            thread,
            buffered_bytes: 0,
            exhaustion_log: RateLimit::new(LOG_INTERVAL),
            websocket_log: RateLimit::new(LOG_INTERVAL),
            spoe_log: RateLimit::new(LOG_INTERVAL),
            awaiting_checks: Vec::new(),
            ended_checks: 0,
            proxy_log: RateLimit::new(LOG_INTERVAL),
            bug_log: RateLimit::new(LOG_INTERVAL),
            serial: Serial::default(),
            last_duration: (now, now, 0),
        }
    }

    pub(super) fn next_serial(&mut self) -> Serial {
        self.serial.advance()
    }

    /// Counts a connection of a client. Returns false if it has as many as it may.
    pub(super) fn admit(&mut self, peer: Option<SocketAddr>) -> bool {
        let max = self.upstreams.current_config().config.limits.connections_per_client;
        let (Some(max), Some(peer)) = (max, peer) else { return true };
        let is_admitted = self.connections_per_client.enter(network(peer.ip()), max);
        if !is_admitted {
            self.client_counters().refused.add(1);
        }
        is_admitted
    }

    /// Ends the count of a connection of a client.
    pub(super) fn discount(&mut self, peer: Option<SocketAddr>) {
        if let Some(peer) = peer {
            self.connections_per_client.leave(network(peer.ip()));
        }
    }

    /// Microseconds since `start`. The head and the end of a short response have the same duration, and computing it costs
    /// more than a comparison.
    #[inline]
    pub(super) fn elapsed_us(&mut self, start: Instant) -> u64 {
        let (last_start, last_end, last_us) = self.last_duration;
        if (last_start, last_end) == (start, self.now) {
            return last_us;
        }
        let duration = self.now.saturating_duration_since(start);
        let us = duration.as_secs() * 1_000_000 + u64::from(duration.subsec_micros());
        self.last_duration = (start, self.now, us);
        us
    }

    /// Reports a state that no sequence of events should lead to, which is a bug of the gateway: in the log, at most once
    /// a minute, and in a counter. The caller closes the client.
    #[cold]
    pub(super) fn report_bug(&mut self, state: &str) {
        debug_assert!(false, "{state}");
        self.client_counters().bugs.add(1);
        if self.bug_log.allow(self.now) {
            log(format_args!(
                "bug: {state}; a client was closed. Report it with the configuration (logged once a minute, counted in \
                 /metrics)"
            ));
        }
    }

    /// The timeouts of a request. A reload changes those of the gateway for active requests, too.
    pub(super) fn timeouts_of(&self, transaction: &Transaction) -> &Timeouts {
        let config = &self.upstreams[transaction.generation].shared.config;
        config.routes[transaction.route.0].timeouts(&self.timeouts)
    }

    /// True if a further response of a transaction may be compressed.
    pub(super) fn has_encoder(&self, transaction: &Transaction) -> bool {
        let limits = &self.upstreams[transaction.generation].shared.config.limits;
        self.counters.encoders.len() < limits.compressed_responses
    }

    /// Returns the bytes of a response that may be received while its client is behind, so that the backend is free sooner: 0
    /// if a longer rest than may wait is announced. Reserves memory; if there is none, the response is streamed.
    pub(super) fn response_room(
        &mut self,
        client: &mut Client,
        transaction: &mut Transaction,
    ) -> usize {
        let ResponseState::Body { body, .. } = &transaction.response else { return 0 };
        let Some(pool) = transaction.responder.pool() else { return 0 };
        let generation = &self.upstreams[transaction.generation];
        let bytes_max = generation.pool(pool).buffer_response;
        let waiting_bytes = client.unsent.unsent().len() as u64;
        if transaction.is_streaming
            || !matches!(transaction.hold, Hold::Nothing)
            || waiting_bytes.saturating_add(body.remaining()) > bytes_max
        {
            return 0;
        }
        if client.reserved_bytes < bytes_max {
            let held_bytes_max = generation.shared.config.limits.held_body_bytes as u64;
            let buffered_bytes = self.buffered_bytes - client.reserved_bytes + bytes_max;
            if buffered_bytes > held_bytes_max {
                return 0;
            }
            (self.buffered_bytes, client.reserved_bytes) = (buffered_bytes, bytes_max);
        }
        if !std::mem::replace(&mut transaction.has_waited, true) {
            self.pool_counters(transaction.generation, pool).buffered_responses.add(1);
        }
        usize::try_from(bytes_max - waiting_bytes).unwrap_or(usize::MAX) + FRAMING_BYTES
    }

    /// Ends the reservation for a client, which has received all of its response or is gone.
    pub(super) fn release_reserved(&mut self, client: &mut Client) {
        self.buffered_bytes -= std::mem::take(&mut client.reserved_bytes);
    }

    pub(super) fn listener(&self, at: ListenerKey) -> &ThreadListener {
        &self.listeners[at.index()]
    }

    pub(super) fn client_counters(&self) -> &ClientCounters {
        self.counters.clients(self.thread)
    }

    pub(super) fn pool_counters(&self, generation: GenerationKey, pool: PoolId) -> &PoolCounters {
        self.upstreams[generation].shared.counters.of(self.thread, pool.0)
    }

    pub(super) fn backend_counters(&self, place: BackendPlace) -> &BackendCounters {
        &self.pool_counters(place.generation, place.pool).backends[place.backend.0]
    }
}
