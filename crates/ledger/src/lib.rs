//! What a server writes down about its work: numbers that one thread counts and others read, an access
//! log, and messages for a person. Shared by the origin and the gateway.

mod access_log;
mod count;
mod line;
pub mod messages;
mod queue;

pub use access_log::{FINISH_TIMEOUT, LogFile, LogTarget, ThreadLog, UnreadError};
pub use count::Count;
pub use line::{Entry, Line, LogFormat, UNANSWERED, Upstream};
