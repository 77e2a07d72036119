//! Verdicts on prices. The prices of one figure and case are corrected together, because the more
//! there are, the more likely one differs by chance.

use crate::analysis::price::{Raw, RawPrices};
use tollgate_experiment::metric::Metric;
use tollgate_stats::{Verdict, holm, verdict, verdict_of_difference};

/// Gives every price of a case its verdict. `families`: for each subject, with which others it is
/// judged; one that is judged alone is in a family of its own.
pub(super) fn settle(subjects: &mut [(Family, RawPrices)], margin: f64) {
    for family in [Family::Priced, Family::Again] {
        for metric in Metric::ALL {
            let mut raws: Vec<&mut Raw> = subjects
                .iter_mut()
                .filter(|(of, _)| *of == family)
                .filter_map(|(_, prices)| prices.get_mut(&metric))
                .collect();
            // Without a p-value there was no test to correct for.
            let tested: Vec<f64> = raws.iter().filter_map(|raw| raw.p).collect();
            let mut adjusted = holm(&tested).into_iter();
            for raw in &mut raws {
                let p = raw.p.and_then(|_| adjusted.next()).unwrap_or(1.0);
                raw.price.verdict = Some(of(metric, raw, p, margin));
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// What the others are priced against has no price.
    Baseline,
    Priced,
    /// The repeated baseline: a test of the run, not of a subject.
    Again,
}

fn of(metric: Metric, raw: &Raw, p: f64, margin: f64) -> Verdict {
    let more = match &raw.ratio {
        Some(ratio) => verdict(ratio, p, margin),
        None => verdict_of_difference(&raw.difference, p),
    };
    match metric.more_is_worse() {
        true => more,
        false => more.reversed(),
    }
}
