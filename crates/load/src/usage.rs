//! The CPU time of the calling thread.

use std::io;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// CPU time that a thread has used since it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTime {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

/// Reads the calling thread's CPU time. The sum is exact; the kernel splits it into user and system
/// by what it finds at its clock ticks.
pub(crate) fn of_current_thread() -> io::Result<CpuTime> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
    Ok(CpuTime { user: duration(usage.user_time()), system: duration(usage.system_time()) })
}

fn duration(time: TimeVal) -> Duration {
    // CPU time is never negative.
    let micros = time.tv_sec().unsigned_abs() * 1_000_000 + time.tv_usec().unsigned_abs();
    Duration::from_micros(micros)
}
