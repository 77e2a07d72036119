//! The machine of a run: its fingerprint, and counters of disturbances (steal, pressure, other processes).

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{SysconfVar, sysconf};
use procfs::{
    CpuInfo, CpuPressure, CpuTime, Current, CurrentSI, KernelStats, ProcError, ProcResult,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::LazyLock;
use std::time::Duration;
use tollgate_records::machine::Environment;
use tollgate_records::trial::{Noise, as_f64};

/// Reads the fingerprint of this machine.
pub fn read() -> nix::Result<Environment> {
    let name = nix::sys::utsname::uname()?;
    let words = [name.sysname(), name.release(), name.machine()];
    let cpu = CpuInfo::current().ok();
    let cpu = |field: &str| {
        cpu.as_ref()?
            .fields
            .get(field)
            .or(cpu.as_ref()?.get_info(0)?.get(field).copied().map(String::from).as_ref())
            .cloned()
    };
    Ok(Environment {
        kernel: words.map(|word| word.to_string_lossy().into_owned()).join(" "),
        cpu_model: cpu("model name"),
        cpus: online_cpus()?,
        shared_cores: shared_cores(),
        mitigations: mitigations(),
        hypervisor: hypervisor(cpu("flags").as_deref()),
        governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        clock_source: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        open_files: getrlimit(Resource::RLIMIT_NOFILE)?,
        somaxconn: line("/proc/sys/net/core/somaxconn"),
        port_range: line("/proc/sys/net/ipv4/ip_local_port_range"),
    })
}

/// Counts all CPUs of the machine, including those that this process may not use.
fn online_cpus() -> nix::Result<usize> {
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN)?;
    Ok(online.and_then(|count| usize::try_from(count).ok()).unwrap_or(1))
}

/// CPUs that are hardware threads of one core, for each core that has several online. `None` is unknown.
pub(crate) fn shared_cores() -> Option<Vec<Vec<usize>>> {
    let entries = fs::read_dir("/sys/devices/system/cpu").ok()?;
    let threads = entries.flatten().filter_map(|entry| {
        let file = entry.path().join("topology/thread_siblings_list");
        cpu_list(&line(file.to_str()?)?)
    });
    let cores: BTreeSet<_> = threads.filter(|cpus| cpus.len() > 1).collect();
    Some(cores.into_iter().collect())
}

/// Adds the other hardware threads of the cores of CPUs.
fn with_siblings(cpus: &[usize]) -> BTreeSet<usize> {
    static SHARED_CORES: LazyLock<Vec<Vec<usize>>> =
        LazyLock::new(|| shared_cores().unwrap_or_default());
    let cores = SHARED_CORES.iter().filter(|core| core.iter().any(|cpu| cpus.contains(cpu)));
    cores.flatten().chain(cpus).copied().collect()
}

/// Parses the kernel's lists of CPUs: `0-2,7`.
fn cpu_list(text: &str) -> Option<Vec<usize>> {
    let number = |text: &str| text.parse::<usize>().ok();
    let ranges = text.split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(number(first)?..=number(last)?)
    });
    Some(ranges.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
}

fn mitigations() -> BTreeMap<String, String> {
    let folder = "/sys/devices/system/cpu/vulnerabilities";
    // Missing in kernels before 4.15.
    let Ok(entries) = fs::read_dir(folder) else {
        return BTreeMap::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            line(&format!("{folder}/{name}")).map(|state| (name, state))
        })
        .collect()
}

/// Returns the name of the hypervisor by the firmware, if the CPU reports one.
fn hypervisor(cpu_flags: Option<&str>) -> Option<String> {
    let flags = cpu_flags.unwrap_or_default();
    if !flags.split_whitespace().any(|flag| flag == "hypervisor") {
        return None;
    }
    let name = line("/sys/hypervisor/type").or_else(|| line("/sys/class/dmi/id/sys_vendor"));
    Some(name.unwrap_or_else(|| "unknown".to_owned()))
}

