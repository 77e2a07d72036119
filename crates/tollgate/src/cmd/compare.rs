//! `tollgate compare`: the same subjects in two runs.

use crate::exit::{Exit, Failure};
use crate::output::{self, tell};
use clap::ValueEnum;
use std::path::PathBuf;
use tollgate_lab::compare;
use tollgate_lab::run_dir::RunRecords;

/// What `tollgate compare` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate compare runs/before runs/after
  tollgate compare runs/before runs/after --format markdown   for a pull request

Compared are prices, which are ratios to each run's own baseline; both runs need the same. Where the
machine, a version, a config or a rule set differs, the lines that do are told. Exits with 4 when no
subject has a price in both runs. Exit codes: see `tollgate --help`.")]
pub(crate) struct Args {
    /// The directory of the run that came first
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The directory of the run that is held against it
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// How a comparison is written.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For a terminal
    Table,
    /// For a pull request
    Markdown,
    /// For a program: everything
    Json,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let old = RunRecords::read(&args.old).map_err(Failure::bad_input)?;
    let new = RunRecords::read(&args.new).map_err(Failure::bad_input)?;
    let comparison = compare::compare(&old, &new).map_err(Failure::bad_input)?;
    let format = match args.format {
        Format::Table => compare::Format::Table { screen: output::screen() },
        Format::Markdown => compare::Format::Markdown,
        Format::Json => compare::Format::Json,
    };
    output::print(&compare::render(&comparison, format)?)?;
    let differing = comparison.fingerprint.len();
    if differing > 0 {
        let lines = if differing == 1 { "line" } else { "lines" };
        tell(&format!("warning: the fingerprints of the runs differ in {differing} {lines}"));
    }
    Ok(if comparison.has_changes() { Exit::Done } else { Exit::Nothing })
}
