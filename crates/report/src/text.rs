//! Documents for a terminal.

use crate::document::{Block, Document, Media};
use tollgate_stats::number::significant;
use tollgate_stats::text::{Screen, bar};

/// Columns of a line of bars besides the bar: a name, a figure, and gaps.
const BESIDE_BAR: usize = 30;
const BAR_COLUMNS_MAX: usize = 100;

/// Renders a document. The headline comes last, where it stays visible after a long output.
pub(crate) fn render(document: &Document, screen: Screen) -> String {
    let mut text = screen.heading(&document.title);
    if let Some((badge, rest)) = &document.status {
        text += &screen.wrapped(&format!("{}{rest}", badge.words));
    }
    for section in &document.sections {
        let shown: Vec<&Block> = section.blocks(&[Media::Terminal]).collect();
        if !shown.is_empty() {
            text +=
                &format!("\n{}", screen.wrapped(&format!("{}: {}", section.title, section.line)));
            let gap = if matches!(shown[0], Block::Table(_)) { "\n" } else { "" };
            text += &format!("{gap}{}", blocks(shown, screen));
        }
    }
    if !document.headline.is_empty() {
        text.push('\n');
    }
    for sentence in &document.headline {
        text += &screen.wrapped(&sentence.named());
    }
    text
}

/// Renders blocks with an empty line between them.
pub(crate) fn blocks<'a>(blocks: impl IntoIterator<Item = &'a Block>, screen: Screen) -> String {
    let blocks = blocks.into_iter().map(|block| self::block(block, screen));
    blocks.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}

fn block(block: &Block, screen: Screen) -> String {
    match block {
        Block::Paragraph(text) => screen.wrapped(text),
        Block::Definitions(definitions) => {
            let names = longest(definitions.iter().map(|(name, _)| name));
            let line = |(name, text): &(String, String)| {
                screen.paragraph(&format!("  {name:<names$}  "), text)
            };
            definitions.iter().map(line).collect()
        }
        Block::Table(table) => table.draw(screen) + &screen.wrapped(&table.legend),
        Block::List(items) => items.iter().map(|item| screen.wrapped(item)).collect(),
        Block::Folded(title, blocks) => {
            format!("{}{}", screen.wrapped(&format!("{title}:")), self::blocks(blocks, screen))
        }
        Block::Bars(title, bars) => drawn(title, bars, screen),
        Block::Plots(_) | Block::Files(..) => String::new(),
    }
}

/// Draws bars; nothing for fewer than two.
fn drawn(title: &str, bars: &[(String, f64)], screen: Screen) -> String {
    let highest = bars.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    if bars.len() < 2 || highest <= 0.0 {
        return String::new();
    }
    let names = longest(bars.iter().map(|(name, _)| name));
    let beside = BESIDE_BAR.max(names + 12);
    let columns = screen.columns.saturating_sub(beside).clamp(1, BAR_COLUMNS_MAX);
    let line = |(name, value): &(String, f64)| {
        format!("{name:<names$}  {} {}\n", bar(value / highest, columns), significant(*value))
    };
    format!("{title}:\n{}", bars.iter().map(line).collect::<String>())
}

fn longest<'a>(names: impl Iterator<Item = &'a String>) -> usize {
    names.map(|name| name.chars().count()).max().unwrap_or(0)
}
