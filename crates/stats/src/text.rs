//! Text on a terminal: wrapped paragraphs, headings, bars, and escaped control characters.

/// The width of a report in characters where the terminal's is unknown.
pub const COLUMNS: usize = 80;

/// Longest line of running text, regardless of the terminal's width.
const TEXT_COLUMNS: usize = 100;

/// The terminal on which a report is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// Characters in a line.
    pub columns: usize,
    /// True if headings are bold.
    pub color: bool,
}

impl Screen {
    /// Output that is not a terminal: a file or a pipe.
    pub const PLAIN: Self = Self { columns: COLUMNS, color: false };

    /// Formats as [`paragraph`], for the width of this screen.
    pub fn paragraph(self, head: &str, text: &str) -> String {
        within(self.columns.min(TEXT_COLUMNS), head, text)
    }

    /// Wraps a text at white space. Indented lines are commands and are not wrapped.
    pub fn wrapped(self, text: &str) -> String {
        let line = |line: &str| {
            if line.starts_with(' ') { format!("{line}\n") } else { self.paragraph("", line) }
        };
        text.lines().map(line).collect()
    }

    pub fn heading(self, text: &str) -> String {
        let bold = |line: &str| {
            if self.color { format!("\u{1b}[1m{line}\u{1b}[0m\n") } else { format!("{line}\n") }
        };
        self.paragraph("", text).lines().map(bold).collect()
    }
}

/// Escapes control characters, which terminals interpret.
pub fn escape_controls(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        if character.is_control() {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Draws a bar of up to `columns` characters, in steps of an eighth; at least one eighth.
pub fn bar(share: f64, columns: usize) -> String {
    let eighths = (1..=columns * 8).take_while(|step| *step as f64 <= share * (columns * 8) as f64);
    let eighths = eighths.count().max(1);
    let mut bar = "█".repeat(eighths / 8);
    bar.extend(["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"].get(eighths % 8).copied());
    bar
}

/// Formats a label with a text beside it, wrapped at white space and indented below itself. A word
/// longer than a line, such as a URL, is not broken, so that it can be copied.
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
    fn bar_length_follows_share() {
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(0.5, 4), "██");
        assert_eq!(bar(0.28125, 4), "█▏");
        assert_eq!(bar(0.0, 4), "▏");
    }

    #[test]
    fn paragraph_wraps_and_indents_below_its_text() {
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
    fn screen_wraps_at_its_width_up_to_100_columns() {
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
    fn each_line_of_a_long_heading_is_bold() {
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
    fn paragraph_fills_a_line_exactly() {
        let rest = " word".repeat(15);
        assert_eq!(paragraph("", &format!("fives{rest}")).lines().count(), 1);
        assert_eq!(paragraph("", &format!("sixsix{rest}")).lines().count(), 2);
    }

    #[test]
    fn paragraph_does_not_break_a_long_word() {
        let long = "x".repeat(100);
        assert_eq!(paragraph("", &format!("a {long} b")), format!("a\n{long}\nb\n"));
        assert_eq!(paragraph("url  ", &long), format!("url  {long}\n"));
    }
}
