//! The plots of the page: their data, captions, legends and tables.

use super::svg::{self, Bar, Bars, Curve, Distribution, Dot, Dots, SweepPanel};
use super::timeline::Trials;
use crate::analysis::{CaseAnalysis, Range, SubjectAnalysis};
use crate::document::{Cell, Column, NONE, Plot, Row, Table, load_unit, range};
use crate::output::ReportError;
use crate::source::Source;
use serde::Serialize;
use std::collections::BTreeMap;
use tollgate_experiment::metric::Metric;
use tollgate_experiment::record::as_f64;
use tollgate_stats::LatencyHistogram;
use tollgate_stats::number::{in_full, signed, significant};

/// A plot with its caption, legend and table.
#[derive(Serialize)]
pub(super) struct Figure {
    /// Machine-readable name.
    name: &'static str,
    title: &'static str,
    /// The cases, if there are several.
    of: String,
    svg: String,
    caption: String,
    /// Marks with the names of the subjects in the plot.
    legend: Vec<(usize, String)>,
    table: Option<Table>,
    /// The invalid trials of a timeline.
    invalid: Vec<String>,
}

const BARS: &str = "Each bar starts at the baseline; the scale is logarithmic. The line across its end is the 95 % \
interval, dashed if there are too few blocks for one and it is the observed range. The band around 1 is the noise \
floor (A/A): differences within it may be noise.";

const DOTS: &str = "CPU per request relative to the baseline of the same block. Line and band: the price and its 95 % \
interval. A slope is drift that pairing did not remove; outliers are marked, but not excluded.";

const PERCENTILES: &str = "Over all valid trials. Each step to the right is ten times rarer; a line ends where fewer \
than ten responses remain. Closed loop: latency of a saturated system; open loop: from the scheduled time.";

const DISTRIBUTION: &str =
    "Over all valid trials, in classes of equal width on the logarithmic axis.";

const TIMELINE: &str = "One mark per trial, at its start; on the axis: a trial without expected responses. Hollow \
marks and stripes: invalid trials. A trial with fewer than 1000 responses has no p99. Dashed lines: limits above which \
a trial is invalid.";

const PAUSES: &str =
    " Vertical lines: the run was stopped there and resumed later; the time between is omitted.";

/// Draws a plot. `None` without data.
pub(super) fn draw(source: &Source, plot: &Plot) -> Result<Option<Figure>, ReportError> {
    let analysis = &source.analysis;
    let baseline = &analysis.baseline;
    let case = |index: usize| &analysis.cases[index];
    let figure = |index: usize, name, title, caption: &str, svg| Figure {
        name,
        title,
        of: if analysis.cases.len() > 1 { case(index).case.name.clone() } else { String::new() },
        svg,
        caption: caption.to_owned(),
        legend: Vec::new(),
        table: None,
        invalid: Vec::new(),
    };
    let legend = |index: usize, series: &mut dyn Iterator<Item = usize>| {
        series.map(|series| (series, case(index).subjects[series].name.clone())).collect()
    };
    Ok(match plot {
        Plot::Bars(index) => bars(baseline, case(*index))
            .map(|data| figure(*index, "bars", "Cost of a request", BARS, svg::bars(&data))),
        Plot::Dots(index) => {
            let subjects = dots(baseline, case(*index));
            (!subjects.is_empty()).then(|| Figure {
                table: Some(blocks_table(baseline, &subjects)),
                ..figure(*index, "dots", "Block by block", DOTS, svg::dots(baseline, &subjects))
            })
        }
        Plot::Percentiles(index) => {
            let latencies = latencies(source, case(*index))?;
            let curves: Vec<Curve> = latencies.iter().map(curve).collect();
            let title = "Latency by percentile";
            (!curves.is_empty()).then(|| Figure {
                legend: legend(*index, &mut latencies.iter().map(|one| one.series)),
                table: Some(percentiles_table(&latencies)),
                ..figure(*index, "percentiles", title, PERCENTILES, svg::percentiles(&curves))
            })
        }
        Plot::Distribution(index) => {
            let latencies = latencies(source, case(*index))?;
            let (edges, data) = distributions(&latencies);
            let (title, caption) = ("Latency distribution", DISTRIBUTION);
            (!data.is_empty()).then(|| Figure {
                legend: legend(*index, &mut latencies.iter().map(|one| one.series)),
                table: Some(shares_table(&edges, &data)),
                ..figure(*index, "distribution", title, caption, svg::distribution(&edges, &data))
            })
        }
        Plot::Timeline(index) => {
            let trials = Trials::of(source, case(*index))?;
            let caption = format!("{TIMELINE}{}", if trials.has_pauses() { PAUSES } else { "" });
            let (title, svg) = ("Over the time of the run", svg::timeline(&trials.timeline()));
            (!trials.series().is_empty()).then(|| Figure {
                legend: legend(*index, &mut trials.series().into_iter()),
                table: Some(trials.table()),
                invalid: trials.invalid().into_iter().map(|trial| trial.hint).collect(),
                ..figure(*index, "timeline", title, &caption, svg)
            })
        }
        Plot::Sweep(indices) => {
            Some(sweep(&indices.iter().map(|index| case(*index)).collect::<Vec<_>>()))
        }
    })
}

