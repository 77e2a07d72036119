//! One thread of a gateway: its listeners, client connections and connections to backends.
//!
//! The way of a request, driven by [`event_loop`]: [`accept`] opens the connection; [`downstream`] reads the head;
//! [`transaction`] begins; [`upstream`] chooses a backend and connects; [`forward`] moves the request and the response;
//! [`transaction`] finishes. [`tunnel`] takes over after an upgrade, and [`drain`] ends the thread.

mod accept;
mod coalescing;
mod downstream;
mod drain;
mod event_loop;
mod forward;
mod http2;
mod link;
#[cfg(test)]
mod tests;
mod transaction;
mod tunnel;
mod upstream;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use slab::Slab;
use tollgate_accesslog::{LogFile, RateLimit, ThreadLog};
use tollgate_http1::{HeadCache, MAX_HEAD_BYTES};
use tollgate_net::{Interest, Poller};

use crate::LOG_INTERVAL;
use crate::body::TAIL_BYTES_MAX;
use crate::command::{CommandQueue, Resumer};
use crate::config::Timeouts;
use crate::counters::{ClientCounters, Counters};
use crate::filter::{Filter, FilterSlot};
use crate::generation::ConfigGeneration;
use crate::headers::DateCache;
use crate::listener::ThreadListener;
use coalescing::Coalescing;
use downstream::{Downstream, RequestKey};
use forward::{CachedResponse, ResponseKey};
use http2::Connections;
use transaction::CachedRequest;
use upstream::{Generation, Upstream};

/// One thread of a gateway.
pub(crate) struct Worker {
    poller: Poller,
    commands: Arc<CommandQueue>,
    /// Clients refer to these by index, so an index is reused only when no client refers to it.
    listeners: Vec<ThreadListener>,
    clients: Slab<Downstream>,
    /// HTTP/2 connections of clients and to backends.
    http2: Connections,
    upstreams: Slab<Upstream>,
    /// Configurations in use by a transaction, and the current one.
    generations: Slab<Generation>,
    current: usize,
    timeouts: Timeouts,
    scratch: Scratch,
    filter: FilterSlot,
    /// Clients with more work that no event announces.
    ready: VecDeque<ClientId>,
    /// Clients to be registered with the poller at a time, unless they are gone by then.
    unwatched: VecDeque<(Instant, ClientId)>,
    /// Idle clients to close at the limit of connections, the longest idle first, each with its deadline when it was
    /// listed. Clients that are no longer idle are skipped.
    reclaimable: VecDeque<(Instant, ClientId)>,
    /// Of the last connection or transaction.
    last_serial: u32,
    counters: Arc<Counters>,
    thread: usize,
    access_log: Option<ThreadLog>,
    /// By network. Empty without `limits.connections_per_client`.
    connections_per_client: HashMap<IpAddr, usize>,
    now: Instant,
    /// Start, end and microseconds of the last duration that was computed.
    last_duration: (Instant, Instant, u64),
    sweep_at: Instant,
    /// Set while accepting is paused.
    accept_again_at: Option<Instant>,
    coalescing: Coalescing,
    last_accept_pause: Option<Instant>,
    exhaustion_log: RateLimit,
    websocket_log: RateLimit,
    /// Set while draining.
    stop_by: Option<Instant>,
}

/// Identifies a client connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClientId {
    key: usize,
    /// Distinguishes connections in the same slot.
    serial: u32,
}

/// Stage of a client connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    ReadHead,
    Transaction,
    /// An HTTP/2 connection, by its index in [`Worker::http2`]. Its streams are clients of their own.
    Http2(usize),
    /// The last response is being sent. `lingers`: the client may still be sending, so its bytes are read before the
    /// connection is closed. `ends_at_close`: closing the connection ends the response.
    Finish {
        lingers: bool,
        ends_at_close: bool,
    },
    /// Everything is sent; the client's bytes are read and discarded.
    Linger {
        until: Instant,
    },
}

/// Continuation of a client's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// With another step.
    Continue,
    /// On the next event of the client or its backend, or at its deadline.
    Wait,
    /// With the end of the connection.
    Close,
}

/// Space in front of the input, so that a rewritten head can be placed right before the body that was read with it.
const HEADROOM_BYTES: usize = 4 << 10;
/// Bytes per read: an incomplete head plus the same amount.
const INPUT_BYTES: usize = 2 * MAX_HEAD_BYTES;
/// Bytes of a body or tunnel per read, which fill two segments: over loopback, or where the network card cuts them, these have at
/// most 65,483 bytes. With a few bytes more, the rest would be a segment of its own, and where the congestion control
/// paces (BBR) wait for a timer, which cost more than twice the CPU of the whole piece.
const PIECE_BYTES: usize = 2 * (MAX_HEAD_BYTES - 1024);
/// Bytes of a response per read for a stream of HTTP/2, where they wait in memory for windows and other streams fill the pauses.
const STREAM_PIECE_BYTES: usize = MAX_HEAD_BYTES;

