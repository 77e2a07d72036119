//! The configuration of `tollgate gateway` as written. The doc comments are the descriptions of the JSON Schema. Types without `File`
//! in their names are validated values, too.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::located::{HumanDuration, Located};
use crate::waf::WafFile;

/// Configuration of `tollgate gateway`. Durations are written as `10s`, `400ms` or `1m 30s`, addresses as
/// `127.0.0.1:8080`, `[::1]:8080` or `unix:/path/to/socket`, those of backends also as `backend.example:8080`. Relative paths are resolved against the folder
/// of the file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "tollgate gateway")]
pub struct ConfigFile {
    /// Threads that serve requests, from 1 to 256, each with its own listeners on the same addresses. Default: 1.
    pub threads: Option<Located<u16>>,
    /// Addresses that accept client connections.
    pub listeners: Located<Vec<ListenerFile>>,
    /// The authority that issues the certificates of `tls.certificates` with `acme`.
    pub acme: Option<Located<AcmeFile>>,
    /// Which requests go to which pool. The most specific host wins, then the longest path. Optional with a single
    /// pool, which then receives all requests.
    pub routes: Option<Located<Vec<Located<RouteFile>>>>,
    /// Groups of interchangeable backends. Optional if all routes respond themselves.
    pub pools: Option<Located<Vec<PoolFile>>>,
    /// Resolution of the names of backends.
    pub resolve: Option<ResolveFile>,
    /// Timeouts for clients and backends.
    pub timeouts: Option<TimeoutsFile>,
    /// Limits on requests and connections.
    pub limits: Option<LimitsFile>,
    /// Rules for requests: accepted methods and headers, and the forwarded form.
    pub requests: Option<RequestsFile>,
    /// Headers that describe the client and this gateway to backends.
    pub forwarded: Option<ForwardedFile>,
    /// Files whose content is the body of the gateway's own errors, by status from 400 to 599, of at most 64 KiB: `{ 502: down.html }`.
    /// `.html` is sent as HTML, others as text. Responses of backends, of `respond` and of the firewall keep their bodies. Default: a line of text.
    pub error_pages: Option<BTreeMap<u16, Located<String>>>,
    /// Access log. Default: none.
    pub access_log: Option<AccessLogFile>,
    /// Web application firewall of all routes. Default: none.
    pub waf: Option<Located<WafFile>>,
    /// Log of the firewall. Default: none.
    pub audit_log: Option<AuditLogFile>,
    /// Address and port of `/metrics` and `/healthz`. Default: none.
    pub admin: Option<Located<String>>,
}

/// An address that accepts client connections.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "listener")]
pub struct ListenerFile {
    /// Address to listen on.
    pub address: Located<String>,
    /// Connections that the kernel queues until they are accepted, from 1 to 65535. Default: 4096.
    pub backlog: Option<Located<u32>>,
    /// Accepts a connection only once its first bytes have arrived, which saves a wake-up per connection. A silent
    /// connection is accepted after one second and occupies a place in the backlog until then; closing the listener
    /// resets it. TCP only. Default: false.
    pub defer_accept: Option<Located<bool>>,
    /// TLS with clients. Default: plain HTTP.
    pub tls: Option<TlsFile>,
    /// Offers HTTP/2: over TLS by ALPN, otherwise to clients that begin with it (prior knowledge). Default: true with
    /// TLS, false without.
    pub http2: Option<bool>,
    /// Addresses and networks of proxies whose connections begin with a header of the PROXY protocol, version 1 or 2,
    /// which has the address of the client: `[10.0.0.0/8, 192.0.2.1]`. Connections of others, and those that do not begin so,
    /// are closed. Peers of a Unix socket count as proxies. Default: no connection begins with a header.
    pub proxy_protocol: Option<Vec<Located<String>>>,
}

/// TLS with clients.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "tls")]
pub struct TlsFile {
    /// Certificates. A client gets the one that has the name that it sends (SNI), exactly or by a wildcard such as
    /// `*.example.org`; with an unknown name or without one it gets the first.
    pub certificates: Located<Vec<Located<CertificateFile>>>,
    /// Lowest version: `"1.2"`, as in Mozilla's intermediate profile, or `"1.3"`, as in the modern one. Default: `"1.2"`.
    pub min_version: Option<TlsVersionFile>,
    /// Lets clients resume sessions by tickets. Their keys are generated at the start, are replaced after 6 hours, open
    /// tickets for another 6 hours, and survive a reload. Sessions are not resumed in any other way. Default: true.
    pub tickets: Option<bool>,
    /// PEM file with the certificates of authorities. Clients need a certificate that one of them has issued; a session that is resumed
    /// needs none again. Default: clients need none.
    pub client_ca: Option<Located<String>>,
}

