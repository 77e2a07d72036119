//! Judged gates as a table: gate, value with its interval, outcome.

use super::{Judged, Measure};
use crate::analysis::{Metric, Range};
use crate::report::layout::Screen;
use crate::report::number::{percent, significant};
use crate::report::rows::{Rows, range};
use crate::report::{markdown, table};
use std::collections::BTreeSet;

/// How judged gates are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For a terminal.
    Table {
        /// On what.
        screen: Screen,
    },
    /// For a pull request.
    Markdown,
}

/// Writes judged gates, and what has to be known of those that say so.
pub fn render(judged: &[Judged], format: Format) -> String {
    let cases: BTreeSet<&str> = judged.iter().map(|judged| judged.case.as_str()).collect();
    let name = |judged: &Judged| match (cases.len(), &judged.gate.case) {
        (2.., None) => format!("{} ({})", judged.gate.text, judged.case),
        _ => judged.gate.text.clone(),
    };
    let row = |judged: &Judged| {
        let value = judged.value.map_or("-".to_owned(), |value| in_words(judged, &value));
        vec![name(judged), value, judged.n.to_string(), judged.outcome.in_words().to_owned()]
    };
    let rows = Rows {
        header: ["gate", "value [95 %]", "n", "outcome"].map(str::to_owned).to_vec(),
        rows: judged.iter().map(row).collect(),
    };
    let notes: Vec<String> = judged
        .iter()
        .filter_map(|judged| Some(format!("{}: {}.", name(judged), judged.note.as_ref()?)))
        .collect();
    match format {
        Format::Table { screen } => {
            let notes: String = notes.iter().map(|note| screen.paragraph("", note)).collect();
            table::draw(&rows, screen) + &notes
        }
        Format::Markdown => {
            let notes: String =
                notes.iter().map(|note| format!("\n- {}\n", markdown::escape(note))).collect();
            markdown::table(&rows) + &notes
        }
    }
}

fn in_words(judged: &Judged, value: &Range) -> String {
    if judged.gate.over.is_some() {
        return format!("{} ×", range(value, significant));
    }
    let unit = match judged.gate.measure {
        Measure::Caught | Measure::Alarms => return range(value, percent),
        Measure::Startup => "ms",
        Measure::Priced(metric) => match metric {
            Metric::CpuUsPerRequest => "µs",
            Metric::ThroughputPerS => "/s",
            Metric::LatencyMeanMs
            | Metric::LatencyMinMs
            | Metric::LatencyP50Ms
            | Metric::LatencyP90Ms
            | Metric::LatencyP99Ms
            | Metric::LatencyMaxMs => "ms",
            Metric::MemoryPeakBytes => {
                return format!("{} MiB", range(value, |bytes| significant(bytes / MIB)));
            }
        },
    };
    format!("{} {unit}", range(value, significant))
}

const MIB: f64 = 1_048_576.0;
