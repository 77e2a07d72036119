//! The origin over real sockets, with literal bytes.

#![expect(clippy::unwrap_used, reason = "test helpers fail by panicking")]

/// TLS and HTTP/2.
mod encrypted;
/// Endpoints from end to end, beside requests that take long.
mod endpoints;
/// Listening, threads, stopping and the access log.
mod lifecycle;
/// Requests and responses: framing, pipelining, persistence, errors.
mod protocol;
/// Clients that are slow, disconnect, or send more than they read.
mod slow_clients;
/// A served origin and a client of literal bytes.
mod support;
