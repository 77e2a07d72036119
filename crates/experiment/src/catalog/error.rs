//! Why an input could not be had.

use super::mixes::MAX_INCLUDE_DEPTH;
use crate::toml_file::TomlError;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;
use tollgate_traffic::MixError;

/// Why an input could not be had.
#[derive(Debug, Error)]
pub enum CatalogError {
    /// Nothing has this name.
    #[error("there is no {kind} `{name}`{hint}")]
    NotFound {
        /// The kind, as a word.
        kind: &'static str,
        /// The name that was asked for.
        name: String,
        /// What there is.
        hint: String,
    },
    /// The file is there and cannot be read.
    #[error("reading {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file does not say what it should.
    #[error(transparent)]
    Toml(#[from] TomlError),
    /// The mix cannot be sent.
    #[error("{file}")]
    Mix {
        /// The mix's file.
        file: String,
        /// Why.
        source: MixError,
    },
    /// Mixes include each other in a circle, or too many one another.
    #[error(
        "{file}: mixes may include others {MAX_INCLUDE_DEPTH} deep; does one of them include itself?"
    )]
    IncludeDepth {
        /// The mix whose `include` is too deep.
        file: String,
    },
    /// Nothing would answer.
    #[error("{file}: `origin = false` without a [[process]]: nobody would answer; give it one")]
    Nobody {
        /// The recipe's file.
        file: String,
    },
    /// The recipe offers an option under a name that templates need for something else.
    #[error(
        "{file}: an option cannot be named `{name}`; templates use that name for something else"
    )]
    ReservedOption {
        /// The recipe's file.
        file: String,
        /// The option.
        name: String,
    },
}

impl CatalogError {
    /// The same, for whoever means a file where there is no such name.
    pub(super) fn or_file(self) -> Self {
        match self {
            Self::NotFound { kind, name, .. } if Path::new(&name).is_file() => {
                let hint = "; the name of a file has to end in .toml".to_owned();
                Self::NotFound { kind, name, hint }
            }
            Self::NotFound { kind, name, .. } if Path::new(&format!("{name}.toml")).is_file() => {
                let hint = format!("; did you mean the file {name}.toml?");
                Self::NotFound { kind, name, hint }
            }
            other => other,
        }
    }
}
