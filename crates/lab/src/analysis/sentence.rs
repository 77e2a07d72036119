//! The answer to the experiment's question, in one sentence.

use super::{CaseAnalysis, Metric, SubjectAnalysis};
use crate::report::number::{percent, signed, significant};

/// What a request costs on the baseline, and on each other subject: a sentence for each case.
pub fn answers(baseline: &str, cases: &[CaseAnalysis]) -> Vec<String> {
    cases.iter().map(|case| sentence(baseline, &case.subjects)).collect()
}

/// The same in one line; of several cases, with the name of each before its sentence.
pub fn answer(baseline: &str, cases: &[CaseAnalysis]) -> String {
    named(baseline, cases).join(" ")
}

/// The sentences, with the names of the cases where there are several.
pub(super) fn named(baseline: &str, cases: &[CaseAnalysis]) -> Vec<String> {
    let sentences = answers(baseline, cases);
    if let [only] = &sentences[..] {
        return vec![only.clone()];
    }
    let named = cases.iter().zip(sentences);
    named.map(|(case, sentence)| format!("{}: {sentence}", case.case.name)).collect()
}

fn sentence(baseline: &str, subjects: &[SubjectAnalysis]) -> String {
    let own = subjects.iter().find(|subject| subject.name == baseline);
    let Some(own) = own.and_then(|own| own.figures.as_ref()) else {
        return format!("There is no price, because the baseline {baseline} has no valid trial.");
    };
    let mut priced: Vec<(f64, String)> = subjects.iter().filter_map(clause).collect();
    priced.sort_by(|a, b| a.0.total_cmp(&b.0));
    let clauses: Vec<String> = priced.into_iter().map(|(_, clause)| clause).collect();
    let mut sentence = match own.cpu_us_per_request {
        Some(cpu) => format!("A request costs {baseline} {} µs of CPU", significant(cpu)),
        None => format!("{baseline} runs nothing that costs CPU"),
    };
    if !clauses.is_empty() {
        sentence += &format!("; {}", listed(&clauses));
    }
    if subjects.iter().any(too_few) {
        sentence += " (n too small for an interval)";
    }
    sentence + "."
}

/// What a subject costs; with the difference, by which the clauses are sorted.
fn clause(subject: &SubjectAnalysis) -> Option<(f64, String)> {
    let price = subject.prices.get(&Metric::CpuUsPerRequest)?;
    let difference = price.difference.estimate;
    let name = &subject.name;
    let mut clause = match price.ratio {
        Some(ratio) => {
            let times = significant(ratio.estimate);
            format!("{name} takes {times} times that ({} µs)", signed(difference))
        }
        None if difference > 0.0 => format!("{name} takes {} µs", significant(difference)),
        None => format!("{name} takes none of it"),
    };
    let blocked = subject.figures.as_ref().and_then(|figures| figures.attacks_blocked);
    if let Some(blocked) = blocked.filter(|blocked| *blocked > 0.0) {
        clause += &match blocked >= 1.0 {
            true => " and blocks every attack".to_owned(),
            false => format!(" and blocks {} of the attacks", percent(blocked)),
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
