//! `tollgate report`: a finished run's report, made anew from its records.

use crate::exit::{Exit, Failure};
use crate::output;
use clap::ValueEnum;
use std::path::PathBuf;
use tollgate_lab::report::source::Source;
use tollgate_lab::report::{
    self, ReportError, bencher, github, gobench, hgrm, html, hyperfine, render,
};

/// What `tollgate report` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The run's directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

const EXAMPLES: &str = "\
Examples:
  tollgate report runs/first-look-20260102T030405.000Z
  tollgate report DIR --format markdown | gh pr comment --body-file -
  tollgate report DIR --format html > page.html
  tollgate report DIR --format gobench > run.txt && benchstat -col /subject run.txt

FORMAT.md says what the formats for programs hold.";

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
    let source = Source::read(&args.dir).map_err(Failure::bad_input)?;
    output::print(&text(args, &source)?)?;
    Ok(Exit::Done)
}

fn text(args: &Args, source: &Source) -> Result<String, ReportError> {
    let of_analysis = |format| render(&source.analysis, format, output::color());
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
