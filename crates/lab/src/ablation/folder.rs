//! The files of a rule set on disk, and the folders with some of them taken out.

use super::dependence::without_changes_of;
use super::rule_file::RuleFile;
use super::{AblationError, files};
use crate::system::builds;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The file that is read before all rules, and the folder with the rules.
const SETUP: &str = "crs-setup.conf";
const RULES: &str = "rules";

/// The most files that a rule set may have: each is a subject.
const FILES_MAX: usize = 200;

/// By which the folders of one way of taking files out are told from those of another.
const VERSION: &str = "1";

/// A rule set as it lies in its folder.
#[derive(Debug)]
pub(super) struct RuleSetFolder {
    folder: PathBuf,
    /// Where the folders without some of its files are kept.
    kept_in: PathBuf,
    /// What is read before the rules.
    pub(super) setup: RuleFile,
    /// Its files of rules, in the order in which they are read.
    pub(super) files: Vec<RuleFile>,
}

impl RuleSetFolder {
    pub(super) fn read(folder: &Path) -> Result<Self, AblationError> {
        let read = |path: PathBuf| fs::read_to_string(&path).map_err(files("reading", &path));
        let setup = RuleFile::read(SETUP, &read(folder.join(SETUP))?);
        let rules = folder.join(RULES);
        let mut names = names(&rules)?;
        names.retain(|name| name.ends_with(".conf"));
        if names.is_empty() || names.len() > FILES_MAX {
            return Err(AblationError::Files {
                folder: rules,
                count: names.len(),
                most: FILES_MAX,
            });
        }
        let file = |name: &String| Ok(RuleFile::read(name, &read(rules.join(name))?));
        let all = names.iter().map(file).collect::<Result<_, AblationError>>()?;
        let hash = builds::hash_folder(folder).map_err(files("reading", folder))?;
        let cache = builds::cache().map_err(AblationError::Cache)?;
        let kept_in = cache.join("ablations").join(format!("{}-{VERSION}", &hash[..HASH_DIGITS]));
        Ok(Self { folder: folder.to_owned(), kept_in, setup, files: all })
    }

    /// The folder without these files, made where it is not there yet: links to the files that stay, and
    /// those of them anew that change rules which are gone. Tells with it how many such changes went.
    pub(super) fn without(
        &self,
        name: &str,
        gone: &[&RuleFile],
    ) -> Result<(PathBuf, usize), AblationError> {
        let folder = self.kept_in.join(name);
        // Made beside its place and moved there when it is whole: one that was cut off does not pass
        // for it.
        let work = self.kept_in.join(format!("unfinished-{name}-{}", std::process::id()));
        let changes = self.write(&work, gone);
        if changes.is_ok() && !folder.is_dir() {
            fs::rename(&work, &folder).map_err(files("moving the rules to", &folder))?;
        } else {
            // Another of the same content is there, or an error says more than what is left of it.
            fs::remove_dir_all(&work).ok();
        }
        changes.map(|changes| (folder, changes))
    }

    fn write(&self, work: &Path, gone: &[&RuleFile]) -> Result<usize, AblationError> {
        let rules = work.join(RULES);
        fs::create_dir_all(&rules).map_err(files("making", &rules))?;
        let ids: BTreeSet<u64> = gone.iter().flat_map(|file| file.ids.iter().copied()).collect();
        let mut changes = 0;
        let setup = work.join(SETUP);
        symlink(self.folder.join(SETUP), &setup).map_err(files("linking", &setup))?;
        for name in names(&self.folder.join(RULES))? {
            if gone.iter().any(|file| file.name == name) {
                continue;
            }
            let (source, target) = (self.folder.join(RULES).join(&name), rules.join(&name));
            let (text, changed) = match name.ends_with(".conf") {
                true => {
                    let text = fs::read_to_string(&source).map_err(files("reading", &source))?;
                    without_changes_of(&text, &ids)
                }
                false => (String::new(), 0),
            };
            match changed {
                0 => symlink(&source, &target).map_err(files("linking", &target))?,
                _ => fs::write(&target, text).map_err(files("writing", &target))?,
            }
            changes += changed;
        }
        Ok(changes)
    }
}

const HASH_DIGITS: usize = 12;

/// The names of the files in a folder, sorted as the patterns of configs sort them.
fn names(folder: &Path) -> Result<Vec<String>, AblationError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(files("reading", folder))? {
        let entry = entry.map_err(files("reading", folder))?;
        if entry.path().is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}
