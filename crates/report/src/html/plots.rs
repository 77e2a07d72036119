//! The plots of the page: their data, legends and tables. The template has their titles and captions.

use super::svg::{self, Bar, Bars, Catch, Curve, Distribution, Dots, SweepPanel};
use super::timeline::Trials;
use crate::analysis::{
    Analysis, BlockFigure, CaseAnalysis, Range, SubjectAnalysis, attacks_blocked, blocked,
};
use crate::document::{Cell, NONE, Plot, Row, Table, load_unit, range};
use crate::source::ReportSource;
use serde::Serialize;
use std::collections::BTreeMap;
use tollgate_records::metric::Metric;
use tollgate_records::trial::as_f64;
use tollgate_stats::LatencyHistogram;
use tollgate_stats::number::{in_full, signed, significant};

/// A plot with its legend and table.
#[derive(Serialize, Default)]
pub(super) struct Figure {
    /// Machine-readable name.
    pub(super) name: &'static str,
    /// The cases, if there are several.
    pub(super) of: String,
    pub(super) svg: String,
    /// Added to the caption.
    pub(super) note: String,
    /// Marks with the names of the subjects in the plot.
    pub(super) legend: Vec<(usize, String)>,
    pub(super) table: Option<Table>,
    /// The invalid trials of a timeline.
    pub(super) invalid: Vec<String>,
}

pub(super) fn draw(source: &ReportSource, plot: &Plot) -> anyhow::Result<Vec<Figure>> {
    let analysis = &source.analysis;
    let baseline = &analysis.baseline;
    let (index, figures) = match plot {
        Plot::Bars(index) => (index, Vec::from_iter(bars(baseline, &analysis.cases[*index]))),
        Plot::Catches(index) => (index, Vec::from_iter(catches(baseline, &analysis.cases[*index]))),
        Plot::Dots(index) => (index, Vec::from_iter(dots(baseline, &analysis.cases[*index]))),
        Plot::Latency(index) => (index, latency(source, &analysis.cases[*index])?),
        Plot::Timeline(index) => {
            (index, Vec::from_iter(timeline(source, &analysis.cases[*index])?))
        }
        Plot::Sweep(indices) => {
            let cases: Vec<&CaseAnalysis> =
                indices.iter().map(|index| &analysis.cases[*index]).collect();
            return Ok(vec![sweep(&cases)]);
        }
    };
    let name = &analysis.cases[*index].case.name;
    let title = if analysis.cases.len() > 1 { name.clone() } else { String::new() };
    Ok(figures.into_iter().map(|figure| Figure { of: title.clone(), ..figure }).collect())
}

/// The CPU prices of the first case that has one.
pub(super) fn price_chart(analysis: &Analysis) -> Option<String> {
    let mut charts = analysis.cases.iter().filter_map(|case| bars(&analysis.baseline, case));
    Some(charts.next()?.svg)
}

fn legend(case: &CaseAnalysis, series: impl Iterator<Item = usize>) -> Vec<(usize, String)> {
    series.map(|series| (series, case.subjects[series].name.clone())).collect()
}

fn cpu_ratio(baseline: &str, subject: &SubjectAnalysis) -> Option<Range> {
    let price = subject.prices.get(&Metric::CpuUsPerRequest);
    let has_cpu = || subject.figures.as_ref()?.cpu_us_per_request;
    match price {
        Some(price) => price.ratio,
        None if subject.name == baseline => {
            has_cpu().map(|_| Range { estimate: 1.0, low: 1.0, high: 1.0, interval: true })
        }
        None => None,
    }
}

