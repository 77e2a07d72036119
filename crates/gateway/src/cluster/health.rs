//! Health of backends: active health checks and outlier detection.
//!
//! Shared by all threads without a lock: a choice reads two numbers, and writes happen only on changes.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::LOG_INTERVAL;
use crate::config::{Ejection, HealthCheck, Pool};

/// [`PoolHealth::share`] of a backend that is not in a slow start.
const FULL_SHARE: u32 = 100;

#[derive(Debug)]
pub(crate) struct PoolHealth {
    backends: Box<[BackendHealth]>,
    eject: Option<Ejection>,
    slow_start: Option<Duration>,
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
    /// End of the last slow start, in milliseconds since the start; 0: there was none.
    slow_until_ms: AtomicU64,
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
            slow_start: pool.slow_start,
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

    /// Share of its weight that a backend has, in percent.
    pub(super) fn share(&self, backend: usize, now: Instant) -> u32 {
        let Some(slow_start) = self.slow_start else { return FULL_SHARE };
        let until = self.backends[backend].slow_until_ms.load(Relaxed);
        let remaining = u128::from(until.saturating_sub(self.millis(now)));
        let elapsed = slow_start.as_millis().saturating_sub(remaining);
        let percent = elapsed * u128::from(FULL_SHARE) / slow_start.as_millis().max(1);
        u32::try_from(percent).map_or(FULL_SHARE, |percent| percent.clamp(1, FULL_SHARE))
    }

    /// A backend has come up, or is new.
    pub(crate) fn start_slowly(&self, backend: usize, at: Instant) {
        if let Some(slow_start) = self.slow_start {
            let until = self.millis(at + slow_start);
            self.backends[backend].slow_until_ms.store(until, Relaxed);
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
            ejects: self.eject(backend, failures, now),
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

    fn eject(&self, backend: usize, failures: u32, now: Instant) -> bool {
        let Some(eject) = self.eject else { return false };
        let health = &self.backends[backend];
        if failures < eject.failures || health.ejected_until_ms.load(Relaxed) > self.millis(now) {
            return false;
        }
        health.ejected_until_ms.store(self.millis(now + eject.duration), Relaxed);
        health.ejections.fetch_add(1, Relaxed);
        self.start_slowly(backend, now + eject.duration);
        true
    }

    /// Sets the result of the health checks. A backend that comes up is no longer ejected.
    pub(crate) fn set_down(&self, backend: usize, is_down: bool, now: Instant) {
        let health = &self.backends[backend];
        if !is_down {
            health.consecutive_failures.store(0, Relaxed);
            health.ejected_until_ms.store(0, Relaxed);
        }
        if health.is_down.swap(is_down, Relaxed) && !is_down {
            self.start_slowly(backend, now);
        }
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
        let move_time = |from: &AtomicU64, to: &AtomicU64| {
            let remaining_ms = from.load(Relaxed).saturating_sub(old.millis(now));
            if remaining_ms > 0 {
                to.store(self.millis(now) + remaining_ms, Relaxed);
            }
        };
        if self.eject.is_some() {
            move_time(&old_health.ejected_until_ms, &health.ejected_until_ms);
        }
        move_time(&old_health.slow_until_ms, &health.slow_until_ms);
        // The new slow start may be shorter, and begins at the end of an ejection at the latest.
        if let Some(slow_start) = self.slow_start {
            let from = health.ejected_until_ms.load(Relaxed).max(self.millis(now));
            let latest =
                from.saturating_add(u64::try_from(slow_start.as_millis()).unwrap_or(u64::MAX));
            health.slow_until_ms.fetch_min(latest, Relaxed);
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
