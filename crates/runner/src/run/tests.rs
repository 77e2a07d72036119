//! Runs on a bench without machines.

use super::*;
use crate::bench::mock::{MockBench, Play};
use crate::trial::LabFailed;
use std::collections::BTreeSet;
use std::fs;
use tempfile::TempDir;
use tollgate_experiment::adjust::Adjustments;
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::loading::WrittenExperiment;
use tollgate_experiment::toml_file::{self, NamedText};
use tollgate_traffic::units::Percent;

const EXPERIMENT: &str = r#"
title    = "x"
baseline = "a"
[[case]]
name = "get"
mix  = "get"
load = { connections = 1, duration = "1s" }
[[subject]]
name   = "a"
system = "direct"
[[subject]]
name   = "b"
system = "direct"
[[subject]]
name   = "c"
system = "direct"
[design]
blocks = 2
"#;

/// A folder in memory: each record of a run is synced to its disk.
fn memory_folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn experiment() -> Experiment {
    let catalog = Catalog::new(vec![]);
    let source = NamedText { name: "x.toml".to_owned(), text: EXPERIMENT.to_owned() };
    let written = WrittenExperiment::new("x", "x.toml", toml_file::parse(&source).unwrap());
    Experiment::from_written(&catalog, written.unwrap(), &Adjustments::default()).unwrap()
}

/// Runs or resumes the experiment. Returns what ended it, and the events.
fn run_in(
    bench: &mut MockBench,
    out: &Path,
    seed: u64,
    resumes: bool,
) -> (anyhow::Result<EndedBy>, Vec<String>) {
    let experiment = experiment();
    let request = RunRequest {
        experiment: &experiment,
        invocation: Invocation {
            seed,
            quick: false,
            command: ["tollgate", "run", "x.toml"].map(str::to_owned).to_vec(),
            directory: PathBuf::from("/"),
        },
        out,
        resumes,
        interrupt: &Interrupt::default(),
    };
    let mut events = Vec::new();
    let ending = run(bench, &request, &mut |event| match event {
        RunEvent::GivenUp { subject, .. } => events.push(format!("{subject} is given up")),
        RunEvent::Waiting(text) => events.push(text.to_owned()),
        _ => {}
    });
    (ending.map(|ending| ending.ended_by), events)
}

/// Trials on record: block, attempt, subject.
fn trials_in(out: &Path) -> Vec<(u32, u32, String)> {
    let records = RunRecords::read(out).unwrap();
    let trials = records.trials.into_iter();
    trials.map(|trial| (trial.block, trial.attempt, trial.subject)).collect()
}

/// Runs a script to its end.
fn played(script: fn(&str) -> Play, seed: u64) -> (EndedBy, Vec<(u32, u32, String)>, Vec<String>) {
    let folder = memory_folder();
    let out = folder.path().join("out");
    let (ended_by, events) = run_in(&mut MockBench::new(script), &out, seed, false);
    (ended_by.unwrap(), trials_in(&out), events)
}

/// Invalid trials, a lost host and a subject that does not start: extra attempts, and an extra block.
fn eventful(trial: &str) -> Play {
    match trial {
        "001-get-a-" => Play::HostLost,
        "001-get-b-" | "002-get-b-" | "002-2-get-b-" => Play::Disturbed,
        "002-get-c-" => Play::NotStarted,
        _ => Play::Measured,
    }
}

#[test]
fn seed_decides_the_order_and_each_block_has_every_subject() {
    let order = |seed| played(|_| Play::Measured, seed);
    let (ended_by, trials, _) = order(1);
    assert_eq!(ended_by, EndedBy::Blocks);
    assert_eq!(trials, order(1).1);
    assert!((2..12).any(|seed| order(seed).1 != trials));
    for (index, block) in trials.chunks(3).enumerate() {
        let subjects: BTreeSet<&str> = block.iter().map(|(.., name)| name.as_str()).collect();
        assert_eq!(subjects, ["a", "b", "c"].into());
        assert!(block.iter().all(|(number, ..)| *number as usize == index + 1));
    }
    assert_eq!(trials.len(), 6);
}

