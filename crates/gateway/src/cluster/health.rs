//! Health of backends: active health checks and outlier detection.
//!
//! Shared by all threads without a lock: a choice reads two numbers, and writes happen only on changes.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::config::{Ejection, HealthCheck, Pool};

#[derive(Debug)]
pub(crate) struct PoolHealth {
    backends: Box<[BackendHealth]>,
    eject: Option<Ejection>,
    is_checked: bool,
    /// Start of the time scale of `ejected_until_ms`.
    start: Instant,
}

#[derive(Debug, Default)]
struct BackendHealth {
    /// Down by its health checks.
    is_down: AtomicBool,
    consecutive_failures: AtomicU32,
    /// Milliseconds since the start; 0: not ejected.
    ejected_until_ms: AtomicU64,
    ejections: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HealthStatus {
    Up,
    /// Excluded for a while after failed requests.
    Ejected,
    /// Excluded by failed health checks.
    Down,
}

impl PoolHealth {
    /// All backends start as up.
    pub(crate) fn new(pool: &Pool, now: Instant) -> Self {
        Self {
            backends: pool.backends.iter().map(|_| BackendHealth::default()).collect(),
            eject: pool.eject,
            is_checked: pool.health.is_some(),
            start: now,
        }
    }

    pub(crate) fn status(&self, backend: usize, now: Instant) -> HealthStatus {
        if !self.is_checked && self.eject.is_none() {
            return HealthStatus::Up;
        }
        let health = &self.backends[backend];
        if health.is_down.load(Relaxed) {
            return HealthStatus::Down;
        }
        match health.ejected_until_ms.load(Relaxed) {
            0 => HealthStatus::Up,
            until if until > self.millis(now) => HealthStatus::Ejected,
            _ => HealthStatus::Up,
        }
    }

    pub(crate) fn record_success(&self, backend: usize) {
        let failures = &self.backends[backend].consecutive_failures;
        // Usually nothing is written, which keeps the cache line shared between threads.
        if failures.load(Relaxed) != 0 {
            failures.store(0, Relaxed);
        }
    }

    /// Returns true if this failure ejects the backend. After its return a single further failure ejects it again.
    pub(crate) fn record_failure(&self, backend: usize, now: Instant) -> bool {
        let Some(eject) = self.eject else {
            return false;
        };
        let health = &self.backends[backend];
        let failures = health.consecutive_failures.fetch_add(1, Relaxed).saturating_add(1);
        if failures < eject.failures || health.ejected_until_ms.load(Relaxed) > self.millis(now) {
            return false;
        }
        health.ejected_until_ms.store(self.millis(now + eject.duration), Relaxed);
        health.ejections.fetch_add(1, Relaxed);
        true
    }

    /// Sets the result of the health checks. A backend that comes up is no longer ejected.
    pub(crate) fn set_down(&self, backend: usize, is_down: bool) {
        let health = &self.backends[backend];
        if !is_down {
            health.consecutive_failures.store(0, Relaxed);
            health.ejected_until_ms.store(0, Relaxed);
        }
        health.is_down.store(is_down, Relaxed);
    }

    pub(crate) fn ejections(&self, backend: usize) -> u64 {
        self.backends[backend].ejections.load(Relaxed)
    }

    /// Copies the health of a backend from the pool of an earlier configuration.
    pub(crate) fn inherit(&self, backend: usize, old: &Self, old_backend: usize, now: Instant) {
        let (health, old_health) = (&self.backends[backend], &old.backends[old_backend]);
        // Only with checks can the backend come up again.
        if self.is_checked {
            health.is_down.store(old_health.is_down.load(Relaxed), Relaxed);
        }
        if self.eject.is_some() {
            let failures = old_health.consecutive_failures.load(Relaxed);
            health.consecutive_failures.store(failures, Relaxed);
            let remaining_ms =
                old_health.ejected_until_ms.load(Relaxed).saturating_sub(old.millis(now));
            if remaining_ms > 0 {
                health.ejected_until_ms.store(self.millis(now) + remaining_ms, Relaxed);
            }
        }
        health.ejections.store(old_health.ejections.load(Relaxed), Relaxed);
    }

    /// Milliseconds since the start, from 1: 0 means "not ejected".
    fn millis(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.start);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }
}

/// Consecutive results of the health checks of one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CheckResults {
    is_up: bool,
    /// Consecutive results that contradict `is_up`.
    contradictions: u32,
    rise: u32,
    fall: u32,
}

impl CheckResults {
    pub(super) fn new(check: &HealthCheck, is_up: bool) -> Self {
        Self { is_up, contradictions: 0, rise: check.rise, fall: check.fall }
    }

    pub(super) fn is_up(&self) -> bool {
        self.is_up
    }

    /// Adds a result. Returns true if the backend thereby comes up or goes down.
    pub(super) fn add(&mut self, is_success: bool) -> bool {
        if is_success == self.is_up {
            self.contradictions = 0;
            return false;
        }
        self.contradictions += 1;
        let threshold = if self.is_up { self.fall } else { self.rise };
        let changes = self.contradictions >= threshold;
        if changes {
            self.is_up = is_success;
            self.contradictions = 0;
        }
        changes
    }
}
