//! Lines of at most [`COLUMNS`] characters: paragraphs, columns and bars.

use tollgate_lab::report::number::significant;
use tollgate_traffic::Class;

/// The width that the report is made for: what every terminal has.
pub(super) const COLUMNS: usize = 80;

/// A class as it is printed.
pub(super) fn class_name(class: Class) -> &'static str {
    match class {
        Class::Benign => "benign",
        Class::Malicious => "malicious",
    }
}

/// Rows of cells in columns two blanks apart; the first is aligned to the left, the others to the
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
                _ => line += &format!("  {cell:>width$}"),
            }
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// A label of [`LABEL`] characters, and a text beside it that is broken at white space.
pub(super) fn labelled(label: &str, value: &str) -> String {
    let mut text = String::new();
    let mut line = format!("{label:<LABEL$}");
    let mut is_empty = true;
    for word in value.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            text += &line;
            text.push('\n');
            line = " ".repeat(LABEL);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line += word;
        is_empty = false;
    }
    text + &line + "\n"
}

/// The width of a label with the blanks behind it.
const LABEL: usize = 16;

/// A count in full, in groups of three digits from five on.
pub(super) fn grouped(count: u64) -> String {
    match count {
        0..100 => count.to_string(),
        _ => significant(count as f64),
    }
}

/// A text cut to `width` characters; where something is missing, an ellipsis says so.
pub(super) fn cut(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// A bar of up to `columns` characters, drawn to an eighth of one; what is there is never invisible.
pub(super) fn bar(share: f64, columns: usize) -> String {
    if share <= 0.0 {
        return String::new();
    }
    let eighths = ((share.min(1.0) * (columns * 8) as f64).round() as usize).max(1);
    let mut bar = "█".repeat(eighths / 8);
    bar.extend(["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"].get(eighths % 8).copied());
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(0.28125, 4), "█▏");
        assert_eq!(bar(0.0001, 4), "▏");
        assert_eq!(bar(0.0, 4), "");
    }

    #[test]
    fn a_long_value_goes_on_below_itself() {
        let text = labelled("verdict", &"word ".repeat(40));
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS));
        assert!(text.starts_with("verdict         word word"), "{text}");
        assert!(
            text.lines().skip(1).all(|line| line.starts_with("                word")),
            "{text}"
        );
        assert_eq!(text.matches("word").count(), 40);
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
    fn what_is_cut_says_so() {
        assert_eq!(cut("template", 8), "template");
        assert_eq!(cut("templates", 8), "templat…");
    }
}
