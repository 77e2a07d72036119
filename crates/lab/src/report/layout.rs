//! How wide a report on a terminal is, and what its lines are made of: paragraphs and bars.

use crate::record::as_f64;

/// The width that reports are made for: what every terminal has.
pub const COLUMNS: usize = 80;

/// Longer lines of text are hard to read, however wide the terminal is.
const TEXT_COLUMNS: usize = 100;

/// What a report is shown on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// How many characters a line has room for.
    pub columns: usize,
    /// Whether headings are bold.
    pub color: bool,
}

impl Screen {
    /// What is no terminal: a file, or another program.
    pub const PLAIN: Self = Self { columns: COLUMNS, color: false };

    /// A head and a text beside it, as [`paragraph`] writes them, in lines that this screen has room
    /// for.
    pub fn paragraph(self, head: &str, text: &str) -> String {
        within(self.columns.min(TEXT_COLUMNS), head, text)
    }

    /// A text broken at white space; indented lines are commands, and stay whole.
    pub fn wrapped(self, text: &str) -> String {
        let line = |line: &str| match line.starts_with(' ') {
            true => format!("{line}\n"),
            false => self.paragraph("", line),
        };
        text.lines().map(line).collect()
    }

    /// A heading, which may take more than one line.
    pub fn heading(self, text: &str) -> String {
        let bold = |line: &str| match self.color {
            true => format!("\u{1b}[1m{line}\u{1b}[0m\n"),
            false => format!("{line}\n"),
        };
        self.paragraph("", text).lines().map(bold).collect()
    }
}

/// A bar of up to `columns` characters, drawn to an eighth of one; never quite nothing.
pub fn bar(share: f64, columns: usize) -> String {
    let eighths = (1..=columns * 8)
        .take_while(|step| as_f64(*step as u64) <= share * as_f64(columns as u64 * 8));
    let eighths = eighths.count().max(1);
    let mut bar = "█".repeat(eighths / 8);
    bar.extend(["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"].get(eighths % 8).copied());
    bar
}

/// A head and a text beside it that is broken at white space, and goes on below its own begin. A word
/// that is longer than a line, such as a URL, stays whole, so that it can be copied.
pub fn paragraph(head: &str, text: &str) -> String {
    within(COLUMNS, head, text)
}

fn within(columns: usize, head: &str, text: &str) -> String {
    let indent = head.chars().count();
    let mut lines = head.to_owned();
    let mut column = indent;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > columns {
            lines.push('\n');
            lines += &" ".repeat(indent);
            column = indent;
        }
        if column > indent {
            lines.push(' ');
            column += 1;
        }
        lines += word;
        column += length;
    }
    lines + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(0.5, 4), "██");
        assert_eq!(bar(0.28125, 4), "█▏");
        assert_eq!(bar(0.0, 4), "▏");
    }

    #[test]
    fn paragraphs_are_broken_at_the_width_and_go_on_below_themselves() {
        for (head, words_in_a_line) in [("", 16), ("verdict  ", 14)] {
            // 16 words of 4 letters with 15 blanks are 79 characters; 14 beside 9 others are 78.
            let text = paragraph(head, &"word ".repeat(40));
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines[0], format!("{head}{}", vec!["word"; words_in_a_line].join(" ")));
            assert_eq!(lines[1].find('w'), Some(head.len()), "{text}");
            assert_eq!(text.matches("word").count(), 40);
        }
    }

    #[test]
    fn text_takes_what_a_screen_has_and_no_more_than_is_easily_read() {
        let text = "word ".repeat(40);
        // 12 words of 4 letters with 11 blanks are 59 characters, 20 are 99.
        for (columns, words_in_a_line) in [(60, 12), (80, 16), (120, 20), (200, 20)] {
            let screen = Screen { columns, color: false };
            let wrapped = screen.wrapped(&text);
            let first = wrapped.lines().next().unwrap();
            assert_eq!(first.split(' ').count(), words_in_a_line, "{columns}: {wrapped}");
        }
        assert_eq!(Screen::PLAIN.wrapped(&format!("    {text}")), format!("    {text}\n"));
    }

    #[test]
    fn a_long_heading_is_broken_and_each_of_its_lines_is_bold() {
        let screen = Screen { columns: 12, color: true };
        assert_eq!(
            screen.heading("What does it cost?"),
            "\u{1b}[1mWhat does it\u{1b}[0m\n\u{1b}[1mcost?\u{1b}[0m\n"
        );
        assert_eq!(
            Screen { color: false, ..screen }.heading("What does it cost?"),
            "What does it\ncost?\n"
        );
    }

    #[test]
    fn a_line_may_be_full_and_no_more() {
        let rest = " word".repeat(15);
        assert_eq!(paragraph("", &format!("fives{rest}")).lines().count(), 1);
        assert_eq!(paragraph("", &format!("sixsix{rest}")).lines().count(), 2);
    }

    #[test]
    fn a_word_that_is_longer_than_a_line_stays_whole() {
        let long = "x".repeat(100);
        assert_eq!(paragraph("", &format!("a {long} b")), format!("a\n{long}\nb\n"));
        assert_eq!(paragraph("url  ", &long), format!("url  {long}\n"));
    }
}
