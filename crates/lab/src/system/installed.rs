//! Whether a subject's system is on this machine, and which version it is.

use super::render::{self, RenderError};
use crate::inputs::experiment::Subject;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, io};
use thiserror::Error;

/// A system that is on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installed {
    /// The programs that its recipe needs, by name.
    pub programs: BTreeMap<String, PathBuf>,
    /// The first line that its version command prints.
    pub version: Option<String>,
    /// SHA-256 of each program and module file that it needs.
    pub hashes: BTreeMap<PathBuf, String>,
}

/// A system that is not on this machine, or not as the subject needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// What is missing, in words.
    pub what: String,
    /// The line to type, where packages bring it.
    pub mend: Option<String>,
}

/// Why it could not be told.
#[derive(Debug, Error)]
pub enum CheckError {
    /// An expression or template of the recipe is wrong.
    #[error(transparent)]
    Recipe(#[from] RenderError),
    /// A file that is there cannot be read.
    #[error("reading {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The version command cannot be run.
    #[error("running `{command}` for the version of system `{system}`")]
    Version {
        /// The system's name.
        system: String,
        /// The command.
        command: String,
        /// Why.
        source: io::Error,
    },
}

/// Looks for everything that the subject's recipe needs under the options that it chose.
///
/// # Errors
///
/// The recipe is wrong, or what is there cannot be read or run.
pub fn check(subject: &Subject) -> Result<Result<Installed, Missing>, CheckError> {
    let recipe = &subject.recipe.file;
    let mut programs = BTreeMap::new();
    let mut hashes = BTreeMap::new();
    for need in &recipe.need {
        if let Some(when) = &need.when
            && !render::holds(subject, when)?
        {
            continue;
        }
        if let Some(program) = &need.program {
            let Some(path) = find_program(program) else {
                return Ok(Err(missing(subject, format!("no program `{program}`"))));
            };
            hashes.insert(path.clone(), hash(&path)?);
            programs.insert(program.clone(), path);
        }
        if let Some(file) = &need.file {
            let path = PathBuf::from(render::text(subject, &programs, file)?);
            if !path.is_file() {
                return Ok(Err(missing(subject, format!("no file {}", path.display()))));
            }
            if let Some(text) = &need.contains
                && !holds_text(&path, text)?
            {
                let what = format!("{} is not of `{text}`", path.display());
                return Ok(Err(missing(subject, what)));
            }
            hashes.insert(path.clone(), hash(&path)?);
        }
    }
    let version = version(subject, &programs)?;
    Ok(Ok(Installed { programs, version, hashes }))
}

/// Where a program is: on the PATH, or in the sbin folders that a user's PATH often lacks.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(SBIN.map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

const SBIN: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

fn missing(subject: &Subject, what: String) -> Missing {
    let packages = subject.recipe.file.apt.join(" ");
    let mend = (!packages.is_empty()).then(|| format!("apt-get install -y {packages}"));
    Missing { what, mend }
}

fn hash(path: &Path) -> Result<String, CheckError> {
    render::hash_file(path).map_err(|source| CheckError::Read { path: path.to_owned(), source })
}

fn holds_text(path: &Path, text: &str) -> Result<bool, CheckError> {
    let found = fs::read_to_string(path)
        .map_err(|source| CheckError::Read { path: path.to_owned(), source })?;
    Ok(found.contains(text))
}

fn version(
    subject: &Subject,
    programs: &BTreeMap<String, PathBuf>,
) -> Result<Option<String>, CheckError> {
    let words: Vec<String> = subject
        .recipe
        .file
        .version
        .iter()
        .map(|word| render::text(subject, programs, word))
        .collect::<Result<_, _>>()?;
    let Some((program, arguments)) = words.split_first() else {
        return Ok(None);
    };
    let output =
        Command::new(program).args(arguments).stdin(Stdio::null()).output().map_err(|source| {
            CheckError::Version {
                system: subject.recipe.name.clone(),
                command: words.join(" "),
                source,
            }
        })?;
    // nginx prints its version on standard error, most others on standard output.
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    Ok(printed.lines().next().map(|line| line.trim().to_owned()))
}

/// In words; the line to type stands on a line of its own, indented, so that it can be copied.
impl std::fmt::Display for Missing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.mend {
            Some(mend) => write!(formatter, "{}. To install it:\n    {mend}", self.what),
            None => write!(formatter, "{}", self.what),
        }
    }
}
