//! Ctrl-C, TERM and HUP.

use nix::sys::signal::Signal;
use signal_hook::iterator::Signals;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tollgate_runner::process::Interrupt;

const STOP: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Returns the stop signals that this process handles: all but those ignored at its start, such as HUP by `nohup`.
pub(crate) fn handled() -> Vec<Signal> {
    let ignored = ignored().unwrap_or_default();
    STOP.into_iter().filter(|signal| ignored & (1 << (*signal as i32 - 1)) == 0).collect()
}

/// Returns the bit mask of ignored signals (proc(5), `SigIgn`).
fn ignored() -> Option<u64> {
    let status = procfs::process::Process::myself().ok()?.status().ok()?;
    Some(status.sigign)
}

/// Returns an interrupt that is set by the first stop signal. A later one calls `kill_now`, unless it follows at once:
/// `timeout` signals first its child and then the whole group.
pub(crate) fn interrupt(kill_now: impl Fn() + Send + 'static) -> io::Result<Interrupt> {
    let interrupt = Interrupt::default();
    let flag = interrupt.flag();
    let mut first = None;
    listen(move |_| {
        flag.store(true, Ordering::Relaxed);
        if first.get_or_insert_with(Instant::now).elapsed() > REPEAT_INTERVAL {
            kill_now();
        }
    })?;
    Ok(interrupt)
}

const REPEAT_INTERVAL: Duration = Duration::from_millis(100);

/// Calls `on_signal` on a separate thread for each stop signal, with their number so far.
pub(crate) fn listen(mut on_signal: impl FnMut(u32) + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new(handled().into_iter().map(|signal| signal as i32))?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for (count, _) in (1..).zip(signals.forever()) {
            on_signal(count);
        }
    })?;
    Ok(())
}
