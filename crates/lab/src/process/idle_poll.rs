//! Keeping CPUs awake, as the kernel's `idle=poll` does for a whole machine.
//!
//! A CPU without work halts, and a halted one takes long to wake: tens of microseconds of CPU time on a
//! virtual machine, which whoever wakes it and whoever is woken pay, more after a long sleep than after a
//! short one. A thread that spins on it and gives way to everybody else keeps it from halting.

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use std::fs;
use std::hint::spin_loop;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use thiserror::Error;
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// CPUs that are kept awake until this is dropped.
#[derive(Debug, Default)]
pub struct IdlePoll {
    stop: Arc<AtomicBool>,
    spinners: Vec<Spinner>,
}

#[derive(Debug)]
struct Spinner {
    tid: Pid,
    thread: JoinHandle<()>,
}

/// A CPU that cannot be kept awake.
#[derive(Debug, Error)]
#[error("keeping CPU {cpu} awake (`idle_poll`): {reason}")]
pub struct IdlePollError {
    cpu: usize,
    reason: String,
}

impl IdlePoll {
    /// Keeps these CPUs awake.
    ///
    /// # Errors
    ///
    /// The operating system does not let a thread run there, or not at idle priority.
    pub fn start(cpus: &[usize]) -> Result<Self, IdlePollError> {
        // What was started by then is stopped when an error drops it.
        let mut kept = Self::default();
        for &cpu in cpus {
            let failed = |reason: String| IdlePollError { cpu, reason };
            let stop = Arc::clone(&kept.stop);
            let (tell, told) = mpsc::channel();
            let thread = Builder::new()
                .name(format!("idle-poll-{cpu}"))
                .spawn(move || match settle(cpu) {
                    Ok(()) => {
                        tell.send(Ok(gettid())).expect("who started it waits for this");
                        spin(&stop);
                    }
                    Err(reason) => tell.send(Err(reason)).expect("who started it waits for this"),
                })
                .map_err(|error| failed(error.to_string()))?;
            let tid = told.recv().map_err(|error| failed(error.to_string()))?.map_err(failed)?;
            kept.spinners.push(Spinner { tid, thread });
        }
        Ok(kept)
    }

    /// The CPU time that this has taken so far, which is nobody else's.
    ///
    /// # Errors
    ///
    /// `/proc` does not tell.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        self.spinners.iter().map(|spinner| ran(spinner.tid)).sum()
    }
}

impl Drop for IdlePoll {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for spinner in self.spinners.drain(..) {
            spinner.thread.join().expect("it does nothing that could fail");
        }
    }
}

/// Has the calling thread run on one CPU, when nobody else wants it.
fn settle(cpu: usize) -> Result<(), String> {
    let mut set = CpuSet::new();
    let pinned = set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    pinned.map_err(|error: Errno| format!("running there: {error}"))?;
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    // SCHED_IDLE has one priority only.
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle)
        .map_err(|error| format!("running at idle priority: {error}"))
}

fn spin(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        spin_loop();
    }
}

/// How long a thread of this process has run: the first number of its schedstat, in nanoseconds
/// (Documentation/scheduler/sched-stats in the kernel's tree).
fn ran(tid: Pid) -> io::Result<Duration> {
    let path = format!("/proc/self/task/{tid}/schedstat");
    let text = fs::read_to_string(&path)?;
    let first = text.split_ascii_whitespace().next().and_then(|field| field.parse().ok());
    let malformed = || {
        let reason = format!("{path} holds {text:?}, and no first number");
        io::Error::new(io::ErrorKind::InvalidData, reason)
    };
    first.map(Duration::from_nanos).ok_or_else(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::available_cpus;
    use std::time::Instant;

    /// The policies of the kernel's sched.h, as /proc tells them.
    const SCHED_IDLE: &str = "5";

    fn policy(tid: Pid) -> String {
        let stat = fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
        // The fields after the name, which ends with the last parenthesis: the policy is the 41st of
        // all, and the third stands first here.
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_ascii_whitespace().nth(41 - 3).unwrap().to_owned()
    }

    #[test]
    fn a_cpu_is_kept_awake_at_idle_priority_until_the_end() {
        let cpus = available_cpus().unwrap();
        let kept = IdlePoll::start(&cpus).unwrap();
        let tids: Vec<Pid> = kept.spinners.iter().map(|spinner| spinner.tid).collect();
        assert_eq!(tids.len(), cpus.len());
        for tid in &tids {
            assert_eq!(policy(*tid), SCHED_IDLE);
        }
        // Others may want the CPUs now; idle threads have their turn sooner or later.
        let before = kept.cpu_time().unwrap();
        let patience = Instant::now() + Duration::from_secs(60);
        while kept.cpu_time().unwrap() == before {
            assert!(Instant::now() < patience, "they never ran");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(kept);
        for tid in tids {
            assert!(!fs::exists(format!("/proc/self/task/{tid}")).unwrap(), "{tid} goes on");
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        let error = IdlePoll::start(&[1023]).unwrap_err().to_string();
        assert!(
            error.starts_with("keeping CPU 1023 awake (`idle_poll`): running there"),
            "{error}"
        );
    }
}
