//! `tollgate systems build`: what a system needs and no package brings.

use super::recipe;
use crate::cmd::catalog::CatalogArgs;
use crate::exit::{Exit, Failure};
use crate::output::{self, tell};
use std::fmt::Write as _;
use std::time::Instant;
use tollgate_lab::system::{builds, go};

/// What `tollgate systems build` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate systems build nginx-modsecurity   the Core Rule Set 4.25.0: seconds
  tollgate systems build crowdsec-appsec     CrowdSec and Caddy: minutes, once

It takes Go. Results are kept in $XDG_CACHE_HOME/tollgate/builds/NAME/, or in ~/.cache: a folder for each
version of the sources and of Go. Once a build is done, those of other sources of it are removed, but none
that a run uses. By hand all of them may go while nothing runs: they are made again.")]
pub(crate) struct Args {
    #[command(flatten)]
    catalog: CatalogArgs,
    /// The system (see `tollgate systems list`)
    #[arg(value_name = "NAME")]
    system: String,
    /// Build again what is there already
    #[arg(long)]
    again: bool,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let catalog = &args.catalog.open()?;
    let recipe = recipe(catalog, &args.system)?;
    let mut text = String::new();
    for name in recipe.file.builds() {
        let build = catalog.build(name).map_err(Failure::bad_input)?;
        let folder = match builds::find(&build).filter(|_| !args.again) {
            Some(folder) => {
                tell(&format!("{}: built already", build.file.title));
                folder
            }
            None => {
                tell(&format!("building {}", build.file.title));
                let begun = Instant::now();
                let folder = builds::make(&build)?;
                tell(&format!("built in {} s", begun.elapsed().as_secs()));
                for other in builds::remove_others(&build)? {
                    tell(&format!("removed {}, which other sources had made", other.display()));
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
