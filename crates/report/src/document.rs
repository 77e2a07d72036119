//! A report as a document: sections of paragraphs, tables, lists and plots. Built once, rendered as text, Markdown and
//! HTML.

mod order;
mod table;
mod tables;

pub(crate) use order::{Plot, load_unit, of_run};
pub use order::{protocol, schedule};
pub use table::Table;
pub(crate) use table::{Cell, Column, NONE, Row, range};
pub(crate) use tables::{LATENCIES, mebibytes};

use crate::analysis::RunStatus;
use serde::Serialize;

#[derive(Debug, Default, Serialize)]
pub(crate) struct Document {
    pub(crate) title: String,
    /// The answer to the question of the title.
    pub(crate) headline: Vec<Sentence>,
    /// A badge, and the rest of the sentence that it starts.
    pub(crate) status: Option<(Badge, String)>,
    #[serde(skip)]
    pub(crate) sections: Vec<Section>,
    pub(crate) footer: Option<Footer>,
}

/// The answer for one case.
#[derive(Debug, Serialize)]
pub(crate) struct Sentence {
    /// The name of the case, and the id of its section, if there are several.
    pub(crate) case: Option<(String, String)>,
    pub(crate) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Badge {
    pub(crate) words: &'static str,
    pub(crate) color: &'static str,
}

#[derive(Debug, Serialize)]
pub(crate) struct Footer {
    pub(crate) made_by: String,
    /// The command that repeats the run.
    pub(crate) command: String,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Section {
    /// Unique in the document.
    pub(crate) id: String,
    pub(crate) title: String,
    /// One line below the title; may be empty.
    pub(crate) line: String,
    /// The status of the case, if there are several.
    pub(crate) badge: Option<Badge>,
    #[serde(skip)]
    items: Vec<(Media, Block)>,
}

/// The renderings that show a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Media {
    All,
    Terminal,
    /// Markdown and HTML.
    Paper,
    /// HTML.
    Page,
}

#[derive(Debug, Serialize)]
#[serde(tag = "kind", content = "data", rename_all = "lowercase")]
pub(crate) enum Block {
    Paragraph(String),
    /// Names with their descriptions.
    Definitions(Vec<(String, String)>),
    Table(Table),
    /// Indented lines of an item are commands.
    List(Vec<String>),
    /// Blocks with a title; collapsed where the medium can.
    Folded(String, Vec<Block>),
    /// Bars of characters with a title.
    Bars(String, Vec<(String, f64)>),
    /// Plots side by side if there is room; the page draws them from the records.
    Plots(Vec<Plot>),
    /// Collapsed files with a title, and how many more there are.
    Files(String, Vec<File>, usize),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct File {
    pub name: String,
    pub text: String,
    /// Number of bytes cut from the end.
    pub left_out: u64,
}

impl Section {
    pub(crate) fn new(id: &str, title: &str, line: String) -> Self {
        Self { id: id.to_owned(), title: title.to_owned(), line, ..Self::default() }
    }

    pub(crate) fn push(&mut self, media: Media, block: Block) {
        self.items.push((media, block));
    }

    /// Adds a list unless it is empty.
    pub(crate) fn list(&mut self, items: Vec<String>) {
        if !items.is_empty() {
            self.push(Media::All, Block::List(items));
        }
    }

    /// Adds a table unless it is empty.
    pub(crate) fn table(&mut self, media: Media, table: Table) {
        if !table.rows.is_empty() {
            self.push(media, Block::Table(table));
        }
    }

    pub(crate) fn folded(&mut self, media: Media, title: &str, block: Block) {
        self.push(media, Block::Folded(title.to_owned(), vec![block]));
    }

    /// The blocks that a medium shows.
    pub(crate) fn blocks(&self, media: &[Media]) -> impl Iterator<Item = &Block> {
        let shown = self.items.iter().filter(|(of, _)| *of == Media::All || media.contains(of));
        shown.map(|(_, block)| block)
    }
}

impl Sentence {
    /// The sentence with the name of its case.
    pub(crate) fn named(&self) -> String {
        match &self.case {
            Some((name, _)) => format!("{name}: {}", self.text),
            None => self.text.clone(),
        }
    }
}

impl From<RunStatus> for Badge {
    fn from(run_status: RunStatus) -> Self {
        let color = match run_status {
            RunStatus::Settled => "good",
            RunStatus::NotSettled => "warn",
            RunStatus::AaFailed | RunStatus::NoPrice => "bad",
        };
        Self { words: run_status.into(), color }
    }
}

pub(crate) fn capitalized(line: &str) -> String {
    let mut characters = line.chars();
    let first = characters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(characters).collect()
}
