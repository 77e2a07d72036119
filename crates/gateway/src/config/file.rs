//! A configuration as it is written: YAML, key by key, before anything is known to make sense.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::{At, Span};
use super::{Forwarded, Limits, Pool, Timeouts};

/// The configuration of `tollgate gateway`. Durations are written as `10s`, `400ms` or `1m 30s`,
/// addresses as `127.0.0.1:8080`, `[::1]:8080` or `unix:/path/of/a/socket`; a relative path is seen
/// from the folder of the file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "tollgate gateway")]
pub(super) struct ConfigFile {
    /// How many threads serve, from 1 to 256, each with listeners of its own on the same addresses.
    pub(super) threads: Option<At<u16>>,
    /// Where clients are listened for.
    pub(super) listeners: At<Vec<ListenerFile>>,
    /// Which requests go to which pool: the most exact host first, then the longest path. May be left
    /// out where there is one pool, which then gets all.
    pub(super) routes: Option<At<Vec<RouteFile>>>,
    /// The backends, in groups that answer alike.
    pub(super) pools: At<Vec<PoolFile>>,
    /// How long clients and backends are waited for.
    #[serde(default)]
    pub(super) timeouts: TimeoutsFile,
    /// What is refused because it is too much.
    #[serde(default)]
    pub(super) limits: LimitsFile,
    /// What a backend is told about the client, and who passed the request on.
    #[serde(default)]
    pub(super) forwarded: ForwardedFile,
    /// A line a request. Left out: nothing is written.
    pub(super) access_log: Option<AccessLogFile>,
    /// The address where `/metrics` and `/healthz` are answered. Left out: nowhere.
    pub(super) admin: Option<At<String>>,
}

/// One place where clients are listened for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "listener")]
pub(super) struct ListenerFile {
    /// Where.
    pub(super) address: At<String>,
    /// How many connections the kernel keeps that were not accepted yet, from 1 to 65535 (4096).
    pub(super) backlog: Option<At<u32>>,
    /// Whether a connection is accepted only once its first bytes are there, which saves a wake-up for each (false). One
    /// on which nothing comes is accepted after a second; until then it takes a place in the backlog, and the end of the
    /// listener is a reset to its first bytes. Over TCP alone.
    pub(super) defer_accept: Option<At<bool>>,
    /// The certificate that is shown. Left out: clients speak in the clear.
    pub(super) tls: Option<TlsFile>,
}

/// The files of a listener that speaks TLS.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "tls")]
pub(super) struct TlsFile {
    /// The certificate and what it is signed by, as PEM.
    pub(super) certificate: At<String>,
    /// Its private key, as PEM.
    pub(super) key: At<String>,
}

/// The requests of a host below a path, and the pool that they go to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "route")]
pub(super) struct RouteFile {
    /// `example.org`, `*.example.org` for all below it, or `*` for every host (`*`).
    pub(super) host: Option<At<String>>,
    /// What the path begins with, in whole segments: `/shop` is also `/shop/cart` but not
    /// `/shopping` (`/`). In whatever way a request spells it: `//`, `/./`, `/x/../` and `%73` for `s` make no
    /// difference. One that leads to another route when `%2F` or `\` is taken for a slash, or `;` for the end
    /// of a name, is answered with 400.
    pub(super) path: Option<At<String>>,
    /// The pool's name.
    pub(super) pool: At<String>,
    /// What stands in the place of `path` for the backend; the rest is passed on without `//`, `/./` and `/x/../`.
    /// Left out: the path goes on as it came.
    pub(super) rewrite: Option<At<String>>,
    /// What is changed in the heads of requests.
    #[serde(default)]
    pub(super) request_headers: HeaderEditsFile,
    /// What is changed in the heads of answers.
    #[serde(default)]
    pub(super) answer_headers: HeaderEditsFile,
}

/// What is changed in a head.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "header edits")]
pub(super) struct HeaderEditsFile {
    /// Headers that are set, each in the place of all of that name.
    pub(super) set: BTreeMap<String, At<String>>,
    /// Headers that are removed.
    pub(super) remove: Vec<At<String>>,
}

/// Backends that answer alike.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "pool")]
pub(super) struct PoolFile {
    /// What routes and metrics call it.
    pub(super) name: At<String>,
    /// The backends.
    pub(super) backends: At<Vec<BackendFile>>,
    /// Which backend is next.
    #[serde(default)]
    pub(super) balance: BalanceFile,
    /// How many connections to a backend are kept for the next request, by all threads together; 0 keeps
    /// none.
    #[serde(default = "keepalive_max")]
    pub(super) keepalive_max: usize,
    /// How many connections to a backend there may be, of all threads together: each has its share.
    /// Left out: as many as there are requests.
    pub(super) connections_max: Option<At<u32>>,
    /// How many requests may wait for one of them, per backend and for all threads together; others are
    /// answered with 503. They go to whichever backend has room first, and with `consistent-hash` to their own.
    #[serde(default = "queue_max")]
    pub(super) queue_max: usize,
    /// For which a request waits there, before it is answered with 503.
    #[serde(default = "queue_timeout")]
    pub(super) queue_timeout: At<Span>,
    /// The requests that backends are asked by to find out whether they are well. Left out: not asked.
    pub(super) health: Option<HealthFile>,
    /// When a backend that fails is left alone. Left out: never.
    pub(super) eject: Option<EjectionFile>,
    /// How often a request is tried on another backend, where that is safe; up to 10.
    pub(super) retries: Option<At<u32>>,
}

/// One server that answers for a pool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "backend")]
pub(super) struct BackendFile {
    /// Where it is reached.
    pub(super) address: At<String>,
    /// Its share of the requests, beside the others' weights: 0 to 1000 (1).
    pub(super) weight: Option<At<u32>>,
}

