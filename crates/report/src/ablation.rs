//! The costs of the files of a rule set, as a table.

use super::rows::{Rows, range};
use crate::analysis::{
    AblationFigures, Analysis, FileFigures, FilePrice, Range, verdict_legend, verdict_word,
};
use crate::error::ReportError;
use std::io;
use tollgate_stats::number::{count, significant};

const NONE: &str = "-";

/// Maximum number of templates named in a line; report.json and ablation.csv name all.
const NAMED_MAX: usize = 12;

/// One row per file, the most expensive first, then all files together.
pub fn rows(figures: &AblationFigures) -> Rows {
    let header = [
        "file",
        "CPU µs/request [95 %]",
        &format!("% of {} [95 %]", figures.subject),
        "n",
        "verdict",
        "attacks",
        "benign",
    ];
    Rows {
        header: header.map(str::to_owned).to_vec(),
        rows: figures.files.iter().chain(&figures.all).map(row).collect(),
    }
}

pub fn legend(analysis: &Analysis, figures: &AblationFigures) -> String {
    let AblationFigures { subject, .. } = figures;
    format!(
        "Cost of a file: {subject} minus {subject} without that file, block by block. [a, b]: the 95 % \
         interval; {{a, b}}: the range seen in fewer than 6 blocks. {} Attacks, benign: \
         templates of the mix that are blocked only with the file. Requests that a file no longer \
         blocks pass through all other rules, and files share work, so the costs need not add up.",
        verdict_legend(analysis.margin)
    )
}

/// The notes below the table.
pub fn notes(figures: &AblationFigures) -> Vec<String> {
    let kept =
        figures.kept.iter().map(|kept| format!("{} was not removed: {}.", kept.file, kept.reason));
    let lost = figures.files.iter().flat_map(|file| {
        let named = |what: &str, names: &[String]| {
            (!names.is_empty()).then(|| format!("{what} only by {}: {}.", file.file, listed(names)))
        };
        let exceptions = (file.exceptions > 0).then(|| {
            let count = count(file.exceptions as u64);
            format!(
                "{}: {count} exceptions from its rules in other files were removed too.",
                file.file
            )
        });
        let attacks = named("Attacks blocked", &file.attacks);
        let benign = named("Benign requests blocked", &file.benign);
        [attacks, benign, exceptions].into_iter().flatten()
    });
    kept.chain(lost).collect()
}

/// Renders the files of every case as CSV, unrounded. `None` for a run without ablation.
pub fn csv(analysis: &Analysis) -> Result<Option<String>, ReportError> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record([
        "case",
        "file",
        "subject",
        "n",
        "cpu_us",
        "cpu_us_low",
        "cpu_us_high",
        "share",
        "share_low",
        "share_high",
        "interval",
        "verdict",
        "attacks",
        "benign",
        "exceptions",
        "kept",
    ])?;
    let mut is_empty = true;
    for case in &analysis.cases {
        let Some(figures) = &case.ablation else { continue };
        is_empty = false;
        for file in figures.files.iter().chain(&figures.all) {
            let mut line = vec![case.case.name.clone(), file.file.clone(), file.subject.clone()];
            line.extend(price_cells(file.price.as_ref()));
            line.extend([file.attacks.join(" "), file.benign.join(" ")]);
            line.extend([file.exceptions.to_string(), String::new()]);
            writer.write_record(line)?;
        }
        for kept in &figures.kept {
            let mut line = vec![case.case.name.clone(), kept.file.clone()];
            line.resize(15, String::new());
            line.push(kept.reason.clone());
            writer.write_record(line)?;
        }
    }
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    let text =
        String::from_utf8(bytes).map_err(|error| csv::Error::from(io::Error::other(error)))?;
    Ok((!is_empty).then_some(text))
}

fn price_cells(price: Option<&FilePrice>) -> Vec<String> {
    let Some(FilePrice { n, cpu_us, share, verdict }) = price else {
        return vec![String::new(); 9];
    };
    let ends = |range: Option<&Range>| match range {
        Some(range) => [range.estimate, range.low, range.high].map(|value| value.to_string()),
        None => [const { String::new() }; 3],
    };
    let mut cells = vec![n.to_string()];
    cells.extend(ends(Some(cpu_us)));
    cells.extend(ends(share.as_ref()));
    cells.push(if cpu_us.interval { "95 % interval" } else { "range seen" }.to_owned());
    cells.push(verdict.map_or("", verdict_word).to_owned());
    cells
}

fn row(file: &FileFigures) -> Vec<String> {
    // Omit the common extension to save width.
    let mut row = vec![file.file.strip_suffix(".conf").unwrap_or(&file.file).to_owned()];
    match &file.price {
        Some(FilePrice { n, cpu_us, share, verdict }) => row.extend([
            range(cpu_us, significant),
            share
                .as_ref()
                .map_or(NONE.to_owned(), |share| range(share, |value| significant(100.0 * value))),
            n.to_string(),
            verdict.map_or(NONE, verdict_word).to_owned(),
        ]),
        None => row.extend([NONE, NONE, "0", NONE].map(str::to_owned)),
    }
    row.extend([file.attacks.len(), file.benign.len()].map(|names| names.to_string()));
    row
}

fn listed(names: &[String]) -> String {
    let named = names[..names.len().min(NAMED_MAX)].join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => named,
        rest => format!("{named}, and {rest} more"),
    }
}
