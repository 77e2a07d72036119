use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::reference::{Sleepers, disturbed_share};

pub(crate) const GENERATOR_CPU: usize = 0;
/// The CPU of the server, if there are two.
pub(crate) const SERVER_CPU: usize = 1;

/// Attempts of a test that fails on a busy machine.
const ATTEMPTS: u32 = 3;

/// Share of disturbed times above which a failed test is repeated. A 99th percentile moves if 1 % of
/// the requests meet a disturbance on either CPU, so half of that leaves it alone.
const NOISE_MAX: f64 = 0.005;

/// Runs a test while no other runs, and fails with its failed checks. A failed test is repeated; it fails if it fails
/// twice on a quiet machine, or in every attempt. The sleepers do not see all that a hypervisor does.
pub(crate) fn exclusive(name: &str, test: impl Fn(&mut Checks)) {
    static MACHINE: Mutex<()> = Mutex::new(());
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut quiet_failures = 0;
    for attempt in 1.. {
        eprintln!("{name}");
        let started_at = Instant::now();
        let sleepers = Sleepers::start();
        let mut checks = Checks::default();
        test(&mut checks);
        let noise = disturbed_share(&sleepers.stop());
        let percent = 100.0 * noise;
        eprintln!("  took {:.1} s; noise {percent:.2} %", started_at.elapsed().as_secs_f64());
        if checks.failed.is_empty() {
            return;
        }
        let failed = checks.failed.join("\n");
        quiet_failures += u32::from(noise <= NOISE_MAX);
        if quiet_failures == 2 || attempt == ATTEMPTS {
            panic!("attempt {attempt}, with {percent:.2} % noise:\n{failed}");
        }
        eprintln!("  trying again");
        wait_for_quiet();
    }
}

/// Waits until a second passes without noise, up to a limit.
fn wait_for_quiet() {
    const SECONDS_MAX: u32 = 10;
    for _ in 0..SECONDS_MAX {
        let sleepers = Sleepers::start();
        sleep(Duration::from_secs(1));
        if disturbed_share(&sleepers.stop()) <= NOISE_MAX {
            return;
        }
    }
}

/// Checks of a test. Each figure is printed with its bounds.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    failed: Vec<String>,
}

impl Checks {
    pub(crate) fn within(&mut self, what: &str, actual: f64, bounds: RangeInclusive<f64>) {
        let line = format!("{what}: {actual:.2} in {:.2} to {:.2}", bounds.start(), bounds.end());
        self.add(bounds.contains(&actual), line);
    }

    pub(crate) fn equal<T: Copy + PartialEq + Display>(
        &mut self,
        what: &str,
        actual: T,
        expected: T,
    ) {
        self.add(actual == expected, format!("{what}: {actual}, expected {expected}"));
    }

    /// A condition without a figure.
    pub(crate) fn holds(&mut self, what: &str, holds: bool) {
        self.add(holds, what.to_owned());
    }

    pub(crate) fn note(&self, what: &str) {
        eprintln!("        {what}");
    }

    fn add(&mut self, is_ok: bool, line: String) {
        eprintln!("  {} {line}", if is_ok { "ok    " } else { "FAILED" });
        if !is_ok {
            self.failed.push(line);
        }
    }
}

/// Pins a process (0: this thread) to a CPU, if there is more than one.
pub(crate) fn pin(pid: u32, cpu: usize) {
    if !has_two_cpus() {
        return;
    }
    let mut cpus = CpuSet::new();
    cpus.set(cpu).expect("a CPU number");
    sched_setaffinity(Pid::from_raw(pid as i32), &cpus).expect("an available CPU");
}

pub(crate) fn has_two_cpus() -> bool {
    available_parallelism().expect("the number of CPUs").get() > 1
}

/// Compiles a program in C, once per run. `sources` are files of this folder.
pub(crate) fn compiled(name: &'static str, sources: &[&str]) -> PathBuf {
    static COMPILED: Mutex<BTreeMap<&str, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    compiled.entry(name).or_insert_with(|| compile(name, sources)).clone()
}

fn compile(name: &str, sources: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fidelity");
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let status = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&binary)
        .args(sources.iter().map(|source| folder.join(source)))
        .arg("-lm")
        .status()
        .expect("a C compiler: scripts/setup installs one");
    assert!(status.success(), "cannot compile {name}");
    binary
}
