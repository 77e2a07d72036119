use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::machine::{GENERATOR_CPU, SERVER_CPU, pin};
use crate::program::built;
use crate::sample::Sample;

/// How late a process on the generator's CPU wakes that sleeps from one of `count` moments to the
/// next, `gap` apart; in microseconds.
pub(crate) fn lateness_of_naps(gap: Duration, count: u32) -> Sample {
    lateness(start(GENERATOR_CPU, gap, count))
}

/// Processes that nap on the CPUs in use while a test runs: what they are late by is what the
/// machine did to everybody at that time, other programs and the hypervisor included.
pub(crate) struct Watch {
    nappers: [Child; 2],
}

/// Between two naps: short beside the disturbances that matter, and half a thousandth of a CPU's
/// time.
const GAP: Duration = Duration::from_millis(2);
/// The most naps of a watch, which last for 15 minutes.
const NAPS_MAX: u32 = 450_000;
/// Later than this is no mere wake-up, which takes some tens of microseconds.
const DISTURBED_US: f64 = 300.0;

impl Watch {
    pub(crate) fn start() -> Self {
        Self { nappers: [GENERATOR_CPU, SERVER_CPU].map(|cpu| start(cpu, GAP, NAPS_MAX)) }
    }

    /// How late the naps were, in microseconds, on the generator's CPU and on the server's.
    pub(crate) fn end(self) -> [Sample; 2] {
        self.nappers.map(|napper| {
            let pid = Pid::from_raw(napper.id() as i32);
            kill(pid, Signal::SIGTERM).expect("the napper runs");
            lateness(napper)
        })
    }
}

/// The share of moments at which something kept a process off its CPU: the worst CPU's.
pub(crate) fn disturbance(lateness: &[Sample]) -> f64 {
    let shares =
        lateness.iter().map(|late| late.count_above(DISTURBED_US) as f64 / late.len() as f64);
    shares.fold(0.0, f64::max)
}

fn start(cpu: usize, gap: Duration, count: u32) -> Child {
    let napper = Command::new(built("napper", &["napper.c"]))
        .args([gap.as_micros().to_string(), count.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the napper starts");
    pin(napper.id(), cpu);
    napper
}

fn lateness(napper: Child) -> Sample {
    let output = napper.wait_with_output().expect("it was started here");
    assert!(output.status.success(), "the napper failed: {}", output.status);
    let text = String::from_utf8(output.stdout).expect("text");
    let lateness_ns = text.lines().map(|line| line.parse::<f64>().expect("a number"));
    Sample::new(lateness_ns.map(|ns| ns / 1e3))
}

#[test]
fn the_worst_cpu_counts() {
    let quiet = Sample::new([40.0; 4]);
    let disturbed = Sample::new([40.0, 300.0, 301.0, 40.0]);
    assert_eq!(disturbance(&[quiet, disturbed]), 0.25);
}
