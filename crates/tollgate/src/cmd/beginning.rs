//! How `tollgate run` and `tollgate search` begin.

use super::catalog::CatalogArgs;
use crate::exit::Failure;
use crate::output::tell;
use crate::signals;
use anyhow::Context;
use jiff::Timestamp;
use std::path::{Path, PathBuf};
use tollgate_lab::inputs::catalog::Catalog;
use tollgate_lab::inputs::experiment::{Adjustments, Experiment};
use tollgate_lab::interrupt::Interrupt;
use tollgate_lab::process::group;
use tollgate_lab::run::RunError;
use tollgate_lab::run_dir::RunDirError;

/// What the command line wishes for.
pub(super) struct Wish<'a> {
    /// Where inputs are found.
    pub(super) catalog: &'a CatalogArgs,
    /// The experiment's name or file.
    pub(super) experiment: &'a str,
    /// What is to be changed about it.
    pub(super) adjustments: &'a Adjustments,
    /// The seed; none for a new one.
    pub(super) seed: Option<u64>,
    /// The directory for records; none for a new one below `runs/`.
    pub(super) out: Option<&'a Path>,
    /// What the name of such a new one begins with.
    pub(super) prefix: &'a str,
}

/// The inputs, found and checked.
pub(super) struct Beginning {
    pub(super) catalog: Catalog,
    pub(super) experiment: Experiment,
    pub(super) seed: u64,
    pub(super) out: PathBuf,
}

/// What of this process the lab has to know.
pub(super) struct Outside {
    /// The wish to stop: from here on, Ctrl-C is one.
    pub(super) interrupt: Interrupt,
    /// This program.
    pub(super) tollgate: PathBuf,
    /// The folder that it was started in.
    pub(super) directory: PathBuf,
}

impl Wish<'_> {
    /// Reads the inputs.
    pub(super) fn begin(&self) -> Result<Beginning, Failure> {
        let catalog = self.catalog.open()?;
        let experiment = Experiment::load(&catalog, self.experiment, self.adjustments)
            .map_err(Failure::bad_input)?;
        let now = Timestamp::now();
        let seed = self.seed.unwrap_or(now.as_second().unsigned_abs());
        let out = self.out.map_or_else(
            || {
                // UTC, as every time in the records, to the millisecond, so that no two meet.
                let when = now.strftime("%Y%m%dT%H%M%S%.3fZ");
                PathBuf::from(format!("runs/{}{}-{when}", self.prefix, experiment.name))
            },
            Path::to_owned,
        );
        Ok(Beginning { catalog, experiment, seed, out })
    }
}

impl Outside {
    /// Takes over the signals, and tells which files replace those of the binary.
    pub(super) fn take(catalog: &Catalog) -> Result<Self, Failure> {
        let interrupt = signals::interrupt(group::hurry).context("asking for signals")?;
        let tollgate = std::env::current_exe().context("finding the tollgate binary")?;
        let directory = std::env::current_dir().context("asking for the current folder")?;
        for file in catalog.replacements() {
            tell(&format!("{} is used in place of the one in the binary", file.display()));
        }
        Ok(Self { interrupt, tollgate, directory })
    }
}

/// Whose fault it is that a run or a search cannot go on: the input's, or the machine's.
pub(crate) fn failure(error: RunError) -> Failure {
    match error {
        RunError::RunDir(
            RunDirError::Taken { .. }
            | RunDirError::AFile { .. }
            | RunDirError::Unusable { .. }
            | RunDirError::InUse { .. },
        )
        | RunError::Different(_)
        | RunError::Strangers(_)
        | RunError::Layout(_)
        | RunError::Requests(_) => Failure::bad_input(error),
        RunError::RunDir(_) | RunError::System { .. } => Failure::from(error),
    }
}
