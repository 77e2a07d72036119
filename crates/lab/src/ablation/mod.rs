//! What each file of a rule set costs: an experiment in which one subject is run with all of them, and
//! beside it without each in turn.
//!
//! The price of a file is what the whole costs over what is left without it. What it catches is found by
//! the same run: the attacks that are blocked with it and not without it.

mod dependence;
mod directive;
mod folder;
mod rule_file;

use crate::inputs::catalog::Catalog;
use crate::inputs::experiment::{Experiment, Subject};
use crate::inputs::options::OptionValue;
use crate::inputs::toml_file::suggestion;
use crate::system::builds::BuildError;
use crate::system::installed::{self, CheckError, Missing};
use crate::system::render::{self, RenderError};
use dependence::why_kept;
use folder::{RuleSetFolder, SETUP};
use rule_file::RuleFile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use thiserror::Error;

/// What is to be taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The subject.
    pub subject: String,
    /// Parts of the names of files: only those are taken out. Empty for each in turn.
    pub files: Vec<String>,
}

/// Which subjects of a run are one subject without some of its rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ablation {
    /// The subject with all of them.
    pub subject: String,
    /// What the rule set is called.
    pub rule_set: String,
    /// Its files of rules, in the order in which they are read.
    pub files: Vec<AblatedFile>,
    /// The subject without all of the files that may be taken out, where those are several.
    pub without_all: Option<String>,
}

/// One file of rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AblatedFile {
    /// Its name.
    pub file: String,
    /// The subject without it; none where it stays.
    pub subject: Option<String>,
    /// Why it stays, where others depend on it.
    pub kept: Option<String>,
    /// How many exceptions from its rules, in other files, went with it.
    pub exceptions: usize,
}

/// Why there is nothing to take out.
#[derive(Debug, Error)]
pub enum AblationError {
    /// What was asked for is not there.
    #[error("--ablate {0}")]
    Asked(String),
    /// The subject's system is not on this machine.
    #[error("--ablate {subject}: {missing}")]
    Missing {
        /// The subject's name.
        subject: String,
        /// What is missing.
        missing: Missing,
    },
    /// Whether it is, cannot be told.
    #[error(transparent)]
    Check(Box<CheckError>),
    /// Its recipe is wrong.
    #[error(transparent)]
    Recipe(Box<RenderError>),
    /// There is no folder to keep rule sets in.
    #[error("keeping rule sets without some of their files")]
    Cache(#[source] BuildError),
    /// A file or folder cannot be read or written.
    #[error("{doing} {path}")]
    Folder {
        /// What was being done.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The setup of its rule set is not beside the rules.
    #[error(
        "--ablate {wish}: {folder} has no crs-setup.conf beside its rules, so no folder without one of them can \
         stand in for it. Choose a folder that has both, by `with = {{ {option} = \"/path/to/it\" }}`{made}"
    )]
    NoSetup {
        /// What was asked for.
        wish: String,
        /// The folder.
        folder: PathBuf,
        /// The option that takes another.
        option: String,
        /// How to make one, where the recipe says.
        made: String,
    },
    /// There are no files of rules, or too many.
    #[error("{folder} has {count} files that end in .conf; it takes one, and {most} at the most")]
    Files {
        /// The folder.
        folder: PathBuf,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
}

impl From<CheckError> for AblationError {
    fn from(error: CheckError) -> Self {
        Self::Check(Box::new(error))
    }
}

impl From<RenderError> for AblationError {
    fn from(error: RenderError) -> Self {
        Self::Recipe(Box::new(error))
    }
}

/// The experiment with its subjects replaced: one of them, which becomes the baseline, and the same
/// without each file of its rule set that the others can do without.
///
/// # Errors
///
/// The subject has no rule set that another folder can stand in for, or its files cannot be read.
pub fn ablate(
    catalog: &Catalog,
    experiment: Experiment,
    wish: &Wish,
) -> Result<Experiment, AblationError> {
    let whole = Subject { tells_probe: true, ..subject(&experiment, wish)?.clone() };
    let recipe = &whole.recipe.file;
    let Some((rule_set, option)) =
        recipe.rule_set.as_ref().and_then(|set| Some((set, set.option.clone()?)))
    else {
        let why =
            format!("system `{}` has no rule set whose folder may be another", whole.recipe.name);
        return Err(AblationError::Asked(format!("{wish}: {why}")));
    };
    if !render::holds(&whole, &rule_set.when)? {
        let why = format!("it does not use {} under its options", rule_set.name);
        return Err(AblationError::Asked(format!("{wish}: {why}")));
    }
    let installed = installed::check(catalog, &whole)?
        .map_err(|missing| AblationError::Missing { subject: whole.name.clone(), missing })?;
    let folder = PathBuf::from(render::text(&whole, &installed, &rule_set.folder)?);
    if !folder.join(SETUP).is_file() {
        let made = rule_set.mend.as_ref().map(|mend| format!("; to make one:\n    {mend}"));
        let (wish, made) = (wish.to_string(), made.unwrap_or_default());
        return Err(AblationError::NoSetup { wish, folder, option, made });
    }
    let folder = RuleSetFolder::read(&folder)?;
    let is_wanted = wanted(wish, &folder.files)?;

    let mut subjects = vec![whole.clone()];
    let mut files = Vec::new();
    let mut gone: Vec<&RuleFile> = Vec::new();
    let mut without = |name: String, files: &[&RuleFile], about: String| {
        let (path, exceptions) = folder.without(files)?;
        let mut subject = Subject { name: name.clone(), about, lacks_rules: true, ..whole.clone() };
        subject.options.insert(option.clone(), OptionValue::Text(path.display().to_string()));
        subjects.push(subject);
        Ok::<_, AblationError>((name, exceptions))
    };
    for file in &folder.files {
        let kept = why_kept(file, &folder.files, &folder.setup);
        let (subject, exceptions) = match kept.is_none() && is_wanted(file) {
            true => {
                gone.push(file);
                let about = format!("{} without {}", whole.name, file.name);
                let (name, exceptions) = without(subject_name(&file.name), &[file], about)?;
                (Some(name), exceptions)
            }
            false => (None, 0),
        };
        files.push(AblatedFile { file: file.name.clone(), subject, kept, exceptions });
    }
    let without_all = match &gone[..] {
        [] => {
            let why = "each of its files is one that others depend on";
            return Err(AblationError::Asked(format!("{wish}: {why}")));
        }
        [_] => None,
        several => {
            let about = format!("{} without all {} of these files", whole.name, several.len());
            Some(without(ALL.to_owned(), several, about)?.0)
        }
    };
    let mut names = BTreeSet::new();
    if let Some(twice) = subjects.iter().find(|subject| !names.insert(&subject.name)) {
        let why =
            format!("two subjects would be named `{}`; rename a file, or the subject", twice.name);
        return Err(AblationError::Asked(format!("{wish}: {why}")));
    }
    let rule_set = rule_set.name.clone();
    let title = format!("What does each file of {rule_set} cost {}?", whole.name);
    let ablation = Ablation { subject: whole.name.clone(), rule_set, files, without_all };
    Ok(experiment.ablated(title, subjects, ablation))
}

/// What the subject without all files is called.
const ALL: &str = "without-all";

/// The longest name of a subject.
const NAME_MAX: usize = 64;

fn subject<'a>(experiment: &'a Experiment, wish: &Wish) -> Result<&'a Subject, AblationError> {
    let names = || experiment.subjects.iter().map(|subject| subject.name.as_str());
    experiment.subjects.iter().find(|subject| subject.name == wish.subject).ok_or_else(|| {
        let hint = suggestion(&wish.subject, names().collect::<Vec<_>>());
        AblationError::Asked(format!("{wish}: there is no such subject{hint}"))
    })
}

