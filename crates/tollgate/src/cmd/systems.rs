//! `tollgate systems`: the systems under test on this machine.

mod build;
mod check;
mod install;

use super::catalog::CatalogArgs;
use super::list;
use crate::exit::{Exit, Failure};
use crate::output;
use clap::Subcommand;
use std::fmt::Write as _;
use tollgate_lab::inputs::catalog::Catalog;
use tollgate_lab::inputs::recipe::Recipe;

/// What `tollgate systems` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate systems list                      what there is, what is installed, in which version
  tollgate systems install haproxy           the Debian packages that its recipe names
  tollgate systems build caddy-coraza        what no package brings: Caddy, and the Core Rule Set
  tollgate systems check nginx-modsecurity --with rules=crs
                                             start it, send the probe, print each answer

Exit codes: 0 done; 1 the machine did not let it be done, or (check) it did not start; 2 bad input;
3 (check) it does not do what its recipe says; 130 stopped.")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the systems, their options and versions, and what is missing
    List(CatalogArgs),
    /// Install the Debian packages of a system, without starting any service
    Install(install::Args),
    /// Build what a system needs and no package brings, from Go modules at pinned versions
    Build(build::Args),
    /// Start a system, send it one request of each template of a mix, and print each answer
    Check(check::Args),
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.command {
        Command::List(args) => list_all(args),
        Command::Install(args) => install::run(args),
        Command::Build(args) => build::run(args),
        Command::Check(args) => check::run(args),
    }
}

fn list_all(args: &CatalogArgs) -> Result<Exit, Failure> {
    let catalog = &args.open()?;
    let mut text = String::new();
    let mut all_sound = true;
    for (name, system) in list::systems(catalog) {
        let about = system.map(|system| system.in_words);
        let about = about.unwrap_or_else(|error| {
            all_sound = false;
            format!("cannot be used: {error:#}")
        });
        writeln!(text, "{name:<21}{about}")?;
        // A recipe that cannot be read has been told of.
        let Ok(recipe) = catalog.recipe(&name) else { continue };
        for (option, spec) in &recipe.file.option {
            writeln!(text, "  {option:<18} {} ({}; {})", spec.about, spec.allowed(), spec.default)?;
        }
    }
    output::print(&text)?;
    Ok(if all_sound { Exit::Done } else { Exit::BadInput })
}

/// The recipe of a system that was named on the command line.
fn recipe(catalog: &Catalog, name: &str) -> Result<Recipe, Failure> {
    catalog.recipe(name).map_err(Failure::bad_input)
}