/// Returns the first line of a file with normalized white space, or `None` if it is missing or empty.
fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Counters of the machine at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Counters {
    busy: Duration,
    /// Time in softirqs by CPU; `None` if it is not part of the CPU time of processes.
    softirq: Option<BTreeMap<usize, Duration>>,
    /// As `busy`, always with interrupts.
    all: Duration,
    steal: Duration,
    pressure: Option<Duration>,
    context_switches: u64,
}

impl Counters {
    /// Reads the counters of these CPUs. The busy time includes the other hardware threads of their cores.
    pub(crate) fn read(cpus: &[usize]) -> ProcResult<Self> {
        let stats = KernelStats::current()?;
        let in_use: Vec<&CpuTime> =
            cpus.iter().filter_map(|cpu| stats.cpu_time.get(*cpu)).collect();
        if in_use.len() < cpus.len() {
            let reason = format!("/proc/stat lacks one of the CPUs {cpus:?}");
            return Err(ProcError::Other(reason));
        }
        let with_interrupts = !counts_interrupts_separately();
        let softirq = |(cpu, time): (&usize, &&CpuTime)| Some((*cpu, time.softirq_duration()?));
        Ok(Self {
            softirq: with_interrupts
                .then(|| cpus.iter().zip(&in_use).map(softirq).collect())
                .flatten(),
            busy: with_siblings(cpus)
                .iter()
                .filter_map(|cpu| stats.cpu_time.get(*cpu))
                .map(|cpu| busy(cpu, with_interrupts))
                .sum(),
            all: in_use.iter().map(|cpu| busy(cpu, true)).sum(),
            steal: in_use.iter().filter_map(|cpu| cpu.steal_duration()).sum(),
            pressure: cpu_pressure()?.map(|pressure| Duration::from_micros(pressure.some.total)),
            context_switches: stats.ctxt,
        })
    }

    /// Returns the time in softirqs of these CPUs, which were read, between these counters and later ones.
    pub(crate) fn softirq_until(&self, later: &Self, cpus: &[usize]) -> Option<Duration> {
        let (earlier, later) = (self.softirq.as_ref()?, later.softirq.as_ref()?);
        cpus.iter().map(|cpu| Some(later.get(cpu)?.saturating_sub(*earlier.get(cpu)?))).sum()
    }

    /// CPU time of these CPUs until later counters, with interrupts.
    pub(crate) fn busy_us_until(&self, later: &Self) -> u64 {
        let busy = later.all.saturating_sub(self.all);
        u64::try_from(busy.as_micros()).unwrap_or(u64::MAX)
    }

    /// Returns the noise between these counters and later ones. `own` is the CPU time of the trial's processes.
    pub(crate) fn until(
        &self,
        later: &Self,
        window: Duration,
        cpus: usize,
        own: Duration,
    ) -> Noise {
        let capacity = window.as_secs_f64() * as_f64(cpus as u64);
        // The kernel counts in ticks, of which a short window may hold a few too many.
        let of_capacity = |spent: Duration| (100.0 * spent.as_secs_f64() / capacity).min(100.0);
        let busy = later.busy.saturating_sub(self.busy);
        let pressure = later.pressure.zip(self.pressure);
        Noise {
            steal_percent: of_capacity(later.steal.saturating_sub(self.steal)),
            background_cpu_percent: of_capacity(busy.saturating_sub(own)),
            cpu_pressure_percent: pressure.map(|(later, earlier)| {
                let stalled = later.saturating_sub(earlier);
                100.0 * stalled.as_secs_f64() / window.as_secs_f64()
            }),
            context_switches: later.context_switches.saturating_sub(self.context_switches),
        }
    }
}

/// Resolution of the kernel's CPU times.
pub(crate) fn tick() -> Duration {
    Duration::from_secs_f64(1.0 / as_f64(procfs::ticks_per_second()))
}