#[test]
fn resumed_run_has_the_trials_of_an_uninterrupted_one() {
    let folder = memory_folder();
    let whole = folder.path().join("whole");
    run_in(&mut MockBench::new(eventful), &whole, 5, false).0.unwrap();
    let text = fs::read_to_string(whole.join("trials.ndjson")).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    assert!(lines.len() > 8, "{}", lines.len());
    for kept in 0..=lines.len() {
        let out = folder.path().join(kept.to_string());
        fs::create_dir_all(out.join("logs")).unwrap();
        fs::copy(whole.join("manifest.json"), out.join("manifest.json")).unwrap();
        // The last record may be cut off.
        let torn = if kept % 2 == 0 { "" } else { "{\"schema\":3,\"ca" };
        fs::write(out.join("trials.ndjson"), lines[..kept].concat() + torn).unwrap();
        let mut bench = MockBench::new(eventful);
        let (ended_by, _) = run_in(&mut bench, &out, 5, true);
        assert_eq!(ended_by.unwrap(), EndedBy::Blocks, "{kept}");
        assert_eq!(trials_in(&out), trials_in(&whole), "{kept}");
        let started = bench.calls.iter().filter(|call| **call == "start").count();
        assert_eq!(started, lines.len() - kept);
    }
}

#[test]
fn extra_block_replaces_trials_that_stay_invalid() {
    let script = |trial: &str| match trial {
        "002-get-b-" | "002-2-get-b-" => Play::Disturbed,
        _ => Play::Measured,
    };
    let (ended_by, trials, _) = played(script, 3);
    assert_eq!(ended_by, EndedBy::Blocks);
    let of_block = |number: u32| {
        let block = trials.iter().filter(|(block, ..)| *block == number);
        let mut block: Vec<_> = block.map(|(_, attempt, name)| (name.as_str(), *attempt)).collect();
        block.sort_unstable();
        block
    };
    assert_eq!(of_block(2), [("a", 1), ("b", 1), ("b", 2), ("c", 1)]);
    // A price needs the baseline too.
    assert_eq!(of_block(3), [("a", 1), ("b", 1)]);
    assert_eq!(of_block(4), []);
}

#[test]
fn trial_of_a_lost_host_is_repeated() {
    let script = |trial: &str| match trial {
        "001-get-c-" => Play::HostLost,
        _ => Play::Measured,
    };
    let (_, trials, events) = played(script, 3);
    assert_eq!(trials.len(), 7);
    assert!(trials.contains(&(1, 2, "c".to_owned())) && events.is_empty(), "{trials:?}");
}

#[test]
fn failing_subject_is_given_up_and_the_others_continue() {
    let script =
        |trial: &str| if trial.ends_with("-c-") { Play::NotStarted } else { Play::Measured };
    let (ended_by, trials, events) = played(script, 3);
    assert_eq!((ended_by, events), (EndedBy::Blocks, vec!["c is given up".to_owned()]));
    let count = |name: &str| trials.iter().filter(|(.., subject)| subject == name).count();
    assert_eq!(["a", "b", "c"].map(count), [2, 2, 2]);
    let (ended_by, trials, events) = played(|_| Play::Refused, 3);
    assert_eq!((ended_by, trials.len(), events.len()), (EndedBy::Exhausted, 6, 3));
}

#[test]
fn failure_of_the_lab_ends_the_run_and_is_repeated_by_its_resumption() {
    let folder = memory_folder();
    let whole = folder.path().join("whole");
    run_in(&mut MockBench::new(|_| Play::Measured), &whole, 3, false).0.unwrap();
    let origin = |trial: &str| match trial {
        "002-get-b-" => Play::OriginDies,
        _ => Play::Measured,
    };
    let disk = |trial: &str| match trial {
        "002-get-b-" => Play::DiskFull,
        _ => Play::Measured,
    };
    let benches = [(MockBench::new(origin), "the origin"), (MockBench::new(disk), "cannot write")];
    for (number, (mut bench, reason)) in (0..).zip(benches) {
        let out = folder.path().join(number.to_string());
        let error = run_in(&mut bench, &out, 3, false).0.unwrap_err();
        assert!(error.is::<LabFailed>() && error.to_string().contains(reason), "{error:#}");
        let before = trials_in(&out);
        assert_eq!(before, trials_in(&whole)[..before.len()]);
        assert!(!before.contains(&(2, 1, "b".to_owned())), "{before:?}");
        fs::create_dir_all(out.join("logs")).unwrap();
        let (ended_by, _) = run_in(&mut MockBench::new(|_| Play::Measured), &out, 3, true);
        assert_eq!(ended_by.unwrap(), EndedBy::Blocks);
        assert_eq!(trials_in(&out), trials_in(&whole));
    }
}

