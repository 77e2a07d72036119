//! The gateway: a reverse proxy that costs little more than moving the bytes.
//!
//! A configuration names listeners, routes and pools of backends. Each thread has listeners of its
//! own on the same addresses, and its own connections to the backends.

mod answers;
pub mod config;
mod downstream;
mod error;
mod exchange;
mod forward;
mod gateway;
mod link;
mod listening;
mod orders;
pub mod pool;
mod recall;
mod relay;
pub mod routes;
mod site;
mod tools;
mod upstream;
mod worker;

pub use config::Config;
pub use error::Error;
pub use gateway::Gateway;
