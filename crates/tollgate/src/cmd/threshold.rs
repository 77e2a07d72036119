//! `--threshold` of `tollgate run`, `tollgate report` and `tollgate compare`.

use crate::console::{self, Exit, Failure, eprint_line};
use anyhow::Context;
use std::path::PathBuf;
use tollgate_records::files::write_atomic;
use tollgate_report as report;
use tollgate_report::analysis::Analysis;
use tollgate_report::condition::ConditionError;
use tollgate_report::junit;
use tollgate_report::source::ReportSource;
use tollgate_report::threshold::{self, Judged, Threshold, ThresholdOutcome};
use tollgate_stats::text::Screen;

#[derive(Debug, clap::Args)]
pub(crate) struct ThresholdArgs {
    /// Fail if a figure is outside a limit, such as 'cpu(full/off)<60' (may be repeated)
    ///
    /// Exits with 99 if a threshold fails and with 75 if one is not settled, judged by the 95 % interval.
    /// METRIC(SUBJECT/BASELINE) is a ratio, METRIC(SUBJECT) the figure itself; METRIC(SUBJECT @ CASE) applies to one
    /// case instead of all. Metrics with their units, of which the first is the default: cpu, `generator_cpu` (us, ns, ms), throughput
    /// (/s), p50, p90, p95, p99, p99.9, mean, max, startup (ms, us, s), memory (MiB, KiB, GiB, B), `detection_rate`
    /// and `false_positives` (%); ratios (x, %). Relations: < <= > >=.
    #[arg(long = "threshold", value_name = "CONDITION")]
    threshold: Vec<String>,
    #[command(flatten)]
    junit: JunitArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct JunitArgs {
    /// Write the thresholds to this file as `JUnit` XML, for a CI system
    ///
    /// A test case per threshold and case of the experiment. One that is not settled is skipped, and one whose subject
    /// has no figure is an error.
    #[arg(long, value_name = "FILE", requires = "threshold")]
    junit: Option<PathBuf>,
}

impl JunitArgs {
    fn write(&self, title: &str, judged: &[Judged]) -> anyhow::Result<()> {
        let Some(path) = &self.junit else { return Ok(()) };
        let context = || format!("--junit: cannot write {}", path.display());
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(context)?;
        }
        write_atomic(path, &junit::render(title, judged)?).with_context(context)
    }
}

impl ThresholdArgs {
    /// Parses the thresholds for a run with these subjects and cases.
    pub(crate) fn parse(
        &self,
        subjects: &[&str],
        cases: &[&str],
    ) -> Result<Vec<Threshold>, Failure> {
        let parse = |text: &String| {
            let threshold: Threshold = text.parse()?;
            threshold.check(subjects, cases)?;
            Ok(threshold)
        };
        collect(self.threshold.iter().map(parse))
    }

    /// Parses the thresholds for an analysed run.
    pub(crate) fn parse_for(&self, analysis: &Analysis) -> Result<Vec<Threshold>, Failure> {
        let (subjects, cases) = names(analysis);
        self.parse(&subjects, &cases)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.threshold.is_empty()
    }

    /// Judges a run, prints the result and writes the `JUnit` report. Returns `exit` if all thresholds pass.
    pub(crate) fn judge(
        &self,
        thresholds: &[Threshold],
        source: &ReportSource,
        format: report::Format,
        exit: Exit,
    ) -> Result<Exit, Failure> {
        let judged = thresholds.iter().flat_map(|threshold| threshold.judge(source));
        finish(&judged.collect::<Vec<_>>(), &source.analysis, &self.junit, format, exit)
    }
}

/// Parses thresholds on the changes between two runs.
pub(crate) fn parse_changes(
    texts: &[String],
    runs: [&Analysis; 2],
) -> Result<Vec<Threshold>, Failure> {
    let parse = |text: &String| {
        let threshold = Threshold::of_change(text)?;
        for run in runs {
            let (subjects, cases) = names(run);
            threshold.check(&subjects, &cases)?;
            threshold.check_change(&run.baseline)?;
        }
        Ok(threshold)
    };
    collect(texts.iter().map(parse))
}

fn collect(
    parsed: impl Iterator<Item = Result<Threshold, ConditionError>>,
) -> Result<Vec<Threshold>, Failure> {
    parsed.collect::<Result<_, _>>().context("--threshold").map_err(Failure::bad_input)
}

/// Returns the names of the subjects and cases of a run.
fn names(analysis: &Analysis) -> (Vec<&str>, Vec<&str>) {
    let cases = analysis.cases.iter().map(|case| &*case.case.name).collect();
    let subjects = analysis.cases.iter().flat_map(|case| &case.subjects);
    let mut subjects: Vec<&str> = subjects.map(|subject| &*subject.name).collect();
    subjects.sort_unstable();
    subjects.dedup();
    (subjects, cases)
}

/// Prints the judged thresholds of a run, to standard error if `format` is for programs, and writes the `JUnit` report.
/// Returns `exit` if all pass.
pub(crate) fn finish(
    judged: &[Judged],
    analysis: &Analysis,
    junit: &JunitArgs,
    format: report::Format,
    exit: Exit,
) -> Result<Exit, Failure> {
    if judged.is_empty() {
        return Ok(exit);
    }
    let as_table = |screen| threshold::render(judged, screen);
    match format {
        report::Format::Table => console::print(&format!("\n{}", as_table(console::screen())))?,
        report::Format::Markdown => {
            let table = threshold::render_markdown(judged);
            console::print(&format!("\n{table}"))?;
        }
        _ => eprint_line(as_table(Screen::PLAIN).trim_end()),
    }
    junit.write(&analysis.title, judged)?;
    Ok(match threshold::overall(judged) {
        ThresholdOutcome::Fail => Exit::ThresholdFailed,
        ThresholdOutcome::NotSettled => Exit::NotSettled,
        ThresholdOutcome::Pass => exit,
    })
}
