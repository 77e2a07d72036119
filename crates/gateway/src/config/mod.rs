//! The validated configuration of a gateway. Past this module nothing is checked again.

mod error;
mod file;
#[cfg(test)]
mod tests;
mod validate;

use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::time::Duration;

pub use tollgate_accesslog::{LogFormat, LogTarget};
pub use tollgate_eventloop::Address;

use crate::tls::TlsIdentity;
pub use error::ConfigError;
use error::InvalidValue;

/// Larger configuration files are refused.
const FILE_BYTES_MAX: u64 = 4 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// At least one.
    pub listeners: Vec<Listener>,
    pub routes: Vec<Route>,
    /// [`PoolId`] is an index into this list.
    pub pools: Vec<Pool>,
    pub timeouts: Timeouts,
    pub limits: Limits,
    pub forwarded: Forwarded,
    pub access_log: Option<AccessLog>,
    /// Address of the admin server: `/metrics` and `/healthz`.
    pub admin: Option<SocketAddr>,
    pub threads: NonZeroUsize,
}

impl Config {
    /// One thread, one listener and one backend, with the default timeouts and limits and without an
    /// access log.
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

    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = read_text(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Parses and validates the text of the file `path`. Relative paths in it are resolved against the
    /// folder of `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let folder = path.parent().unwrap_or(Path::new(""));
        serde_saphyr::from_str(text)
            .map_err(InvalidValue::from)
            .and_then(|file| validate::validate(&file, folder))
            .map_err(|invalid| invalid.in_file(&path.display().to_string()))
    }
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 4 MiB"));
    }
    Ok(text)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub address: Address,
    pub backlog: u32,
    pub defer_accept: bool,
    /// `None`: plain HTTP.
    pub tls: Option<TlsIdentity>,
}

impl Listener {
    pub(crate) const DEFAULT_BACKLOG: u32 = 4096;

    /// Plain HTTP with the default backlog.
    pub fn new(address: Address) -> Self {
        Self { address, backlog: Self::DEFAULT_BACKLOG, defer_accept: false, tls: None }
    }

    /// The backlog as `listen(2)` takes it.
    pub(crate) fn backlog(&self) -> i32 {
        self.backlog.try_into().unwrap_or(i32::MAX)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub host: HostPattern,
    /// Whole path segments: `/shop` matches `/shop/cart` but not `/shopping`.
    pub path_prefix: String,
    pub pool: PoolId,
    /// Replaces the prefix in the request to the backend.
    pub rewrite: Option<String>,
    pub request_headers: HeaderEdits,
    pub response_headers: HeaderEdits,
}

impl Route {
    /// Sends every request to this pool, unchanged.
    pub fn all_to(pool: PoolId) -> Self {
        Self {
            host: HostPattern::Any,
            path_prefix: "/".to_owned(),
            pool,
            rewrite: None,
            request_headers: HeaderEdits::default(),
            response_headers: HeaderEdits::default(),
        }
    }
}

/// The hosts that a route matches, in lower case and without a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// Every host, and requests without one.
    Any,
    Exact(String),
    /// Every subdomain of this host.
    Below(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    /// Names and values to set; each replaces all headers of that name.
    pub set: Vec<(String, String)>,
    /// Names to remove, in lower case.
    pub remove: Vec<String>,
}

impl HeaderEdits {
    /// True if headers of this name are removed or replaced.
    pub(crate) fn affect(&self, name: &str) -> bool {
        self.remove.iter().any(|removed| removed.eq_ignore_ascii_case(name))
            || self.set.iter().any(|(set, _)| set.eq_ignore_ascii_case(name))
    }
}

/// Index of a pool in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub usize);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    pub name: String,
    pub balance: Balance,
    /// At least one, of which at least one has a weight.
    pub backends: Vec<Backend>,
    /// Idle connections that are kept, per backend and thread.
    pub keepalive_max: usize,
    /// Connections per backend and thread. `None`: unlimited.
    pub connections_max: Option<NonZeroU32>,
    /// Requests that wait for a connection, per backend and thread.
    pub queue_max: usize,
    pub queue_timeout: Duration,
    pub health: Option<HealthCheck>,
    pub eject: Option<Ejection>,
    pub retries: u32,
}

impl Pool {
    pub(crate) const DEFAULT_KEEPALIVE_MAX: usize = 1024;
    pub(crate) const DEFAULT_QUEUE_MAX: usize = 1024;
    pub(crate) const DEFAULT_QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
    pub(crate) const DEFAULT_RETRIES: u32 = 1;

    /// Round robin with the default limits, without health checks and ejection.
    pub fn new(name: &str, backends: Vec<Backend>) -> Self {
        Self {
            name: name.to_owned(),
            balance: Balance::RoundRobin,
            backends,
            keepalive_max: Self::DEFAULT_KEEPALIVE_MAX,
            connections_max: None,
            queue_max: Self::DEFAULT_QUEUE_MAX,
            queue_timeout: Self::DEFAULT_QUEUE_TIMEOUT,
            health: None,
            eject: None,
            retries: Self::DEFAULT_RETRIES,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Balance {
    RoundRobin,
    LeastConnections,
    ConsistentHash { by: HashBy },
    RandomOfTwo,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashBy {
    Client,
    /// The first header of this name (in lower case); the client's address without one.
    Header(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    pub address: Address,
    pub weight: u32,
}

impl Backend {
    /// A backend of weight 1.
    pub fn new(address: Address) -> Self {
        Self { address, weight: 1 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Path of the request. A response of 200 to 399 is a success.
    pub path: String,
    pub interval: Duration,
    /// At most the interval.
    pub timeout: Duration,
    pub rise: u32,
    pub fall: u32,
}

/// Outlier detection: a backend that fails requests receives none for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    pub failures: u32,
    pub duration: Duration,
}

/// `file.rs` describes each. Timeouts are checked at intervals of a quarter of the shortest, so that each may take a
/// little longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    pub connect: Duration,
    pub header: Duration,
    pub body: Duration,
    pub response: Duration,
    pub idle: Duration,
    pub tunnel: Duration,
    pub drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            header: Duration::from_secs(10),
            body: Duration::from_secs(30),
            response: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            tunnel: Duration::from_secs(60),
            drain: Duration::from_secs(30),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub header_bytes: usize,
    pub headers: usize,
    /// Size of a request body. `None`: unlimited.
    pub body_bytes: Option<u64>,
    /// Client connections per thread.
    pub connections: usize,
    /// Connections per client address and thread. `None`: unlimited.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// Name of this gateway in `Via`, in requests and responses. `None`: no `Via`.
    pub via: Option<String>,
    pub x_forwarded: bool,
    pub forwarded: bool,
    /// Keeps these headers of the client and appends to them. Otherwise they are dropped, spellings with
    /// underscores included, since any client can write anything there.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    pub to: LogTarget,
    pub format: LogFormat,
}
