//! The cost of each file of a rule set and the requests that it blocks, derived from the prices of subjects
//! without that file.

use super::price::{Price, Range};
use super::result::{
    AblationFigures, CaseAnalysis, FileFigures, FilePrice, KeptFile, SubjectAnalysis,
};
use std::collections::BTreeSet;
use tollgate_records::manifest::{AblatedFile, Ablation};
use tollgate_records::metric::{self, Metric};
use tollgate_records::run_dir::RunRecords;
use tollgate_records::trial::{ProbeOutcome, TemplateRecord};
use tollgate_stats::Verdict;
use tollgate_stats::number::{percent, significant};
use tollgate_traffic::Class;

pub(super) fn figures(
    ablation: &Ablation,
    run: &RunRecords,
    case: &str,
    subjects: &[SubjectAnalysis],
) -> AblationFigures {
    let subject = |name: &str| subjects.iter().find(|subject| subject.name == name);
    let templates = subject(&ablation.subject).map_or(&[][..], |whole| &whole.templates);
    // Requests blocked in every probe.
    let always = probes(run, case, &ablation.subject).reduce(|one, other| &one & &other);
    let always = always.unwrap_or_default();
    let figure = |file: &str, name: &str, exceptions: usize| {
        // Requests blocked in any probe. Without a probe, nothing is known.
        let ever = probes(run, case, name).reduce(|one, other| &one | &other);
        let lost = |class: Class| -> Vec<String> {
            let of_class = templates.iter().filter(|template| template.class == class);
            let is_lost = |name: &&String| {
                let name = name.as_str();
                always.contains(name) && ever.as_ref().is_some_and(|ever| !ever.contains(name))
            };
            of_class.map(|template| &template.name).filter(is_lost).cloned().collect()
        };
        let price = subject(name).and_then(|found| found.prices.get(&Metric::CpuUsPerRequest));
        FileFigures {
            file: file.to_owned(),
            subject: name.to_owned(),
            price: price.map(inverted),
            attacks: lost(Class::Malicious),
            benign: lost(Class::Benign),
            exceptions,
        }
    };
    let removed =
        |file: &AblatedFile| Some(figure(&file.file, file.subject.as_ref()?, file.exceptions));
    let mut files: Vec<FileFigures> = ablation.files.iter().filter_map(removed).collect();
    let cost = |file: &FileFigures| file.price.map_or(f64::NEG_INFINITY, |p| p.cpu_us.estimate);
    files.sort_by(|a, b| cost(b).total_cmp(&cost(a)));
    let kept = ablation.files.iter().filter_map(|file| {
        Some(KeptFile { file: file.file.clone(), reason: file.kept_reason.clone()? })
    });
    AblationFigures {
        subject: ablation.subject.clone(),
        rule_set: ablation.rule_set.clone(),
        all: ablation.without_all.as_ref().map(|all| {
            let exceptions = files.iter().map(|file| file.exceptions).sum();
            figure(&format!("all {} together", files.len()), all, exceptions)
        }),
        files,
        kept: kept.collect(),
    }
}

/// The price of a file, from the price of the subject without it.
fn inverted(left: &Price) -> FilePrice {
    let flip = |range: &Range, flipped: fn(f64) -> f64| Range {
        estimate: flipped(range.estimate),
        low: flipped(range.high),
        high: flipped(range.low),
        interval: range.interval,
    };
    FilePrice {
        n: left.n,
        // Subtracted from zero, which avoids a negative zero.
        cpu_us: flip(&left.difference, |value| 0.0 - value),
        share: left.ratio.as_ref().map(|ratio| flip(ratio, |value| 1.0 - value)),
        verdict: left.verdict.map(Verdict::reversed),
    }
}

/// The requests blocked in each probe of a subject.
fn probes<'a>(
    run: &'a RunRecords,
    case: &'a str,
    subject: &'a str,
) -> impl Iterator<Item = BTreeSet<&'a str>> {
    let measured = metric::measured(run, case, subject);
    // Some kept records have no probe.
    let probed = measured.filter(|(_, m)| m.templates.iter().any(|one| one.probe.is_some()));
    probed.map(|(_, measurement)| {
        let is_blocked = |one: &&TemplateRecord| one.probe == Some(ProbeOutcome::Blocked);
        measurement.templates.iter().filter(is_blocked).map(|one| one.name.as_str()).collect()
    })
}

/// Maximum number of files in the sentence.
const NAMED: usize = 3;

/// The headline: the cost of all files and the most expensive files.
pub(super) fn sentence(case: &CaseAnalysis, figures: &AblationFigures) -> String {
    let AblationFigures { subject, files, .. } = figures;
    let whole = case.subject(subject).and_then(|whole| whole.figures.as_ref());
    let Some(cpu) = whole.and_then(|figures| figures.cpu_us_per_request) else {
        return format!("There is no price, because {subject} has no valid trial.");
    };
    let mut sentence = format!("{subject} costs {} µs of CPU per request", significant(cpu));
    let significant_files = || files.iter().filter(|f| f.verdict() == Some(Verdict::CostsMore));
    let named: Vec<String> =
        significant_files().take(NAMED).filter_map(FileFigures::clause).collect();
    let highest = files.first().and_then(FileFigures::clause);
    match (&named[..], highest) {
        ([], None) => {}
        ([], Some(highest)) => {
            sentence += &format!(
                "; no file of {} has a significant cost yet (highest so far: {highest})",
                figures.rule_set
            );
        }
        ([one], _) => sentence += &format!(", of which {one}"),
        ([first @ .., last], _) => {
            sentence += &format!(", of which {}, and {last}", first.join(", "));
        }
    }
    let (count, of) = (significant_files().count(), files.len());
    if count > named.len() {
        sentence += &format!("; {count} of {of} files have a significant cost");
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
        Some(format!("{stem} costs {} µs{share}", significant(cpu_us.estimate)))
    }
}
