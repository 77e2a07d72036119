//! The benchmark site: a small web server that costs little and always gives the same answer to the
//! same request, to stand behind the systems under test, or to be measured itself.
//!
//! - `/` answers with a page that explains the site; `/?payload=N` with N bytes of filler.
//! - `/urandom`, `/zero`, `/sleep`, `/download` and `/upload` each cost one thing: random bytes, zeros,
//!   time, bytes sent, bytes received.
//! - `/status/CODE`, `/headers`, `/echo` and `/method` show what became of a request on its way.
//! - `/delay` takes a time from a known distribution, and `/counters` tells what was answered.
//! - Any other path answers with one line of text that names the path.
//!
//! One epoll loop a thread, each with its own listener on the same port.

mod access_log;
mod answer;
mod config;
mod connection;
mod conversation;
mod counters;
mod endpoints;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod json;
mod listen;
mod multipart;
mod origin;
mod output;
mod plan;
mod recall;
mod refusal;
mod request;
mod request_body;
mod response;
mod site;
mod sources;
mod stopper;
mod timers;
mod worker;

pub use config::{Config, Timeouts};
pub use error::Error;
pub use listen::{Listen, ListenParseError};
pub use origin::{END_TIMEOUT, Origin};
pub use stopper::Stopper;
pub use tollgate_ledger::LogTarget;
