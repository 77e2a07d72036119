//! A price for every revision of a component, and the commit that changed it.
//!
//! Each revision is built into a product, products are measured in rounds, and a round is an ordinary run
//! whose baseline is a pinned revision, the anchor. What is known of a batch is read from its directory
//! each time, so that one that was killed goes on.

pub mod beginning;
pub mod bisection;
mod build_log;
mod changes;
mod command;
pub mod dir;
pub mod file;
mod files;
pub mod find;
pub mod findings;
pub mod inputs;
mod journal;
mod making;
pub mod manifest;
mod measuring;
mod plan;
mod product;
pub mod records;
pub mod report;
mod repository;
pub mod revision;
pub mod rounds;
pub mod run;
pub mod series;
pub mod settings;
pub mod states;
mod steps;
mod workshop;

use crate::inputs::catalog::CatalogError;
use crate::inputs::experiment::ExperimentError;
use crate::inputs::toml_file::TomlError;
use crate::interrupt::Interrupted;
use crate::report::ReportError;
use crate::run::RunError;
use crate::run_dir::RunDirError;
use nix::errno::Errno;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a batch cannot go on.
#[derive(Debug, Error)]
pub enum BatchError {
    /// What was asked for cannot be.
    #[error("{0}")]
    Asked(String),
    /// The file of the batch does not say what it should.
    #[error(transparent)]
    Toml(#[from] TomlError),
    /// Its experiment cannot be had.
    #[error(transparent)]
    Catalog(Box<CatalogError>),
    /// Its experiment does not say what it should.
    #[error(transparent)]
    Experiment(Box<ExperimentError>),
    /// A round cannot be run.
    #[error(transparent)]
    Run(Box<RunError>),
    /// The records of a round cannot be read.
    #[error(transparent)]
    RunDir(Box<RunDirError>),
    /// The report of a round cannot be written.
    #[error(transparent)]
    Report(Box<ReportError>),
    /// A program that the batch needs failed, or was not there.
    #[error("`{command}` {what}")]
    Command {
        /// The program and its arguments.
        command: String,
        /// What it did, in words, with the last lines that it printed.
        what: String,
    },
    /// The operating system refuses something.
    #[error("{doing}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// Why not.
        source: Errno,
    },
    /// A file cannot be read or written.
    #[error("{doing} {path}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file does not hold what was written there.
    #[error(
        "{path}:{line} is not what tollgate wrote there; put back a copy of the file, or begin the batch anew"
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
    /// A page or a table cannot be written.
    #[error("writing the report of the batch")]
    Render(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It was asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl From<CatalogError> for BatchError {
    fn from(error: CatalogError) -> Self {
        Self::Catalog(Box::new(error))
    }
}

impl From<ExperimentError> for BatchError {
    fn from(error: ExperimentError) -> Self {
        Self::Experiment(Box::new(error))
    }
}

impl From<RunError> for BatchError {
    fn from(error: RunError) -> Self {
        Self::Run(Box::new(error))
    }
}

impl From<RunDirError> for BatchError {
    fn from(error: RunDirError) -> Self {
        Self::RunDir(Box::new(error))
    }
}

impl From<ReportError> for BatchError {
    fn from(error: ReportError) -> Self {
        Self::Report(Box::new(error))
    }
}

fn io_error(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> BatchError + use<> {
    let path = path.to_owned();
    move |source| BatchError::Io { doing, path: path.clone(), source }
}

fn system_error(doing: &'static str) -> impl Fn(Errno) -> BatchError {
    move |source| BatchError::System { doing, source }
}