/// A certificate and its key in files, or one that an authority issues.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    title = "certificate",
    extend("oneOf" = [{ "required": ["certificate", "key"] }, { "required": ["acme"] }])
)]
pub struct CertificateFile {
    /// PEM file with the certificate, followed by its chain.
    pub certificate: Option<Located<String>>,
    /// PEM file with the private key.
    pub key: Option<Located<String>>,
    /// In place of both: DNS names of a certificate that the authority in the top-level `acme` issues and renews, such as `[example.org, www.example.org]`.
    /// Until the first one is issued, clients that would get it are refused.
    pub acme: Option<Located<Vec<Located<String>>>>,
}

/// An authority that issues certificates by ACME (RFC 8555). They are ordered at the start and renewed once two thirds of
/// their validity have passed. The account and the certificates, with their keys, are kept in `state`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "acme")]
pub struct AcmeFile {
    /// `true`: you agree to the authority's terms of service. Nothing is ordered without.
    pub agree_to_terms: Located<bool>,
    /// Folder of the account and the certificates, of one gateway only. It is made if it is missing. Keep it: authorities limit how often they issue.
    pub state: Located<String>,
    /// URL of the authority's directory. Default: `https://acme-v02.api.letsencrypt.org/directory`, of Let's Encrypt.
    pub directory: Option<Located<String>>,
    /// Mail address for the authority. Default: none.
    pub contact: Option<Located<String>>,
    /// How the names are proved: in TLS handshakes, which the authority begins on port 443, or by a response over HTTP on port 80.
    /// Default: `tls-alpn-01`.
    pub challenge: Option<Located<ChallengeFile>>,
    /// PEM file with the authorities that may have issued the certificate of the directory's server. Default: those that the system trusts.
    pub ca: Option<Located<String>>,
    /// Account outside of ACME that some authorities ask for. Default: none.
    pub external_account: Option<ExternalAccountFile>,
}

/// How names are proved to the authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(title = "challenge")]
pub enum ChallengeFile {
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
    #[serde(rename = "http-01")]
    Http01,
}

/// Account at the authority that an account of ACME is bound to (RFC 8555, section 7.3.4).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "external account")]
pub struct ExternalAccountFile {
    /// Identifier of the key.
    pub id: Located<String>,
    /// File with the key, in base64url as authorities show it.
    pub key: Located<String>,
}

/// Lowest version of TLS.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[schemars(title = "tls version")]
pub enum TlsVersionFile {
    #[serde(rename = "1.2")]
    Tls12,
    #[serde(rename = "1.3")]
    Tls13,
}

