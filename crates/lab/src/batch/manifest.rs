//! What a batch is: its settings and its revisions, in `batch.json`.

use super::inputs::Inputs;
use super::revision::Revision;
use super::settings::Settings;
use super::{BatchError, io_error};
use crate::whole_file;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// The version of this shape; a reader refuses what it does not know.
pub const SCHEMA: u32 = 2;

/// What a batch is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchManifest {
    /// The version of this shape.
    pub schema: u32,
    /// The version and commit of the tool that began it.
    pub tollgate: String,
    /// When it began, RFC 3339, UTC.
    pub started_at: String,
    /// The command that began it.
    pub command: String,
    /// The folder that it was started in.
    pub directory: PathBuf,
    /// The folders in which experiments, systems and mixes are looked for: others only with the same in them.
    pub catalog: Vec<PathBuf>,
    /// The seed of every random choice.
    pub seed: u64,
    /// What is done with each revision.
    pub settings: Settings,
    /// The hash of the files that come with a list of versions.
    pub files: Option<String>,
    /// How many of the revisions are measured before a change is looked for, as far apart as can be; all
    /// where there is none.
    pub steps: Option<usize>,
    /// What it measures with; none before its first round.
    pub inputs: Option<Inputs>,
    /// The id of the revision that every block runs too; none until one is known that can be built.
    pub anchor: Option<String>,
    /// SHA-256 of that revision's product: an id may come to name other sources, or be built otherwise.
    pub anchor_product: Option<String>,
    /// The revisions, the oldest first or as they were listed.
    pub revisions: Vec<Revision>,
}

impl BatchManifest {
    /// Reads the manifest of a batch.
    ///
    /// # Errors
    ///
    /// There is none, or it was written by another version.
    pub fn read(dir: &Path) -> Result<Self, BatchError> {
        let path = dir.join(NAME);
        if !path.is_file() {
            let dir = dir.display();
            return Err(BatchError::Asked(format!(
                "{dir} is not the directory of a batch: it has no {NAME}; `tollgate batch run` makes one"
            )));
        }
        let text = fs::read_to_string(&path).map_err(io_error("reading", &path))?;
        let malformed = |source| BatchError::Malformed { path: path.clone(), line: 1, source };
        let value: serde_json::Value = serde_json::from_str(&text).map_err(malformed)?;
        match value["schema"].as_u64() {
            Some(schema) if schema == u64::from(SCHEMA) => {}
            schema => {
                let schema = schema.map_or("none".to_owned(), |schema| schema.to_string());
                return Err(BatchError::Asked(format!(
                    "{} has schema {schema}, and this version reads {SCHEMA}; use the version of \
                     tollgate that wrote it",
                    path.display()
                )));
            }
        }
        serde_json::from_value(value).map_err(malformed)
    }

    /// Writes it into the directory of its batch.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), BatchError> {
        let path = dir.join(NAME);
        let failed = io_error("writing", &path);
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))?;
        whole_file::write(&path, &text).map_err(failed)
    }

    /// Whether there is one in this directory.
    pub fn is_in(dir: &Path) -> bool {
        dir.join(NAME).is_file()
    }

    /// Its catalog and the one that is asked for now, in words, where they are not the same.
    pub(super) fn other_catalog(&self, asked: &[PathBuf]) -> Option<String> {
        let folders = |catalog: &[PathBuf]| {
            let folders: Vec<String> =
                catalog.iter().map(|folder| folder.display().to_string()).collect();
            folders.join(":")
        };
        (self.catalog != asked)
            .then(|| format!("catalog: {}, now {}", folders(&self.catalog), folders(asked)))
    }

    /// The revision of this id.
    pub fn revision(&self, id: &str) -> Option<&Revision> {
        self.revisions.iter().find(|revision| revision.id == id)
    }

    /// Takes up a list of revisions as it is now. Those that were met on the way stay where they are,
    /// behind the one that they came after.
    pub fn take_up(&mut self, listed: Vec<Revision>) {
        let before = std::mem::replace(&mut self.revisions, listed);
        for (index, met) in before.iter().enumerate() {
            if met.listed || self.revision(&met.id).is_some() {
                continue;
            }
            let at = before[..index]
                .iter()
                .rev()
                .find_map(|earlier| self.revisions.iter().position(|one| one.id == earlier.id));
            let mut met = met.clone();
            while self.revisions.iter().any(|other| other.name == met.name) {
                met.name.push('x');
            }
            self.revisions.insert(at.map_or(0, |at| at + 1), met);
        }
    }

    /// Adds the commits between two revisions, where they are not known yet: behind the first of them.
    pub fn add_between(&mut self, after: &str, commits: &[Revision]) {
        let mut at = self.revisions.iter().position(|one| one.id == after).map_or(0, |at| at + 1);
        for commit in commits {
            match self.revisions.iter().position(|one| one.id == commit.id) {
                Some(known) => at = known + 1,
                None => {
                    let mut commit = commit.clone();
                    while self.revisions.iter().any(|other| other.name == commit.name) {
                        commit.name.push('x');
                    }
                    self.revisions.insert(at, commit);
                    at += 1;
                }
            }
        }
    }
}

const NAME: &str = "batch.json";

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(id: &str, listed: bool) -> Revision {
        Revision {
            id: id.to_owned(),
            name: id.to_owned(),
            tree: String::new(),
            date: String::new(),
            log: String::new(),
            listed,
        }
    }

    fn manifest(listed: &[&str]) -> BatchManifest {
        BatchManifest {
            schema: SCHEMA,
            tollgate: String::new(),
            started_at: String::new(),
            command: String::new(),
            directory: PathBuf::new(),
            catalog: Vec::new(),
            seed: 1,
            settings: Settings::made_up("true"),
            files: None,
            steps: None,
            inputs: None,
            anchor: None,
            anchor_product: None,
            revisions: listed.iter().map(|id| revision(id, true)).collect(),
        }
    }

    fn ids(manifest: &BatchManifest) -> Vec<&str> {
        manifest.revisions.iter().map(|one| one.id.as_str()).collect()
    }

    #[test]
    fn commits_met_on_the_way_stand_where_they_belong_and_stay_there() {
        let mut manifest = manifest(&["a", "d", "g"]);
        manifest.add_between("a", &["b", "c", "d"].map(|id| revision(id, false)));
        assert_eq!(ids(&manifest), ["a", "b", "c", "d", "g"]);
        // Met a second time, from one of those that were met.
        manifest.add_between("c", &["d", "e", "g"].map(|id| revision(id, false)));
        assert_eq!(ids(&manifest), ["a", "b", "c", "d", "e", "g"]);
        let listed = |id: &str| manifest.revision(id).is_some_and(|one| one.listed);
        assert!(listed("d") && !listed("e"));
        // A week later there is one more, and one that was met is listed.
        manifest.take_up(["a", "c", "d", "g", "h"].map(|id| revision(id, true)).to_vec());
        assert_eq!(ids(&manifest), ["a", "b", "c", "d", "e", "g", "h"]);
        assert!(manifest.revision("c").is_some_and(|one| one.listed));
    }

    #[test]
    fn a_batch_of_another_version_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = manifest(&["a"]);
        manifest.write(dir.path()).unwrap();
        assert_eq!(BatchManifest::read(dir.path()).unwrap(), manifest);
        let path = dir.path().join(NAME);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen("\"schema\": 2", "\"schema\": 7", 1)).unwrap();
        let error = BatchManifest::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("has schema 7, and this version reads 2"), "{error}");
    }
}
