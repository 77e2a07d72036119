//! The figures of a run in the layout of the benchmark that its experiment repeats, so that its readers find theirs.
//!
//! The layout follows from the experiment: CrowdSec's tables of response times if it asks for added latency, otherwise the
//! lines of `ab` for a case with a fixed number of requests, and of `ministat`, which modsecurity-performance uses, for
//! one with a fixed time.

use crate::analysis::{Analysis, CaseAnalysis, Summaries};
use crate::document::{LATENCIES, NONE, capitalized};
use crate::markdown::escape;
use crate::source::ReportSource;
use tollgate_load::{AbTotals, ab_of_totals};
use tollgate_records::trial::Measurement;
use tollgate_stats::Summary;
use tollgate_traffic::load_shape::Window;

const METRIC_WIDTH: usize = 21;
const VALUE_WIDTH: usize = 10;

/// Renders the layouts as Markdown.
pub(crate) fn render(source: &ReportSource) -> anyhow::Result<String> {
    let analysis = &source.analysis;
    let mut text = format!("# {}\n", escape(&analysis.title));
    if analysis.latency {
        text += &response_times(analysis);
        return Ok(text);
    }
    for case in &analysis.cases {
        text += &format!("\n## {}\n", escape(&case.case.name));
        for subject in case.subjects.iter().filter(|subject| subject.figures.is_some()) {
            let lines = match case.case.load.window {
                Window::Requests { .. } => ab(source, case, &subject.name)?,
                Window::For(_) => subject.summaries.as_ref().map_or(String::new(), ministat),
            };
            text += &format!("\n### {}\n\n```\n{lines}```\n", escape(&subject.name));
        }
    }
    Ok(text)
}

/// All valid trials of a subject as one test.
fn ab(source: &ReportSource, case: &CaseAnalysis, subject: &str) -> anyhow::Result<String> {
    let valid = source.valid(&case.case.name, subject);
    let sum = |count: fn(&Measurement) -> u64| valid.values().map(|m| count(m)).sum::<u64>();
    let bytes = valid.values().map(|m| Some(m.received_bytes_per_s? * m.window_s));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of bytes"
    )]
    let bytes_received = bytes.sum::<Option<f64>>().map(|bytes| bytes.round() as u64);
    Ok(ab_of_totals(&AbTotals {
        concurrency: case.case.load.connections(),
        seconds: valid.values().map(|m| m.window_s).sum(),
        responses: sum(|m| m.responses),
        failed: sum(|m| m.failures.total() + m.unexpected),
        bytes_received,
        latency: &source.latencies(&case.case.name, subject)?,
    }))
}

fn ministat(summaries: &Summaries) -> String {
    let mut text = String::new();
    for (name, summary) in [
        ("requests/s", Some(summaries.requests_per_s)),
        ("latency (ms)", Some(summaries.latency_ms)),
        ("worker user time (ms)", summaries.user_cpu_ms),
    ] {
        let Some(Summary { n, min, max, median, mean, standard_deviation }) = summary else {
            continue;
        };
        let sd = standard_deviation.map_or(NONE.to_owned(), |sd| format!("{sd:.2}"));
        let header = ["Min", "Max", "Median", "Avg", "Stddev"].map(|name| format!("{name:>14}"));
        text += &format!("{name}\n    N{}\n", header.concat());
        text += &format!("x {n:3}{min:14.2}{max:14.2}{median:14.2}{mean:14.2}{sd:>14}\n");
    }
    text
}

/// Response times of the baseline in each case, and their change with each subject.
fn response_times(analysis: &Analysis) -> String {
    let all = analysis.cases.iter().flat_map(|case| &case.subjects);
    let mut names: Vec<&str> = Vec::new();
    for subject in all.filter(|subject| subject.figures.is_some()) {
        if !names.contains(&subject.name.as_str()) {
            names.push(&subject.name);
        }
    }
    let mut text = String::new();
    for name in names {
        text += &format!("\n## {}\n", escape(name));
        for case in &analysis.cases {
            let Some(subject) = case.subject(name) else { continue };
            let Some(figures) = &subject.figures else { continue };
            let column = if name == analysis.baseline { "Value" } else { "Delta" };
            text += &format!("\n### {}\n\n", escape(&case.case.name));
            text += &line("Metric", column);
            text += &format!("| {} | {} |\n", "-".repeat(METRIC_WIDTH), "-".repeat(VALUE_WIDTH));
            for (label, metric, figure) in LATENCIES {
                let value = if name == analysis.baseline {
                    figure(figures).map(|ms| format!("{ms:.2}ms"))
                } else {
                    let price = subject.prices.get(&metric);
                    price.map(|price| format!("{:+.2}ms", price.difference.estimate))
                };
                let label = format!("{} Response Time", capitalized(label));
                text += &line(&label, &value.unwrap_or(NONE.to_owned()));
            }
        }
    }
    text
}

fn line(label: &str, value: &str) -> String {
    format!("| {label:<METRIC_WIDTH$} | {value:<VALUE_WIDTH$} |\n")
}
