//! The gateway: a reverse proxy that costs little more than moving the bytes.
//!
//! A configuration names listeners, routes and pools of backends. Each thread has listeners of its
//! own on the same addresses, and its own connections to the backends.

mod admin;
mod answers;
mod aside;
mod checks;
pub mod config;
mod counters;
mod date;
mod door;
mod downstream;
mod error;
mod exchange;
mod forward;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod gateway;
mod link;
mod listening;
mod metrics;
mod orders;
mod path;
pub mod phase;
mod pool;
mod recall;
mod relay;
mod routes;
mod shortage;
mod site;
mod tls;
mod tools;
mod upstream;
mod view;
mod worker;

pub use config::{Config, ConfigError};
pub use error::Error;
pub use gateway::Gateway;
pub use tls::IdentityError;
/// What a gateway tells a person goes this way, and what its caller tells beside it should as well.
pub use tollgate_ledger::messages;
