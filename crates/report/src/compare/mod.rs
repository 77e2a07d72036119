//! Compares the prices of two runs.
//!
//! Absolute figures of two runs are not comparable, as the speed of a machine varies. Prices
//! are, the ratios to each run's own baseline, block by block.

pub mod fingerprint;
mod show;

pub use show::{Format, render};

use crate::analysis::{Analysis, CaseAnalysis, Figures, Prices, Range, analyse};
use fingerprint::Line;
use serde::Serialize;
use std::collections::BTreeMap;
use thiserror::Error;
use tollgate_experiment::metric;
use tollgate_experiment::metric::Metric;
use tollgate_experiment::run_dir::RunRecords;
use tollgate_stats::{Shift, Verdict, holm, ratio_of_samples, verdict};

/// Schema version of the JSON output.
pub const SCHEMA: u32 = 2;

#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    pub schema: u32,
    pub old: RunInShort,
    pub new: RunInShort,
    /// Differences below this share do not matter; taken from the new run.
    pub margin: f64,
    pub fingerprint: Vec<Line>,
    pub cases: Vec<CaseComparison>,
    /// Cases and subjects that only one run has, one line each.
    pub missing: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct RunInShort {
    pub title: String,
    /// RFC 3339, UTC.
    pub started_at: String,
    pub tollgate: String,
    pub machine: String,
    pub baseline: String,
}

#[derive(Debug, Clone, Serialize)]
pub struct CaseComparison {
    pub name: String,
    /// The common subjects, the baseline first.
    pub subjects: Vec<SubjectComparison>,
}

