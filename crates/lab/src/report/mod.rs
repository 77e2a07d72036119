//! An analysis as people and programs read it.

pub mod ablation;
pub mod bencher;
pub mod bytes;
pub mod csv;
pub mod github;
pub mod gobench;
pub mod hgrm;
pub mod html;
pub mod hyperfine;
pub mod json;
pub mod latency;
pub mod layout;
pub mod markdown;
pub mod number;
pub mod rows;
pub mod source;
pub mod table;

use crate::analysis::{Analysis, analyse};
use crate::run_dir::{RunDirError, RunRecords};
use crate::whole_file;
use layout::Screen;
use source::Source;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;
use tollgate_stats::DecodeError;

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
    /// The prices cannot be over this subject.
    #[error("--baseline {name}: {why}")]
    Baseline {
        /// The subject that was asked for.
        name: String,
        /// Why not, and what to do instead.
        why: String,
    },
    /// There is nothing to write in a format whose reader refuses nothing.
    #[error(
        "no subject of this run has a valid trial, and github-action-benchmark refuses an empty array; \
         `tollgate report DIR` says why no trial counts"
    )]
    NoFigure,
    /// A record's time cannot be read.
    #[error("the time {text:?} of a record is not RFC 3339, so the record was changed or damaged")]
    Time {
        /// The time as it stands there.
        text: String,
        /// Why.
        source: jiff::Error,
    },
    /// A record's histogram cannot be read.
    #[error("reading the latencies of the trial {trial}: the record was changed or damaged")]
    Histogram {
        /// Case, subject and block.
        trial: String,
        /// Why.
        source: DecodeError,
    },
    /// The page's template fails.
    #[error("writing the report as HTML")]
    Page(#[source] minijinja::Error),
    /// A config cannot be read.
    #[error("reading {path}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
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

/// Writes an analysis as text. The screen is for the terminal's table alone.
///
/// # Errors
///
/// The format cannot hold it.
pub fn render(analysis: &Analysis, format: Format, screen: Screen) -> Result<String, ReportError> {
    Ok(match format {
        Format::Table => table::render(analysis, screen),
        Format::Markdown => markdown::render(analysis),
        Format::Csv => csv::render(analysis)?,
        Format::Json => json::render(analysis)?,
    })
}

/// Writes the reports that a run's directory holds.
///
/// # Errors
///
/// A file cannot be written, or the records cannot be read anew for the page.
pub fn write_all(analysis: &Analysis, dir: &Path) -> Result<(), ReportError> {
    for (format, name) in [
        (Format::Markdown, "report.md"),
        (Format::Csv, "report.csv"),
        (Format::Json, "report.json"),
    ] {
        write(&dir.join(name), &render(analysis, format, Screen::PLAIN)?)?;
    }
    if let Some(files) = ablation::csv(analysis)? {
        write(&dir.join("ablation.csv"), &files)?;
    }
    write(&dir.join("report.html"), &html::render(&Source::read(dir)?)?)
}

fn write(path: &Path, text: &str) -> Result<(), ReportError> {
    whole_file::write(path, text)
        .map_err(|source| ReportError::Write { path: path.to_owned(), source })
}
