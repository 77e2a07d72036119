//! Pages for operators of the gateway and the load generator: an HTTP listener, and metrics in Prometheus's text format.

mod metrics;
mod server;

pub use metrics::{DURATION_BOUNDS_US, Page};
pub use server::{AdminServer, Pages, Reply};