/// Requests of a host below a path, and what serves them: a pool, or the gateway itself.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "route")]
pub struct RouteFile {
    /// `example.org`, `*.example.org` for all subdomains, or `*` for every host. Default: `*`.
    pub host: Option<Located<String>>,
    /// Prefix of the path in whole segments: `/shop` matches `/shop/cart` but not `/shopping`. Requests are matched
    /// after normalization: `//`, `/./`, `/x/../` and needless escapes (`%73` for `s`) make no difference. A request
    /// whose route depends on whether `%2F` and `\` count as slashes, `;` or `%00` as an end, a `..` behind them as the
    /// parent, or on whether escapes are decoded twice, is answered with 400. Default: `/`.
    pub path: Option<Located<String>>,
    /// The requests of this route, among those of its host and path. Another route with the same host and path, without `when`, has
    /// the others. Of several routes whose conditions hold, the first in the file counts. Default: all requests.
    pub when: Option<Located<WhenFile>>,
    /// Addresses and networks of clients, as `[10.0.0.0/8, 192.0.2.1]`; others get 403. Default: all clients.
    pub allow: Option<Vec<Located<String>>>,
    /// Addresses and networks of clients that get 403, also those in `allow`. Default: none.
    pub deny: Option<Vec<Located<String>>>,
    /// Limits on the requests of one client, by its IPv4 address or IPv6 network of 64 bits; further ones get 429. Default: none.
    pub per_client: Option<Located<PerClientFile>>,
    /// Users who get access by their passwords; other requests get 401. Default: everybody.
    pub basic_auth: Option<Located<BasicAuthFile>>,
    /// Name of the pool.
    pub pool: Option<Located<String>>,
    /// In place of `pool`: the same response to every request.
    pub respond: Option<Located<RespondFile>>,
    /// Redirects requests to another URL. A request for that URL itself is served by `pool`; without one it gets 404. So
    /// `redirect: { scheme: https }` beside `pool` sends plain HTTP to HTTPS.
    pub redirect: Option<Located<RedirectFile>>,
    /// Replaces the prefix `path` in the request to the backend, or in the URL of `redirect`; the rest of the path is
    /// sent without `//`, `/./` and `/x/../`. Default: the path is sent as `requests.path` says.
    pub rewrite: Option<Located<String>>,
    /// For backends that do not know the URLs of clients: a `Location` with the `address` of a backend becomes a path, and one that
    /// begins with `rewrite` begins with `path`. Default: false.
    pub rewrite_location: Option<Located<bool>>,
    /// Changes to request headers.
    pub request_headers: Option<HeaderEditsFile>,
    /// Changes to response headers. Those of `set` are also in the responses of `respond` and `redirect`.
    pub response_headers: Option<HeaderEditsFile>,
    /// Compresses bodies of responses for clients that accept it; `{}` uses the defaults. Not for pages that have a secret, such as a
    /// token against forged requests, beside text of the request: the length would reveal it (BREACH). Default: none.
    pub compression: Option<Located<CompressionFile>>,
    /// False leaves its requests out of the access log, but for those that the gateway refuses before its action. Default: true.
    pub access_log: Option<bool>,
    /// Timeouts of this route; each key replaces that of the pool, or of the gateway.
    pub timeouts: Option<RequestTimeoutsFile>,
    /// Web application firewall of this route; each key replaces that of the gateway.
    pub waf: Option<Located<WafFile>>,
}

/// Conditions on a request, all of which must hold.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "when")]
pub struct WhenFile {
    /// Methods, such as `[GET, HEAD]`. Default: all.
    pub methods: Option<Located<Vec<String>>>,
    /// Headers: the value that one of that name has, `~` and a regular expression that is found in it, or `*` for any.
    pub headers: Option<BTreeMap<String, Located<String>>>,
}

/// Limits on the requests of one client, for all threads together.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "per client")]
pub struct PerClientFile {
    /// Requests in `per`, evenly. `Retry-After` of a response with 429 says when the next one may pass. Default: unlimited.
    pub requests: Option<Located<u32>>,
    /// Default: 1s.
    pub per: Option<Located<HumanDuration>>,
    /// Requests at once after a pause. Default: `requests`.
    pub burst: Option<Located<u32>>,
    /// Requests in progress, with their responses and tunnels. Default: unlimited.
    pub concurrent: Option<Located<u32>>,
}

/// Basic authentication (RFC 7617). The header `Authorization` is forwarded unless `request_headers` removes it; `${user}` is the user.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "basic auth")]
pub struct BasicAuthFile {
    /// File with `user:hash` in each line, as `htpasswd -B -C 12` writes it: with bcrypt, or SHA-crypt (`openssl passwd -6`).
    pub users: Located<String>,
    /// Name of the area that the password opens, which browsers show. Default: `restricted`.
    pub realm: Option<Located<String>>,
}

/// Compression of the responses of a route, whose `ETag` becomes weak, and which get `Vary: Accept-Encoding`. Responses with `Cache-Control:
/// no-transform`, a `Content-Encoding`, a range or a digest, and streams of events are forwarded as received.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "compression")]
pub struct CompressionFile {
    /// Codings by preference, where a client accepts several equally. Default: `[br, zstd, gzip]`.
    pub codings: Option<Located<Vec<ContentCoding>>>,
    /// Types of bodies, without parameters. Default: HTML, CSS, plain text, JavaScript, XML, CSV, JSON, web manifests, WebAssembly
    /// and SVG.
    pub types: Option<Vec<Located<String>>>,
    /// Shortest body, in bytes, if its length is known. Default: 1024.
    pub bytes_min: Option<u64>,
}

