//! What each file of a rule set costs, and what is blocked because of it: the prices of subjects that lack
//! a file, turned round.

use super::{CaseAnalysis, Metric, Price, Range, SubjectAnalysis};
use crate::ablation::{AblatedFile, Ablation};
use crate::record::{Outcome, TrialRecord};
use crate::report::number::{percent, significant};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;
use tollgate_stats::Verdict;
use tollgate_traffic::Class;

/// What one case says of the files of a rule set.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AblationFigures {
    /// The subject with all of them.
    pub subject: String,
    /// What the rule set is called.
    pub rule_set: String,
    /// The files that were taken out, the dearest first.
    pub files: Vec<FileFigures>,
    /// All of them together, where those are several.
    pub all: Option<FileFigures>,
    /// The files that stayed, as others depend on them, in the order in which they are read.
    pub kept: Vec<KeptFile>,
}

/// What a file of rules costs, and what is blocked because of it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FileFigures {
    /// The file.
    pub file: String,
    /// The subject without it.
    pub subject: String,
    /// Its price; none where a side has no valid trial.
    pub price: Option<FilePrice>,
    /// The attacks, by template, whose request in the probe was blocked with it and not without it.
    pub attacks: Vec<String>,
    /// The harmless ones likewise.
    pub harmless: Vec<String>,
    /// How many exceptions from its rules, in other files, were taken out with it.
    pub exceptions: usize,
}

/// What a file costs: the whole less what is left without it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct FilePrice {
    /// Blocks in which both are valid.
    pub n: usize,
    /// CPU microseconds a request.
    pub cpu_us: Range,
    /// The same as a share of what the whole takes, from 0 to 1; below 0 where it is dearer without it.
    pub share: Option<Range>,
    /// Whether it costs more than nothing, beside all the other files.
    pub verdict: Option<Verdict>,
}

/// A file that stayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KeptFile {
    /// The file.
    pub file: String,
    /// Why.
    pub why: String,
}

/// The figures of one case, whose subjects are these and whose trials are among those.
pub(super) fn figures(
    ablation: &Ablation,
    case: &str,
    subjects: &[SubjectAnalysis],
    trials: &[TrialRecord],
) -> AblationFigures {
    let probes = Probes { case, trials };
    let whole = subjects.iter().find(|subject| subject.name == ablation.subject);
    let always = probes.always_blocked(&ablation.subject);
    let of = |file: &str, subject: &str, exceptions: usize| {
        let found = subjects.iter().find(|found| found.name == subject);
        let ever = probes.ever_blocked(subject);
        let lost = |class: Class| -> Vec<String> {
            let templates = whole.iter().flat_map(|whole| &whole.templates);
            let of_class = templates.filter(|template| template.class == class);
            let names = of_class.map(|template| template.name.as_str());
            let is_lost = |name: &&str| {
                always.contains(name) && ever.as_ref().is_some_and(|ever| !ever.contains(name))
            };
            names.filter(is_lost).map(str::to_owned).collect()
        };
        FileFigures {
            file: file.to_owned(),
            subject: subject.to_owned(),
            price: found.and_then(|found| found.prices.get(&Metric::CpuUsPerRequest)).map(turned),
            attacks: lost(Class::Malicious),
            harmless: lost(Class::Benign),
            exceptions,
        }
    };
    let taken_out =
        |file: &AblatedFile| Some(of(&file.file, file.subject.as_ref()?, file.exceptions));
    let mut files: Vec<FileFigures> = ablation.files.iter().filter_map(taken_out).collect();
    let cost = |file: &FileFigures| file.price.map_or(f64::NEG_INFINITY, |p| p.cpu_us.estimate);
    files.sort_by(|a, b| cost(b).total_cmp(&cost(a)));
    let kept = ablation
        .files
        .iter()
        .filter_map(|file| Some(KeptFile { file: file.file.clone(), why: file.kept.clone()? }));
    AblationFigures {
        subject: ablation.subject.clone(),
        rule_set: ablation.rule_set.clone(),
        all: ablation.without_all.as_ref().map(|all| {
            let exceptions = files.iter().map(|file| file.exceptions).sum();
            of(&format!("all {} together", files.len()), all, exceptions)
        }),
        files,
        kept: kept.collect(),
    }
}

