//! Compares the prices of two runs.
//!
//! Absolute figures of two runs are not comparable, as the speed of a machine varies. Prices
//! are, the ratios to each run's own baseline, block by block.

mod render;

pub use render::{render, render_markdown};

use crate::analysis::{
    Analysis, CaseAnalysis, Figures, Prices, Range, SubjectAnalysis, analyse, oriented,
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use tollgate_records::case::CaseManifest;
use tollgate_records::difference::{Difference, differences};
use tollgate_records::error::bad_input;
use tollgate_records::files::hash_text;
use tollgate_records::manifest::{ExperimentManifest, Manifest};
use tollgate_records::metric::{self, Metric};
use tollgate_records::run_dir::RunRecords;
use tollgate_records::subject::{SubjectManifest, SubjectState};
use tollgate_stats::{Shift, Verdict, holm, ratio_of_samples, verdict};
use tollgate_traffic::load_shape::WarmUp;
use tollgate_traffic::units::Span;

/// Schema version of the JSON output.
const SCHEMA: u32 = 2;

#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    pub schema: u32,
    pub old: RunInShort,
    pub new: RunInShort,
    /// Differences below this share do not matter; taken from the new run.
    pub margin: f64,
    /// Differences other than the subjects' performance: machine, versions, configuration, CPU layout and tool.
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
    /// Changes of its prices, if both runs have them.
    pub changes: BTreeMap<Metric, Change>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Side {
    pub status: &'static str,
    /// Medians over its valid trials.
    pub figures: Option<Figures>,
    /// Relative to the run's baseline.
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

pub fn compare(old: &RunRecords, new: &RunRecords) -> anyhow::Result<Comparison> {
    let (before, after) = (analyse(old), analyse(new));
    if before.baseline != after.baseline {
        return Err(bad_input(format!(
            "the old run prices its subjects against `{}`, the new one against `{}`; prices against different \
             baselines are not comparable; choose a subject of both runs with --baseline",
            before.baseline, after.baseline
        )));
    }
    let [old_names, new_names] = [old, new].map(|run| {
        let ExperimentManifest { cases, subjects, .. } = &run.manifest.experiment;
        let subjects: Vec<&str> = subjects.iter().map(|subject| subject.name.as_str()).collect();
        (cases.iter().map(|case| case.name.as_str()).collect::<Vec<_>>(), subjects)
    });
    let missing = [
        only_in("case", &old_names.0, &new_names.0),
        only_in("subject", &old_names.1, &new_names.1),
    ];
    let mut cases = Vec::new();
    for case in &before.cases {
        let mut others = after.cases.iter();
        if let Some(other) = others.find(|other| other.case.name == case.case.name) {
            let subjects = subjects(old, new, case, other, &before.baseline);
            cases.push(CaseComparison { name: case.case.name.clone(), subjects });
        }
    }
    Ok(Comparison {
        schema: SCHEMA,
        fingerprint: fingerprint_differences(&old.manifest, &new.manifest)?,
        old: before.into(),
        new: after.into(),
        margin: new.manifest.experiment.margin,
        cases,
        missing: missing.concat(),
    })
}

/// Fails if the roles of two runs were divided between hosts in different ways: their prices differ by the layout alone.
pub fn check_layouts(old: &Manifest, new: &Manifest) -> anyhow::Result<()> {
    if roles(old) == roles(new) {
        return Ok(());
    }
    let [old, new] = [old, new].map(|run| match &roles(run)[..] {
        [] => "on one machine".to_owned(),
        roles => format!("on hosts of their own ({})", roles.join(", ")),
    });
    Err(bad_input(format!(
        "the old run has its roles {old}, the new one {new}; prices of different layouts are not comparable; to compare \
         them nevertheless, add --across-layouts"
    )))
}

/// Roles with hosts of their own. The same roles on other hosts are the same layout.
fn roles(run: &Manifest) -> Vec<&str> {
    run.hosts.iter().map(|role| role.name.as_str()).collect()
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
    let side = |subject: &SubjectAnalysis| Side {
        status: (&subject.status).into(),
        figures: subject.figures.clone(),
        prices: subject.prices.clone(),
    };
    let subject = |subject: &SubjectAnalysis| {
        Some(SubjectComparison {
            name: subject.name.clone(),
            old: side(subject),
            new: side(after.subject(&subject.name)?),
            changes: BTreeMap::new(),
        })
    };
    let mut subjects: Vec<SubjectComparison> = before.subjects.iter().filter_map(subject).collect();
    let again =
        [old, new].map(|run| run.manifest.experiment.aa_subject.as_deref().unwrap_or_default());
    for &metric in Metric::ALL {
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
        // The more subjects there are, the more likely one of them changes by chance. The repeated baseline is
        // judged alone, as a test of the runs.
        let is_priced = |subject: &SubjectComparison| !again.contains(&subject.name.as_str());
        let priced = found.iter().filter(|(subject, ..)| is_priced(subject));
        let mut adjusted =
            holm(&priced.map(|(_, shift, _)| shift.p).collect::<Vec<_>>()).into_iter();
        for (subject, shift, [n_old, n_new]) in &mut found {
            let corrected = if is_priced(subject) { adjusted.next() } else { None };
            let p = corrected.unwrap_or(shift.p);
            let verdict = verdict(&shift.ratio, p, new.manifest.experiment.margin);
            let verdict = oriented(metric, verdict);
            let (n_old, n_new, ratio) = (*n_old, *n_new, shift.ratio.into());
            subject.changes.insert(metric, Change { n_old, n_new, ratio, verdict });
        }
    }
    subjects
}

/// The ratio to the baseline in each block in which both are valid and have the figure. A ratio of or to zero, such as
/// the CPU without a proxy, has no logarithm and therefore no change.
fn ratios(run: &RunRecords, case: &str, subject: &str, baseline: &str, metric: Metric) -> Vec<f64> {
    let baselines = metric::valid(run, case, baseline);
    let ratio = |(block, trial): (u32, metric::Valid<'_>)| {
        let baseline = metric.of(baselines.get(&block)?.measurement)?;
        Some(metric.of(trial.measurement)? / baseline)
    };
    metric::valid(run, case, subject).into_iter().filter_map(ratio).collect()
}

fn only_in(kind: &str, old: &[&str], new: &[&str]) -> Vec<String> {
    let only_old = old.iter().filter(|name| !new.contains(name)).map(|name| ("old", name));
    let only_new = new.iter().filter(|name| !old.contains(name)).map(|name| ("new", name));
    let line = |(which, name)| format!("only the {which} run has the {kind} {name}");
    only_old.chain(only_new).map(line).collect()
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

/// A difference between two runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    pub what: String,
    pub old: Option<String>,
    pub new: Option<String>,
}

/// The differences between two runs, in the order of their names. Seed and time differ in every run and are left out,
/// as are cases and subjects that only one run has.
fn fingerprint_differences(old: &Manifest, new: &Manifest) -> anyhow::Result<Vec<Line>> {
    let differences = differences(&fingerprint(old, new)?, &fingerprint(new, old)?);
    let line = |Difference { path, before, after }: Difference| Line {
        what: path.join(", "),
        old: before,
        new: after,
    };
    let mut lines: Vec<Line> = differences.into_iter().map(line).collect();
    lines.sort_by(|a, b| a.what.cmp(&b.what));
    Ok(lines)
}

/// The fingerprint of a run, with the cases and subjects that the other run has too.
fn fingerprint(run: &Manifest, other: &Manifest) -> anyhow::Result<Value> {
    let mut parts = Map::new();
    parts.insert("tollgate".to_owned(), json!(run.tollgate));
    parts.insert("machine".to_owned(), serde_json::to_value(&run.environment)?);
    parts.insert("layout".to_owned(), serde_json::to_value(&run.cpu_layout)?);
    parts.insert("roles".to_owned(), json!(roles(run)));
    let others = &other.experiment;
    for case in &run.experiment.cases {
        if others.cases.iter().any(|other| other.name == case.name) {
            parts.insert(format!("case {}", case.name), case_fingerprint(run, case)?);
        }
    }
    for subject in &run.experiment.subjects {
        if others.subjects.iter().any(|other| other.name == subject.name) {
            parts.insert(format!("subject {}", subject.name), subject_fingerprint(subject)?);
        }
    }
    Ok(Value::Object(parts))
}

fn case_fingerprint(run: &Manifest, case: &CaseManifest) -> anyhow::Result<Value> {
    let mut value = serde_json::to_value(case)?;
    // A duration and a limit are not comparable as numbers.
    value["load"]["warm_up"] = json!(match case.load.warm_up {
        WarmUp::For(time) => Span(time).to_string(),
        WarmUp::Steady { within } => format!("until steady, at most {}", Span(within)),
    });
    // Mixes are equal if their contents are.
    value["mix_file"] = Value::Null;
    value["mix"] = json!(run.experiment.mixes.get(&case.mix_file).map(|text| hash_text(text)));
    Ok(value)
}

fn subject_fingerprint(subject: &SubjectManifest) -> anyhow::Result<Value> {
    let options = subject.options.iter();
    let mut parts: Map<String, Value> = options
        .map(|(name, value)| Ok((name.clone(), serde_json::to_value(value)?)))
        .collect::<anyhow::Result<_>>()?;
    let mut insert = |what: String, value: &str| parts.insert(what, json!(value));
    insert("system".to_owned(), &subject.system);
    insert("prefix".to_owned(), &subject.prefix);
    match &subject.state {
        SubjectState::Present { installed, configs, referenced } => {
            insert("version".to_owned(), &installed.version.join(", "));
            if let Some(rule_set) = &installed.rule_set {
                insert(format!("rule set {}", rule_set.name), &rule_set.hash);
            }
            for (file, hash) in &installed.hashes {
                insert(format!("program {}", file.display()), hash);
            }
            for (file, hash) in configs {
                insert(format!("config {file}"), hash);
            }
            for (file, hash) in referenced {
                insert(format!("rules {}", file.display()), hash);
            }
        }
        SubjectState::Skipped { missing } => {
            insert("skipped".to_owned(), &missing.message);
        }
        SubjectState::Broken { reason } => {
            insert("broken".to_owned(), reason);
        }
    }
    Ok(Value::Object(parts))
}
