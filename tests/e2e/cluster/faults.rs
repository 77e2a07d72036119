//! Agents, nodes, links, daemons and the coordinator fail during a load: it ends with the reason, and nothing stays on any
//! host.

use super::hosts::{Cluster, wait_for};
use super::{check_load, load, start_origin};
use crate::support::{Started, Workspace, show, stderr};
use nix::sys::signal::{Signal, kill};
use std::process::{Output, Stdio};
use std::time::Duration;

/// Hosts of a load from two generators.
const HOSTS: [&str; 3] = ["sut1", "gen1", "gen2"];

/// A load that would take ten minutes.
const LONG: [&str; 4] = ["-c", "2", "-d", "10m"];

/// Starts a load to `url` from both generators, and waits until gen1 sends.
fn start_load(cluster: &Cluster<'_>, url: &str, arguments: &[&str]) -> Started {
    let on = [url, "--on", "slurm:2", "--allow-host", "sut1"];
    let mut command = load(cluster, &[&on[..], arguments].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = Started::new(command.spawn().expect("nsenter"));
    assert!(wait_for(|| cluster.host("gen1").generates_load()), "no load");
    child
}

/// Loads with a fault, and returns the output.
fn load_with(fault: impl FnOnce(&Cluster<'_>)) -> Output {
    let workspace = Workspace::concurrent();
    let cluster = Cluster::start(&workspace, &HOSTS);
    let (origin, url) = start_origin(&cluster, "sut1");
    let child = start_load(&cluster, &url, &LONG);
    fault(&cluster);
    let output = child.wait_with_output().expect("an end");
    drop(origin);
    // Of Slurm: it waits for the controller while its host is cut off.
    cluster.assert_nothing_left_but("slurmstepd");
    output
}

/// Checks that gen1 was lost for this reason.
fn assert_lost(output: &Output, reason: &str) {
    assert_eq!(output.status.code(), Some(1), "{}", show(output));
    let expected = format!("lost gen1: {reason}");
    assert!(stderr(output).contains(&expected), "{}", show(output));
}

#[test]
fn killed_agent_ends_load() {
    let output = load_with(|cluster| cluster.host("gen1").signal_agent(Signal::SIGKILL));
    assert_lost(&output, "the agent ended");
}

/// Slurm notices the loss of its daemon after its time limit. Until then, agent and load go on.
#[test]
fn killed_slurmd_ends_load() {
    let output = load_with(|cluster| cluster.host("gen1").kill_daemon("slurmd"));
    assert_lost(&output, "");
}

#[test]
fn link_that_stays_down_ends_load() {
    let output = load_with(|cluster| cluster.set_link("gen1", "down"));
    assert_lost(&output, "no heartbeat for ");
}

/// Loads again after a host was lost and has come back: the next agent removes what a killed one has left.
fn load_after(fault: impl FnOnce(&Cluster<'_>), reason: &str) {
    let workspace = Workspace::concurrent();
    let cluster = Cluster::start(&workspace, &HOSTS);
    let (origin, url) = start_origin(&cluster, "sut1");
    let child = start_load(&cluster, &url, &LONG);
    fault(&cluster);
    assert_lost(&child.wait_with_output().expect("an end"), reason);
    let again = start_load(&cluster, &url, &["-c", "2", "-n", "4000", "--rate", "2000"]);
    check_load(&again.wait_with_output().expect("an end"), &["gen1", "gen2"], 4_000);
    drop(origin);
    cluster.assert_nothing_left();
}

#[test]
fn host_is_usable_after_its_link_was_down_for_five_seconds() {
    let fault = |cluster: &Cluster<'_>| {
        cluster.set_link("gen1", "down");
        std::thread::sleep(Duration::from_secs(5));
        cluster.set_link("gen1", "up");
    };
    load_after(fault, "no heartbeat for ");
}

/// Slurm kills agent and supervisor if they do not end in time.
#[test]
fn host_is_usable_after_its_agent_was_stopped() {
    let fault = |cluster: &Cluster<'_>| cluster.host("gen1").signal_agent(Signal::SIGSTOP);
    load_after(fault, "no heartbeat for ");
}

#[test]
fn node_is_usable_after_it_was_down() {
    // Its daemon registers again, which takes it back.
    load_after(|cluster| cluster.mark_down("gen1"), "");
}

#[test]
fn restarted_controller_does_not_disturb_load() {
    let workspace = Workspace::concurrent();
    let cluster = Cluster::start(&workspace, &HOSTS);
    let (origin, url) = start_origin(&cluster, "sut1");
    let child = start_load(&cluster, &url, &["-c", "2", "-n", "6000", "--rate", "2000"]);
    cluster.kill_controller();
    cluster.start_controller();
    check_load(&child.wait_with_output().expect("an end"), &["gen1", "gen2"], 6_000);
    drop(origin);
    cluster.assert_nothing_left();
}

#[test]
fn killed_coordinator_leaves_nothing() {
    let workspace = Workspace::concurrent();
    let cluster = Cluster::start(&workspace, &HOSTS);
    let (origin, url) = start_origin(&cluster, "sut1");
    let mut child = start_load(&cluster, &url, &LONG);
    kill(cluster.coordinator(&child), Signal::SIGKILL).expect("the coordinator runs");
    child.wait().expect("an end");
    drop(origin);
    cluster.assert_nothing_left();
}
