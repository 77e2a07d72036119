//! The prices as the array that github-action-benchmark reads with `tool: customSmallerIsBetter`.
//!
//! Contains only figures of which less is better: one file has one direction.

use crate::analysis::Analysis;
use crate::error::ReportError;
use crate::rows::range;
use serde::Serialize;
use tollgate_experiment::metric::Metric;
use tollgate_stats::number::counted;
use tollgate_stats::number::significant;

#[derive(Serialize)]
struct Entry {
    name: String,
    unit: String,
    value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<String>,
    extra: String,
}

pub fn render(analysis: &Analysis) -> Result<String, ReportError> {
    let mut entries = Vec::new();
    for case in &analysis.cases {
        for subject in &case.subjects {
            let name = format!("{}/{}", case.case.name, subject.name);
            let cpu = subject.prices.get(&Metric::CpuUsPerRequest);
            if let Some((price, ratio)) = cpu.and_then(|price| Some((price, price.ratio?))) {
                entries.push(Entry {
                    name: format!("{name}: CPU per request"),
                    unit: format!("× {}", analysis.baseline),
                    value: ratio.estimate,
                    range: Some(format!(
                        "{} to {}",
                        significant(ratio.low),
                        significant(ratio.high)
                    )),
                    extra: format!("{}, {}", counted(price.n, "block"), range(&ratio, significant)),
                });
            }
            let Some(figures) = &subject.figures else {
                continue;
            };
            for (figure, unit, value) in [
                ("CPU per request", "µs", figures.cpu_us_per_request),
                ("p50 latency", "ms", figures.latency_p50_ms),
                ("p99 latency", "ms", figures.latency_p99_ms),
                ("peak memory", "bytes", figures.memory_peak_bytes),
                ("start-up", "ms", figures.startup_ms),
            ] {
                entries.extend(value.map(|value| Entry {
                    name: format!("{name}: {figure}, median"),
                    unit: unit.to_owned(),
                    value,
                    range: None,
                    extra: counted(figures.n, "block"),
                }));
            }
        }
    }
    if entries.is_empty() {
        return Err(ReportError::NoFigure);
    }
    Ok(serde_json::to_string_pretty(&entries)? + "\n")
}
