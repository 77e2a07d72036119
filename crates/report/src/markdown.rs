//! Documents as Markdown, for a pull request.

use crate::document::{Block, Document, Media, Table, capitalized};

pub(crate) fn render(document: &Document) -> String {
    let mut text = format!("## {}\n", escape(&document.title));
    match &document.headline[..] {
        [] => {}
        [only] => text += &format!("\n{}\n", escape(&only.text)),
        several => {
            text.push('\n');
            text.extend(several.iter().map(|sentence| bullet(&sentence.named())));
        }
    }
    if let Some((badge, rest)) = &document.status {
        text += &format!("\n{}\n", escape(&format!("{}{rest}", badge.words)));
    }
    for section in &document.sections {
        let shown: Vec<&Block> = section.blocks(&[Media::Paper]).collect();
        if !shown.is_empty() {
            text += &format!("\n### {}\n", escape(&section.title));
            if !section.line.is_empty() {
                text += &format!("\n{}\n", escape(&capitalized(&section.line)));
            }
            text += &format!("\n{}", blocks(shown));
        }
    }
    if let Some(footer) = &document.footer {
        let made_by = escape(&footer.made_by);
        text += &format!("\n{made_by} To repeat it:\n\n    {}\n", footer.command);
    }
    text
}

/// Renders blocks with an empty line between them.
pub(crate) fn blocks<'a>(blocks: impl IntoIterator<Item = &'a Block>) -> String {
    let blocks = blocks.into_iter().map(block).filter(|text| !text.is_empty());
    blocks.collect::<Vec<_>>().join("\n")
}

fn block(block: &Block) -> String {
    match block {
        Block::Paragraph(text) => format!("{}\n", escape(text)),
        Block::Definitions(definitions) => {
            let line =
                |(name, text): &(String, String)| format!("- {}: {}\n", escape(name), escape(text));
            definitions.iter().map(line).collect()
        }
        Block::Table(table) => self::table(table),
        Block::List(items) => items.iter().map(|item| bullet(item)).collect(),
        Block::Folded(title, blocks) => {
            let (title, blocks) = (escape(title), self::blocks(blocks));
            format!("<details><summary>{title}</summary>\n\n{blocks}\n</details>\n")
        }
        Block::Bars(..) | Block::Plots(_) | Block::Files(..) => String::new(),
    }
}

impl Table {
    /// Renders the table as Markdown.
    pub fn markdown(&self) -> String {
        table(self)
    }
}

fn table(table: &Table) -> String {
    let line = |cells: &mut dyn Iterator<Item = &String>| {
        let cells: Vec<String> = cells.map(|cell| escape(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text = line(&mut table.columns.iter().map(|column| &column.name));
    text += &format!("|---|{}\n", "---:|".repeat(table.columns.len() - 1));
    for row in &table.rows {
        text += &line(&mut row.cells.iter().map(|cell| &cell.text));
    }
    if !table.legend.is_empty() {
        text += &format!("\n{}\n", escape(&table.legend));
    }
    text
}

/// An item of a list; its indented lines are code.
fn bullet(item: &str) -> String {
    let line = |line: &str| match line.strip_prefix("    ") {
        Some(command) => format!("\n      {command}\n"),
        None => format!("{}\n", escape(line)),
    };
    format!("- {}", item.lines().map(line).collect::<String>())
}

/// Escapes Markdown and HTML: a text may contain the output of a server.
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
        let rows = vec![vec!["full".to_owned(), "8".to_owned()]];
        let text = table(&Table::of_text(["subject", "n"], rows));
        assert_eq!(text, "| subject | n |\n|---|---:|\n| full | 8 |\n");
    }
}
