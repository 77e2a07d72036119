//! Signals and kill -9: no process is left, no finished trial is lost.

use crate::support::{Workspace, flat, show, stdout, wait_for_load, wait_until};
use assert_cmd::cargo::cargo_bin;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).expect("the process runs");
}

/// Waits for `at_least` trials, then for a process with `command` in its command line.
fn wait_for_process(workspace: &Workspace, command: &str, at_least: usize) {
    assert!(wait_until(Duration::from_secs(60), || workspace.trials() >= at_least));
    let runs = |process: &String| process.contains(command);
    assert!(wait_until(Duration::from_secs(60), || workspace.running().iter().any(runs)));
}

fn kill_9(pid: Pid) {
    kill(pid, Signal::SIGKILL).expect("the process runs");
}

fn workspace() -> Workspace {
    Workspace::concurrent().with_two_subjects()
}

const RUN: [&str; 6] = ["run", "two.toml", "--blocks", "200", "--out", "out"];

#[test]
fn ctrl_c_prints_report_and_leaves_no_process() {
    // From before the first process to the middle of a later trial.
    for after_ms in [5, 60, 150, 400, 700, 1_100, 1_700] {
        let workspace = workspace();
        let child = workspace.start(&RUN);
        // Signals are handled once the run directory exists.
        assert!(wait_until(Duration::from_secs(60), || workspace.path("out/logs").is_dir()));
        std::thread::sleep(Duration::from_millis(after_ms));
        signal(&child, Signal::SIGINT);
        let output = child.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(130), "after {after_ms} ms: {}", show(&output));
        let table = stdout(&output);
        assert!(table.contains("Do both subjects work?"), "{}", show(&output));
        workspace.assert_nothing_runs();
        let again = workspace.run(&["report", "out"]);
        assert!(table.starts_with(&stdout(&again)), "{}", show(&again));
    }
}

