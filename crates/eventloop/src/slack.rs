//! How exactly the kernel ends a thread's waits.

use std::io;
use std::num::NonZeroU64;

use rustix::thread::set_current_timer_slack;

/// Ends the calling thread's timed waits as soon as they are over. By default the kernel may be 50
/// microseconds late, to end several waits with one wake-up (`PR_SET_TIMERSLACK`).
///
/// # Errors
///
/// None that is known.
pub fn wake_exactly() -> io::Result<()> {
    set_current_timer_slack(Some(NonZeroU64::MIN))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slack_is_a_nanosecond() {
        std::thread::spawn(|| {
            wake_exactly().unwrap();
            assert_eq!(rustix::thread::current_timer_slack().unwrap(), 1);
        })
        .join()
        .unwrap();
    }
}
