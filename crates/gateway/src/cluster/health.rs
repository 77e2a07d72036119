//! Health of backends: active health checks and outlier detection.
//!
//! Shared by all threads without a lock: a choice reads two numbers, and writes happen only on changes.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::LOG_INTERVAL;
use crate::config::{Ejection, HealthCheck, Pool};

#[derive(Debug)]
pub(crate) struct PoolHealth {
    backends: Box<[BackendHealth]>,
    eject: Option<Ejection>,
    is_checked: bool,
    /// A request or a health check has failed since this was last taken.
    has_failed: AtomicBool,
    /// Start of the time scale of `ejected_until_ms`.
    start: Instant,
}

#[derive(Debug, Default)]
struct BackendHealth {
    /// Time of the last failed request, in milliseconds since the start; 0: none.
    failed_at_ms: AtomicU64,
    /// Time of the last logged failure.
    logged_at_ms: AtomicU64,
    /// The last logged state.
    is_logged_as_failing: AtomicBool,
    /// Health checks have failed.
    is_down: AtomicBool,
    consecutive_failures: AtomicU32,
    /// Milliseconds since the start; 0: not ejected.
    ejected_until_ms: AtomicU64,
    ejections: AtomicU64,
}

/// Consequences of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackendFailure {
    /// To be logged.
    pub(crate) is_new: bool,
    /// The backend is ejected.
    pub(crate) ejects: bool,
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
            has_failed: AtomicBool::new(false),
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

    /// Records a response to a request that was received at `started_at`. Returns true if the backend was logged as
    /// failing and is to be logged as serving again.
    #[inline]
    pub(crate) fn record_success(&self, backend: usize, started_at: Instant) -> bool {
        let health = &self.backends[backend];
        // Usually nothing is written, which keeps the cache line shared between threads.
        if health.consecutive_failures.load(Relaxed) == 0 {
            return false;
        }
        self.record_return(health, started_at)
    }

    #[cold]
    fn record_return(&self, health: &BackendHealth, started_at: Instant) -> bool {
        health.consecutive_failures.store(0, Relaxed);
        // The backend may have failed since it sent the response to an older request.
        let is_return = self.millis(started_at) >= health.failed_at_ms.load(Relaxed);
        is_return && health.is_logged_as_failing.swap(false, Relaxed)
    }

    /// Records a failed request. After an ejection, a single further failure ejects the backend again.
    pub(crate) fn record_failure(&self, backend: usize, now: Instant) -> BackendFailure {
        let health = &self.backends[backend];
        self.note_failure();
        let failures = health.consecutive_failures.fetch_add(1, Relaxed).saturating_add(1);
        health.failed_at_ms.store(self.millis(now), Relaxed);
        BackendFailure {
            is_new: self.is_to_be_logged(health, now),
            ejects: self.eject(health, failures, now),
        }
    }

    /// Notes that a backend may have moved to another address.
    pub(super) fn note_failure(&self) {
        self.has_failed.store(true, Relaxed);
    }

    /// True if a request or a health check has failed since the last call.
    pub(crate) fn take_failed(&self) -> bool {
        self.has_failed.swap(false, Relaxed)
    }

    /// True for a failure after a success, at most once per interval, so that an intermittent failure does not flood
    /// the log. With health checks, only their failures are logged.
    fn is_to_be_logged(&self, health: &BackendHealth, now: Instant) -> bool {
        if self.is_checked || health.is_logged_as_failing.load(Relaxed) {
            return false;
        }
        let (now_ms, last_ms) = (self.millis(now), health.logged_at_ms.load(Relaxed));
        let is_recent =
            last_ms > 0 && now_ms - last_ms.min(now_ms) < LOG_INTERVAL.as_millis() as u64;
        if is_recent || health.is_logged_as_failing.swap(true, Relaxed) {
            return false;
        }
        health.logged_at_ms.store(now_ms, Relaxed);
        true
    }

    fn eject(&self, health: &BackendHealth, failures: u32, now: Instant) -> bool {
        let Some(eject) = self.eject else { return false };
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
        // Without checks, the backend would never come up again.
        if self.is_checked {
            health.is_down.store(old_health.is_down.load(Relaxed), Relaxed);
        }
        let failures = old_health.consecutive_failures.load(Relaxed);
        health.consecutive_failures.store(failures, Relaxed);
        let is_logged_as_failing = old_health.is_logged_as_failing.load(Relaxed);
        health.is_logged_as_failing.store(is_logged_as_failing, Relaxed);
        if self.eject.is_some() {
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
