//! `tollgate compare`.

use super::threshold::{self, JunitArgs};
use crate::console::{self, Exit, Failure, eprint_line};
use anyhow::Context;
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use tollgate_records::files;
use tollgate_report as report;
use tollgate_report::compare;
use tollgate_report::source::ReportSource;
use tollgate_stats::number::counted;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate compare runs/before runs/after
  tollgate compare runs/before runs/after --format markdown
  tollgate compare runs/before runs/after --threshold 'cpu(full)<105%'

Compares prices, which are ratios to the baseline of each run; both runs must
have the same baseline, or a common subject for --baseline, and the same
layout. Also lists differences of machine, versions, configs and rule sets.
Exits with 4 if no subject has a price in both runs. Exit codes: see
`tollgate --help`.")]
pub(crate) struct Args {
    /// Directory of the earlier run
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// Directory of the later run
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Baseline for the prices of both runs, instead of their own
    #[arg(long, value_name = "SUBJECT")]
    baseline: Option<String>,
    /// Compare runs with different layouts, such as one machine and hosts of their own for the roles
    #[arg(long)]
    across_layouts: bool,
    /// Fail if a change is outside a limit, such as 'cpu(full)<105%' (may be repeated)
    ///
    /// The change is the new price over the old one, as x or %. METRIC(SUBJECT) is the price over the baseline,
    /// METRIC(SUBJECT/OTHER) over another subject; METRIC(SUBJECT @ CASE) applies to one case instead of all. Metrics:
    /// cpu, `generator_cpu`, throughput, p50, p90, p95, p99, p99.9, mean, max, startup, memory. Exits with 99 if a threshold
    /// fails and with 75 if one is not settled, judged by the 95 % interval. For limits of the new run: `tollgate report NEW --threshold`.
    #[arg(long = "threshold", value_name = "CONDITION")]
    threshold: Vec<String>,
    #[command(flatten)]
    junit: JunitArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For a terminal
    Table,
    /// For a pull request
    Markdown,
    /// For programs: all data
    Json,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let read = |dir: &Path| {
        let source = ReportSource::read(dir)?;
        match &args.baseline {
            Some(baseline) => source.over(baseline).with_context(|| dir.display().to_string()),
            None => Ok(source),
        }
    };
    let old = read(&args.old).map_err(Failure::bad_input)?;
    let new = read(&args.new).map_err(Failure::bad_input)?;
    if !args.across_layouts {
        compare::check_layouts(&old.records.manifest, &new.records.manifest)?;
    }
    let comparison = compare::compare(&old.records, &new.records)?;
    let thresholds = threshold::parse_changes(&args.threshold, [&old.analysis, &new.analysis])?;
    let (text, format) = match args.format {
        Format::Table => (compare::render(&comparison, console::screen()), report::Format::Table),
        Format::Markdown => (compare::render_markdown(&comparison), report::Format::Markdown),
        Format::Json => (files::json(&comparison)?, report::Format::Json),
    };
    console::print(&text)?;
    let differences = comparison.fingerprint.len();
    if differences > 0 {
        eprint_line(&format!(
            "warning: {} between the fingerprints",
            counted(differences, "difference")
        ));
    }
    let judged = thresholds.iter().flat_map(|threshold| threshold.judge_change(&old, &new));
    let exit = if comparison.has_changes() { Exit::Success } else { Exit::Nothing };
    threshold::finish(&judged.collect::<Vec<_>>(), &new.analysis, &args.junit, format, exit)
}