/// The same response to every request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "respond")]
pub struct RespondFile {
    /// Status from 200 to 599.
    pub status: Located<u16>,
    /// Headers of the response, such as `Content-Type`, which is otherwise `text/plain; charset=utf-8`.
    pub headers: Option<BTreeMap<String, Located<String>>>,
    /// At most 64 KiB. Default: empty.
    pub body: Option<Located<String>>,
}

/// The URL that requests are redirected to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "redirect")]
pub struct RedirectFile {
    /// 301, 302, 303, 307 or 308. Default: 308, with which clients keep the method and the body.
    pub status: Option<Located<u16>>,
    /// `http` or `https`. Default: that of the request.
    pub scheme: Option<Scheme>,
    /// Default: that of the request, if the route has a `host`: otherwise clients could choose any.
    pub host: Option<Located<String>>,
    /// Default: that of the scheme, or that of the request if only its path changes.
    pub port: Option<Located<u16>>,
    /// Path, with or without a query, in place of those of the request. Default: path and query of the request, with
    /// `rewrite` if the route has it.
    pub path: Option<Located<String>>,
}

/// Changes to headers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "header edits")]
pub struct HeaderEditsFile {
    /// Headers to set; each replaces all headers of that name. In values, `${client}` is the address of the client,
    /// `${scheme}` and `${host}` are those of its request, `${user}` is the user of `basic_auth`, and `${request_id}` is a random
    /// identifier in hexadecimal, the same in request, response and a JSON access log. Of a certificate for `client_ca`,
    /// `${client_subject}` is the name (RFC 4514), `${client_fingerprint}` the SHA-256 in hexadecimal, and `${client_certificate}` the
    /// whole as in a header `Client-Cert` (RFC 9440); without one they are empty.
    pub set: Option<BTreeMap<String, Located<String>>>,
    /// Headers to remove.
    pub remove: Option<Vec<Located<String>>>,
}

/// A group of interchangeable backends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "pool")]
pub struct PoolFile {
    /// Name of the pool in routes, logs and metrics.
    pub name: Located<String>,
    /// Servers of the pool.
    pub backends: Located<Vec<BackendFile>>,
    /// Protocol with the backends, also of health checks: `h1` (HTTP/1.1), or `h2` (HTTP/2), over TLS by ALPN and
    /// otherwise with prior knowledge. Default: `h1`.
    pub protocol: Option<ProtocolFile>,
    /// Requests at once on one connection with `protocol: h2`, from 1 to 1000, if the backend does not allow fewer.
    /// Default: 100.
    pub streams_max: Option<Located<u32>>,
    /// Bytes of a response that a backend may send before its client takes them, with `protocol: h2`: 65536, doubled while half
    /// of them arrives within a round trip and the client takes that, up to this; from 65536 to 16777216. A connection
    /// may hold this for each of its streams, at most 1 GiB. Default: 262144.
    pub stream_window_max: Option<Located<u32>>,
    /// TLS with the backends, also of health checks; `{}` uses the defaults. Default: plain HTTP.
    pub tls: Option<Located<PoolTlsFile>>,
    /// Load balancing. Default: `round-robin`.
    pub balance: Option<BalanceFile>,
    /// Idle connections per backend that are kept open, for all threads together; 0 keeps none. Default: 1024.
    pub keepalive_max: Option<Located<usize>>,
    /// Version of the PROXY protocol, `v1` or `v2`, with whose header each connection begins, in front of TLS: it has the addresses of the
    /// client and of the listener; in health checks, none. Then each request has a connection of its own. Not with `protocol: h2`.
    /// Default: none.
    pub proxy_protocol: Option<Located<ProxyVersion>>,
    /// Time for which an idle connection is kept. One shorter than that of the backends avoids that these close a
    /// connection just when a request is sent on it. A request that cannot be repeated, such as POST, gets a new connection
    /// if half of the time has passed after which the backend closes idle ones, as it has announced by `Keep-Alive`
    /// or was seen to do. Default: `timeouts.idle`.
    pub keepalive_timeout: Option<Located<HumanDuration>>,
    /// Timeouts of the routes to this pool; each key replaces that of the gateway.
    pub timeouts: Option<RequestTimeoutsFile>,
    /// Connections per backend, or requests at once with `protocol: h2`, for all threads together; each thread has an
    /// equal share. Default: unlimited.
    pub connections_max: Option<Located<u32>>,
    /// Buffering of messages, so that slow clients do not occupy a backend.
    pub buffer: Option<BufferFile>,
    /// Requests per backend that wait for a connection, for all threads together; further requests are answered with
    /// 503. A waiting request goes to the first backend with room; with `consistent-hash`, to its own. Default: 1024.
    pub queue_max: Option<usize>,
    /// Time that a request waits in the queue before it is answered with 503. Default: 5s.
    pub queue_timeout: Option<Located<HumanDuration>>,
    /// Closes the connection behind a response to HEAD, for backends that may send a body with it. Not with
    /// `protocol: h2`. Default: false.
    pub close_after_head: Option<Located<bool>>,
    /// Active health checks. Default: none.
    pub health: Option<Located<HealthFile>>,
    /// Outlier detection: ejects backends that fail requests. Default: none.
    pub eject: Option<EjectionFile>,
    /// Time in which the share of a backend grows from 1 % of its weight to all of it once it has come up: after health
    /// checks have failed, after an ejection, or as a new address in a file or of a name. Default: none.
    pub slow_start: Option<Located<HumanDuration>>,
    /// Further attempts of a request on other backends, where that is safe; at most 10. Default: 1.
    pub retries: Option<Located<u32>>,
    /// Pause after which a request that has failed on all backends is tried on them again, as long as `retries` are left:
    /// 200ms covers the restart of a single server. Default: none; it is answered with the error.
    pub retry_pause: Option<Located<HumanDuration>>,
}

