//! Checks if this machine can run experiments, and suggests improvements.

use crate::environment::{self, Counters, cpu_pressure};
use crate::process::Ports;
use crate::system::build;
use crate::system::go::{self, Release, ToolChain};
use std::time::Duration;
use tollgate_experiment::catalog::{Catalog, Kind};
use tollgate_experiment::recipe::Build;
use tollgate_net::available_cpus;
use tollgate_records::error::error_chain;
use tollgate_records::machine::{CpuLayout, Environment};
use tollgate_records::validity::Limits;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    pub state: State,
    pub found: String,
    /// Advice if the state is not good.
    pub hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Good,
    /// A run is possible, but its figures vary more, or some systems are skipped.
    Poor,
    /// A run is not possible.
    Impossible,
}

/// Runs all checks. Takes a second to count noise.
pub fn examine(catalog: &Catalog) -> Vec<Check> {
    let mut checks = vec![cpus()];
    match environment::read() {
        Ok(environment) => {
            checks.extend([
                open_files(environment.open_files),
                listen_queue(environment.somaxconn.as_deref()),
                local_ports(environment.port_range.as_deref()),
            ]);
            checks.extend(hardware_checks(&environment));
        }
        Err(error) => checks.push(impossible("machine", error_chain(&error), "run it on Linux")),
    }
    checks.push(loopback());
    checks.extend(noise_checks());
    checks.extend(build_checks(catalog));
    checks
}

fn cpus() -> Check {
    let name = "CPUs";
    let available = match available_cpus() {
        Ok(available) => available,
        Err(error) => return impossible(name, error_chain(&error), "run it on Linux"),
    };
    let shared_cores = environment::shared_cores().unwrap_or_default();
    match CpuLayout::choose(None, &available, &shared_cores) {
        Ok(layout) => {
            let found = format!(
                "{} available; generator and origin use CPU {:?}, the system CPU {:?}",
                available.len(),
                layout.generator[0],
                layout.system[0]
            );
            match layout.core_shared_with_system(&shared_cores) {
                Some(_) => poor(
                    name,
                    format!(
                        "{found}, a hardware thread of the same core, so that each slows the other"
                    ),
                    "compare ratios only; allow a CPU of another core",
                ),
                None => good(name, found),
            }
        }
        Err(error) => {
            impossible(name, error.to_string(), "give the machine or container a second CPU")
        }
    }
}

/// The experiments of the catalog open up to 128 connections on both sides of a proxy.
const MIN_FILES: u64 = 512;
/// For a load of about 1,700 connections.
const ENOUGH_FILES: u64 = 4096;

/// The soft limit is raised to the hard limit before a run. A proxy needs two files per connection and some others,
/// as its recipe assumes.
fn open_files((soft, hard): (u64, u64)) -> Check {
    let name = "open files";
    let connections = hard.saturating_sub(512) / 2;
    let found = format!(
        "limit {soft}, at most {hard}: enough for {connections} connections of a proxy; needed: {ENOUGH_FILES}"
    );
    let hint = "ulimit -Hn 65536, as root, in the shell that starts tollgate";
    match hard {
        0..MIN_FILES => impossible(name, found, hint),
        MIN_FILES..ENOUGH_FILES => poor(name, found, hint),
        _ => good(name, found),
    }
}

/// Backlog in the recipes of nginx, by default.
const BACKLOG: u64 = 4096;

/// The kernel limits the backlog of all listeners.
fn listen_queue(somaxconn: Option<&str>) -> Check {
    let name = "listen queue";
    let hint = format!("sysctl -w net.core.somaxconn={BACKLOG}, as root");
    match somaxconn.map(str::parse::<u64>) {
        Some(Ok(max)) => {
            let found = format!("net.core.somaxconn is {max}; needed by nginx: {BACKLOG}");
            if max < BACKLOG { poor(name, found, &hint) } else { good(name, found) }
        }
        Some(Err(_)) | None => poor(name, "net.core.somaxconn is unknown".to_owned(), &hint),
    }
}

/// For 10,000 connections to one server, and the same number in TIME-WAIT if the client closes first.
const ENOUGH_PORTS: u64 = 20_000;

