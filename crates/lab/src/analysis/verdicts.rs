//! From prices to verdicts: those of one figure and case are judged together, because the more of them
//! there are, the likelier one of them differs by chance.

use super::price::{Metric, Raw, RawPrices};
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
            // Without a p-value nothing was tested, and nothing is corrected for.
            let tested: Vec<f64> = raws.iter().filter_map(|raw| raw.p).collect();
            let mut adjusted = holm(&tested).into_iter();
            for raw in &mut raws {
                let p = raw.p.and_then(|_| adjusted.next()).unwrap_or(1.0);
                raw.price.verdict = Some(of(metric, raw, p, margin));
            }
        }
    }
}

/// Which subjects are judged together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// What the others are priced against has no price.
    Baseline,
    /// The subjects of the experiment.
    Priced,
    /// The baseline a second time, which is a test of the run and not of a subject.
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
