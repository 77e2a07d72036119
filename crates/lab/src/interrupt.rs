//! The wish to stop, as a flag that every wait looks at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Set from a signal handler or another thread; looked at wherever the lab waits.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

/// The run was asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("interrupted")]
pub struct Interrupted;

impl Interrupt {
    /// The flag itself, for a signal handler to set.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Whether to go on.
    ///
    /// # Errors
    ///
    /// The run was asked to stop.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Interrupted);
        }
        Ok(())
    }

    /// Sleeps, and wakes early when asked to stop. Tells the longest time that it was late: how long
    /// this process was not let run when it should have been.
    ///
    /// # Errors
    ///
    /// The run was asked to stop.
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
            let nap = left.min(LONGEST_NAP);
            std::thread::sleep(nap);
            let woken = Instant::now();
            latest = latest.max((woken - now).saturating_sub(nap));
            now = woken;
        }
    }
}

/// How long a wish to stop may go unseen.
const LONGEST_NAP: Duration = Duration::from_millis(25);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_to_stop_ends_a_sleep() {
        let interrupt = Interrupt::default();
        assert!(interrupt.sleep(Duration::from_millis(1)).is_ok());
        interrupt.flag().store(true, Ordering::Relaxed);
        let start = Instant::now();
        assert_eq!(interrupt.sleep(Duration::from_secs(60)), Err(Interrupted));
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
