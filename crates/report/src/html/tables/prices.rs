//! Tables of prices, over all trials and by block.

use super::{Cell, NONE, Row, Table, cell, figure, plain};
use crate::analysis::{
    Analysis, CaseAnalysis, Figures, SubjectAnalysis, SubjectStatus, verdict_word,
};
use crate::html::svg;
use crate::html::svg::dots::Panel;
use crate::rows;
use std::collections::BTreeMap;
use tollgate_experiment::metric::Metric;
use tollgate_experiment::record::as_f64;
use tollgate_stats::number::{percent, signed, significant};

pub(in crate::html) fn prices(analysis: &Analysis, case: &CaseAnalysis) -> Table {
    let over = &analysis.baseline;
    let header = [
        "subject".to_owned(),
        format!("price: × {over} [95\u{a0}%]"),
        format!("difference: µs over {over} [95\u{a0}%]"),
        "CPU, µs per request".to_owned(),
        "peak memory, MiB".to_owned(),
        "start-up, ms".to_owned(),
        "attacks detected".to_owned(),
        "false positives".to_owned(),
        "n, blocks".to_owned(),
        "verdict".to_owned(),
    ];
    let rows = (0..).zip(&case.subjects).map(|(series, subject)| Row {
        name: subject.name.clone(),
        key: Some(svg::key(series)),
        cells: price_cells(analysis, subject),
    });
    Table {
        caption: "Cost of a request, and detection".to_owned(),
        of: String::new(),
        prose: false,
        header: header.to_vec(),
        rows: rows.collect(),
    }
}

fn price_cells(analysis: &Analysis, subject: &SubjectAnalysis) -> Vec<Cell> {
    let price = subject.prices.get(&Metric::CpuUsPerRequest);
    let ratio = price.and_then(|price| price.ratio);
    let figures = subject.figures.as_ref();
    let is_baseline = subject.name == analysis.baseline;
    let in_place = match &subject.status {
        SubjectStatus::Baseline | SubjectStatus::Measured if figures.is_some() => None,
        SubjectStatus::Baseline | SubjectStatus::Measured => Some("no valid trial"),
        other => Some(other.word()),
    };
    let price_text = match (in_place, ratio) {
        (Some(word), _) => word.to_owned(),
        (None, Some(ratio)) => rows::range(&ratio, significant),
        (None, None) if is_baseline => "baseline".to_owned(),
        (None, None) => NONE.to_owned(),
    };
    let difference = price.map(|price| price.difference);
    let difference_text = difference.map_or(NONE.to_owned(), |range| rows::range(&range, signed));
    let mebibytes = |bytes: f64| significant(bytes / f64::from(1 << 20));
    let of = |value: fn(&Figures) -> Option<f64>| figures.and_then(value);
    let n = price.map_or_else(|| figures.map_or(0, |figures| figures.n), |price| price.n);
    vec![
        cell("ratio", ratio.map(|ratio| ratio.estimate), price_text),
        cell("difference", difference.map(|range| range.estimate), difference_text),
        figure("cpu_us_per_request", of(|f| f.cpu_us_per_request), significant),
        figure("memory_peak_bytes", of(|f| f.memory_peak_bytes), mebibytes),
        figure("startup_ms", of(|f| f.startup_ms), significant),
        figure("detection_rate", of(|f| f.detection_rate), percent),
        figure("false_positive_rate", of(|f| f.false_positive_rate), percent),
        cell("n", Some(as_f64(n as u64)), n.to_string()),
        plain(price.and_then(|price| price.verdict).map_or(NONE, verdict_word)),
    ]
}

/// The ratio of each block, as in the dot plot.
pub(in crate::html) fn blocks(baseline: &str, panels: &[Panel]) -> Option<Table> {
    let mut rows: BTreeMap<u32, Vec<Cell>> = BTreeMap::new();
    for (column, panel) in panels.iter().enumerate() {
        for dot in &panel.dots {
            let cells = rows.entry(dot.block).or_default();
            // A subject with an invalid trial has no ratio in that block.
            cells.resize_with(column, || plain(NONE));
            let outlier = if dot.outlier { " (outlier)" } else { "" };
            let text = significant(dot.ratio) + outlier;
            cells.push(cell("block_ratio", Some(dot.ratio), text));
        }
    }
    let names = panels.iter().map(|panel| format!("{} × {baseline}", panel.name));
    let table = Table {
        caption: "CPU per request, relative to the baseline of the same block".to_owned(),
        of: String::new(),
        prose: false,
        header: std::iter::once("block".to_owned()).chain(names).collect(),
        rows: rows
            .into_iter()
            .map(|(block, mut cells)| {
                cells.resize_with(panels.len(), || plain(NONE));
                Row { name: block.to_string(), key: None, cells }
            })
            .collect(),
    };
    (!panels.is_empty()).then_some(table)
}

pub(in crate::html) fn loads(analysis: &Analysis, case: &CaseAnalysis) -> Option<Table> {
    let over = &analysis.baseline;
    let header = [
        "subject".to_owned(),
        "requests/s".to_owned(),
        format!("requests/s × {over}"),
        "p50, ms".to_owned(),
        format!("p50 × {over}"),
        "p99, ms".to_owned(),
        format!("p99 × {over}"),
        format!("memory × {over}"),
        "limit".to_owned(),
    ];
    let row = |(series, subject): (usize, &SubjectAnalysis)| {
        let figures = subject.figures.as_ref()?;
        let ratio = |metric, name| {
            let ratio = subject.prices.get(&metric).and_then(|price| price.ratio);
            let text = rows::ratio(subject, metric).unwrap_or_else(|| NONE.to_owned());
            cell(name, ratio.map(|ratio| ratio.estimate), text)
        };
        let at_least = rows::at_least(figures, case.case.open_loop.is_some());
        let per_s = |value| format!("{at_least}{}", significant(value));
        let limit = figures.bottleneck.map_or(NONE.to_owned(), |limit| limit.to_string());
        let cells = vec![
            figure("throughput_per_s", figures.throughput_per_s, per_s),
            ratio(Metric::ThroughputPerS, "throughput_ratio"),
            figure("latency_p50_ms", figures.latency_p50_ms, significant),
            ratio(Metric::LatencyP50Ms, "latency_p50_ratio"),
            figure("latency_p99_ms", figures.latency_p99_ms, significant),
            ratio(Metric::LatencyP99Ms, "latency_p99_ratio"),
            ratio(Metric::MemoryPeakBytes, "memory_ratio"),
            plain(&limit),
        ];
        Some(Row { name: subject.name.clone(), key: Some(svg::key(series)), cells })
    };
    let table = Table {
        caption: "Throughput and latency".to_owned(),
        of: String::new(),
        prose: false,
        header: header.to_vec(),
        rows: (0..).zip(&case.subjects).filter_map(row).collect(),
    };
    (!table.rows.is_empty()).then_some(table)
}