/// The table of a plot.
pub(super) fn figure_table<C: Into<Column>>(
    caption: &str,
    columns: impl IntoIterator<Item = C>,
    rows: impl Iterator<Item = Row>,
) -> Table {
    let columns: Vec<Column> = columns.into_iter().map(Into::into).collect();
    Table { rows: rows.collect(), ..Table::new(caption, columns) }
}

/// The CPU prices. `None` if no subject has a ratio.
fn bars(baseline: &str, case: &CaseAnalysis) -> Option<Bars> {
    let bar = |(series, subject): (usize, &SubjectAnalysis)| {
        let price = subject.prices.get(&Metric::CpuUsPerRequest);
        let cpu = subject.figures.as_ref().and_then(|figures| figures.cpu_us_per_request);
        let (price, text) = match price.map(|price| (price, price.ratio)) {
            Some((_, Some(ratio))) => (Some(ratio), range(&ratio, significant)),
            Some((price, None)) => {
                (None, format!("no ratio: {} µs", signed(price.difference.estimate)))
            }
            None if subject.name == baseline && cpu.is_some() => {
                let one = Range { estimate: 1.0, low: 1.0, high: 1.0, interval: true };
                (Some(one), "1 (baseline)".to_owned())
            }
            None => return None,
        };
        Some(Bar { name: subject.name.clone(), series, price, text })
    };
    let bars: Vec<Bar> = case.subjects.iter().enumerate().filter_map(bar).collect();
    let has_price = bars.iter().any(|bar| bar.price.is_some() && bar.name != baseline);
    has_price.then(|| Bars { baseline: baseline.to_owned(), bars, band: case.noise_floor })
}

/// The ratio of CPU per request in each block.
fn dots(baseline: &str, case: &CaseAnalysis) -> Vec<Dots> {
    let subjects = case.subjects.iter().enumerate().filter(|(_, subject)| subject.name != baseline);
    let dots = subjects.map(|(series, subject)| {
        let dot = |figure: &crate::analysis::BlockFigure| {
            let (block, ratio) = (figure.block, figure.ratio?);
            let outlier = if figure.outlier { ", an outlier" } else { "" };
            let hint =
                format!("{}, block {block}: × {}{outlier}", subject.name, significant(ratio));
            Some(Dot { block, ratio, outlier: figure.outlier, hint })
        };
        Dots {
            name: subject.name.clone(),
            series,
            dots: subject.blocks.iter().filter_map(dot).collect(),
            price: subject.prices.get(&Metric::CpuUsPerRequest).and_then(|price| price.ratio),
        }
    });
    dots.filter(|subject| !subject.dots.is_empty()).collect()
}

