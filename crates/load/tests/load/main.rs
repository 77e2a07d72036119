//! The generator against small servers over real sockets.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

// Servers and plans.
mod server;

// Counts, their balance, and plans and workloads that are rejected.
mod accounting;
// Closed, refused, reset and replaced connections; unix-domain sockets.
mod connections;
// Framing, expectations and templates.
mod responses;
// Latency, timeouts, the window and CPU use.
mod latency;
// Open loop: schedules.
mod schedules;
// Recorded requests: their order, times and sessions.
mod replays;
// Several requests in flight on one connection.
mod pipelines;
// Streams of HTTP/2.
mod http2;
// TLS.
mod tls;
