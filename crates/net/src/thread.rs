//! CPU affinity, timer slack and busy polling of threads.

use std::io;
use std::num::NonZeroU64;
use std::time::Duration;

use rustix::thread::{
    self, sched_getaffinity, sched_setaffinity, sched_yield, set_current_timer_slack,
};
use rustix::time::{ClockId, clock_gettime};

/// Set of CPUs, numbered from 0.
#[derive(Clone, Copy, Debug)]
pub struct CpuSet(thread::CpuSet);

impl CpuSet {
    /// Creates a set. The kernel decides later whether the CPUs exist.
    ///
    /// # Errors
    ///
    /// `cpus` is empty or has a number beyond the kernel's limit of 1023.
    pub fn new(cpus: &[usize]) -> io::Result<Self> {
        let mut set = thread::CpuSet::new();
        for &cpu in cpus {
            if cpu >= thread::CpuSet::MAX_CPU {
                let reason =
                    format!("no such CPU: {cpu}; the highest is {}", thread::CpuSet::MAX_CPU - 1);
                return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
            }
            set.set(cpu);
        }
        if cpus.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the list of CPUs is empty"));
        }
        Ok(Self(set))
    }

    /// Confines the calling thread, and threads and processes that it starts later, to these CPUs.
    /// One system call without allocation: may be called between fork and exec.
    ///
    /// # Errors
    ///
    /// `InvalidInput`: the machine has none of these CPUs, or the thread may not run on them.
    pub fn pin_current_thread(&self) -> io::Result<()> {
        Ok(sched_setaffinity(None, &self.0)?)
    }
}

/// Confines the calling thread, and threads and processes that it starts later, to `cpus`.
pub fn pin_current_thread(cpus: &[usize]) -> io::Result<()> {
    CpuSet::new(cpus)?.pin_current_thread()
}

/// Returns the CPUs that the calling thread may run on, in ascending order.
pub fn available_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Ends timed waits of the calling thread without delay. By default the kernel may end them up to 50 microseconds late
/// (`PR_SET_TIMERSLACK`).
pub fn minimize_timer_slack() -> io::Result<()> {
    Ok(set_current_timer_slack(Some(NonZeroU64::MIN))?)
}

/// CPU time of idle turns of an event loop: turns that polled, found no event, and had no other work.
#[derive(Debug, Default)]
pub struct IdlePolling {
    /// CPU time of the thread at the end of the last turn, if that was idle.
    since: Option<Duration>,
}

impl IdlePolling {
    /// Ends an idle turn. Returns the CPU time since the end of the turn before if that was idle, too.
    pub fn idle_turn(&mut self) -> Duration {
        let now = thread_cpu_time();
        self.since.replace(now).map_or(Duration::ZERO, |since| now - since)
    }

    /// Ends a turn that waited for an event or had work.
    pub fn busy_turn(&mut self) {
        self.since = None;
    }
}

fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The kernel returns no negative times.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Lets other threads run that poll on the same CPU. Returns at once if there are none.
pub fn yield_cpu() {
    sched_yield();
}

#[cfg(test)]
mod tests {
    use rustix::thread::{current_timer_slack, sched_getcpu};

    use super::*;

    #[test]
    fn pins_the_calling_thread_only() {
        let available = available_cpus().unwrap();
        let last = *available.last().unwrap();
        std::thread::spawn(move || {
            pin_current_thread(&[last]).unwrap();
            assert_eq!(sched_getcpu(), last);
            assert_eq!(available_cpus().unwrap(), [last]);
        })
        .join()
        .unwrap();
        assert_eq!(available_cpus().unwrap(), available);
    }

    #[test]
    fn rejects_empty_set_and_impossible_cpu() {
        for cpus in [&[][..], &[thread::CpuSet::MAX_CPU], &[thread::CpuSet::MAX_CPU - 1]] {
            let error = pin_current_thread(cpus).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
    #[test]
    fn minimal_timer_slack_is_a_nanosecond() {
        std::thread::spawn(|| {
            minimize_timer_slack().unwrap();
            assert_eq!(current_timer_slack().unwrap(), 1);
        })
        .join()
        .unwrap();
    }
}
