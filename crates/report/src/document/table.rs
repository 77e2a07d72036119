//! Tables with typed cells.

use crate::analysis::Range;
use comfy_table::{
    Attribute, Cell as TextCell, CellAlignment, ContentArrangement, LineStyle, Table as TextTable,
    TableStyle,
};
use serde::Serialize;
use tollgate_stats::text::Screen;

/// A table. The first column has the names of the rows, the others figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// Description; only on pages.
    pub(crate) caption: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
    /// Explains the table; may be empty.
    pub(crate) legend: String,
    /// True if the cells are text, which is aligned to the left and may be wrapped.
    pub(crate) is_prose: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// A narrow terminal shows no columns with a rank, and drops the lowest rank first.
    pub(crate) optional: Option<u8>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    /// Index of the color and mark of the row's subject.
    pub(crate) series: Option<usize>,
    /// The first cell is the name of the row.
    pub(crate) cells: Vec<Cell>,
}

/// A text, and the figure that it shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// Name of the figure in report.json.
    figure: Option<&'static str>,
    /// Unrounded.
    value: Option<String>,
}

/// The text of a figure that does not exist.
pub(crate) const NONE: &str = "-";

/// One rule below the header.
const RULED: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Padding between columns, in addition to one space.
const GAP: u16 = 1;

impl Table {
    pub fn of_text<const N: usize>(header: [&str; N], rows: Vec<Vec<String>>) -> Self {
        let mut table = Self::new("", header.map(Column::from));
        table.rows.extend(rows.into_iter().map(|cells| Row::of(None, cells)));
        table
    }

    pub(crate) fn new(caption: &str, columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            caption: caption.to_owned(),
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
            legend: String::new(),
            is_prose: false,
        }
    }

    pub(crate) fn of_rows<C: Into<Column>>(
        caption: &str,
        columns: impl IntoIterator<Item = C>,
        rows: impl IntoIterator<Item = Row>,
    ) -> Self {
        let columns = columns.into_iter().map(Into::into);
        Self { rows: rows.into_iter().collect(), ..Self::new(caption, columns) }
    }

    pub(crate) fn with_legend(self, legend: impl Into<String>) -> Self {
        Self { legend: legend.into(), ..self }
    }

    /// Draws the table with as many optional columns as fit. If it is still too wide, columns move closer together; if
    /// that is not enough, the table is split.
    pub fn draw(&self, screen: Screen) -> String {
        let mut ranked: Vec<(u8, usize)> = self
            .columns
            .iter()
            .enumerate()
            .filter_map(|(at, column)| Some((column.optional?, at)))
            .collect();
        ranked.sort_unstable();
        let dropped: Vec<usize> = ranked.into_iter().map(|(_, at)| at).collect();
        let candidates = (0..=dropped.len()).map(|count| self.without(&dropped[..count]));
        if let Some(fitting) = candidates.clone().find(|table| {
            table.draw_apart(false, GAP).lines().all(|line| line.chars().count() <= screen.columns)
        }) {
            return fitting.draw_apart(screen.color, GAP);
        }
        let parts = self.without(&dropped).in_parts(screen.columns);
        let parts: Vec<String> =
            parts.iter().map(|part| part.draw_apart(screen.color, 0)).collect();
        parts.join("\n")
    }

    fn draw_apart(&self, color: bool, gap: u16) -> String {
        let mut table = TextTable::new();
        table.load_style(RULED).set_content_arrangement(ContentArrangement::Disabled);
        if color {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        let header = self.columns.iter().map(|column| TextCell::new(&column.name));
        table.set_header(header.map(|cell| cell.add_attribute(Attribute::Bold)));
        for row in &self.rows {
            table.add_row(row.cells.iter().map(|cell| &cell.text));
        }
        for (index, column) in table.column_iter_mut().enumerate() {
            if index > 0 {
                column.set_cell_alignment(CellAlignment::Right);
            }
            column.set_padding((if index > 0 { gap } else { 0 }, 0));
        }
        // Cells are padded to their column, at the end of a line too.
        table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// The table without the columns at `places`.
    fn without(&self, places: &[usize]) -> Self {
        fn kept<T: Clone>(all: &[T], places: &[usize]) -> Vec<T> {
            let all = all.iter().enumerate().filter(|(place, _)| !places.contains(place));
            all.map(|(_, one)| one.clone()).collect()
        }
        let row = |row: &Row| Row { cells: kept(&row.cells, places), ..*row };
        Self {
            columns: kept(&self.columns, places),
            rows: self.rows.iter().map(row).collect(),
            ..Self::new("", [])
        }
    }

    /// Splits the table into as few parts of at most `width` characters as possible, with one space between columns,
    /// and as equal as possible. Each part has the first column and at least one other.
    fn in_parts(&self, width: usize) -> Vec<Self> {
        let fewest = self.split(width).len();
        let parts = (1..width).map(|width| self.split(width)).find(|parts| parts.len() <= fewest);
        let all = 1..self.columns.len();
        let others = |part: Vec<usize>| -> Vec<usize> {
            all.clone().filter(|place| !part.contains(place)).collect()
        };
        let parts = parts.unwrap_or_else(|| self.split(width));
        parts.into_iter().map(|part| self.without(&others(part))).collect()
    }

    /// Fills parts with columns, in order, up to a width.
    fn split(&self, width: usize) -> Vec<Vec<usize>> {
        let column_width = |place: usize| {
            let cells = self.rows.iter().filter_map(|row| row.cells.get(place));
            let texts = cells.map(|cell| &cell.text).chain([&self.columns[place].name]);
            texts.map(|text| text.chars().count()).max().unwrap_or(0)
        };
        let mut parts: Vec<Vec<usize>> = Vec::new();
        let mut taken = 0;
        for place in 1..self.columns.len() {
            taken += 1 + column_width(place);
            match parts.last_mut() {
                Some(part) if taken <= width => part.push(place),
                _ => {
                    parts.push(vec![place]);
                    taken = column_width(0) + 1 + column_width(place);
                }
            }
        }
        parts
    }
}

impl Row {
    pub(crate) fn named(
        series: Option<usize>,
        name: impl Into<Cell>,
        cells: impl IntoIterator<Item = Cell>,
    ) -> Self {
        Self { series, cells: [name.into()].into_iter().chain(cells).collect() }
    }

    pub(crate) fn of<C: Into<Cell>>(
        series: Option<usize>,
        cells: impl IntoIterator<Item = C>,
    ) -> Self {
        Self { series, cells: cells.into_iter().map(Into::into).collect() }
    }
}

impl Cell {
    /// A figure; `-` if it does not exist.
    pub(crate) fn figure(
        name: &'static str,
        value: Option<f64>,
        text: impl FnOnce(f64) -> String,
    ) -> Self {
        Self::valued(name, value, value.map_or(NONE.to_owned(), text))
    }

    /// A figure that is shown as any text.
    pub(crate) fn valued(name: &'static str, value: Option<f64>, text: String) -> Self {
        Self { text, figure: Some(name), value: value.map(|value| value.to_string()) }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), figure: None, value: None }
    }
}

