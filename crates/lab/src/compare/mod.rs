//! Two runs side by side: what the same subjects cost in each, and whether that has changed.
//!
//! Figures of two runs are not compared: a machine is not as fast today as it was yesterday. Prices
//! are, the ratios to each run's own baseline, block by block.

pub mod fingerprint;
mod show;

pub use show::{Format, render};

use crate::analysis::{Analysis, CaseAnalysis, Figures, Metric, Prices, Range, analyse};
use crate::blocks;
use crate::run_dir::RunRecords;
use fingerprint::Line;
use serde::Serialize;
use std::collections::BTreeMap;
use thiserror::Error;
use tollgate_stats::{Shift, Verdict, holm, ratio_of_samples, verdict};

/// The version of the shape of a comparison in JSON.
pub const SCHEMA: u32 = 1;

/// Two runs side by side.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The version of this shape.
    pub schema: u32,
    /// The run that came first.
    pub old: RunInShort,
    /// The run that is held against it.
    pub new: RunInShort,
    /// What is too small to matter, as a share: that of the new run.
    pub margin: f64,
    /// The lines in which the fingerprints of the runs differ.
    pub fingerprint: Vec<Line>,
    /// The cases that both runs have.
    pub cases: Vec<CaseComparison>,
    /// What only one of the runs has, a line each.
    pub missing: Vec<String>,
}

/// Which run it was.
#[derive(Debug, Clone, Serialize)]
pub struct RunInShort {
    /// The question that its experiment asks.
    pub title: String,
    /// When it began, RFC 3339, UTC.
    pub started_at: String,
    /// The version and commit of the tool that made it.
    pub tollgate: String,
    /// The machine, in one line.
    pub machine: String,
    /// What its subjects are priced against.
    pub baseline: String,
}

/// A case that both runs have.
#[derive(Debug, Clone, Serialize)]
pub struct CaseComparison {
    /// Its name.
    pub name: String,
    /// The subjects that both runs have, the baseline first.
    pub subjects: Vec<SubjectComparison>,
}

/// A subject that both runs have.
#[derive(Debug, Clone, Serialize)]
pub struct SubjectComparison {
    /// Its name.
    pub name: String,
    /// What the old run found.
    pub old: Side,
    /// What the new run found.
    pub new: Side,
    /// How its prices have changed; the baseline has none, and one that cannot be formed in both
    /// runs is left out.
    pub changes: BTreeMap<Metric, Change>,
}

/// What one run found of a subject.
#[derive(Debug, Clone, Serialize)]
pub struct Side {
    /// Whether it has figures, in a word.
    pub standing: &'static str,
    /// Medians over its valid trials.
    pub figures: Option<Figures>,
    /// What it costs over the run's baseline.
    pub prices: Prices,
}

/// How a price has changed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Change {
    /// Blocks of the old run that have the price.
    pub n_old: usize,
    /// Blocks of the new run that have it.
    pub n_new: usize,
    /// The new price, a ratio to its baseline, over the old one.
    pub ratio: Range,
    /// What that means, beside the other subjects of the case.
    pub verdict: Verdict,
}

/// Why two runs cannot be compared.
#[derive(Debug, Error)]
pub enum CompareError {
    /// Their prices are not over the same.
    #[error(
        "the old run prices its subjects against `{old}`, the new one against `{new}`; prices over different baselines say nothing of each other"
    )]
    Baselines {
        /// The old run's baseline.
        old: String,
        /// The new run's baseline.
        new: String,
    },
    /// A fingerprint cannot be laid out in lines.
    #[error("reading the fingerprint of a run")]
    Fingerprint(#[from] serde_json::Error),
}

/// Compares two runs.
///
/// # Errors
///
/// They have different baselines.
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
    /// Whether any price can be held against its old one.
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
                standing: subject.standing.word(),
                figures: subject.figures.clone(),
                prices: subject.prices.clone(),
            },
            new: Side {
                standing: other.standing.word(),
                figures: other.figures.clone(),
                prices: other.prices.clone(),
            },
            changes: BTreeMap::new(),
        }));
    }
    let again = [old, new].map(|run| run.manifest.experiment.again.as_deref().unwrap_or_default());
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
    let baselines = blocks::valid(run, case, baseline);
    let ratio = |(block, trial): (u32, blocks::Valid<'_>)| {
        let baseline = metric.of(baselines.get(&block)?.measurement)?;
        Some(metric.of(trial.measurement)? / baseline)
    };
    blocks::valid(run, case, subject).into_iter().filter_map(ratio).collect()
}

fn case_names(run: &RunRecords) -> Vec<&str> {
    run.manifest.experiment.cases.iter().map(|case| case.name.as_str()).collect()
}

fn subject_names(run: &RunRecords) -> Vec<&str> {
    run.manifest.experiment.subjects.iter().map(|subject| subject.name.as_str()).collect()
}

/// What only one run has of a kind, a line each.
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
