//! The headline: the costs of all subjects of a case in one sentence.

use crate::analysis::{CaseAnalysis, Price, SubjectAnalysis, ablation};
use tollgate_experiment::metric::Metric;
use tollgate_stats::Verdict;
use tollgate_stats::number::{percent, share, signed, significant};

#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) baseline: &'a str,
    /// The subject that repeats the baseline (A/A).
    pub(super) again: Option<&'a str>,
    /// Differences below this share do not matter.
    pub(super) margin: f64,
}

impl Question<'_> {
    /// One sentence per case.
    pub(super) fn sentences(&self, cases: &[CaseAnalysis]) -> Vec<String> {
        let sentence = |case: &CaseAnalysis| match &case.ablation {
            Some(figures) => ablation::sentence(case, figures),
            None => self.sentence(&case.subjects),
        };
        cases.iter().map(sentence).collect()
    }

    /// The sentences, prefixed with the names of the cases if there are several.
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
        let compared = || subjects.iter().filter(|subject| Some(&*subject.name) != again);
        let mut priced: Vec<(&SubjectAnalysis, &Price)> =
            compared().filter_map(|subject| Some((subject, cpu_price(subject)?))).collect();
        priced.sort_by(|(_, a), (_, b)| b.difference.estimate.total_cmp(&a.difference.estimate));
        let first_ratio = priced
            .iter()
            .position(|(_, price)| price.ratio.is_some() && price.verdict != Some(Verdict::Same));
        let mut clauses: Vec<String> = Vec::new();
        match own.cpu_us_per_request {
            None => clauses.push(format!("{baseline} uses no CPU")),
            Some(cpu) if priced.is_empty() => {
                clauses
                    .push(format!("{baseline} costs {} µs of CPU per request", significant(cpu)));
            }
            Some(_) => {}
        }
        clauses.extend(priced.iter().enumerate().map(|(place, (subject, price))| {
            let cost = self.cost(price, Some(place) == first_ratio);
            format!("{} {cost}{}", subject.name, blocked(subject, price))
        }));
        let mut sentence = clauses.join("; ");
        if priced.iter().any(|(_, price)| !price.difference.interval) {
            sentence += " (n too small for an interval)";
        }
        sentence + "."
    }

    /// The first ratio of the sentence names its unit and the absolute difference.
    fn cost(&self, price: &Price, is_first_ratio: bool) -> String {
        let difference = price.difference.estimate;
        let not_significant = match price.verdict {
            Some(Verdict::Inconclusive) => " so far, not significant",
            _ => "",
        };
        match price.ratio {
            // A subject without processes costs nothing, however few blocks there are.
            None if difference <= 0.0 => "uses no CPU".to_owned(),
            None => format!("costs {} µs per request{not_significant}", significant(difference)),
            Some(_) if price.verdict == Some(Verdict::Same) => {
                format!("costs the same as {} within {}", self.baseline, share(self.margin))
            }
            Some(ratio) => {
                let times = significant(ratio.estimate);
                let (unit, added) = match (is_first_ratio, not_significant.is_empty()) {
                    (true, true) => (
                        format!(" what {} costs", self.baseline),
                        format!(" ({} µs per request)", signed(difference)),
                    ),
                    (true, false) => (format!(" what {} costs", self.baseline), String::new()),
                    (false, _) => (String::new(), String::new()),
                };
                format!("costs {times} times{unit}{added}{not_significant}")
            }
        }
    }
}

fn cpu_price(subject: &SubjectAnalysis) -> Option<&Price> {
    subject.prices.get(&Metric::CpuUsPerRequest)
}

/// The detection rate in words; empty for a subject that blocks no attack.
fn blocked(subject: &SubjectAnalysis, price: &Price) -> String {
    let rate = subject.figures.as_ref().and_then(|figures| figures.detection_rate);
    let Some(rate) = rate.filter(|rate| *rate > 0.0) else { return String::new() };
    let comma = if price.verdict == Some(Verdict::Inconclusive) { "," } else { "" };
    let attacks = match rate >= 1.0 {
        true => "every attack".to_owned(),
        false => format!("{} of the attacks", percent(rate)),
    };
    format!("{comma} and blocks {attacks}")
}
