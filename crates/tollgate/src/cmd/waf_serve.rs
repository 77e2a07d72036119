//! `tollgate waf serve`: verdicts on the requests of other proxies.

use std::path::PathBuf;

use tollgate_gateway::Config;

use super::gateway::Service;
use crate::console::{self, Exit, Failure};

/// Arguments of `tollgate waf serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The configuration is YAML; --example prints one. docs/waf-serve.md has the
configuration of each proxy. Signals and exit codes are those of
`tollgate gateway`: HUP reloads the configuration without losing a request, and
after an error the old one stays.

Examples:
  tollgate waf serve --example > waf.yaml
  tollgate waf serve --check waf.yaml
  tollgate waf serve waf.yaml &
  kill -HUP $!")]
pub(super) struct Args {
    /// Configuration file
    #[arg(value_name = "FILE", required_unless_present = "example")]
    file: Option<PathBuf>,
    /// Validate the configuration, open its rules and logs, and exit
    #[arg(long)]
    check: bool,
    /// Print a commented configuration and exit
    #[arg(long, conflicts_with_all = ["file", "check"])]
    example: bool,
}

pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let Some(path) = &args.file else {
        console::print(include_str!("../../../../examples/waf-serve.yaml"))?;
        return Ok(Exit::Success);
    };
    Service { name: "tollgate waf serve", path, read: Config::read_serve }.run(args.check)
}
