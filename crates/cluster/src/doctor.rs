//! Examination of hosts: clocks, round trips, network cards, and what differs between them.

use crate::clock::{ClockOffset, Drift};
use crate::connection::{Agent, AgentError};
use crate::describe::HostFacts;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tollgate_runner::process::Interrupt;

/// One host, examined.
#[derive(Debug, Clone, Serialize)]
pub struct Examined {
    #[serde(rename = "name")]
    pub host: String,
    #[serde(flatten)]
    pub facts: HostFacts,
    pub clock: ClockOffset,
    /// Change of the clock during the examination.
    pub drift: Drift,
}

/// A difference between hosts, or a poor property of one, that affects measurements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub found: String,
    pub hint: &'static str,
}

/// Time between the two estimates of each clock.
const DRIFT_INTERVAL: Duration = Duration::from_secs(1);

/// Round trip above which hosts are far from each other: another building, or a loaded network.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(2);

/// Drift of a crystal in parts per million, above which a clock is being adjusted.
const DRIFT_PPM_MAX: f64 = 200.0;

/// Examines the hosts of agents.
pub fn examine(agents: &mut [Agent], interrupt: &Interrupt) -> Result<Vec<Examined>, AgentError> {
    let mut examined = Vec::new();
    for agent in &mut *agents {
        let clock = agent.clock_offset(interrupt)?;
        let facts = agent.describe(interrupt)?;
        let drift = clock.drift(&clock);
        examined.push(Examined { host: agent.host().to_owned(), facts, clock, drift });
    }
    interrupt.sleep(DRIFT_INTERVAL)?;
    for (agent, examined) in agents.iter_mut().zip(&mut examined) {
        examined.drift = examined.clock.drift(&agent.clock_offset(interrupt)?);
    }
    Ok(examined)
}

/// Returns what is to be known before a measurement on these hosts.
pub fn findings(hosts: &[Examined]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut compare = |what: &str, hint, value: &dyn Fn(&Examined) -> String| {
        let mut by_value: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for host in hosts {
            by_value.entry(value(host)).or_default().push(&host.host);
        }
        if by_value.len() > 1 {
            let parts =
                by_value.iter().map(|(value, names)| format!("{}: {value}", names.join(", ")));
            let found = format!("{what} differ: {}", parts.collect::<Vec<_>>().join("; "));
            findings.push(Finding { found, hint });
        }
    };
    compare("versions of tollgate", "remove older programs from the staging folder", &|host| {
        host.facts.tollgate.clone()
    });
    compare("CPU models", "compare runs only if each role has the same model", &|host| {
        let environment = &host.facts.environment;
        environment.cpu_model.clone().unwrap_or_else(|| "unknown".to_owned())
    });
    compare("kernels", "boot the same kernel on all hosts of a role", &|host| {
        host.facts.environment.kernel.clone()
    });
    for Examined { host, facts, clock, drift } in hosts {
        let mut poor = |found: String, hint| findings.push(Finding { found, hint });
        if Duration::from_nanos(clock.round_trip_ns_p50) > ROUND_TRIP_MAX {
            let ms = clock.round_trip_ns_p50 as f64 / 1e6;
            poor(
                format!("{host}: a round trip takes {ms:.1} ms"),
                "start the coordinator in the network of the hosts",
            );
        }
        // Only a change beyond the error of its measurement is one.
        let change_ns = drift.change_ns.unsigned_abs().saturating_sub(drift.error_ns);
        let ppm = change_ns as f64 / drift.elapsed_ns.max(1) as f64 * 1e6;
        if ppm > DRIFT_PPM_MAX {
            poor(
                format!("{host}: its clock drifts by {ppm:.0} ppm"),
                "look at its clock source, and wait until its time is synchronised",
            );
        }
        if facts.address().is_none() {
            poor(
                format!("{host}: no network card with an address"),
                "only servers on the same host can be loaded from there",
            );
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, change: impl Fn(&mut Examined)) -> Examined {
        let clock = ClockOffset {
            offset_ns: 7,
            round_trip_ns_min: 40_000,
            round_trip_ns_p50: 60_000,
            at_ns: 0,
        };
        let later = ClockOffset { at_ns: 1_000_000_000, ..clock };
        let mut facts = HostFacts::read().unwrap();
        facts.network_cards = vec![crate::describe::NetworkCard {
            name: "eth0".to_owned(),
            addresses: vec!["10.0.0.1".parse().unwrap()],
            speed_mbit_per_s: Some(10_000),
            mtu_bytes: Some(1500),
            driver: None,
        }];
        let drift = clock.drift(&later);
        let mut host = Examined { host: name.to_owned(), facts, clock, drift };
        change(&mut host);
        host
    }

    #[test]
    fn equal_hosts_have_no_findings() {
        assert_eq!(findings(&[host("a", |_| {}), host("b", |_| {})]), []);
        assert_eq!(findings(&[]), []);
    }

    #[test]
    fn differences_name_the_hosts() {
        let model = |name: &'static str| {
            move |host: &mut Examined| {
                host.facts.environment.cpu_model = Some(name.to_owned());
            }
        };
        let hosts = [host("a", model("X")), host("b", model("Y")), host("c", model("X"))];
        let findings = findings(&hosts);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].found, "CPU models differ: a, c: X; b: Y");
    }

    #[test]
    fn slow_networks_and_drifting_clocks_are_found() {
        let far = host("far", |host| host.clock.round_trip_ns_p50 = 2_500_000);
        // 400 us in a second, of which 40 us may be the error.
        let drifting = host("odd", |host| host.drift.change_ns = -400_000);
        let still = host("still", |host| host.drift.change_ns = 200_000);
        let found: Vec<String> =
            findings(&[far, drifting, still]).into_iter().map(|one| one.found).collect();
        assert_eq!(found, ["far: a round trip takes 2.5 ms", "odd: its clock drifts by 360 ppm"]);
    }
}
