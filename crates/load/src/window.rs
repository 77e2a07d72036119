//! The measured part of a run.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::outcome::ThreadUsage;
use crate::usage::{CpuTime, ThreadClock};

/// What the caller wants of the threads, who look at it when they are woken.
#[derive(Debug)]
pub(crate) struct Stage {
    /// When the schedule begins, for all threads alike; in a closed loop, at once.
    start: Instant,
    measuring: AtomicBool,
    draining: AtomicBool,
    over: AtomicBool,
}

impl Stage {
    pub(crate) fn new(start: Instant) -> Self {
        let flag = || AtomicBool::new(false);
        Self { start, measuring: flag(), draining: flag(), over: flag() }
    }

    pub(crate) fn start(&self) -> Instant {
        self.start
    }

    pub(crate) fn measure(&self) {
        self.measuring.store(true, Ordering::Release);
    }

    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    pub(crate) fn is_measuring(&self) -> bool {
        self.measuring.load(Ordering::Acquire)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

/// One thread's window while it is open.
#[derive(Debug)]
pub(crate) struct OpenWindow {
    opened: Instant,
    cpu: CpuTime,
    polled: Duration,
}

/// One thread's window as it was.
#[derive(Debug)]
pub(crate) struct ClosedWindow {
    pub(crate) opened: Instant,
    pub(crate) closed: Instant,
    pub(crate) usage: ThreadUsage,
}

impl OpenWindow {
    /// Opens the calling thread's window.
    pub(crate) fn open(now: Instant, clock: &ThreadClock) -> io::Result<Self> {
        Ok(Self { opened: now, cpu: clock.read()?, polled: Duration::ZERO })
    }

    /// The thread asked for events this long, and there were none.
    pub(crate) fn polled(&mut self, time: Duration) {
        self.polled += time;
    }

    /// Closes it, on the same thread.
    pub(crate) fn close(self, now: Instant, clock: &ThreadClock) -> io::Result<ClosedWindow> {
        let cpu = clock.read()?;
        Ok(ClosedWindow {
            opened: self.opened,
            closed: now,
            usage: ThreadUsage {
                // The kernel never takes back time, in any part.
                user: cpu.user.saturating_sub(self.cpu.user),
                system: cpu.system.saturating_sub(self.cpu.system),
                waited: cpu.waited.saturating_sub(self.cpu.waited),
                polled: self.polled,
                window: now - self.opened,
            },
        })
    }
}