#[test]
fn run_on_a_machine_that_stays_busy_ends_after_the_first_block() {
    let folder = memory_folder();
    let busy = || MockBench { idle_steal_percent: 60.0, ..MockBench::new(|_| Play::Disturbed) };
    let out = folder.path().join("busy");
    let mut bench = busy();
    let (ended_by, events) = run_in(&mut bench, &out, 3, false);
    let error = ended_by.unwrap_err();
    assert!(error.is::<NoPrices>(), "{error}");
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(bench.calls.iter().filter(|call| **call == "noise").count(), 60);
    assert!(trials_in(&out).iter().all(|(block, ..)| *block == 1));
    // A moment of quiet is enough.
    let mut bench = MockBench { idle_steal_percent: 0.0, ..busy() };
    let (ended_by, _) = run_in(&mut bench, &folder.path().join("quiet"), 3, false);
    assert_eq!(ended_by.unwrap(), EndedBy::Blocks);
}

#[test]
fn run_can_be_interrupted_in_each_step_and_resumed() {
    let folder = memory_folder();
    let whole = folder.path().join("whole");
    let mut bench = MockBench::new(eventful);
    run_in(&mut bench, &whole, 5, false).0.unwrap();
    let calls = bench.calls;
    for step in ["describe", "state", "ready", "start", "probe", "verdicts", "measure"] {
        let all: Vec<usize> =
            (1..).zip(&calls).filter(|(_, call)| **call == step).map(|(at, _)| at).collect();
        for at in [all[0], all[all.len() / 2]].into_iter().collect::<BTreeSet<usize>>() {
            let out = folder.path().join(at.to_string());
            let mut bench = MockBench { interrupted_at: Some(at), ..MockBench::new(eventful) };
            let (ended_by, _) = run_in(&mut bench, &out, 5, false);
            // Whatever was started is stopped.
            let count = |name| bench.calls.iter().filter(|call| **call == name).count();
            assert_eq!(count("start"), count("stop"), "{step}");
            if ["describe", "state"].contains(&step) {
                assert!(ended_by.unwrap_err().is::<Interrupted>(), "{step}");
                continue;
            }
            assert_eq!(ended_by.unwrap(), EndedBy::Interrupted, "{step}");
            let before = trials_in(&out);
            assert_eq!(before, trials_in(&whole)[..before.len()]);
            let (ended_by, _) = run_in(&mut MockBench::new(eventful), &out, 5, true);
            assert_eq!(ended_by.unwrap(), EndedBy::Blocks);
            assert_eq!(trials_in(&out), trials_in(&whole), "{step} {at}");
        }
    }
}

#[test]
fn nothing_counts_if_every_measured_trial_is_disturbed() {
    let steal = vec![Invalid::Steal { percent: 7.0, limit_percent: 5.0 }];
    let own = vec![Invalid::NoResponse];
    let why = |trials: &[&Vec<Invalid>]| why_nothing_counts(trials.iter().copied());
    let text = "the hypervisor took 7.0 % of the CPUs (limit `steal`: 5 %)";
    assert_eq!(why(&[&steal, &own]).as_deref(), Some(text));
    assert_eq!(why(&[&own, &steal]).as_deref(), Some(text));
    // A valid trial, a fault of the subjects alone, and no trial.
    assert_eq!(why(&[&steal, &vec![], &steal]), None);
    assert_eq!(why(&[&own, &own]), None);
    assert_eq!(why(&[]), None);
    let more = Invalid::Steal { percent: 30.0, limit_percent: 5.0 };
    let paused = Invalid::Paused { percent: 11.0, limit_percent: 10.0 };
    let limits = limits_to_try([&steal[0], &own[0], &more, &paused].into_iter());
    assert_eq!(limits.as_deref(), Some("--limit pause=20% --limit steal=40%"));
    assert_eq!(limits_to_try(own.iter()), None);
}

#[test]
fn machine_is_quiet_within_the_limits() {
    let noise = |steal_percent, background_cpu_percent| Noise {
        steal_percent,
        background_cpu_percent,
        cpu_pressure_percent: None,
        context_switches: 0,
    };
    let limits = Limits::default();
    assert!(is_quiet(&noise(5.0, 10.0), &limits));
    assert!(!is_quiet(&noise(5.1, 0.0), &limits));
    assert!(!is_quiet(&noise(0.0, 10.1), &limits));
    let open = Limits { background_cpu: Percent(0.5), ..limits };
    assert!(is_quiet(&noise(0.0, 49.0), &open));
}
