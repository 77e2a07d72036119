//! Analysis, comparison and thresholds, and their rendering as texts, pages and exports.

pub mod analysis;
pub mod compare;
pub mod condition;
pub mod document;
pub mod export;
pub mod html;
pub mod junit;
mod markdown;
pub mod noise;
mod original;
pub mod source;
mod text;
pub mod threshold;

#[cfg(test)]
#[path = "../../../tests/schemas.rs"]
mod schemas;

use document::of_run;
pub use export::NoFigure;
use source::ReportSource;
use std::path::Path;
use tollgate_records::files::{json, write_atomic};
use tollgate_stats::text::Screen;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For a terminal.
    Table,
    /// For a pull request or a wiki.
    Markdown,
    /// For a browser: one file with all plots.
    Html,
    /// For a document: the chart of the CPU prices of the first case.
    Svg,
    /// For a spreadsheet: one line per price.
    Csv,
    /// For a program: everything.
    Json,
    /// For readers of the benchmark that the experiment repeats: its layout.
    Original,
    Hyperfine,
    Gobench,
    Github,
    Bencher,
}

/// Renders a report. Only [`Format::Table`] uses the screen.
pub fn render(source: &ReportSource, format: Format, screen: Screen) -> anyhow::Result<String> {
    match format {
        Format::Table => Ok(text::render(&of_run(source), screen)),
        Format::Markdown => Ok(markdown::render(&of_run(source))),
        Format::Html => html::render(source),
        Format::Svg => Ok(html::price_chart(source)?),
        Format::Csv => export::csv(&source.analysis),
        Format::Json => json(&source.analysis),
        Format::Original => original::render(source),
        Format::Hyperfine => export::hyperfine(source),
        Format::Gobench => Ok(export::gobench(source)),
        Format::Github => export::github(&source.analysis),
        Format::Bencher => export::bencher(source),
    }
}

pub fn write_all(source: &ReportSource, dir: &Path) -> anyhow::Result<()> {
    for (format, name) in [
        (Format::Markdown, "report.md"),
        (Format::Csv, "report.csv"),
        (Format::Json, "report.json"),
        (Format::Html, "report.html"),
    ] {
        write_atomic(&dir.join(name), &render(source, format, Screen::PLAIN)?)?;
    }
    for (name, text) in [
        ("ablation.csv", export::ablation_csv(&source.analysis)?),
        ("catch.csv", export::catch_csv(&source.analysis)?),
    ] {
        if let Some(text) = text {
            write_atomic(&dir.join(name), &text)?;
        }
    }
    Ok(())
}
