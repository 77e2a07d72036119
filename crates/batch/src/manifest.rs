//! The settings and revisions of a batch: `batch.json`.

use crate::config::Settings;
use crate::inputs::Inputs;
use crate::repository::Revision;
use crate::{BatchError, io_error};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use tollgate_experiment::files::write_atomic;

pub const SCHEMA: u32 = 3;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchManifest {
    pub schema: u32,
    /// Version and commit of tollgate.
    pub tollgate: String,
    /// RFC 3339, UTC.
    pub started_at: String,
    pub command: String,
    /// Working directory of the first command.
    pub directory: PathBuf,
    /// Folders of experiments, systems and mixes; others only with the same content.
    pub catalog: Vec<PathBuf>,
    pub seed: u64,
    pub settings: Settings,
    /// Hash of the files for a list of versions.
    pub files: Option<String>,
    /// Number of revisions to measure before a search; `None`: all.
    pub steps: Option<usize>,
    /// `None` before the first round.
    pub inputs: Option<Inputs>,
    /// Id of the anchor; `None` until one was built.
    pub anchor: Option<String>,
    /// SHA-256 of its product, as the sources or the build of an id may change.
    pub anchor_product: Option<String>,
    /// Oldest first, or as listed.
    pub revisions: Vec<Revision>,
}

impl BatchManifest {
    pub fn read(dir: &Path) -> Result<Self, BatchError> {
        let path = dir.join(NAME);
        if !path.is_file() {
            let dir = dir.display();
            return Err(BatchError::Asked(format!(
                "{dir} is not a batch: no {NAME}; create one with `tollgate batch run`"
            )));
        }
        let text = fs::read_to_string(&path).map_err(io_error("read", &path))?;
        let malformed = |source| BatchError::Malformed { path: path.clone(), line: 1, source };
        let value: serde_json::Value = serde_json::from_str(&text).map_err(malformed)?;
        match value["schema"].as_u64() {
            Some(schema) if schema == u64::from(SCHEMA) => {}
            schema => {
                let schema = schema.map_or("none".to_owned(), |schema| schema.to_string());
                return Err(BatchError::Asked(format!(
                    "{} has schema {schema}, but this version reads {SCHEMA}; use the version of \
                     tollgate that wrote it",
                    path.display()
                )));
            }
        }
        serde_json::from_value(value).map_err(malformed)
    }

    pub fn write(&self, dir: &Path) -> Result<(), BatchError> {
        let path = dir.join(NAME);
        let failed = io_error("write", &path);
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))?;
        write_atomic(&path, &text).map_err(failed)
    }

    pub fn is_in(dir: &Path) -> bool {
        dir.join(NAME).is_file()
    }

    /// Describes the difference to another catalog.
    pub(crate) fn other_catalog(&self, asked: &[PathBuf]) -> Option<String> {
        let folders = |catalog: &[PathBuf]| {
            let folders: Vec<String> =
                catalog.iter().map(|folder| folder.display().to_string()).collect();
            folders.join(":")
        };
        (self.catalog != asked)
            .then(|| format!("catalog: {}, now {}", folders(&self.catalog), folders(asked)))
    }

    pub fn revision(&self, id: &str) -> Option<&Revision> {
        self.revisions.iter().find(|revision| revision.id == id)
    }

    /// Replaces the list of revisions. Revisions found by bisection keep their place.
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

    /// Adds the unknown commits between two revisions.
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
            message: String::new(),
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
    fn bisected_commits_keep_their_place() {
        let mut manifest = manifest(&["a", "d", "g"]);
        manifest.add_between("a", &["b", "c", "d"].map(|id| revision(id, false)));
        assert_eq!(ids(&manifest), ["a", "b", "c", "d", "g"]);
        // Added again, from another one that was found.
        manifest.add_between("c", &["d", "e", "g"].map(|id| revision(id, false)));
        assert_eq!(ids(&manifest), ["a", "b", "c", "d", "e", "g"]);
        let listed = |id: &str| manifest.revision(id).is_some_and(|one| one.listed);
        assert!(listed("d") && !listed("e"));
        // Later there is one more, and one that was found is listed.
        manifest.take_up(["a", "c", "d", "g", "h"].map(|id| revision(id, true)).to_vec());
        assert_eq!(ids(&manifest), ["a", "b", "c", "d", "e", "g", "h"]);
        assert!(manifest.revision("c").is_some_and(|one| one.listed));
    }

    #[test]
    fn other_schema_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = manifest(&["a"]);
        manifest.write(dir.path()).unwrap();
        assert_eq!(BatchManifest::read(dir.path()).unwrap(), manifest);
        let path = dir.path().join(NAME);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen("\"schema\": 3", "\"schema\": 7", 1)).unwrap();
        let error = BatchManifest::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("has schema 7, but this version reads 3"), "{error}");
    }
}
