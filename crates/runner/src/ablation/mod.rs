//! Ablation: an experiment with one subject as the baseline, and the same subject without each file of its rule set.
//!
//! The price of a file is the difference between the whole rule set and the rule set without it. The file catches the
//! attacks that are blocked with it and not without it.

mod folder;
mod rules;

use crate::system::installed::{self, CheckError};
use crate::system::render::{self, RenderError};
pub use folder::FolderError;
use folder::{RuleSetFolder, SETUP};
use rules::{RuleFile, reason_to_keep};
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::{AblatedFile, Ablation};
use tollgate_experiment::experiment::{Experiment, Subject};
use tollgate_experiment::options::OptionValue;
use tollgate_experiment::recipe::Missing;
use tollgate_experiment::toml_file::suggestion;

/// The subject and rule files of an ablation: `SUBJECT` or `SUBJECT=FILE,FILE,...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    pub subject: String,
    /// Parts of file names. Empty: all files.
    pub files: Vec<String>,
}

#[derive(Debug, Error)]
pub enum AblationError {
    #[error("--ablate {0}")]
    Selection(String),
    #[error("--ablate {subject}: {missing}")]
    Missing { subject: String, missing: Missing },
    #[error(transparent)]
    Check(Box<CheckError>),
    #[error(transparent)]
    Recipe(Box<RenderError>),
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// `hint` says how to make a suitable folder, if the recipe knows.
    #[error(
        "--ablate {selection}: {folder} has no crs-setup.conf beside its rules; set a folder that has both by \
         `with = {{ {option} = \"/path/to/it\" }}`{hint}"
    )]
    NoSetup { selection: String, folder: PathBuf, option: String, hint: String },
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

/// Replaces the subjects of an experiment by one of them, which becomes the baseline, and by the same subject without
/// each rule file that no other file depends on.
pub fn ablate(
    catalog: &Catalog,
    experiment: Experiment,
    selection: &Selection,
) -> Result<Experiment, AblationError> {
    let whole = Subject { tells_probe: true, ..subject(&experiment, selection)?.clone() };
    let recipe = &whole.recipe.file;
    let Some((rule_set, option)) =
        recipe.rule_set.as_ref().and_then(|set| Some((set, set.option.clone()?)))
    else {
        let reason =
            format!("system `{}` has no option for the folder of its rule set", whole.recipe.name);
        return Err(AblationError::Selection(format!("{selection}: {reason}")));
    };
    if !render::holds(&whole, &rule_set.when)? {
        let reason = format!("its options do not enable {}", rule_set.name);
        return Err(AblationError::Selection(format!("{selection}: {reason}")));
    }
    let installed = installed::check(catalog, &whole)?
        .map_err(|missing| AblationError::Missing { subject: whole.name.clone(), missing })?;
    let folder = PathBuf::from(render::text(&whole, &installed, &rule_set.folder)?);
    if !folder.join(SETUP).is_file() {
        let made = rule_set.hint.as_ref().map(|hint| format!("; to make one:\n    {hint}"));
        let (selection, hint) = (selection.to_string(), made.unwrap_or_default());
        return Err(AblationError::NoSetup { selection, folder, option, hint });
    }
    let folder = RuleSetFolder::read(&folder)?;
    let is_selected = selected(selection, &folder.files)?;

    let mut subjects = vec![whole.clone()];
    let mut files = Vec::new();
    let mut removed: Vec<&RuleFile> = Vec::new();
    let mut without = |name: String, files: &[&RuleFile], about: String| {
        let (path, exceptions) = folder.without(files)?;
        let mut subject = Subject { name: name.clone(), about, lacks_rules: true, ..whole.clone() };
        subject.options.insert(option.clone(), OptionValue::Text(path.display().to_string()));
        subjects.push(subject);
        Ok::<_, AblationError>((name, exceptions))
    };
    for file in &folder.files {
        let kept_reason = reason_to_keep(file, &folder.files, &folder.setup);
        let (subject, exceptions) = match kept_reason.is_none() && is_selected(file) {
            true => {
                removed.push(file);
                let about = format!("{} without {}", whole.name, file.name);
                let (name, exceptions) = without(subject_name(&file.name), &[file], about)?;
                (Some(name), exceptions)
            }
            false => (None, 0),
        };
        files.push(AblatedFile { file: file.name.clone(), subject, kept_reason, exceptions });
    }
    let without_all = match &removed[..] {
        [] => {
            let reason = "other files depend on each of its files";
            return Err(AblationError::Selection(format!("{selection}: {reason}")));
        }
        [_] => None,
        several => {
            let about = format!("{} without all {} of these files", whole.name, several.len());
            Some(without(ALL.to_owned(), several, about)?.0)
        }
    };
    let mut names = BTreeSet::new();
    if let Some(twice) = subjects.iter().find(|subject| !names.insert(&subject.name)) {
        let reason =
            format!("two subjects would be named `{}`; rename a file, or the subject", twice.name);
        return Err(AblationError::Selection(format!("{selection}: {reason}")));
    }
    let rule_set = rule_set.name.clone();
    let title = format!("What does each file of {rule_set} cost {}?", whole.name);
    let ablation = Ablation { subject: whole.name.clone(), rule_set, files, without_all };
    Ok(experiment.ablated(title, subjects, ablation))
}

