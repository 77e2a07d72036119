//! A comparison as text and Markdown.

use super::{CaseComparison, Comparison, Line, RunInShort, Side, SubjectComparison};
use crate::document::{
    Block, Cell, Column, Document, Media, NONE, Row, Section, Table, capitalized, range,
};
use crate::{markdown, text};
use tollgate_records::metric::Metric;
use tollgate_stats::Verdict;
use tollgate_stats::number::{share, significant};
use tollgate_stats::text::Screen;

/// Maximum number of differences in a report for people; JSON has all.
const LINES_MAX: usize = 20;

/// Number of digits that distinguish two hashes.
const HASH_DIGITS: usize = 12;

pub fn render(comparison: &Comparison, screen: Screen) -> String {
    text::render(&document(comparison), screen)
}

pub fn render_markdown(comparison: &Comparison) -> String {
    markdown::render(&document(comparison))
}

fn document(comparison: &Comparison) -> Document {
    let mut runs = Section::new("runs", "Runs", String::new());
    let run = |name: &str, run: &RunInShort| {
        let RunInShort { title, started_at, tollgate, machine, .. } = run;
        let started = format!("started {started_at} by tollgate {tollgate} on {machine}");
        let text = if comparison.old.title == comparison.new.title {
            started
        } else {
            format!("{title}, {started}")
        };
        (name.to_owned(), text)
    };
    let both = vec![run("old", &comparison.old), run("new", &comparison.new)];
    runs.push(Media::All, Block::Definitions(both));
    let mut sections = vec![runs];
    for case in &comparison.cases {
        let mut section = Section::new(&case.name, &case.name, String::new());
        section.table(Media::All, prices(case, &comparison.old.baseline));
        section.table(Media::All, changes(case));
        section.table(Media::All, other_changes(case));
        sections.push(section);
    }
    let mut notes = Section::new("notes", "Notes", String::new());
    if comparison.has_changes() {
        notes.push(Media::All, Block::Paragraph(legend(comparison)));
    }
    notes.list(self::notes(comparison));
    if !comparison.fingerprint.is_empty() {
        let warning = "Warning: the runs differ in more than their time, so a change need not be caused by the \
                       subject:";
        notes.push(Media::All, Block::Paragraph(warning.to_owned()));
        notes.list(fingerprint(&comparison.fingerprint));
    }
    sections.push(notes);
    Document { title: comparison.new.title.clone(), sections, ..Document::default() }
}

/// A table with one row per subject for which `cells` returns cells.
fn by_subject(
    case: &CaseComparison,
    header: &[String],
    cells: impl Fn(&SubjectComparison) -> Option<Vec<String>>,
) -> Table {
    let row = |subject: &SubjectComparison| {
        let name = subject.name.clone();
        Some(Row::of(None, [name].into_iter().chain(cells(subject)?).map(Cell::from)))
    };
    let columns = ["subject".into()].into_iter().chain(header.iter().cloned().map(Column::from));
    Table { rows: case.subjects.iter().filter_map(row).collect(), ..Table::new("", columns) }
}

/// The cost of each subject in both runs.
fn prices(case: &CaseComparison, baseline: &str) -> Table {
    let header = [
        "old µs".to_owned(),
        "new µs".to_owned(),
        format!("old × {baseline} [95 %]"),
        format!("new × {baseline} [95 %]"),
    ];
    by_subject(case, &header, |SubjectComparison { name, old, new, .. }| {
        let cpu = |side: &Side| match &side.figures {
            Some(figures) => figures.cpu_us_per_request.map_or(NONE.to_owned(), significant),
            None => side.status.to_owned(),
        };
        let price = |side: &Side| {
            let price = side.prices.get(&Metric::CpuUsPerRequest).and_then(|price| price.ratio);
            match price {
                Some(ratio) => range(&ratio, significant),
                None if name == baseline => "baseline".to_owned(),
                None => NONE.to_owned(),
            }
        };
        Some(vec![cpu(old), cpu(new), price(old), price(new)])
    })
}

fn changes(case: &CaseComparison) -> Table {
    let header = ["new price / old [95 %]", "n old", "n new", "verdict"].map(str::to_owned);
    by_subject(case, &header, |subject| {
        let change = subject.changes.get(&Metric::CpuUsPerRequest)?;
        let verdict = match change.verdict {
            Verdict::CostsMore => "costs more",
            Verdict::CostsLess => "costs less",
            Verdict::Same => "same",
            Verdict::Inconclusive => "not settled",
        };
        let ratio = range(&change.ratio, significant);
        Some(vec![ratio, change.n_old.to_string(), change.n_new.to_string(), verdict.to_owned()])
    })
}

fn other_changes(case: &CaseComparison) -> Table {
    let columns = [
        ("requests/s new / old", Metric::ThroughputPerS),
        ("p50 new / old", Metric::LatencyP50Ms),
        ("memory new / old", Metric::MemoryPeakBytes),
    ];
    by_subject(case, &columns.map(|(name, _)| name.to_owned()), |subject| {
        let change = |(_, metric): (&str, Metric)| match subject.changes.get(&metric) {
            Some(change) => range(&change.ratio, significant),
            None => NONE.to_owned(),
        };
        (!subject.changes.is_empty()).then(|| columns.map(change).to_vec())
    })
}

fn legend(comparison: &Comparison) -> String {
    let old = &comparison.old.baseline;
    let changes =
        || comparison.cases.iter().flat_map(|case| &case.subjects).flat_map(|s| s.changes.values());
    let few = if changes().any(|change| !change.ratio.interval) {
        " Below 4 blocks in each run there is no interval; {a, b} is the observed range."
    } else {
        ""
    };
    format!(
        "New / old is the ratio of prices, each relative to {old} in its own run; absolute figures vary with the \
         machine. [a, b]: the 95 % interval. Verdict on the CPU: costs more or less than before, the \
         same within {}, or not settled.{few}",
        share(comparison.margin)
    )
}

fn notes(comparison: &Comparison) -> Vec<String> {
    let mut notes = Vec::new();
    if comparison.old.title != comparison.new.title {
        notes.push("The runs are of experiments with different titles.".to_owned());
    }
    notes.extend(comparison.missing.iter().map(|line| format!("{}.", capitalized(line))));
    if !comparison.has_changes() {
        notes.push("No subject has a price in both runs.".to_owned());
    }
    notes
}

/// The differences in words, up to [`LINES_MAX`].
fn fingerprint(lines: &[Line]) -> Vec<String> {
    let side = |value: &Option<String>| match value.as_deref() {
        None | Some("") => "nothing".to_owned(),
        Some(hash) if hash.len() == 64 && hash.chars().all(|c| c.is_ascii_hexdigit()) => {
            hash[..HASH_DIGITS].to_owned()
        }
        Some(value) => value.replace(char::is_control, " "),
    };
    let line = |line: &Line| format!("{}: {}, now {}", line.what, side(&line.old), side(&line.new));
    let mut words: Vec<String> = lines.iter().take(LINES_MAX).map(line).collect();
    if lines.len() > LINES_MAX {
        words.push(format!("and {} more, all in --format json", lines.len() - LINES_MAX));
    }
    words
}
