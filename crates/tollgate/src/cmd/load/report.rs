//! The result as people and programs read it, one file for each format.

mod ab;
mod books;
mod csv;
mod layout;
mod plot;
mod table;
mod templates;
mod threads;

pub(super) use layout::grouped;

use super::args::Format;
use super::result::LoadResult;
use super::settings::Settings;
use anyhow::{Context, Result};
use tollgate_load::Outcome;

/// Writes a result in the format that was asked for. What is foreign to us (`ab`'s report,
/// HdrHistogram's percentiles) is made from the outcome itself, which alone has the histograms.
///
/// # Errors
///
/// The format cannot hold it.
pub(crate) fn render(
    settings: &Settings,
    outcome: &Outcome,
    result: &LoadResult,
) -> Result<String> {
    Ok(match settings.format {
        Format::Table => table::render(result, &outcome.latency),
        Format::Json => {
            serde_json::to_string_pretty(result).context("writing the result as JSON")? + "\n"
        }
        Format::Csv => csv::render(result).context("writing the result as CSV")?,
        Format::Ab => ab::render(settings, outcome),
        Format::Hgrm => outcome.latency.to_hgrm(),
    })
}
