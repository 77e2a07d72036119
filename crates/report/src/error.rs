//! Errors of a report, and the files that it is written to.

use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;
use tollgate_experiment::files::write_atomic;
use tollgate_experiment::run_dir::RunDirError;
use tollgate_stats::DecodeError;

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

/// Writes a file of a report.
pub fn write(path: &Path, text: &str) -> Result<(), ReportError> {
    write_atomic(path, text).map_err(|source| ReportError::Write { path: path.to_owned(), source })
}