impl<T: Into<String>> From<T> for Column {
    fn from(name: T) -> Self {
        Self { name: name.into(), optional: None }
    }
}

/// An estimate with its interval, or with the observed range in braces.
pub(crate) fn range(range: &Range, number: impl Fn(f64) -> String) -> String {
    let [estimate, low, high] = [range.estimate, range.low, range.high].map(number);
    if range.interval {
        format!("{estimate} [{low}, {high}]")
    } else if range.is_one_value() {
        estimate
    } else {
        format!("{estimate} {{{low}, {high}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(header: &[&str]) -> Table {
        let columns: Vec<Column> = header.iter().map(|&name| name.into()).collect();
        let row = Row::of(None, header.iter().copied());
        Table { rows: vec![row], ..Table::new("", columns) }
    }

    #[test]
    fn a_table_without_columns_keeps_the_others_in_order() {
        assert_eq!(table(&["a", "b", "c", "d"]).without(&[3, 1]), table(&["a", "c"]));
        assert_eq!(table(&["a", "b"]).without(&[]), table(&["a", "b"]));
    }

    #[test]
    fn wide_table_is_split_with_its_first_column() {
        let all = table(&["name", "one", "two", "three"]);
        // "name one two three" are 18 characters, "name one two" 12.
        assert_eq!(all.in_parts(18), std::slice::from_ref(&all));
        let (first, second) = (table(&["name", "one", "two"]), table(&["name", "three"]));
        assert_eq!(all.in_parts(17), [first.clone(), second.clone()]);
        assert_eq!(all.in_parts(12), [first, second.clone()]);
        // The parts are as equal as possible.
        let four = table(&["name", "one", "two", "six", "ten"]);
        assert_eq!(
            four.in_parts(17),
            [table(&["name", "one", "two"]), table(&["name", "six", "ten"])]
        );
        // A column that is too wide is still a part.
        assert_eq!(all.in_parts(3), [table(&["name", "one"]), table(&["name", "two"]), second]);
    }
}
