//! Notes on open loops: trials that did not hold the rate, and trials in which the generator sent
//! late.

use tollgate_experiment::manifest::CaseManifest;
use tollgate_experiment::record::{Measurement, OpenLoopRecord, Outcome, TrialRecord, as_f64};
use tollgate_stats::number::{percent, significant};

/// A case with the rate that its trials were sent at, where that follows from another case: the one that
/// stood at the end.
pub(super) fn with_rate(case: &CaseManifest, trials: &[TrialRecord]) -> CaseManifest {
    let mut with_rate = case.clone();
    if let (Some(open_loop), Some(_)) = (&mut with_rate.open_loop, &case.rate_of) {
        open_loop.rate_per_s = rates(case, trials).last().map(|(rate_per_s, _)| *rate_per_s);
    }
    with_rate
}

/// The note on a rate that was lowered, because another case had its first valid trial late.
pub(super) fn fall(case: &CaseManifest, trials: &[TrialRecord]) -> Option<String> {
    case.rate_of.as_ref()?;
    let rates = rates(case, trials);
    let [(first, _), .., (last, block)] = rates.as_slice() else { return None };
    Some(format!(
        "{}: the rate was {}/s at first and {}/s from block {block} on, after the first valid trial of the slowest \
         subject. The figures include both.",
        case.name,
        significant(*first),
        significant(*last)
    ))
}

/// The rates that the trials of a case were sent at, each with the first block that had it, in their order.
fn rates(case: &CaseManifest, trials: &[TrialRecord]) -> Vec<(f64, u32)> {
    let of_case = trials.iter().filter(|trial| trial.case == case.name);
    let mut rates: Vec<(f64, u32)> =
        of_case.filter_map(|trial| Some((schedule(trial)?.rate_per_s, trial.block))).collect();
    rates.dedup_by_key(|(rate_per_s, _)| rate_per_s.to_bits());
    rates
}

/// The notes on one subject under one case. Only valid trials:
/// invalid ones are reported with their reason.
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
            "{name} did not hold the rate in {} of {all} trials: up to {} of the scheduled requests were not \
             sent, because no connection was free. Its requests/s is the rate that it held, and its latency \
             grows with the length of a trial.",
            behind.len(),
            percent(worst)
        ));
    }
    if !late.is_empty() {
        notes.push(format!(
            "{name}: the generator sent late in {} of {all} trials (p99 up to {} ms), so \
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
    as_f64(schedule.unsent) / as_f64(schedule.due.max(schedule.unsent).max(1))
}