/// Heads cached per direction.
const CACHED_HEADS: usize = 4;

/// Buffers and caches that the connections of a thread use in turn, so that idle connections need none.
#[derive(Debug)]
struct Scratch {
    /// Headroom, input, and space for the tail of a body.
    input: Box<[u8]>,
    /// The head to forward.
    head: Vec<u8>,
    requests: HeadCache<RequestKey, CachedRequest, CACHED_HEADS>,
    responses: HeadCache<ResponseKey, CachedResponse, CACHED_HEADS>,
    date: DateCache,
}

impl Scratch {
    fn new() -> Self {
        Self {
            input: vec![0; HEADROOM_BYTES + INPUT_BYTES + TAIL_BYTES_MAX].into_boxed_slice(),
            head: Vec::new(),
            requests: HeadCache::default(),
            responses: HeadCache::default(),
            date: DateCache::default(),
        }
    }
}

impl Worker {
    pub(crate) fn new(
        listeners: Vec<ThreadListener>,
        generation: Arc<ConfigGeneration>,
        counters: Arc<Counters>,
        commands: Arc<CommandQueue>,
        thread: usize,
        filter: Option<Box<dyn Filter>>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(commands.waker(), COMMANDS_TOKEN, Interest::Readable)?;
        let timeouts = generation.config.timeouts;
        let mut filter = FilterSlot::new(filter, thread, Resumer(Arc::clone(&commands)));
        filter.reload(&generation);
        let access_log = generation.access_log.as_ref().map(LogFile::thread_log);
        let mut generations = Slab::new();
        let current = generations.insert(Generation::new(generation, thread as u64));
        let now = Instant::now();
        let mut worker = Self {
            poller,
            commands,
            listeners: Vec::new(),
            clients: Slab::new(),
            http2: Connections::default(),
            upstreams: Slab::new(),
            generations,
            current,
            timeouts,
            scratch: Scratch::new(),
            filter,
            ready: VecDeque::new(),
            unwatched: VecDeque::new(),
            reclaimable: VecDeque::new(),
            last_serial: 0,
            counters,
            thread,
            access_log,
            connections_per_client: HashMap::new(),
            now,
            last_duration: (now, now, 0),
            sweep_at: now,
            accept_again_at: None,
            coalescing: Coalescing::new(now),
            last_accept_pause: None,
            exhaustion_log: RateLimit::new(LOG_INTERVAL),
            websocket_log: RateLimit::new(LOG_INTERVAL),
            stop_by: None,
        };
        worker.sweep_at = now + worker.sweep_period();
        listeners.into_iter().try_for_each(|listener| worker.add_listener(listener))?;
        Ok(worker)
    }

    fn client_counters(&self) -> &ClientCounters {
        self.counters.clients(self.thread)
    }

    fn is_connected(&self, client: ClientId) -> bool {
        self.clients.get(client.key).is_some_and(|it| it.serial == client.serial)
    }

    /// Microseconds since `start`. The head and the end of a short response have the same duration, and computing it costs
    /// more than a comparison.
    #[inline]
    fn elapsed_us(&mut self, start: Instant) -> u64 {
        let (last_start, last_end, last_us) = self.last_duration;
        if (last_start, last_end) == (start, self.now) {
            return last_us;
        }
        let duration = self.now.saturating_duration_since(start);
        let us = duration.as_secs() * 1_000_000 + u64::from(duration.subsec_micros());
        self.last_duration = (start, self.now, us);
        us
    }

    fn next_serial(&mut self) -> u32 {
        self.last_serial = (self.last_serial + 1) & SERIAL_MASK;
        self.last_serial
    }
}

/// The source that a poller token identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Commands,
    Listener(usize),
    Client(ClientId),
    Upstream { key: usize, serial: u32 },
}

const COMMANDS_TOKEN: u64 = u64::MAX;
/// One bit less than available, so that no connection has the token of a listener.
const SERIAL_MASK: u32 = (1 << 30) - 1;
const KEY_BITS: u32 = 32;

fn connection_token(is_upstream: bool, key: usize, serial: u32) -> u64 {
    (u64::from(serial) << (KEY_BITS + 1)) | ((key as u64) << 1) | u64::from(is_upstream)
}

fn listener_token(index: usize) -> u64 {
    COMMANDS_TOKEN - 1 - index as u64
}

#[inline]
fn source(token: u64) -> Source {
    let serial = (token >> (KEY_BITS + 1)) as u32;
    let key = ((token >> 1) & u64::from(u32::MAX)) as usize;
    match token {
        COMMANDS_TOKEN => Source::Commands,
        _ if serial > SERIAL_MASK => Source::Listener((COMMANDS_TOKEN - 1 - token) as usize),
        _ if token & 1 == 1 => Source::Upstream { key, serial },
        _ => Source::Client(ClientId { key, serial }),
    }
}
