//! Rule sets on disk, and copies of them without some of the files.

use super::rules::{RuleFile, remove_exceptions};
use crate::system::build::{self, BuildError};
use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};
use thiserror::Error;
use tollgate_experiment::files::hash_text;

/// File that is loaded before all rules, and the folder of the rules.
pub(super) const SETUP: &str = "crs-setup.conf";
const RULES: &str = "rules";

/// Each file is a subject of the experiment.
const MAX_FILES: usize = 200;

/// Version of the layout of the copies.
const VERSION: &str = "2";

#[derive(Debug, Error)]
pub enum FolderError {
    #[error("cannot store copies of rule sets")]
    Cache(#[source] BuildError),
    #[error("cannot {action} {path}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{folder} has {count} .conf files; expected 1 to {MAX_FILES}")]
    FileCount { folder: PathBuf, count: usize },
}

#[derive(Debug)]
pub(super) struct RuleSetFolder {
    folder: PathBuf,
    /// Cache folder of the copies.
    copies: PathBuf,
    pub(super) setup: RuleFile,
    /// Rule files in load order.
    pub(super) files: Vec<RuleFile>,
}

impl RuleSetFolder {
    pub(super) fn read(folder: &Path) -> Result<Self, FolderError> {
        let read = |path: PathBuf| fs::read_to_string(&path).map_err(io_error("read", &path));
        let setup = RuleFile::parse(SETUP, &read(folder.join(SETUP))?);
        let rules = folder.join(RULES);
        let mut names = names(&rules)?;
        names.retain(|name| name.ends_with(".conf"));
        if names.is_empty() || names.len() > MAX_FILES {
            return Err(FolderError::FileCount { folder: rules, count: names.len() });
        }
        let file = |name: &String| Ok(RuleFile::parse(name, &read(rules.join(name))?));
        let all = names.iter().map(file).collect::<Result<_, FolderError>>()?;
        let hash = build::hash_folder(folder).map_err(io_error("read", folder))?;
        // The links point to this path: a copy of the rules elsewhere has its own folders.
        let folder = fs::canonicalize(folder).map_err(io_error("find", folder))?;
        let hash = hash_text(&format!("{hash}\n{}", folder.display()));
        let cache = build::cache().map_err(FolderError::Cache)?;
        let copies = cache.join("ablations").join(format!("{}-{VERSION}", &hash[..HASH_DIGITS]));
        Ok(Self { folder, copies, setup, files: all })
    }

    /// Returns the rule set without some files, with the number of exceptions to their rules that were removed too.
    /// The copy links to the other files, except those with a removed exception. It is made unless the cache has it.
    pub(super) fn without(&self, removed: &[&RuleFile]) -> Result<(PathBuf, usize), FolderError> {
        let name = name_without(removed);
        let folder = self.copies.join(&name);
        // Made beside its place and renamed when it is complete.
        let work = self.copies.join(format!("unfinished-{name}-{}", std::process::id()));
        // Left by a killed process with the same id.
        if work.is_dir() {
            fs::remove_dir_all(&work).map_err(io_error("remove", &work))?;
        }
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

    fn write(&self, work: &Path, removed: &[&RuleFile]) -> Result<usize, FolderError> {
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
            let (text, changed) = match name.ends_with(".conf") {
                true => {
                    let text = fs::read_to_string(&source).map_err(io_error("read", &source))?;
                    remove_exceptions(&text, &ids)
                }
                false => (String::new(), 0),
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
fn names(folder: &Path) -> Result<Vec<String>, FolderError> {
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

fn io_error(action: &'static str, path: &Path) -> impl Fn(io::Error) -> FolderError {
    move |source| FolderError::Io { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> RuleFile {
        RuleFile::parse(name, "")
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
        let files = FolderError::FileCount { folder: whole.join("rules"), count: 0 };
        for name in ["1.conf", "2.conf"] {
            fs::remove_file(whole.join("rules").join(name)).unwrap();
        }
        assert_eq!(RuleSetFolder::read(&whole).unwrap_err().to_string(), files.to_string());
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
