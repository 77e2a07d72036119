//! The data of a run's plots.

use super::svg::bars::{Bar, Bars};
use super::svg::distribution::Distribution;
use super::svg::spectrum::Spectrum;
use super::svg::{Whisker, dots, sweep};
use crate::analysis::{Analysis, CaseAnalysis, Range, SubjectAnalysis};
use crate::error::ReportError;
use crate::rows;
use crate::source::Source;
use tollgate_experiment::manifest::CaseManifest;
use tollgate_experiment::metric::Metric;
use tollgate_stats::LatencyHistogram;
use tollgate_stats::number::{signed, significant};

/// The CPU prices as bars. `None` if no subject has a ratio.
pub(super) fn bars(analysis: &Analysis, case: &CaseAnalysis) -> Option<Bars> {
    let has_cpu = |subject: &SubjectAnalysis| subject.figures.as_ref()?.cpu_us_per_request;
    let bars: Vec<Bar> = (0..)
        .zip(&case.subjects)
        .filter_map(|(series, subject)| {
            let is_baseline = subject.name == analysis.baseline;
            let price = subject.prices.get(&Metric::CpuUsPerRequest);
            let ratio = price.and_then(|price| price.ratio);
            let one = Whisker { estimate: 1.0, low: 1.0, high: 1.0, interval: true };
            let (price, text) = match (ratio, price) {
                (Some(ratio), _) => (Some(whisker(&ratio)), rows::range(&ratio, significant)),
                (None, Some(price)) => {
                    (None, format!("no ratio: {} µs", signed(price.difference.estimate)))
                }
                (None, None) if is_baseline && has_cpu(subject).is_some() => {
                    (Some(one), "1 (baseline)".to_owned())
                }
                (None, None) => return None,
            };
            Some(Bar { name: subject.name.clone(), series, price, text })
        })
        .collect();
    let priced = bars.iter().any(|bar| bar.price.is_some() && bar.name != analysis.baseline);
    priced.then(|| Bars {
        baseline: analysis.baseline.clone(),
        bars,
        band: case.noise_floor.map(|floor| (floor.low, floor.high)),
    })
}

/// The ratio of CPU per request in each block, one panel per subject.
pub(super) fn dots(analysis: &Analysis, case: &CaseAnalysis) -> Vec<dots::Panel> {
    let mut panels = Vec::new();
    for (series, subject) in (0..).zip(&case.subjects) {
        if subject.name == analysis.baseline {
            continue;
        }
        let dots: Vec<dots::Dot> = subject
            .blocks
            .iter()
            .filter_map(|figure| {
                let (block, ratio) = (figure.block, figure.ratio?);
                let far = if figure.outlier { ", an outlier" } else { "" };
                let hint =
                    format!("{}, block {block}: × {}{far}", subject.name, significant(ratio));
                Some(dots::Dot { block, ratio, outlier: figure.outlier, hint })
            })
            .collect();
        if !dots.is_empty() {
            let price = subject.prices.get(&Metric::CpuUsPerRequest);
            let price = price.and_then(|price| price.ratio).map(|ratio| whisker(&ratio));
            panels.push(dots::Panel { name: subject.name.clone(), series, dots, price });
        }
    }
    panels
}

/// The latencies of a subject over all its valid trials.
pub(super) struct Latencies {
    pub(super) name: String,
    pub(super) series: usize,
    pub(super) histogram: LatencyHistogram,
}

pub(super) fn latencies(
    source: &Source,
    case: &CaseAnalysis,
) -> Result<Vec<Latencies>, ReportError> {
    let mut all = Vec::new();
    for (series, subject) in (0..).zip(&case.subjects) {
        let histogram = source.latencies(&case.case.name, &subject.name)?;
        if histogram.count() > 0 {
            all.push(Latencies { name: subject.name.clone(), series, histogram });
        }
    }
    Ok(all)
}

/// Latency by percentile, up to the percentile beyond which fewer than ten responses remain.
pub(super) fn spectra(latencies: &[Latencies]) -> Vec<Spectrum> {
    let steps = |histogram: &LatencyHistogram| {
        let shortest = histogram.min_ns().map(|ns| (0.0, ms(ns)));
        let told = histogram
            .percentiles(TICKS_PER_HALF)
            .filter(|step| step.quantile > 0.0 && step.quantile < 1.0)
            .filter(|step| histogram.quantile_ns(step.quantile).is_some() || step.quantile < 0.5)
            .map(|step| (step.quantile, ms(step.value_ns)));
        // Named quantiles are exact points of the curve.
        let named = NAMED
            .iter()
            .filter_map(|quantile| histogram.quantile_ns(*quantile).map(|ns| (*quantile, ms(ns))));
        let mut steps: Vec<(f64, f64)> = shortest.into_iter().chain(told).chain(named).collect();
        steps.sort_by(|a, b| a.0.total_cmp(&b.0));
        steps.dedup_by(|a, b| a.0 == b.0);
        steps
    };
    latencies
        .iter()
        .map(|one| Spectrum {
            name: one.name.clone(),
            series: one.series,
            steps: steps(&one.histogram),
        })
        .collect()
}

const TICKS_PER_HALF: u32 = 5;