/// Name of the subject without all selected files.
const ALL: &str = "without-all";

const MAX_NAME_CHARS: usize = 64;

fn subject<'a>(
    experiment: &'a Experiment,
    selection: &Selection,
) -> Result<&'a Subject, AblationError> {
    let names = || experiment.subjects.iter().map(|subject| subject.name.as_str());
    experiment.subjects.iter().find(|subject| subject.name == selection.subject).ok_or_else(|| {
        let hint = suggestion(&selection.subject, names().collect::<Vec<_>>());
        AblationError::Selection(format!("{selection}: no such subject{hint}"))
    })
}

/// Returns a filter for selected files. Each part must be contained in the name of a file.
fn selected<'a>(
    selection: &'a Selection,
    files: &[RuleFile],
) -> Result<impl Fn(&RuleFile) -> bool + 'a, AblationError> {
    let is_unknown = |word: &&String| !files.iter().any(|file| file.name.contains(word.as_str()));
    if let Some(word) = selection.files.iter().find(is_unknown) {
        let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        let reason = format!("no file name contains `{word}`; files: {}", names.join(", "));
        return Err(AblationError::Selection(format!("{selection}: {reason}")));
    }
    let words = &selection.files;
    Ok(move |file: &RuleFile| {
        words.is_empty() || words.iter().any(|word| file.name.contains(word.as_str()))
    })
}

/// Returns the name of the subject without a file. It may be used as a file name.
fn subject_name(file: &str) -> String {
    let stem = file.strip_suffix(".conf").unwrap_or(file);
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    format!("without-{stem}").chars().map(plain).take(MAX_NAME_CHARS).collect()
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (subject, files) = match text.split_once('=') {
            Some((subject, files)) => (subject, files.split(',').map(str::to_owned).collect()),
            None => (text, Vec::new()),
        };
        match subject.is_empty() || files.iter().any(String::is_empty) {
            true => {
                Err("expected SUBJECT or SUBJECT=FILE,FILE,... with parts of file names, such as full=941,942".to_owned())
            }
            false => Ok(Self { subject: subject.to_owned(), files }),
        }
    }
}

impl fmt::Display for Selection {
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
    fn selection_round_trips() {
        for text in ["full", "full=941,942"] {
            assert_eq!(text.parse::<Selection>().unwrap().to_string(), text);
        }
        for invalid in ["", "=941", "full=", "full=941,"] {
            assert!(invalid.parse::<Selection>().is_err(), "{invalid}");
        }
    }

    #[test]
    fn subject_is_named_after_the_removed_file() {
        assert_eq!(subject_name("REQUEST-942-SQLI.conf"), "without-REQUEST-942-SQLI");
        assert_eq!(subject_name("my rules.conf"), "without-my-rules");
        assert_eq!(subject_name(&"x".repeat(99)).len(), MAX_NAME_CHARS);
    }
}
