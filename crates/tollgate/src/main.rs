//! `tollgate`: prices reverse proxies and WAFs.

mod cli;
mod cmd;
mod exit;
mod output;
mod signals;
mod supervisor;

use clap::Parser;
use cli::{Cli, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.command.starts_servers() { supervisor::supervise(|| run(&cli)) } else { run(&cli) }
}

fn run(cli: &Cli) -> ExitCode {
    let result = match &cli.command {
        Command::Run(args) => cmd::run::run(args),
        Command::Search(args) => cmd::search::run(args),
        Command::Report(args) => cmd::report::run(args),
        Command::Compare(args) => cmd::compare::run(args),
        Command::Batch(args) => cmd::batch::run(args),
        Command::List(args) => cmd::list::run(args),
        Command::Systems(args) => cmd::systems::run(args),
        Command::Doctor(args) => cmd::doctor::run(args),
        Command::Load(args) => cmd::load::run(args),
        Command::Origin(args) => cmd::origin::run(args),
        Command::Gateway(args) => cmd::gateway::run(args),
        Command::Waf(args) => cmd::waf::run(args),
    };
    exit::code(result)
}
