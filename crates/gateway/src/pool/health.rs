//! Whether backends are well: by what they answer when they are asked, and by what becomes of requests.
//!
//! All threads share what is known, without a lock: they read two numbers before a choice, and write
//! only where something changes.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::config::{ActiveHealth, Ejection};

/// What is known of the backends of one pool.
#[derive(Debug)]
pub(crate) struct PoolHealth {
    backends: Box<[BackendHealth]>,
    eject: Option<Ejection>,
    is_checked: bool,
    /// When time began, for the times below.
    began: Instant,
}

/// What is known of one backend.
#[derive(Debug, Default)]
struct BackendHealth {
    /// It has failed the checks.
    is_down: AtomicBool,
    /// The requests in a row that it failed.
    failures: AtomicU32,
    /// Until when it is left alone, in milliseconds from the beginning. 0: it is not.
    ejected_until_ms: AtomicU64,
    /// How often it was.
    ejections: AtomicU64,
}

/// How a backend stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is well, as far as anybody knows.
    Well,
    /// It has failed requests, and is left alone for a time.
    Ejected,
    /// It has failed the checks.
    Down,
}

impl PoolHealth {
    /// So many backends, all of them well.
    #[must_use]
    pub(crate) fn new(
        backends: usize,
        checks: Option<&ActiveHealth>,
        eject: Option<Ejection>,
        now: Instant,
    ) -> Self {
        Self {
            backends: (0..backends).map(|_| BackendHealth::default()).collect(),
            eject,
            is_checked: checks.is_some(),
            began: now,
        }
    }

    /// How this backend stands.
    #[must_use]
    pub(crate) fn standing(&self, backend: usize, now: Instant) -> Standing {
        if !self.is_checked && self.eject.is_none() {
            return Standing::Well;
        }
        let known = &self.backends[backend];
        if known.is_down.load(Relaxed) {
            return Standing::Down;
        }
        match known.ejected_until_ms.load(Relaxed) {
            0 => Standing::Well,
            until if until > self.millis(now) => Standing::Ejected,
            _ => Standing::Well,
        }
    }

    /// It has answered a request.
    pub(crate) fn succeeded(&self, backend: usize) {
        let failures = &self.backends[backend].failures;
        // Mostly there is nothing to write, and then other threads need not fetch it again.
        if failures.load(Relaxed) != 0 {
            failures.store(0, Relaxed);
        }
    }

    /// It has failed a request: did not take the connection, or did not answer it as HTTP has it. From
    /// the k-th time in a row it is left alone; when it is back, one more failure is enough.
    ///
    /// Tells whether it is left alone from now on.
    pub(crate) fn failed(&self, backend: usize, now: Instant) -> bool {
        let Some(eject) = self.eject else {
            return false;
        };
        let known = &self.backends[backend];
        let failures = known.failures.fetch_add(1, Relaxed).saturating_add(1);
        let now_ms = self.millis(now);
        if failures < eject.failures || known.ejected_until_ms.load(Relaxed) > now_ms {
            return false;
        }
        let until = self.millis(now + eject.for_time);
        known.ejected_until_ms.store(until, Relaxed);
        known.ejections.fetch_add(1, Relaxed);
        true
    }

    /// What the checks say from now on. A backend that they bring back is left alone no more.
    pub(crate) fn set_down(&self, backend: usize, is_down: bool) {
        let known = &self.backends[backend];
        if !is_down {
            known.failures.store(0, Relaxed);
            known.ejected_until_ms.store(0, Relaxed);
        }
        known.is_down.store(is_down, Relaxed);
    }

    /// How often this backend was left alone.
    #[must_use]
    pub(crate) fn ejections(&self, backend: usize) -> u64 {
        self.backends[backend].ejections.load(Relaxed)
    }

    /// Takes over what another knows of one of its backends, which is the same one.
    pub(crate) fn take_over(&self, backend: usize, from: &Self, its: usize, now: Instant) {
        let (known, old) = (&self.backends[backend], &from.backends[its]);
        // Only where there still is somebody to bring it back.
        if self.is_checked {
            known.is_down.store(old.is_down.load(Relaxed), Relaxed);
        }
        if self.eject.is_some() {
            known.failures.store(old.failures.load(Relaxed), Relaxed);
            let left_ms = old.ejected_until_ms.load(Relaxed).saturating_sub(from.millis(now));
            if left_ms > 0 {
                known.ejected_until_ms.store(self.millis(now) + left_ms, Relaxed);
            }
        }
        known.ejections.store(old.ejections.load(Relaxed), Relaxed);
    }

    /// From the beginning to now, which is at 1: 0 stands for no time at all.
    fn millis(&self, now: Instant) -> u64 {
        let since: Duration = now.saturating_duration_since(self.began);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }
}

/// What the checks of one backend have shown: so many good answers in a row bring it back, so many
/// failures take it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    is_up: bool,
    /// Answers in a row that speak against what holds.
    against: u32,
    rise: u32,
    fall: u32,
}

impl Checked {
    /// One that is up, or not, so far.
    #[must_use]
    pub(crate) fn new(health: &ActiveHealth, is_up: bool) -> Self {
        Self { is_up, against: 0, rise: health.rise, fall: health.fall }
    }

    /// Whether it is up.
    #[must_use]
    pub(crate) fn is_up(&self) -> bool {
        self.is_up
    }

    /// Adds what one more check has shown. Tells whether that changes what holds.
    pub(crate) fn add(&mut self, is_good: bool) -> bool {
        if is_good == self.is_up {
            self.against = 0;
            return false;
        }
        self.against += 1;
        let enough = if self.is_up { self.fall } else { self.rise };
        let changes = self.against >= enough;
        if changes {
            self.is_up = is_good;
            self.against = 0;
        }
        changes
    }
}
