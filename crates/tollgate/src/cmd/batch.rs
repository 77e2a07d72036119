//! `tollgate batch`: a price for every revision of a component, and the commit that changed it.

mod events;
mod find;
mod run;
mod stats;

use super::beginning;
use crate::exit::{Exit, Failure};
use crate::output::tell;
use anyhow::anyhow;
use clap::Subcommand;
use std::path::Path;
use tollgate_lab::batch::BatchError;

/// What `tollgate batch` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate batch run revisions.toml     build and measure every revision, each beside the anchor
  tollgate batch stats                  a line a revision, in the columns of batchbench.sh
  tollgate batch stats --format table   prices with intervals, states and what was found
  tollgate batch find                   which commit changed the price, confirmed by a fresh run

Whatever ends a batch, the same command goes on with it. Exit codes: see `tollgate --help`.")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Build and measure revisions
    Run(Box<run::Args>),
    /// Print what is known of each revision
    Stats(stats::Args),
    /// Find the commits that changed the price
    Find(find::Args),
}

impl Command {
    /// Whether it starts servers that have to be gone in the end.
    pub(crate) fn starts_servers(&self) -> bool {
        match self {
            Self::Run(_) | Self::Find(_) => true,
            Self::Stats(_) => false,
        }
    }
}

/// The directory of a batch where nobody names one.
const DIR: &str = "batch";

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.command {
        Command::Run(args) => run::run(args),
        Command::Stats(args) => stats::run(args),
        Command::Find(args) => find::run(args),
    }
}

/// How a batch ended that did not come to its end.
fn cut_off(error: BatchError) -> Result<Exit, Failure> {
    match error {
        BatchError::Interrupted(_) => {
            tell("What was finished is kept; the same command goes on with it.");
            Ok(Exit::Interrupted)
        }
        BatchError::Run(error) => Err(beginning::failure(*error)),
        BatchError::Asked(_)
        | BatchError::Toml(_)
        | BatchError::Catalog(_)
        | BatchError::Experiment(_) => Err(Failure::bad_input(error)),
        error => Err(Failure::from(error)),
    }
}

/// Nothing has a price.
fn nothing(out: &Path) -> Failure {
    let out = out.display();
    Failure::nothing(anyhow!("no revision of {out} has a price; the table says why"))
}
