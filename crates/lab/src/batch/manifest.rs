//! What a batch is: its settings and its revisions, in `batch.json`.

use super::revision::Revision;
use super::settings::Settings;
use super::{BatchError, io_error};
use crate::whole_file;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// The version of this shape; a reader refuses what it does not know.
pub const SCHEMA: u32 = 1;

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
    /// The folders in which experiments, systems and mixes are looked for.
    pub catalog: Vec<PathBuf>,
    /// The seed of every random choice.
    pub seed: u64,
    /// What is done with each revision.
    pub settings: Settings,
    /// The id of the revision that every block runs too; none until one is known that can be built.
    pub anchor: Option<String>,
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
