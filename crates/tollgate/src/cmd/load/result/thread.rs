//! What the generator itself used.

use crate::cmd::load::verdict;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;
use tollgate_load::ThreadUsage;

/// What one thread of the generator used.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ThreadResult {
    /// CPU time in the program, in microseconds.
    pub(crate) user_us: u64,
    /// CPU time in the kernel, in microseconds.
    pub(crate) system_us: u64,
    /// Time that it could have run and waited for a CPU, in microseconds.
    pub(crate) waited_us: u64,
    /// Time in which it asked for events instead of sleeping, and there were none, in microseconds: busy
    /// polling, and the last moments before a request of a schedule. It is part of the CPU time.
    pub(crate) polled_us: u64,
    /// The length of its measurement, in microseconds.
    pub(crate) window_us: u64,
    /// The share of that in which it had something to do, and ran or waited for a CPU.
    pub(crate) busy: f64,
}

impl ThreadResult {
    pub(super) fn of(usage: &ThreadUsage) -> Self {
        // Microseconds of a window of at most a day fit.
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            user_us: us(usage.user),
            system_us: us(usage.system),
            waited_us: us(usage.waited),
            polled_us: us(usage.polled),
            window_us: us(usage.window),
            busy: verdict::busy(usage),
        }
    }
}
