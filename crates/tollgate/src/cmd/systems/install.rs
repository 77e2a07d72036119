//! `tollgate systems install`: a system's Debian packages, and those that its builds take.

use super::recipe;
use crate::cmd::catalog::CatalogArgs;
use crate::cmd::list;
use crate::exit::{Exit, Failure};
use crate::output::{self, tell};
use crate::signals;
use anyhow::Context;
use std::fmt::Write as _;
use std::io;
use std::sync::atomic::Ordering;
use tollgate_lab::inputs::build::Build;
use tollgate_lab::interrupt::Interrupt;
use tollgate_lab::system::packages::{self, PackageError};
use tollgate_lab::system::render;
use tollgate_lab::system::versions::Versions;

/// What `tollgate systems install` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate systems install haproxy
  tollgate systems install apache-modsecurity && tollgate systems build apache-modsecurity")]
pub(crate) struct Args {
    #[command(flatten)]
    catalog: CatalogArgs,
    /// The system (see `tollgate systems list`)
    #[arg(value_name = "NAME")]
    system: String,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let catalog = &args.catalog.open()?;
    let recipe = recipe(catalog, &args.system)?;
    let builds = recipe.file.builds().into_iter().map(|build| catalog.build(build));
    let builds: Vec<Build> = builds.collect::<Result<_, _>>().map_err(Failure::bad_input)?;
    let of_builds = builds.iter().flat_map(|build| &build.file.apt);
    let wanted: Vec<&str> = recipe.file.apt.iter().chain(of_builds).map(String::as_str).collect();
    let missing = packages::missing(&wanted)?;
    match (wanted.is_empty(), missing.is_empty()) {
        (true, _) => tell(&format!("{}: it needs no package", args.system)),
        (false, true) => tell(&format!("installed already: {}", wanted.join(", "))),
        (false, false) => {
            tell(&format!("installing {}", missing.join(", ")));
            match packages::install(&missing, &wish_to_stop().context("asking for signals")?) {
                Err(PackageError::Interrupted(_)) => {
                    tell("stopped");
                    return Ok(Exit::Interrupted);
                }
                installed => installed?,
            }
        }
    }
    let state = list::system(catalog, &args.system, &Versions::default())?;
    let mut text = format!("{:<21}{}\n", args.system, state.in_words);
    for path in list::packaged(catalog, &args.system)? {
        let hash =
            render::hash_file(&path).with_context(|| format!("reading {}", path.display()))?;
        writeln!(text, "  sha256  {hash} {}", path.display())?;
    }
    output::print(&text)?;
    Ok(Exit::Done)
}

/// Whoever asks twice waits as well: a package manager that is cut off leaves half a package.
fn wish_to_stop() -> io::Result<Interrupt> {
    let interrupt = Interrupt::default();
    let wish = interrupt.flag();
    signals::listen(move |count| {
        wish.store(true, Ordering::Relaxed);
        if count == 1 {
            tell("stopping once the package manager has ended what it has begun");
        }
    })?;
    Ok(interrupt)
}
