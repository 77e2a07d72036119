//! Ctrl-C, TERM and HUP: the wish to stop.

use nix::sys::signal::Signal;
use signal_hook::iterator::Signals;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tollgate_lab::interrupt::Interrupt;

/// The signals that ask for an end.
const STOP: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Those of them that are heeded: one that is ignored from the start is meant to be, as HUP is by
/// `nohup`.
pub(crate) fn heeded() -> Vec<Signal> {
    let ignored = ignored().unwrap_or_default();
    STOP.into_iter().filter(|signal| ignored & (1 << (*signal as i32 - 1)) == 0).collect()
}

/// The signals that this process ignores, a bit each (proc(5), `SigIgn`).
fn ignored() -> Option<u64> {
    let status = procfs::process::Process::myself().ok()?.status().ok()?;
    Some(status.sigign)
}

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
    let mut signals = Signals::new(heeded().into_iter().map(|signal| signal as i32))?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for (count, _) in (1..).zip(signals.forever()) {
            on_signal(count);
        }
    })?;
    Ok(())
}
