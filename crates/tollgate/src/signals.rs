//! Ctrl-C, TERM and HUP: the wish to stop.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tollgate_lab::interrupt::Interrupt;

/// The signals that ask for an end.
const STOP: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// A wish to stop that the first of these signals makes; whoever asks again is in a hurry. What comes
/// at once is the same wish: `timeout` signals the process that it started and then its whole group.
///
/// # Errors
///
/// The operating system refuses the handlers or the thread.
pub(crate) fn interrupt(hurry: impl Fn() + Send + 'static) -> io::Result<Interrupt> {
    let interrupt = Interrupt::default();
    let wish = interrupt.flag();
    let mut first = None;
    listen(move |_| {
        wish.store(true, Ordering::Relaxed);
        if first.get_or_insert_with(Instant::now).elapsed() > SAME_WISH {
            hurry();
        }
    })?;
    Ok(interrupt)
}

const SAME_WISH: Duration = Duration::from_millis(100);

/// Calls `on_signal` for each of these signals, on a thread of its own, with how many there have
/// been.
///
/// # Errors
///
/// The operating system refuses the handlers or the thread.
pub(crate) fn listen(mut on_signal: impl FnMut(u32) + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new(STOP)?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for (count, _) in (1..).zip(signals.forever()) {
            on_signal(count);
        }
    })?;
    Ok(())
}
