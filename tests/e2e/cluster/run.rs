//! `tollgate run --on slurm`: the same verdicts as on one machine, and faults of hosts, links, agents, daemons and the
//! coordinator. No finished trial is lost or repeated, nothing stays on any host, and the reason is on record.

use super::hosts::{Cluster, Host, children, wait_for};
use crate::support::{Experiment, Started, Workspace, show};
use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Output;
use std::time::Duration;

/// Hosts of a run with two generators, and one to spare.
const HOSTS: [&str; 5] = ["sut1", "origin1", "gen1", "gen2", "gen3"];

const RUN: [&str; 8] = ["run", "two.toml", "--on", "slurm", "--generators", "2", "--out", "out"];

/// Subjects of the experiment, which are in each block once.
const SUBJECTS: usize = 2;

/// Writes an experiment of short and light trials to `two.toml`. Its systems need no origin, whose start takes seconds of
/// CPU time.
pub(super) fn write_experiment(workspace: &Workspace, blocks: u32) {
    let experiment = Experiment {
        title: "Do both subjects work?",
        load: r#"connections = 2, rate = 500, duration = "700ms", warmup = "50ms""#,
        subjects: &[
            ("burn-0", "nginx-known-cost", ""),
            ("burn-100", "nginx-known-cost", "burn_us = 100"),
        ],
        blocks,
    };
    workspace.write("two.toml", &experiment.text());
}

/// A planted cost of a millisecond for each request.
#[test]
fn verdict_is_that_of_one_machine() {
    let workspace = Workspace::long();
    let experiment = Experiment {
        title: "Is a millisecond found?",
        // Long beside the errors of the clocks of a busy machine.
        load: r#"connections = 2, rate = 200, duration = "900ms", warmup = "50ms""#,
        subjects: &[
            ("burn-0", "nginx-known-cost", ""),
            ("burn-1000", "nginx-known-cost", "burn_us = 1000"),
        ],
        blocks: 6,
    };
    workspace.write("known.toml", &experiment.text());
    let run = ["run", "known.toml", "--seed", "3", "--out"];
    let alone = workspace.run(&[&run[..], &["alone"]].concat());
    assert_eq!(alone.status.code(), Some(0), "{}", show(&alone));
    let cluster = Cluster::start(&workspace, &["sut1", "origin1", "gen1", "gen2"]);
    let on = ["hosts", "--on", "slurm", "--generators", "2"];
    let mut on_hosts = cluster.run(&[&run[..], &on].concat());
    // Heartbeats of a busy machine may be late.
    for _ in 0..3 {
        if on_hosts.status.code() == Some(1) && show(&on_hosts).contains(": no heartbeat for ") {
            on_hosts = cluster.run(&["run", "--resume", "hosts"]);
        }
    }
    assert_eq!(on_hosts.status.code(), Some(0), "{}", show(&on_hosts));
    cluster.assert_nothing_left();
    for out in ["alone", "hosts"] {
        let report = workspace.json(&format!("{out}/report.json"));
        // Other figures depend on the other load of this machine.
        let price = &report["cases"][0]["subjects"][1]["prices"]["cpu_us_per_request"];
        assert_eq!(price["verdict"], "costs-more", "{out}: {price:#}");
    }
    let compared = workspace.run(&["compare", "alone", "hosts"]);
    assert_eq!(compared.status.code(), Some(2), "{}", show(&compared));
    let across = workspace.run(&["compare", "alone", "hosts", "--across-layouts"]);
    assert_eq!(across.status.code(), Some(0), "{}", show(&across));
}

/// Returns case, subject, block and attempt of each record, in order.
fn keys(workspace: &Workspace) -> Vec<String> {
    let key = |record: &Value| {
        ["case", "subject", "block", "attempt"].map(|part| record[part].to_string()).join(" ")
    };
    workspace.records().iter().map(key).collect()
}

/// A run in progress.
struct Run<'a> {
    workspace: &'a Workspace,
    cluster: &'a Cluster<'a>,
    child: Started,
    blocks: u32,
}

impl<'a> Run<'a> {
    fn start(workspace: &'a Workspace, cluster: &'a Cluster<'a>, blocks: u32) -> Self {
        write_experiment(workspace, blocks);
        Self { workspace, cluster, child: cluster.spawn(&RUN), blocks }
    }

    fn wait(&mut self, what: &str, mut happens: impl FnMut() -> bool) {
        let mut has_happened = false;
        let child = &mut self.child;
        wait_for(|| {
            has_happened = happens();
            has_happened || child.try_wait().is_ok_and(|end| end.is_some())
        });
        assert!(has_happened, "no {what}: {:#?}", self.workspace.records());
    }

    fn wait_for_trial(&mut self) {
        let (workspace, before) = (self.workspace, self.workspace.trials());
        self.wait("further trial", || workspace.trials() > before);
    }

    /// Waits until a further trial is recorded, and the load of the next one has begun.
    fn wait_for_load(&mut self) {
        self.wait_for_trial();
        let nodes = self.cluster.nodes();
        self.wait("load", || nodes.iter().any(Host::generates_load));
    }

