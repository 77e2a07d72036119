//! Two runs side by side, as table, Markdown or JSON.

use super::fingerprint::Line;
use super::{CaseComparison, Comparison, RunInShort, Side, SubjectComparison};
use crate::rows::{Rows, range};
use crate::{markdown, table};
use tollgate_experiment::metric::Metric;
use tollgate_stats::Verdict;
use tollgate_stats::number::{share, significant};
use tollgate_stats::text::Screen;

/// How a comparison is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For a terminal.
    Table {
        /// On what.
        screen: Screen,
    },
    /// For a pull request.
    Markdown,
    /// For a program: everything.
    Json,
}

/// Writes a comparison.
pub fn render(comparison: &Comparison, format: Format) -> Result<String, serde_json::Error> {
    Ok(match format {
        Format::Table { screen } => as_table(comparison, screen),
        Format::Markdown => as_markdown(comparison),
        Format::Json => serde_json::to_string_pretty(comparison)? + "\n",
    })
}

const NONE: &str = "-";

/// So many lines of the fingerprint are told to people; programs get all.
const LINES_SHOWN: usize = 20;

/// Of a hash, so much is enough to see that two are not the same.
const HASH_SHOWN: usize = 12;

fn as_table(comparison: &Comparison, screen: Screen) -> String {
    let mut text = format!("{}\n\n", comparison.new.title);
    text += &heads(comparison).map(|(name, run)| screen.paragraph(name, &run)).concat();
    for case in &comparison.cases {
        text += &format!("\n{}:\n\n", case.name);
        text += &table::draw(&prices(case, &comparison.old.baseline), screen);
        let changes = changes(case);
        if !changes.rows.is_empty() {
            text += &format!("\n{}", table::draw(&changes, screen));
        }
        let others = other_changes(case);
        if !others.rows.is_empty() {
            text += &format!("\n{}", table::draw(&others, screen));
        }
    }
    if comparison.has_changes() {
        text += &screen.paragraph("", &legend(comparison));
    }
    let notes = notes(comparison);
    if !notes.is_empty() {
        text += "\n";
    }
    for note in notes {
        text += &screen.paragraph("", &note);
    }
    if !comparison.fingerprint.is_empty() {
        text += &format!("\n{}", screen.paragraph("", WARNING));
        for line in fingerprint(&comparison.fingerprint) {
            text += &screen.paragraph("  ", &line);
        }
    }
    text
}

fn as_markdown(comparison: &Comparison) -> String {
    let mut text = format!("## {}\n\n", markdown::escape(&comparison.new.title));
    for (name, run) in heads(comparison) {
        text += &format!("- {}: {}\n", name.trim(), markdown::escape(&run));
    }
    for case in &comparison.cases {
        text += &format!("\n### {}\n\n", markdown::escape(&case.name));
        text += &markdown::table(&prices(case, &comparison.old.baseline));
        for rows in [changes(case), other_changes(case)] {
            if !rows.rows.is_empty() {
                text += &format!("\n{}", markdown::table(&rows));
            }
        }
    }
    if comparison.has_changes() {
        text += &format!("\n{}\n", markdown::escape(&legend(comparison)));
    }
    let mut notes = notes(comparison).into_iter().peekable();
    if notes.peek().is_some() {
        text += "\n";
    }
    for note in notes {
        text += &format!("- {}\n", markdown::escape(&note));
    }
    if !comparison.fingerprint.is_empty() {
        text += &format!("\n**{WARNING}**\n\n");
        for line in fingerprint(&comparison.fingerprint) {
            text += &format!("- {}\n", markdown::escape(&line));
        }
    }
    text
}

/// What tells a reader that the subjects may not be what changed.
const WARNING: &str = "Warning: the runs differ in more than their time, so a change need not be the \
subject's:";

