//! The report as Markdown, to paste into a pull request.

use super::rows::{self, Rows};
use super::{ablation, bytes, latency};
use crate::analysis::Analysis;

/// Writes an analysis as Markdown.
pub fn render(analysis: &Analysis) -> String {
    let answers = analysis.answers();
    let answer = match &answers[..] {
        [only] => escape(only),
        several => {
            several.iter().map(|one| format!("- {}", escape(one))).collect::<Vec<_>>().join("\n")
        }
    };
    let mut text = format!(
        "## {}\n\n{answer}\n\n{}\n",
        escape(&analysis.title),
        escape(&analysis.status_line)
    );
    for case in &analysis.cases {
        text += &format!("\n{}\n\n", escape(&rows::load_line(analysis, case)));
        if let Some(figures) = &case.ablation {
            text += &table(&ablation::rows(figures));
            text += &format!("\n{}\n\n", escape(&ablation::legend(analysis, figures)));
            text.extend(ablation::notes(figures).iter().map(|note| bullet(note)));
            text.push('\n');
        }
        for (name, about) in rows::abouts(case) {
            text += &format!("- {}: {}\n", escape(name), escape(about));
        }
        text += &format!("\n{}", table(&rows::prices(analysis, case)));
        text += &format!("\n{}\n", rows::prices_legend(analysis, case));
        let others = rows::other_prices(analysis, case);
        if !others.rows.is_empty() {
            text += &format!("\n{}", table(&others));
        }
        let figures = rows::figures(case);
        if !figures.rows.is_empty() {
            text += &format!("\n{}\n{}\n", table(&figures), rows::figures_legend(case));
        }
        let latency = latency::rows(analysis, case);
        if analysis.latency && !latency.rows.is_empty() {
            text += &format!("\n{}\n{}\n", table(&latency), latency::LEGEND);
        }
        let bytes = bytes::rows(case);
        if analysis.bytes && !bytes.rows.is_empty() {
            text += &format!("\n{}\n{}\n", table(&bytes), bytes::LEGEND);
        }
        let summary = rows::summary(case);
        if !summary.rows.is_empty() {
            text += &format!(
                "\n<details><summary>Over the trials of each subject</summary>\n\n{}\n</details>\n",
                table(&summary)
            );
        }
    }
    if !analysis.notes.is_empty() {
        text += "\n";
        for note in &analysis.notes {
            text += &bullet(note);
        }
    }
    text += &format!(
        "\nMade by tollgate {} on {}, {}. To repeat it:\n\n    {}\n",
        escape(&analysis.tollgate),
        escape(&analysis.started_at),
        escape(&analysis.machine),
        analysis.command
    );
    text
}

/// A table, its figures to the right.
pub(crate) fn table(rows: &Rows) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| escape(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text = line(&rows.header);
    text += &format!("|---|{}\n", "---:|".repeat(rows.header.len() - 1));
    for row in &rows.rows {
        text += &line(row);
    }
    text
}

/// A note as an item of a list; its indented lines are commands, and become code.
fn bullet(note: &str) -> String {
    let mut text = String::from("- ");
    for line in note.lines() {
        text += &match line.strip_prefix("    ") {
            Some(command) => format!("\n      {command}\n"),
            None => format!("{}\n", escape(line)),
        };
    }
    text
}

/// Keeps what a server printed from being read as Markdown or HTML.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '@' => escaped.push_str("&#64;"),
            '\n' | '\r' => escaped.push(' '),
            _ => {
                if "\\`*_|<>[]~#".contains(character) {
                    escaped.push('\\');
                }
                escaped.push(character);
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_server_output() {
        assert_eq!(escape("a|b <c> `d`"), "a\\|b \\<c\\> \\`d\\`");
    }

    #[test]
    fn figures_are_aligned_right() {
        let rows = Rows {
            header: vec!["subject".to_owned(), "n".to_owned()],
            rows: vec![vec!["full".to_owned(), "8".to_owned()]],
        };
        assert_eq!(table(&rows), "| subject | n |\n|---|---:|\n| full | 8 |\n");
    }
}
