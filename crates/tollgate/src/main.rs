//! `tollgate`: what a reverse proxy or WAF costs, and what it catches.

mod cli;
mod cmd;
mod exit;
mod output;
mod signals;

use clap::Parser;
use cli::{Cli, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let catalog = cli.catalog();
    let ended = match &cli.command {
        Command::Run(args) => cmd::run::run(args, &catalog),
        Command::Report(args) => cmd::report::run(args),
        Command::List => cmd::list::run(&catalog),
        Command::Doctor => cmd::doctor::run(&catalog),
        Command::Load(args) => cmd::load::run(args),
        Command::Origin(args) => cmd::origin::run(args),
    };
    exit::code(ended)
}