/// Protocol with backends.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[schemars(title = "protocol")]
pub enum ProtocolFile {
    #[serde(rename = "h1")]
    Http1,
    #[serde(rename = "h2")]
    Http2,
}

/// TLS with the backends of a pool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "pool tls")]
pub struct PoolTlsFile {
    /// Checks that the certificate of a backend is trusted, is valid, and has its name.
    /// Default: true.
    pub verify: Option<Located<bool>>,
    /// PEM file with certificates to trust, as issuers too. Default: the authorities that the system trusts.
    pub ca: Option<Located<String>>,
    /// Name that certificates must have, and that is sent to backends (SNI). Default: the name or the IP address in
    /// `address`; an IP address is not sent. Necessary for Unix sockets.
    pub server_name: Option<Located<String>>,
    /// PEM file with the certificate of the gateway for backends that ask for one, followed by its chain. Default:
    /// none.
    pub certificate: Option<Located<String>>,
    /// PEM file with the private key of `certificate`.
    pub key: Option<Located<String>>,
}

/// A server of a pool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "backend")]
pub struct BackendFile {
    /// Address to connect to, or a name such as `backend.example:8080`, each address of which is a backend of this
    /// weight and with its own limits.
    pub address: Located<String>,
    /// Share of the requests relative to the other weights, from 0 to 1000. Default: 1.
    pub weight: Option<Located<u32>>,
}

/// Buffering of messages, so that slow clients do not occupy a backend.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "buffer")]
pub struct BufferFile {
    /// Longest body of a request, in bytes, if its length is known, up to 1048576; 0: none. A longer one is forwarded as it
    /// arrives, as are all while others hold `limits.held_body_bytes`. Default: 65536.
    pub request: Option<Located<u64>>,
    /// Bytes of a response that may wait for a slow client, up to 1048576; 0: none. If more of a known length is left, the
    /// response is received as the client takes it, as are all while others hold `limits.held_body_bytes`, and
    /// `text/event-stream` and gRPC. Default: 65536.
    pub response: Option<Located<u64>>,
}

/// Load balancing method.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "balance")]
pub enum BalanceFile {
    /// In turn, in proportion to the weights.
    RoundRobin,
    /// The backend with the fewest active requests for its weight.
    LeastConnections,
    /// The same backend for the same key, as long as it is up.
    ConsistentHash(HashByFile),
    /// Draws two backends by weight and takes the one with fewer active requests for its weight.
    RandomOfTwo,
}

/// Key of the consistent hash.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "hash by")]
pub enum HashByFile {
    /// IP address of the client.
    Client,
    /// First header of this name; the client's address if there is none.
    Header(Located<String>),
    /// Cookie of this name. The response to a request without it sets it, for the session, with a random value.
    Cookie(Located<String>),
}

