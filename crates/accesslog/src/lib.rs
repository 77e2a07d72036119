//! Access logs and their JSON, messages on standard error, and counters of a server.

mod access_log;
mod entry;
mod json;
mod queue;
pub mod stderr_log;
mod syslog;

use std::sync::atomic::{AtomicU64, Ordering};

pub use access_log::{LogFile, LogTarget, ThreadLog, UnreadError};
pub use entry::{
    Entry, LogField, LogFormat, LogPart, LoggedRequest, STATUS_NO_RESPONSE, Tls, Upstream,
};
pub use json::{ClientText, push_json, to_json};
pub use queue::{FINISH_TIMEOUT, RateLimit};
pub use syslog::SyslogAddress;

/// A counter that one thread adds to and any thread reads. Adding takes no lock and no locked instruction.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `more`. Must be called by one thread only, or counts are lost.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
