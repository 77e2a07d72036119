//! The report for a terminal.

use super::bytes;
use super::layout::{COLUMNS, bar, paragraph};
use super::rows::{self, Rows};
use crate::analysis::{Analysis, CaseAnalysis, SubjectAnalysis};
use comfy_table::{
    Attribute, Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle,
};
use std::fmt::Write as _;

/// Writes an analysis for a terminal, with bold headings where there is color.
pub fn render(analysis: &Analysis, color: bool) -> String {
    let mut text = format!("{}\n", emphasised(&analysis.title, color));
    text += &wrapped(&analysis.settling);
    for case in &analysis.cases {
        section(&mut text, &rows::load_line(analysis, case));
        let abouts = rows::abouts(case);
        let names = abouts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (name, about) in abouts {
            writeln!(text, "  {name:<names$}  {about}").ok();
        }
        text.push('\n');
        text += &draw(&rows::prices(analysis, case), color);
        text += &wrapped(&rows::prices_legend(analysis, case));
        text += &bars(case);
        let others = rows::other_prices(analysis, case);
        if !others.rows.is_empty() {
            text += "\n";
            text += &draw(&others, color);
        }
        let figures = rows::figures(case);
        if !figures.rows.is_empty() {
            text += "\n";
            text += &draw(&figures, color);
            text += &wrapped(rows::figures_legend(case));
        }
        let bytes = bytes::rows(case);
        if analysis.bytes && !bytes.rows.is_empty() {
            text += "\n";
            text += &draw(&bytes, color);
            text += &wrapped(bytes::LEGEND);
        }
        let summary = rows::summary(case);
        if analysis.summary && !summary.rows.is_empty() {
            section(&mut text, "Over the trials of each subject:");
            text += &draw(&summary, color);
        }
    }
    if !analysis.notes.is_empty() {
        text += "\n";
        for note in &analysis.notes {
            text += &wrapped(note);
        }
    }
    text += "\n";
    text += &wrapped(&analysis.answer);
    text
}

const BAR_COLUMNS: usize = 50;
/// Beside the one that stands between any two columns.
const GAP_COLUMNS: u16 = 1;
/// One rule below the heading, and nothing else that is not data.
const RULED: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

fn section(text: &mut String, line: &str) {
    text.push('\n');
    text.push_str(&wrapped(line));
}

/// Draws a table: one rule below the heading, figures to the right. Columns move closer together
/// where that makes it fit.
pub(crate) fn draw(rows: &Rows, color: bool) -> String {
    let roomy = draw_apart(rows, false, GAP_COLUMNS);
    let fits = roomy.lines().all(|line| line.chars().count() <= COLUMNS);
    draw_apart(rows, color, if fits { GAP_COLUMNS } else { 0 })
}

fn draw_apart(rows: &Rows, color: bool, gap: u16) -> String {
    let mut table = Table::new();
    table.load_style(RULED).set_content_arrangement(ContentArrangement::Disabled);
    if color {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table.set_header(rows.header.iter().map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    for row in &rows.rows {
        table.add_row(row);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if index > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
        column.set_padding((if index > 0 { gap } else { 0 }, 0));
    }
    // Cells are padded to their column; at the end of a line that is nothing to keep.
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// CPU per request as bars, because "seventy times" is seen faster than it is read.
fn bars(case: &CaseAnalysis) -> String {
    let cpu = |subject: &SubjectAnalysis| subject.figures.as_ref()?.cpu_us_per_request;
    let measured: Vec<(&str, f64)> = case
        .subjects
        .iter()
        .filter_map(|subject| Some((subject.name.as_str(), cpu(subject)?)))
        .collect();
    let longest = measured.iter().map(|(_, cpu)| *cpu).fold(0.0, f64::max);
    if measured.len() < 2 || longest <= 0.0 {
        return String::new();
    }
    let names = measured.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut text = String::from("\nCPU per request, µs:\n");
    for (name, cpu) in measured {
        let bar = bar(cpu / longest, BAR_COLUMNS);
        writeln!(text, "{name:<names$}  {bar} {}", super::number::significant(cpu)).ok();
    }
    text
}

/// A text broken at white space to the report's width; indented lines are commands, and stay whole.
pub(crate) fn wrapped(text: &str) -> String {
    let line = |line: &str| match line.starts_with(' ') {
        true => format!("{line}\n"),
        false => paragraph("", line),
    };
    text.lines().map(line).collect()
}

pub(crate) fn emphasised(title: &str, color: bool) -> String {
    match color {
        true => format!("\u{1b}[1m{title}\u{1b}[0m"),
        false => title.to_owned(),
    }
}
