//! `tollgate compare`.

use crate::console::{self, Exit, Failure, eprint_line};
use clap::ValueEnum;
use std::path::PathBuf;
use tollgate_experiment::run_dir::RunRecords;
use tollgate_report::{compare, export};
use tollgate_stats::number::counted;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate compare runs/before runs/after
  tollgate compare runs/before runs/after --format markdown   for a pull request

Compares prices, which are ratios to the baseline of each run; both runs must have the same
baseline. Also lists differences of machine, versions, configs and rule sets. Exits with 4 if no
subject has a price in both runs. Exit codes: see `tollgate --help`.")]
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
    let old = RunRecords::read(&args.old).map_err(Failure::bad_input)?;
    let new = RunRecords::read(&args.new).map_err(Failure::bad_input)?;
    let comparison = compare::compare(&old, &new).map_err(Failure::bad_input)?;
    console::print(&match args.format {
        Format::Table => compare::render(&comparison, console::screen()),
        Format::Markdown => compare::render_markdown(&comparison),
        Format::Json => export::json(&comparison)?,
    })?;
    let differences = comparison.fingerprint.len();
    if differences > 0 {
        eprint_line(&format!(
            "warning: {} between the fingerprints",
            counted(differences, "difference")
        ));
    }
    Ok(if comparison.has_changes() { Exit::Success } else { Exit::Nothing })
}
