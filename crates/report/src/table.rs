//! The report for a terminal.

use super::rows::{self, Rows};
use super::{ablation, bytes, latency};
use crate::analysis::{Analysis, CaseAnalysis, SubjectAnalysis};
use comfy_table::{
    Attribute, Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle,
};
use std::fmt::Write as _;
use tollgate_stats::text::{Screen, bar};

/// Writes an analysis for a terminal: in bold headings where there is color, and with as many figures
/// as it has room for.
pub fn render(analysis: &Analysis, screen: Screen) -> String {
    let mut text = screen.heading(&analysis.title);
    text += &screen.wrapped(&analysis.status_line);
    for case in &analysis.cases {
        section(&mut text, &rows::load_line(analysis, case), screen);
        if let Some(figures) = &case.ablation {
            // Beside it, the tables of all its subjects say the same at greater length.
            text.push('\n');
            text += &draw(&ablation::rows(figures), screen);
            text += &screen.wrapped(&ablation::legend(analysis, figures));
            text.push('\n');
            for note in ablation::notes(figures) {
                text += &screen.wrapped(&note);
            }
            continue;
        }
        let abouts = rows::abouts(case);
        let names = abouts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (name, about) in abouts {
            text += &screen.paragraph(&format!("  {name:<names$}  "), about);
        }
        text.push('\n');
        text += &draw(&rows::prices(analysis, case), screen);
        text += &screen.wrapped(&rows::prices_legend(analysis, case));
        text += &bars(case, screen);
        let others = rows::other_prices(analysis, case);
        if !others.rows.is_empty() {
            text += "\n";
            text += &draw_fitting(&others, &rows::OPTIONAL_PRICES, screen);
        }
        let figures = rows::figures(case);
        if !figures.rows.is_empty() {
            text += "\n";
            text += &draw_fitting(&figures, &rows::OPTIONAL_FIGURES, screen);
            text += &screen.wrapped(rows::figures_legend(case));
        }
        let latency = latency::rows(analysis, case);
        if analysis.latency && !latency.rows.is_empty() {
            text += "\n";
            text += &draw(&latency, screen);
            text += &screen.wrapped(latency::LEGEND);
        }
        let bytes = bytes::rows(case);
        if analysis.bytes && !bytes.rows.is_empty() {
            text += "\n";
            text += &draw(&bytes, screen);
            text += &screen.wrapped(bytes::LEGEND);
        }
        let summary = rows::summary(case);
        if analysis.summary && !summary.rows.is_empty() {
            section(&mut text, "Over the trials of each subject:", screen);
            text += &draw(&summary, screen);
        }
    }
    if !analysis.notes.is_empty() {
        text += "\n";
        for note in &analysis.notes {
            text += &screen.wrapped(note);
        }
    }
    text += "\n";
    for sentence in analysis.answers() {
        text += &screen.wrapped(&sentence);
    }
    text
}

/// What a line of the bars takes besides the bar: a name, a figure, and the gaps between them.
const BESIDE_BAR: usize = 30;
/// A longer bar says no more.
const BAR_COLUMNS_MAX: usize = 100;
/// Beside the one that stands between any two columns.
const GAP: u16 = 1;
/// One rule below the heading, and nothing else that is not data.
const RULED: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

fn section(text: &mut String, line: &str, screen: Screen) {
    text.push('\n');
    text.push_str(&screen.wrapped(line));
}

/// Draws a table with those of its `optional` columns, named by their places, for which there is room.
/// The first of them is the first to go.
fn draw_fitting(rows: &Rows, optional: &[usize], screen: Screen) -> String {
    let left_out = (0..optional.len())
        .find(|count| fits(&draw_apart(&rows.without(&optional[..*count]), false, GAP), screen))
        .unwrap_or(optional.len());
    draw(&rows.without(&optional[..left_out]), screen)
}

/// Draws a table: one rule below the heading, figures to the right. Columns move closer together
/// where that makes it fit; what does not fit all the same goes on below, in a table of its own.
pub fn draw(rows: &Rows, screen: Screen) -> String {
    if fits(&draw_apart(rows, false, GAP), screen) {
        return draw_apart(rows, screen.color, GAP);
    }
    let parts = rows.in_parts(screen.columns);
    let parts: Vec<String> = parts.iter().map(|part| draw_apart(part, screen.color, 0)).collect();
    parts.join("\n")
}

fn fits(table: &str, screen: Screen) -> bool {
    table.lines().all(|line| line.chars().count() <= screen.columns)
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
fn bars(case: &CaseAnalysis, screen: Screen) -> String {
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
    let columns =
        screen.columns.saturating_sub(BESIDE_BAR.max(names + 12)).clamp(1, BAR_COLUMNS_MAX);
    let mut text = String::from("\nCPU per request, µs:\n");
    for (name, cpu) in measured {
        let bar = bar(cpu / longest, columns);
        writeln!(text, "{name:<names$}  {bar} {}", tollgate_stats::number::significant(cpu)).ok();
    }
    text
}
