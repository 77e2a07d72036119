//! What a reader has to know of warm-ups that were to last until the figures stood still.

use crate::manifest::CaseManifest;
use crate::plan::Fate;
use crate::record::{TrialRecord, WarmUpRecord};
use crate::report::number::significant;

/// How long the warm-ups of a case lasted; none where their time was given.
pub(super) fn lengths(
    case: &CaseManifest,
    is_only_case: bool,
    subjects: &[&str],
    trials: &[TrialRecord],
) -> Option<String> {
    let length = |subject: &&str| {
        let lasted = || warm_ups(&case.name, subject, trials).map(|warm_up| warm_up.lasted_s);
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
        "Warm-up until the figures stand still, stopped after {} s{of_case}: {}.",
        significant(case.warmup_s),
        lengths.join(", ")
    ))
}

/// The note on a subject that was not steady in time; `name` is what it is called in it.
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
            "{name} was not steady yet when the warm-up was over in {count} of {all} trials; they \
             count, and what they found may be of a system that still gets faster or slower."
        )
    })
}

/// The warm-ups of a subject that were to end when it was steady. Valid trials only: the others are
/// told of with the rule that they broke.
fn warm_ups(
    case: &str,
    subject: &str,
    trials: &[TrialRecord],
) -> impl Iterator<Item = WarmUpRecord> {
    let of_subject = trials.iter().filter(move |t| t.case == case && t.subject == subject);
    let valid = of_subject.filter(|trial| Fate::of(&trial.outcome) == Fate::Counts);
    valid.filter_map(TrialRecord::warm_up).filter(|warm_up| warm_up.steady.is_some())
}
