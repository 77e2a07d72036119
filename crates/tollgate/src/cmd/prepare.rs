//! Shared arguments and preparations of `run`, `search` and `batch`.

use super::names::NamesArgs;
use crate::console::{Failure, eprint_line};
use crate::signals;
use anyhow::{Context, anyhow};
use jiff::Timestamp;
use std::path::{Path, PathBuf};
use tollgate_experiment::adjust::Adjustments;
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::Experiment;
use tollgate_runner::process::{Interrupt, group};

#[derive(Debug, clap::Args)]
pub(crate) struct CatalogArgs {
    /// Folder with your own systems/, experiments/ or mixes/ (may be repeated)
    ///
    /// Searched before the working directory and the built-in files.
    #[arg(long, value_name = "DIR", env = "TOLLGATE_CATALOG", hide_env_values = true)]
    catalog: Vec<PathBuf>,
}

impl CatalogArgs {
    /// Opens the catalog of these folders, the working directory and the built-in files.
    pub(crate) fn open(&self) -> Result<Catalog, Failure> {
        if let Some(missing) = self.catalog.iter().find(|folder| !folder.is_dir()) {
            let error = anyhow!("--catalog: no such folder: {}", missing.display());
            return Err(Failure::bad_input(error));
        }
        let mut folders = self.catalog.clone();
        folders.push(PathBuf::from("."));
        Ok(Catalog::new(folders))
    }

    /// Returns the absolute paths of the folders and the working directory.
    pub(crate) fn folders(&self) -> Result<Vec<PathBuf>, Failure> {
        self.open()?;
        let folders = self.catalog.iter().map(PathBuf::as_path).chain([Path::new(".")]);
        let absolute = |folder: &Path| folder.canonicalize();
        Ok(folders.map(absolute).collect::<Result<_, _>>()?)
    }

    /// Returns the folders as arguments, those of the environment too.
    fn words(&self) -> impl Iterator<Item = String> {
        let folders = self.catalog.iter().map(|folder| folder.display().to_string());
        folders.flat_map(|folder| ["--catalog".to_owned(), folder])
    }
}

/// Options that a repetition of a command has in other forms, or not at all.
const RESOLVED: [&str; 4] = ["--out", "--seed", "--baseline", "--catalog"];

/// Returns the arguments of this process.
pub(super) fn own_arguments() -> Vec<String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// Returns the words of the command that repeats another one with new records: with the seed, the baseline, the folders and the
/// experiment that it used, and without its directory.
pub(super) fn repeated_command(
    arguments: &[String],
    seed: u64,
    baseline: Option<&str>,
    catalog: &CatalogArgs,
    names: &[String],
) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = arguments.iter();
    let mut operands = Vec::new();
    while let Some(word) = rest.next() {
        if word == "--" {
            // Further words are arguments.
            operands = [word].into_iter().chain(rest).collect();
            break;
        }
        let option = word.split_once('=').map_or(word.as_str(), |(option, _)| option);
        if !RESOLVED.contains(&option) {
            words.push(word.clone());
        } else if option == word {
            rest.next();
        }
    }
    words.extend(["--seed".to_owned(), seed.to_string()]);
    words.extend(baseline.into_iter().flat_map(|name| ["--baseline".to_owned(), name.to_owned()]));
    words.extend(catalog.words());
    words.extend(operands.into_iter().cloned());
    // The default experiment.
    if names.iter().all(|name| !words.contains(name)) {
        words.extend(names.iter().cloned());
    }
    words
}

pub(super) struct RunOptions<'a> {
    pub(super) catalog: &'a CatalogArgs,
    pub(super) names: &'a NamesArgs,
    pub(super) adjustments: &'a Adjustments,
    /// `None`: from the clock.
    pub(super) seed: Option<u64>,
    /// Run directory; `None`: a new one in `runs/`.
    pub(super) out: Option<&'a Path>,
    pub(super) prefix: &'a str,
}

pub(super) struct PreparedRun {
    pub(super) catalog: Catalog,
    pub(super) experiment: Experiment,
    pub(super) seed: u64,
    pub(super) out: PathBuf,
}

/// The state of this process that a run needs.
pub(super) struct Process {
    pub(super) interrupt: Interrupt,
    /// This binary.
    pub(super) tollgate: PathBuf,
    pub(super) directory: PathBuf,
}

impl RunOptions<'_> {
    pub(super) fn prepare(&self) -> Result<PreparedRun, Failure> {
        let catalog = self.catalog.open()?;
        let sides = self.names.side_by_side(&catalog).map_err(Failure::bad_input)?;
        let experiment = match sides {
            None => Experiment::load(&catalog, self.names.experiment(), self.adjustments)?,
            Some(sides) => {
                Experiment::from_written(&catalog, sides.experiment()?, self.adjustments)?
            }
        };
        let now = Timestamp::now();
        let seed = self.seed.unwrap_or(now.as_second().unsigned_abs());
        let out = self.out.map_or_else(
            || {
                // UTC, as all times in the records; milliseconds make it unique.
                let when = now.strftime("%Y%m%dT%H%M%S%.3fZ");
                PathBuf::from(format!("runs/{}{}-{when}", self.prefix, experiment.name))
            },
            Path::to_owned,
        );
        Ok(PreparedRun { catalog, experiment, seed, out })
    }
}

impl Process {
    /// Installs the signal handlers and prints which files replace built-in ones.
    pub(super) fn start(catalog: &Catalog) -> Result<Self, Failure> {
        let interrupt =
            signals::interrupt(group::kill_now).context("cannot install signal handlers")?;
        let tollgate = std::env::current_exe().context("cannot find the tollgate binary")?;
        let directory = std::env::current_dir().context("cannot read the working directory")?;
        for file in catalog.replacements() {
            eprint_line(&format!("using {} instead of the built-in file", file.display()));
        }
        Ok(Self { interrupt, tollgate, directory })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::names::DEFAULT_EXPERIMENT;

    #[test]
    fn repeated_command_has_what_was_resolved() {
        let catalog = CatalogArgs { catalog: vec!["my own".into()] };
        for (line, baseline, expected) in [
            ("run", None, "run --seed 7 --catalog 'my own' first-look"),
            (
                "run wafs --out out --only a,b --seed=3 --catalog x --catalog=y --blocks 5",
                None,
                "run wafs --only a,b --blocks 5 --seed 7 --catalog 'my own'",
            ),
            (
                "run --baseline a -d 2 --out=x -- wafs --out",
                Some("b"),
                "run -d 2 --seed 7 --baseline b --catalog 'my own' -- wafs --out",
            ),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let name = if line.contains("wafs") { "wafs" } else { DEFAULT_EXPERIMENT };
            let command = repeated_command(&words, 7, baseline, &catalog, &[name.to_owned()]);
            assert_eq!(shell_words::join(command), expected);
        }
    }
}
