//! What a report says of warm-ups that were to last until the subjects were steady.

use crate::records::{case, costing, measured, run};
use tollgate_experiment::record::{Measurement, TrialRecord, WarmUpRecord};
use tollgate_experiment::run_dir::RunRecords;
use tollgate_experiment::validity::Invalid;
use tollgate_report::analysis::analyse;

fn trial(subject: &str, block: u32, duration_s: f64, steady: Option<bool>) -> TrialRecord {
    let warm_up = Some(WarmUpRecord { duration_s, steady });
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
fn notes_warm_up_durations() {
    let mut run = until_steady(vec![
        trial("nginx", 1, 1.0, STEADY),
        trial("full", 1, 2.5, STEADY),
        trial("nginx", 2, 1.0, STEADY),
        trial("full", 2, 1.25, STEADY),
    ]);
    let told = "Warm-up until steady, at most 10.0 s: nginx 1.00 s, full 1.25 to 2.50 s.";
    assert_eq!(analyse(&run).notes, [told]);
    run.manifest.experiment.cases.push(case("other"));
    assert_eq!(analyse(&run).notes[0], told.replace("10.0 s:", "10.0 s (browse):"));
}

#[test]
fn counts_trials_that_were_not_steady() {
    let mut spoilt = costing(10);
    spoilt.invalid = vec![Invalid::NoResponse];
    spoilt.warm_up = Some(WarmUpRecord { duration_s: 10.0, steady: Some(false) });
    let run = until_steady(vec![
        trial("nginx", 1, 1.0, STEADY),
        trial("full", 1, 10.0, Some(false)),
        trial("nginx", 2, 1.0, STEADY),
        trial("full", 2, 1.0, STEADY),
        measured("full", 3, spoilt),
    ]);
    let told = "full was not yet steady at the end of the warm-up in 1 of 2 trials; they are valid, but the \
                system may still have been getting faster or slower.";
    let notes = analyse(&run).notes;
    assert!(notes.contains(&told.to_owned()), "{notes:?}");
    assert_eq!(notes.iter().filter(|note| note.contains("was not yet steady")).count(), 1);
}

#[test]
fn no_note_on_a_fixed_warm_up() {
    let trials = [1, 2].map(|block| ["nginx", "full"].map(|name| trial(name, block, 0.4, None)));
    let mut run = until_steady(trials.concat());
    run.manifest.experiment.cases[0].warmup_steady = false;
    assert_eq!(analyse(&run).notes, [""; 0]);
}