/// Whether a file is one that was asked for; each word has to be part of the name of one at least.
fn wanted<'a>(
    wish: &'a Wish,
    files: &[RuleFile],
) -> Result<impl Fn(&RuleFile) -> bool + 'a, AblationError> {
    let is_unknown = |word: &&String| !files.iter().any(|file| file.name.contains(word.as_str()));
    if let Some(word) = wish.files.iter().find(is_unknown) {
        let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        let why = format!("no file has `{word}` in its name; there are {}", names.join(", "));
        return Err(AblationError::Asked(format!("{wish}: {why}")));
    }
    let words = &wish.files;
    Ok(move |file: &RuleFile| {
        words.is_empty() || words.iter().any(|word| file.name.contains(word.as_str()))
    })
}

/// The name of the subject without a file: letters that a file of its own may be named after.
fn subject_name(file: &str) -> String {
    let stem = file.strip_suffix(".conf").unwrap_or(file);
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    format!("without-{stem}").chars().map(plain).take(NAME_MAX).collect()
}

/// What an error of the file system becomes.
fn files(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> AblationError {
    move |source| AblationError::Folder { doing, path: path.to_owned(), source }
}

impl FromStr for Wish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (subject, files) = match text.split_once('=') {
            Some((subject, files)) => (subject, files.split(',').map(str::to_owned).collect()),
            None => (text, Vec::new()),
        };
        match subject.is_empty() || files.iter().any(String::is_empty) {
            true => {
                Err("it has to be SUBJECT, or SUBJECT=FILE,FILE,... with parts of the names of \
                         files, as in full=941,942"
                    .to_owned())
            }
            false => Ok(Self { subject: subject.to_owned(), files }),
        }
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.subject.fmt(formatter)?;
        match self.files.is_empty() {
            true => Ok(()),
            false => write!(formatter, "={}", self.files.join(",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_written_as_it_is_read() {
        for text in ["full", "full=941,942"] {
            assert_eq!(text.parse::<Wish>().unwrap().to_string(), text);
        }
        for odd in ["", "=941", "full=", "full=941,"] {
            assert!(odd.parse::<Wish>().is_err(), "{odd}");
        }
    }

    #[test]
    fn a_subject_is_named_after_the_file_that_it_lacks() {
        assert_eq!(subject_name("REQUEST-942-SQLI.conf"), "without-REQUEST-942-SQLI");
        assert_eq!(subject_name("my rules.conf"), "without-my-rules");
        assert_eq!(subject_name(&"x".repeat(99)).len(), NAME_MAX);
    }
}