#[derive(Debug, Clone, Serialize)]
pub struct SubjectComparison {
    pub name: String,
    pub old: Side,
    pub new: Side,
    /// How its prices have changed; the baseline has none, and one that cannot be formed in both
    /// runs is left out.
    pub changes: BTreeMap<Metric, Change>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Side {
    pub status: &'static str,
    /// Medians over its valid trials.
    pub figures: Option<Figures>,
    /// What it costs over the run's baseline.
    pub prices: Prices,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Change {
    /// Number of blocks of the old run.
    pub n_old: usize,
    /// Number of blocks of the new run.
    pub n_new: usize,
    /// The new price ratio divided by the old one.
    pub ratio: Range,
    /// Corrected for the other subjects of the case.
    pub verdict: Verdict,
}

#[derive(Debug, Error)]
pub enum CompareError {
    #[error(
        "the old run prices its subjects against `{old}`, the new one against `{new}`; prices over different baselines say nothing of each other"
    )]
    Baselines { old: String, new: String },
    #[error("reading the fingerprint of a run")]
    Fingerprint(#[from] serde_json::Error),
}

pub fn compare(old: &RunRecords, new: &RunRecords) -> Result<Comparison, CompareError> {
    let (before, after) = (analyse(old), analyse(new));
    if before.baseline != after.baseline {
        return Err(CompareError::Baselines { old: before.baseline, new: after.baseline });
    }
    let missing = [
        only_in("case", &case_names(old), &case_names(new)),
        only_in("subject", &subject_names(old), &subject_names(new)),
    ];
    let mut cases = Vec::new();
    for case in &before.cases {
        let same = |other: &&CaseAnalysis| other.case.name == case.case.name;
        let Some(other) = after.cases.iter().find(same) else {
            continue;
        };
        let subjects = subjects(old, new, case, other, &before.baseline);
        cases.push(CaseComparison { name: case.case.name.clone(), subjects });
    }
    Ok(Comparison {
        schema: SCHEMA,
        fingerprint: fingerprint::differing(&old.manifest, &new.manifest)?,
        old: before.into(),
        new: after.into(),
        margin: new.manifest.experiment.margin,
        cases,
        missing: missing.concat(),
    })
}

impl Comparison {
    /// True if at least one price is in both runs.
    pub fn has_changes(&self) -> bool {
        self.cases.iter().flat_map(|case| &case.subjects).any(|subject| !subject.changes.is_empty())
    }
}

fn subjects(
    old: &RunRecords,
    new: &RunRecords,
    before: &CaseAnalysis,
    after: &CaseAnalysis,
    baseline: &str,
) -> Vec<SubjectComparison> {
    let mut subjects = Vec::new();
    for subject in &before.subjects {
        let same = after.subjects.iter().find(|other| other.name == subject.name);
        subjects.extend(same.map(|other| SubjectComparison {
            name: subject.name.clone(),
            old: Side {
                status: subject.status.word(),
                figures: subject.figures.clone(),
                prices: subject.prices.clone(),
            },
            new: Side {
                status: other.status.word(),
                figures: other.figures.clone(),
                prices: other.prices.clone(),
            },
            changes: BTreeMap::new(),
        }));
    }
    let again =
        [old, new].map(|run| run.manifest.experiment.aa_subject.as_deref().unwrap_or_default());
    for metric in Metric::ALL {
        let case = &before.case.name;
        let mut found: Vec<(&mut SubjectComparison, Shift, [usize; 2])> = subjects
            .iter_mut()
            .filter(|subject| subject.name != baseline)
            .filter_map(|subject| {
                let [old, new] =
                    [old, new].map(|run| ratios(run, case, &subject.name, baseline, metric));
                let shift = ratio_of_samples(&old, &new)?;
                Some((subject, shift, [old.len(), new.len()]))
            })
            .collect();
        // The more subjects a table has, the likelier one of them changes by chance. The baseline's
        // second time is none of them: it tests the runs, and is judged alone.
        let is_priced = |subject: &SubjectComparison| !again.contains(&subject.name.as_str());
        let priced = found.iter().filter(|(subject, ..)| is_priced(subject));
        let mut adjusted =
            holm(&priced.map(|(_, shift, _)| shift.p).collect::<Vec<_>>()).into_iter();
        for (subject, shift, [n_old, n_new]) in &mut found {
            let corrected = if is_priced(subject) { adjusted.next() } else { None };
            let p = corrected.unwrap_or(shift.p);
            let verdict = verdict(&shift.ratio, p, new.manifest.experiment.margin);
            let verdict = match metric.more_is_worse() {
                true => verdict,
                false => verdict.reversed(),
            };
            let change =
                Change { n_old: *n_old, n_new: *n_new, ratio: shift.ratio.into(), verdict };
            subject.changes.insert(metric, change);
        }
    }
    subjects
}

/// The price of each block in which both sides count and have the figure, as a ratio. Where a figure
/// is zero, as the CPU of no proxy is, it is no ratio, and what is made of it is none either.
fn ratios(run: &RunRecords, case: &str, subject: &str, baseline: &str, metric: Metric) -> Vec<f64> {
    let baselines = metric::valid(run, case, baseline);
    let ratio = |(block, trial): (u32, metric::Valid<'_>)| {
        let baseline = metric.of(baselines.get(&block)?.measurement)?;
        Some(metric.of(trial.measurement)? / baseline)
    };
    metric::valid(run, case, subject).into_iter().filter_map(ratio).collect()
}

fn case_names(run: &RunRecords) -> Vec<&str> {
    run.manifest.experiment.cases.iter().map(|case| case.name.as_str()).collect()
}

fn subject_names(run: &RunRecords) -> Vec<&str> {
    run.manifest.experiment.subjects.iter().map(|subject| subject.name.as_str()).collect()
}

fn only_in(kind: &str, old: &[&str], new: &[&str]) -> Vec<String> {
    let lines = |which: &str, names: &[&str], others: &[&str]| {
        let alone = names.iter().filter(|name| !others.contains(name));
        alone.map(|name| format!("only the {which} run has the {kind} {name}")).collect::<Vec<_>>()
    };
    [lines("old", old, new), lines("new", new, old)].concat()
}

impl From<Analysis> for RunInShort {
    fn from(analysis: Analysis) -> Self {
        Self {
            title: analysis.title,
            started_at: analysis.started_at,
            tollgate: analysis.tollgate,
            machine: analysis.machine,
            baseline: analysis.baseline,
        }
    }
}