fn heads(comparison: &Comparison) -> [(&'static str, String); 2] {
    let head = |run: &RunInShort| {
        let begun =
            format!("begun {} by tollgate {} on {}", run.started_at, run.tollgate, run.machine);
        match comparison.old.title == comparison.new.title {
            true => begun,
            false => format!("{}, {begun}", run.title),
        }
    };
    [("old  ", head(&comparison.old)), ("new  ", head(&comparison.new))]
}

/// What each subject costs in either run.
fn prices(case: &CaseComparison, baseline: &str) -> Rows {
    let header = [
        "subject".to_owned(),
        "old µs".to_owned(),
        "new µs".to_owned(),
        format!("old × {baseline} [95 %]"),
        format!("new × {baseline} [95 %]"),
    ];
    let row = |subject: &SubjectComparison| {
        let cpu = |side: &Side| match &side.figures {
            Some(figures) => figures.cpu_us_per_request.map_or(NONE.to_owned(), significant),
            None => side.status.to_owned(),
        };
        let price = |side: &Side| {
            let price = side.prices.get(&Metric::CpuUsPerRequest).and_then(|price| price.ratio);
            match price {
                Some(ratio) => range(&ratio, significant),
                None if subject.name == baseline => "baseline".to_owned(),
                None => NONE.to_owned(),
            }
        };
        vec![
            subject.name.clone(),
            cpu(&subject.old),
            cpu(&subject.new),
            price(&subject.old),
            price(&subject.new),
        ]
    };
    Rows { header: header.to_vec(), rows: case.subjects.iter().map(row).collect() }
}

/// How the prices in CPU have changed.
fn changes(case: &CaseComparison) -> Rows {
    let row = |subject: &SubjectComparison| {
        let change = subject.changes.get(&Metric::CpuUsPerRequest)?;
        Some(vec![
            subject.name.clone(),
            range(&change.ratio, significant),
            change.n_old.to_string(),
            change.n_new.to_string(),
            words(change.verdict).to_owned(),
        ])
    };
    let header = ["subject", "new price / old [95 %]", "n old", "n new", "verdict"];
    Rows {
        header: header.map(str::to_owned).to_vec(),
        rows: case.subjects.iter().filter_map(row).collect(),
    }
}

/// How the other prices have changed that the report shows.
fn other_changes(case: &CaseComparison) -> Rows {
    let columns = [
        ("requests/s new / old", Metric::ThroughputPerS),
        ("p50 new / old", Metric::LatencyP50Ms),
        ("memory new / old", Metric::MemoryPeakBytes),
    ];
    let row = |subject: &SubjectComparison| {
        let change = |metric: &Metric| match subject.changes.get(metric) {
            Some(change) => range(&change.ratio, significant),
            None => NONE.to_owned(),
        };
        let mut row = vec![subject.name.clone()];
        row.extend(columns.iter().map(|(_, metric)| change(metric)));
        (!subject.changes.is_empty()).then_some(row)
    };
    let names = columns.iter().map(|(name, _)| (*name).to_owned());
    Rows {
        header: std::iter::once("subject".to_owned()).chain(names).collect(),
        rows: case.subjects.iter().filter_map(row).collect(),
    }
}

fn words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::CostsMore => "costs more",
        Verdict::CostsLess => "costs less",
        Verdict::Same => "same",
        Verdict::Inconclusive => "not significant",
    }
}

fn legend(comparison: &Comparison) -> String {
    let old = &comparison.old.baseline;
    let changes =
        || comparison.cases.iter().flat_map(|case| &case.subjects).flat_map(|s| s.changes.values());
    let few = match changes().any(|change| !change.ratio.interval) {
        true => " Below 4 blocks in each run there is no interval; {a, b} is the range seen.",
        false => "",
    };
    format!(
        "New / old is the ratio of prices, each relative to {old} in its own run; absolute figures vary with the \
         machine. [a, b]: the 95 % interval. Verdict on the CPU: costs more or less than before, the \
         same within {}, or not significant.{few}",
        share(comparison.margin)
    )
}

fn notes(comparison: &Comparison) -> Vec<String> {
    let mut notes = Vec::new();
    if comparison.old.title != comparison.new.title {
        notes.push("The runs are of experiments with different titles.".to_owned());
    }
    notes.extend(comparison.missing.iter().map(|line| format!("{}.", capital(line))));
    if !comparison.has_changes() {
        notes.push("There is no subject with a price in both runs.".to_owned());
    }
    notes
}

fn capital(line: &str) -> String {
    let mut characters = line.chars();
    characters
        .next()
        .map_or(String::new(), |first| first.to_uppercase().chain(characters).collect())
}

/// The lines in words, as many as people read.
fn fingerprint(lines: &[Line]) -> Vec<String> {
    let side = |value: &Option<String>| match value {
        None => "nothing".to_owned(),
        Some(value) if value.is_empty() => "nothing".to_owned(),
        Some(hash) if hash.len() == 64 && hash.chars().all(|c| c.is_ascii_hexdigit()) => {
            hash[..HASH_SHOWN].to_owned()
        }
        Some(value) => value.replace(char::is_control, " "),
    };
    let shown = lines.iter().take(LINES_SHOWN);
    let mut words: Vec<String> = shown
        .map(|line| format!("{}: {}, now {}", line.what, side(&line.old), side(&line.new)))
        .collect();
    if lines.len() > LINES_SHOWN {
        words.push(format!("and {} more, all in --format json", lines.len() - LINES_SHOWN));
    }
    words
}