/// The CPU prices. `None` if no subject has a ratio.
fn bars(baseline: &str, case: &CaseAnalysis) -> Option<Figure> {
    let bar = |(series, subject): (usize, &SubjectAnalysis)| {
        let price = cpu_ratio(baseline, subject);
        let text = match (price, subject.prices.get(&Metric::CpuUsPerRequest)) {
            (Some(ratio), Some(_)) => range(&ratio, significant),
            (Some(_), None) => "1 (baseline)".to_owned(),
            (None, Some(price)) => format!("no ratio: {} µs", signed(price.difference.estimate)),
            (None, None) => return None,
        };
        Some(Bar { name: subject.name.clone(), series, price, text })
    };
    let bars: Vec<Bar> = case.subjects.iter().enumerate().filter_map(bar).collect();
    let has_price = bars.iter().any(|bar| bar.price.is_some() && bar.name != baseline);
    let data = Bars { baseline: baseline.to_owned(), bars, band: case.noise_floor };
    let note = match data.band {
        Some(_) => {
            "The band around 1 is the noise floor (A/A): differences within it may be noise."
        }
        None => "",
    };
    has_price.then(|| Figure {
        name: "bars",
        svg: svg::bars(&data),
        note: note.to_owned(),
        ..Figure::default()
    })
}

/// Attacks blocked against the price. `None` if no subject with a ratio blocks one.
fn catches(baseline: &str, case: &CaseAnalysis) -> Option<Figure> {
    let catch = |(series, subject): (usize, &SubjectAnalysis)| {
        let price = cpu_ratio(baseline, subject)?;
        let rate = attacks_blocked(case, subject)?;
        let blocked = blocked(case, subject).unwrap_or_else(|| "no attack".to_owned());
        let cost = if subject.name == baseline {
            "baseline".to_owned()
        } else {
            format!("× {}", range(&price, significant))
        };
        let hint = format!("{}: {cost}, blocks {blocked}", subject.name);
        Some(Catch { name: subject.name.clone(), series, price, rate, hint })
    };
    let catches: Vec<Catch> = case.subjects.iter().enumerate().filter_map(catch).collect();
    let most = catches.iter().map(|catch| catch.rate).fold(0.0, f64::max);
    let best = catches.iter().filter(|catch| most > 0.0 && catch.rate >= most);
    let cheapest = best.min_by(|a, b| a.price.estimate.total_cmp(&b.price.estimate))?;
    Some(Figure {
        name: "catches",
        svg: svg::catches(baseline, &catches, cheapest),
        note: format!("The cheapest of those that block most is {}.", cheapest.hint),
        ..Figure::default()
    })
}

fn dots(baseline: &str, case: &CaseAnalysis) -> Option<Figure> {
    let subjects = case.subjects.iter().enumerate().filter(|(_, subject)| subject.name != baseline);
    let has_ratio = |(_, subject): &(usize, &SubjectAnalysis)| {
        subject.blocks.iter().any(|figure| figure.ratio.is_some())
    };
    let subjects: Vec<Dots<'_>> = subjects
        .filter(has_ratio)
        .map(|(series, subject)| Dots {
            name: &subject.name,
            series,
            blocks: &subject.blocks,
            price: subject.prices.get(&Metric::CpuUsPerRequest).and_then(|price| price.ratio),
        })
        .collect();
    let mut rows: BTreeMap<u32, Vec<Cell>> = BTreeMap::new();
    for (column, subject) in subjects.iter().enumerate() {
        for BlockFigure { block, ratio, outlier, .. } in subject.blocks {
            // A subject with an invalid trial has no ratio in that block.
            let cells = rows.entry(*block).or_insert_with(|| vec![NONE.into(); subjects.len()]);
            if let Some(ratio) = *ratio {
                let text = significant(ratio) + if *outlier { " (outlier)" } else { "" };
                cells[column] = Cell::valued("block_ratio", Some(ratio), text);
            }
        }
    }
    let caption = "CPU per request, relative to the baseline of the same block";
    let names = subjects.iter().map(|subject| format!("{} × {baseline}", subject.name));
    let rows = rows.into_iter().map(|(block, cells)| Row::named(None, block.to_string(), cells));
    (!subjects.is_empty()).then(|| Figure {
        name: "dots",
        svg: svg::dots(baseline, &subjects),
        table: Some(Table::of_rows(caption, ["block".to_owned()].into_iter().chain(names), rows)),
        ..Figure::default()
    })
}

