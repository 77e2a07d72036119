//! The CPU time of the calling thread.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// CPU time that a thread has used since it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTime {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
    /// Time that it could have run, and waited for a CPU.
    pub(crate) waited: Duration,
}

/// Reads the CPU time of the thread that opened it.
#[derive(Debug)]
pub(crate) struct ThreadClock {
    /// Held open, so that a reading needs no descriptor when connections have taken all.
    schedstat: File,
}

impl ThreadClock {
    /// A clock of the calling thread.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { schedstat: File::open(SCHEDSTAT)? })
    }

    /// Reads the clock, on the thread that opened it. The sum of user and system is exact; the kernel
    /// splits it by what it finds at its clock ticks.
    pub(crate) fn read(&self) -> io::Result<CpuTime> {
        let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
        let mut text = [0; SCHEDSTAT_BYTES_MAX];
        let bytes = self.schedstat.read_at(&mut text, 0)?;
        Ok(CpuTime {
            user: duration(usage.user_time()),
            system: duration(usage.system_time()),
            waited: waited(&String::from_utf8_lossy(&text[..bytes]))?,
        })
    }
}

/// Nanoseconds on a CPU, nanoseconds waiting for one, and turns (Documentation/scheduler/sched-stats
/// in the kernel's tree).
const SCHEDSTAT: &str = "/proc/thread-self/schedstat";

/// Three numbers of 64 bits, and what is between them.
const SCHEDSTAT_BYTES_MAX: usize = 64;

fn waited(schedstat: &str) -> io::Result<Duration> {
    let second = schedstat.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok());
    second.map(Duration::from_nanos).ok_or_else(|| {
        let reason = format!("{SCHEDSTAT} holds {schedstat:?}, and no second number");
        io::Error::new(io::ErrorKind::InvalidData, reason)
    })
}

fn duration(time: TimeVal) -> Duration {
    // CPU time is never negative.
    let micros = time.tv_sec().unsigned_abs() * 1_000_000 + time.tv_usec().unsigned_abs();
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_goes_on() {
        let clock = ThreadClock::open().unwrap();
        let before = clock.read().unwrap();
        let spin = std::time::Instant::now();
        while spin.elapsed() < Duration::from_millis(30) {}
        let after = clock.read().unwrap();
        assert!(after.user + after.system > before.user + before.system);
    }

    #[test]
    fn the_second_number_is_the_wait() {
        assert_eq!(waited("900 1500 3\n").unwrap(), Duration::from_nanos(1500));
        assert!(waited("900").unwrap_err().to_string().contains("no second number"));
    }
}
