//! How many bytes a second went to and fro.

use super::number::significant;
use super::rows::{Rows, at_least};
use crate::analysis::{CaseAnalysis, SubjectAnalysis};

/// What the columns of [`rows`] mean.
pub const LEGEND: &str = "Medians over the valid trials, as on the wire above TCP: heads, bodies and \
codings. MB: a million bytes.";

/// The bytes of each subject's answers and of the requests that they answer.
pub fn rows(case: &CaseAnalysis) -> Rows {
    let header = ["subject", "answers MB/s", "B an answer", "requests MB/s", "B a request"];
    Rows {
        header: header.map(str::to_owned).to_vec(),
        rows: case.subjects.iter().filter_map(|subject| row(case, subject)).collect(),
    }
}

fn row(case: &CaseAnalysis, subject: &SubjectAnalysis) -> Option<Vec<String>> {
    let figures = subject.figures.as_ref()?;
    let received = figures.received_bytes_per_s?;
    let sent = figures.sent_bytes_per_s?;
    let at_least = at_least(figures, case.case.open_loop.is_some());
    let mega = |bytes: f64| format!("{at_least}{}", significant(bytes / 1e6));
    let each = |bytes: f64| match figures.throughput_per_s {
        Some(answers) if answers > 0.0 => significant(bytes / answers),
        _ => "-".to_owned(),
    };
    Some(vec![subject.name.clone(), mega(received), each(received), mega(sent), each(sent)])
}
