//! Keeps CPUs from halting, as the kernel parameter `idle=poll` does for a whole machine.
//!
//! Waking a halted CPU costs tens of microseconds of CPU time on a virtual machine, more after a long sleep than
//! after a short one. A thread of idle priority that spins on the CPU keeps it from halting and yields to all others.

use anyhow::anyhow;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};
use tollgate_net::pin_current_thread;

/// Keeps CPUs awake until dropped.
#[derive(Debug, Default)]
pub(crate) struct IdlePoll {
    stop: Arc<AtomicBool>,
    spinners: Vec<JoinHandle<()>>,
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
                        sender.send(Ok(())).expect("`start` waits for this");
                        spin(&stop);
                    }
                    Err(reason) => sender.send(Err(reason)).expect("`start` waits for this"),
                })
                .map_err(|error| failed(error.to_string()))?;
            receiver.recv().map_err(|error| failed(error.to_string()))?.map_err(failed)?;
            idle_poll.spinners.push(thread);
        }
        Ok(idle_poll)
    }
}

impl Drop for IdlePoll {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for spinner in self.spinners.drain(..) {
            spinner.join().expect("spinning does not panic");
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

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::process::{Process, Task};
    use std::time::{Duration, Instant};
    use tollgate_net::available_cpus;

    /// From the kernel's sched.h.
    const SCHED_IDLE: u32 = 5;

    fn spinners() -> Vec<Task> {
        let tasks = Process::myself().unwrap().tasks().unwrap().flatten();
        let is_spinner =
            |task: &Task| task.stat().is_ok_and(|stat| stat.comm.starts_with("idle-poll-"));
        tasks.filter(is_spinner).collect()
    }

    #[test]
    fn spins_at_idle_priority_until_dropped() {
        let cpus = available_cpus().unwrap();
        let idle_poll = IdlePoll::start(&cpus).unwrap();
        assert_eq!(spinners().len(), cpus.len());
        for spinner in spinners() {
            assert_eq!(spinner.stat().unwrap().policy, Some(SCHED_IDLE));
        }
        let spent = || -> u64 {
            spinners().iter().map(|task| task.schedstat().unwrap().sum_exec_runtime).sum()
        };
        // On busy CPUs idle threads run late.
        let before = spent();
        let deadline = Instant::now() + Duration::from_secs(60);
        while spent() == before {
            assert!(Instant::now() < deadline, "the threads did not run");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(idle_poll);
        assert!(spinners().is_empty());
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
