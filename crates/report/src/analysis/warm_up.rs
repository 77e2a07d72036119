//! Notes on warm-ups that last until the system is steady.

use tollgate_experiment::manifest::CaseManifest;
use tollgate_experiment::plan::TrialStatus;
use tollgate_experiment::record::{TrialRecord, WarmUpRecord};
use tollgate_stats::number::significant;

/// The durations of the warm-ups. `None` if the duration was fixed.
pub(super) fn lengths(
    case: &CaseManifest,
    is_only_case: bool,
    subjects: &[&str],
    trials: &[TrialRecord],
) -> Option<String> {
    let length = |subject: &&str| {
        let lasted = || warm_ups(&case.name, subject, trials).map(|warm_up| warm_up.duration_s);
        let shortest = significant(lasted().min_by(f64::total_cmp)?);
        let longest = significant(lasted().max_by(f64::total_cmp)?);
        Some(match shortest == longest {
            true => format!("{subject} {shortest} s"),
            false => format!("{subject} {shortest} to {longest} s"),
        })
    };
    let lengths: Vec<String> = subjects.iter().filter_map(length).collect();
    if !case.warmup_steady || lengths.is_empty() {
        return None;
    }
    let of_case = if is_only_case { String::new() } else { format!(" ({})", case.name) };
    Some(format!(
        "Warm-up until steady, at most {} s{of_case}: {}.",
        significant(case.warmup_s),
        lengths.join(", ")
    ))
}

/// The note on a subject that did not become steady.
pub(super) fn unsteady(
    name: &str,
    case: &str,
    subject: &str,
    trials: &[TrialRecord],
) -> Option<String> {
    let all = warm_ups(case, subject, trials).count();
    let unsteady = |warm_up: &WarmUpRecord| warm_up.steady == Some(false);
    let count = warm_ups(case, subject, trials).filter(unsteady).count();
    (count > 0).then(|| {
        format!(
            "{name} was not yet steady at the end of the warm-up in {count} of {all} trials; they are \
             valid, but the system may still have been getting faster or slower."
        )
    })
}

/// The warm-ups of a subject's valid trials; invalid trials are
/// reported with their reason.
fn warm_ups(
    case: &str,
    subject: &str,
    trials: &[TrialRecord],
) -> impl Iterator<Item = WarmUpRecord> {
    let of_subject = trials.iter().filter(move |t| t.case == case && t.subject == subject);
    let valid = of_subject.filter(|trial| TrialStatus::of(&trial.outcome) == TrialStatus::Counts);
    valid.filter_map(TrialRecord::warm_up).filter(|warm_up| warm_up.steady.is_some())
}
