//! Bytes per second in both directions.

use super::rows::{Rows, at_least};
use crate::analysis::{CaseAnalysis, SubjectAnalysis};
use tollgate_stats::number::significant;

pub const LEGEND: &str = "Medians over the valid trials, on the wire above TCP: headers, bodies and \
transfer coding. MB: a million bytes.";

pub fn rows(case: &CaseAnalysis) -> Rows {
    let header = ["subject", "responses MB/s", "requests MB/s"];
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
    Some(vec![subject.name.clone(), mega(received), mega(sent)])
}
