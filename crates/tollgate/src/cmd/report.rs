//! `tollgate report`: a finished run's report, made anew from its records.

use super::gates::{self, GateArgs};
use crate::exit::{Exit, Failure};
use crate::output;
use clap::ValueEnum;
use std::path::PathBuf;
use tollgate_lab::report;

/// What `tollgate report` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate report runs/first-look-...                     the table that the run printed
  tollgate report runs/first-look-... --format markdown   for a pull request
  tollgate report runs/first-look-... --threshold 'cpu(full/nginx)<130'

Exit codes: see `tollgate --help`.")]
pub(crate) struct Args {
    /// The run's directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    #[command(flatten)]
    gates: GateArgs,
}

/// How a report is written.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For a terminal
    Table,
    /// For a pull request
    Markdown,
    /// For a spreadsheet: one line a price
    Csv,
    /// For a program: everything
    Json,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let analysis = report::of_run(&args.dir).map_err(Failure::bad_input)?;
    let gates = args.gates.of(&analysis)?;
    let format = match args.format {
        Format::Table => report::Format::Table,
        Format::Markdown => report::Format::Markdown,
        Format::Csv => report::Format::Csv,
        Format::Json => report::Format::Json,
    };
    output::print(&report::render(&analysis, format, output::color())?)?;
    gates::judge(&gates, &args.dir, &analysis, format, Exit::Done)
}
