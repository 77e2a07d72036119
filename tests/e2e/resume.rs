//! The end of a run, and runs that continue: budgets, `--resume`, a full disk.

use crate::support::{Experiment, Workspace, flat, show, stderr, stdout, wait_until};
use assert_cmd::cargo::cargo_bin;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};
use std::time::Duration;

fn workspace() -> Workspace {
    Workspace::concurrent().with_two_subjects()
}

/// Returns case, subject, block and attempt of each record, in order.
fn order(records: &[Value]) -> Vec<String> {
    let key = |record: &Value| {
        ["case", "subject", "block", "attempt"].map(|part| record[part].to_string()).join(" ")
    };
    records.iter().map(key).collect()
}

/// Returns ten times between 50 ms and 1.5 s, one from each tenth, shuffled.
fn kill_times_ms(seed: u64) -> Vec<u64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut times: Vec<u64> =
        (0..10).map(|tenth| 50 + 145 * tenth + rng.random_range(0..145)).collect();
    times.shuffle(&mut rng);
    times
}

#[test]
fn killed_run_resumes() {
    let workspace = workspace();
    // 2.2% is a share that loses digits if it is rounded on reading. A trial lasts at least 550 ms, so the
    // kills come before the end of twelve trials.
    let run =
        ["run", "two.toml", "--blocks", "6", "--seed", "5", "--margin", "2.2%", "--out", "out"];
    let kill_times_ms = kill_times_ms(11);
    println!("killed these milliseconds after the manifest was written: {kill_times_ms:?}");
    let mut before = Vec::new();
    for (kill_number, after_ms) in kill_times_ms.into_iter().enumerate() {
        let arguments: &[&str] = match kill_number {
            0 => &run,
            _ => &["run", "--resume", "out"],
        };
        let mut child = workspace.start(arguments);
        assert!(wait_until(Duration::from_secs(10), || workspace
            .path("out/manifest.json")
            .is_file()));
        std::thread::sleep(Duration::from_millis(after_ms));
        kill(workspace.supervised(&child), Signal::SIGKILL).expect("the process runs");
        child.wait().expect("an end");
        workspace.assert_nothing_runs();
        let now = order(&workspace.records());
        assert!(now.starts_with(&before), "{now:?} after {before:?}");
        before = now;
    }
    assert!(before.len() < 12, "the run ended before the last kill: {before:?}");
    // A truncated record is removed.
    let path = workspace.path("out/trials.ndjson");
    let text = fs::read_to_string(&path).expect("records");
    fs::write(&path, format!("{text}{{\"schema\":1,\"case\":")).expect("a file");

    let output = workspace.command(&["run", "--resume", "out"]).output().expect("a run");
    let ended = output.status.code();
    assert!(matches!(ended, Some(0 | 3)), "{}", show(&output));
    let all = workspace.records();
    let keys = order(&all);
    assert!(keys.starts_with(&before), "{keys:?} after {before:?}");
    let distinct: BTreeSet<&String> = keys.iter().collect();
    assert_eq!(distinct.len(), keys.len(), "a trial was repeated: {keys:?}");
    let first_attempts = all.iter().filter(|record| record["attempt"] == 1).count();
    assert_eq!(first_attempts, 12, "{keys:?}");
    let message = stdout(&output);
    assert!(!message.contains("--resume"), "the run is complete: {message}");
    assert!(flat(&message).contains("after 6 blocks (all blocks were run)"), "{message}");
    assert_eq!(workspace.json("out/report.json")["ended_by"], "blocks");
    workspace.assert_nothing_runs();

    // A complete run stays as it is.
    let again = workspace.run(&["run", "--resume", "out"]);
    assert_eq!(order(&workspace.records()), keys);
    assert_eq!(again.status.code(), ended);
    // The order depends on the seed alone.
    let straight =
        ["run", "two.toml", "--quick", "--blocks", "6", "--seed", "5", "--out", "straight"];
    let straight = workspace.command(&straight).output().expect("a run");
    assert!(straight.status.code().is_some());
    let text = workspace.read("straight/trials.ndjson");
    let straight: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let plan = |records: &[Value]| {
        let first = records.iter().filter(|record| record["attempt"] == 1);
        first.map(|record| record["subject"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(plan(&straight), plan(&all));
}

#[test]
fn resume_rejects_changed_input() {
    let workspace = workspace();
    let output = workspace.run(&["run", "two.toml", "--blocks", "1", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    workspace.change("two.toml", "connections = 4", "connections = 5");
    let output = workspace.run(&["run", "--resume", "out"]);
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    let text = stderr(&output);
    assert!(
        text.contains("experiment.cases.browse.load.arrivals.open.connections: 4, now 5"),
        "{text}"
    );

    let output = workspace.run(&["run", "--resume", "nowhere"]);
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    assert!(stderr(&output).contains("no directory nowhere"), "{}", show(&output));
    let output = workspace.run(&["run", "--resume", "out", "--blocks", "9"]);
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));

    let manifest = workspace.read("out/manifest.json");
    let original = workspace.json("out/manifest.json");
    let directory = format!("\"directory\": {}", original["directory"]);
    let command = manifest.find("\"command\": [").expect("a command");
    let command = &manifest[command..][..=manifest[command..].find(']').expect("its end")];
    for (from, to, expected) in [
        // The directory of another version is rejected with both versions.
        ("\"schema\": 5", "\"schema\": 4", "has schema 4; this version reads 5"),
        (command, r#""command": ["rm", "-r", "out"]"#, "cannot repeat the command of "),
        (command, r#""command": ["tollgate", "list"]"#, "tollgate list: not a run"),
        (&directory, "\"directory\": \"/no/where\"", "cannot enter /no/where"),
    ] {
        assert!(manifest.contains(from), "no {from} in {manifest}");
        workspace.write("out/manifest.json", &manifest.replace(from, to));
        let output = workspace.run(&["run", "--resume", "out"]);
        assert_eq!(output.status.code(), Some(2), "{to}: {}", show(&output));
        assert!(stderr(&output).contains(expected), "{to}: {}", show(&output));
    }
}

#[test]
fn run_directory_is_locked() {
    let workspace = workspace();
    let child = workspace.start(&["run", "two.toml", "--blocks", "200", "--out", "out"]);
    assert!(wait_until(Duration::from_secs(60), || !workspace.records().is_empty()));
    let second = workspace.command(&["run", "--resume", "out"]).output().expect("an end");
    assert_eq!(second.status.code(), Some(2), "{}", show(&second));
    assert!(stderr(&second).contains("is in use by another run"), "{}", show(&second));
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).expect("the process runs");
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130), "{}", show(&output));
    assert!(stdout(&output).contains("run --resume out"), "{}", show(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn budget_ends_run_of_baseline_against_itself() {
    let workspace = Workspace::quiet().with_two_subjects();
    let start = std::time::Instant::now();
    let output = workspace
        .command(&[
            "run", "two.toml", "--only", "nginx", "--aa", "--budget", "20s", "--width", "0.01%",
            "--out", "out",
        ])
        .output()
        .expect("a run");
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", show(&output));
    let report = workspace.json("out/report.json");
    assert_eq!(report["ended_by"], "budget", "{}", show(&output));
    let case = &report["cases"][0];
    let names: Vec<&str> = case["subjects"]
        .as_array()
        .expect("subjects")
        .iter()
        .map(|subject| subject["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["nginx", "nginx-again"]);
    let floor = case["noise_floor"]["estimate"].as_f64().expect("a noise floor");
    assert!((0.5..2.0).contains(&floor), "{floor}");
    let n = case["subjects"][1]["prices"]["cpu_us_per_request"]["n"].as_u64();
    assert!(n >= Some(3), "{case:#}");
    assert_eq!(workspace.json("out/manifest.json")["experiment"]["aa_subject"], "nginx-again");
}

#[test]
fn width_ends_run_after_six_blocks() {
    let workspace = Workspace::quiet().with_two_subjects();
    let output =
        workspace.run(&["run", "two.toml", "--width", "90%", "--budget", "60s", "--out", "out"]);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", show(&output));
    let report = workspace.json("out/report.json");
    assert_eq!(report["ended_by"], "width", "{}", show(&output));
    let blocks = report["blocks"].as_u64().expect("a count");
    assert!((6..12).contains(&blocks), "{blocks}");
    let message = stderr(&output);
    let expected =
        "blocks until every interval is within ±90 %, at most 1000 blocks and about 60 s\n";
    assert!(message.starts_with(expected), "{message}");
    let full = &report["cases"][0]["subjects"][1];
    assert_eq!(full["prices"]["cpu_us_per_request"]["verdict"], "costs-more", "{full:#}");
    assert_eq!(report["run_status"], "settled");
    assert!(full["blocks"].as_array().expect("blocks").len() >= 5);
}

/// Runs the binary with a limit on the size of files, in blocks of 512 bytes; writes fail as on a full disk.
fn run_with_limit(workspace: &Workspace, blocks_512: u32, arguments: &str) -> Output {
    let binary = cargo_bin!("tollgate").display().to_string();
    let script = format!("trap '' XFSZ; ulimit -f {blocks_512}; exec '{binary}' {arguments}");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(workspace.path("")).env("NO_COLOR", "1");
    command.output().expect("a shell")
}

#[test]
fn run_resumes_after_full_disk() {
    let workspace = Workspace::concurrent();
    let experiment = Experiment {
        title: "Is the disk full?",
        load: r#"connections = 2, rate = 200, duration = "150ms", warmup = "10ms""#,
        subjects: &[("nginx", "nginx", ""), ("same", "nginx", "")],
        blocks: 6,
    };
    workspace.write("full.toml", &experiment.text());

    // Enough for the manifest and some records of 3 kB each.
    let limited = run_with_limit(&workspace, 48, "run full.toml --out out");
    assert_eq!(limited.status.code(), Some(1), "{}", show(&limited));
    let message = flat(&stderr(&limited));
    assert!(
        message.contains(" run --resume out` continues it: cannot append a trial to "),
        "{message}"
    );
    assert!(message.contains("/out/trials.ndjson; earlier trials are stored: "), "{message}");
    let before = workspace.read("out/trials.ndjson").matches('\n').count();
    assert!((1..12).contains(&before), "{before} records: {}", show(&limited));
    workspace.assert_nothing_runs();

    // Enough for all records, but not for the HTML report.
    let unreported = run_with_limit(&workspace, 110, "run --resume out");
    assert_eq!(unreported.status.code(), Some(1), "{}", show(&unreported));
    let message = flat(&stderr(&unreported));
    assert!(message.contains("cannot write the reports (the records are complete; `"), "{message}");
    assert!(message.contains("/out` writes the reports): cannot write "), "{message}");
    assert!(stdout(&unreported).contains("Is the disk full?"), "{}", show(&unreported));
    let files: Vec<_> = fs::read_dir(workspace.path("out")).expect("the run").flatten().collect();
    let is_page = |name: &str| name.starts_with("report.html");
    assert!(!files.iter().any(|file| is_page(&file.file_name().to_string_lossy())), "{files:?}");

    let whole = workspace.run(&["run", "--resume", "out"]);
    assert_eq!(whole.status.code(), Some(0), "{}", show(&whole));
    assert!(workspace.read("out/report.html").trim_end().ends_with("</html>"));
    // Disturbed trials are invalid, and repeated.
    let valid = workspace.read("out/trials.ndjson").matches("\"invalid\":[]").count();
    assert_eq!(valid, 12, "{}", show(&whole));
}

#[test]
fn write_error_names_standard_output() {
    let workspace = Workspace::concurrent();
    let mut command = workspace.command(&["list"]);
    command.stdout(fs::File::create("/dev/full").expect("/dev/full"));
    let output = command.output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    let expected = "tollgate: cannot write to standard output: No space left on device";
    assert!(stderr(&output).starts_with(expected), "{}", show(&output));
}
