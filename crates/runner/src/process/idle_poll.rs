//! Keeps CPUs from halting, as the kernel parameter `idle=poll` does for a whole machine.
//!
//! Waking a halted CPU costs tens of microseconds of CPU time on a virtual machine, more after a long sleep than
//! after a short one. A thread of idle priority that spins on the CPU keeps it from halting and yields to all others.

use anyhow::anyhow;
use nix::unistd::{Pid, gettid};
use std::fs;
use std::hint::spin_loop;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};
use tollgate_net::pin_current_thread;

/// Keeps CPUs awake until dropped.
#[derive(Debug, Default)]
pub(crate) struct IdlePoll {
    stop: Arc<AtomicBool>,
    spinners: Vec<Spinner>,
}

#[derive(Debug)]
struct Spinner {
    tid: Pid,
    thread: JoinHandle<()>,
}

impl IdlePoll {
    pub(crate) fn start(cpus: &[usize]) -> anyhow::Result<Self> {
        // On an error, dropping this stops the threads started so far.
        let mut idle_poll = Self::default();
        for &cpu in cpus {
            let failed = |reason| anyhow!("cannot keep CPU {cpu} awake (`idle_poll`): {reason}");
            let stop = Arc::clone(&idle_poll.stop);
            let (sender, receiver) = mpsc::channel();
            let thread = Builder::new()
                .name(format!("idle-poll-{cpu}"))
                .spawn(move || match enter_idle_class(cpu) {
                    Ok(()) => {
                        sender.send(Ok(gettid())).expect("`start` waits for this");
                        spin(&stop);
                    }
                    Err(reason) => sender.send(Err(reason)).expect("`start` waits for this"),
                })
                .map_err(|error| failed(error.to_string()))?;
            let tid =
                receiver.recv().map_err(|error| failed(error.to_string()))?.map_err(failed)?;
            idle_poll.spinners.push(Spinner { tid, thread });
        }
        Ok(idle_poll)
    }

    /// CPU time used by the spinning threads so far.
    pub(crate) fn cpu_time(&self) -> io::Result<Duration> {
        self.spinners.iter().map(|spinner| thread_cpu_time(spinner.tid)).sum()
    }
}

impl Drop for IdlePoll {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for spinner in self.spinners.drain(..) {
            spinner.thread.join().expect("spinning does not panic");
        }
    }
}

/// Pins the calling thread to one CPU, at idle priority.
fn enter_idle_class(cpu: usize) -> Result<(), String> {
    pin_current_thread(&[cpu]).map_err(|error| format!("cannot run on it: {error}"))?;
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    // SCHED_IDLE has one priority only.
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle)
        .map_err(|error| format!("cannot run at idle priority: {error}"))
}

fn spin(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        spin_loop();
    }
}

/// Run time of a thread of this process: the first number of its schedstat, in nanoseconds
/// (Documentation/scheduler/sched-stats in the kernel's tree).
fn thread_cpu_time(tid: Pid) -> io::Result<Duration> {
    let path = format!("/proc/self/task/{tid}/schedstat");
    let text = fs::read_to_string(&path)?;
    let first = text.split_ascii_whitespace().next().and_then(|field| field.parse().ok());
    let malformed = || {
        let reason = format!("{path}: expected a number, found {text:?}");
        io::Error::new(io::ErrorKind::InvalidData, reason)
    };
    first.map(Duration::from_nanos).ok_or_else(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use tollgate_net::available_cpus;

    /// From the kernel's sched.h.
    const SCHED_IDLE: &str = "5";

    fn policy(tid: Pid) -> String {
        let stat = fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
        // The third field is the first after the name, which ends with the last parenthesis; the policy is the 41st.
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_ascii_whitespace().nth(41 - 3).unwrap().to_owned()
    }

    #[test]
    fn spins_at_idle_priority_until_dropped() {
        let cpus = available_cpus().unwrap();
        let idle_poll = IdlePoll::start(&cpus).unwrap();
        let tids: Vec<Pid> = idle_poll.spinners.iter().map(|spinner| spinner.tid).collect();
        assert_eq!(tids.len(), cpus.len());
        for tid in &tids {
            assert_eq!(policy(*tid), SCHED_IDLE);
        }
        // On busy CPUs idle threads run late.
        let before = idle_poll.cpu_time().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while idle_poll.cpu_time().unwrap() == before {
            assert!(Instant::now() < deadline, "the threads did not run");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(idle_poll);
        for tid in tids {
            assert!(!fs::exists(format!("/proc/self/task/{tid}")).unwrap(), "{tid} still runs");
        }
    }

    #[test]
    fn error_names_the_cpu() {
        let error = IdlePoll::start(&[1023]).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot keep CPU 1023 awake (`idle_poll`): cannot run on it"),
            "{error}"
        );
    }
}
