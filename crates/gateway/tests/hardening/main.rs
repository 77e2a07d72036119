//! The gateway among people who mean it no good, and machines that fail: over real sockets, as literal
//! bytes.
//!
//! - `smuggling`: requests and answers that two servers might read in two ways, through the gateway and,
//!   for comparison, through nginx and HAProxy
//! - `faults`: backends that die, stay silent or answer garbage, clients that are slow or never finish
//! - `peers`: curl, ab and a WebSocket through the gateway, and the routes of paths beside those of nginx

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod backend;
mod caller;
mod client;
mod faults;
mod front;
mod own_process;
mod peers;
mod served;
mod smuggling;