fn local_ports(range: Option<&str>) -> Check {
    let name = "local ports";
    let hint = "sysctl -w net.ipv4.ip_local_port_range=\"15000 60999\", as root";
    let ends = range.map(|range| range.split_whitespace().map(str::parse::<u64>));
    let ends: Option<Vec<u64>> = ends.and_then(|ends| ends.collect::<Result<_, _>>().ok());
    match ends.as_deref() {
        Some(&[first, last]) if first <= last => {
            let count = last - first + 1;
            let found = format!(
                "{count}, from {first} to {last}; needed for 10,000 connections: {ENOUGH_PORTS}"
            );
            if count < ENOUGH_PORTS { poor(name, found, hint) } else { good(name, found) }
        }
        _ => poor(name, "net.ipv4.ip_local_port_range is unknown".to_owned(), hint),
    }
}

fn hardware_checks(environment: &Environment) -> [Check; 3] {
    let clock = environment.clock_source.clone().unwrap_or_else(|| "unknown".to_owned());
    let clock = match clock.as_str() {
        "tsc" | "kvm-clock" | "arch_sys_counter" => good("clock", clock),
        _ => poor("clock", clock, "boot with clocksource=tsc: reading this clock is a system call"),
    };
    let hypervisor = match &environment.hypervisor {
        Some(hypervisor) => poor(
            "hypervisor",
            hypervisor.clone(),
            "compare ratios only; other tenants disturb: bare metal is quieter",
        ),
        None => good("hypervisor", "none".to_owned()),
    };
    let governor = match environment.governor.as_deref() {
        None => good("governor", "none: the machine does not offer a choice".to_owned()),
        Some("performance") => good("governor", "performance".to_owned()),
        Some(other) => {
            poor("governor", other.to_owned(), "cpupower frequency-set -g performance, as root")
        }
    };
    [clock, hypervisor, governor]
}

fn loopback() -> Check {
    match Ports::default().free() {
        Ok(address) => good("loopback", format!("a server can listen on {}", address.ip())),
        Err(error) => impossible("loopback", error_chain(&error), "ip link set lo up, as root"),
    }
}

const NOISE_WINDOW: Duration = Duration::from_secs(1);
const MAX_PRESSURE_PERCENT: f64 = 10.0;
const MAX_BACKGROUND_CPU_PERCENT: f64 = 5.0;

fn noise_checks() -> Vec<Check> {
    let noise = available_cpus().map_err(|error| error_chain(&error)).and_then(|cpus| {
        let before = Counters::read(&cpus).map_err(|error| error_chain(&error))?;
        std::thread::sleep(NOISE_WINDOW);
        let after = Counters::read(&cpus).map_err(|error| error_chain(&error))?;
        Ok(before.until(&after, NOISE_WINDOW, cpus.len(), Duration::ZERO))
    });
    let noise = match noise {
        Ok(noise) => noise,
        Err(reason) => return vec![impossible("noise", reason, "mount /proc")],
    };
    let steal = format!("{:.1} % of the last second", noise.steal_percent);
    let steal = if noise.steal_percent > Limits::default().steal.in_percent() {
        poor(
            "steal",
            steal,
            "wait, or use a machine with dedicated CPUs: trials with so much steal are invalid",
        )
    } else {
        good("steal", steal)
    };
    let background = format!("{:.1} % of the last second", noise.background_cpu_percent);
    let background = if noise.background_cpu_percent > MAX_BACKGROUND_CPU_PERCENT {
        poor("other processes", background, "stop other processes: they use the same CPUs")
    } else {
        good("other processes", background)
    };
    let name = "CPU pressure";
    let pressure = match cpu_pressure() {
        Ok(Some(pressure)) => {
            let average = f64::from(pressure.some.avg10);
            let found = format!("{average:.1} % of the last ten seconds");
            if average > MAX_PRESSURE_PERCENT {
                poor(name, found, "wait until other processes have ended")
            } else {
                good(name, found)
            }
        }
        Ok(None) => poor(name, "not counted by the kernel".to_owned(), "boot with psi=1"),
        Err(error) => poor(name, error_chain(&error), "make /proc/pressure readable"),
    };
    vec![steal, background, pressure]
}

/// Returns one check of the tool chain, and one for each invalid build file.
fn build_checks(catalog: &Catalog) -> Vec<Check> {
    let all = catalog.names(Kind::Build).into_iter().map(|name| catalog.build(&name));
    let (valid, invalid): (Vec<_>, Vec<_>) = all.partition(Result::is_ok);
    let valid: Vec<Build> = valid.into_iter().flatten().collect();
    let needed = valid.iter().filter_map(go::needed).max();
    let all_built = valid.iter().all(|build| build::find(build).is_some());
    let invalid = invalid.into_iter().filter_map(Result::err);
    let hint = "correct this file; until then, systems that need it are skipped";
    let invalid = invalid.map(|error| poor(BUILDS, format!("{error:#}"), hint));
    [tool_chain_check(go::installed(), needed, all_built)].into_iter().chain(invalid).collect()
}

