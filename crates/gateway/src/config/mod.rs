//! What a gateway is started with, once it has been checked: past this point nothing is checked again.

mod check;
mod check_pools;
mod check_routes;
mod error;
mod file;
mod listener;
mod pool;
mod read;
mod route;
#[cfg(test)]
mod tests;
mod text;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

pub use tollgate_ledger::{LogFormat, LogTarget};

pub use error::ConfigError;
pub use listener::{Address, AddressParseError, Listener, Tls};
pub use pool::{ActiveHealth, Backend, Balance, Ejection, HashBy, Pool, PoolId};
pub use route::{HeaderEdits, HostPattern, Route};

/// The whole of a gateway's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where clients are listened for; at least one.
    pub listeners: Vec<Listener>,
    /// Which requests go to which pool.
    pub routes: Vec<Route>,
    /// The backends, in groups that answer alike. [`PoolId`] counts along this list.
    pub pools: Vec<Pool>,
    /// How long clients and backends are waited for.
    pub timeouts: Timeouts,
    /// What is refused because it is too much.
    pub limits: Limits,
    /// What a backend is told about the client, and who passed the request on.
    pub forwarded: Forwarded,
    /// Where a line a request goes. None: nothing is written.
    pub access_log: Option<AccessLog>,
    /// Where `/metrics` and `/healthz` are answered. None: nowhere.
    pub admin: Option<SocketAddr>,
    /// How many threads serve, each with its own listeners.
    pub threads: NonZeroUsize,
}

impl Config {
    /// One thread that listens there and passes everything on to this one backend, with the usual
    /// timeouts and limits, and nothing logged.
    #[must_use]
    pub fn new(listen: Address, backend: Address) -> Self {
        Self {
            listeners: vec![Listener::new(listen)],
            routes: vec![Route::all_to(PoolId(0))],
            pools: vec![Pool::new("default", vec![Backend::new(backend)])],
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            forwarded: Forwarded::default(),
            access_log: None,
            admin: None,
            threads: NonZeroUsize::MIN,
        }
    }
}

/// How long clients and backends are waited for. All are looked at a few times in the shortest of
/// them, so that one who is late may have a little more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection to a backend to stand.
    pub connect: Duration,
    /// From the first byte of a request's head to its last.
    pub header: Duration,
    /// From one byte of a body to the next, in both directions.
    pub body: Duration,
    /// From the end of a request to the first byte of the backend's answer.
    pub answer: Duration,
    /// Between two requests of a client, and for a connection to a backend that nobody uses.
    pub idle: Duration,
    /// From one byte of another protocol to the next, in either direction.
    pub tunnel: Duration,
    /// For what is in flight to end, once told to drain.
    pub drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            header: Duration::from_secs(10),
            body: Duration::from_secs(30),
            answer: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            tunnel: Duration::from_secs(60),
            drain: Duration::from_secs(30),
        }
    }
}

/// What is refused because it is too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The bytes of a head, its first line included.
    pub header_bytes: usize,
    /// The header lines of a head.
    pub headers: usize,
    /// The bytes of a request's body. None: any number.
    pub body_bytes: Option<u64>,
    /// The clients of one thread at a time.
    pub connections: usize,
    /// The connections of one client address at a time, in one thread. None: as many as there are.
    pub connections_per_client: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: 16 * 1024,
            headers: 100,
            body_bytes: None,
            connections: 16_384,
            connections_per_client: None,
        }
    }
}

/// What a backend is told about the client, and who passed the request on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// The name that `Via` gives this gateway, in requests and in answers. None: no `Via`.
    pub via: Option<String>,
    /// Whether `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host` are sent.
    pub x_forwarded: bool,
    /// Whether `Forwarded` (RFC 7239) is sent.
    pub forwarded: bool,
    /// Whether what the client says in those headers is kept and added to. If not, it is dropped, with
    /// underscores for hyphens too: whoever connects could write anything there.
    pub trust_client: bool,
}

impl Default for Forwarded {
    fn default() -> Self {
        Self {
            via: Some("tollgate".to_owned()),
            x_forwarded: true,
            forwarded: false,
            trust_client: false,
        }
    }
}

/// Where a line a request goes, and how it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Where the lines go.
    pub to: LogTarget,
    /// How a line is written.
    pub format: LogFormat,
}
