//! A reverse proxy whose cost per request is close to that of moving the bytes.
//!
//! A configuration names listeners, routes and pools of backends. Each thread has its own listeners on the same
//! addresses and its own connections to the backends.

mod admin;
mod basic_auth;
mod body;
mod checks;
mod cluster;
mod command;
mod compression;
pub mod config;
mod connect_error;
mod counters;
mod described;
mod firewall;
mod forwarder;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod generation;
mod headers;
mod limiter;
mod listener;
mod local_api;
mod local_response;
mod location;
mod metrics;
mod path;
mod proxy_protocol;
mod readings;
mod resolve;
mod responder;
mod router;
mod server;
mod worker;

pub use config::{Config, ConfigError};
pub use resolve::{HostName, Resolver};
pub use server::{Error, Gateway, check_logs};
/// Writer of the gateway's messages. Callers should use it, too.
pub use tollgate_accesslog::stderr_log;

/// Interval of messages about a condition that persists.
const LOG_INTERVAL: std::time::Duration = std::time::Duration::from_secs(60);

/// Writes a message on standard error.
fn log(message: impl std::fmt::Display) {
    stderr_log::write(&format!("{}: {message}", stderr_log::program()));
}
