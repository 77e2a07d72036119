//! An analysis as people and programs read it.

pub mod csv;
pub mod json;
pub mod layout;
pub mod markdown;
pub mod number;
pub mod rows;
pub mod table;

use crate::analysis::{Analysis, analyse};
use crate::run_dir::{RunDirError, RunRecords};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For a terminal.
    Table,
    /// For a pull request or a wiki.
    Markdown,
    /// For a spreadsheet: one line a price.
    Csv,
    /// For a program: everything.
    Json,
}

/// Why there is no report.
#[derive(Debug, Error)]
pub enum ReportError {
    /// The run's directory cannot be read.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// It cannot be written as CSV.
    #[error("writing the prices as CSV")]
    Csv(#[from] ::csv::Error),
    /// It cannot be written as JSON.
    #[error("writing the report as JSON")]
    Json(#[from] serde_json::Error),
    /// The file cannot be written.
    #[error("writing {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The analysis of the run in a directory, from the records on disk.
///
/// # Errors
///
/// The directory is not a run's, or cannot be read.
pub fn of_run(dir: &Path) -> Result<Analysis, ReportError> {
    Ok(analyse(&RunRecords::read(dir)?))
}

/// Writes an analysis as text. `color` is for the terminal's table alone.
///
/// # Errors
///
/// The format cannot hold it.
pub fn render(analysis: &Analysis, format: Format, color: bool) -> Result<String, ReportError> {
    Ok(match format {
        Format::Table => table::render(analysis, color),
        Format::Markdown => markdown::render(analysis),
        Format::Csv => csv::render(analysis)?,
        Format::Json => json::render(analysis)?,
    })
}

/// Writes the reports that a run's directory holds.
///
/// # Errors
///
/// A file cannot be written.
pub fn write_all(analysis: &Analysis, dir: &Path) -> Result<(), ReportError> {
    for (format, name) in [
        (Format::Markdown, "report.md"),
        (Format::Csv, "report.csv"),
        (Format::Json, "report.json"),
    ] {
        let path = dir.join(name);
        let text = render(analysis, format, false)?;
        fs::write(&path, text).map_err(|source| ReportError::Write { path, source })?;
    }
    Ok(())
}
