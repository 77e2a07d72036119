//! The command line: what can be asked of the binary.

use crate::cmd::catalog::CatalogArgs;
use crate::cmd::{batch, compare, doctor, gateway, load, origin, report, run, search, systems};
use crate::exit::EXIT_CODES;
use clap::{Parser, Subcommand};
use tollgate_lab::manifest::VERSION;

/// What a reverse proxy or WAF costs, and what it catches.
///
/// Sends the same requests through several proxies and web application firewalls (WAFs) on this
/// machine, side by side, and prices each against a baseline: CPU per request, throughput, latency,
/// memory, and the attacks that it blocks.
#[derive(Debug, Parser)]
#[command(version = VERSION, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run an experiment and print the prices
    Run(run::Args),
    /// Find the highest rate at which each subject keeps a goal
    Search(search::Args),
    /// Print the report of a run, made from its records
    Report(report::Args),
    /// Compare what the same subjects cost in two runs
    Compare(compare::Args),
    /// Price every revision of a component, and find the commit that changed the price
    Batch(batch::Args),
    /// List experiments, systems and mixes
    List(CatalogArgs),
    /// List, install, build or check the systems under test
    Systems(systems::Args),
    /// Say whether this machine can run experiments, and what would make their figures better
    ///
    /// Exits with 1 when a run would not be possible.
    Doctor(doctor::Args),
    /// Send load to a server and measure it
    Load(Box<load::Args>),
    /// Start the benchmark origin: a server that answers at once and costs little
    Origin(origin::Args),
    /// Pass requests on to backends: a reverse proxy
    Gateway(gateway::Args),
}

impl Command {
    /// Whether it starts servers that have to be gone in the end, whatever happens to it.
    pub(crate) fn starts_servers(&self) -> bool {
        match self {
            Self::Run(_) | Self::Search(_) => true,
            Self::Batch(args) => args.command.starts_servers(),
            Self::Doctor(args) => args.noise,
            Self::Systems(args) => matches!(args.command, systems::Command::Check(_)),
            Self::Report(_)
            | Self::Compare(_)
            | Self::List(_)
            | Self::Load(_)
            | Self::Origin(_)
            | Self::Gateway(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
