//! End of a run: its rule, the precision of its prices so far, and the replay of its records.
//!
//! A run ends on precision or on cost, never on its results: ending as soon as figures differ "enough" would find
//! differences that do not exist, while the width of an interval says nothing about its position.

use crate::manifest::{CaseManifest, Manifest, SubjectManifest};
use crate::metric::{Metric, by_block, has_no_cpu, judged_by, pairs};
use crate::plan::{ExtraBlocks, Schedule, TrialPlan, TrialStatus};
use crate::record::TrialRecord;
use crate::run_dir::RunRecords;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use thiserror::Error;
use tollgate_stats::{half_width, ratio};

/// Conditions that end a run. The first one met ends it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    pub blocks: u32,
    /// Largest relative half-width of a price in the metric of [`judged_by`].
    pub width: Option<f64>,
    /// Time of all trials, in seconds. No block starts that would exceed it.
    pub budget_s: Option<f64>,
    /// Limit for the blocks after `blocks` that replace invalid trials.
    #[serde(default)]
    pub extra_blocks: u32,
}

/// Reason for the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EndedBy {
    /// All blocks were run.
    #[error("all blocks were run")]
    Blocks,
    /// The intervals were narrow enough.
    #[error("the intervals reached the requested width")]
    Width,
    /// The time limit was reached.
    #[error("the time limit was reached")]
    Budget,
    /// All subjects were given up.
    #[error("every subject was given up")]
    Exhausted,
    /// The run was interrupted.
    #[error("the run was interrupted")]
    Interrupted,
}

/// State of a run after a complete block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SoFar {
    pub blocks: u32,
    /// Duration of all trials, including start and stop.
    pub took: Duration,
    /// Largest relative half-width of an interval; `None` if a price has no interval.
    pub half_width: Option<f64>,
}

/// Position in the plan of a run after its records.
#[derive(Debug)]
pub struct Replay {
    pub schedule: Schedule,
    /// First trial without a record in an incomplete block.
    pub pending: Option<TrialPlan>,
    /// Number of records that do not match the plan.
    pub foreign_records: usize,
}

impl Stop {
    /// A fixed number of blocks, and half as many extra ones.
    pub fn after(blocks: u32) -> Self {
        Self { blocks, width: None, budget_s: None, extra_blocks: blocks.div_ceil(2) }
    }

    /// Returns what ends the run after a complete block, or `None` if it continues.
    pub fn reached(&self, so_far: &SoFar) -> Option<EndedBy> {
        let is_narrow = |width: f64| so_far.half_width.is_some_and(|widest| widest <= width);
        if self.width.is_some_and(is_narrow) {
            return Some(EndedBy::Width);
        }
        if so_far.blocks >= self.blocks {
            return Some(EndedBy::Blocks);
        }
        let block_s = so_far.took.as_secs_f64() / f64::from(so_far.blocks.max(1));
        let is_spent = |budget_s: f64| so_far.took.as_secs_f64() + block_s > budget_s;
        self.budget_s.is_some_and(is_spent).then_some(EndedBy::Budget)
    }
}

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
    match schedule.is_exhausted() {
        true => Some(EndedBy::Exhausted),
        false => match run.manifest.experiment.stop.reached(so_far) {
            Some(EndedBy::Blocks) if schedule.needs_extra_block() => None,
            ended_by => ended_by,
        },
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
    let last = (0..).zip(&experiment.cases).filter(|(_, case)| case.rate_of.is_some());
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

#[cfg(test)]
mod tests {
    use super::*;

    const STOP: Stop =
        Stop { blocks: 100, width: Some(0.02), budget_s: Some(60.0), extra_blocks: 0 };

    fn so_far(blocks: u32, duration_s: u64, half_width: Option<f64>) -> SoFar {
        SoFar { blocks, took: Duration::from_secs(duration_s), half_width }
    }

    #[test]
    fn precision_ends_a_run() {
        assert_eq!(STOP.reached(&so_far(6, 10, Some(0.02))), Some(EndedBy::Width));
        assert_eq!(STOP.reached(&so_far(6, 10, Some(0.021))), None);
        assert_eq!(STOP.reached(&so_far(6, 10, None)), None);
        assert_eq!(Stop { width: None, ..STOP }.reached(&so_far(6, 10, Some(0.0))), None);
    }

    #[test]
    fn block_that_would_exceed_the_budget_is_not_started() {
        // Ten blocks in 50 s are 5 s each: an eleventh ends at 55 s, and after eleven a twelfth at 60.
        assert_eq!(STOP.reached(&so_far(10, 50, None)), None);
        assert_eq!(STOP.reached(&so_far(11, 55, None)), None);
        assert_eq!(STOP.reached(&so_far(12, 60, None)), Some(EndedBy::Budget));
        assert_eq!(STOP.reached(&so_far(1, 31, None)), Some(EndedBy::Budget));
    }

    #[test]
    fn fixed_number_of_blocks_ignores_time_and_precision() {
        assert_eq!(Stop::after(3).reached(&so_far(2, 9_999, Some(0.0))), None);
        assert_eq!(Stop::after(3).reached(&so_far(3, 0, None)), Some(EndedBy::Blocks));
    }
}
