//! The gateway: a reverse proxy that costs little more than moving the bytes.
//!
//! A configuration names listeners, routes and pools of backends. Each thread has listeners of its
//! own on the same addresses, and its own connections to the backends.

pub mod config;
mod forward;
pub mod pool;
mod relay;
pub mod routes;

pub use config::Config;
