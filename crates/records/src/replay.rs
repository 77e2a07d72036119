//! Replay of the records of a run through its plan: the position in the plan, the precision of the prices so far, and what
//! ends the run.

use crate::case::CaseManifest;
use crate::manifest::Manifest;
use crate::metric::{Metric, by_block, has_no_cpu, judged_by, pairs};
use crate::run_dir::RunRecords;
use crate::schedule::{ExtraBlocks, Schedule, TrialPlan, TrialStatus};
use crate::stop::{EndedBy, SoFar};
use crate::subject::SubjectManifest;
use crate::trial::TrialRecord;
use std::collections::BTreeMap;
use std::time::Duration;
use thiserror::Error;
use tollgate_stats::{half_width, ratio};

/// Position in the plan of a run after its records.
#[derive(Debug)]
pub struct Replay {
    pub schedule: Schedule,
    /// First trial without a record in an incomplete block.
    pub pending: Option<TrialPlan>,
    /// Number of records that do not match the plan: duplicates, and those after a missing one.
    foreign_records: usize,
}

/// Number of records that are not those of the plan.
#[derive(Debug, Error)]
#[error("{0} of its records do not match its plan (duplicated, modified, or after a missing one)")]
pub struct ForeignRecords(usize);

/// Replays the plan of a run as far as there are records.
pub fn replay(run: &RunRecords) -> Replay {
    let RunRecords { manifest, trials, .. } = run;
    let mut records: BTreeMap<_, TrialStatus> =
        trials.iter().map(|trial| (key_of(trial), TrialStatus::of(&trial.outcome))).collect();
    let duplicates = trials.len() - records.len();
    let mut schedule = schedule(manifest);
    while !records.is_empty() {
        schedule.begin_block();
        let before = records.len();
        while let Some(trial) = schedule.next_trial() {
            let Some(status) = records.remove(&key(manifest, &trial)) else {
                let foreign_records = records.len() + duplicates;
                return Replay { schedule, pending: Some(trial), foreign_records };
            };
            schedule.note(&trial, status);
        }
        if records.len() == before {
            break;
        }
    }
    Replay { schedule, pending: None, foreign_records: records.len() + duplicates }
}

/// Checks that the records are those of the plan, up to some trial.
pub fn check(run: &RunRecords) -> Result<(), ForeignRecords> {
    match replay(run).foreign_records {
        0 => Ok(()),
        count => Err(ForeignRecords(count)),
    }
}

pub fn ended_by(run: &RunRecords) -> EndedBy {
    let Replay { schedule, pending, .. } = replay(run);
    if pending.is_some() {
        return EndedBy::Interrupted;
    }
    ending(run, &schedule, &so_far(run, &schedule)).unwrap_or(EndedBy::Interrupted)
}

/// Returns the state of a run whose last block is complete.
pub fn so_far(run: &RunRecords, schedule: &Schedule) -> SoFar {
    let is_in = |case, subject| !schedule.is_given_up(case, subject);
    // Slow, and only needed for a width.
    let half_width = run.manifest.experiment.stop.width.and_then(|_| widest(run, is_in));
    SoFar {
        blocks: schedule.block(),
        took: run.trials.iter().map(|trial| Duration::from_secs_f64(trial.duration_s)).sum(),
        half_width,
    }
}

/// Returns what ends a run whose last block is complete, or `None` if it continues.
pub fn ending(run: &RunRecords, schedule: &Schedule, so_far: &SoFar) -> Option<EndedBy> {
    if schedule.is_exhausted() {
        Some(EndedBy::Exhausted)
    } else {
        match run.manifest.experiment.stop.reached(so_far) {
            Some(EndedBy::Blocks) if schedule.needs_extra_block() => None,
            ended_by => ended_by,
        }
    }
}

/// Returns the largest half-width of all prices in the metric of [`judged_by`], or `None` if one has no interval or if
/// there are none. `is_in` is false for an index of a case and of a subject that was given up: its price becomes no more
/// precise.
fn widest(run: &RunRecords, is_in: impl Fn(usize, usize) -> bool) -> Option<f64> {
    let experiment = &run.manifest.experiment;
    let is_baseline = |subject: &SubjectManifest| subject.name == experiment.baseline;
    let baseline_at = experiment.subjects.iter().position(is_baseline)?;
    let mut widest = None;
    for (case_at, case) in experiment.cases.iter().enumerate() {
        if !is_in(case_at, baseline_at) {
            continue;
        }
        let baseline = by_block(run, &case.name, &experiment.baseline);
        let metric = judged_by(case, &baseline);
        for (subject_at, subject) in experiment.subjects.iter().enumerate() {
            let trials = by_block(run, &case.name, &subject.name);
            // A subject without processes has no ratio of CPU times.
            let has_no_ratio = metric == Metric::CpuUsPerRequest && has_no_cpu(&trials);
            if subject_at == baseline_at
                || !case.runs(subject)
                || !is_in(case_at, subject_at)
                || has_no_ratio
            {
                continue;
            }
            let pairs = pairs(metric, &trials, &baseline);
            let half_width = half_width(&ratio(&pairs, run.manifest.seed)?)?;
            widest = Some(half_width.max(widest.unwrap_or(0.0)));
        }
    }
    widest
}

/// Returns the schedule of a run before its first block.
fn schedule(manifest: &Manifest) -> Schedule {
    let experiment = &manifest.experiment;
    let subjects = |case: &CaseManifest| -> Vec<usize> {
        let all = (0..).zip(&experiment.subjects);
        all.filter(|(_, subject)| case.runs(subject)).map(|(index, _)| index).collect()
    };
    let cases: Vec<Vec<usize>> = experiment.cases.iter().map(subjects).collect();
    let last = (0..).zip(&experiment.cases).filter(|(_, case)| case.load.rate_of().is_some());
    let is_baseline = |subject: &SubjectManifest| subject.name == experiment.baseline;
    let extra = experiment.subjects.iter().position(is_baseline).map(|baseline| ExtraBlocks {
        baseline,
        planned: experiment.stop.blocks,
        max: experiment.stop.extra_blocks,
    });
    Schedule::new(&cases, manifest.seed)
        .with_last(last.map(|(index, _)| index))
        .with_extra_blocks(extra.unwrap_or_default())
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
