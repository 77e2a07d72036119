//! `tollgate report`: a finished run's report, made anew from its records.

use super::gates::{self, GateArgs};
use crate::exit::{Exit, Failure};
use crate::output;
use anyhow::anyhow;
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use tollgate_lab::report::source::Source;
use tollgate_lab::report::{
    self, ReportError, bencher, github, gobench, hgrm, html, hyperfine, render,
};
use tollgate_lab::run_dir;
use tollgate_lab::search;

/// What `tollgate report` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The directory of a run, or of a search
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// The subject that the others are priced against, in place of the run's baseline
    #[arg(long, value_name = "SUBJECT")]
    baseline: Option<String>,
    #[command(flatten)]
    gates: GateArgs,
}

const EXAMPLES: &str = "\
Examples:
  tollgate report runs/first-look-...                     the table that the run printed
  tollgate report runs/first-look-... --format markdown   for a pull request
  tollgate report runs/first-look-... --format html > page.html
  tollgate report runs/first-look-... --threshold 'cpu(full/nginx)<130'
  tollgate report runs/vitrix-... --baseline haproxy      the same trials, over another subject
  tollgate report DIR --format gobench > run.txt && benchstat -col /subject run.txt

FORMAT.md says what the formats for programs hold. Exit codes: see `tollgate --help`.";

/// How a report is written.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For a terminal
    Table,
    /// For a pull request
    Markdown,
    /// For a browser: one file with every plot
    Html,
    /// For a spreadsheet: one line a price
    Csv,
    /// For a program: everything
    Json,
    /// CPU seconds a request as hyperfine's JSON
    Hyperfine,
    /// Go's benchmark lines, one a block and subject, for benchstat
    Gobench,
    /// The array of github-action-benchmark, where smaller is better
    Github,
    /// Bencher Metric Format
    Bencher,
    /// HdrHistogram's percentiles: a file a subject in DIR/hgrm, whose names are printed
    Hgrm,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    if run_dir::is_search(&args.dir) {
        let of_runs =
            [("--threshold", !args.gates.is_empty()), ("--baseline", args.baseline.is_some())];
        if let Some((flag, _)) = of_runs.iter().find(|(_, is_given)| *is_given) {
            let error = anyhow!("{flag} is for runs, and {} holds a search", args.dir.display());
            return Err(Failure::bad_input(error));
        }
        return search(&args.dir, args.format);
    }
    let source = Source::read(&args.dir);
    let source = match &args.baseline {
        Some(baseline) => source.and_then(|source| source.over(baseline)),
        None => source,
    };
    let source = source.map_err(Failure::bad_input)?;
    let gates = args.gates.of(&source.analysis)?;
    let text = match text(args, &source) {
        Err(error @ ReportError::NoFigure) => return Err(Failure::nothing(error)),
        text => text?,
    };
    output::print(&text)?;
    let beside = match args.format {
        Format::Table => report::Format::Table,
        Format::Markdown => report::Format::Markdown,
        // Whatever a program reads has nothing in it but the report.
        _ => report::Format::Json,
    };
    gates::judge(&gates, &args.dir, &source.analysis, beside, Exit::Done)
}

/// The report of a search, of which there are two formats.
fn search(dir: &Path, format: Format) -> Result<Exit, Failure> {
    let findings = search::findings::of_search(dir).map_err(Failure::bad_input)?;
    let text = match format {
        Format::Table => search::report::table(&findings, output::screen()),
        Format::Json => search::report::json(&findings)?,
        _ => {
            let error = anyhow!("{} holds a search: --format is table or json", dir.display());
            return Err(Failure::bad_input(error));
        }
    };
    output::print(&text)?;
    Ok(Exit::Done)
}

fn text(args: &Args, source: &Source) -> Result<String, ReportError> {
    let of_analysis = |format| render(&source.analysis, format, output::screen());
    match args.format {
        Format::Table => of_analysis(report::Format::Table),
        Format::Markdown => of_analysis(report::Format::Markdown),
        Format::Csv => of_analysis(report::Format::Csv),
        Format::Json => of_analysis(report::Format::Json),
        Format::Html => html::render(source),
        Format::Hyperfine => hyperfine::render(source),
        Format::Gobench => Ok(gobench::render(source)),
        Format::Github => github::render(&source.analysis),
        Format::Bencher => bencher::render(source),
        Format::Hgrm => {
            let paths = hgrm::write_all(source, &args.dir)?;
            Ok(paths.iter().map(|path| format!("{}\n", path.display())).collect())
        }
    }
}
