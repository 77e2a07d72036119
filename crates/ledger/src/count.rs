//! A number that one thread adds to and others read.

use std::sync::atomic::{AtomicU64, Ordering};

/// One number. Only the thread that it belongs to adds to it, so that adding needs no lock and no
/// locked instruction; others may read it at any time.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds to it, on the thread that it belongs to.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    /// What was counted so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
