//! What each subject adds to the baseline's latency, in milliseconds.

use super::number::{signed, significant};
use super::rows::{Rows, range};
use crate::analysis::{Analysis, CaseAnalysis, Figures, Metric, Price, SubjectAnalysis};

/// What the columns of [`rows`] mean.
pub const LEGEND: &str = "Latency in ms. The baseline's is its own, the median over its valid trials; the \
others' is what they add to it in the same block. A trial's shortest and longest are one answer each.";

/// The baseline's latency and what each subject adds to it, a row a figure.
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

/// One figure of the latency: its name, its price, and the baseline's own.
type Figure = (&'static str, Metric, fn(&Figures) -> Option<f64>);

/// The figures that CrowdSec's stress test tells, in its order.
const FIGURES: [Figure; 5] = [
    ("average", Metric::LatencyMeanMs, |figures| figures.latency_mean_ms),
    ("minimum", Metric::LatencyMinMs, |figures| figures.latency_min_ms),
    ("median", Metric::LatencyP50Ms, |figures| figures.latency_p50_ms),
    ("maximum", Metric::LatencyMaxMs, |figures| figures.latency_max_ms),
    ("P90", Metric::LatencyP90Ms, |figures| figures.latency_p90_ms),
];

/// What a subject adds, with its own number of blocks where that is not the number behind its price in CPU.
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