const BUILDS: &str = "builds";

fn tool_chain_check(
    installed: Result<&ToolChain, String>,
    needed: Option<Release>,
    all_built: bool,
) -> Check {
    match installed.and_then(|go| go.check(needed).map(|()| go)) {
        Ok(go) => {
            let needs = needed.map_or_else(String::new, |needed| format!("; needed: {needed}"));
            let fetch = if go.must_fetch(needed) { ", which it has to fetch" } else { "" };
            good(BUILDS, format!("{go}{needs}{fetch}"))
        }
        Err(reason) if all_built => good(BUILDS, format!("{reason}; everything is already built")),
        Err(reason) => poor(BUILDS, reason, &go::hint(needed)),
    }
}

fn good(name: &'static str, found: String) -> Check {
    Check { name, state: State::Good, found, hint: None }
}

fn poor(name: &'static str, found: String, hint: &str) -> Check {
    Check { name, state: State::Poor, found, hint: Some(hint.to_owned()) }
}

fn impossible(name: &'static str, found: String, hint: &str) -> Check {
    Check { state: State::Impossible, ..poor(name, found, hint) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_value_need_and_hint() {
        for (hard, state) in [
            (511, State::Impossible),
            (512, State::Poor),
            (4_095, State::Poor),
            (4_096, State::Good),
        ] {
            assert_eq!(open_files((256, hard)).state, state, "{hard}");
        }
        let enough = open_files((1024, 20_000));
        assert!(
            enough.found.contains("enough for 9744 connections of a proxy"),
            "{}",
            enough.found
        );
        let short = listen_queue(Some("128"));
        assert_eq!(short.state, State::Poor);
        assert_eq!(short.found, "net.core.somaxconn is 128; needed by nginx: 4096");
        assert_eq!(short.hint.as_deref(), Some("sysctl -w net.core.somaxconn=4096, as root"));
        assert_eq!(listen_queue(Some("4096")).state, State::Good);
        assert_eq!(listen_queue(None).state, State::Poor);
        assert_eq!(listen_queue(Some("many")).state, State::Poor);
    }

    #[test]
    fn port_range_includes_both_ends() {
        let default = local_ports(Some("32768 60999"));
        assert_eq!(default.state, State::Good);
        assert!(default.found.starts_with("28232, from 32768 to 60999;"), "{}", default.found);
        assert_eq!(local_ports(Some("40000\t59998")).state, State::Poor);
        assert_eq!(local_ports(Some("40000 59999")).state, State::Good);
        for invalid in [None, Some(""), Some("1"), Some("2 1"), Some("a b"), Some("1 2 3")] {
            let check = local_ports(invalid);
            assert_eq!(check.found, "net.ipv4.ip_local_port_range is unknown", "{invalid:?}");
        }
    }

    #[test]
    fn missing_or_old_go_is_poor_unless_everything_is_built() {
        let tool_chain = |version: &str, switching: &str| {
            let settings = format!(r#"{{"GOTOOLCHAIN": "{switching}"}}"#);
            ToolChain::of(&format!("go version go{version} linux/amd64"), &settings).unwrap()
        };
        let needed = Release::parse("1.25");
        let old = tool_chain_check(Ok(&tool_chain("1.19.8", "")), needed, false);
        assert_eq!(old.state, State::Poor);
        assert_eq!(old.found, "Go 1.19.8 is installed; Go 1.25 or newer is needed");
        assert_eq!(
            old.hint.as_deref(),
            Some("install Go 1.25 or newer and put it first on the PATH")
        );
        let missing = tool_chain_check(Err(go::NOT_INSTALLED.to_owned()), needed, false);
        assert_eq!((missing.state, missing.found.as_str()), (State::Poor, "Go is not installed"));
        let built = tool_chain_check(Err(go::NOT_INSTALLED.to_owned()), needed, true);
        assert_eq!(built.state, State::Good);
        assert_eq!(built.found, "Go is not installed; everything is already built");
        let found = |go: &ToolChain| tool_chain_check(Ok(go), needed, false).found;
        assert_eq!(found(&tool_chain("1.26.8", "local")), "Go 1.26.8; needed: 1.25");
        assert_eq!(
            found(&tool_chain("1.22", "auto")),
            "Go 1.22; needed: 1.25, which it has to fetch"
        );
    }
}