    /// Waits until a trial is recorded that failed for this reason.
    fn wait_for_loss(&mut self, reason: &str) {
        while !losses(&self.workspace.records()).iter().any(|loss| loss.starts_with(reason)) {
            self.wait_for_trial();
        }
    }
}

/// Checks that a run is complete, that it kept these records, and that each trial counts once.
fn check(workspace: &Workspace, blocks: u32, before: &[String], output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", show(output));
    let after = keys(workspace);
    assert!(after.starts_with(before), "{after:?} after {before:?}: {}", show(output));
    let records = workspace.records();
    let is_valid = |record: &&Value| {
        record["outcome"]["measured"]["invalid"].as_array().is_some_and(Vec::is_empty)
    };
    let key = |record: &Value| format!("{} {}", record["subject"], record["block"]);
    let valid: Vec<String> = records.iter().filter(is_valid).map(key).collect();
    let distinct: BTreeSet<&String> = valid.iter().collect();
    assert_eq!(valid.len(), distinct.len(), "{valid:?}");
    assert!(valid.len() >= SUBJECTS * blocks as usize, "{valid:?}: {}", show(output));
}

/// Reasons of the trials that failed because of a host.
fn losses(records: &[Value]) -> Vec<String> {
    let failures = records.iter().map(|record| &record["outcome"]["failed"]);
    let of_hosts = failures.filter(|failure| failure["step"] == "host");
    of_hosts.map(|failure| failure["reason"].as_str().expect("a reason").to_owned()).collect()
}

/// Checks that trials failed because of these hosts, and because of no other ones but by late heartbeats of a busy machine.
fn check_losses(workspace: &Workspace, expected: &[&str]) {
    let losses = losses(&workspace.records());
    for loss in expected {
        assert!(losses.iter().any(|other| other.starts_with(loss)), "no {loss:?}: {losses:?}");
    }
    let is_known = |loss: &String| {
        loss.contains(": no heartbeat for ") || expected.iter().any(|other| loss.starts_with(other))
    };
    assert!(losses.iter().all(is_known), "{losses:?}");
}

/// An agent is killed, one is stopped, and a link is down for five seconds.
#[test]
fn faults_of_agents_and_links_lose_no_trial() {
    let workspace = &Workspace::long_quiet();
    let cluster = Cluster::start(workspace, &HOSTS);
    let mut run = Run::start(workspace, &cluster, 5);
    run.wait_for_load();
    cluster.host("gen1").signal_agent(Signal::SIGKILL);
    run.wait_for_loss("lost gen1: the agent ended");
    run.wait_for_load();
    cluster.host("sut1").signal_agent(Signal::SIGSTOP);
    run.wait_for_loss("lost sut1: no heartbeat for ");
    run.wait_for_load();
    cluster.set_link("origin1", "down");
    run.wait_for_loss("lost origin1: no heartbeat for ");
    std::thread::sleep(Duration::from_secs(5));
    cluster.set_link("origin1", "up");
    let before = keys(workspace);
    let output = run.child.wait_with_output().expect("an end");
    check(workspace, run.blocks, &before, &output);
    check_losses(workspace, &["lost gen1: ", "lost sut1: ", "lost origin1: "]);
    cluster.assert_nothing_left();
}

/// The controller is restarted, a link stays down, a slurmd is killed, and at last the coordinator.
#[test]
fn faults_of_slurm_and_coordinator_lose_no_trial() {
    let workspace = &Workspace::long_quiet();
    let cluster = Cluster::start(workspace, &[&HOSTS[..], &["gen4"]].concat());
    let mut run = Run::start(workspace, &cluster, 4);
    run.wait_for_load();
    cluster.kill_controller();
    run.wait_for_trial();
    cluster.start_controller();
    run.wait_for_load();
    check_losses(workspace, &[]);
    cluster.set_link("gen2", "down");
    run.wait_for_loss("lost gen2: no heartbeat for ");
    run.wait_for_load();
    let last = workspace.records().pop().expect("a record");
    let generators = &last["outcome"]["measured"]["hosts"]["generators"];
    let names = [0, 1].map(|index| generators[index]["host"].as_str().expect("a generator"));
    assert!(!names.contains(&"gen2"), "{last:#}");
    // The agent there goes on until Slurm notices it.
    cluster.host(names[0]).kill_daemon("slurmd");
    let supervisor = cluster.coordinator(&run.child);
    for pid in children(supervisor).into_iter().chain([supervisor]) {
        // The supervisor may have noticed the end of its child.
        kill(pid, Signal::SIGKILL).ok();
    }
    run.child.wait().expect("an end");
    let before = keys(workspace);
    // `slurmstepd` waits for the controller while its host is cut off.
    cluster.assert_nothing_left_but("slurmstepd");
    let down = || cluster.slurm("sinfo", &["--noheader", "--Node", "--states=down", "--format=%N"]);
    let is_noticed = || ["gen2", names[0]].iter().all(|name| down().contains(name));
    assert!(wait_for(is_noticed), "{}", down());
    let output = cluster.run(&["run", "--resume", "out"]);
    check(workspace, run.blocks, &before, &output);
    check_losses(workspace, &["lost gen2: "]);
    cluster.assert_nothing_left_but("slurmstepd");
}
