//! What became of subjects and trials that have no figures.

use crate::records::{analysed, blocks, costing, failed, measured, refused, run, set_state};
use tollgate_experiment::manifest::SubjectState;
use tollgate_experiment::recipe::Missing;
use tollgate_experiment::record::{Step, TrialRecord};
use tollgate_experiment::run_dir::RunRecords;
use tollgate_experiment::validity::Invalid;
use tollgate_report::analysis::{SubjectStatus, analyse};

/// A baseline that was measured, and `full`, of which there are these records.
fn with_full(trials: Vec<TrialRecord>) -> RunRecords {
    run(&["nginx", "full"], [blocks("nginx", &[10; 6]), trials].concat())
}

fn standing(run: &RunRecords) -> SubjectStatus {
    analysed(run, "full").status
}

fn notes(run: &RunRecords) -> Vec<String> {
    analyse(run).notes
}

#[test]
fn no_note_if_all_blocks_were_measured() {
    let run = with_full(blocks("full", &[30; 6]));
    assert_eq!(standing(&run), SubjectStatus::Measured);
    assert_eq!(analysed(&run, "nginx").status, SubjectStatus::Baseline);
    assert_eq!(notes(&run), [""; 0]);
}

#[test]
fn notes_why_a_subject_was_refused() {
    let run =
        with_full(vec![refused("full", 1, "xss got 200"), refused("full", 2, "sqli got 200")]);
    assert_eq!(standing(&run), SubjectStatus::Refused("sqli got 200".to_owned()));
    assert_eq!(notes(&run), ["full was refused: sqli got 200."]);
    let full = analysed(&run, "full");
    assert_eq!((full.trials, full.figures), (2, None));
    assert!(full.prices.is_empty());
}

#[test]
fn notes_last_output_of_a_subject_that_did_not_start() {
    let log = ["nginx: loading", "nginx: no such module"];
    let run = with_full(vec![failed("full", 1, Step::Start, "it ended with 1", &log)]);
    let told = "it did not start: it ended with 1 (nginx: no such module)";
    assert_eq!(standing(&run), SubjectStatus::Failed(told.to_owned()));
    assert_eq!(notes(&run), [format!("full failed: {told}.")]);
}

#[test]
fn only_failed_starts_have_their_last_output() {
    for (step, told) in [
        (Step::Configure, "it could not be configured: why"),
        (Step::Origin, "the origin ended: why"),
        (Step::Probe, "the probe failed: why"),
        (Step::Load, "the load could not be sent: why"),
    ] {
        let run = with_full(vec![failed("full", 1, step, "why", &["a line about other things"])]);
        assert_eq!(standing(&run), SubjectStatus::Failed(told.to_owned()));
    }
    let run = with_full(vec![failed("full", 1, Step::Start, "why", &[])]);
    assert_eq!(standing(&run), SubjectStatus::Failed("it did not start: why".to_owned()));
}

#[test]
fn notes_how_to_install_a_missing_subject() {
    let mut run = with_full(vec![]);
    let mend = Some("apt-get install -y nginx".to_owned());
    let missing = Missing { message: "no program `nginx`".to_owned(), hint: mend };
    set_state(&mut run, "full", SubjectState::Skipped { missing: missing.clone() });
    assert_eq!(standing(&run), SubjectStatus::Skipped(missing));
    assert_eq!(
        notes(&run),
        ["full was skipped: no program `nginx`. To fix this:\n    apt-get install -y nginx"]
    );
}

#[test]
fn a_subject_whose_config_cannot_be_made_is_failed() {
    let mut run = with_full(vec![]);
    let reason = "undefined value in nginx.conf:3".to_owned();
    set_state(&mut run, "full", SubjectState::Broken { reason: reason.clone() });
    assert_eq!(standing(&run), SubjectStatus::Failed(reason));
    assert_eq!(notes(&run), ["full failed: undefined value in nginx.conf:3."]);
}

#[test]
fn distinguishes_a_subject_without_trials() {
    let run = with_full(vec![]);
    assert_eq!(standing(&run), SubjectStatus::Missing);
    assert_eq!(notes(&run), ["full: the run ended before its first trial."]);
}

#[test]
fn counts_invalid_trials_by_reason() {
    let invalid = |block, invalid: Vec<Invalid>| {
        let mut measurement = costing(30);
        measurement.invalid = invalid;
        measured("full", block, measurement)
    };
    let mut trials = blocks("full", &[30; 2]);
    // The figures of one trial do not make a rule of their own.
    trials.push(invalid(3, vec![Invalid::Steal { percent: 7.0, limit_percent: 5.0 }]));
    let starved = Invalid::BackgroundCpu { percent: 12.0, limit_percent: 10.0 };
    trials.push(invalid(4, vec![Invalid::Steal { percent: 9.5, limit_percent: 5.0 }, starved]));
    trials.push(failed("full", 5, Step::Start, "the port was taken", &[]));
    trials.push(refused("full", 6, "xss got 200"));
    let run = with_full(trials);
    assert_eq!(standing(&run), SubjectStatus::Measured);
    assert_eq!(
        notes(&run),
        [
            "full: 1 of 6 trials is invalid: it did not start: the port was taken.",
            "full: 1 of 6 trials is invalid: other processes took more than 10 % of the CPUs.",
            "full: 2 of 6 trials are invalid: the hypervisor took more than 5 % of the CPUs.",
            "full: 1 of 6 trials is invalid: xss got 200.",
        ]
    );
    assert_eq!(analysed(&run, "full").figures.unwrap().n, 2);
}

#[test]
fn a_baseline_that_failed_leaves_the_others_without_a_price() {
    let trials =
        [vec![failed("nginx", 1, Step::Start, "why", &[])], blocks("full", &[30; 6])].concat();
    let run = run(&["nginx", "full"], trials);
    assert_eq!(
        analysed(&run, "nginx").status,
        SubjectStatus::Failed("it did not start: why".to_owned())
    );
    let full = analysed(&run, "full");
    assert_eq!(full.status, SubjectStatus::Measured);
    assert_eq!(full.figures.unwrap().cpu_us_per_request, Some(30.0));
    assert!(full.prices.is_empty());
}

#[test]
fn notes_an_incomplete_last_record_first() {
    let mut run = with_full(vec![]);
    run.cut_off = true;
    assert_eq!(
        notes(&run),
        [
            "The last record is incomplete and was ignored.",
            "full: the run ended before its first trial.",
        ]
    );
}
