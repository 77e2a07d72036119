//! `tollgate doctor --noise`: this machine against itself.

use crate::support::{Workspace, flat, stderr, stdout, told, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

/// How many entries the folder has that is for what is not kept.
fn kept(workspace: &Workspace) -> usize {
    fs::read_dir(workspace.path("tmp")).expect("the folder").count()
}

/// Whether a block of the run in `out` has both subjects: without, there is nothing to tell, and on a
/// machine that is busy with other tests there may be none.
fn has_block(workspace: &Workspace) -> bool {
    let text = workspace.read("out/trials.ndjson");
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let counts = records.filter(|record| {
        record["outcome"]["measured"]["invalid"].as_array().is_some_and(Vec::is_empty)
    });
    let mut blocks: BTreeMap<u64, usize> = BTreeMap::new();
    for record in counts {
        *blocks.entry(record["block"].as_u64().expect("a block")).or_default() += 1;
    }
    blocks.values().any(|subjects| *subjects == 2)
}

#[test]
fn the_noise_of_this_machine_is_told() {
    let workspace = Workspace::new();
    let output = workspace.run(&["doctor", "--noise", "--seconds", "8", "--out", "out"]);
    let text = stdout(&output);
    assert!(text.contains("nginx against itself:"), "{}", told(&output));
    assert!(flat(&text).contains("disturbed"), "{}", told(&output));
    assert!(stderr(&output).contains("nginx-again: "), "{}", told(&output));
    match has_block(&workspace) {
        true => {
            assert_eq!(output.status.code(), Some(0), "{}", told(&output));
            assert!(text.contains("CPU per request") && text.contains("requests/s"), "{text}");
        }
        false => {
            assert_eq!(output.status.code(), Some(4), "{}", told(&output));
            assert!(flat(&text).contains("nothing can be said"), "{text}");
        }
    }
    let trials = workspace.read("out/trials.ndjson").lines().count();
    assert!(trials >= 4, "{}", told(&output));
    assert!(workspace.path("out/report.json").is_file());
    workspace.assert_nothing_runs();
}

#[test]
fn a_run_for_noise_leaves_nothing_behind_even_when_it_is_stopped() {
    let workspace = Workspace::beside_others();
    workspace.write("tmp/here", "");
    let mut command = workspace.command(&["doctor", "--noise", "--seconds", "60"]);
    command.env("TMPDIR", workspace.path("tmp")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the binary runs");
    assert!(wait_until(Duration::from_secs(20), || kept(&workspace) == 2), "no run began");
    std::thread::sleep(Duration::from_millis(700));
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).expect("it runs");
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130), "{}", told(&output));
    assert_eq!(kept(&workspace), 1, "{}", told(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn without_nginx_the_machine_is_looked_at_without_a_proxy() {
    let workspace = Workspace::new();
    workspace.copy_recipe("nginx");
    workspace.change("systems/nginx/system.toml", "program = \"nginx\"", "program = \"no-nginx\"");
    let output = workspace.run(&["doctor", "--noise", "--seconds", "4", "--out", "out"]);
    // With figures or without, the doctor says that the default experiment lacks its baseline.
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(stderr(&output).contains("there is no nginx"), "{}", told(&output));
    let text = stdout(&output);
    assert!(text.contains("direct against itself:"), "{}", told(&output));
    assert_eq!(text.contains("requests/s"), has_block(&workspace), "{}", told(&output));
    assert!(!text.contains("CPU per request"), "{}", told(&output));
}

#[test]
fn where_the_run_cannot_be_kept_it_is_told_where_it_can() {
    let workspace = Workspace::beside_others();
    workspace.write("file", "");
    let mut command = workspace.command(&["doctor", "--noise"]);
    let output = command.env("TMPDIR", "/no/where").output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    let expected = "making a folder for the run; --out names another: ";
    assert!(stderr(&output).contains(expected), "{}", told(&output));
    // With --out, nothing is made elsewhere.
    let mut command = workspace.command(&["doctor", "--noise", "--out", "file"]);
    let output = command.env("TMPDIR", "/no/where").output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    let expected = "file is a file, not a directory; choose another --out";
    assert!(stderr(&output).contains(expected), "{}", told(&output));
}
