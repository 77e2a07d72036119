//! Shape of a load: when requests are sent, over which connections, and for how long, whatever the requests are.
//!
//! The cases of experiments, their records and the load generator share these types.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use strum::Display;

use crate::units::{Percent, span};

/// Limit of connections per generator. One client address has about 28,000 ports towards one target
/// (`net.ipv4.ip_local_port_range`).
pub const MAX_CONNECTIONS: usize = 20_000;

/// Limit of [`Clients::threads`].
pub const MAX_THREADS: usize = 256;

/// Limit of the requests in flight on a connection over HTTP/1.1.
pub const MAX_PIPELINE: usize = 1_000;

/// Limit of the streams of a connection over HTTP/2.
pub const MAX_STREAMS: usize = 1_000;

/// Limit of the rate of an open loop, in requests per second.
pub const MAX_RATE: f64 = 10_000_000.0;

/// Limit of both timeouts. A latency histogram does not reach further.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// Load of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadShape {
    /// Program that sends the requests; absent for tollgate.
    #[serde(default, skip_serializing_if = "LoadProgram::is_own")]
    pub program: LoadProgram,
    /// Decides when a request is sent.
    pub arrivals: CaseArrivals,
    /// Senders of the requests.
    pub clients: Clients,
    /// TLS between clients and system.
    pub tls: TlsSessions,
    /// End of the load before the measurement.
    pub warm_up: WarmUp,
    /// End of the measurement.
    pub window: Window,
    /// True if the CPUs are kept from halting.
    pub idle_poll: bool,
}

/// Decision when a request is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CaseArrivals {
    /// Each connection sends when its last response is complete. Finds the capacity of a system.
    Closed {
        /// Concurrent connections.
        connections: usize,
    },
    /// Requests leave on a schedule, independent of responses. Finds the latency at a known load.
    Open(OpenLoop<CaseRate>),
}

/// Schedule of an open loop, and its connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OpenLoop<R> {
    /// Rate over all threads.
    pub rate: R,
    /// Gaps between requests.
    pub spacing: Spacing,
    /// Connections opened at the start, over all threads.
    pub connections: usize,
    /// Limit of the connections if a request is due and none is free; at least `connections`.
    pub connections_max: usize,
}

/// Rate of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CaseRate {
    /// Requests per second.
    PerS(f64),
    /// Share of the throughput of the slowest subject in another case, a closed loop.
    ShareOf {
        /// Name of the other case.
        case: String,
        /// Share of its throughput.
        share: Percent,
        /// Requests per second; null until the other case has a valid trial.
        per_s: Option<f64>,
    },
}

/// Gaps between the requests of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Spacing {
    /// Constant gaps.
    Constant,
    /// Exponential gaps, as of many independent clients.
    Poisson,
}

/// Senders of a load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Clients {
    /// Protocol, and how it uses a connection.
    pub protocol: Protocol,
    /// Threads that send; 1 to [`MAX_THREADS`], at most one per connection.
    pub threads: usize,
    /// True if threads poll for events instead of sleeping. This saves the server the cost of waking them and makes no
    /// request late, but each thread uses a whole CPU.
    pub busy_poll: bool,
    /// Limit of the time to connect; up to [`MAX_TIMEOUT`], checked every millisecond.
    #[serde(with = "span")]
    #[schemars(with = "String")]
    pub connect_timeout: Duration,
    /// Limit of the time from send to complete response; as `connect_timeout`.
    #[serde(with = "span")]
    #[schemars(with = "String")]
    pub response_timeout: Duration,
}

/// Protocol, and how it uses a connection.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// HTTP/1.1, one request after another on a connection.
    Http1 {
        /// Limit of requests in flight on a connection; 1 to [`MAX_PIPELINE`].
        pipeline: usize,
    },
    /// HTTP/1.1. Each request opens a connection, its latency includes the connect, and its text should say
    /// `Connection: close`.
    Http1Close,
    /// HTTP/2: by ALPN over TLS, otherwise with prior knowledge (RFC 9113, section 3.3).
    Http2 {
        /// Limit of requests in flight on a connection; 1 to [`MAX_STREAMS`]. The server may allow fewer.
        streams: usize,
    },
    /// TLS handshakes alone: each request connects, is complete with the handshake and sends nothing more. Needs TLS.
    Handshakes,
}

/// TLS between clients and system.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum TlsSessions {
    /// No TLS.
    Off,
    /// Each connection starts a session.
    New,
    /// Connections resume sessions by tickets, as of clients that return.
    Resumed,
}

/// Protocol of a case, by its name in files.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Display,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum CaseProtocol {
    /// HTTP/1.1 in the clear.
    #[default]
    H1,
    /// HTTP/2 in the clear, with prior knowledge.
    H2,
    /// HTTP/1.1 over TLS.
    Https,
    /// HTTP/2 over TLS.
    HttpsH2,
}

/// Program that sends a load.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Display,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum LoadProgram {
    /// The load generator of tollgate.
    #[default]
    Tollgate,
    /// wrk.
    Wrk,
    /// ab of Apache httpd.
    Ab,
    /// h2load of nghttp2.
    H2load,
}

/// End of the load before the measurement of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WarmUp {
    /// A fixed length.
    For(
        #[serde(with = "span")]
        #[schemars(with = "String")]
        Duration,
    ),
    /// Steady throughput and CPU per request.
    Steady {
        /// Limit of its length.
        #[serde(with = "span")]
        #[schemars(with = "String")]
        within: Duration,
    },
}