/// The latencies of a subject over all its valid trials.
pub(super) struct Latencies<'a> {
    pub(super) name: &'a str,
    pub(super) series: usize,
    pub(super) histogram: LatencyHistogram,
}

fn latency(source: &ReportSource, case: &CaseAnalysis) -> anyhow::Result<Vec<Figure>> {
    let mut latencies = Vec::new();
    for (series, SubjectAnalysis { name, .. }) in case.subjects.iter().enumerate() {
        let histogram = source.latencies(&case.case.name, name)?;
        if histogram.count() > 0 {
            latencies.push(Latencies { name, series, histogram });
        }
    }
    let figure = |name, svg, table| Figure {
        name,
        svg,
        table: Some(table),
        legend: legend(case, latencies.iter().map(|one| one.series)),
        ..Figure::default()
    };
    let Some((edges, data)) = distributions(&latencies) else { return Ok(Vec::new()) };
    let curves: Vec<Curve> = latencies.iter().map(curve).collect();
    Ok(vec![
        figure("percentiles", svg::percentiles(&curves), percentiles_table(&latencies)),
        figure("distribution", svg::distribution(&edges, &data), shares_table(&edges, &data)),
    ])
}

const TICKS_PER_HALF: u32 = 5;

/// The quantiles in reports, besides minimum and maximum.
const NAMED: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// Latency by percentile, up to the percentile beyond which fewer than ten responses remain.
pub(super) fn curve(Latencies { name, series, histogram }: &Latencies<'_>) -> Curve {
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
    Curve { name: (*name).to_owned(), series: *series, points }
}

pub(super) fn percentiles_table(latencies: &[Latencies<'_>]) -> Table {
    let row = |Latencies { name, series, histogram }: &Latencies<'_>| {
        let named = NAMED.iter().map(|quantile| histogram.quantile_ns(*quantile));
        let all = std::iter::once(histogram.min_ns()).chain(named).chain([histogram.max_ns()]);
        let count = Cell::from(significant(as_f64(histogram.count())));
        let cells = all.map(|ns| Cell::figure("latency_ms", ns.map(ms), significant));
        Row::named(Some(*series), *name, [count].into_iter().chain(cells))
    };
    let header = "subject|responses|minimum|50 %|90 %|99 %|99.9 %|99.99 %|maximum".split('|');
    Table::of_rows("Latency in ms, over all valid trials", header, latencies.iter().map(row))
}

/// Number of classes of latency in the plot, and how many of them are one row of its table.
const CLASSES: u32 = 72;
const CLASSES_PER_ROW: usize = 6;

/// The edges of the classes of latency that all subjects of a case share, and the percentage of each subject's
/// responses in each class.
pub(super) fn distributions(latencies: &[Latencies<'_>]) -> Option<(Vec<f64>, Vec<Distribution>)> {
    let shortest = latencies.iter().filter_map(|one| one.histogram.min_ns()).min()?;
    let longest = latencies.iter().filter_map(|one| one.histogram.max_ns()).max()?;
    // At least a factor of two, so that classes are wider than the histogram's resolution.
    let longest = longest.max(shortest.saturating_mul(2));
    let (low, high) = (ms(shortest).ln(), ms(longest).ln());
    let edge = |index: u32| (low + (high - low) * f64::from(index) / f64::from(CLASSES)).exp();
    let edges: Vec<f64> = (0..=CLASSES).map(edge).collect();
    let of_one = |Latencies { name, series, histogram }: &Latencies<'_>| {
        // The lowest edge belongs to the lowest class; rounding must not push values out of the highest.
        let inner = edges[1..edges.len() - 1].iter().map(|edge| histogram.count_up_to(ns(*edge)));
        let counts: Vec<u64> = [0].into_iter().chain(inner).chain([histogram.count()]).collect();
        let all = as_f64(histogram.count());
        let percent = |pair: &[u64]| 100.0 * as_f64(pair[1].saturating_sub(pair[0])) / all;
        let percent = counts.windows(2).map(percent).collect();
        Distribution { name: (*name).to_owned(), series: *series, percent }
    };
    let distributions = latencies.iter().map(of_one).collect();
    Some((edges, distributions))
}

