//! Tables of latency: quantiles, distribution, additions of each subject, and sweeps.

use super::{Row, Table, cell, figure, plain};
use crate::analysis::{Analysis, CaseAnalysis};
use crate::html::plots::{Latencies, NAMED, ms};
use crate::html::svg;
use crate::html::svg::distribution::Distribution;
use crate::html::svg::sweep;
use crate::{latency, rows};
use tollgate_experiment::record::as_f64;
use tollgate_stats::number::{in_full, significant};

pub(in crate::html) fn percentiles(latencies: &[Latencies]) -> Option<Table> {
    let header = [
        "subject",
        "responses",
        "shortest",
        "50 %",
        "90 %",
        "99 %",
        "99.9 %",
        "99.99 %",
        "longest",
    ];
    let rows = latencies.iter().map(|one| {
        let histogram = &one.histogram;
        let mut cells = vec![plain(&significant(as_f64(histogram.count())))];
        let named = NAMED.iter().map(|quantile| histogram.quantile_ns(*quantile));
        let all = std::iter::once(histogram.min_ns()).chain(named).chain([histogram.max_ns()]);
        cells.extend(all.map(|ns| figure("latency_ms", ns.map(ms), significant)));
        Row { name: one.name.clone(), key: Some(svg::key(one.series)), cells }
    });
    let table = Table {
        caption: "Latency in ms, over all valid trials".to_owned(),
        of: String::new(),
        prose: false,
        header: header.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    };
    (!latencies.is_empty()).then_some(table)
}

/// Latency in a sweep, one row per load.
pub(in crate::html) fn sweep(unit: &str, panels: &[sweep::Panel]) -> Option<Table> {
    let lines: Vec<(&sweep::Panel, &sweep::Line)> =
        panels.iter().flat_map(|panel| panel.lines.iter().map(move |line| (panel, line))).collect();
    let mut loads: Vec<f64> =
        lines.iter().flat_map(|(_, line)| &line.points).map(|point| point.0).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let rows = loads.iter().map(|load| {
        let at = |line: &sweep::Line| line.points.iter().find(|point| point.0 == *load).copied();
        let latency = |line| figure("latency_ms", at(line).map(|point| point.1), significant);
        Row {
            name: in_full(*load),
            key: None,
            cells: lines.iter().map(|(_, line)| latency(line)).collect(),
        }
    });
    let names = lines.iter().map(|(panel, line)| format!("{}: {}", line.name, panel.unit));
    let table = Table {
        caption: "Latency at each load".to_owned(),
        of: String::new(),
        prose: false,
        header: std::iter::once(unit.to_owned()).chain(names).collect(),
        rows: rows.collect(),
    };
    (!table.rows.is_empty()).then_some(table)
}

/// The distribution in fewer classes than the plot has.
pub(in crate::html) fn shares(edges: &[f64], distributions: &[Distribution]) -> Option<Table> {
    let rows = (0..edges.len().saturating_sub(1)).step_by(CLASSES_OF_A_ROW).map(|first| {
        let next = (first + CLASSES_OF_A_ROW).min(edges.len() - 1);
        let share = |one: &Distribution| {
            let percent = one.percent.iter().take(next).skip(first).sum();
            cell("share_percent", Some(percent), significant(percent))
        };
        let [from, to] = [first, next].map(|edge| significant(edges[edge]));
        Row {
            name: format!("{from} to {to}"),
            key: None,
            cells: distributions.iter().map(share).collect(),
        }
    });
    let names = distributions.iter().map(|one| one.name.clone());
    let table = Table {
        caption: "Share of responses by latency, %".to_owned(),
        of: String::new(),
        prose: false,
        header: std::iter::once("latency, ms".to_owned()).chain(names).collect(),
        rows: rows.collect(),
    };
    (!distributions.is_empty()).then_some(table)
}

const CLASSES_OF_A_ROW: usize = 6;

pub(in crate::html) fn latency(analysis: &Analysis, case: &CaseAnalysis) -> Option<Table> {
    let rows::Rows { header, rows } = latency::rows(analysis, case);
    let row = |cells: Vec<String>| {
        let (name, cells) = cells.split_first()?;
        let cells = cells.iter().map(|text| plain(text)).collect();
        Some(Row { name: name.clone(), key: None, cells })
    };
    let table = Table {
        caption: "Added latency, ms".to_owned(),
        of: String::new(),
        prose: false,
        header,
        rows: rows.into_iter().filter_map(row).collect(),
    };
    (!table.rows.is_empty()).then_some(table)
}
