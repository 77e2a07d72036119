//! The columns of modsecurity-performance's `batchbench.sh stats`, exactly.

use super::Stats;
use crate::batch::BatchError;
use crate::batch::series::Point;
use csv::{QuoteStyle, WriterBuilder};

/// The first line, which begins as a comment does there.
const HEADER: &str = ";rps_avg,latency_avg,workers_utime_avg,revision,date,commit_log\n";

/// One line a revision. One without figures has its first three cells empty; a cell is in quotes only
/// where it holds a comma or a quote.
pub(super) fn render(stats: &Stats) -> Result<String, BatchError> {
    let failed = |error: csv::Error| BatchError::Render(error.into());
    let mut writer =
        WriterBuilder::new().quote_style(QuoteStyle::Necessary).from_writer(Vec::new());
    for point in &stats.revisions {
        writer.write_record(cells(point)).map_err(failed)?;
    }
    let bytes =
        writer.into_inner().map_err(|error| BatchError::Render(error.to_string().into()))?;
    let text = String::from_utf8(bytes).map_err(|error| BatchError::Render(error.into()))?;
    Ok(HEADER.to_owned() + &text)
}

fn cells(point: &Point) -> [String; 6] {
    let figure = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.2}"));
    [
        figure(point.means.map(|means| means.throughput_per_s)),
        figure(point.means.and_then(|means| means.latency_mean_ms)),
        figure(point.means.and_then(|means| means.user_ticks)),
        point.revision.clone(),
        point.date.clone(),
        point.log.clone(),
    ]
}