/// Active health checks.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "health")]
pub struct HealthFile {
    /// Path of the request (GET).
    pub path: Option<Located<String>>,
    /// `Host` of the request. Default: the `address` of the backend, its name if it has one.
    pub host: Option<Located<String>>,
    /// Statuses of a success: `200`, `200-299`, or several as in `200, 404`. Default: `200-399`.
    pub status: Option<Located<StatusesFile>>,
    /// In place of `path`: a connection is a success, over TLS with its handshake. Default: false.
    pub tcp: Option<Located<bool>>,
    /// Time between two checks of a backend. Default: 5s.
    pub interval: Option<Located<HumanDuration>>,
    /// Timeout of a check; at most the interval. Default: 2s, or the interval if that is shorter.
    pub timeout: Option<Located<HumanDuration>>,
    /// Consecutive successes that mark a backend as up. Default: 2.
    pub rise: Option<Located<u32>>,
    /// Consecutive failures that mark a backend as down. Default: 3.
    pub fall: Option<Located<u32>>,
}

/// Statuses of responses.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected statuses such as 200, 200-299 or 200, 404")]
#[schemars(inline)]
pub enum StatusesFile {
    One(u16),
    Ranges(String),
}

impl fmt::Display for StatusesFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(status) => status.fmt(out),
            Self::Ranges(ranges) => ranges.fmt(out),
        }
    }
}

/// Outlier detection.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "eject")]
pub struct EjectionFile {
    /// Consecutive failed requests that eject a backend: connection refused, no valid response, or a response that
    /// broke off or stalled. Default: 5.
    pub failures: Option<Located<u32>>,
    /// Time that the backend receives no requests. Default: 10s.
    pub duration: Option<Located<HumanDuration>>,
}

/// Resolution of the names of backends. They are resolved when the file is read, and an error rejects it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "resolve")]
pub struct ResolveFile {
    /// Time after which names are resolved again. After an error the addresses stay. Default: 30s.
    pub interval: Option<Located<HumanDuration>>,
    /// Addresses that are used of a name with IPv4 and IPv6 addresses, which are usually those of the same servers.
    /// Default: `prefer-ipv4`.
    pub family: Option<AddressFamily>,
}

/// Timeouts for clients and backends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "timeouts")]
pub struct TimeoutsFile {
    /// Connecting to a backend, with the TLS handshake. Default: 5s.
    pub connect: Option<Located<HumanDuration>>,
    /// From the first byte of a request head to its last. Default: 10s.
    pub header: Option<Located<HumanDuration>>,
    /// Between two reads of a body, in either direction. Default: 30s.
    pub body: Option<Located<HumanDuration>>,
    /// Lowest average rate at which clients send and receive bodies, in bytes per second; 0 allows any. A client that
    /// lags behind it by `body` times out. Default: 240.
    pub body_rate: Option<u32>,
    /// Longest time for a body if the average rate of the client is below 64 times `body_rate`, so that a trickle does not
    /// occupy a backend for ever. Default: 30m.
    pub body_slow: Option<Located<HumanDuration>>,
    /// From the end of a request to the first byte of the response. Default: 1m.
    pub response: Option<Located<HumanDuration>>,
    /// Between two reads of a response of the type `text/event-stream`, and of both bodies of a gRPC call; also to the
    /// first byte of the response to one. In place of `body` and `response`. Default: 1h.
    pub stream: Option<Located<HumanDuration>>,
    /// For the response to a client that has ended its sending side, as one that has left does; then its request is
    /// given up. A queued request is given up at once. Not with `requests.half_close`. Default: 1s.
    pub abandoned: Option<Located<HumanDuration>>,
    /// Between two requests of a client, and for an unused connection to a backend. Default: 1m.
    pub idle: Option<Located<HumanDuration>>,
    /// Between two reads of a tunnel (a WebSocket or another upgraded connection), in either direction. Default: 1m.
    pub tunnel: Option<Located<HumanDuration>>,
    /// From TERM until listeners are closed, for balancers that see by `/healthz` (503) that the gateway is about to stop. Meanwhile
    /// it serves as before. Default: none.
    pub drain_delay: Option<Located<HumanDuration>>,
    /// For active requests and tunnels to finish after TERM, or after `drain_delay`; the rest are aborted. Default: 30s.
    pub drain: Option<Located<HumanDuration>>,
}

