//! The figures of each block, which show drift and outliers.

use schemars::JsonSchema;
use serde::Serialize;
use tollgate_experiment::metric::ByBlock;
use tollgate_experiment::metric::Metric;
use tollgate_stats::{OUTLIER_Z, modified_z_scores};

/// The figures of a subject in one block. Outliers are marked, but not excluded from prices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct BlockFigure {
    /// Number of the block, from 1.
    pub block: u32,
    /// CPU of the system per response, in microseconds.
    pub cpu_us_per_request: Option<f64>,
    /// Expected responses per second.
    pub throughput_per_s: f64,
    /// Median latency, in milliseconds.
    pub latency_p50_ms: Option<f64>,
    /// 99th percentile of the latency, in milliseconds.
    pub latency_p99_ms: Option<f64>,
    /// CPU per response relative to the baseline in the same block; null if one of them has
    /// none or is invalid.
    pub ratio: Option<f64>,
    /// True if the ratio is far from those of the other blocks; without a ratio, the CPU.
    pub outlier: bool,
}

pub(super) fn figures(
    subject: &ByBlock<'_>,
    baseline: &ByBlock<'_>,
    is_baseline: bool,
) -> Vec<BlockFigure> {
    let cpu = |of: &ByBlock<'_>, block: &u32| {
        of.get(block).and_then(|m| Metric::CpuUsPerRequest.of(m)).filter(|cpu| *cpu > 0.0)
    };
    let mut figures: Vec<BlockFigure> = subject
        .iter()
        .map(|(block, measurement)| {
            let own = cpu(subject, block);
            let ratio = own.zip(cpu(baseline, block)).map(|(own, baseline)| own / baseline);
            BlockFigure {
                block: *block,
                cpu_us_per_request: own,
                throughput_per_s: measurement.throughput_per_s,
                latency_p50_ms: measurement.latency.p50_ms,
                latency_p99_ms: measurement.latency.p99_ms,
                ratio,
                outlier: false,
            }
        })
        .collect();
    // The baseline's own ratios are all 1.
    let shown = |figure: &BlockFigure| match is_baseline {
        true => figure.cpu_us_per_request,
        false => figure.ratio.or(figure.cpu_us_per_request),
    };
    let values: Vec<f64> = figures.iter().filter_map(shown).map(f64::ln).collect();
    let mut scores = modified_z_scores(&values).into_iter();
    for figure in &mut figures {
        if shown(figure).is_some() {
            figure.outlier = scores.next().is_some_and(|score| score.abs() > OUTLIER_Z);
        }
    }
    figures
}
