use std::sync::{Mutex, PoisonError};
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::findings::Findings;
use crate::nap::{Watch, disturbance};

/// The generator's CPU.
pub(crate) const GENERATOR_CPU: usize = 0;
/// The server's CPU, where there are two.
pub(crate) const SERVER_CPU: usize = 1;

/// How often a test is done again that failed while others kept the machine busy.
const ATTEMPTS: u32 = 3;

/// The share of moments at which a napping process could not run, above which a test that failed is
/// done again. A 99th percentile moves when 1 % of the requests meet a disturbance, on either CPU,
/// so half of that is the most that leaves it alone.
const NOISE_MAX: f64 = 0.005;

/// Runs a test when no other runs, and fails with what it found wrong. Only where the
/// napping processes say that the machine was disturbed it is done again; a test never passes
/// for being noisy.
pub(crate) fn alone(name: &str, test: impl Fn(&mut Findings)) {
    static MACHINE: Mutex<()> = Mutex::new(());
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    for attempt in 1.. {
        eprintln!("{name}");
        let began = Instant::now();
        let watch = Watch::start();
        let mut findings = Findings::default();
        test(&mut findings);
        let noise = disturbance(&watch.end());
        let percent = 100.0 * noise;
        eprintln!("  took {:.1} s; noise {percent:.2} %", began.elapsed().as_secs_f64());
        if findings.wrong().is_empty() {
            return;
        }
        let wrong = findings.wrong().join("\n");
        if noise <= NOISE_MAX || attempt == ATTEMPTS {
            panic!("attempt {attempt}, with {percent:.2} % noise:\n{wrong}");
        }
        eprintln!("  the machine was busy with something else, so once more");
        wait_for_quiet();
    }
}

/// Waits until a second passes without noise, but not for long.
fn wait_for_quiet() {
    const SECONDS_MAX: u32 = 10;
    for _ in 0..SECONDS_MAX {
        let watch = Watch::start();
        sleep(Duration::from_secs(1));
        if disturbance(&watch.end()) <= NOISE_MAX {
            return;
        }
    }
}

/// Pins a process (0: this thread) to a CPU, where there is more than one.
pub(crate) fn pin(pid: u32, cpu: usize) {
    if !has_two_cpus() {
        return;
    }
    let mut cpus = CpuSet::new();
    cpus.set(cpu).expect("a CPU number");
    sched_setaffinity(Pid::from_raw(pid as i32), &cpus).expect("the CPU is there");
}

pub(crate) fn has_two_cpus() -> bool {
    available_parallelism().expect("the number of CPUs").get() > 1
}
