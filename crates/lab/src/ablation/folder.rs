//! The files of a rule set on disk, and the folders with some of them taken out.

use super::dependence::without_changes_of;
use super::rule_file::RuleFile;
use super::{AblationError, files};
use crate::system::builds;
use crate::system::render::hash_text;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The file that is read before all rules, and the folder with the rules.
pub(super) const SETUP: &str = "crs-setup.conf";
const RULES: &str = "rules";

/// The most files that a rule set may have: each is a subject.
const FILES_MAX: usize = 200;

/// By which the folders of one way of taking files out are told from those of another.
const VERSION: &str = "2";

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
        // The links lead to this path: a copy of the rules elsewhere has folders of its own.
        let folder = fs::canonicalize(folder).map_err(files("finding", folder))?;
        let hash = hash_text(&format!("{hash}\n{}", folder.display()));
        let cache = builds::cache().map_err(AblationError::Cache)?;
        let kept_in = cache.join("ablations").join(format!("{}-{VERSION}", &hash[..HASH_DIGITS]));
        Ok(Self { folder, kept_in, setup, files: all })
    }

    /// The folder without these files, made where it is not there yet: links to the files that stay, and
    /// those of them anew that change rules which are gone. Tells with it how many such changes went.
    pub(super) fn without(&self, gone: &[&RuleFile]) -> Result<(PathBuf, usize), AblationError> {
        let name = name_without(gone);
        let folder = self.kept_in.join(&name);
        // Made beside its place and moved there when it is whole: one that was cut off does not pass
        // for it.
        let work = self.kept_in.join(format!("unfinished-{name}-{}", std::process::id()));
        // A process of this number that was killed may have left some of it.
        if work.is_dir() {
            fs::remove_dir_all(&work).map_err(files("removing", &work))?;
        }
        let changes = self.write(&work, gone);
        let moved = match &changes {
            Ok(_) if !folder.is_dir() => fs::rename(&work, &folder),
            _ => Ok(()),
        };
        // What is left of it helps nobody, and the errors below say more than one of this.
        fs::remove_dir_all(&work).ok();
        match moved {
            // Another run made the same at the same time.
            Err(_) if folder.is_dir() => {}
            moved => moved.map_err(files("moving the rules to", &folder))?,
        }
        Ok((folder, changes?))
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

/// The name of a folder without these files, which is that of no other choice of files.
fn name_without(gone: &[&RuleFile]) -> String {
    match gone {
        [one] => format!("without-{}", one.name),
        several => {
            let names: Vec<&str> = several.iter().map(|file| file.name.as_str()).collect();
            format!("without-{}-{}", names.len(), &hash_text(&names.join("\n"))[..HASH_DIGITS])
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> RuleFile {
        RuleFile { name: name.to_owned(), ..RuleFile::default() }
    }

    #[test]
    fn a_folder_lacks_what_was_taken_out_and_links_to_the_rest() {
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
        rules.kept_in = dir.path().join("kept");
        let [one, two] = [&rules.files[0], &rules.files[1]];
        // What was cut off is in nobody's way.
        let cut_off = format!("unfinished-{}-{}", name_without(&[one]), std::process::id());
        fs::create_dir_all(rules.kept_in.join(&cut_off).join("rules")).unwrap();
        fs::write(rules.kept_in.join(&cut_off).join("rules/words.data"), "o").unwrap();
        let (without_one, changes) = rules.without(&[one]).unwrap();
        assert_eq!(changes, 1);
        assert_eq!(names(&without_one.join("rules")).unwrap(), ["2.conf", "words.data"]);
        let left = |name: &str| fs::read_to_string(without_one.join("rules").join(name)).unwrap();
        assert_eq!((left("2.conf").as_str(), left("words.data").as_str()), ("# stays\n", "one\n"));
        assert!(without_one.join("rules/words.data").is_symlink());
        // Once more is the same, and nothing unfinished is left.
        assert_eq!(rules.without(&[one]).unwrap(), (without_one, 1));
        let (without_both, _) = rules.without(&[one, two]).unwrap();
        assert_eq!(names(&without_both.join("rules")).unwrap(), ["words.data"]);
        assert_eq!(fs::read_dir(&rules.kept_in).unwrap().count(), 2);
        let files = AblationError::Files { folder: whole.join("rules"), count: 0, most: FILES_MAX };
        for name in ["1.conf", "2.conf"] {
            fs::remove_file(whole.join("rules").join(name)).unwrap();
        }
        assert_eq!(RuleSetFolder::read(&whole).unwrap_err().to_string(), files.to_string());
    }

    #[test]
    fn equal_rules_in_another_place_are_kept_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| {
            let folder = dir.path().join(name);
            fs::create_dir_all(folder.join(RULES)).unwrap();
            fs::write(folder.join(SETUP), "").unwrap();
            fs::write(folder.join(RULES).join("1.conf"), "").unwrap();
            RuleSetFolder::read(&folder).unwrap().kept_in
        });
        assert_ne!(one, other);
    }

    #[test]
    fn other_files_taken_out_are_another_folder() {
        let [a, b, c] = ["a", "b", "c"].map(named);
        assert_eq!(name_without(&[&a]), "without-a");
        assert_ne!(name_without(&[&a, &b]), name_without(&[&a, &c]));
        assert_ne!(name_without(&[&a, &b]), name_without(&[&a, &b, &c]));
    }
}
