//! `tollgate doctor --on`: other hosts, their clocks and networks.

use super::Format;
use crate::console::{self, Exit, Failure, eprint_line};
use crate::signals;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::env::current_exe;
use std::fmt::Write as _;
use tollgate_cluster::carrier::Carrier;
use tollgate_cluster::describe::NetworkCard;
use tollgate_cluster::doctor::{self, Examined, Finding};
use tollgate_cluster::hosts::Hosts;
use tollgate_cluster::slurm::{self, NodeChoice};
use tollgate_cluster::staging::Binary;
use tollgate_runner::process::Interrupt;
use tollgate_stats::number::{counted, significant};

/// Width of a mark and the blanks after it.
const MARK: usize = 6;

/// Result as JSON.
#[derive(Serialize)]
struct HostsReport<'a> {
    hosts: &'a [Examined],
    findings: &'a [Finding],
}

pub(super) fn run(carrier: &Carrier, format: Format) -> Result<Exit, Failure> {
    let kill_now = || std::process::exit(Exit::Interrupted as i32);
    let interrupt = signals::interrupt(kill_now).context("cannot handle signals")?;
    let binary = Binary::read(&current_exe().context("cannot find the running program")?)?;
    let mut text = String::new();
    let count = match carrier {
        Carrier::Slurm { nodes: None } if !slurm::is_in_job() => {
            Some(list_nodes(&mut text, &interrupt)?)
        }
        _ => None,
    };
    // Others may take the nodes meanwhile.
    let choice = NodeChoice { is_immediate: true, ..NodeChoice::default() };
    let hosts = Hosts::take(carrier, count, &choice, &interrupt, &mut eprint_line)?;
    let mut agents = hosts.start_agents(&binary, &interrupt)?;
    let examined = doctor::examine(&mut agents, &interrupt)?;
    drop(agents);
    let findings = doctor::findings(&examined);
    if format == Format::Json {
        let report = HostsReport { hosts: &examined, findings: &findings };
        console::print(&(serde_json::to_string_pretty(&report)? + "\n"))?;
        return Ok(Exit::Success);
    }
    writeln!(text, "{} on {carrier}:", counted(examined.len(), "host"))?;
    for host in &examined {
        describe(&mut text, host)?;
    }
    for finding in &findings {
        writeln!(text, "poor  {}\n{:MARK$}-> {}", finding.found, "", finding.hint)?;
    }
    console::print(&text)?;
    Ok(Exit::Success)
}

/// Lists the nodes of Slurm, and returns the number of idle ones.
fn list_nodes(text: &mut String, interrupt: &Interrupt) -> Result<usize> {
    let nodes = slurm::list_nodes(interrupt)?;
    *text += "Nodes of Slurm:\n";
    for node in &nodes {
        let mark = if node.is_idle() { "ok" } else { "busy" };
        writeln!(text, "{mark:<MARK$}{}: {} {}", node.name, node.state, node.features)?;
    }
    text.push('\n');
    match nodes.iter().filter(|node| node.is_idle()).count() {
        0 => bail!(
            "no node of Slurm is idle; wait, choose another partition with SALLOC_PARTITION, or see `sinfo`"
        ),
        idle => Ok(idle),
    }
}

fn describe(text: &mut String, host: &Examined) -> Result<()> {
    let Examined { host, facts, clock, drift } = host;
    writeln!(text, "{:<MARK$}{host}: {}", "ok", facts.environment.in_short())?;
    let cpus = counted(facts.cpus.len(), "CPU");
    writeln!(text, "{:MARK$}tollgate {}, {cpus} available to the agent", "", facts.tollgate)?;
    for NetworkCard { name, addresses, speed_mbit_per_s, mtu_bytes, driver } in &facts.network_cards
    {
        let mut parts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        parts.extend(speed_mbit_per_s.map(|speed| format!("{speed} Mbit/s")));
        parts.extend(mtu_bytes.map(|mtu| format!("MTU {mtu}")));
        parts.push(driver.clone().unwrap_or_else(|| "virtual".to_owned()));
        writeln!(text, "{:MARK$}network card {name}: {}", "", parts.join(", "))?;
    }
    let ms = |ns: u64| significant(ns as f64 / 1e6);
    writeln!(
        text,
        "{:MARK$}clock {:+.6} s within {} ms; round trip {} ms, p50 {} ms; drift {:+.1} us in {:.1} s",
        "",
        clock.offset_ns as f64 / 1e9,
        ms(clock.error_ns()),
        ms(clock.round_trip_ns_min),
        ms(clock.round_trip_ns_p50),
        drift.change_ns as f64 / 1e3,
        drift.elapsed_ns as f64 / 1e9,
    )?;
    Ok(())
}
