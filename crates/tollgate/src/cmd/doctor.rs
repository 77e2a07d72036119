//! `tollgate doctor`: whether this machine can run experiments.

mod noise;

use super::catalog::CatalogArgs;
use super::list;
use super::run::DEFAULT_EXPERIMENT;
use crate::exit::{Exit, Failure};
use crate::output;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;
use tollgate_lab::doctor::{State, examine};
use tollgate_lab::inputs::catalog::Catalog;
use tollgate_lab::inputs::experiment::{Adjustments, Experiment};
use tollgate_lab::system::installed;

/// What `tollgate doctor` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate doctor                        what this machine has, and what would help
  tollgate doctor --noise                and how small a difference a run on it could see
  tollgate doctor --noise --seconds 120 --out noise")]
pub(crate) struct Args {
    #[command(flatten)]
    catalog: CatalogArgs,
    /// Run nginx against itself, or where it is missing no proxy at all, and say how much the two
    /// differ, which trials were disturbed, and the smallest difference that ten blocks could see
    #[arg(long)]
    pub(crate) noise: bool,
    /// How long that may take
    #[arg(
        long,
        value_name = "N",
        requires = "noise",
        default_value_t = 30,
        value_parser = clap::value_parser!(u32).range(2..=3600)
    )]
    seconds: u32,
    /// Keep that run in this directory; by default nothing is kept
    #[arg(long, value_name = "DIR", requires = "noise")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let catalog = &args.catalog.open()?;
    let checks = examine(catalog);
    let mut text = String::new();
    for check in &checks {
        let mark = match check.state {
            State::Good => "ok  ",
            State::Poor => "poor",
            State::Impossible => "FAIL",
        };
        writeln!(text, "{mark}  {:<13} {}", check.name, check.found)?;
        if let Some(mend) = &check.mend {
            writeln!(text, "{:20}-> {mend}", "")?;
        }
    }
    text += "\nSystems:\n";
    for (name, system) in list::systems(catalog) {
        let (mark, about) = match system {
            Ok(system) if system.installed => ("ok  ", system.in_words),
            Ok(system) => ("miss", system.in_words),
            Err(error) => ("FAIL", format!("{error:#}")),
        };
        writeln!(text, "{mark}  {name:<18} {}", about.replace('\n', "\n    "))?;
    }
    let without = missing_baseline(catalog)?;
    if let Some(missing) = &without {
        writeln!(text, "FAIL  {DEFAULT_EXPERIMENT}: its baseline is not installed: {missing}")?;
    }
    let sound = checks.iter().all(|check| check.state != State::Impossible);
    let possible = sound && without.is_none();
    text += match possible {
        true => "\nA run is possible on this machine.\n",
        false => "\nA run is not possible on this machine: see the lines marked FAIL.\n",
    };
    output::print(&text)?;
    if args.noise && sound {
        let time = Duration::from_secs(args.seconds.into());
        let exit = noise::run(catalog, time, args.out.as_deref())?;
        // Without nginx there is noise to be told, and still no run of the default experiment.
        return Ok(match exit {
            Exit::Done | Exit::Nothing if !possible => Exit::Failed,
            exit => exit,
        });
    }
    Ok(if possible { Exit::Done } else { Exit::Failed })
}

/// What the baseline of the default experiment lacks: without a baseline there is no price.
fn missing_baseline(catalog: &Catalog) -> Result<Option<String>, Failure> {
    let experiment = Experiment::load(catalog, DEFAULT_EXPERIMENT, &Adjustments::default())?;
    let baseline = &experiment.subjects[experiment.baseline];
    Ok(installed::check(catalog, baseline)?.err().map(|missing| missing.to_string()))
}