fn blocks_table(baseline: &str, subjects: &[Dots]) -> Table {
    let mut rows: BTreeMap<u32, Vec<Cell>> = BTreeMap::new();
    for (column, subject) in subjects.iter().enumerate() {
        for dot in &subject.dots {
            // A subject with an invalid trial has no ratio in that block.
            let none = || vec![Cell::from(NONE); subjects.len()];
            let outlier = if dot.outlier { " (outlier)" } else { "" };
            let text = significant(dot.ratio) + outlier;
            let cells = rows.entry(dot.block).or_insert_with(none);
            cells[column] = Cell::valued("block_ratio", Some(dot.ratio), text);
        }
    }
    let names = subjects.iter().map(|subject| format!("{} × {baseline}", subject.name));
    let rows = rows.into_iter().map(|(block, cells)| Row {
        series: None,
        cells: [vec![block.to_string().into()], cells].concat(),
    });
    let columns = ["block".to_owned()].into_iter().chain(names);
    figure_table("CPU per request, relative to the baseline of the same block", columns, rows)
}

/// The latencies of a subject over all its valid trials.
struct Latencies {
    name: String,
    series: usize,
    histogram: LatencyHistogram,
}

fn latencies(source: &Source, case: &CaseAnalysis) -> Result<Vec<Latencies>, ReportError> {
    let mut all = Vec::new();
    for (series, subject) in case.subjects.iter().enumerate() {
        let histogram = source.latencies(&case.case.name, &subject.name)?;
        if histogram.count() > 0 {
            all.push(Latencies { name: subject.name.clone(), series, histogram });
        }
    }
    Ok(all)
}

const TICKS_PER_HALF: u32 = 5;

/// The quantiles in reports, besides minimum and maximum.
const NAMED: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// Latency by percentile, up to the percentile beyond which fewer than ten responses remain.
fn curve(Latencies { name, series, histogram }: &Latencies) -> Curve {
    let shortest = histogram.min_ns().map(|ns| (0.0, ms(ns)));
    let steps = histogram
        .percentiles(TICKS_PER_HALF)
        .filter(|step| step.quantile > 0.0 && step.quantile < 1.0)
        .filter(|step| histogram.quantile_ns(step.quantile).is_some() || step.quantile < 0.5)
        .map(|step| (step.quantile, ms(step.value_ns)));
    // Named quantiles are exact points of the curve.
    let named = NAMED
        .iter()
        .filter_map(|quantile| Some((*quantile, ms(histogram.quantile_ns(*quantile)?))));
    let mut points: Vec<(f64, f64)> = shortest.into_iter().chain(steps).chain(named).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points.dedup_by(|a, b| a.0 == b.0);
    Curve { name: name.clone(), series: *series, points }
}

fn percentiles_table(latencies: &[Latencies]) -> Table {
    let row = |Latencies { name, series, histogram }: &Latencies| {
        let named = NAMED.iter().map(|quantile| histogram.quantile_ns(*quantile));
        let all = std::iter::once(histogram.min_ns()).chain(named).chain([histogram.max_ns()]);
        let head = [name.clone(), significant(as_f64(histogram.count()))].map(Cell::from);
        let cells = all.map(|ns| Cell::figure("latency_ms", ns.map(ms), significant));
        Row { series: Some(*series), cells: head.into_iter().chain(cells).collect() }
    };
    let header =
        ["subject", "responses", "minimum", "50 %", "90 %", "99 %", "99.9 %", "99.99 %", "maximum"];
    figure_table("Latency in ms, over all valid trials", header, latencies.iter().map(row))
}

/// Number of classes of latency in the plot, and how many of them are one row of its table.
const CLASSES: u32 = 72;
const CLASSES_PER_ROW: usize = 6;

/// The edges of the classes of latency that all subjects of a case share, and the percentage of each subject's
/// responses in each class.
fn distributions(latencies: &[Latencies]) -> (Vec<f64>, Vec<Distribution>) {
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
        let all = as_f64(one.histogram.count());
        let percent = |pair: &[u64]| 100.0 * as_f64(pair[1].saturating_sub(pair[0])) / all;
        let percent = counts.windows(2).map(percent).collect();
        Distribution { name: one.name.clone(), series: one.series, percent }
    };
    let distributions = latencies.iter().map(of_one).collect();
    (edges, distributions)
}

