//! Prices every revision of a component and finds the commits that changed the price.
//!
//! Each revision is built into a product. Products are measured in rounds; a round is an ordinary run whose baseline is a
//! pinned revision, the anchor. The state of a batch is read from its directory each time, so a killed batch continues.

pub mod bisect_report;
mod build;
pub mod builder;
mod changes;
pub mod config;
pub mod find;
mod inputs;
pub mod manifest;
mod measure;
pub mod report;
pub mod repository;
mod rounds;
pub mod run;
pub mod series;
pub mod store;

use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;
use tollgate_experiment::catalog::CatalogError;
use tollgate_experiment::experiment::ExperimentError;
use tollgate_experiment::run_dir::RunDirError;
use tollgate_experiment::toml_file::TomlError;
use tollgate_report::output::ReportError;
use tollgate_runner::process::Interrupted;
use tollgate_runner::process::command::CommandError;
use tollgate_runner::process::group::LaunchError;
use tollgate_runner::run::RunError;

#[derive(Debug, Error)]
pub enum BatchError {
    #[error("{0}")]
    Asked(String),
    #[error(transparent)]
    Toml(#[from] TomlError),
    #[error(transparent)]
    Catalog(Box<CatalogError>),
    #[error(transparent)]
    Experiment(Box<ExperimentError>),
    #[error(transparent)]
    Run(Box<RunError>),
    #[error(transparent)]
    RunDir(Box<RunDirError>),
    #[error(transparent)]
    Report(Box<ReportError>),
    #[error(transparent)]
    Command(Box<CommandError>),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("cannot {action}")]
    System { action: &'static str, source: io::Error },
    #[error("cannot {action} {path}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{path}:{line} is damaged; restore the file, or start a new batch")]
    Malformed { path: PathBuf, line: usize, source: serde_json::Error },
    #[error("cannot write the report of the batch")]
    Render(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl From<CommandError> for BatchError {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Interrupted(interrupted) => Self::Interrupted(interrupted),
            error => Self::Command(Box::new(error)),
        }
    }
}

macro_rules! from_boxed {
    ($($variant:ident($error:ty)),*) => {
        $(impl From<$error> for BatchError {
            fn from(error: $error) -> Self {
                Self::$variant(Box::new(error))
            }
        })*
    };
}

from_boxed!(
    Catalog(CatalogError),
    Experiment(ExperimentError),
    Run(RunError),
    RunDir(RunDirError),
    Report(ReportError)
);

fn io_error(action: &'static str, path: &Path) -> impl Fn(io::Error) -> BatchError + use<> {
    let path = path.to_owned();
    move |source| BatchError::Io { action, path: path.clone(), source }
}

fn system_error<E: Into<io::Error>>(action: &'static str) -> impl Fn(E) -> BatchError {
    move |source| BatchError::System { action, source: source.into() }
}
