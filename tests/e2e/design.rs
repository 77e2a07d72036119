//! What ends a run, what is repeated, the baseline against itself, and going on with a run.

use crate::experiment::two_subjects;
use crate::support::{Workspace, flat, stderr, stdout, told, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

fn workspace() -> Workspace {
    with_two_subjects(Workspace::beside_others())
}

fn with_two_subjects(workspace: Workspace) -> Workspace {
    workspace.write("two.toml", &two_subjects());
    workspace
}

fn records(workspace: &Workspace) -> Vec<Value> {
    let text = fs::read_to_string(workspace.path("out/trials.ndjson")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Case, subject, block and attempt of each record, in their order.
fn order(records: &[Value]) -> Vec<String> {
    let key = |record: &Value| {
        ["case", "subject", "block", "attempt"].map(|part| record[part].to_string()).join(" ")
    };
    records.iter().map(key).collect()
}

/// Ten moments between 50 ms and 1.5 s: one from each tenth of that, in shuffled order.
fn moments_ms(seed: u64) -> Vec<u64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut moments: Vec<u64> =
        (0..10).map(|tenth| 50 + 145 * tenth + rng.random_range(0..145)).collect();
    moments.shuffle(&mut rng);
    moments
}

#[test]
fn a_run_that_was_killed_goes_on_where_it_was() {
    let workspace = workspace();
    // A share that is not what it was when it is read back carelessly. A trial lasts 550 ms at the
    // least, so that the kills leave no time for six blocks, which are twelve trials.
    let run =
        ["run", "two.toml", "--blocks", "6", "--seed", "5", "--margin", "2.2%", "--out", "out"];
    let moments_ms = moments_ms(11);
    println!("killed so many milliseconds after the manifest was there: {moments_ms:?}");
    let mut before = Vec::new();
    for (kill_number, after_ms) in moments_ms.into_iter().enumerate() {
        let arguments: &[&str] = match kill_number {
            0 => &run,
            _ => &["run", "--resume", "out"],
        };
        let mut child = workspace.start(arguments);
        assert!(wait_until(Duration::from_secs(10), || workspace
            .path("out/manifest.json")
            .is_file()));
        std::thread::sleep(Duration::from_millis(after_ms));
        kill(workspace.lab_of(&child), Signal::SIGKILL).expect("the lab is there");
        child.wait().expect("an end");
        workspace.assert_nothing_runs();
        let now = order(&records(&workspace));
        assert!(now.starts_with(&before), "nothing is lost or run twice: {now:?} after {before:?}");
        before = now;
    }
    assert!(before.len() < 12, "the last kill came before the end: {before:?}");
    // What the last kill cut off, if anything, goes.
    let path = workspace.path("out/trials.ndjson");
    let text = fs::read_to_string(&path).expect("records");
    fs::write(&path, format!("{text}{{\"schema\":1,\"case\":")).expect("a file");

    let output = workspace.command(&["run", "--resume", "out"]).output().expect("a run");
    let ended = output.status.code();
    assert!(matches!(ended, Some(0 | 3)), "{}", told(&output));
    let all = records(&workspace);
    let keys = order(&all);
    assert!(keys.starts_with(&before), "{keys:?} after {before:?}");
    let distinct: BTreeSet<&String> = keys.iter().collect();
    assert_eq!(distinct.len(), keys.len(), "no trial is run twice: {keys:?}");
    let first_attempts = all.iter().filter(|record| record["attempt"] == 1).count();
    assert_eq!(first_attempts, 12, "{keys:?}");
    let told = stdout(&output);
    assert!(!told.contains("--resume"), "it is complete: {told}");
    assert!(flat(&told).contains("after 6 blocks (all blocks were run)"), "{told}");
    assert_eq!(workspace.json("out/report.json")["ended_by"], "blocks");
    workspace.assert_nothing_runs();

    // A run that is complete has nothing to go on with, and says what it says.
    let again = workspace.run(&["run", "--resume", "out"]);
    assert_eq!(order(&records(&workspace)), keys);
    assert_eq!(again.status.code(), ended);
    // The order is that of the seed, however often the run was cut off, and however long a trial is.
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
fn a_run_goes_on_only_with_what_it_was_begun_with() {
    let workspace = workspace();
    let output = workspace.run(&["run", "two.toml", "--blocks", "1", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    workspace.change("two.toml", "connections = 4", "connections = 5");
    let output = workspace.run(&["run", "--resume", "out"]);
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    let text = stderr(&output);
    assert!(text.contains("experiment.cases.browse.connections: 4, now 5"), "{text}");

    let output = workspace.run(&["run", "--resume", "nowhere"]);
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(stderr(&output).contains("there is no directory nowhere"), "{}", told(&output));
    let output = workspace.run(&["run", "--resume", "out", "--blocks", "9"]);
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));

    let manifest = workspace.read("out/manifest.json");
    let original = workspace.json("out/manifest.json");
    let quoted = |key: &str| format!("\"{key}\": {}", original[key]);
    for (from, to, told_line) in [
        // Another version's directory is refused, with both versions.
        ("\"schema\": 2", "\"schema\": 1", "has schema 1, and this version reads 2"),
        (&quoted("command"), "\"command\": \"rm -r out\"", "taking up the command of "),
        (
            &quoted("command"),
            "\"command\": \"tollgate 'run\"",
            "tollgate 'run: missing closing quote",
        ),
        (&quoted("command"), "\"command\": \"tollgate list\"", "tollgate list: it is no run"),
        (
            &quoted("directory"),
            "\"directory\": \"/no/where\"",
            "a run goes on where it was begun, but there is no going to /no/where",
        ),
    ] {
        assert!(manifest.contains(from), "no {from} in {manifest}");
        workspace.write("out/manifest.json", &manifest.replace(from, to));
        let output = workspace.run(&["run", "--resume", "out"]);
        assert_eq!(output.status.code(), Some(2), "{to}: {}", told(&output));
        assert!(stderr(&output).contains(told_line), "{to}: {}", told(&output));
    }
}

#[test]
fn two_runs_do_not_write_to_one_directory() {
    let workspace = workspace();
    let child = workspace.start(&["run", "two.toml", "--blocks", "200", "--out", "out"]);
    assert!(wait_until(Duration::from_secs(60), || !records(&workspace).is_empty()));
    let second = workspace.command(&["run", "--resume", "out"]).output().expect("an end");
    assert_eq!(second.status.code(), Some(2), "{}", told(&second));
    assert!(stderr(&second).contains("is in use by another run"), "{}", told(&second));
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).expect("the run is there");
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130), "{}", told(&output));
    assert!(stdout(&output).contains("run --resume out"), "{}", told(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn a_budget_ends_a_run_and_the_baseline_is_held_against_itself() {
    let workspace = with_two_subjects(Workspace::new());
    let begun = std::time::Instant::now();
    let output = workspace
        .command(&[
            "run", "two.toml", "--only", "nginx", "--aa", "--budget", "12s", "--width", "0.01%",
            "--out", "out",
        ])
        .output()
        .expect("a run");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", told(&output));
    let report = workspace.json("out/report.json");
    assert_eq!(report["ended_by"], "budget", "{}", told(&output));
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
    assert_eq!(workspace.json("out/manifest.json")["experiment"]["again"], "nginx-again");
}

#[test]
fn a_wide_interval_is_narrow_enough_after_six_blocks() {
    let workspace = with_two_subjects(Workspace::new());
    let output =
        workspace.run(&["run", "two.toml", "--width", "90%", "--budget", "60s", "--out", "out"]);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", told(&output));
    let report = workspace.json("out/report.json");
    assert_eq!(report["ended_by"], "width", "{}", told(&output));
    let blocks = report["blocks"].as_u64().expect("a count");
    assert!((6..12).contains(&blocks), "{blocks}");
    let told_first = stderr(&output);
    let expected = "blocks until every interval is 90 % to either side, but no more than 1000, nor \
                    longer than about 60 s\n";
    assert!(told_first.starts_with(expected), "{told_first}");
    let full = &report["cases"][0]["subjects"][1];
    assert_eq!(full["prices"]["cpu_us_per_request"]["verdict"], "costs-more", "{full:#}");
    assert_eq!(report["badge"], "settled");
    assert!(full["blocks"].as_array().expect("blocks").len() >= 5);
}
