//! Interruption by a flag that every wait checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Set by a signal handler or another thread.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("interrupted")]
pub struct Interrupted;

impl Interrupt {
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    pub fn check(&self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Interrupted);
        }
        Ok(())
    }

    /// Sleeps until `duration` is over or the flag is set. Returns the longest delay of a wake-up: the time in which
    /// this process was ready to run but did not get a CPU.
    pub fn sleep(&self, duration: Duration) -> Result<Duration, Interrupted> {
        let mut now = Instant::now();
        let deadline = now + duration;
        let mut latest = Duration::ZERO;
        loop {
            self.check()?;
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() {
                return Ok(latest);
            }
            let step = left.min(CHECK_INTERVAL);
            std::thread::sleep(step);
            let woken = Instant::now();
            latest = latest.max((woken - now).saturating_sub(step));
            now = woken;
        }
    }
}

const CHECK_INTERVAL: Duration = Duration::from_millis(25);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_ends_sleep() {
        let interrupt = Interrupt::default();
        assert!(interrupt.sleep(Duration::from_millis(1)).is_ok());
        interrupt.flag().store(true, Ordering::Relaxed);
        let start = Instant::now();
        assert_eq!(interrupt.sleep(Duration::from_secs(60)), Err(Interrupted));
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
