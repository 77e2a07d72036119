//! What the machine did besides the trial: steal, pressure, other processes, context switches.

use crate::record::as_f64;
use procfs::{CpuPressure, CpuTime, Current, CurrentSI, KernelStats, ProcError, ProcResult};
use serde::{Deserialize, Serialize};
use std::fs;
use std::sync::LazyLock;
use std::time::Duration;

/// Noise over a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Time that the hypervisor gave to others, in percent of the time of the CPUs in use.
    pub steal_percent: f64,
    /// Time that other processes used, in percent of the time of the CPUs in use.
    pub foreign_cpu_percent: f64,
    /// Time in which some task waited for a CPU, in percent of the window; none where the kernel
    /// does not count it. A closed loop that saturates its CPUs makes most of it itself.
    pub cpu_pressure_percent: Option<f64>,
    /// Context switches of the whole machine.
    pub context_switches: u64,
}

/// The counters of the machine at one moment.
#[derive(Debug, Clone)]
pub struct Counters {
    busy: Duration,
    steal: Duration,
    pressure: Option<Duration>,
    context_switches: u64,
}

impl Counters {
    /// Reads the counters of the CPUs in use.
    ///
    /// # Errors
    ///
    /// `/proc/stat` cannot be read.
    pub fn read(cpus: &[usize]) -> ProcResult<Self> {
        let stats = KernelStats::current()?;
        let in_use: Vec<&CpuTime> =
            cpus.iter().filter_map(|cpu| stats.cpu_time.get(*cpu)).collect();
        if in_use.len() < cpus.len() {
            let what = format!("/proc/stat does not tell of every CPU of {cpus:?}");
            return Err(ProcError::Other(what));
        }
        let with_interrupts = !interrupts_are_apart();
        Ok(Self {
            busy: in_use.iter().map(|cpu| busy(cpu, with_interrupts)).sum(),
            steal: in_use.iter().filter_map(|cpu| cpu.steal_duration()).sum(),
            pressure: cpu_pressure()?.map(|pressure| Duration::from_micros(pressure.some.total)),
            context_switches: stats.ctxt,
        })
    }

    /// The noise from these counters to later ones. `ours` is the CPU time of the trial's own
    /// processes in between.
    pub fn until(&self, later: &Self, window: Duration, cpus: usize, ours: Duration) -> Noise {
        let capacity = window.as_secs_f64() * as_f64(cpus as u64);
        let of_capacity = |spent: Duration| 100.0 * spent.as_secs_f64() / capacity;
        let busy = later.busy.saturating_sub(self.busy);
        let pressure = later.pressure.zip(self.pressure);
        Noise {
            steal_percent: of_capacity(later.steal.saturating_sub(self.steal)),
            foreign_cpu_percent: of_capacity(busy.saturating_sub(ours)),
            cpu_pressure_percent: pressure.map(|(later, earlier)| {
                let stalled = later.saturating_sub(earlier);
                100.0 * stalled.as_secs_f64() / window.as_secs_f64()
            }),
            context_switches: later.context_switches.saturating_sub(self.context_switches),
        }
    }
}

/// The step in which the kernel shows the CPU times that it counts.
pub fn tick() -> Duration {
    Duration::from_secs_f64(1.0 / as_f64(procfs::ticks_per_second()))
}

/// How often CPUs are waited for; none where the kernel does not count it.
///
/// # Errors
///
/// The kernel counts it and it cannot be read.
pub fn cpu_pressure() -> ProcResult<Option<CpuPressure>> {
    match CpuPressure::current() {
        Ok(pressure) => Ok(Some(pressure)),
        Err(ProcError::NotFound(_)) => Ok(None),
        // Kernels that have it switched off open the file and refuse to read it.
        Err(ProcError::Io(error, _)) if error.raw_os_error() == Some(nix::libc::EOPNOTSUPP) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whether this kernel keeps the time of interrupts apart from the CPU time of the processes that
/// they interrupt (`CONFIG_IRQ_TIME_ACCOUNTING`). Where it does not, a process' clock includes them,
/// and so must what it is compared with. A kernel that does not show its configuration is taken for
/// one of those.
fn interrupts_are_apart() -> bool {
    static APART: LazyLock<bool> = LazyLock::new(|| {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let config = fs::read_to_string(format!("/boot/config-{}", release.trim()));
        config.is_ok_and(|text| text.lines().any(|line| line == "CONFIG_IRQ_TIME_ACCOUNTING=y"))
    });
    *APART
}

fn busy(cpu: &CpuTime, with_interrupts: bool) -> Duration {
    let work = cpu.user_duration() + cpu.nice_duration() + cpu.system_duration();
    if !with_interrupts {
        return work;
    }
    work + cpu.irq_duration().unwrap_or_default() + cpu.softirq_duration().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_a_share_of_the_cpus_in_use() {
        let earlier = Counters {
            busy: Duration::from_secs(10),
            steal: Duration::from_secs(1),
            pressure: Some(Duration::from_secs(3)),
            context_switches: 100,
        };
        let later = Counters {
            busy: Duration::from_millis(13_000),
            steal: Duration::from_millis(1_200),
            pressure: Some(Duration::from_millis(4_000)),
            context_switches: 350,
        };
        // Two CPUs for two seconds: capacity 4 s; busy 3 s, of which 2.8 s are ours.
        let noise = earlier.until(&later, Duration::from_secs(2), 2, Duration::from_millis(2_800));
        assert!((noise.steal_percent - 5.0).abs() < 1e-9, "{noise:?}");
        assert!((noise.foreign_cpu_percent - 5.0).abs() < 1e-9, "{noise:?}");
        assert_eq!(noise.cpu_pressure_percent, Some(50.0));
        assert_eq!(noise.context_switches, 250);
    }
}
