//! Backends that answer alike, and how requests are spread over them.

use std::num::NonZeroU32;
use std::time::Duration;

use super::Address;

/// A pool, by its place in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub usize);

/// Backends that answer alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// What routes and metrics call it.
    pub name: String,
    /// Which backend is next.
    pub balance: Balance,
    /// The backends; at least one, of which at least one has a weight.
    pub backends: Vec<Backend>,
    /// The connections that are kept for the next request, per backend and thread.
    pub keepalive_max: usize,
    /// The connections to a backend at a time, per thread. None: as many as there are requests.
    pub connections_max: Option<NonZeroU32>,
    /// The requests that wait for a connection, per backend and thread; those that find the queue full are
    /// refused. They go to whichever backend has room first, and with a consistent hash to their own.
    pub queue_max: usize,
    /// For which a request waits there.
    pub queue_timeout: Duration,
    /// The requests that backends are asked by to find out whether they are well. None: not asked.
    pub health: Option<ActiveHealth>,
    /// When a backend that fails is left alone. None: never.
    pub eject: Option<Ejection>,
    /// How often a request is tried on another backend, where that is safe.
    pub retries: u32,
}

impl Pool {
    /// Turn by turn over these backends, with the usual limits, one retry and no health checks.
    #[must_use]
    pub fn new(name: &str, backends: Vec<Backend>) -> Self {
        Self {
            name: name.to_owned(),
            balance: Balance::RoundRobin,
            backends,
            keepalive_max: Self::KEEPALIVE_MAX,
            connections_max: None,
            queue_max: Self::QUEUE_MAX,
            queue_timeout: Self::QUEUE_TIMEOUT,
            health: None,
            eject: None,
            retries: Self::RETRIES,
        }
    }

    /// The connections that are kept where a pool does not say how many.
    pub const KEEPALIVE_MAX: usize = 1024;
    /// How many requests may wait where a pool does not say.
    pub const QUEUE_MAX: usize = 1024;
    /// For which they wait where a pool does not say.
    pub const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
    /// How often a request is tried on another backend where a pool does not say.
    pub const RETRIES: u32 = 1;
}

/// Which backend of a pool is next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Turn by turn, as often as its weight says.
    RoundRobin,
    /// The one with the fewest requests under way for its weight.
    LeastConnections,
    /// Always the same one for the same client or header, as long as it is up.
    ConsistentHash {
        /// What is the same.
        by: HashBy,
    },
    /// Two are drawn by weight, and the one with fewer requests under way for its weight is taken.
    RandomOfTwo,
}

/// What a consistent hash is taken of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashBy {
    /// The client's address, without the port.
    Client,
    /// The first header of this name, which is in lower case.
    Header(String),
}

/// One server that answers for a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Where it is reached.
    pub address: Address,
    /// Its share of the requests, beside the others' weights. 0: none.
    pub weight: u32,
}

impl Backend {
    /// A backend of weight 1.
    #[must_use]
    pub fn new(address: Address) -> Self {
        Self { address, weight: 1 }
    }
}

/// The requests that backends are asked by to find out whether they are well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveHealth {
    /// The path that is asked for. Any answer of 200 to 399 is a good one.
    pub path: String,
    /// From one request to the next.
    pub interval: Duration,
    /// For which an answer is waited for.
    pub timeout: Duration,
    /// How many good answers in a row bring a backend back.
    pub rise: u32,
    /// How many failures in a row take it out.
    pub fall: u32,
}

/// When a backend that fails is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// After how many failures in a row.
    pub failures: u32,
    /// For how long.
    pub for_time: Duration,
}
