//! The prices as CSV, one line for each case, subject and figure, numbers unrounded.

use crate::analysis::{Analysis, Range};
use crate::error::ReportError;
use std::io;

/// Writes an analysis as CSV.
pub fn render(analysis: &Analysis) -> Result<String, ReportError> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record([
        "case",
        "subject",
        "baseline",
        "status",
        "metric",
        "n",
        "ratio",
        "ratio_low",
        "ratio_high",
        "difference",
        "difference_low",
        "difference_high",
        "interval",
    ])?;
    for case in &analysis.cases {
        for subject in &case.subjects {
            let who = [
                case.case.name.as_str(),
                subject.name.as_str(),
                analysis.baseline.as_str(),
                subject.status.word(),
            ];
            if subject.prices.is_empty() {
                // A subject without a price is a line all the same, or it would seem not to be there.
                writer.write_record(who.into_iter().chain([""; 9]))?;
            }
            for (metric, price) in &subject.prices {
                let mut row: Vec<String> = who.map(str::to_owned).to_vec();
                row.extend([metric.name().to_owned(), price.n.to_string()]);
                row.extend(ends(price.ratio.as_ref()));
                row.extend(ends(Some(&price.difference)));
                let kind = if price.difference.interval { "95 % interval" } else { "range seen" };
                row.push(kind.to_owned());
                writer.write_record(row)?;
            }
        }
    }
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    String::from_utf8(bytes)
        .map_err(|error| csv::Error::from(io::Error::other(error)))
        .map_err(ReportError::from)
}

fn ends(range: Option<&Range>) -> [String; 3] {
    match range {
        Some(range) => [range.estimate, range.low, range.high].map(|value| value.to_string()),
        None => [const { String::new() }; 3],
    }
}
