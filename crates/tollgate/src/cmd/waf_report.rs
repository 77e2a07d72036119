//! Reports of `tollgate waf diff` and `tollgate waf tune`, in all formats.

use std::fmt::Write as _;

use clap::ValueEnum;
use serde::Serialize;
use tollgate_records::files;
use tollgate_report::document::Table;
use tollgate_report::html::{self, STYLE};
use tollgate_stats::text::Screen;

use crate::console::{self, Failure};

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Format {
    /// For a terminal
    Table,
    /// For a pull request
    Markdown,
    /// A page without scripts, for a browser
    Html,
    /// For programs: all data
    Json,
}

/// Findings of a report, without its data.
#[derive(Debug, Serialize)]
pub(super) struct Findings {
    pub(super) title: &'static str,
    pub(super) summary: Vec<String>,
    pub(super) table: Table,
    /// Rows of the table in detail: names, and lines with texts of requests.
    pub(super) details: Vec<(String, Vec<String>)>,
}

/// Prints a report: its findings for people, or its data.
pub(super) fn print(
    format: Format,
    findings: &Findings,
    data: &impl Serialize,
) -> Result<(), Failure> {
    let text = match format {
        Format::Table => findings.text(console::screen())?,
        Format::Markdown => findings.markdown()?,
        Format::Html => findings.html()?,
        Format::Json => files::json(data)?,
    };
    Ok(console::print(&text)?)
}

impl Findings {
    fn text(&self, screen: Screen) -> Result<String, Failure> {
        let mut text: String = self.summary.iter().map(|line| screen.wrapped(line)).collect();
        if !self.details.is_empty() {
            write!(text, "\n{}\n", self.table.draw(screen))?;
        }
        for (name, lines) in &self.details {
            writeln!(text, "{name}")?;
            lines.iter().try_for_each(|line| writeln!(text, "    {line}"))?;
        }
        Ok(text)
    }

    fn markdown(&self) -> Result<String, Failure> {
        let mut text = format!("## {}\n\n{}\n", self.title, self.summary.join("\n"));
        if !self.details.is_empty() {
            write!(text, "\n{}", self.table.markdown())?;
        }
        // Indented lines are code, in which no character is special.
        for (name, lines) in &self.details {
            writeln!(text, "\n    {name}")?;
            lines.iter().try_for_each(|line| writeln!(text, "        {line}"))?;
        }
        Ok(text)
    }

    fn html(&self) -> Result<String, Failure> {
        #[derive(Serialize)]
        struct Page<'a> {
            style: &'static str,
            findings: &'a Findings,
        }
        Ok(html::page_of(
            include_str!("waf_report.html.j2"),
            &Page { style: STYLE, findings: self },
        )?)
    }
}