/// The quantiles in reports, besides minimum and maximum.
pub(super) const NAMED: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// The classes of latency that all subjects of a case share, and how many percent of each one's
/// answers are in each class.
pub(super) fn distributions(latencies: &[Latencies]) -> (Vec<f64>, Vec<Distribution>) {
    let shortest = latencies.iter().filter_map(|one| one.histogram.min_ns()).min();
    let longest = latencies.iter().filter_map(|one| one.histogram.max_ns()).max();
    let (Some(shortest), Some(longest)) = (shortest, longest) else {
        return (Vec::new(), Vec::new());
    };
    // At least a factor of two, so that classes are wider than the histogram's resolution.
    let longest = longest.max(shortest.saturating_mul(2));
    let (low, high) = (ms(shortest).ln(), ms(longest).ln());
    let edge = |index: u32| (low + (high - low) * f64::from(index) / f64::from(CLASSES)).exp();
    let edges: Vec<f64> = (0..=CLASSES).map(edge).collect();
    let of_one = |one: &Latencies| {
        let up_to = |edge: &f64| one.histogram.count_up_to(ns(*edge));
        // The lowest edge belongs to the lowest class; rounding must not push values out of the highest.
        let mut counts: Vec<u64> = edges.iter().map(up_to).collect();
        counts[0] = 0;
        if let Some(last) = counts.last_mut() {
            *last = one.histogram.count();
        }
        let all = count_f64(one.histogram.count());
        let percent = |pair: &[u64]| 100.0 * count_f64(pair[1].saturating_sub(pair[0])) / all;
        let percent = counts.windows(2).map(percent).collect();
        Distribution { name: one.name.clone(), series: one.series, percent }
    };
    let distributions = latencies.iter().map(of_one).collect();
    (edges, distributions)
}

const CLASSES: u32 = 72;

pub(super) struct Load {
    pub(super) unit: &'static str,
    amount: f64,
}

/// The rate of an open loop, or the connections of a closed loop.
pub(super) fn load(case: &CaseAnalysis) -> Load {
    match case.case.open_loop {
        Some(open_loop) => Load { unit: "requests/s", amount: open_loop.rate_per_s.unwrap_or(0.0) },
        None => Load { unit: "connections", amount: f64::from(case.case.connections) },
    }
}

/// True if two cases differ only in their load.
fn differ_in_load(a: &CaseAnalysis, b: &CaseAnalysis) -> bool {
    let base = |case: &CaseManifest| (case.mix_file.clone(), case.threads, case.keep_alive);
    let of_open = |case: &CaseManifest| {
        let open_loop = case.open_loop?;
        Some((case.connections, open_loop.spacing, open_loop.connections_max))
    };
    base(&a.case) == base(&b.case)
        && of_open(&a.case) == of_open(&b.case)
        && load(a).amount != load(b).amount
}

/// Groups of cases that differ only in their load, in ascending order.
pub(super) fn sweeps(cases: &[CaseAnalysis]) -> Vec<Vec<&CaseAnalysis>> {
    let mut sweeps: Vec<Vec<&CaseAnalysis>> = Vec::new();
    for case in cases {
        let fits =
            |sweep: &&mut Vec<&CaseAnalysis>| sweep.iter().all(|other| differ_in_load(case, other));
        match sweeps.iter_mut().find(fits) {
            Some(sweep) => sweep.push(case),
            None => sweeps.push(vec![case]),
        }
    }
    sweeps.retain(|sweep| sweep.len() > 1);
    for sweep in &mut sweeps {
        sweep.sort_by(|a, b| load(a).amount.total_cmp(&load(b).amount));
    }
    sweeps
}

type Latency = fn(&SubjectAnalysis) -> Option<f64>;

/// Latency against load, over the cases of a sweep.
pub(super) fn sweep(cases: &[&CaseAnalysis]) -> Vec<sweep::Panel> {
    let subjects = cases.first().map_or(&[][..], |case| &case.subjects[..]);
    let panel = |(unit, of): (&'static str, Latency)| {
        let line = |(series, subject): (usize, &SubjectAnalysis)| {
            let points: Vec<(f64, f64)> = cases
                .iter()
                .filter_map(|case| {
                    let found = case.subjects.iter().find(|other| other.name == subject.name)?;
                    Some((load(case).amount, of(found)?))
                })
                .collect();
            sweep::Line { name: subject.name.clone(), series, points }
        };
        let lines = (0..).zip(subjects).map(line).filter(|line| !line.points.is_empty());
        sweep::Panel { unit, lines: lines.collect() }
    };
    let figures: [(&str, Latency); 2] = [
        ("p50 latency, ms", |subject| subject.figures.as_ref()?.latency_p50_ms),
        ("p99 latency, ms", |subject| subject.figures.as_ref()?.latency_p99_ms),
    ];
    figures.into_iter().map(panel).filter(|panel| !panel.lines.is_empty()).collect()
}

fn whisker(range: &Range) -> Whisker {
    Whisker { estimate: range.estimate, low: range.low, high: range.high, interval: range.interval }
}

pub(super) fn ms(ns: u64) -> f64 {
    count_f64(ns) / 1e6
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a latency in nanoseconds is positive and far below 2^63"
)]
fn ns(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

fn count_f64(count: u64) -> f64 {
    tollgate_experiment::record::as_f64(count)
}
