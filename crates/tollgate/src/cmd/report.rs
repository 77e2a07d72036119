//! `tollgate report`.

mod site;

use super::threshold::ThresholdArgs;
use crate::console::{self, Exit, Failure};
use anyhow::anyhow;
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use tollgate_records::files;
use tollgate_records::run_dir;
use tollgate_report::export;
use tollgate_report::source::ReportSource;
use tollgate_report::{self as report, NoFigure};
use tollgate_search::report::SearchReport;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory of a run or a search
    #[arg(value_name = "DIR", required_unless_present = "site")]
    dir: Option<PathBuf>,
    /// Make static pages of all runs and batches in the folder RUNS
    #[arg(long, value_name = "RUNS", requires = "out", conflicts_with_all = ["dir", "format", "baseline", "threshold"])]
    site: Option<PathBuf>,
    /// Folder that the pages are written to
    #[arg(long, value_name = "DIR", requires = "site")]
    out: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Baseline for the prices, instead of the run's
    #[arg(long, value_name = "SUBJECT")]
    baseline: Option<String>,
    #[command(flatten)]
    threshold: ThresholdArgs,
}

const EXAMPLES: &str = "\
Examples:
  tollgate report runs/first-look-...                     the table of the run
  tollgate report runs/first-look-... --format markdown   for a pull request
  tollgate report runs/first-look-... --format html > page.html
  tollgate report runs/first-look-... --threshold 'cpu(full/nginx)<130'
  tollgate report runs/vitrix-... --baseline haproxy      over another subject
  tollgate report DIR --format gobench > run.txt          for benchstat
  tollgate report --site runs --out site                  pages of all runs

docs/formats.md describes the formats. Exit codes: see `tollgate --help`.";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For a terminal
    Table,
    /// For a pull request
    Markdown,
    /// For a browser: one file with all plots
    Html,
    /// For a document: the chart of CPU prices, in the colors of its reader, light or dark
    Svg,
    /// For a spreadsheet: one line per price
    Csv,
    /// For programs: all data
    Json,
    /// For readers of the benchmark that the experiment repeats: its own layout
    #[value(alias = "seed")]
    Original,
    /// CPU seconds per request as hyperfine's JSON
    Hyperfine,
    /// Go benchmark lines for benchstat, one per block and subject
    Gobench,
    /// Array for github-action-benchmark (customSmallerIsBetter)
    Github,
    /// Bencher Metric Format
    Bencher,
    /// HdrHistogram percentiles: one file per subject in DIR/hgrm
    Hgrm,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let dir = match (&args.dir, &args.site, &args.out) {
        (Some(dir), ..) => dir,
        (None, Some(runs), Some(out)) => return site::write(runs, out),
        _ => unreachable!("DIR, or --site with --out, is required"),
    };
    if run_dir::is_search(dir) {
        let run_options =
            [("--threshold", !args.threshold.is_empty()), ("--baseline", args.baseline.is_some())];
        if let Some((flag, _)) = run_options.iter().find(|(_, is_given)| *is_given) {
            let error = anyhow!("{flag} applies to runs, but {} contains a search", dir.display());
            return Err(Failure::bad_input(error));
        }
        return search(dir, args.format);
    }
    let source = ReportSource::read(dir);
    let source = match &args.baseline {
        Some(baseline) => source.and_then(|source| source.over(baseline)),
        None => source,
    };
    let source = source.map_err(Failure::bad_input)?;
    let thresholds = args.threshold.parse_for(&source.analysis)?;
    let format = args.format.of_report();
    let text = match format {
        Some(format) => report::render(&source, format, console::screen()),
        None => export::write_hgrm(&source, dir)
            .map(|paths| paths.iter().map(|path| format!("{}\n", path.display())).collect()),
    };
    console::print(&text.map_err(|error| {
        if error.is::<NoFigure>() { Failure::nothing(error) } else { Failure::from(error) }
    })?)?;
    let format = format.unwrap_or(report::Format::Json);
    args.threshold.judge(&thresholds, &source, format, Exit::Success)
}

fn search(dir: &Path, format: Format) -> Result<Exit, Failure> {
    let report = SearchReport::read(dir).map_err(Failure::bad_input)?;
    let text = match format {
        Format::Table => report.table(console::screen()),
        Format::Json => files::json(&report)?,
        _ => {
            let error =
                anyhow!("{} contains a search: --format must be table or json", dir.display());
            return Err(Failure::bad_input(error));
        }
    };
    console::print(&text)?;
    Ok(Exit::Success)
}

impl Format {
    /// Returns the format of one text. `None` for files.
    fn of_report(self) -> Option<report::Format> {
        Some(match self {
            Self::Table => report::Format::Table,
            Self::Markdown => report::Format::Markdown,
            Self::Csv => report::Format::Csv,
            Self::Json => report::Format::Json,
            Self::Html => report::Format::Html,
            Self::Svg => report::Format::Svg,
            Self::Original => report::Format::Original,
            Self::Hyperfine => report::Format::Hyperfine,
            Self::Gobench => report::Format::Gobench,
            Self::Github => report::Format::Github,
            Self::Bencher => report::Format::Bencher,
            Self::Hgrm => return None,
        })
    }
}
