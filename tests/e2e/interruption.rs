//! Ctrl-C and kill -9: nothing is left running, nothing that was finished is lost.

use crate::experiment::two_subjects;
use crate::support::{Workspace, flat, stdout, told, wait_until};
use assert_cmd::cargo::cargo_bin;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).expect("the run is there");
}

/// Until a process with this in its command line runs, after the first `at_least` trials.
fn wait_for_process(workspace: &Workspace, command: &str, at_least: usize) {
    assert!(wait_until(Duration::from_secs(60), || records(workspace) >= at_least));
    let runs = |process: &String| process.contains(command);
    assert!(wait_until(Duration::from_secs(60), || workspace.running().iter().any(runs)));
}

fn kill_9(pid: Pid) {
    kill(pid, Signal::SIGKILL).expect("the run is there");
}

fn workspace() -> Workspace {
    with_two_subjects(Workspace::beside_others())
}

fn with_two_subjects(workspace: Workspace) -> Workspace {
    workspace.write("two.toml", &two_subjects());
    workspace
}

fn records(workspace: &Workspace) -> usize {
    let text = fs::read_to_string(workspace.path("out/trials.ndjson")).unwrap_or_default();
    text.matches('\n').count()
}

const RUN: [&str; 6] = ["run", "two.toml", "--blocks", "200", "--out", "out"];

#[test]
fn ctrl_c_at_any_moment_leaves_nothing_and_prints_what_there_is() {
    // From before the first process to the middle of a later trial.
    for after_ms in [5, 60, 150, 400, 700, 1_100, 1_700] {
        let workspace = workspace();
        let child = workspace.start(&RUN);
        // The handlers are in place once the run's directory is there.
        assert!(wait_until(Duration::from_secs(10), || workspace.path("out/logs").is_dir()));
        std::thread::sleep(Duration::from_millis(after_ms));
        signal(&child, Signal::SIGINT);
        let output = child.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(130), "after {after_ms} ms: {}", told(&output));
        let table = stdout(&output);
        assert!(table.contains("Does the road hold?"), "{}", told(&output));
        workspace.assert_nothing_runs();
        let again = workspace.run(&["report", "out"]);
        assert!(table.starts_with(&stdout(&again)), "{}", told(&again));
    }
}

