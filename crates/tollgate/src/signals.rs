//! Ctrl-C, TERM and HUP: the wish to stop.

use crate::exit::Exit;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The signals that ask for an end.
const STOP: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Sets `wish` at the first signal; the second one ends the program at once. Servers that it
/// started then get a TERM from the kernel.
///
/// # Errors
///
/// The operating system refuses the handlers.
pub(crate) fn set_on_stop(wish: &Arc<AtomicBool>) -> io::Result<()> {
    for signal in STOP {
        flag::register_conditional_shutdown(signal, Exit::Interrupted as i32, Arc::clone(wish))?;
        flag::register(signal, Arc::clone(wish))?;
    }
    Ok(())
}

/// Waits for a signal on a thread of its own, and then calls `stop` there.
///
/// # Errors
///
/// The operating system refuses the handlers.
pub(crate) fn call_on_stop(stop: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new(STOP)?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if signals.forever().next().is_some() {
            stop();
        }
    })?;
    Ok(())
}
