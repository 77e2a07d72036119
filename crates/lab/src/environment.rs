//! The machine that a run was made on: what has to be alike before two runs may be compared.

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{SysconfVar, sysconf};
use procfs::{CpuInfo, Current};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;

/// The fingerprint of a machine. What it does not tell is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// The kernel's name, release and architecture.
    pub kernel: String,
    /// The CPU's model.
    pub cpu_model: Option<String>,
    /// How many CPUs are online.
    pub cpus: usize,
    /// What the kernel does against each known flaw of the CPU.
    pub mitigations: BTreeMap<String, String>,
    /// The hypervisor, when there is one.
    pub hypervisor: Option<String>,
    /// The frequency governor, where the CPU has one.
    pub governor: Option<String>,
    /// The clock source.
    pub clock_source: Option<String>,
    /// How many files a process may open: soft and hard limit.
    pub open_files: (u64, u64),
    /// The longest queue of connections that wait to be accepted.
    pub somaxconn: Option<String>,
    /// The ports that outgoing connections get.
    pub port_range: Option<String>,
}

impl Environment {
    /// Reads the fingerprint of this machine.
    ///
    /// # Errors
    ///
    /// The operating system does not tell its name or limits.
    pub fn read() -> nix::Result<Self> {
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
        Ok(Self {
            kernel: words.map(|word| word.to_string_lossy().into_owned()).join(" "),
            cpu_model: cpu("model name"),
            cpus: online_cpus()?,
            mitigations: mitigations(),
            hypervisor: hypervisor(cpu("flags").as_deref()),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            clock_source: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            open_files: getrlimit(Resource::RLIMIT_NOFILE)?,
            somaxconn: line("/proc/sys/net/core/somaxconn"),
            port_range: line("/proc/sys/net/ipv4/ip_local_port_range"),
        })
    }

    /// The fingerprint in one short line.
    pub fn in_short(&self) -> String {
        let model = self.cpu_model.as_deref().unwrap_or("unknown CPU");
        let host = match &self.hypervisor {
            Some(hypervisor) => format!("virtual machine ({hypervisor})"),
            None => "bare metal".to_owned(),
        };
        format!("{} x {model}, {}, {host}", self.cpus, self.kernel)
    }
}

/// All CPUs of the machine, whichever of them this process may use.
fn online_cpus() -> nix::Result<usize> {
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN)?;
    Ok(online.and_then(|count| usize::try_from(count).ok()).unwrap_or(1))
}

fn mitigations() -> BTreeMap<String, String> {
    let folder = "/sys/devices/system/cpu/vulnerabilities";
    // Kernels before 4.15 do not tell.
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

/// The hypervisor's name where firmware tells it, or that there is one.
fn hypervisor(cpu_flags: Option<&str>) -> Option<String> {
    let flags = cpu_flags.unwrap_or_default();
    if !flags.split_whitespace().any(|flag| flag == "hypervisor") {
        return None;
    }
    let told = line("/sys/hypervisor/type").or_else(|| line("/sys/class/dmi/id/sys_vendor"));
    Some(told.unwrap_or_else(|| "of unknown kind".to_owned()))
}

/// The first line of a file, without white space around it; none where it is not there or empty.
fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_and_cpus() {
        let environment = Environment::read().unwrap();
        assert!(environment.kernel.starts_with("Linux "), "{}", environment.kernel);
        assert!(environment.cpus >= 1);
        assert!(environment.in_short().contains(&environment.kernel));
    }

    #[test]
    fn a_hypervisor_is_told_by_the_cpu() {
        assert_eq!(hypervisor(Some("fpu sse")), None);
        assert!(hypervisor(Some("fpu hypervisor sse")).is_some());
    }
}
