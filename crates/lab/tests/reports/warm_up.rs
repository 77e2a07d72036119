//! What a report says of warm-ups that were to last until the subjects were steady.

use crate::records::{case, costing, measured, run};
use tollgate_lab::analysis::analyse;
use tollgate_lab::record::{Measurement, TrialRecord, WarmUpRecord};
use tollgate_lab::run_dir::RunRecords;
use tollgate_lab::trial::validity::Invalid;

fn trial(subject: &str, block: u32, lasted_s: f64, steady: Option<bool>) -> TrialRecord {
    let warm_up = Some(WarmUpRecord { lasted_s, steady });
    measured(subject, block, Measurement { warm_up, ..costing(10) })
}

fn until_steady(trials: Vec<TrialRecord>) -> RunRecords {
    let mut run = run(&["nginx", "full"], trials);
    run.manifest.experiment.stop.blocks = 2;
    let case = &mut run.manifest.experiment.cases[0];
    (case.warmup_s, case.warmup_steady) = (10.0, true);
    run
}

const STEADY: Option<bool> = Some(true);

#[test]
fn how_long_it_took_is_told_of_each_subject() {
    let mut run = until_steady(vec![
        trial("nginx", 1, 1.0, STEADY),
        trial("full", 1, 2.5, STEADY),
        trial("nginx", 2, 1.0, STEADY),
        trial("full", 2, 1.25, STEADY),
    ]);
    let told = "Warm-up until the figures stand still, stopped after 10.0 s: nginx 1.00 s, full 1.25 to \
                2.50 s.";
    assert_eq!(analyse(&run).notes, [told]);
    run.manifest.experiment.cases.push(case("other"));
    assert_eq!(analyse(&run).notes[0], told.replace("10.0 s:", "10.0 s (browse):"));
}

#[test]
fn trials_that_were_not_steady_are_counted() {
    let mut spoilt = costing(10);
    spoilt.invalid = vec![Invalid::NoAnswer];
    spoilt.warm_up = Some(WarmUpRecord { lasted_s: 10.0, steady: Some(false) });
    let run = until_steady(vec![
        trial("nginx", 1, 1.0, STEADY),
        trial("full", 1, 10.0, Some(false)),
        trial("nginx", 2, 1.0, STEADY),
        trial("full", 2, 1.0, STEADY),
        measured("full", 3, spoilt),
    ]);
    let told = "full was not steady yet when the warm-up was over in 1 of 2 trials; they count, and what \
                they found may be of a system that still gets faster or slower.";
    let notes = analyse(&run).notes;
    assert!(notes.contains(&told.to_owned()), "{notes:?}");
    assert_eq!(notes.iter().filter(|note| note.contains("was not steady")).count(), 1);
}

#[test]
fn a_warm_up_of_a_given_time_needs_no_note() {
    let trials = [1, 2].map(|block| ["nginx", "full"].map(|name| trial(name, block, 0.4, None)));
    let mut run = until_steady(trials.concat());
    run.manifest.experiment.cases[0].warmup_steady = false;
    assert_eq!(analyse(&run).notes, [""; 0]);
}
