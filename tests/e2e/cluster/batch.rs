//! `tollgate batch run --on slurm`.

use super::hosts::{Cluster, children, wait_for};
use crate::batch::repository;
use crate::support::{Workspace, show, stderr};
use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use std::fs;
use std::process::Output;

const RUN: [&str; 8] =
    ["batch", "run", "revisions.toml", "--on", "slurm", "--nodes", "2", "--seed=7"];

/// Waits until both nodes measure a round.
fn wait_for_rounds(cluster: &Cluster<'_>) {
    let measures = |name: &str| {
        let processes = cluster.host(name).processes();
        processes.iter().any(|process| {
            process.cmdline().is_ok_and(|line| line.get(1).is_some_and(|word| word == "run"))
        })
    };
    assert!(wait_for(|| measures("gen1") && measures("gen2")), "no rounds");
}

/// Numbers of the rounds that have started and of those that have ended.
fn rounds(workspace: &Workspace) -> (Vec<u64>, Vec<u64>) {
    let text = workspace.read("batch/rounds.ndjson");
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let numbers = |kind: &str| {
        let mut numbers: Vec<u64> =
            lines.iter().filter_map(|line| line[kind]["round"].as_u64()).collect();
        numbers.sort_unstable();
        numbers
    };
    (numbers("started"), numbers("ended"))
}

fn is_success(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", show(output));
}

/// The coordinator is killed, and in the next command a node fails.
#[test]
fn rounds_end_once_after_kill_and_lost_node() {
    let workspace = Workspace::long_quiet();
    let workspace = repository(workspace, &["60000", "400000", "1200000"]);
    let settings = workspace.read("revisions.toml") + "\nproducts_per_round = 1\n";
    fs::write(workspace.path("revisions.toml"), settings).expect("a file");
    let cluster = Cluster::start(&workspace, &["gen1", "gen2"]);

    let mut child = cluster.spawn(&RUN);
    wait_for_rounds(&cluster);
    let supervisor = cluster.coordinator(&child);
    let worker = children(supervisor)[0];
    for pid in [supervisor, worker] {
        kill(pid, Signal::SIGKILL).expect("it runs");
    }
    child.wait().expect("an end");
    cluster.assert_nothing_left();
    let (started, ended) = rounds(&workspace);
    assert_eq!((started, ended), (vec![1, 2, 3], vec![]));

    let child = cluster.spawn(&RUN);
    wait_for_rounds(&cluster);
    cluster.mark_down("gen1");
    let output = child.wait_with_output().expect("an end");
    is_success(&output);
    assert!(stderr(&output).contains("failed on gen1: lost gen1: "), "{}", show(&output));
    let (started, ended) = rounds(&workspace);
    assert_eq!(started, ended, "{}", show(&output));
    let stats = cluster.run(&["batch", "stats", "--format", "json"]);
    is_success(&stats);
    let stats: Value = serde_json::from_slice(&stats.stdout).expect("JSON");
    for revision in stats["revisions"].as_array().expect("revisions") {
        // A round with too few valid blocks, as on a busy machine, is followed by another one.
        let blocks = revision["n"].as_u64().expect("a number");
        let rounds = revision["rounds"].as_array().expect("rounds").len() as u64;
        let is_once = if rounds == 1 { blocks == 6 } else { (6..6 * rounds).contains(&blocks) };
        assert!(revision["state"] == "done" && is_once, "{stats:#}");
    }
    // Slurm has killed the agent with its node. The next agent removes its folder.
    cluster.slurm("scontrol", &["update", "nodename=gen1", "state=idle"]);
    is_success(&cluster.run(&["doctor", "--on", "slurm:2"]));
    cluster.assert_nothing_left();
}
