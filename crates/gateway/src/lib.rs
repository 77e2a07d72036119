//! The gateway: a reverse proxy that costs little more than moving the bytes.
//!
//! A configuration names listeners, routes and pools of backends. Each thread has listeners of its
//! own on the same addresses, and its own connections to the backends.

mod admin;
mod aside;
pub mod checks;
pub mod config;
pub mod counters;
mod forward;
mod metrics;
pub mod pool;
mod relay;
pub mod routes;
mod view;

pub use config::Config;
