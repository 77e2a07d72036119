//! The index of many runs: a page whose filters need no script, and the same as data.

use super::{STYLE, page_of};
use crate::analysis::{
    CaseAnalysis, Price, Range, SubjectAnalysis, answers, attacks_blocked, benign_blocked,
};
use crate::document::{NONE, mebibytes, range};
use crate::source::ReportSource;
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_records::metric::Metric;
use tollgate_records::subject::SubjectState;
use tollgate_stats::number::{percent, signed, significant};

/// Schema version of index.json.
const SCHEMA: u32 = 1;

/// The results of many runs.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Index {
    /// Schema version.
    pub schema: u32,
    pub runs: Vec<Run>,
    /// Prices of one system over its revisions.
    pub histories: Vec<History>,
}

/// A run with the figures that subjects are compared by.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Run {
    /// Folder of its page.
    pub name: String,
    /// The question that it answers.
    pub title: String,
    /// The answer for each case, with its name if there are several.
    pub answers: Vec<String>,
    /// The status of its prices, with the reason.
    pub status: String,
    /// Start, RFC 3339, UTC.
    pub started_at: String,
    pub machine: String,
    /// Version and commit of the tool that made it.
    pub tollgate: String,
    /// The command that repeats it.
    pub command: String,
    /// Name of the subject that the others are priced over.
    pub baseline: String,
    pub subjects: Vec<Subject>,
}

/// A subject in one case of a run.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Subject {
    /// Name of the recipe.
    pub system: String,
    pub name: String,
    /// Description in a few words.
    pub about: String,
    pub case: String,
    /// First line of each version command.
    pub versions: Vec<String>,
    /// CPU per request, in microseconds.
    pub cpu_us_per_request: Option<f64>,
    /// The price: CPU per request over that of the baseline in the same block. None for the baseline.
    pub price: Option<Price>,
    pub throughput_per_s: Option<f64>,
    pub latency_p99_ms: Option<f64>,
    pub memory_peak_bytes: Option<f64>,
    /// Share of the attacks that it blocks, from 0 to 1.
    pub attacks_blocked: Option<f64>,
    /// Share of the benign requests that it blocks, from 0 to 1.
    pub benign_blocked: Option<f64>,
}

/// A batch over revisions.
#[derive(Debug, Serialize, JsonSchema)]
pub struct History {
    /// Folder of its page.
    pub name: String,
    pub title: String,
    pub summary: String,
    /// Start, RFC 3339, UTC.
    pub started_at: String,
    /// Version and commit of the tool that made it.
    pub tollgate: String,
    /// The command that began it.
    pub command: String,
}

impl Run {
    /// The figures of a run whose page is in the folder `name`.
    pub fn of(name: &str, source: &ReportSource) -> Self {
        let analysis = &source.analysis;
        let manifests = &source.records.manifest.experiment.subjects;
        let subject = |case: &CaseAnalysis, subject: &SubjectAnalysis| {
            let manifest = manifests.iter().find(|manifest| manifest.name == subject.name)?;
            let figures = subject.figures.as_ref()?;
            Some(Subject {
                system: manifest.system.clone(),
                name: subject.name.clone(),
                about: subject.about.clone(),
                case: case.case.name.clone(),
                versions: match &manifest.state {
                    SubjectState::Present { installed, .. } => installed.version.clone(),
                    SubjectState::Skipped { .. } | SubjectState::Broken { .. } => Vec::new(),
                },
                cpu_us_per_request: figures.cpu_us_per_request,
                price: subject.prices.get(&Metric::CpuUsPerRequest).copied(),
                throughput_per_s: figures.throughput_per_s,
                latency_p99_ms: figures.latency_p99_ms,
                memory_peak_bytes: figures.memory_peak_bytes,
                attacks_blocked: attacks_blocked(case, subject),
                benign_blocked: benign_blocked(case, subject),
            })
        };
        let of_case = |case: &CaseAnalysis| {
            let mut subjects: Vec<Subject> =
                case.subjects.iter().filter_map(|one| subject(case, one)).collect();
            let cpu = |one: &Subject| one.cpu_us_per_request.unwrap_or(f64::INFINITY);
            subjects.sort_by(|a, b| cpu(a).total_cmp(&cpu(b)));
            subjects
        };
        Self {
            name: name.to_owned(),
            title: analysis.title.clone(),
            answers: answers(&analysis.cases),
            status: analysis.status_line.clone(),
            started_at: analysis.started_at.clone(),
            machine: analysis.machine.clone(),
            tollgate: analysis.tollgate.clone(),
            command: analysis.command.clone(),
            baseline: analysis.baseline.clone(),
            subjects: analysis.cases.iter().flat_map(of_case).collect(),
        }
    }
}

