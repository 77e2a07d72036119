//! Ablation: an experiment whose baseline is one subject, compared with the same subject without each of its rule
//! files.
//!
//! The price of a file is the difference between the whole rule set and the rule set without it. The file catches the
//! attacks that are blocked with it and not without it.

mod rules;

use crate::system::{self, build, render};
use rules::{RuleFile, reason_to_keep, remove_exceptions};
use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, fs};
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::{Experiment, Subject};
use tollgate_records::error::{bad_input, io_error, suggestion};
use tollgate_records::files::{hash_text, remove_folder};
use tollgate_records::manifest::{AblatedFile, Ablation};
use tollgate_records::subject::OptionValue;

/// The subject and rule files of an ablation: `SUBJECT` or `SUBJECT=FILE,FILE,...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    pub subject: String,
    /// Parts of file names. Empty: all files.
    pub files: Vec<String>,
}

/// Replaces the subjects of an experiment by one of them, which becomes the baseline, and by the same subject without
/// each rule file that no other file depends on.
pub fn ablate(
    catalog: &Catalog,
    experiment: Experiment,
    selection: &Selection,
) -> anyhow::Result<Experiment> {
    let whole = subject(&experiment, selection)?.clone();
    let recipe = &whole.recipe.file;
    let Some((rule_set, option)) =
        recipe.rule_set.as_ref().and_then(|set| Some((set, set.option.clone()?)))
    else {
        let reason =
            format!("system `{}` has no option for the folder of its rule set", whole.recipe.name);
        return Err(refused(selection, &reason));
    };
    if !render::holds(&whole, &rule_set.when)? {
        let reason = format!("its options do not enable {}", rule_set.name);
        return Err(refused(selection, &reason));
    }
    let installed = system::check(catalog, &whole)?
        .map_err(|missing| bad_input(format!("--ablate {}: {missing}", whole.name)))?;
    let folder = PathBuf::from(render::text(&whole, &installed, &rule_set.folder)?);
    if !folder.join(SETUP).is_file() {
        let made = rule_set.hint.as_ref().map(|hint| format!("; to make one:\n    {hint}"));
        return Err(bad_input(format!(
            "--ablate {selection}: {} has no {SETUP} beside its rules; set a folder that has both by \
             `with = {{ {option} = \"/path/to/it\" }}`{}",
            folder.display(),
            made.unwrap_or_default()
        )));
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
        anyhow::Ok((name, exceptions))
    };
    for file in &folder.files {
        let kept_reason = reason_to_keep(file, &folder.files, &folder.setup);
        let (subject, exceptions) = if kept_reason.is_none() && is_selected(file) {
            removed.push(file);
            let about = format!("{} without {}", whole.name, file.name);
            let (name, exceptions) = without(subject_name(&file.name), &[file], about)?;
            (Some(name), exceptions)
        } else {
            (None, 0)
        };
        files.push(AblatedFile { file: file.name.clone(), subject, kept_reason, exceptions });
    }
    let without_all = match &removed[..] {
        [] => {
            let reason = "other files depend on each of its files";
            return Err(refused(selection, reason));
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
        return Err(refused(selection, &reason));
    }
    let rule_set = rule_set.name.clone();
    let title = format!("What does each file of {rule_set} cost {}?", whole.name);
    let ablation = Ablation { subject: whole.name.clone(), rule_set, files, without_all };
    Ok(experiment.ablated(title, subjects, ablation))
}

fn refused(selection: &Selection, reason: &str) -> anyhow::Error {
    bad_input(format!("--ablate {selection}: {reason}"))
}

/// Name of the subject without all selected files.
const ALL: &str = "without-all";

const MAX_NAME_CHARS: usize = 64;

fn subject<'a>(experiment: &'a Experiment, selection: &Selection) -> anyhow::Result<&'a Subject> {
    let names = || experiment.subjects.iter().map(|subject| subject.name.as_str());
    experiment.subjects.iter().find(|subject| subject.name == selection.subject).ok_or_else(|| {
        let hint = suggestion(&selection.subject, names().collect::<Vec<_>>());
        refused(selection, &format!("no such subject{hint}"))
    })
}

