//! The settings and revisions of a batch: `batch.json`.

use crate::config::Settings;
use crate::inputs::Inputs;
use crate::repository::{Revision, is_used, unique_name};
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use tollgate_records::error::{bad_input, io_error};
use tollgate_records::files::write_json;

pub const SCHEMA: u32 = 4;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchManifest {
    pub schema: u32,
    /// Version and commit of tollgate.
    pub tollgate: String,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// Words of the first command.
    pub command: Vec<String>,
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
    pub fn read(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(NAME);
        if !path.is_file() {
            let dir = dir.display();
            return Err(bad_input(format!(
                "{dir} is not a batch: no {NAME}; create one with `tollgate batch run`"
            )));
        }
        let text = fs::read_to_string(&path).map_err(io_error("read", &path))?;
        let damaged =
            || format!("{} is damaged; restore the file, or start a new batch", path.display());
        let value: serde_json::Value = serde_json::from_str(&text).with_context(damaged)?;
        match value["schema"].as_u64() {
            Some(schema) if schema == u64::from(SCHEMA) => {}
            schema => {
                let schema = schema.map_or("none".to_owned(), |schema| schema.to_string());
                return Err(bad_input(format!(
                    "{} has schema {schema}, but this version reads {SCHEMA}; use the version of \
                     tollgate that wrote it",
                    path.display()
                )));
            }
        }
        serde_json::from_value(value).with_context(damaged)
    }

    pub fn write(&self, dir: &Path) -> anyhow::Result<()> {
        write_json(&dir.join(NAME), self)
    }

    pub fn is_in(dir: &Path) -> bool {
        dir.join(NAME).is_file()
    }

    /// Describes the difference to another catalog.
    pub(crate) fn other_catalog(&self, other: &[PathBuf]) -> Option<String> {
        let folders = |catalog: &[PathBuf]| {
            let folders: Vec<String> =
                catalog.iter().map(|folder| folder.display().to_string()).collect();
            folders.join(":")
        };
        (self.catalog != other)
            .then(|| format!("catalog: {}, now {}", folders(&self.catalog), folders(other)))
    }

    pub fn revision(&self, id: &str) -> Option<&Revision> {
        self.revisions.iter().find(|revision| revision.id == id)
    }

    /// Replaces the listed revisions. Revisions found by bisection keep their place.
    pub fn update_listed(&mut self, listed: Vec<Revision>) {
        let before = std::mem::replace(&mut self.revisions, listed);
        for (index, revision) in before.iter().enumerate() {
            if !revision.listed && self.revision(&revision.id).is_none() {
                let places =
                    before[..index].iter().rev().map(|earlier| self.place_after(&earlier.id));
                let place = places.flatten().next().unwrap_or(0);
                self.insert(place, revision.clone());
            }
        }
    }

    /// Adds the unknown commits between two revisions.
    pub fn add_between(&mut self, after: &str, commits: &[Revision]) {
        let mut place = self.place_after(after).unwrap_or(0);
        for commit in commits {
            if self.revision(&commit.id).is_none() {
                self.insert(place, commit.clone());
            }
            place = self.place_after(&commit.id).unwrap_or(place);
        }
    }

    fn place_after(&self, id: &str) -> Option<usize> {
        self.revisions.iter().position(|revision| revision.id == id).map(|place| place + 1)
    }

    fn insert(&mut self, place: usize, revision: Revision) {
        let name = unique_name(&revision.name, |name| is_used(&self.revisions, name));
        self.revisions.insert(place, Revision { name, ..revision });
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
            command: Vec::new(),
            directory: PathBuf::new(),
            catalog: Vec::new(),
            seed: 1,
            settings: Settings::for_tests("true"),
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
        manifest.update_listed(["a", "c", "d", "g", "h"].map(|id| revision(id, true)).to_vec());
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
        fs::write(&path, text.replacen("\"schema\": 4", "\"schema\": 7", 1)).unwrap();
        let error = BatchManifest::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("has schema 7, but this version reads 4"), "{error}");
    }
}
