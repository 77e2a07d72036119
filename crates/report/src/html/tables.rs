//! The tables of the page: figures in words, and unrounded beside them for programs.

mod answers;
mod latencies;
mod prices;
mod run;

pub(super) use answers::answers;
pub(super) use latencies::{latency, percentiles, shares, sweep};
pub(super) use prices::{blocks, loads, prices};
pub(super) use run::{environment, subjects, trials};

use super::svg;
use crate::analysis::CaseAnalysis;
use crate::{ablation, bytes, rows};
use serde::Serialize;

/// A table with a head of columns and a head of rows.
#[derive(Debug, Serialize)]
pub(super) struct Table {
    /// What it holds.
    pub(super) caption: String,
    /// Which case it is of, where there are several.
    pub(super) of: String,
    /// Whether its cells are words, which may be broken, and not figures.
    pub(super) prose: bool,
    /// The names of the columns, with their units; the first is that of the heads of the rows.
    pub(super) header: Vec<String>,
    /// The rows.
    pub(super) rows: Vec<Row>,
}

/// A row of a table.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// Its head.
    pub(super) name: String,
    /// The color and mark of the subject that it is about, drawn.
    pub(super) key: Option<String>,
    /// Its cells, one less than the header has columns.
    pub(super) cells: Vec<Cell>,
}

/// A cell of a table.
#[derive(Debug, Serialize)]
pub(super) struct Cell {
    /// What is read.
    pub(super) text: String,
    /// The figure's name in report.json, where it has one.
    pub(super) figure: Option<&'static str>,
    /// The figure itself, unrounded.
    pub(super) value: Option<String>,
}

/// How many bytes a second went to and fro.
pub(super) fn bytes(case: &CaseAnalysis) -> Option<Table> {
    let table = of_rows(case, "Bytes to and fro", bytes::rows(case));
    (!table.rows.is_empty()).then_some(table)
}

/// What each file of a rule set costs.
pub(super) fn ablation(case: &CaseAnalysis) -> Option<Table> {
    let figures = case.ablation.as_ref()?;
    let caption = format!("What each file of {} costs", figures.rule_set);
    Some(of_rows(case, &caption, ablation::rows(figures)))
}

/// A table as it is for the terminal. A row that is named after a subject has its mark.
fn of_rows(case: &CaseAnalysis, caption: &str, rows: rows::Rows) -> Table {
    let rows::Rows { header, rows } = rows;
    let key = |name: &str| case.subjects.iter().position(|subject| subject.name == name);
    let row = |cells: Vec<String>| {
        let (name, cells) = cells.split_first()?;
        let cells = cells.iter().map(|text| plain(text)).collect();
        Some(Row { name: name.clone(), key: key(name).map(svg::key), cells })
    };
    Table {
        caption: caption.to_owned(),
        of: String::new(),
        prose: false,
        header,
        rows: rows.into_iter().filter_map(row).collect(),
    }
}

const NONE: &str = "-";

fn plain(text: &str) -> Cell {
    Cell { text: text.to_owned(), figure: None, value: None }
}

fn figure(name: &'static str, value: Option<f64>, text: impl Fn(f64) -> String) -> Cell {
    cell(name, value, value.map_or(NONE.to_owned(), text))
}

fn cell(name: &'static str, value: Option<f64>, text: String) -> Cell {
    Cell { text, figure: Some(name), value: value.map(|value| value.to_string()) }
}