/// Returns a filter for selected files. Each part must be contained in the name of a file.
fn selected<'a>(
    selection: &'a Selection,
    files: &[RuleFile],
) -> anyhow::Result<impl Fn(&RuleFile) -> bool + 'a> {
    let is_unknown = |word: &&String| !files.iter().any(|file| file.name.contains(word.as_str()));
    if let Some(word) = selection.files.iter().find(is_unknown) {
        let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        let reason = format!("no file name contains `{word}`; files: {}", names.join(", "));
        return Err(refused(selection, &reason));
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
        if subject.is_empty() || files.iter().any(String::is_empty) {
            Err("expected SUBJECT or SUBJECT=FILE,FILE,... with parts of file names, such as full=941,942".to_owned())
        } else {
            Ok(Self { subject: subject.to_owned(), files })
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.subject.fmt(formatter)?;
        if self.files.is_empty() { Ok(()) } else { write!(formatter, "={}", self.files.join(",")) }
    }
}

/// File that is loaded before all rules, and the folder of the rules.
const SETUP: &str = "crs-setup.conf";
const RULES: &str = "rules";

/// Each file is a subject of the experiment.
const MAX_FILES: usize = 200;

/// Version of the layout of the copies.
const VERSION: &str = "2";

#[derive(Debug)]
struct RuleSetFolder {
    folder: PathBuf,
    /// Cache folder of the copies.
    copies: PathBuf,
    setup: RuleFile,
    /// Rule files in load order.
    files: Vec<RuleFile>,
}

impl RuleSetFolder {
    fn read(folder: &Path) -> anyhow::Result<Self> {
        let read = |path: PathBuf| fs::read_to_string(&path).map_err(io_error("read", &path));
        let setup = RuleFile::parse(SETUP, &read(folder.join(SETUP))?)?;
        let rules = folder.join(RULES);
        let mut names = names(&rules)?;
        names.retain(|name| name.ends_with(".conf"));
        if names.is_empty() || names.len() > MAX_FILES {
            return Err(bad_input(format!(
                "{} has {} .conf files; expected 1 to {MAX_FILES}",
                rules.display(),
                names.len()
            )));
        }
        let file = |name: &String| RuleFile::parse(name, &read(rules.join(name))?);
        let all = names.iter().map(file).collect::<anyhow::Result<_>>()?;
        let hash = build::hash_folder(folder).map_err(io_error("read", folder))?;
        // The links point to this path: a copy of the rules elsewhere has its own folders.
        let folder = fs::canonicalize(folder).map_err(io_error("find", folder))?;
        let hash = hash_text(&format!("{hash}\n{}", folder.display()));
        let cache = build::cache()?;
        let copies = cache.join("ablations").join(format!("{}-{VERSION}", &hash[..HASH_DIGITS]));
        Ok(Self { folder, copies, setup, files: all })
    }

    /// Returns the rule set without some files, with the number of exceptions to their rules that were removed too.
    /// The copy links to the other files, except those with a removed exception. It is made unless the cache has it.
    fn without(&self, removed: &[&RuleFile]) -> anyhow::Result<(PathBuf, usize)> {
        let name = name_without(removed);
        let folder = self.copies.join(&name);
        // Made beside its place and renamed when it is complete.
        let work = self.copies.join(format!("unfinished-{name}-{}", std::process::id()));
        // Left by a killed process with the same id.
        remove_folder(&work)?;
        let changes = self.write(&work, removed);
        let moved = match &changes {
            Ok(_) if !folder.is_dir() => fs::rename(&work, &folder),
            _ => Ok(()),
        };
        // The errors below are more important than one of the cleanup.
        fs::remove_dir_all(&work).ok();
        match moved {
            // Another run made the same copy in between.
            Err(_) if folder.is_dir() => {}
            moved => moved.map_err(io_error("move the rules to", &folder))?,
        }
        Ok((folder, changes?))
    }

    fn write(&self, work: &Path, removed: &[&RuleFile]) -> anyhow::Result<usize> {
        let rules = work.join(RULES);
        fs::create_dir_all(&rules).map_err(io_error("create", &rules))?;
        let ids: BTreeSet<u64> = removed.iter().flat_map(|file| file.ids.iter().copied()).collect();
        let mut changes = 0;
        let setup = work.join(SETUP);
        symlink(self.folder.join(SETUP), &setup).map_err(io_error("link", &setup))?;
        for name in names(&self.folder.join(RULES))? {
            if removed.iter().any(|file| file.name == name) {
                continue;
            }
            let (source, target) = (self.folder.join(RULES).join(&name), rules.join(&name));
            let (text, changed) = if name.ends_with(".conf") {
                let text = fs::read_to_string(&source).map_err(io_error("read", &source))?;
                remove_exceptions(&name, &text, &ids)?
            } else {
                (String::new(), 0)
            };
            match changed {
                0 => symlink(&source, &target).map_err(io_error("link", &target))?,
                _ => fs::write(&target, text).map_err(io_error("write", &target))?,
            }
            changes += changed;
        }
        Ok(changes)
    }
}

