//! A batch as people and programs read it.

mod csv;
pub mod html;
mod table;

use super::dir::BatchRecords;
use super::findings::Findings;
use super::series::{Check, Point, checks, points};
use super::{BatchError, io_error};
use crate::report::layout::Screen;
use crate::whole_file;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;

/// The version of the shape of the JSON.
pub const SCHEMA: u32 = 1;

/// How a batch is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The columns of modsecurity-performance's `batchbench.sh stats`.
    Csv,
    /// For a terminal.
    Table,
    /// For a program: everything.
    Json,
    /// For a browser.
    Html,
}

/// What a batch says.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Stats {
    /// The version of this shape.
    pub schema: u32,
    /// The question that it answers.
    pub title: String,
    /// The version and commit of the tool that began it.
    pub tollgate: String,
    /// When it began, RFC 3339, UTC.
    pub started_at: String,
    /// The command that began it.
    pub command: String,
    /// The figure that revisions are priced by, in words.
    pub figure: String,
    /// What is too small to matter, as a share.
    pub margin: f64,
    /// The revision that prices are over.
    pub anchor: Option<String>,
    /// The revisions, in their order.
    pub revisions: Vec<Point>,
    /// Products that stood twice in a round.
    pub checks: Vec<Check>,
    /// What `tollgate batch find` found; none where nobody searched.
    pub findings: Option<Findings>,
}

/// What a batch says, from its records and from what was found in its directory.
///
/// # Errors
///
/// The findings cannot be read.
pub fn stats(records: &BatchRecords, dir: &Path) -> Result<Stats, BatchError> {
    let manifest = &records.manifest;
    let anchor = manifest.anchor.as_deref().and_then(|id| manifest.revision(id));
    Ok(Stats {
        schema: SCHEMA,
        title: manifest.settings.title.clone(),
        tollgate: manifest.tollgate.clone(),
        started_at: manifest.started_at.clone(),
        command: manifest.command.clone(),
        figure: manifest.settings.figure.words().to_owned(),
        margin: manifest.settings.margin,
        anchor: anchor.map(|revision| revision.name.clone()),
        revisions: points(records),
        checks: checks(records),
        findings: Findings::read(dir)?,
    })
}

/// Writes what a batch says as text. The screen is for the terminal's table alone.
///
/// # Errors
///
/// The format cannot hold it.
pub fn render(stats: &Stats, format: Format, screen: Screen) -> Result<String, BatchError> {
    match format {
        Format::Csv => csv::render(stats),
        Format::Table => Ok(table::render(stats, screen)),
        Format::Json => {
            let text = serde_json::to_string_pretty(stats);
            text.map(|text| text + "\n").map_err(|error| BatchError::Render(error.into()))
        }
        Format::Html => html::render(stats),
    }
}

/// Writes the reports that the directory of a batch holds.
///
/// # Errors
///
/// A file cannot be written.
pub(super) fn write_all(records: &BatchRecords, dir: &Path) -> Result<(), BatchError> {
    let stats = stats(records, dir)?;
    for (format, name) in
        [(Format::Csv, "stats.csv"), (Format::Json, "stats.json"), (Format::Html, "stats.html")]
    {
        let path = dir.join(name);
        let text = render(&stats, format, Screen::PLAIN)?;
        whole_file::write(&path, &text).map_err(io_error("writing", &path))?;
    }
    Ok(())
}
