//! What a reader has to know of an open loop: where the rate was not held, and where the generator was
//! late.

use crate::manifest::CaseManifest;
use crate::record::{Measurement, OpenLoopRecord, Outcome, TrialRecord, as_f64};
use crate::report::number::{percent, significant};

/// A case with the rate that its trials were sent at, where that follows from another case.
pub(super) fn with_rate(case: &CaseManifest, trials: &[TrialRecord]) -> CaseManifest {
    let mut case = case.clone();
    if let (Some(open_loop), Some(_)) = (&mut case.open_loop, &case.rate_of) {
        let mut of_case = trials.iter().filter(|trial| trial.case == case.name);
        open_loop.rate_per_s = of_case.find_map(|trial| Some(schedule(trial)?.rate_per_s));
    }
    case
}

/// The notes on one subject under one case; `name` is what it is called in them. Valid trials only:
/// the others are told of with the rule that they broke.
pub(super) fn notes(name: &str, case: &str, subject: &str, trials: &[TrialRecord]) -> Vec<String> {
    let of_subject = trials.iter().filter(|trial| trial.case == case && trial.subject == subject);
    let schedules: Vec<&OpenLoopRecord> = of_subject.filter_map(valid_schedule).collect();
    let all = schedules.len();
    let behind: Vec<&OpenLoopRecord> =
        schedules.iter().copied().filter(|schedule| schedule.fell_behind()).collect();
    let late: Vec<f64> = schedules
        .iter()
        .filter(|schedule| schedule.is_late())
        .filter_map(|schedule| schedule.lateness_p99_ms)
        .collect();
    let mut notes = Vec::new();
    let worst = behind.iter().map(|schedule| share_overdue(schedule)).fold(0.0, f64::max);
    if !behind.is_empty() {
        notes.push(format!(
            "{name} did not hold the rate in {} of {all} trials: up to {} of what was due was never \
             sent, because no connection was free. Its requests/s are what it held, and its latency \
             grows with the length of a trial.",
            behind.len(),
            percent(worst)
        ));
    }
    if !late.is_empty() {
        notes.push(format!(
            "{name}: the generator was itself late in {} of {all} trials (p99 up to {} ms), so that \
             the latency is an upper bound.",
            late.len(),
            significant(late.iter().copied().fold(0.0, f64::max))
        ));
    }
    notes
}

fn valid_schedule(trial: &TrialRecord) -> Option<&OpenLoopRecord> {
    measured(trial).filter(|measurement| measurement.invalid.is_empty())?.open_loop.as_ref()
}

fn schedule(trial: &TrialRecord) -> Option<&OpenLoopRecord> {
    measured(trial)?.open_loop.as_ref()
}

fn measured(trial: &TrialRecord) -> Option<&Measurement> {
    match &trial.outcome {
        Outcome::Measured(measurement) => Some(measurement),
        Outcome::Refused(_) | Outcome::Failed(_) => None,
    }
}

fn share_overdue(schedule: &OpenLoopRecord) -> f64 {
    as_f64(schedule.overdue) / as_f64(schedule.due.max(schedule.overdue).max(1))
}