const HASH_DIGITS: usize = 12;

/// Returns a name that is unique for these files.
fn name_without(removed: &[&RuleFile]) -> String {
    match removed {
        [one] => format!("without-{}", one.name),
        several => {
            let names: Vec<&str> = several.iter().map(|file| file.name.as_str()).collect();
            format!("without-{}-{}", names.len(), &hash_text(&names.join("\n"))[..HASH_DIGITS])
        }
    }
}

/// Returns the names of the files in a folder, sorted as by a glob pattern.
fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(io_error("read", folder))? {
        let entry = entry.map_err(io_error("read", folder))?;
        if entry.path().is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
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

    fn named(name: &str) -> RuleFile {
        RuleFile::parse(name, "").unwrap()
    }

    #[test]
    fn copy_links_to_the_remaining_files() {
        let dir = tempfile::tempdir().unwrap();
        let whole = dir.path().join("whole");
        fs::create_dir_all(whole.join("rules")).unwrap();
        fs::write(whole.join(SETUP), "").unwrap();
        for (name, text) in [
            ("1.conf", "SecRule ARGS \"@rx x\" \"id:1,deny\"\n"),
            ("2.conf", "SecRuleUpdateTargetById 1 !ARGS:a\n# stays\n"),
            ("words.data", "one\n"),
        ] {
            fs::write(whole.join("rules").join(name), text).unwrap();
        }
        let mut rules = RuleSetFolder::read(&whole).unwrap();
        rules.copies = dir.path().join("kept");
        let [one, two] = [&rules.files[0], &rules.files[1]];
        // Left by a killed process.
        let cut_off = format!("unfinished-{}-{}", name_without(&[one]), std::process::id());
        fs::create_dir_all(rules.copies.join(&cut_off).join("rules")).unwrap();
        fs::write(rules.copies.join(&cut_off).join("rules/words.data"), "o").unwrap();
        let (without_one, changes) = rules.without(&[one]).unwrap();
        assert_eq!(changes, 1);
        assert_eq!(names(&without_one.join("rules")).unwrap(), ["2.conf", "words.data"]);
        let left = |name: &str| fs::read_to_string(without_one.join("rules").join(name)).unwrap();
        assert_eq!((left("2.conf").as_str(), left("words.data").as_str()), ("# stays\n", "one\n"));
        assert!(without_one.join("rules/words.data").is_symlink());
        // The second call finds the copy.
        assert_eq!(rules.without(&[one]).unwrap(), (without_one, 1));
        let (without_both, _) = rules.without(&[one, two]).unwrap();
        assert_eq!(names(&without_both.join("rules")).unwrap(), ["words.data"]);
        assert_eq!(fs::read_dir(&rules.copies).unwrap().count(), 2);
        for name in ["1.conf", "2.conf"] {
            fs::remove_file(whole.join("rules").join(name)).unwrap();
        }
        let error = RuleSetFolder::read(&whole).unwrap_err().to_string();
        assert!(error.ends_with("/rules has 0 .conf files; expected 1 to 200"), "{error}");
    }

    #[test]
    fn copies_depend_on_the_path_of_the_rules() {
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| {
            let folder = dir.path().join(name);
            fs::create_dir_all(folder.join(RULES)).unwrap();
            fs::write(folder.join(SETUP), "").unwrap();
            fs::write(folder.join(RULES).join("1.conf"), "").unwrap();
            RuleSetFolder::read(&folder).unwrap().copies
        });
        assert_ne!(one, other);
    }

    #[test]
    fn name_is_unique_for_the_removed_files() {
        let [a, b, c] = ["a", "b", "c"].map(named);
        assert_eq!(name_without(&[&a]), "without-a");
        assert_ne!(name_without(&[&a, &b]), name_without(&[&a, &c]));
        assert_ne!(name_without(&[&a, &b]), name_without(&[&a, &b, &c]));
    }
}
