//! The answer to the experiment's question, in one sentence.

use super::{CaseAnalysis, Metric, SubjectAnalysis, ablation};
use crate::report::number::{percent, share, signed, significant};
use tollgate_stats::Verdict;

/// What the sentences answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) baseline: &'a str,
    /// The baseline's second time, which tells of the noise and not of a subject.
    pub(super) again: Option<&'a str>,
    /// What is too small to matter, as a share.
    pub(super) margin: f64,
}

impl Question<'_> {
    /// What a request costs on the baseline, and on each other subject: a sentence for each case.
    pub(super) fn sentences(&self, cases: &[CaseAnalysis]) -> Vec<String> {
        let sentence = |case: &CaseAnalysis| match &case.ablation {
            Some(figures) => ablation::sentence(case, figures),
            None => self.sentence(&case.subjects),
        };
        cases.iter().map(sentence).collect()
    }

    /// The sentences, with the names of the cases where there are several.
    pub(super) fn named(&self, cases: &[CaseAnalysis]) -> Vec<String> {
        let sentences = self.sentences(cases);
        if let [only] = &sentences[..] {
            return vec![only.clone()];
        }
        let named = cases.iter().zip(sentences);
        named.map(|(case, sentence)| format!("{}: {sentence}", case.case.name)).collect()
    }

    fn sentence(&self, subjects: &[SubjectAnalysis]) -> String {
        let Self { baseline, again, .. } = *self;
        let own = subjects.iter().find(|subject| subject.name == baseline);
        let Some(own) = own.and_then(|own| own.figures.as_ref()) else {
            return format!(
                "There is no price, because the baseline {baseline} has no valid trial."
            );
        };
        let asked = || subjects.iter().filter(|subject| Some(&*subject.name) != again);
        let mut priced: Vec<(f64, String)> =
            asked().filter_map(|subject| clause(subject, self.margin)).collect();
        priced.sort_by(|a, b| a.0.total_cmp(&b.0));
        let clauses: Vec<String> = priced.into_iter().map(|(_, clause)| clause).collect();
        let mut sentence = match own.cpu_us_per_request {
            Some(cpu) => format!("A request costs {baseline} {} µs of CPU", significant(cpu)),
            None => format!("{baseline} runs nothing that costs CPU"),
        };
        if !clauses.is_empty() {
            sentence += &format!("; {}", listed(&clauses));
        }
        if asked().any(too_few) {
            sentence += " (n too small for an interval)";
        }
        sentence + "."
    }
}

/// What a subject costs, as far as that is settled; with the difference, by which the clauses are sorted.
fn clause(subject: &SubjectAnalysis, margin: f64) -> Option<(f64, String)> {
    let price = subject.prices.get(&Metric::CpuUsPerRequest)?;
    let difference = price.difference.estimate;
    let name = &subject.name;
    let is_open = price.verdict == Some(Verdict::NotSettled);
    let mut clause = match (price.ratio, price.verdict) {
        // What has no processes takes nothing, however few blocks there are.
        (None, _) if difference <= 0.0 => format!("{name} takes none of it"),
        (None, _) if is_open => {
            format!("what {name} takes is not settled ({} µs so far)", significant(difference))
        }
        (None, _) => format!("{name} takes {} µs", significant(difference)),
        (Some(_), Some(Verdict::Same)) => format!("{name} takes the same within {}", share(margin)),
        (Some(ratio), _) if is_open => format!(
            "what {name} takes is not settled ({} times that so far)",
            significant(ratio.estimate)
        ),
        (Some(ratio), _) => format!(
            "{name} takes {} times that ({} µs)",
            significant(ratio.estimate),
            signed(difference)
        ),
    };
    let blocked = subject.figures.as_ref().and_then(|figures| figures.attacks_blocked);
    if let Some(blocked) = blocked.filter(|blocked| *blocked > 0.0) {
        clause += if is_open { " while it blocks " } else { " and blocks " };
        clause += &match blocked >= 1.0 {
            true => "every attack".to_owned(),
            false => format!("{} of the attacks", percent(blocked)),
        };
    }
    Some((difference, clause))
}

fn too_few(subject: &SubjectAnalysis) -> bool {
    let price = subject.prices.get(&Metric::CpuUsPerRequest);
    price.is_some_and(|price| !price.difference.interval)
}

fn listed(clauses: &[String]) -> String {
    match clauses {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{}, and {last}", first.join(", ")),
    }
}
