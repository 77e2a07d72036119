//! The formats and files of a report, and its errors.

use crate::document::of_run;
use crate::source::Source;
use crate::{export, html, markdown, text};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;
use tollgate_experiment::files::write_atomic;
use tollgate_experiment::run_dir::RunDirError;
use tollgate_stats::DecodeError;
use tollgate_stats::text::Screen;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For a terminal.
    Table,
    /// For a pull request or a wiki.
    Markdown,
    /// For a browser: one file with all plots.
    Html,
    /// For a spreadsheet: one line per price.
    Csv,
    /// For a program: everything.
    Json,
    Hyperfine,
    Gobench,
    Github,
    Bencher,
}

#[derive(Debug, Error)]
pub enum ReportError {
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    #[error("cannot write CSV")]
    Csv(#[from] ::csv::Error),
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),
    #[error("--baseline {name}: {reason}")]
    Baseline { name: String, reason: String },
    #[error(
        "no subject of this run has a valid trial, and github-action-benchmark refuses an empty array; \
         `tollgate report DIR` says why no trial counts"
    )]
    NoFigure,
    #[error("the time {text:?} of a record is not RFC 3339, so the record was changed or damaged")]
    Time { text: String, source: jiff::Error },
    /// `trial`: case, subject and block.
    #[error("cannot read the latencies of the trial {trial}: the record was changed or damaged")]
    Histogram { trial: String, source: DecodeError },
    #[error("cannot write HTML")]
    Page(#[from] minijinja::Error),
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {path}")]
    Write { path: PathBuf, source: io::Error },
}

/// Renders a report. Only [`Format::Table`] uses the screen.
pub fn render(source: &Source, format: Format, screen: Screen) -> Result<String, ReportError> {
    match format {
        Format::Table => Ok(text::render(&of_run(source), screen)),
        Format::Markdown => Ok(markdown::render(&of_run(source))),
        Format::Html => html::render(source),
        Format::Csv => export::csv(&source.analysis),
        Format::Json => export::json(&source.analysis),
        Format::Hyperfine => export::hyperfine(source),
        Format::Gobench => Ok(export::gobench(source)),
        Format::Github => export::github(&source.analysis),
        Format::Bencher => export::bencher(source),
    }
}

/// Writes the reports of a run into its directory.
pub fn write_all(source: &Source, dir: &Path) -> Result<(), ReportError> {
    for (format, name) in [
        (Format::Markdown, "report.md"),
        (Format::Csv, "report.csv"),
        (Format::Json, "report.json"),
        (Format::Html, "report.html"),
    ] {
        write(&dir.join(name), &render(source, format, Screen::PLAIN)?)?;
    }
    match export::ablation_csv(&source.analysis)? {
        Some(files) => write(&dir.join("ablation.csv"), &files),
        None => Ok(()),
    }
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), ReportError> {
    write_atomic(path, text).map_err(|source| ReportError::Write { path: path.to_owned(), source })
}
