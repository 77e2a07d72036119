//! Labels, columns, counts and sizes, as the report for people writes them.

use tollgate_lab::report::layout::paragraph;
use tollgate_lab::report::number::significant;
use tollgate_traffic::Class;

/// A class as it is printed.
pub(super) fn class_name(class: Class) -> &'static str {
    match class {
        Class::Benign => "benign",
        Class::Malicious => "malicious",
    }
}

/// The blanks between two columns.
pub(super) const COLUMN_GAP: usize = 2;

/// Rows of cells in columns [`COLUMN_GAP`] blanks apart; the first is aligned to the left, the others to the
/// right.
pub(super) fn columns(rows: &[Vec<String>]) -> String {
    let cell_width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = cell_width(column);
            match column {
                0 => line += &format!("{cell:<width$}"),
                _ => line += &format!("{:COLUMN_GAP$}{cell:>width$}", ""),
            }
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// A label and a text beside it, which goes on below itself.
pub(super) fn labelled(label: &str, value: &str) -> String {
    paragraph(&format!("{label:<LABEL$}"), value)
}

/// The width of a label with the blanks behind it.
const LABEL: usize = 16;

/// A count in full, in groups of three digits from five on.
pub(in crate::cmd::load) fn grouped(count: u64) -> String {
    match count {
        0..100 => count.to_string(),
        _ => significant(count as f64),
    }
}

/// A number of bytes, in the largest unit of which there is a whole one.
pub(super) fn bytes(bytes: u64) -> String {
    let in_units = |bits: u32| significant(bytes as f64 / f64::from(1 << bits));
    match bytes {
        0..0x400 => format!("{bytes} bytes"),
        0x400..0x10_0000 => format!("{} KiB", in_units(10)),
        0x10_0000..0x4000_0000 => format!("{} MiB", in_units(20)),
        _ => format!("{} GiB", in_units(30)),
    }
}

/// Milliseconds with three digits that count, down to a microsecond.
pub(super) fn ms(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value > 0.0 && value < 0.001 => "<0.001".to_owned(),
        Some(value) => significant(value),
    }
}

/// A text cut to `width` characters; where something is missing, an ellipsis says so.
pub(super) fn cut(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stands_beside_its_label() {
        assert_eq!(labelled("failed", "0"), "failed          0\n");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows =
            [["", "a", "bc"], ["name", "1000", "2"]].map(|row| row.map(str::to_owned).into());
        assert_eq!(columns(&rows), "         a  bc\nname  1000   2\n");
    }

    #[test]
    fn counts_are_told_in_full() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(99), "99");
        assert_eq!(grouped(101), "101");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn bytes_have_the_unit_that_fits() {
        assert_eq!(bytes(0), "0 bytes");
        assert_eq!(bytes(1_023), "1023 bytes");
        assert_eq!(bytes(1_024), "1.00 KiB");
        assert_eq!(bytes(3 << 19), "1.50 MiB");
        assert_eq!(bytes(5 << 30), "5.00 GiB");
    }

    #[test]
    fn milliseconds_are_told_down_to_a_microsecond() {
        assert_eq!(ms(None), "-");
        assert_eq!(ms(Some(0.0)), "0");
        assert_eq!(ms(Some(0.000_9)), "<0.001");
        assert_eq!(ms(Some(0.001_234)), "0.00123");
    }

    #[test]
    fn what_is_cut_says_so() {
        assert_eq!(cut("template", 8), "template");
        assert_eq!(cut("templates", 8), "templat…");
    }
}
