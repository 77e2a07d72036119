//! `tollgate doctor --noise`: the noise of this machine.

use crate::support::{Workspace, flat, show, stderr, stdout, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

/// Returns the number of entries in the temporary directory.
fn temporary_entries(workspace: &Workspace) -> usize {
    fs::read_dir(workspace.path("tmp")).expect("the folder").count()
}

/// Returns true if a block of the run in `out` has valid trials of both subjects; a busy machine may have
/// none.
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
fn reports_noise_of_machine() {
    let workspace = Workspace::exclusive();
    let output = workspace.run(&["doctor", "--noise", "--seconds", "8", "--out", "out"]);
    let text = stdout(&output);
    assert!(text.contains("nginx against itself:"), "{}", show(&output));
    assert!(flat(&text).contains("disturbed"), "{}", show(&output));
    assert!(stderr(&output).contains("nginx-again: "), "{}", show(&output));
    match has_block(&workspace) {
        true => {
            assert_eq!(output.status.code(), Some(0), "{}", show(&output));
            assert!(text.contains("CPU per request") && text.contains("requests/s"), "{text}");
        }
        false => {
            assert_eq!(output.status.code(), Some(4), "{}", show(&output));
            assert!(flat(&text).contains("No block has two valid trials"), "{text}");
        }
    }
    let trials = workspace.read("out/trials.ndjson").lines().count();
    assert!(trials >= 4, "{}", show(&output));
    assert!(workspace.path("out/report.json").is_file());
    workspace.assert_nothing_runs();
}

#[test]
fn stopped_noise_run_leaves_no_files() {
    let workspace = Workspace::concurrent();
    workspace.write("tmp/here", "");
    let mut command = workspace.command(&["doctor", "--noise", "--seconds", "60"]);
    command.env("TMPDIR", workspace.path("tmp")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the binary runs");
    assert!(
        wait_until(Duration::from_secs(20), || temporary_entries(&workspace) == 2),
        "no run started"
    );
    // At any time of the run.
    std::thread::sleep(Duration::from_millis(700));
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).expect("it runs");
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130), "{}", show(&output));
    assert_eq!(temporary_entries(&workspace), 1, "{}", show(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn noise_without_nginx_uses_direct() {
    let workspace = Workspace::exclusive();
    workspace.copy_recipe("nginx");
    workspace.change("systems/nginx/system.toml", "program = \"nginx\"", "program = \"no-nginx\"");
    let output = workspace.run(&["doctor", "--noise", "--seconds", "4", "--out", "out"]);
    // The baseline of the default experiment is missing.
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    assert!(stderr(&output).contains("nginx is not installed"), "{}", show(&output));
    let text = stdout(&output);
    assert!(text.contains("direct against itself:"), "{}", show(&output));
    assert_eq!(text.contains("requests/s"), has_block(&workspace), "{}", show(&output));
    assert!(!text.contains("CPU per request"), "{}", show(&output));
}

#[test]
fn unwritable_temporary_directory_is_reported() {
    let workspace = Workspace::concurrent();
    workspace.write("file", "");
    let mut command = workspace.command(&["doctor", "--noise"]);
    let output = command.env("TMPDIR", "/no/where").output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    let expected = "cannot create a folder for the run (choose another with --out): ";
    assert!(stderr(&output).contains(expected), "{}", show(&output));
    // With --out, no temporary directory is used.
    let mut command = workspace.command(&["doctor", "--noise", "--out", "file"]);
    let output = command.env("TMPDIR", "/no/where").output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    let expected = "file is a file, not a directory; choose another --out";
    assert!(stderr(&output).contains(expected), "{}", show(&output));
}
