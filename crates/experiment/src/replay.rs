//! Where the records of a run leave its plan: how a run that was cut off is taken up, and how a report
//! knows what ended it.

use crate::manifest::{CaseManifest, Manifest, SubjectManifest, SubjectState};
use crate::plan::stop::{EndedBy, SoFar};
use crate::plan::{Schedule, TrialPlan, TrialStatus};
use crate::precision::precision;
use crate::record::{Outcome, TrialRecord};
use crate::run_dir::RunRecords;
use std::collections::BTreeMap;
use std::time::Duration;

/// Where the records of a run leave its plan.
#[derive(Debug)]
pub struct Replay {
    /// The schedule, up to what is pending.
    pub schedule: Schedule,
    /// The first trial without a record, in a block that was begun.
    pub pending: Option<TrialPlan>,
    /// Records that are not of this plan.
    pub foreign_records: usize,
}

/// Goes through the plan as far as there are records of it.
pub fn replay(run: &RunRecords) -> Replay {
    let RunRecords { manifest, trials, .. } = run;
    let mut records: BTreeMap<_, TrialStatus> =
        trials.iter().map(|trial| (key_of(trial), TrialStatus::of(&trial.outcome))).collect();
    // Two records of one trial are none of the plan's doing.
    let twice = trials.len() - records.len();
    let mut schedule = schedule(manifest);
    while !records.is_empty() {
        schedule.begin_block();
        let before = records.len();
        while let Some(trial) = schedule.next_trial() {
            let Some(fate) = records.remove(&key(manifest, &trial)) else {
                return Replay {
                    schedule,
                    pending: Some(trial),
                    foreign_records: records.len() + twice,
                };
            };
            schedule.note(&trial, fate);
        }
        if records.len() == before {
            break;
        }
    }
    Replay { schedule, pending: None, foreign_records: records.len() + twice }
}

/// What ended a run.
pub fn ended_by(run: &RunRecords) -> EndedBy {
    let Replay { schedule, pending, .. } = replay(run);
    if pending.is_some() {
        return EndedBy::Interrupted;
    }
    ending(run, &schedule, &so_far(run, &schedule)).unwrap_or(EndedBy::Interrupted)
}

/// What a run has come to whose last block is complete.
pub fn so_far(run: &RunRecords, schedule: &Schedule) -> SoFar {
    let is_in = |case, subject| !schedule.is_given_up(case, subject);
    // Only a width asks for it, and it takes a while.
    let precision = run.manifest.experiment.stop.width.and_then(|_| precision(run, is_in));
    SoFar {
        blocks: schedule.block(),
        prices: priced(&run.manifest),
        took: run.trials.iter().map(|trial| Duration::from_secs_f64(trial.duration_s)).sum(),
        precision: precision.map(|precision| (precision.half_width, precision.n)),
    }
}

/// What ends a run whose last block is complete, if anything does.
pub fn ending(run: &RunRecords, schedule: &Schedule, so_far: &SoFar) -> Option<EndedBy> {
    match schedule.is_exhausted() {
        true => Some(EndedBy::Exhausted),
        false => run.manifest.experiment.stop.reached(so_far),
    }
}

/// How many subjects are priced beside each other: of the case that has most of them, all that are
/// there, without the baseline and its second time.
fn priced(manifest: &Manifest) -> usize {
    let experiment = &manifest.experiment;
    let is_priced = |subject: &&SubjectManifest| {
        matches!(subject.state, SubjectState::Present { .. })
            && subject.name != experiment.baseline
            && Some(&subject.name) != experiment.aa_subject.as_ref()
    };
    let of_case = |case: &CaseManifest| {
        let subjects = experiment.subjects.iter().filter(|subject| case.is_for(&subject.name));
        subjects.filter(is_priced).count()
    };
    experiment.cases.iter().map(of_case).max().unwrap_or(0)
}

/// The schedule of a run before its first block.
fn schedule(manifest: &Manifest) -> Schedule {
    let experiment = &manifest.experiment;
    let subjects = |case: &CaseManifest| -> Vec<usize> {
        let is_there = |subject: &SubjectManifest| {
            matches!(subject.state, SubjectState::Present { .. }) && case.is_for(&subject.name)
        };
        let all = (0..).zip(&experiment.subjects);
        all.filter(|(_, subject)| is_there(subject)).map(|(index, _)| index).collect()
    };
    let cases: Vec<Vec<usize>> = experiment.cases.iter().map(subjects).collect();
    let last = (0..).zip(&experiment.cases).filter(|(_, case)| case.rate_of.is_some());
    let last = last.map(|(index, _)| index);
    Schedule::new(&cases, manifest.seed).with_last(last)
}

type Key = (String, String, u32, u32);

fn key_of(trial: &TrialRecord) -> Key {
    (trial.case.clone(), trial.subject.clone(), trial.block, trial.attempt)
}

fn key(manifest: &Manifest, trial: &TrialPlan) -> Key {
    let experiment = &manifest.experiment;
    let case = experiment.cases[trial.case].name.clone();
    let subject = experiment.subjects[trial.subject].name.clone();
    (case, subject, trial.block, trial.attempt)
}

impl TrialStatus {
    /// The fate of a trial that came to this.
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Measured(measurement) if measurement.invalid.is_empty() => Self::Counts,
            Outcome::Measured(_) => Self::Invalid,
            Outcome::Refused(_) | Outcome::Failed(_) => Self::Unmeasured,
        }
    }
}