#[derive(Serialize)]
struct Page<'a> {
    style: &'static str,
    index: &'a Index,
    /// Runs whose subjects are compared, with the rows of each.
    tables: Vec<(usize, &'a Run, Vec<Row<'a>>)>,
}

#[derive(Serialize)]
struct Row<'a> {
    subject: &'a Subject,
    is_baseline: bool,
    /// True if it blocks attacks.
    catches: bool,
    cells: Vec<(&'static str, String)>,
}

impl<'a> Row<'a> {
    fn of(run: &Run, subject: &'a Subject) -> Self {
        let is_baseline = subject.name == run.baseline;
        let figure = |value: Option<f64>, text: fn(f64) -> String| {
            value.map_or_else(|| NONE.to_owned(), text)
        };
        let of_price = |text: &dyn Fn(&Price) -> Option<String>| match &subject.price {
            Some(price) => text(price).unwrap_or_else(|| NONE.to_owned()),
            None if is_baseline => "baseline".to_owned(),
            None => NONE.to_owned(),
        };
        let ratio = |ratio: &Range| range(ratio, significant);
        let cells = vec![
            ("case", subject.case.clone()),
            ("CPU µs/request", figure(subject.cpu_us_per_request, significant)),
            ("price, µs [95 %]", of_price(&|price| Some(range(&price.difference, signed)))),
            ("× baseline [95 %]", of_price(&|price| price.ratio.as_ref().map(ratio))),
            ("requests/s", figure(subject.throughput_per_s, significant)),
            ("p99 ms", figure(subject.latency_p99_ms, significant)),
            ("MiB", figure(subject.memory_peak_bytes, mebibytes)),
            ("attacks blocked", figure(subject.attacks_blocked, percent)),
            ("benign blocked", figure(subject.benign_blocked, percent)),
        ];
        let catches = subject.attacks_blocked.is_some_and(|share| share > 0.0);
        Row { subject, is_baseline, catches, cells }
    }
}

impl Index {
    /// Sorts runs and histories by name.
    pub fn new(mut runs: Vec<Run>, mut histories: Vec<History>) -> Self {
        runs.sort_by(|a, b| a.name.cmp(&b.name));
        histories.sort_by(|a, b| a.name.cmp(&b.name));
        Self { schema: SCHEMA, runs, histories }
    }

    /// Renders the page. Links lead to `NAME/report.html` and `report.json` of runs, and `NAME/stats.html` and `stats.json` of
    /// histories.
    pub fn render(&self) -> anyhow::Result<String> {
        let tables = self.runs.iter().enumerate().filter(|(_, run)| !run.subjects.is_empty());
        let tables = tables.map(|(number, run)| {
            (number, run, run.subjects.iter().map(|subject| Row::of(run, subject)).collect())
        });
        let page = Page { style: STYLE, index: self, tables: tables.collect() };
        page_of(include_str!("site.html.j2"), &page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemas;
    use schemars::generate::Contract;

    #[test]
    fn committed_schema_matches_types() {
        schemas::check::<Index>("site-index", Contract::Serialize);
    }
}
