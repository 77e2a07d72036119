//! How far one thread has come, for others to look at while it runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tollgate_stats::LatencyHistogram;

use crate::outcome::Progress;

/// On cache lines of its own, so that threads do not slow each other down by counting.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Live {
    answered: AtomicU64,
    failed: AtomicU64,
    unexpected: AtomicU64,
    latency_ns_sum: AtomicU64,
    wants_latency: AtomicBool,
    latency: Mutex<Option<LatencyHistogram>>,
}

impl Live {
    pub(crate) fn publish(&self, progress: &Progress) {
        self.answered.store(progress.answered, Ordering::Relaxed);
        self.failed.store(progress.failed, Ordering::Relaxed);
        self.unexpected.store(progress.unexpected, Ordering::Relaxed);
        self.latency_ns_sum.store(progress.latency_ns_sum, Ordering::Relaxed);
    }

    pub(crate) fn progress(&self) -> Progress {
        Progress {
            answered: self.answered.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            unexpected: self.unexpected.load(Ordering::Relaxed),
            latency_ns_sum: self.latency_ns_sum.load(Ordering::Relaxed),
        }
    }

    /// Takes the copy that was left, and asks for the next one; the thread has to be woken.
    pub(crate) fn ask_latency(&self) -> Option<LatencyHistogram> {
        self.wants_latency.store(true, Ordering::Relaxed);
        // A thread that panicked while it held the copy has left it as it was.
        self.latency.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Leaves a copy, if one was asked for.
    pub(crate) fn show(&self, latency: &LatencyHistogram) {
        if self.wants_latency.swap(false, Ordering::Relaxed) {
            let mut shown = self.latency.lock().unwrap_or_else(PoisonError::into_inner);
            *shown = Some(latency.clone());
        }
    }
}
