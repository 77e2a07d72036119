//! Whether this machine can run experiments, and what would make their figures better.

mod builds;
mod limits;
pub mod noise;

use crate::causes::in_full;
use crate::environment::Environment;
use crate::inputs::catalog::Catalog;
use crate::layout::{Layout, available_cpus};
use crate::noise::{Counters, cpu_pressure};
use crate::process::ports::Ports;
use crate::trial::validity::Limits;
use std::time::Duration;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it stands.
    pub state: State,
    /// What was found.
    pub found: String,
    /// How to mend it, where it could be better.
    pub mend: Option<String>,
}

/// How a thing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// As it should be.
    Good,
    /// A run is possible, and is worth less: its figures vary more, or some systems are left out.
    Poor,
    /// A run is not possible.
    Impossible,
}

/// Looks at the machine, and at what makes the builds. Takes a second, over which noise is counted.
pub fn examine(catalog: &Catalog) -> Vec<Check> {
    let mut checks = vec![cpus()];
    match Environment::read() {
        Ok(environment) => checks.extend(environment_checks(&environment)),
        Err(error) => checks.push(bad("machine", in_full(&error), "run it on Linux")),
    }
    checks.push(loopback());
    checks.extend(noise_checks());
    checks.extend(builds::checks(catalog));
    checks
}

/// How long noise is counted for.
const WATCH: Duration = Duration::from_secs(1);
const CALM_PRESSURE_PERCENT: f64 = 10.0;
const CALM_BUSY_PERCENT: f64 = 5.0;

fn cpus() -> Check {
    let available = match available_cpus() {
        Ok(available) => available,
        Err(error) => return bad("CPUs", in_full(&error), "run it on Linux"),
    };
    match Layout::choose(None, &available) {
        Ok(layout) => good(
            "CPUs",
            format!(
                "{} to run on; generator and origin get CPU {:?}, the system CPU {:?}",
                available.len(),
                layout.generator[0],
                layout.system[0]
            ),
        ),
        Err(error) => bad("CPUs", in_full(&error), "give the machine or container a second CPU"),
    }
}

fn environment_checks(environment: &Environment) -> Vec<Check> {
    let clock = environment.clock_source.clone().unwrap_or_else(|| "unknown".to_owned());
    let clock = match clock.as_str() {
        "tsc" | "kvm-clock" | "arch_sys_counter" => good("clock", clock),
        _ => poor("clock", clock, "boot with clocksource=tsc: reading this clock is a system call"),
    };
    let host = match &environment.hypervisor {
        Some(hypervisor) => poor(
            "hypervisor",
            hypervisor.clone(),
            "compare ratios only, and expect other tenants: bare metal is quieter",
        ),
        None => good("hypervisor", "none".to_owned()),
    };
    let governor = match environment.governor.as_deref() {
        None => good(
            "governor",
            "none: the machine does not let the CPU's frequency be chosen".to_owned(),
        ),
        Some("performance") => good("governor", "performance".to_owned()),
        Some(other) => {
            poor("governor", other.to_owned(), "cpupower frequency-set -g performance, as root")
        }
    };
    let mut checks = limits::checks(environment);
    checks.extend([clock, host, governor]);
    checks
}

fn loopback() -> Check {
    match Ports::default().free() {
        Ok(address) => good("loopback", format!("a server can listen on {}", address.ip())),
        Err(error) => bad("loopback", in_full(&error), "ip link set lo up, as root"),
    }
}

fn noise_checks() -> Vec<Check> {
    let watched = available_cpus().map_err(|error| in_full(&error)).and_then(|cpus| {
        let before = Counters::read(&cpus).map_err(|error| in_full(&error))?;
        std::thread::sleep(WATCH);
        let after = Counters::read(&cpus).map_err(|error| in_full(&error))?;
        Ok(before.until(&after, WATCH, cpus.len(), Duration::ZERO))
    });
    let noise = match watched {
        Ok(noise) => noise,
        Err(reason) => return vec![bad("noise", reason, "mount /proc")],
    };
    let steal = format!("{:.1} % of the last second", noise.steal_percent);
    let steal = match noise.steal_percent > Limits::default().steal.in_percent() {
        true => poor(
            "steal",
            steal,
            "wait, or use a machine with CPUs of its own: such trials do not count",
        ),
        false => good("steal", steal),
    };
    let busy = format!("{:.1} % of the last second", noise.foreign_cpu_percent);
    let busy = match noise.foreign_cpu_percent > CALM_BUSY_PERCENT {
        true => poor(
            "other work",
            busy,
            "stop what else runs here: it takes the CPUs that are measured",
        ),
        false => good("other work", busy),
    };
    let pressure = match cpu_pressure() {
        Ok(Some(pressure)) => {
            let average = f64::from(pressure.some.avg10);
            let found = format!("{average:.1} % of the last ten seconds");
            match average > CALM_PRESSURE_PERCENT {
                true => poor("CPU pressure", found, "wait until what else runs here has ended"),
                false => good("CPU pressure", found),
            }
        }
        Ok(None) => poor("CPU pressure", "not counted".to_owned(), "boot with psi=1"),
        Err(error) => poor("CPU pressure", in_full(&error), "make /proc/pressure readable"),
    };
    vec![steal, busy, pressure]
}

fn good(name: &'static str, found: String) -> Check {
    Check { name, state: State::Good, found, mend: None }
}

fn poor(name: &'static str, found: String, mend: &str) -> Check {
    Check { name, state: State::Poor, found, mend: Some(mend.to_owned()) }
}

fn bad(name: &'static str, found: String, mend: &str) -> Check {
    Check { state: State::Impossible, ..poor(name, found, mend) }
}
