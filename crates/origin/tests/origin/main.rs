//! The origin over real sockets, as literal bytes.
//!
//! - `http`: what requests are answered with
//! - `lifecycle`: ports, threads, stopping
//! - `pressure`: clients that are slow, go away, or send more than they read

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod http;
mod lifecycle;
mod pressure;
mod support;