#[test]
fn term_ends_run() {
    let workspace = workspace();
    let child = workspace.start(&RUN);
    assert!(wait_until(Duration::from_secs(60), || workspace.trials() >= 1));
    signal(&child, Signal::SIGTERM);
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130), "{}", show(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn kill_9_keeps_finished_trials() {
    for at_least in [1, 3] {
        let workspace = workspace();
        let mut child = workspace.start(&RUN);
        wait_for_process(&workspace, "nginx: master", at_least);
        kill_9(workspace.supervised(&child));
        let ended = child.wait().expect("an end");
        assert_eq!(ended.code(), Some(137));
        assert!(workspace.running().is_empty(), "left running: {:#?}", workspace.running());
        let finished = workspace.trials();
        assert!(finished >= at_least);
        let report = workspace.run(&["report", "out", "--format", "json"]);
        assert_eq!(report.status.code(), Some(0), "{}", show(&report));
        let report: serde_json::Value = serde_json::from_str(&stdout(&report)).expect("JSON");
        let subjects = report["cases"][0]["subjects"].as_array().expect("subjects").clone();
        let counted: u64 = subjects.iter().map(|s| s["trials"].as_u64().expect("a count")).sum();
        assert_eq!(counted, finished as u64);
    }
}

#[test]
fn truncated_record_is_ignored_with_note() {
    let workspace = workspace();
    let output = workspace.run(&["run", "two.toml", "--blocks", "1", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let text = workspace.read("out/trials.ndjson");
    let path = workspace.path("out/trials.ndjson");
    // In the middle of a two-byte character.
    fs::write(&path, [&text.as_bytes()[..text.len() - 40], &[0xc2]].concat()).expect("a file");
    let report = workspace.run(&["report", "out"]);
    assert_eq!(report.status.code(), Some(0), "{}", show(&report));
    assert!(
        flat(&stdout(&report)).contains("The last record is incomplete and was ignored."),
        "{}",
        show(&report)
    );
    // An invalid line elsewhere is an error.
    fs::write(&path, format!("{}\n{}", &text[..40], text)).expect("a file");
    let report = workspace.run(&["report", "out"]);
    assert_eq!(report.status.code(), Some(2), "{}", show(&report));
    assert!(show(&report).contains("trials.ndjson:1 is damaged"), "{}", show(&report));
}

#[test]
fn trial_with_paused_runner_is_invalid() {
    let workspace = Workspace::quiet().with_two_subjects();
    workspace.change("two.toml", "500ms", "2s");
    workspace.change("two.toml", "pause = \"100%\"", "pause = \"10%\"");
    let mut arguments = RUN;
    arguments[3] = "1";
    let child = workspace.start(&arguments);
    assert!(wait_until(Duration::from_secs(60), || workspace.path("out/logs").is_dir()));
    wait_for_load(workspace.supervised(&child));
    let process = workspace.supervised(&child);
    kill(process, Signal::SIGSTOP).expect("the process runs");
    std::thread::sleep(Duration::from_millis(700));
    kill(process, Signal::SIGCONT).expect("the process runs");
    let output = child.wait_with_output().expect("an end");
    let table = flat(&stdout(&output));
    assert!(table.contains("invalid: tollgate itself was stopped or starved"), "{table}");
}

/// A run whose server and its shell ignore TERM and INT.
fn stubborn() -> Workspace {
    let workspace = workspace();
    workspace.copy_recipe("nginx");
    let stubborn = r#"command = ["sh", "-c", "trap '' TERM INT; {{ programs.nginx }} -e stderr -p '{{ dir }}' -c '{{ dir }}/nginx.conf'; sleep 1000"]"#;
    let text = workspace.read("systems/nginx/system.toml");
    let command = text.lines().find(|line| line.starts_with("command")).expect("the command");
    workspace.change("systems/nginx/system.toml", command, stubborn);
    workspace
}

#[test]
fn second_ctrl_c_kills_server_that_ignores_term() {
    let workspace = stubborn();
    let child = workspace.start(&RUN);
    assert!(wait_until(Duration::from_secs(60), || workspace.trials() >= 1));
    signal(&child, Signal::SIGINT);
    // Signals within 100 ms count as one.
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, Signal::SIGINT);
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130), "{}", show(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn server_that_ignores_term_ends_after_kill_9() {
    for is_worker in [true, false] {
        let workspace = stubborn();
        let mut child = workspace.start(&RUN);
        wait_for_process(&workspace, "trap ''", 1);
        kill_9(if is_worker {
            workspace.supervised(&child)
        } else {
            Pid::from_raw(child.id().cast_signed())
        });
        child.wait().expect("an end");
        // Without its supervisor, the process ends by itself.
        workspace.assert_nothing_runs();
        let resumed = workspace.start(&["run", "--resume", "out"]);
        let before = workspace.trials();
        assert!(wait_until(Duration::from_secs(60), || workspace.trials() > before));
        signal(&resumed, Signal::SIGINT);
        signal(&resumed, Signal::SIGTERM);
        let output = resumed.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(130), "{}", show(&output));
        workspace.assert_nothing_runs();
    }
}

#[test]
fn closed_terminal_ends_run() {
    let workspace = workspace();
    let line = format!("exec {} {}", cargo_bin!("tollgate").display(), RUN.join(" "));
    let mut terminal = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .current_dir(workspace.path("."))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("script, of the package bsdutils");
    assert!(wait_until(Duration::from_secs(60), || workspace.trials() >= 1));
    kill_9(Pid::from_raw(terminal.id().cast_signed()));
    terminal.wait().expect("an end");
    workspace.assert_nothing_runs();
    assert_ne!(workspace.json("out/report.json")["ended_by"], "blocks");
}

/// As under `nohup`, with a parent that ignores its children, and with a child of the shell from before.
#[test]
fn ignored_signals_and_earlier_children_are_kept() {
    let workspace = workspace();
    let script =
        "trap '' HUP CHLD; sleep 300 >/dev/null 2>&1 & echo $! >before; exec \"$0\" \"$@\"";
    let child = Command::new("sh")
        .args(["-c", script])
        .arg(cargo_bin!("tollgate"))
        .args(["run", "two.toml", "--blocks", "2", "--out", "out"])
        .current_dir(workspace.path("."))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell");
    assert!(wait_until(Duration::from_secs(60), || workspace.trials() >= 1));
    signal(&child, Signal::SIGHUP);
    kill(workspace.supervised(&child), Signal::SIGHUP).expect("the process runs");
    let output = child.wait_with_output().expect("an end");
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", show(&output));
    assert_eq!(workspace.json("out/report.json")["ended_by"], "blocks");
    let before: i32 = workspace.read("before").trim().parse().expect("a pid");
    kill_9(Pid::from_raw(before));
    assert!(wait_until(Duration::from_secs(60), || workspace.running().is_empty()));
}

#[test]
fn daemonized_server_is_stopped() {
    let workspace = workspace();
    workspace.copy_recipe("nginx");
    workspace.change("systems/nginx/nginx.conf", "daemon off;", "daemon on;");
    let output = workspace.run(&["run", "two.toml", "--blocks", "1", "--out", "out"]);
    // Usually before the first response, but the daemon may be faster.
    assert!(show(&output).contains("`nginx` ended (exit status: 0)"), "{}", show(&output));
    workspace.assert_nothing_runs();
}