/// The price of what was taken out, from that of what was left.
fn turned(left: &Price) -> FilePrice {
    let flip = |range: &Range, flipped: fn(f64) -> f64| Range {
        estimate: flipped(range.estimate),
        low: flipped(range.high),
        high: flipped(range.low),
        interval: range.interval,
    };
    let verdict = |verdict: Verdict| match verdict {
        Verdict::CostsMore => Verdict::CostsLess,
        Verdict::CostsLess => Verdict::CostsMore,
        same @ (Verdict::Same | Verdict::NotSettled) => same,
    };
    FilePrice {
        n: left.n,
        // Added to zero, as minus zero would be told with its sign.
        cpu_us: flip(&left.difference, |value| 0.0 - value),
        share: left.ratio.as_ref().map(|ratio| flip(ratio, |value| 1.0 - value)),
        verdict: left.verdict.map(verdict),
    }
}

/// What was blocked in the probes before the trials of one case.
struct Probes<'a> {
    case: &'a str,
    trials: &'a [TrialRecord],
}

impl<'a> Probes<'a> {
    fn of(&self, subject: &str) -> impl Iterator<Item = BTreeSet<&'a str>> {
        let is_it = move |trial: &&TrialRecord| trial.case == self.case && trial.subject == subject;
        self.trials.iter().filter(is_it).filter_map(|trial| match &trial.outcome {
            Outcome::Measured(measurement) => {
                let blocked = measurement.blocked_in_probe.as_ref()?;
                Some(blocked.iter().map(String::as_str).collect())
            }
            Outcome::Refused(_) | Outcome::Failed(_) => None,
        })
    }

    /// What each of them blocked.
    fn always_blocked(&self, subject: &str) -> BTreeSet<&'a str> {
        let in_both = |one: BTreeSet<&'a str>, other| one.intersection(&other).copied().collect();
        self.of(subject).reduce(in_both).unwrap_or_default()
    }

    /// What any of them blocked; none without a probe.
    fn ever_blocked(&self, subject: &str) -> Option<BTreeSet<&'a str>> {
        self.of(subject).reduce(|one, other| one.union(&other).copied().collect())
    }
}

/// How many files are named in the sentence.
const NAMED: usize = 3;

/// The answer: what the whole costs, and which files most of it.
pub(super) fn sentence(case: &CaseAnalysis, figures: &AblationFigures) -> String {
    let AblationFigures { subject, files, .. } = figures;
    let whole = case.subjects.iter().find(|one| &one.name == subject);
    let Some(cpu) = whole.and_then(|whole| whole.figures.as_ref()?.cpu_us_per_request) else {
        return format!("There is no price, because {subject} has no valid trial.");
    };
    let mut sentence = format!("A request costs {subject} {} µs of CPU", significant(cpu));
    let settled = || files.iter().filter(|f| f.verdict() == Some(Verdict::CostsMore));
    let named: Vec<String> = settled().take(NAMED).filter_map(FileFigures::clause).collect();
    let dearest = files.first().and_then(FileFigures::clause);
    match (&named[..], dearest) {
        ([], None) => {}
        ([], Some(dearest)) => {
            sentence += &format!(
                "; what each file of {} takes of it is not settled (the most so far: {dearest})",
                figures.rule_set
            );
        }
        ([one], _) => sentence += &format!(", of which {one}"),
        ([first @ .., last], _) => {
            sentence += &format!(", of which {}, and {last}", first.join(", "));
        }
    }
    let (count, of) = (settled().count(), files.len());
    if count > named.len() {
        sentence += &format!("; {count} of {of} files cost something for certain");
    }
    if files.iter().any(|f| f.price.is_some_and(|price| !price.cpu_us.interval)) {
        sentence += " (n too small for an interval)";
    }
    sentence + "."
}

impl FileFigures {
    fn verdict(&self) -> Option<Verdict> {
        self.price.and_then(|price| price.verdict)
    }

    fn clause(&self) -> Option<String> {
        let FilePrice { cpu_us, share, .. } = self.price?;
        let share = share.map_or(String::new(), |share| format!(" ({})", percent(share.estimate)));
        let stem = self.file.strip_suffix(".conf").unwrap_or(&self.file);
        Some(format!("{stem} takes {} µs{share}", significant(cpu_us.estimate)))
    }
}