/// Reads the pressure on CPUs, or `None` if the kernel does not count it.
pub(crate) fn cpu_pressure() -> ProcResult<Option<CpuPressure>> {
    match CpuPressure::current() {
        Ok(pressure) => Ok(Some(pressure)),
        Err(ProcError::NotFound(_)) => Ok(None),
        // If disabled, the file can be opened but not read.
        Err(ProcError::Io(error, _)) if error.raw_os_error() == Some(nix::libc::EOPNOTSUPP) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// True if the kernel accounts interrupts separately from the interrupted process (`CONFIG_IRQ_TIME_ACCOUNTING`). If
/// not, the clock of a process includes them, and the busy time must too. False if the configuration is unknown.
fn counts_interrupts_separately() -> bool {
    static SEPARATE: LazyLock<bool> = LazyLock::new(|| {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let config = fs::read_to_string(format!("/boot/config-{}", release.trim()));
        config.is_ok_and(|text| text.lines().any(|line| line == "CONFIG_IRQ_TIME_ACCOUNTING=y"))
    });
    *SEPARATE
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
    fn reads_kernel_and_cpus_of_this_machine() {
        let environment = read().unwrap();
        assert!(environment.kernel.starts_with("Linux "), "{}", environment.kernel);
        assert!(environment.cpus >= 1);
        assert!(environment.in_short().contains(&environment.kernel));
    }

    #[test]
    fn lists_of_cpus_have_numbers_and_ranges() {
        assert_eq!(cpu_list("0,64"), Some(vec![0, 64]));
        assert_eq!(cpu_list("0-1"), Some(vec![0, 1]));
        assert_eq!(cpu_list("3"), Some(vec![3]));
        assert_eq!(cpu_list("0-2,7"), Some(vec![0, 1, 2, 7]));
        assert_eq!(cpu_list("0,x"), None);
        // Each CPU belongs to one core.
        let mut cpus = shared_cores().unwrap_or_default().concat();
        let all = cpus.len();
        cpus.sort_unstable();
        cpus.dedup();
        assert_eq!(cpus.len(), all);
    }

    #[test]
    fn hypervisor_is_reported_by_the_cpu() {
        assert_eq!(hypervisor(Some("fpu sse")), None);
        assert!(hypervisor(Some("fpu hypervisor sse")).is_some());
    }

    #[test]
    fn noise_is_a_share_of_the_measured_cpus() {
        let earlier = Counters {
            busy: Duration::from_secs(10),
            softirq: Some([(0, 1), (1, 2)].map(|(cpu, s)| (cpu, Duration::from_secs(s))).into()),
            all: Duration::from_secs(10),
            steal: Duration::from_secs(1),
            pressure: Some(Duration::from_secs(3)),
            context_switches: 100,
        };
        let later = Counters {
            busy: Duration::from_millis(13_000),
            softirq: Some([(0, 9), (1, 5)].map(|(cpu, s)| (cpu, Duration::from_secs(s))).into()),
            all: Duration::from_millis(13_500),
            steal: Duration::from_millis(1_200),
            pressure: Some(Duration::from_millis(4_000)),
            context_switches: 350,
        };
        // Two CPUs for two seconds: capacity 4 s; busy 3 s, of which 2.8 s are own.
        let noise = earlier.until(&later, Duration::from_secs(2), 2, Duration::from_millis(2_800));
        assert!((noise.steal_percent - 5.0).abs() < 1e-9, "{noise:?}");
        assert!((noise.background_cpu_percent - 5.0).abs() < 1e-9, "{noise:?}");
        assert_eq!(noise.cpu_pressure_percent, Some(50.0));
        assert_eq!(noise.context_switches, 250);
        let noise = earlier.until(&later, Duration::from_millis(1_499), 2, Duration::ZERO);
        assert_eq!(noise.background_cpu_percent, 100.0);
        assert_eq!(earlier.softirq_until(&later, &[1]), Some(Duration::from_secs(3)));
        assert_eq!(earlier.softirq_until(&later, &[1, 2]), None);
    }
}
