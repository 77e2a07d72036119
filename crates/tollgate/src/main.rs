//! `tollgate`: prices reverse proxies and WAFs.

/// One module per subcommand.
mod cmd {
    pub(crate) mod agent;
    pub(crate) mod batch;
    pub(crate) mod compare;
    pub(crate) mod doctor;
    pub(crate) mod gateway;
    pub(crate) mod init;
    pub(crate) mod list;
    pub(crate) mod load;
    pub(crate) mod mix;
    pub(crate) mod names;
    pub(crate) mod origin;
    pub(crate) mod packaging;
    pub(crate) mod prepare;
    mod progress;
    pub(crate) mod report;
    pub(crate) mod run;
    pub(crate) mod search;
    pub(crate) mod systems;
    mod threshold;
    pub(crate) mod waf;
    mod waf_diff;
    mod waf_nginx;
    mod waf_replay;
    mod waf_report;
    mod waf_serve;
    mod waf_tune;
}
mod console;
mod signals;

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory as _, Parser, Subcommand};
use cmd::{
    batch, compare, doctor, gateway, load, mix, origin, packaging, report, run, search, systems,
    waf,
};
use console::EXIT_CODES;
use std::ffi::OsString;
use std::process::ExitCode;
use tollgate_records::manifest::VERSION;

#[cfg(test)]
#[path = "../../../tests/schemas.rs"]
mod schemas;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(error) = single_dash(&words) {
        error.exit();
    }
    let cli = Cli::try_parse_from(words).unwrap_or_else(|mut error| {
        if error.kind() == ErrorKind::UnknownArgument {
            // Removes the hint to pass an unknown option as a value. Similar options are still named.
            error.remove(ContextKind::Suggested);
        }
        error.exit()
    });
    if let Command::Agent(args) = &cli.command {
        return cmd::agent::run(args);
    }
    if cli.command.starts_servers() { signals::supervise(|| execute(&cli)) } else { execute(&cli) }
}

/// The error for a long option with one dash, as in the Go programs hey and vegeta: `-rate`, which would be read as `-r ate`.
fn single_dash(words: &[OsString]) -> Option<clap::Error> {
    let mut command = Cli::command();
    command.build();
    let mut at = 1;
    while let Some(found) = words.get(at).and_then(|word| command.find_subcommand(word)).cloned() {
        command = found;
        at += 1;
    }
    let options = words.get(at..)?.iter().map_while(|word| word.to_str());
    for word in options.take_while(|word| *word != "--") {
        let Some(name) = word.strip_prefix('-').filter(|name| !name.starts_with('-')) else {
            continue;
        };
        let name = name.split('=').next().unwrap_or(name);
        let is_long = |arg: &clap::Arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long().into_iter().chain(aliases).any(|long| long == name)
        };
        if name.len() > 2 && command.get_arguments().any(is_long) {
            let message =
                format!("unexpected option '-{name}': long options have two dashes: --{name}");
            return Some(command.error(ErrorKind::UnknownArgument, message));
        }
    }
    None
}

fn execute(cli: &Cli) -> ExitCode {
    console::exit_code(match &cli.command {
        Command::Run(args) => run::run(args),
        Command::Search(args) => search::run(args),
        Command::Report(args) => report::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Batch(args) => batch::run(args),
        Command::Init(args) => cmd::init::run(args),
        Command::Schema(args) => packaging::schema(args),
        Command::List(args) => cmd::list::run(args),
        Command::Systems(args) => systems::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Load(args) => load::run(args),
        Command::Mix(args) => mix::run(args),
        Command::Origin(args) => origin::run(args),
        Command::Gateway(args) => gateway::run(args),
        Command::Waf(args) => waf::run(args),
        Command::Completions(args) => packaging::completions(args),
        Command::Man(args) => packaging::man(args),
        Command::Agent(_) => unreachable!("an agent has a supervisor of its own"),
    })
}

/// Measure what reverse proxies and WAFs cost and catch
///
/// Sends the same requests through several reverse proxies and web application firewalls (WAFs) on
/// this machine, side by side, and prices each against a baseline: CPU per request, throughput,
/// latency, memory, and blocked attacks.
#[derive(Debug, Parser)]
#[command(version = VERSION, after_help = EXIT_CODES, max_term_width = 80)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run an experiment and print the prices
    Run(Box<run::Args>),
    /// Find the highest rate at which each subject meets a goal
    Search(search::Args),
    /// Print the report of a run
    Report(report::Args),
    /// Compare the prices of two runs
    Compare(compare::Args),
    /// Price every revision of a component and find regressions
    Batch(batch::Args),
    /// Write an experiment or a recipe to start from
    Init(cmd::init::Args),
    /// Print the JSON Schema of a kind of file
    Schema(packaging::SchemaArgs),
    /// List experiments, systems and mixes
    List(cmd::list::Args),
    /// List, install, build or check systems under test
    Systems(systems::Args),
    /// Check whether this machine can run experiments
    ///
    /// Exits with 1 if a run is not possible.
    Doctor(doctor::Args),
    /// Send load to a server and measure it
    Load(Box<load::Args>),
    /// Write a mix of recorded requests
    Mix(mix::Args),
    /// Start the benchmark origin server
    Origin(origin::Args),
    /// Start the reverse proxy
    Gateway(gateway::Args),
    /// Check WAF rules, explain matches, run the regression tests of a rule set
    Waf(waf::Args),
    /// Print the completion script of a shell
    Completions(packaging::CompletionsArgs),
    /// Write the manual pages of all subcommands
    #[command(hide = true)]
    Man(packaging::ManArgs),
    /// Execute the commands of a coordinator, read from standard input
    #[command(hide = true)]
    Agent(cmd::agent::Args),
}

impl Command {
    /// True if the command starts servers, which must not outlive it.
    pub(crate) fn starts_servers(&self) -> bool {
        match self {
            Self::Run(_) | Self::Search(_) | Self::Agent(_) => true,
            Self::Batch(args) => args.command.starts_servers(),
            Self::Doctor(args) => args.noise,
            Self::Systems(args) => matches!(args.command, systems::Command::Check(_)),
            Self::Report(_)
            | Self::Compare(_)
            | Self::Init(_)
            | Self::Schema(_)
            | Self::List(_)
            | Self::Load(_)
            | Self::Mix(_)
            | Self::Origin(_)
            | Self::Gateway(_)
            | Self::Waf(_)
            | Self::Completions(_)
            | Self::Man(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    /// Longer lines are broken by clap in the middle of a table or a command.
    #[test]
    fn texts_after_options_fit_eighty_columns() {
        fn check(command: &clap::Command) {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }
}
