//! A whole gateway over real sockets. Clients and backends send and expect literal bytes, and share no code with it.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod support;

// Messages: forwarding, header edits, routes, limits, dates, bodies and their framing.
mod bodies;
mod buffering;
mod compression;
mod requests;
mod responders;
mod responses;
// Requests and responses that two servers might parse differently.
mod smuggling;
// Connections that switch to another protocol.
mod upgrade;
mod websocket;
// Clients and backends over HTTP/2, and over TLS.
mod http2;
mod http2_backends;
mod tls;
mod tls_backends;

// The web application firewall.
mod waf;
// Verdicts on requests that other proxies describe.
mod verdicts;

// The choice of a backend: retries, queues, ejection, health checks, names.
mod backends;
mod names;
// Clients behind other proxies.
mod client_addresses;
mod guards;
mod passwords;
// Peers that stop, leave, never finish, or do not read.
mod clients;
mod timeouts;
// File descriptors and standard error that are exhausted.
mod exhaustion;

// The access log and metrics.
mod logging;
// Changes of the configuration, and shutdown.
mod drain;
mod reload;
// All of that for twenty minutes.
mod soak;

// Foreign programs: curl, ab, nghttp, h2load, openssl, nginx, HAProxy. They have to be installed (make packages).
#[cfg(feature = "e2e")]
mod e2e;
#[cfg(feature = "e2e")]
mod e2e_tls;

/// Makes the missing suite visible in the output of `cargo test`.
#[cfg(not(feature = "e2e"))]
#[test]
#[ignore = "needs curl, ab, openssl, nginx and HAProxy; run `make test`, or add `--features e2e`"]
fn suite_behind_feature_e2e() {}
