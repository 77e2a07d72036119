//! `tollgate report`: a finished run's report, made anew from its records.

use super::gates::{self, GateArgs};
use crate::exit::{Exit, Failure};
use crate::output;
use anyhow::anyhow;
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use tollgate_lab::report;
use tollgate_lab::run_dir;
use tollgate_lab::search;

/// What `tollgate report` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate report runs/first-look-...                     the table that the run printed
  tollgate report runs/first-look-... --format markdown   for a pull request
  tollgate report runs/first-look-... --threshold 'cpu(full/nginx)<130'

Exit codes: see `tollgate --help`.")]
pub(crate) struct Args {
    /// The directory of a run, or of a search
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
    if run_dir::is_search(&args.dir) {
        return search(&args.dir, args.format);
    }
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

/// The report of a search, of which there are two formats.
fn search(dir: &Path, format: Format) -> Result<Exit, Failure> {
    let findings = search::findings::of_search(dir).map_err(Failure::bad_input)?;
    let text = match format {
        Format::Table => search::report::table(&findings, output::color()),
        Format::Json => search::report::json(&findings)?,
        Format::Markdown | Format::Csv => {
            let error = anyhow!("{} holds a search: --format is table or json", dir.display());
            return Err(Failure::bad_input(error));
        }
    };
    output::print(&text)?;
    Ok(Exit::Done)
}
