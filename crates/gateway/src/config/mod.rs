//! The validated configuration of a gateway. Past this module nothing is checked again.

mod error;
mod file;
#[cfg(test)]
mod tests;
mod tls;
mod validate;
mod waf;

use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Deserialize;

pub use tollgate_accesslog::{LogFormat, LogTarget};
pub use tollgate_net::Address;

use crate::resolve::{Addresses, HostName, Resolver};
pub use error::ConfigError;
use error::InvalidValue;
use tollgate_tls::{TlsClient, TlsServer};
pub(crate) use waf::Compression;
pub use waf::{AuditLog, Waf};

/// Larger configuration files are refused.
const FILE_BYTES_MAX: u64 = 4 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// At least one.
    pub listeners: Vec<Listener>,
    pub routes: Vec<Route>,
    /// [`PoolId`] is an index into this list.
    pub pools: Vec<Pool>,
    pub resolve: Resolve,
    pub timeouts: Timeouts,
    pub limits: Limits,
    pub requests: Requests,
    pub forwarded: Forwarded,
    pub access_log: Option<AccessLog>,
    pub audit_log: Option<AuditLog>,
    /// Address of the admin server: `/metrics` and `/healthz`.
    pub admin: Option<SocketAddr>,
    pub threads: NonZeroUsize,
    /// Problems of the file that do not prevent its use, such as an expired certificate.
    pub warnings: Vec<String>,
}

impl Config {
    /// One thread, one listener and one backend, with the default timeouts and limits and without an
    /// access log.
    pub fn new(listen: Address, backend: Address) -> Self {
        Self {
            listeners: vec![Listener::new(listen)],
            routes: vec![Route::all_to(PoolId(0))],
            pools: vec![Pool::new("default", vec![Backend::new(backend)])],
            resolve: Resolve::default(),
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            requests: Requests::default(),
            forwarded: Forwarded::default(),
            access_log: None,
            audit_log: None,
            admin: None,
            threads: NonZeroUsize::MIN,
            warnings: Vec::new(),
        }
    }

    /// Reads a file, with its certificates and rules, and resolves its names. Blocks on the system's resolver if
    /// backends have names.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::read_with(path, Resolver::default())
    }

    /// Reads a file; `resolver` resolves its names.
    pub fn read_with(path: &Path, resolver: Resolver) -> Result<Self, ConfigError> {
        let text = read_text(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse_with(&text, path, resolver)
    }

    /// Parses and validates the text of the file `path`. Relative paths in it are resolved against the
    /// folder of `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        Self::parse_with(text, path, Resolver::default())
    }

    fn parse_with(text: &str, path: &Path, resolver: Resolver) -> Result<Self, ConfigError> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let file = path.display().to_string();
        let invalid = |invalid: InvalidValue| invalid.in_file(&file);
        let values = serde_saphyr::from_str(text)
            .map_err(|error| invalid(InvalidValue::of_yaml(error, text)))?;
        let validated = validate::validate(&values, folder, resolver);
        let (mut config, warnings) = validated.map_err(|mut errors| {
            if errors.len() == 1 {
                return invalid(errors.remove(0));
            }
            ConfigError::Several(errors.into_iter().map(invalid).collect())
        })?;
        config.warnings = warnings.into_iter().map(|it| invalid(it).to_string()).collect();
        Ok(config)
    }

    /// The names of backends with their addresses.
    pub(crate) fn names(&self) -> Addresses {
        let declared = self.pools.iter().flat_map(|pool| &pool.declared);
        declared
            .filter_map(|backend| match &backend.target {
                Target::Name(name, addresses) => Some((name.clone(), addresses.clone())),
                Target::Address(_) => None,
            })
            .collect()
    }

    /// Continues with the keys of the session tickets of an earlier configuration.
    pub(crate) fn inherit_tickets(&mut self, old: &Self) {
        for listener in &mut self.listeners {
            let same = old.listeners.iter().find(|other| other.address == listener.address);
            if let (Some(tls), Some(old)) = (&mut listener.tls, same.and_then(|it| it.tls.as_ref()))
            {
                tls.inherit_tickets(old);
            }
        }
    }

    /// Changes the addresses of names.
    pub(crate) fn set_addresses(&mut self, names: &Addresses) {
        for pool in self.pools.iter_mut().filter(|pool| !pool.declared.is_empty()) {
            for backend in &mut pool.declared {
                if let Target::Name(name, addresses) = &mut backend.target
                    && let Some(new) = names.get(name)
                {
                    addresses.clone_from(new);
                }
            }
            pool.backends = expand(&pool.declared);
        }
    }
}

