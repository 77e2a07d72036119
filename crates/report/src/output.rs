//! Output formats of an analysis.

use crate::analysis::{Analysis, analyse};
use crate::error::{ReportError, write};
use crate::source::Source;
use crate::{ablation, csv, html, json, markdown, table};
use std::path::Path;
use tollgate_experiment::run_dir::RunRecords;
use tollgate_stats::text::Screen;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For a terminal.
    Table,
    /// For a pull request or a wiki.
    Markdown,
    /// For a spreadsheet: one line per price.
    Csv,
    /// For a program: everything.
    Json,
}

pub fn of_run(dir: &Path) -> Result<Analysis, ReportError> {
    Ok(analyse(&RunRecords::read(dir)?))
}

/// Renders an analysis. Only [`Format::Table`] uses the screen.
pub fn render(analysis: &Analysis, format: Format, screen: Screen) -> Result<String, ReportError> {
    Ok(match format {
        Format::Table => table::render(analysis, screen),
        Format::Markdown => markdown::render(analysis),
        Format::Csv => csv::render(analysis)?,
        Format::Json => json::render(analysis)?,
    })
}

/// Writes all reports of a run into its directory.
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
