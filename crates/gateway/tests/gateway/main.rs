//! A whole gateway over real sockets, in literal bytes: clients and backends that know no HTTP.
//!
//! - `requests`: what a backend gets, and in which order answers come back
//! - `bodies`: lengths, chunks, closes, in both directions and in pieces
//! - `failures`: backends that are down, silent, closed or wrong
//! - `lifecycle`: drain, reload, half-closed peers, other protocols

mod bodies;
mod failures;
mod lifecycle;
mod requests;
mod support;