/// The backends of a pool: one for each address.
fn expand(declared: &[DeclaredBackend]) -> Vec<Backend> {
    let mut backends: Vec<Backend> = Vec::with_capacity(declared.len());
    for DeclaredBackend { target, weight, tls } in declared {
        let (addresses, name) = match target {
            Target::Address(address) => (vec![address.clone()], None),
            Target::Name(name, addresses) => {
                (addresses.iter().copied().map(Address::Tcp).collect(), Some(name.clone()))
            }
        };
        for address in addresses {
            // Two names may have the same address.
            if backends.iter().all(|other| other.address != address) {
                // A server cannot resume the sessions of another one.
                let tls = tls.as_ref().map(TlsClient::with_own_sessions);
                backends.push(Backend { address, weight: *weight, name: name.clone(), tls });
            }
        }
    }
    backends
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
    pub tls: Option<TlsServer>,
    /// HTTP/2 beside HTTP/1.1.
    pub http2: bool,
}

impl Listener {
    pub(crate) const DEFAULT_BACKLOG: u32 = 4096;

    /// Plain HTTP/1.1 with the default backlog.
    pub fn new(address: Address) -> Self {
        let backlog = Self::DEFAULT_BACKLOG;
        Self { address, backlog, defer_accept: false, tls: None, http2: false }
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
    /// `None`: nothing is inspected.
    pub waf: Option<Arc<Waf>>,
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
            waf: None,
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

/// Index of a route in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteId(pub(crate) usize);

/// Index of a pool in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub usize);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    pub name: String,
    pub balance: Balance,
    /// At least one; at least one has a nonzero weight.
    pub backends: Vec<Backend>,
    pub protocol: Protocol,
    /// The backends as in the file. Empty if none has a name.
    pub(crate) declared: Vec<DeclaredBackend>,
    /// Idle connections that are kept, per backend and thread.
    pub keepalive_max: usize,
    /// Connections, or requests with HTTP/2, per backend and thread. `None`: unlimited.
    pub connections_max: Option<NonZeroU32>,
    /// Requests that wait for a connection, per backend and thread.
    pub queue_max: usize,
    pub queue_timeout: Duration,
    /// Closes the connection after a response to HEAD.
    pub close_after_head: bool,
    pub health: Option<HealthCheck>,
    pub eject: Option<Ejection>,
    pub retries: u32,
}

impl Pool {
    pub(crate) const DEFAULT_KEEPALIVE_MAX: usize = 1024;
    pub(crate) const DEFAULT_QUEUE_MAX: usize = 1024;
    pub(crate) const DEFAULT_QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
    pub(crate) const DEFAULT_RETRIES: u32 = 1;
    pub(crate) const DEFAULT_STREAMS_MAX: u32 = 100;

    /// Round robin with the default limits, without health checks and ejection.
    pub fn new(name: &str, backends: Vec<Backend>) -> Self {
        Self {
            name: name.to_owned(),
            balance: Balance::RoundRobin,
            backends,
            protocol: Protocol::Http1,
            declared: Vec::new(),
            keepalive_max: Self::DEFAULT_KEEPALIVE_MAX,
            connections_max: None,
            queue_max: Self::DEFAULT_QUEUE_MAX,
            queue_timeout: Self::DEFAULT_QUEUE_TIMEOUT,
            close_after_head: false,
            health: None,
            eject: None,
            retries: Self::DEFAULT_RETRIES,
        }
    }
}

/// Protocol with the backends of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    /// Over TLS by ALPN, otherwise with prior knowledge.
    Http2 {
        /// Requests at once on one connection.
        streams_max: u32,
    },
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
    /// The name that has this address.
    pub name: Option<HostName>,
    /// `None`: plain HTTP.
    pub tls: Option<TlsClient>,
}

impl Backend {
    /// A backend of weight 1.
    pub fn new(address: Address) -> Self {
        Self { address, weight: 1, name: None, tls: None }
    }
}

/// A backend as in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeclaredBackend {
    target: Target,
    weight: u32,
    tls: Option<TlsClient>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Address(Address),
    /// A name and its addresses.
    Name(HostName, Vec<SocketAddr>),
}

/// Resolution of the names of backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolve {
    /// Between two resolutions.
    pub interval: Duration,
    pub family: AddressFamily,
    pub resolver: Resolver,
}

impl Default for Resolve {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(30),
            family: AddressFamily::default(),
            resolver: Resolver::default(),
        }
    }
}