/// End of the measurement of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// A fixed length.
    For(
        #[serde(with = "span")]
        #[schemars(with = "String")]
        Duration,
    ),
    /// The response to the last request.
    Requests {
        /// Number of requests.
        requests: u32,
        /// Limit of its length. A trial that takes longer is invalid.
        #[serde(with = "span")]
        #[schemars(with = "String")]
        within: Duration,
    },
}

impl LoadProgram {
    /// False for a foreign client, which is started for each measurement.
    pub fn is_own(&self) -> bool {
        *self == Self::Tollgate
    }
}

impl LoadShape {
    /// True if the window contains the whole load, and false if the load continues before and after it.
    pub fn is_in_one_window(&self) -> bool {
        matches!(self.window, Window::Requests { .. }) || !self.program.is_own()
    }

    /// Returns the schedule of an open loop.
    pub fn open_loop(&self) -> Option<&OpenLoop<CaseRate>> {
        match &self.arrivals {
            CaseArrivals::Closed { .. } => None,
            CaseArrivals::Open(open_loop) => Some(open_loop),
        }
    }

    /// Returns the case that the rate depends on, and the share of its throughput.
    pub fn rate_of(&self) -> Option<(&str, Percent)> {
        match &self.open_loop()?.rate {
            CaseRate::PerS(_) => None,
            CaseRate::ShareOf { case, share, .. } => Some((case, *share)),
        }
    }

    /// Sets the value of a rate that depends on another case.
    pub fn set_derived_rate(&mut self, rate_per_s: Option<f64>) {
        if let CaseArrivals::Open(OpenLoop { rate: CaseRate::ShareOf { per_s, .. }, .. }) =
            &mut self.arrivals
        {
            *per_s = rate_per_s;
        }
    }

    /// Returns the connections at the start.
    pub fn connections(&self) -> usize {
        match &self.arrivals {
            CaseArrivals::Closed { connections } => *connections,
            CaseArrivals::Open(open_loop) => open_loop.connections,
        }
    }

    /// Returns the limit of the connections.
    pub fn connections_max(&self) -> usize {
        match &self.arrivals {
            CaseArrivals::Closed { connections } => *connections,
            CaseArrivals::Open(open_loop) => open_loop.connections_max,
        }
    }

    /// Returns the limits of what is open at once.
    pub fn concurrency(&self) -> Concurrency {
        let connections = self.connections_max();
        Concurrency { connections, requests: connections * self.clients.protocol.concurrency() }
    }

    /// Returns the protocol by its name in files.
    pub fn protocol(&self) -> CaseProtocol {
        let is_http2 = matches!(self.clients.protocol, Protocol::Http2 { .. });
        match (self.tls, is_http2) {
            (TlsSessions::Off, false) => CaseProtocol::H1,
            (TlsSessions::Off, true) => CaseProtocol::H2,
            (TlsSessions::New | TlsSessions::Resumed, false) => CaseProtocol::Https,
            (TlsSessions::New | TlsSessions::Resumed, true) => CaseProtocol::HttpsH2,
        }
    }
}

/// Limits of what a load has open at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concurrency {
    pub connections: usize,
    /// Requests in flight over all connections.
    pub requests: usize,
}

impl CaseRate {
    /// Requests per second; `None` while they depend on a case without a valid trial.
    pub fn per_s(&self) -> Option<f64> {
        match self {
            Self::PerS(per_s) => Some(*per_s),
            Self::ShareOf { per_s, .. } => *per_s,
        }
    }
}

impl Protocol {
    /// True if a connection carries one request after another.
    pub fn keeps_connections(self) -> bool {
        matches!(self, Self::Http1 { .. } | Self::Http2 { .. })
    }

    /// Limit of the requests in flight on one connection.
    pub fn concurrency(self) -> usize {
        match self {
            Self::Http1 { pipeline: requests } | Self::Http2 { streams: requests } => requests,
            Self::Http1Close | Self::Handshakes => 1,
        }
    }
}

impl CaseProtocol {
    /// True for HTTPS.
    pub fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::HttpsH2)
    }

    /// True for HTTP/2.
    pub fn is_http2(self) -> bool {
        matches!(self, Self::H2 | Self::HttpsH2)
    }

    /// True for HTTP/1.1 in the clear.
    pub fn is_plain_http1(&self) -> bool {
        *self == Self::H1
    }
}

impl WarmUp {
    /// Returns the length, or the limit of the length.
    pub fn longest(self) -> Duration {
        match self {
            Self::For(time) | Self::Steady { within: time } => time,
        }
    }
}

impl Window {
    /// Returns the minimum length, as far as it is known before the trial.
    pub fn shortest(self) -> Duration {
        match self {
            Self::For(time) => time,
            Self::Requests { .. } => Duration::ZERO,
        }
    }

    /// Returns the length, or the limit of the length.
    pub fn longest(self) -> Duration {
        match self {
            Self::For(time) | Self::Requests { within: time, .. } => time,
        }
    }

    /// Returns the number of requests, if that ends the measurement.
    pub fn requests(self) -> Option<u32> {
        match self {
            Self::For(_) => None,
            Self::Requests { requests, .. } => Some(requests),
        }
    }
}
