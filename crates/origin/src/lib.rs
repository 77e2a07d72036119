//! The benchmark site: a small web server that is cheap to run and deterministic, used as the
//! backend of the systems under test or measured directly.
//!
//! - `/` serves a page that documents the site; `/?payload=N` serves N bytes of filler.
//! - `/urandom`, `/zero`, `/sleep`, `/download` and `/upload` each exercise one cost: random bytes,
//!   zeros, time, bytes sent, bytes received.
//! - `/status/CODE`, `/headers`, `/echo` and `/method` show how a request arrived.
//! - `/delay` waits for a time drawn from a known distribution; `/counters` reports statistics.
//! - Any other path is served with one line of text that names the path.
//!
//! Clients speak HTTP/1.1 or HTTP/2, in the clear or over TLS. Each thread runs one epoll loop with its own listener on
//! the same port.

mod config;
mod connection;
mod endpoints;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod http1_connection;
mod http2_connection;
mod output;
mod protocol;
mod recordings;
mod request;
mod response;
mod server;
mod state;
mod worker;

pub use config::{Config, Error, Timeouts};
pub use recordings::RecordedAnswer;
pub use server::{Origin, STOP_TIMEOUT_MAX};
pub use tollgate_accesslog::LogTarget;
pub use tollgate_net::Address;
pub use tollgate_tls::Certificate;
pub use worker::Stopper;