/// Timeouts of the requests of a route or a pool, as in `timeouts`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "request timeouts")]
pub struct RequestTimeoutsFile {
    /// Connecting to a backend, with the TLS handshake; over HTTP/2, that of the request for which a connection is opened.
    pub connect: Option<Located<HumanDuration>>,
    /// Between two reads of a body, in either direction.
    pub body: Option<Located<HumanDuration>>,
    /// Lowest average rate of clients, in bytes per second; 0 allows any.
    pub body_rate: Option<u32>,
    /// Longest time for a body of a client below 64 times `body_rate`.
    pub body_slow: Option<Located<HumanDuration>>,
    /// From the end of a request to the first byte of the response.
    pub response: Option<Located<HumanDuration>>,
    /// Between two reads of a stream of events or a gRPC call.
    pub stream: Option<Located<HumanDuration>>,
    /// For the response to a client that has ended its sending side.
    pub abandoned: Option<Located<HumanDuration>>,
    /// Between two reads of a tunnel.
    pub tunnel: Option<Located<HumanDuration>>,
}

/// Limits on requests and connections.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "limits")]
pub struct LimitsFile {
    /// Bytes of a request head, including the request line; larger ones are answered with 431, or with 414 if the
    /// request line alone is too long. Default: 16384.
    pub header_bytes: Option<Located<usize>>,
    /// Header lines of a request; more are answered with 431. Default: 100.
    pub headers: Option<Located<usize>>,
    /// Header lines of a response; a response with more is answered with 502. Default: 100.
    pub response_headers: Option<Located<usize>>,
    /// Bytes of a request body; larger ones are answered with 413. Default: unlimited.
    pub body_bytes: Option<u64>,
    /// Client connections, for all threads together; each thread has an equal share. A further one replaces the longest
    /// idle one, or waits in the backlog if none is idle. A quarter of the limit on open files is reserved for backends,
    /// which may lower this limit. Default: 16384.
    pub connections: Option<Located<usize>>,
    /// Connections of one client address, in each thread; an IPv6 network of 64 bits counts as one address. Default:
    /// unlimited.
    pub connections_per_client: Option<Located<usize>>,
    /// Clients that `per_client` of routes remembers, for all threads together, about 100 bytes each; beyond, the one whose last
    /// request is the oldest is forgotten. Default: 100000.
    pub clients: Option<Located<usize>>,
    /// Responses that are compressed at once, for all threads together, with up to 2 MiB of memory each; further ones are forwarded
    /// as received. Default: 128.
    pub compressed_responses: Option<usize>,
    /// Requests at once of a client's connection over HTTP/2, from 1 to 1000. Default: 100.
    pub http2_streams: Option<Located<u32>>,
    /// Bytes of a request body over HTTP/2 that a client may send before the backend takes them, from 16384 to 16777216, as
    /// the upload begins. They double while half of them arrives within a round trip and the backend takes that, up to a quarter
    /// of `http2_connection_window`.
    /// Default: 65536.
    pub http2_stream_window: Option<Located<u32>>,
    /// The same for all streams of a connection together, from 65535 to 268435456, and not below `http2_stream_window`: the
    /// memory that a connection may take for bodies. Default: 1048576, or `http2_stream_window` if that is larger.
    pub http2_connection_window: Option<Located<u32>>,
    /// Memory of bodies held for inspection, in bytes, for all threads together; each thread has an equal share. A byte counts
    /// twice, as it is kept to be forwarded, too. A body beyond the limit is answered with 503. Default: 268435456.
    pub held_body_bytes: Option<Located<usize>>,
    /// Persistent collections of rules, as of `initcol` with one key; the one whose last update is the oldest goes for a further
    /// one. Default: 100000.
    pub collections: Option<Located<usize>>,
    /// Memory of persistent collections, in bytes. Default: 67108864.
    pub collection_bytes: Option<Located<usize>>,
}

