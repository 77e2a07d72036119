//! The benchmark origin: a small web server that costs little and always gives the same answer to
//! the same request, to stand behind the systems under test.
//!
//! - `/?payload=N` answers with N bytes of filler, N up to 64 MiB; other arguments are ignored.
//! - Any other path answers with one line of text that names the path.
//!
//! One epoll loop a thread, each with its own listener on the same port.

mod answer;
mod config;
mod connection;
mod conversation;
mod error;
mod origin;
mod output;
mod request_body;
mod response;
mod stopper;
mod worker;

pub use config::Config;
pub use error::Error;
pub use origin::Origin;
pub use stopper::Stopper;
