//! Reports of a load: a human-readable table, JSON, CSV, and the formats of `ab` and `HdrHistogram`.
//! docs/formats.md describes them.

mod ab;
pub use ab::{AbTotals, ab_of_totals};
mod csv;
mod json;
#[cfg(test)]
pub(crate) use json::LoadResult;
mod plot;
mod report;
mod series;
#[cfg(test)]
pub(crate) use series::IntervalLine;
pub use series::{SeriesFormat, SeriesWriter};
mod table;

use std::io;

pub use report::{Report, TemplateLabel, WarmUpResult};

impl Report<'_> {
    /// Formats a human-readable table, in lines of at most 80 characters.
    pub fn to_table(&self) -> io::Result<String> {
        table::render(self)
    }

    /// Formats the complete result as JSON.
    pub fn to_json(&self) -> io::Result<String> {
        json::render(self)
    }

    /// Formats a row for the total, each class and each template as CSV.
    pub fn to_csv(&self) -> io::Result<String> {
        csv::render(self)
    }

    /// Formats the report of `ab`, Apache's benchmark.
    pub fn to_ab(&self) -> String {
        ab::render(self)
    }

    /// Formats the percentiles of the latency as HdrHistogram does, for its plotters.
    pub fn to_hgrm(&self) -> String {
        self.summary.latency.to_hgrm()
    }
}
