//! A whole gateway over real sockets, in literal bytes: clients and backends that know no HTTP.
//!
//! - `requests`: what a backend gets, and in which order answers come back
//! - `bodies`: lengths, chunks, closes, in both directions and in pieces
//! - `dates`: when an answer was made, or came
//! - `failures`: backends that are down, silent, closed or wrong
//! - `lifecycle`: drain, reload, half-closed peers, other protocols
//! - `books`: the access log, `/metrics`, limits per client, backends that are left alone
//! - `tls`: clients that speak TLS
//! - `phases`: where an inspector looks, waits, or answers instead

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod bodies;
mod books;
mod dates;
mod failures;
mod lifecycle;
mod phases;
mod requests;
mod support;
mod tls;