/// Addresses that are used of a name with IPv4 and IPv6 addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "address family")]
pub enum AddressFamily {
    /// IPv4 addresses if there are any, else IPv6.
    #[default]
    PreferIpv4,
    /// IPv6 addresses if there are any, else IPv4.
    PreferIpv6,
    /// All: as many backends.
    All,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// `None`: a connection is a success, over TLS with its handshake.
    pub request: Option<HealthRequest>,
    pub interval: Duration,
    /// At most the interval.
    pub timeout: Duration,
    pub rise: u32,
    pub fall: u32,
}

/// The request of a health check, and the responses that are a success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthRequest {
    pub path: String,
    /// `None`: the name or address of the backend as configured.
    pub host: Option<String>,
    pub statuses: Vec<RangeInclusive<u16>>,
}

impl HealthRequest {
    /// Responses with a status of 200 to 399 are a success.
    pub fn get(path: &str) -> Self {
        Self { path: path.to_owned(), host: None, statuses: vec![200..=399] }
    }
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
    /// Bytes per second. `None`: any.
    pub body_rate: Option<NonZeroU32>,
    pub response: Duration,
    pub abandoned: Duration,
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
            body_rate: NonZeroU32::new(240),
            response: Duration::from_secs(60),
            abandoned: Duration::from_secs(1),
            idle: Duration::from_secs(60),
            tunnel: Duration::from_secs(60),
            drain: Duration::from_secs(30),
        }
    }
}

impl Timeouts {
    /// The deadline of a body after its client has moved `bytes`. It approaches `deadline` unless the client is as fast as
    /// the lowest rate.
    pub(crate) fn next_body_deadline(
        &self,
        deadline: Instant,
        bytes: usize,
        now: Instant,
    ) -> Instant {
        let latest = now + self.body;
        let Some(rate) = self.body_rate else { return latest };
        let earned =
            Duration::from_secs(1).saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
        latest.min(deadline + earned / rate.get())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub header_bytes: usize,
    pub headers: usize,
    pub response_headers: usize,
    /// Size of a request body. `None`: unlimited.
    pub body_bytes: Option<u64>,
    /// Client connections per thread.
    pub connections: usize,
    /// Connections per client network and thread. `None`: unlimited.
    pub connections_per_client: Option<usize>,
    /// Bytes of bodies held for inspection, per thread.
    pub held_body_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: 16 * 1024,
            headers: 100,
            response_headers: 100,
            body_bytes: None,
            connections: 16_384,
            connections_per_client: None,
            held_body_bytes: 256 << 20,
        }
    }
}

/// Rules for requests: accepted methods and headers, and the forwarded form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requests {
    pub path: PathForm,
    /// Forwards TRACE.
    pub trace: bool,
    /// Protocols of upgrades, in lower case.
    pub upgrades: Vec<String>,
    /// Serves clients that have ended their sending side like others.
    pub half_close: bool,
    /// Forwards headers with `_` in their names.
    pub underscores: bool,
    /// Names of headers that are not forwarded, in lower case.
    pub remove_headers: Vec<String>,
}

/// Form of the path that backends get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "path form")]
pub enum PathForm {
    /// Without `/./` and `/x/../`, so that a backend that compares prefixes agrees with the route.
    #[default]
    Resolved,
    /// As received. A path whose route depends on whether it is resolved is answered with 400.
    Raw,
}

/// Headers by which a client could change the URL that a backend serves, or the proxy that it uses.
pub(crate) const REQUEST_OVERRIDES: [&str; 4] =
    ["proxy", "x-original-host", "x-original-url", "x-rewrite-url"];

/// Client descriptions that backends trust from a proxy. The gateway does not write them.
pub(crate) const CLIENT_DESCRIPTIONS: [&str; 9] = [
    "true-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-real-ip",
];

impl Default for Requests {
    fn default() -> Self {
        let removed = REQUEST_OVERRIDES.into_iter().chain(CLIENT_DESCRIPTIONS);
        Self {
            path: PathForm::default(),
            trace: false,
            upgrades: vec!["websocket".to_owned()],
            half_close: false,
            underscores: false,
            remove_headers: removed.map(str::to_owned).collect(),
        }
    }
}

impl Requests {
    /// True if all protocols in the value of an `Upgrade` header are allowed.
    pub(crate) fn allow_upgrade(&self, protocols: &[u8]) -> bool {
        let is_allowed = |protocol: &[u8]| {
            let protocol = protocol.trim_ascii();
            self.upgrades.iter().any(|it| it.as_bytes().eq_ignore_ascii_case(protocol))
        };
        protocols.split(|&byte| byte == b',').all(is_allowed)
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