/// Rules for requests: accepted methods and headers, and the forwarded form.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "requests")]
pub struct RequestsFile {
    /// Form of the path that backends get. Default: `resolved`.
    pub path: Option<PathForm>,
    /// Forwards TRACE; otherwise it is answered with 405. Default: false.
    pub trace: Option<bool>,
    /// Protocols to which a client may switch a connection by `Upgrade`. Offers of others are not forwarded.
    /// Default: `[websocket]`.
    pub upgrades: Option<Vec<Located<String>>>,
    /// Serves clients that have ended their sending side like others; otherwise they are taken for clients that have
    /// left, see `timeouts.abandoned`. Default: false.
    pub half_close: Option<bool>,
    /// Forwards headers with `_` in their names, which many backends take for `-`; otherwise they are removed.
    /// Default: false.
    pub underscores: Option<bool>,
    /// Headers of clients that are not forwarded, because backends may trust them. Default: `Proxy`, `X-Original-Host`,
    /// `X-Original-URL`, `X-Rewrite-URL` and, from clients that `forwarded` does not trust, `True-Client-IP`, `X-Client-IP`,
    /// `X-Cluster-Client-IP`, `X-Forwarded-Port`, `X-Forwarded-Prefix`, `X-Forwarded-Scheme`, `X-Forwarded-Server`,
    /// `X-Forwarded-Ssl` and `X-Real-IP`.
    pub remove_headers: Option<Vec<Located<String>>>,
}

/// Headers that describe the client and this gateway to backends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "forwarded")]
pub struct ForwardedFile {
    /// Name of this gateway in `Via`; `null` sends no `Via`.
    #[serde(default = "default_via")]
    pub via: Option<Located<String>>,
    /// Sends `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`. Default: true.
    pub x_forwarded: Option<bool>,
    /// Sends `Forwarded` (RFC 7239). Default: false.
    pub forwarded: Option<bool>,
    /// Keeps these headers of every client and appends to them. Otherwise they are dropped, since any client can write
    /// anything there, and so are names that many backends treat as equal, such as `X_Forwarded_For`. Default: false.
    pub trust_client: Option<bool>,
    /// In place of `trust_client`: addresses and networks of proxies in front of the gateway, as `[10.0.0.0/8, 192.0.2.1]`, and peers
    /// of Unix sockets. Their headers are kept, and have the client's address for the log, limits, the firewall and
    /// `consistent-hash`: the last one that is not one of a proxy. Default: none.
    pub trusted: Option<Located<Vec<Located<String>>>>,
    /// Header in which all of these proxies write the client's address. Default: `x-forwarded-for`.
    pub client_header: Option<Located<ForwardedHeader>>,
}

/// Default of `forwarded.via`.
pub const DEFAULT_VIA: &str = "tollgate";

fn default_via() -> Option<Located<String>> {
    let unknown = serde_saphyr::Location::UNKNOWN;
    Some(Located(Spanned::new(DEFAULT_VIA.to_owned(), unknown, unknown)))
}

/// Access log.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "access log")]
pub struct AccessLogFile {
    /// File to append to, `stdout`, or a syslog: `syslog:/dev/log`, or over UDP `syslog:192.0.2.1:514`.
    pub to: Located<String>,
    /// `combined`, as Apache and nginx have it, `json`, one object per line, or a text with keys of these objects, such as
    /// `${time} ${client} ${status} ${first_byte_ms}`. Default: `combined`.
    pub format: Option<Located<String>>,
}

/// Log of inspected transactions, as JSON objects, one per line.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "audit log")]
pub struct AuditLogFile {
    /// File to append to, `stdout`, or a syslog: `syslog:/dev/log`, or over UDP `syslog:192.0.2.1:514`.
    pub to: Located<String>,
    /// Transactions to log. Default: `relevant`.
    pub include: Option<IncludeFile>,
    /// Names of arguments, headers and cookies whose values are replaced by `***`, in any case. Default: names of
    /// credentials, such as `authorization`, `cookie` and `password`.
    pub masked: Option<Vec<String>>,
}

/// Transactions in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "include")]
pub enum IncludeFile {
    /// Transactions with a match or an exceeded limit.
    Relevant,
    /// All that were inspected.
    All,
}

/// Version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(title = "version of the PROXY protocol")]
pub enum ProxyVersion {
    /// Text.
    V1,
    /// Binary.
    V2,
}

/// Coding of a response body (RFC 9110, section 8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(title = "content coding")]
pub enum ContentCoding {
    Br,
    Zstd,
    Gzip,
}

impl ContentCoding {
    pub const ALL: [Self; 3] = [Self::Br, Self::Zstd, Self::Gzip];

    #[inline] // for requests, in crates that are optimised
    pub fn name(self) -> &'static str {
        match self {
            Self::Br => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }
}

/// Header with the address of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "forwarded header")]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`, with the scheme in `X-Forwarded-Proto`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(title = "scheme")]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    #[inline] // for requests, in crates that are optimised
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
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