pub(super) fn shares_table(edges: &[f64], distributions: &[Distribution]) -> Table {
    let rows = (0..edges.len() - 1).step_by(CLASSES_PER_ROW).map(|first| {
        let next = (first + CLASSES_PER_ROW).min(edges.len() - 1);
        let [from, to] = [first, next].map(|edge| significant(edges[edge]));
        let share = |one: &Distribution| {
            Cell::figure("share_percent", Some(one.percent[first..next].iter().sum()), significant)
        };
        Row::named(None, format!("{from} to {to}"), distributions.iter().map(share))
    });
    let names = distributions.iter().map(|one| one.name.as_str());
    let columns = ["latency, ms"].into_iter().chain(names);
    Table::of_rows("Share of responses by latency, %", columns, rows)
}

fn timeline(source: &ReportSource, case: &CaseAnalysis) -> anyhow::Result<Option<Figure>> {
    let trials = Trials::of(source, case)?;
    let pauses =
        "Vertical lines: the run was stopped there and resumed later; the time between is omitted.";
    Ok((!trials.series().is_empty()).then(|| Figure {
        name: "timeline",
        svg: svg::timeline(&trials.timeline()),
        note: if trials.has_pauses() { pauses.to_owned() } else { String::new() },
        legend: legend(case, trials.series().into_iter()),
        table: Some(trials.table()),
        invalid: trials.invalid().into_iter().map(|trial| trial.hint).collect(),
        ..Figure::default()
    }))
}

/// Latency over cases that differ only in their load.
fn sweep(cases: &[&CaseAnalysis]) -> Figure {
    type Latency = fn(&SubjectAnalysis) -> Option<f64>;
    let load = |case: &CaseAnalysis| load_unit(&case.case.load).1;
    let unit = load_unit(&cases[0].case.load).0;
    let panel = |(quantile, of): (&'static str, Latency)| {
        let curve = |(series, subject): (usize, &SubjectAnalysis)| {
            let point =
                |case: &&CaseAnalysis| Some((load(case), of(case.subject(&subject.name)?)?));
            let points = cases.iter().filter_map(point).collect();
            Curve { name: subject.name.clone(), series, points }
        };
        let curves = cases[0].subjects.iter().enumerate().map(curve);
        let curves = curves.filter(|curve| !curve.points.is_empty()).collect();
        SweepPanel { unit: quantile, curves }
    };
    let quantiles: [(&str, Latency); 2] = [
        ("p50 latency, ms", |subject| subject.figures.as_ref()?.latency_p50_ms),
        ("p99 latency, ms", |subject| subject.figures.as_ref()?.latency_p99_ms),
    ];
    let mut panels = quantiles.map(panel).to_vec();
    panels.retain(|panel| !panel.curves.is_empty());
    let curves =
        || panels.iter().flat_map(|panel| panel.curves.iter().map(|one| (panel.unit, one)));
    let row = |case: &&CaseAnalysis| {
        let latency = |(_, curve): (&str, &Curve)| {
            let point = curve.points.iter().find(|point| point.0 == load(case));
            Cell::figure("latency_ms", point.map(|point| point.1), significant)
        };
        Row::named(None, in_full(load(case)), curves().map(latency))
    };
    let names = curves().map(|(quantile, curve)| format!("{}: {quantile}", curve.name));
    let columns = [unit.to_owned()].into_iter().chain(names);
    let series = panels.first().into_iter().flat_map(|panel| &panel.curves);
    let case_names: Vec<&str> = cases.iter().map(|case| case.case.name.as_str()).collect();
    Figure {
        name: "sweep",
        of: format!("{} to {}", case_names[0], case_names[case_names.len() - 1]),
        svg: svg::sweep(unit, &panels),
        note: format!("The cases: {}.", case_names.join(", ")),
        legend: legend(cases[0], series.map(|curve| curve.series)),
        table: Some(Table::of_rows("Latency at each load", columns, cases.iter().map(row))),
        ..Figure::default()
    }
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
