//! The origin over real sockets, as literal bytes.
//!
//! - `http`: what requests are answered with
//! - `lifecycle`: ports, threads, stopping
//! - `patience`: clients that take too long
//! - `pressure`: clients that are slow, go away, or send more than they read
//! - `site`: the endpoints, from end to end
//! - `unix`: sockets in the file system

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod http;
mod lifecycle;
mod patience;
mod pressure;
mod site;
mod support;
mod unix;