#[test]
fn term_is_as_good_as_ctrl_c() {
    let workspace = workspace();
    let child = workspace.start(&RUN);
    assert!(wait_until(Duration::from_secs(60), || records(&workspace) >= 1));
    signal(&child, Signal::SIGTERM);
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130), "{}", told(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn after_kill_9_the_finished_trials_are_there_and_nothing_runs() {
    for at_least in [1, 3] {
        let workspace = workspace();
        let mut child = workspace.start(&RUN);
        wait_for_process(&workspace, "nginx: master", at_least);
        kill_9(workspace.lab_of(&child));
        let ended = child.wait().expect("an end");
        assert_eq!(ended.code(), Some(137));
        assert!(workspace.running().is_empty(), "left running: {:#?}", workspace.running());
        let finished = records(&workspace);
        assert!(finished >= at_least);
        let report = workspace.run(&["report", "out", "--format", "json"]);
        assert_eq!(report.status.code(), Some(0), "{}", told(&report));
        let report: serde_json::Value = serde_json::from_str(&stdout(&report)).expect("JSON");
        let subjects = report["cases"][0]["subjects"].as_array().expect("subjects").clone();
        let counted: u64 = subjects.iter().map(|s| s["trials"].as_u64().expect("a count")).sum();
        assert_eq!(counted, finished as u64);
    }
}

#[test]
fn a_record_that_was_cut_off_is_left_out_and_said_so() {
    let workspace = workspace();
    let output = workspace.run(&["run", "two.toml", "--blocks", "1", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let text = workspace.read("out/trials.ndjson");
    let path = workspace.path("out/trials.ndjson");
    // In the middle of a character of two bytes.
    fs::write(&path, [&text.as_bytes()[..text.len() - 40], &[0xc2]].concat()).expect("a file");
    let report = workspace.run(&["report", "out"]);
    assert_eq!(report.status.code(), Some(0), "{}", told(&report));
    assert!(flat(&stdout(&report)).contains("The last record was cut off"), "{}", told(&report));
    // In the middle of the file, a broken line is not an accident of the end.
    fs::write(&path, format!("{}\n{}", &text[..40], text)).expect("a file");
    let report = workspace.run(&["report", "out"]);
    assert_eq!(report.status.code(), Some(2), "{}", told(&report));
    assert!(
        told(&report).contains("trials.ndjson:1 is not what tollgate wrote there"),
        "{}",
        told(&report)
    );
}

#[test]
fn a_lab_that_was_stopped_for_a_while_does_not_count_that_trial() {
    let workspace = with_two_subjects(Workspace::new());
    workspace.change("two.toml", "500ms", "2s");
    workspace.change("two.toml", "halt        = \"100%\"", "halt = \"10%\"");
    let mut arguments = RUN;
    arguments[3] = "1";
    let child = workspace.start(&arguments);
    let first_load = || workspace.path("out/logs").read_dir().is_ok_and(|logs| logs.count() >= 2);
    assert!(wait_until(Duration::from_secs(10), first_load));
    std::thread::sleep(Duration::from_millis(900));
    let lab = workspace.lab_of(&child);
    kill(lab, Signal::SIGSTOP).expect("the lab is there");
    std::thread::sleep(Duration::from_millis(700));
    kill(lab, Signal::SIGCONT).expect("the lab is there");
    let output = child.wait_with_output().expect("an end");
    let table = flat(&stdout(&output));
    assert!(table.contains("does not count: the lab itself was stopped or starved"), "{table}");
}

/// A run whose server ignores every wish to stop, and sits behind a shell that does too.
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
fn a_server_that_ignores_term_is_gone_after_a_second_ctrl_c() {
    let workspace = stubborn();
    let child = workspace.start(&RUN);
    assert!(wait_until(Duration::from_secs(60), || records(&workspace) >= 1));
    signal(&child, Signal::SIGINT);
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, Signal::SIGINT);
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130), "{}", told(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn a_server_that_ignores_term_is_gone_after_kill_9_of_either_process() {
    for is_lab in [true, false] {
        let workspace = stubborn();
        let mut child = workspace.start(&RUN);
        wait_for_process(&workspace, "trap ''", 1);
        kill_9(if is_lab {
            workspace.lab_of(&child)
        } else {
            Pid::from_raw(child.id().cast_signed())
        });
        child.wait().expect("an end");
        // Without the keeper the lab ends by itself, which it does politely.
        workspace.assert_nothing_runs();
        let resumed = workspace.start(&["run", "--resume", "out"]);
        let before = records(&workspace);
        assert!(wait_until(Duration::from_secs(60), || records(&workspace) > before));
        signal(&resumed, Signal::SIGINT);
        signal(&resumed, Signal::SIGTERM);
        let output = resumed.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(130), "{}", told(&output));
        workspace.assert_nothing_runs();
    }
}

#[test]
fn a_terminal_that_is_closed_ends_the_run_it_leads() {
    let workspace = workspace();
    let line = format!("exec {} {}", cargo_bin!("tollgate").display(), RUN.join(" "));
    let mut terminal = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .current_dir(workspace.path("."))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("script, of Debian's bsdutils");
    assert!(wait_until(Duration::from_secs(60), || records(&workspace) >= 1));
    kill_9(Pid::from_raw(terminal.id().cast_signed()));
    terminal.wait().expect("an end");
    workspace.assert_nothing_runs();
    assert_ne!(workspace.json("out/report.json")["ended_by"], "blocks");
}

/// `nohup`, a parent that does not wait for children, and a shell that had some of its own before it
/// became the run.
#[test]
fn what_is_ignored_stays_ignored_and_what_was_there_before_stays() {
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
    assert!(wait_until(Duration::from_secs(60), || records(&workspace) >= 1));
    signal(&child, Signal::SIGHUP);
    kill(workspace.lab_of(&child), Signal::SIGHUP).expect("the lab is there");
    let output = child.wait_with_output().expect("an end");
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", told(&output));
    assert_eq!(workspace.json("out/report.json")["ended_by"], "blocks");
    let before: i32 = workspace.read("before").trim().parse().expect("a pid");
    kill_9(Pid::from_raw(before));
    assert!(wait_until(Duration::from_secs(10), || workspace.running().is_empty()));
}

#[test]
fn a_server_that_makes_itself_a_daemon_does_not_escape() {
    let workspace = workspace();
    workspace.copy_recipe("nginx");
    workspace.change("systems/nginx/nginx.conf", "daemon off;", "daemon on;");
    let output = workspace.run(&["run", "two.toml", "--blocks", "1", "--out", "out"]);
    // As a rule before it has answered, but the daemon may be quicker than its parent's end is seen.
    assert!(told(&output).contains("`nginx` ended (exit status: 0)"), "{}", told(&output));
    workspace.assert_nothing_runs();
}
