//! Cases that are for some of the subjects, and cases that are measured over a number of requests.

use crate::html::source;
use crate::records::{CASE, case, costing, measured, run};
use tollgate_experiment::run_dir::RunRecords;
use tollgate_experiment::stop::EndedBy;
use tollgate_experiment::stop::ended_by;
use tollgate_report::analysis::{Analysis, analyse};
use tollgate_report::{csv, html, rows};

/// Two cases: one for all three subjects, one for the baseline and `full`; one block of both.
fn of_two_cases() -> RunRecords {
    let mut trials: Vec<_> = ["nginx", "light", "full"]
        .into_iter()
        .map(|subject| measured(subject, 1, costing(10)))
        .collect();
    for subject in ["nginx", "full"] {
        let mut trial = measured(subject, 1, costing(20));
        trial.case = "short".to_owned();
        trials.push(trial);
    }
    let mut run = run(&["nginx", "light", "full"], trials);
    let mut short = case("short");
    short.only_subjects = ["nginx", "full"].map(str::to_owned).to_vec();
    run.manifest.experiment.cases.push(short);
    run.manifest.experiment.stop.blocks = 1;
    run
}

fn subjects(analysis: &Analysis, case: usize) -> Vec<&str> {
    analysis.cases[case].subjects.iter().map(|subject| subject.name.as_str()).collect()
}

#[test]
fn a_case_tells_of_its_own_subjects_alone() {
    let analysis = analyse(&of_two_cases());
    assert_eq!(subjects(&analysis, 0), ["nginx", "light", "full"]);
    assert_eq!(subjects(&analysis, 1), ["nginx", "full"]);
    assert!(!analysis.notes.iter().any(|note| note.contains("light (short)")), "{analysis:?}");
    let lines = csv::render(&analysis).unwrap();
    assert!(lines.contains("\nshort,full,nginx,measured"), "{lines}");
    assert!(!lines.contains("short,light"), "{lines}");
}

#[test]
fn a_run_is_complete_when_each_case_has_had_its_own_subjects() {
    let whole = of_two_cases();
    assert_eq!(ended_by(&whole), EndedBy::Blocks);
    for (place, trial) in whole.trials.iter().enumerate() {
        let mut cut = whole.clone();
        cut.trials.remove(place);
        assert_eq!(ended_by(&cut), EndedBy::Interrupted, "{} {}", trial.case, trial.subject);
    }
}

#[test]
fn a_number_of_requests_is_told_in_place_of_a_time() {
    let told = |requests| {
        let mut run = of_two_cases();
        run.manifest.experiment.cases[0].requests = requests;
        let analysis = analyse(&run);
        (rows::load_line(&analysis, &analysis.cases[0]), html::render(&source(run)).unwrap())
    };
    let shape = "losed loop, 50 connections, keep-alive; 1 block, ";
    let (line, page) = told(Some(10_000));
    assert_eq!(line, format!("{CASE}: c{shape}10,000 requests per trial"));
    assert!(page.contains(&format!("C{shape}10,000 requests per trial")), "{page}");
    let (line, _) = told(None);
    assert_eq!(line, format!("{CASE}: c{shape}2.50 s per trial"));
}
