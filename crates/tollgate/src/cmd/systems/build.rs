//! `tollgate systems build`: what a system needs and no package brings.

use super::recipe;
use crate::cmd::catalog::CatalogArgs;
use crate::exit::{Exit, Failure};
use crate::output::{self, tell};
use std::fmt::Write as _;
use std::time::Instant;
use tollgate_lab::system::results::UNUSED_DAYS;
use tollgate_lab::system::{builds, go};

/// What `tollgate systems build` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate systems build nginx-modsecurity   the Core Rule Set 4.25.0: seconds
  tollgate systems build crowdsec-appsec     CrowdSec and Caddy: minutes, once

It takes Go. Results are kept in $XDG_CACHE_HOME/tollgate/builds/NAME/, or in ~/.cache: a folder for each
version of the sources and of Go, so that several checkouts share it. Once a build is done, those of it that
nothing has looked for in 90 days are removed, but none that a run uses. By hand all of them may go while
nothing runs: they are made again.")]
pub(crate) struct Args {
    #[command(flatten)]
    catalog: CatalogArgs,
    /// The system (see `tollgate systems list`)
    #[arg(value_name = "NAME")]
    system: String,
    /// Build again what is there already, and replace it, unless a run uses it
    #[arg(long)]
    again: bool,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let catalog = &args.catalog.open()?;
    let recipe = recipe(catalog, &args.system)?;
    let mut text = String::new();
    for name in recipe.file.builds() {
        let build = catalog.build(name).map_err(Failure::bad_input)?;
        // What this process had found it could not replace.
        let found = if args.again { None } else { builds::find(&build) };
        let folder = match found {
            Some(folder) => {
                tell(&format!("{}: built already", build.file.title));
                folder
            }
            None => {
                tell(&format!("building {}", build.file.title));
                let begun = Instant::now();
                let folder = builds::make(&build)?;
                tell(&format!("built in {} s", begun.elapsed().as_secs()));
                for unused in builds::remove_unused(&build)? {
                    let unused = unused.display();
                    tell(&format!(
                        "removed {unused}, which nothing had used for {UNUSED_DAYS} days"
                    ));
                }
                folder
            }
        };
        writeln!(text, "{}", build.file.title)?;
        for module in go::modules(&build) {
            writeln!(text, "  module  {module}")?;
        }
        writeln!(text, "  in      {}", folder.display())?;
        writeln!(text, "  sha256  {} (over all files)", builds::hash_folder(&folder)?)?;
    }
    if text.is_empty() {
        tell(&format!("{}: there is nothing to build", args.system));
    }
    output::print(&text)?;
    Ok(Exit::Done)
}
