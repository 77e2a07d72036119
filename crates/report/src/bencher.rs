//! The figures in the Bencher Metric Format: a benchmark is a subject under a case.
//!
//! The format: <https://bencher.dev/docs/reference/bencher-metric-format/>. Measures are named after
//! the figures of report.json.

use super::source::Source;
use crate::error::ReportError;
use serde::Serialize;
use std::collections::BTreeMap;
use tollgate_experiment::metric::Metric;
use tollgate_experiment::record::{Measurement, as_f64};
use tollgate_stats::summarize;

/// A figure; the bounds of a ratio are those of its interval or, where there are too few blocks for
/// one, of the range seen; those of others the smallest and the largest of the blocks.
#[derive(Serialize)]
struct Value {
    value: f64,
    lower_value: f64,
    upper_value: f64,
}

/// Writes every figure of every case and subject.
pub fn render(source: &Source) -> Result<String, ReportError> {
    let mut benchmarks: BTreeMap<String, BTreeMap<&str, Value>> = BTreeMap::new();
    for case in &source.analysis.cases {
        for subject in &case.subjects {
            let mut measures = BTreeMap::new();
            let price = subject.prices.get(&Metric::CpuUsPerRequest);
            if let Some(ratio) = price.and_then(|price| price.ratio) {
                let (value, lower_value, upper_value) = (ratio.estimate, ratio.low, ratio.high);
                measures.insert("cpu-ratio", Value { value, lower_value, upper_value });
            }
            let valid = source.valid(&case.case.name, &subject.name);
            for (name, of) in FIGURES {
                // A figure that a block lacks is not told over the others.
                let values: Option<Vec<f64>> = valid.values().map(|m| of(m)).collect();
                if let Some(summary) = values.and_then(|values| summarize(&values)) {
                    let (lower_value, upper_value) = (summary.min, summary.max);
                    measures
                        .insert(name, Value { value: summary.median, lower_value, upper_value });
                }
            }
            if !measures.is_empty() {
                benchmarks.insert(format!("{}/{}", case.case.name, subject.name), measures);
            }
        }
    }
    Ok(serde_json::to_string_pretty(&benchmarks)? + "\n")
}

type Figure = fn(&Measurement) -> Option<f64>;

const FIGURES: [(&str, Figure); 5] = [
    ("cpu-us-per-request", Measurement::system_cpu_us_per_request),
    ("throughput-per-s", |measurement| Some(measurement.throughput_per_s)),
    ("latency-p50-ms", |measurement| measurement.latency.p50_ms),
    ("latency-p99-ms", |measurement| measurement.latency.p99_ms),
    ("memory-peak-bytes", |measurement| measurement.memory_peak_bytes.map(as_f64)),
];
