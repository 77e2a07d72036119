//! The latency that each subject adds to the baseline, in milliseconds.

use super::rows::{Rows, range};
use crate::analysis::{Analysis, CaseAnalysis, Figures, Price, SubjectAnalysis};
use tollgate_experiment::metric::Metric;
use tollgate_stats::number::{signed, significant};

pub const LEGEND: &str = "Latency in ms. Baseline: the median over its valid trials; other subjects: the latency added \
to it in the same block. Minimum and maximum of a trial are single responses.";

/// One row per figure: the baseline's latency and the additions of the subjects.
pub fn rows(analysis: &Analysis, case: &CaseAnalysis) -> Rows {
    let baseline = case.subjects.iter().find(|subject| subject.name == analysis.baseline);
    let priced: Vec<&SubjectAnalysis> =
        case.subjects.iter().filter(|subject| !subject.prices.is_empty()).collect();
    let Some(own) = baseline.and_then(|subject| subject.figures.as_ref()) else {
        return Rows { header: Vec::new(), rows: Vec::new() };
    };
    let names = priced.iter().map(|subject| format!("{} [95 %]", subject.name));
    let header = ["latency", analysis.baseline.as_str()].map(str::to_owned).into_iter();
    let row = |(name, metric, of): &Figure| {
        let own = of(own).map_or(NONE.to_owned(), significant);
        let added = priced.iter().map(|subject| added(subject, *metric));
        [(*name).to_owned(), own].into_iter().chain(added).collect()
    };
    Rows {
        header: header.chain(names).collect(),
        rows: if priced.is_empty() { Vec::new() } else { FIGURES.iter().map(row).collect() },
    }
}

type Figure = (&'static str, Metric, fn(&Figures) -> Option<f64>);

/// The figures of CrowdSec's stress test, in its order.
const FIGURES: [Figure; 5] = [
    ("average", Metric::LatencyMeanMs, |figures| figures.latency_mean_ms),
    ("minimum", Metric::LatencyMinMs, |figures| figures.latency_min_ms),
    ("median", Metric::LatencyP50Ms, |figures| figures.latency_p50_ms),
    ("maximum", Metric::LatencyMaxMs, |figures| figures.latency_max_ms),
    ("P90", Metric::LatencyP90Ms, |figures| figures.latency_p90_ms),
];

/// The added latency, followed by its number of blocks if that differs from the CPU price's.
fn added(subject: &SubjectAnalysis, metric: Metric) -> String {
    let Some(Price { n, difference, .. }) = subject.prices.get(&metric) else {
        return NONE.to_owned();
    };
    let text = range(difference, signed);
    match subject.prices.get(&Metric::CpuUsPerRequest) {
        Some(cpu) if cpu.n != *n => format!("{text} (n {n})"),
        _ => text,
    }
}

const NONE: &str = "-";