/// Which backend of a pool is next.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "balance")]
pub(super) enum BalanceFile {
    /// Turn by turn, as often as its weight says.
    #[default]
    RoundRobin,
    /// The one with the fewest requests under way for its weight.
    LeastConnections,
    /// Always the same one for the same client or header, as long as it is up.
    ConsistentHash(HashByFile),
    /// Two are drawn by weight, and the one with fewer requests under way for its weight is taken.
    RandomOfTwo,
}

/// What a consistent hash is taken of.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "hash by")]
pub(super) enum HashByFile {
    /// The client's address, without the port.
    Client,
    /// The first header of this name; the client's address where there is none.
    Header(At<String>),
}

/// The requests that backends are asked by to find out whether they are well.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "health")]
pub(super) struct HealthFile {
    /// The path that is asked for. Any answer of 200 to 399 is a good one.
    pub(super) path: At<String>,
    /// From one request to the next (5s).
    pub(super) interval: Option<At<Span>>,
    /// For which an answer is waited for; at most the interval (2s, or the interval if that is less).
    pub(super) timeout: Option<At<Span>>,
    /// How many good answers in a row bring a backend back (2).
    pub(super) rise: Option<At<u32>>,
    /// How many failures in a row take it out (3).
    pub(super) fall: Option<At<u32>>,
}

/// When a backend that fails is left alone.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "eject")]
pub(super) struct EjectionFile {
    /// After how many requests in a row that it failed: it took no connection, gave no answer as HTTP has it, or
    /// broke one off (5).
    pub(super) failures: Option<At<u32>>,
    /// For how long (10s).
    pub(super) for_time: Option<At<Span>>,
}

/// How long clients and backends are waited for.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "timeouts")]
pub(super) struct TimeoutsFile {
    /// For a connection to a backend to stand.
    pub(super) connect: At<Span>,
    /// From the first byte of a request's head to its last.
    pub(super) header: At<Span>,
    /// From one byte of a body to the next, in both directions.
    pub(super) body: At<Span>,
    /// From the end of a request to the first byte of the backend's answer.
    pub(super) answer: At<Span>,
    /// Between two requests of a client, and for a connection to a backend that nobody uses.
    pub(super) idle: At<Span>,
    /// From one byte to the next of a connection that has switched to another protocol, such as a
    /// WebSocket, in either direction.
    pub(super) tunnel: At<Span>,
    /// For requests and tunnels under way to end, once the gateway was told to; what is left then is cut
    /// off.
    pub(super) drain: At<Span>,
}

/// What is refused because it is too much.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "limits")]
pub(super) struct LimitsFile {
    /// The bytes of a head, its first line included; else 431, or 414 where that line alone has more.
    pub(super) header_bytes: At<usize>,
    /// The header lines of a head; else 431.
    pub(super) headers: At<usize>,
    /// The bytes of a request's body; else 413. Left out: any number.
    pub(super) body_bytes: Option<u64>,
    /// The clients at a time, of all threads together: each has its share. Others wait in the backlog.
    pub(super) connections: At<usize>,
    /// The connections of one client address at a time, in each thread. Left out: any number.
    pub(super) connections_per_client: Option<At<usize>>,
}

/// What a backend is told about the client, and who passed the request on.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "forwarded")]
pub(super) struct ForwardedFile {
    /// The name that `Via` gives this gateway. `null`: no `Via`.
    pub(super) via: Option<At<String>>,
    /// Whether `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host` are sent.
    pub(super) x_forwarded: bool,
    /// Whether `Forwarded` (RFC 7239) is sent.
    pub(super) forwarded: bool,
    /// Whether what the client says in those headers is kept and added to; if not, it is dropped, as
    /// anybody could write anything there, and so is what many backends take for the same name, such as
    /// `X_Forwarded_For`. Other names with underscores are passed on.
    pub(super) trust_client: bool,
}

/// A line a request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "access log")]
pub(super) struct AccessLogFile {
    /// The file to add to, or `stdout`.
    pub(super) to: At<String>,
    /// How a line is written.
    #[serde(default)]
    pub(super) format: LogFormatFile,
}

/// How a line of an access log is written.
#[derive(Debug, Default, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "log format")]
pub(super) enum LogFormatFile {
    /// The combined log format of Apache and nginx.
    #[default]
    Combined,
    /// One JSON object a line.
    Json,
}

impl Default for TimeoutsFile {
    fn default() -> Self {
        let Timeouts { connect, header, body, answer, idle, tunnel, drain } = Timeouts::default();
        let span = |time| At::unwritten(Span(time));
        Self {
            connect: span(connect),
            header: span(header),
            body: span(body),
            answer: span(answer),
            idle: span(idle),
            tunnel: span(tunnel),
            drain: span(drain),
        }
    }
}

impl Default for LimitsFile {
    fn default() -> Self {
        let Limits { header_bytes, headers, body_bytes, connections, connections_per_client } =
            Limits::default();
        Self {
            header_bytes: At::unwritten(header_bytes),
            headers: At::unwritten(headers),
            body_bytes,
            connections: At::unwritten(connections),
            connections_per_client: connections_per_client.map(At::unwritten),
        }
    }
}

impl Default for ForwardedFile {
    fn default() -> Self {
        let Forwarded { via, x_forwarded, forwarded, trust_client } = Forwarded::default();
        Self { via: via.map(At::unwritten), x_forwarded, forwarded, trust_client }
    }
}

fn keepalive_max() -> usize {
    Pool::KEEPALIVE_MAX
}

fn queue_max() -> usize {
    Pool::QUEUE_MAX
}

fn queue_timeout() -> At<Span> {
    At::unwritten(Span(Pool::QUEUE_TIMEOUT))
}