fn shares_table(edges: &[f64], distributions: &[Distribution]) -> Table {
    let rows = (0..edges.len() - 1).step_by(CLASSES_PER_ROW).map(|first| {
        let next = (first + CLASSES_PER_ROW).min(edges.len() - 1);
        let [from, to] = [first, next].map(|edge| significant(edges[edge]));
        let share = |one: &Distribution| {
            Cell::figure("share_percent", Some(one.percent[first..next].iter().sum()), significant)
        };
        let name = Cell::from(format!("{from} to {to}"));
        let cells = [name].into_iter().chain(distributions.iter().map(share)).collect();
        Row { series: None, cells }
    });
    let names = distributions.iter().map(|one| one.name.as_str());
    let columns = ["latency, ms"].into_iter().chain(names);
    figure_table("Share of responses by latency, %", columns, rows)
}

/// Latency over cases that differ only in their load.
fn sweep(cases: &[&CaseAnalysis]) -> Figure {
    let quantiles = sweep_panels(cases);
    let unit = cases.first().map_or("", |case| load_unit(&case.case).0);
    let curves = quantiles.first().map_or(&[][..], |panel| &panel.curves[..]);
    let names: Vec<&str> = cases.iter().map(|case| case.case.name.as_str()).collect();
    Figure {
        name: "sweep",
        title: "Latency against load",
        of: format!("{} to {}", names[0], names[names.len() - 1]),
        svg: svg::sweep(unit, &quantiles),
        caption: format!("Medians over the valid trials of the cases {}.", names.join(", ")),
        legend: curves.iter().map(|curve| (curve.series, curve.name.clone())).collect(),
        table: Some(sweep_table(unit, cases, &quantiles)),
        invalid: Vec::new(),
    }
}

fn sweep_panels(cases: &[&CaseAnalysis]) -> Vec<SweepPanel> {
    type Latency = fn(&SubjectAnalysis) -> Option<f64>;
    let figures: [(&str, Latency); 2] = [
        ("p50 latency, ms", |subject| subject.figures.as_ref()?.latency_p50_ms),
        ("p99 latency, ms", |subject| subject.figures.as_ref()?.latency_p99_ms),
    ];
    let panel = |(unit, of): (&'static str, Latency)| {
        let curve = |(series, subject): (usize, &SubjectAnalysis)| {
            let point = |case: &&CaseAnalysis| {
                Some((load_unit(&case.case).1, of(case.subject(&subject.name)?)?))
            };
            let points = cases.iter().filter_map(point).collect();
            Curve { name: subject.name.clone(), series, points }
        };
        let curves = cases[0].subjects.iter().enumerate().map(curve);
        SweepPanel { unit, curves: curves.filter(|curve| !curve.points.is_empty()).collect() }
    };
    figures.into_iter().map(panel).filter(|panel| !panel.curves.is_empty()).collect()
}

/// One row per load.
fn sweep_table(unit: &str, cases: &[&CaseAnalysis], quantiles: &[SweepPanel]) -> Table {
    let curves = || {
        quantiles.iter().flat_map(|panel| panel.curves.iter().map(move |curve| (panel.unit, curve)))
    };
    let row = |case: &&CaseAnalysis| {
        let load = load_unit(&case.case).1;
        let latency = |(_, curve): (&str, &Curve)| {
            let point = curve.points.iter().find(|point| point.0 == load);
            Cell::figure("latency_ms", point.map(|point| point.1), significant)
        };
        let name = Cell::from(in_full(load));
        Row { series: None, cells: [name].into_iter().chain(curves().map(latency)).collect() }
    };
    let names = curves().map(|(quantile, curve)| format!("{}: {quantile}", curve.name));
    let columns = [unit.to_owned()].into_iter().chain(names);
    figure_table("Latency at each load", columns, cases.iter().map(row))
}

fn ms(ns: u64) -> f64 {
    as_f64(ns) / 1e6
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a latency in nanoseconds is positive and far below 2^63"
)]
fn ns(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}
