//! The directory of a batch: what it did so far, and where its parts are.

use super::journal::{self, Journal};
use super::manifest::BatchManifest;
use super::records::{BuildOutcome, BuildRecord, Round, RoundRecord};
use super::{BatchError, io_error};
use crate::run_dir::RunRecords;
use std::collections::BTreeMap;
use std::fs::{self, DirEntry, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The directory of a batch that this process alone adds to.
#[derive(Debug)]
pub(super) struct BatchDir {
    path: PathBuf,
    /// Held until the value is dropped.
    _lock: File,
    pub(super) builds: Journal<BuildRecord>,
    pub(super) rounds: Journal<RoundRecord>,
}

/// All that is on record of a batch.
#[derive(Debug)]
pub struct BatchRecords {
    /// What it is.
    pub manifest: BatchManifest,
    /// Its builds, in their order.
    pub builds: Vec<BuildRecord>,
    /// Its rounds, in their order, each with its run where there is one.
    pub rounds: Vec<RoundRun>,
}

/// A round with its records.
#[derive(Debug)]
pub struct RoundRun {
    /// The round.
    pub round: Round,
    /// Its run.
    pub run: RunRecords,
}

impl BatchDir {
    /// Makes the directory, or opens it where it is there.
    pub(super) fn open(path: &Path) -> Result<Self, BatchError> {
        let is_strange = path.is_dir()
            && !BatchManifest::is_in(path)
            && !path.join(LOCK).is_file()
            && fs::read_dir(path).is_ok_and(|mut entries| !entries.all(is_of_the_beginning));
        if is_strange || path.is_file() {
            let path = path.display();
            return Err(BatchError::Asked(format!(
                "{path} is there and holds no batch; choose another --out"
            )));
        }
        for folder in FOLDERS {
            let folder = path.join(folder);
            fs::create_dir_all(&folder).map_err(io_error("making", &folder))?;
        }
        let path = path.canonicalize().map_err(io_error("finding", path))?;
        let lock_path = path.join(LOCK);
        let lock = File::create(&lock_path).map_err(io_error("opening", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let path = path.display();
                return Err(BatchError::Asked(format!(
                    "{path} is in use by another process; wait for its end"
                )));
            }
            Err(TryLockError::Error(error)) => return Err(io_error("locking", &lock_path)(error)),
        }
        let builds = Journal::open(&path.join(BUILDS))?;
        let rounds = Journal::open(&path.join(ROUND_LIST))?;
        Ok(Self { path, _lock: lock, builds, rounds })
    }

    /// The directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the sources of a build are: always the same, so that equal sources make equal products.
    pub(super) fn sources(&self) -> PathBuf {
        self.path.join("source")
    }

    /// The clone of the repository.
    pub(super) fn repository(&self) -> PathBuf {
        self.path.join("repository.git")
    }

    /// The files that come with a list of versions, as they were taken.
    pub(super) fn files(&self) -> PathBuf {
        self.path.join("files")
    }

    /// What the anchor's system would get of all that is measured with: its experiment, and its configs.
    pub(super) fn inputs(&self) -> PathBuf {
        self.path.join("inputs")
    }

    /// The folder of what a build made.
    pub(super) fn product(&self, folder: &str) -> PathBuf {
        self.path.join(PRODUCTS).join(folder)
    }

    /// Makes a folder for what a build will make, and tells its name: a new one for each attempt, as something
    /// that a kill left behind may still write to the last one. What is left of those goes.
    pub(super) fn new_product(&self, key: &str) -> Result<String, BatchError> {
        let mut attempt = 1;
        let name = loop {
            let name = if attempt == 1 { key.to_owned() } else { format!("{key}-{attempt}") };
            let path = self.product(&name);
            match fs::create_dir(&path) {
                Ok(()) => break name,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => attempt += 1,
                Err(error) => return Err(io_error("making", &path)(error)),
            }
        };
        self.remove_unfinished(key, &name)?;
        Ok(name)
    }

    /// Removes the folders of a key that are no product and not this one.
    fn remove_unfinished(&self, key: &str, but: &str) -> Result<(), BatchError> {
        let all = self.path.join(PRODUCTS);
        for entry in fs::read_dir(&all).map_err(io_error("reading", &all))? {
            let entry = entry.map_err(io_error("reading", &all))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_of_key = name.strip_prefix(key).is_some_and(|rest| {
                rest.is_empty()
                    || rest.strip_prefix('-').is_some_and(|number| number.parse::<u64>().is_ok())
            });
            let is_product = |build: &BuildRecord| matches!(&build.outcome, BuildOutcome::Built { folder, .. } if *folder == name);
            if is_of_key && name != but && !self.builds.lines().iter().any(is_product) {
                // Where something still writes to it, it stays and costs its space until the next attempt.
                fs::remove_dir_all(entry.path()).ok();
            }
        }
        Ok(())
    }

    /// The file of what a build prints.
    pub(super) fn log(&self, key: &str) -> PathBuf {
        self.path.join(LOGS).join(format!("{key}.log"))
    }

    /// The directory of a round's run.
    pub(super) fn round(&self, number: u32) -> PathBuf {
        self.path.join(ROUNDS).join(round_name(number))
    }

    /// The experiment of a round.
    pub(super) fn experiment(&self, number: u32) -> PathBuf {
        self.path.join(ROUNDS).join(format!("{}.toml", round_name(number)))
    }

    /// All rounds that were begun.
    pub(super) fn begun(&self) -> impl Iterator<Item = &Round> {
        begun(self.rounds.lines())
    }

    /// Whether nothing will be added to a round.
    pub(super) fn has_ended(&self, number: u32) -> bool {
        let ends = |record: &RoundRecord| matches!(record, RoundRecord::Ended { round, .. } if *round == number);
        self.rounds.lines().iter().any(ends)
    }

    /// All that is on record.
    pub(super) fn records(&self, manifest: &BatchManifest) -> Result<BatchRecords, BatchError> {
        let rounds = self.begun().cloned().collect();
        records(&self.path, manifest.clone(), self.builds.lines().to_vec(), rounds)
    }
}

impl BatchRecords {
    /// Reads the directory of a batch, which somebody may be adding to.
    ///
    /// # Errors
    ///
    /// It is none, or a file of it cannot be read.
    pub fn read(dir: &Path) -> Result<Self, BatchError> {
        let manifest = BatchManifest::read(dir)?;
        let builds = journal::read(&dir.join(BUILDS))?;
        let rounds: Vec<RoundRecord> = journal::read(&dir.join(ROUND_LIST))?;
        records(dir, manifest, builds, begun(&rounds).cloned().collect())
    }

    /// What came last of building a revision.
    pub fn build(&self, revision: &str) -> Option<&BuildRecord> {
        self.builds.iter().rev().find(|build| build.revision == revision)
    }

    /// The rounds by the product of each of their subjects.
    pub fn by_product(&self) -> BTreeMap<&str, Vec<(&RoundRun, &str)>> {
        let mut found: BTreeMap<&str, Vec<(&RoundRun, &str)>> = BTreeMap::new();
        for run in &self.rounds {
            for (subject, product) in &run.round.products {
                found.entry(product).or_default().push((run, subject));
            }
        }
        found
    }
}

/// Whether this is all that one that was killed before it had a lock has made: it begins with empty folders.
fn is_of_the_beginning(entry: io::Result<DirEntry>) -> bool {
    let is_one = |entry: &DirEntry| FOLDERS.into_iter().any(|name| entry.file_name() == name);
    let is_empty = |entry: DirEntry| {
        fs::read_dir(entry.path()).is_ok_and(|mut entries| entries.next().is_none())
    };
    entry.is_ok_and(|entry| is_one(&entry) && is_empty(entry))
}

/// What the folder of a round is called.
pub fn round_name(number: u32) -> String {
    format!("{number:03}")
}

const PRODUCTS: &str = "products";
const LOGS: &str = "builds";
const ROUNDS: &str = "rounds";
const FOLDERS: [&str; 3] = [PRODUCTS, LOGS, ROUNDS];
const LOCK: &str = "lock";
const BUILDS: &str = "builds.ndjson";
const ROUND_LIST: &str = "rounds.ndjson";

fn begun(rounds: &[RoundRecord]) -> impl Iterator<Item = &Round> {
    rounds.iter().filter_map(|record| match record {
        RoundRecord::Begun(round) => Some(round),
        RoundRecord::Ended { .. } => None,
    })
}

fn records(
    dir: &Path,
    manifest: BatchManifest,
    builds: Vec<BuildRecord>,
    rounds: Vec<Round>,
) -> Result<BatchRecords, BatchError> {
    let mut runs = Vec::new();
    for round in rounds {
        let path = dir.join(ROUNDS).join(round_name(round.round));
        // One that was cut off before its first trial has nothing to tell.
        if path.join("manifest.json").is_file() {
            runs.push(RoundRun { run: RunRecords::read(&path)?, round });
        }
    }
    Ok(BatchRecords { manifest, builds, rounds: runs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::records::SCHEMA;

    #[test]
    fn a_batch_that_was_killed_as_it_began_goes_on_and_what_is_none_is_left_alone() {
        let tmp = tempfile::tempdir().unwrap();
        let begun = tmp.path().join("begun");
        fs::create_dir_all(begun.join(PRODUCTS)).unwrap();
        drop(BatchDir::open(&begun).unwrap());
        assert!(begun.join(LOCK).is_file());
        for (name, file) in [("mine", "notes"), ("theirs", "builds/a/build.toml")] {
            let path = tmp.path().join(name);
            fs::create_dir_all(path.join(file).parent().unwrap()).unwrap();
            fs::write(path.join(file), "").unwrap();
            let error = BatchDir::open(&path).unwrap_err().to_string();
            assert!(error.ends_with("holds no batch; choose another --out"), "{error}");
            assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "nothing is made in {name}");
        }
    }

    #[test]
    fn each_attempt_of_a_build_has_a_folder_that_nobody_else_writes_to() {
        let tmp = tempfile::tempdir().unwrap();
        let mut dir = BatchDir::open(&tmp.path().join("batch")).unwrap();
        let first = dir.new_product("abc").unwrap();
        assert_eq!(first, "abc");
        // Killed, and tried again: another folder, and what the first attempt left is gone.
        fs::write(dir.product(&first).join("half"), "").unwrap();
        let second = dir.new_product("abc").unwrap();
        assert_eq!(second, "abc-2");
        assert!(!dir.product(&first).exists());
        let record = BuildRecord {
            schema: SCHEMA,
            key: "abc".to_owned(),
            revision: "r".to_owned(),
            ended_at: String::new(),
            took_s: 1.0,
            outcome: BuildOutcome::Built { product: "p".to_owned(), folder: second.clone() },
        };
        dir.builds.add(record).unwrap();
        // Those of other keys, and what is on record as a product, stay.
        fs::create_dir(dir.product("abcd")).unwrap();
        fs::create_dir(dir.product("abc-d")).unwrap();
        assert_eq!(dir.new_product("abc").unwrap(), "abc");
        assert_eq!(dir.new_product("abc").unwrap(), "abc-3");
        for (name, stays) in
            [("abc", false), ("abc-2", true), ("abc-3", true), ("abcd", true), ("abc-d", true)]
        {
            assert_eq!(dir.product(name).is_dir(), stays, "{name}");
        }
    }
}
