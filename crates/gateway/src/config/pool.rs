//! Pools, their backends, and how the health of backends is found out.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

use tollgate_config::gateway::ProxyVersion;
use tollgate_net::Address;
use tollgate_tls::TlsClient;

use crate::resolve::HostName;

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
    /// Window up to which that of a response grows, over HTTP/2.
    pub stream_window_max: u32,
    /// The backends as in the file. Empty if none has a name.
    pub(crate) declared: Vec<DeclaredBackend>,
    /// Idle connections that are kept, per backend and thread.
    pub keepalive_max: usize,
    /// Time for which they are kept. `None`: `timeouts.idle`.
    pub keepalive_timeout: Option<Duration>,
    /// Each connection begins with a header that has the address of the client, and serves one request.
    pub proxy_protocol: Option<ProxyVersion>,
    /// Connections, or requests with HTTP/2, per backend and thread. `None`: unlimited.
    pub connections_max: Option<NonZeroU32>,
    /// Longest request body of known length that is received before a backend is chosen.
    pub buffer_request: u64,
    /// Bytes of a response that may wait for its client while more of it is received.
    pub buffer_response: u64,
    /// Requests that wait for a connection, per backend and thread.
    pub queue_max: usize,
    pub queue_timeout: Duration,
    /// Closes the connection after a response to HEAD.
    pub close_after_head: bool,
    pub health: Option<HealthCheck>,
    pub eject: Option<Ejection>,
    /// Time in which the share of a backend that has come up grows to its weight.
    pub slow_start: Option<Duration>,
    pub retries: u32,
    /// After it, a request that has failed on all backends may be sent to them again. `None`: never.
    pub retry_pause: Option<Duration>,
}

impl Pool {
    pub(crate) const DEFAULT_KEEPALIVE_MAX: usize = 1024;
    pub(crate) const DEFAULT_BUFFER_REQUEST: u64 = 64 << 10;
    pub(crate) const DEFAULT_BUFFER_RESPONSE: u64 = 64 << 10;
    pub(crate) const DEFAULT_QUEUE_MAX: usize = 1024;
    pub(crate) const DEFAULT_QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
    pub(crate) const DEFAULT_RETRIES: u32 = 1;
    pub(crate) const DEFAULT_STREAMS_MAX: u32 = 100;
    pub(crate) const DEFAULT_STREAM_WINDOW_MAX: u32 = 256 << 10;

    /// Round robin with the default limits, without health checks and ejection.
    pub fn new(name: &str, backends: Vec<Backend>) -> Self {
        Self {
            name: name.to_owned(),
            balance: Balance::RoundRobin,
            backends,
            protocol: Protocol::Http1,
            stream_window_max: Self::DEFAULT_STREAM_WINDOW_MAX,
            declared: Vec::new(),
            keepalive_max: Self::DEFAULT_KEEPALIVE_MAX,
            keepalive_timeout: None,
            proxy_protocol: None,
            connections_max: None,
            buffer_request: Self::DEFAULT_BUFFER_REQUEST,
            buffer_response: Self::DEFAULT_BUFFER_RESPONSE,
            queue_max: Self::DEFAULT_QUEUE_MAX,
            queue_timeout: Self::DEFAULT_QUEUE_TIMEOUT,
            close_after_head: false,
            health: None,
            eject: None,
            slow_start: None,
            retries: Self::DEFAULT_RETRIES,
            retry_pause: None,
        }
    }

    /// Hosts and ports of the backends, in lower case: their addresses, and their names in the file.
    pub(super) fn authorities(&self) -> BTreeSet<String> {
        let mut all: BTreeSet<String> =
            self.backends.iter().map(|backend| backend.address.to_string()).collect();
        for backend in &self.declared {
            if let Target::Name(HostName { host, port }, _) = &backend.target {
                all.insert(format!("{}:{port}", host.to_ascii_lowercase()));
            }
        }
        all
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
    /// The first cookie of this name; without one, the response sets it.
    Cookie(String),
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
    pub(super) target: Target,
    pub(super) weight: u32,
    pub(super) tls: Option<TlsClient>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Address(Address),
    /// A name and its addresses.
    Name(HostName, Vec<SocketAddr>),
}

/// The backends of a pool: one for each address.
pub(super) fn expand(declared: &[DeclaredBackend]) -> Vec<Backend> {
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
