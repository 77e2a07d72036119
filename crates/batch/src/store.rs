//! The directory of a batch: records of builds and rounds, one JSON object per line, and the paths of its parts.

use crate::manifest::BatchManifest;
use crate::repository::unique_name;
use anyhow::Context;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, DirEntry, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use tollgate_records::error::{bad_input, io_error};
use tollgate_records::files::{Log, complete_lines};
use tollgate_records::run_dir::RunRecords;

pub const SCHEMA: u32 = 3;

/// A line of `builds.ndjson`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BuildRecord {
    pub schema: u32,
    /// Hash of sources, command and tools.
    pub key: String,
    pub revision: String,
    /// RFC 3339, UTC.
    pub ended_at: String,
    pub duration_s: f64,
    pub outcome: BuildOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BuildOutcome {
    Built {
        /// SHA-256 over names, contents and executable bits of its files.
        product: String,
        /// Name of its folder in `products/`.
        folder: String,
    },
    Failed(ProductFailure),
    TimedOut(ProductFailure),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProductFailure {
    /// One line.
    pub reason: String,
    /// Last lines of the output.
    pub log: Vec<String>,
}

impl ProductFailure {
    /// Divides a text into the reason and further lines.
    pub(crate) fn of_text(text: &str) -> Self {
        let mut lines = text.lines().map(str::to_owned);
        Self { reason: lines.next().unwrap_or_default(), log: lines.collect() }
    }

    /// Returns the reason and the log.
    pub(crate) fn lines(&self) -> Vec<String> {
        std::iter::once(&self.reason).chain(&self.log).cloned().collect()
    }
}

/// A line of `probes.ndjson`: the first start of a product.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeRecord {
    pub schema: u32,
    pub product: String,
    /// `None`: it passed.
    pub failure: Option<ProductFailure>,
}

/// A line of `rounds.ndjson`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoundRecord {
    Started(Round),
    Ended {
        round: u32,
        reason: String,
        /// Node of a cluster; `None`: the machine of the batch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
    },
}

impl RoundRecord {
    pub(crate) fn started(&self) -> Option<&Round> {
        match self {
            Self::Started(round) => Some(round),
            Self::Ended { .. } => None,
        }
    }
}

/// A run with the anchor and some products.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    pub schema: u32,
    /// From 1; the name of its folder.
    pub round: u32,
    pub purpose: Purpose,
    /// Product of each subject, including the anchor.
    pub products: BTreeMap<String, String>,
    /// For a product that runs twice: the second subject and the first.
    #[serde(default)]
    pub duplicates: BTreeMap<String, String>,
    pub blocks: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    Series,
    Bisection,
    /// A candidate beside its parent.
    Confirmation {
        parent: String,
        /// Product of the first bad revision.
        first_bad: String,
    },
}

/// A log with its records in memory.
#[derive(Debug)]
pub(crate) struct RecordFile<T> {
    path: PathBuf,
    log: Log,
    lines: Vec<T>,
}

impl<T: Serialize + DeserializeOwned> RecordFile<T> {
    /// Opens or creates the file and removes an incomplete last line.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let failed = io_error("open", path);
        let mut log = Log::open_or_create(path).map_err(&failed)?;
        let text = log.repair().map_err(failed)?;
        Ok(Self { path: path.to_owned(), log, lines: parse(path, &text)? })
    }

    pub(crate) fn lines(&self) -> &[T] {
        &self.lines
    }

    /// Appends a record and syncs it to disk.
    pub(crate) fn add(&mut self, record: T) -> anyhow::Result<()> {
        self.log.append(&record).map_err(io_error("append to", &self.path))?;
        self.lines.push(record);
        Ok(())
    }
}

/// Reads the complete lines of a file that another process may be appending to.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Vec<T>> {
    if !path.is_file() {
        return Ok(Vec::new());
    }
    parse(path, &fs::read(path).map_err(io_error("read", path))?)
}

fn parse<T: DeserializeOwned>(path: &Path, text: &[u8]) -> anyhow::Result<Vec<T>> {
    complete_lines(text)
        .0
        .map(|(line, text)| {
            serde_json::from_slice(text).with_context(|| {
                let path = path.display();
                format!("{path}:{line} is damaged; restore the file, or start a new batch")
            })
        })
        .collect()
}

/// The directory of a batch, locked by this process.
#[derive(Debug)]
pub(crate) struct BatchDir {
    path: PathBuf,
    _lock: File,
}

/// Records of a batch, from which all its figures are made.
#[derive(Debug, Clone, Copy)]
pub struct BatchRecords<'a> {
    pub manifest: &'a BatchManifest,
    pub builds: &'a [BuildRecord],
    pub probes: &'a [ProbeRecord],
    pub rounds: &'a [RoundRun],
}

/// The records of a batch that another process may be running.
#[derive(Debug)]
pub struct StoredBatch {
    manifest: BatchManifest,
    builds: Vec<BuildRecord>,
    probes: Vec<ProbeRecord>,
    rounds: Vec<RoundRun>,
}

#[derive(Debug)]
pub struct RoundRun {
    pub round: Round,
    pub run: RunRecords,
}

impl BatchDir {
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let is_foreign = path.is_dir()
            && !BatchManifest::is_in(path)
            && !path.join(LOCK).is_file()
            && fs::read_dir(path).is_ok_and(|mut entries| !entries.all(is_unused_folder));
        if is_foreign || path.is_file() {
            let path = path.display();
            return Err(bad_input(format!(
                "{path} exists and is not a batch; choose another --out"
            )));
        }
        for folder in FOLDERS {
            let folder = path.join(folder);
            fs::create_dir_all(&folder).map_err(io_error("create", &folder))?;
        }
        let path = path.canonicalize().map_err(io_error("resolve", path))?;
        let lock_path = path.join(LOCK);
        let lock = File::create(&lock_path).map_err(io_error("open", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let path = path.display();
                return Err(bad_input(format!(
                    "{path} is in use by another process; wait until it has finished"
                )));
            }
            Err(TryLockError::Error(error)) => return Err(io_error("lock", &lock_path)(error)),
        }
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn builds(&self) -> PathBuf {
        self.path.join(BUILDS)
    }

    pub(crate) fn probes(&self) -> PathBuf {
        self.path.join(PROBES)
    }

    pub(crate) fn rounds(&self) -> PathBuf {
        self.path.join(ROUND_LIST)
    }

    /// Worktree of the current build; always the same path, so that equal sources give equal products.
    pub(crate) fn sources(&self) -> PathBuf {
        self.path.join("source")
    }

    pub(crate) fn repository(&self) -> PathBuf {
        self.path.join("repository.git")
    }

    /// Copy of the files for a list of versions.
    pub(crate) fn files(&self) -> PathBuf {
        self.path.join("files")
    }

    /// The experiment, configs and logs of the last probe.
    pub(crate) fn probe(&self) -> PathBuf {
        self.path.join("probe")
    }

    /// The experiment with only the anchor, and its rendered configs.
    pub(crate) fn inputs(&self) -> PathBuf {
        self.path.join("inputs")
    }

    pub(crate) fn product(&self, folder: &str) -> PathBuf {
        self.path.join(PRODUCTS).join(folder)
    }

    /// Creates a folder for a product and returns its name: a new one for each attempt, as a process of a killed attempt may
    /// still write to the last one. Removes the folders of unfinished attempts.
    pub(crate) fn new_product(&self, key: &str, builds: &[BuildRecord]) -> anyhow::Result<String> {
        let name = unique_name(key, |name| self.product(name).exists());
        let path = self.product(&name);
        fs::create_dir(&path).map_err(io_error("create", &path))?;
        self.remove_unfinished(key, &name, builds)?;
        Ok(name)
    }

    /// Removes other folders of a key that are not products.
    fn remove_unfinished(
        &self,
        key: &str,
        but: &str,
        builds: &[BuildRecord],
    ) -> anyhow::Result<()> {
        let all = self.path.join(PRODUCTS);
        for entry in fs::read_dir(&all).map_err(io_error("read", &all))? {
            let entry = entry.map_err(io_error("read", &all))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_of_key = name.strip_prefix(key).is_some_and(|rest| {
                rest.is_empty()
                    || rest.strip_prefix('-').is_some_and(|number| number.parse::<u64>().is_ok())
            });
            let is_product = |build: &BuildRecord| matches!(&build.outcome, BuildOutcome::Built { folder, .. } if *folder == name);
            if is_of_key && name != but && !builds.iter().any(is_product) {
                // Fails if a process still writes to it; the next attempt retries.
                fs::remove_dir_all(entry.path()).ok();
            }
        }
        Ok(())
    }

    pub(crate) fn log(&self, key: &str) -> PathBuf {
        self.path.join(LOGS).join(format!("{key}.log"))
    }

    pub(crate) fn round(&self, number: u32) -> PathBuf {
        self.path.join(ROUNDS).join(round_name(number))
    }

    /// Records of a round while they are fetched from a node.
    pub(crate) fn fetched_round(&self, number: u32) -> PathBuf {
        self.path.join(ROUNDS).join(format!("{}.new", round_name(number)))
    }

    pub(crate) fn experiment(&self, number: u32) -> PathBuf {
        self.path.join(ROUNDS).join(format!("{}.toml", round_name(number)))
    }
}

impl StoredBatch {
    /// Reads the directory of a batch, which may be in use.
    pub fn read(dir: &Path) -> anyhow::Result<Self> {
        let manifest = BatchManifest::read(dir)?;
        let builds = read(&dir.join(BUILDS))?;
        let probes = read(&dir.join(PROBES))?;
        let rounds: Vec<RoundRecord> = read(&dir.join(ROUND_LIST))?;
        Ok(Self { manifest, builds, probes, rounds: runs(dir, &rounds)? })
    }

    pub fn records(&self) -> BatchRecords<'_> {
        let Self { manifest, builds, probes, rounds } = self;
        BatchRecords { manifest, builds, probes, rounds }
    }
}

impl<'a> BatchRecords<'a> {
    pub(crate) fn failed_probe(&self, product: &str) -> Option<&'a ProductFailure> {
        self.probes.iter().rev().find(|probe| probe.product == product)?.failure.as_ref()
    }

    pub(crate) fn build(&self, revision: &str) -> Option<&'a BuildRecord> {
        self.builds.iter().rev().find(|build| build.revision == revision)
    }

    /// Groups the rounds by the products of their subjects.
    pub(crate) fn by_product(&self) -> BTreeMap<&'a str, Vec<(&'a RoundRun, &'a str)>> {
        let mut found: BTreeMap<&str, Vec<(&RoundRun, &str)>> = BTreeMap::new();
        for run in self.rounds {
            for (subject, product) in &run.round.products {
                found.entry(product).or_default().push((run, subject));
            }
        }
        found
    }
}

/// True for an empty folder of a batch that was killed before it created its lock.
fn is_unused_folder(entry: io::Result<DirEntry>) -> bool {
    entry.is_ok_and(|entry| {
        FOLDERS.into_iter().any(|name| entry.file_name() == name)
            && fs::read_dir(entry.path()).is_ok_and(|mut entries| entries.next().is_none())
    })
}

pub fn round_name(number: u32) -> String {
    format!("{number:03}")
}

const PRODUCTS: &str = "products";
const LOGS: &str = "builds";
const ROUNDS: &str = "rounds";
const FOLDERS: [&str; 3] = [PRODUCTS, LOGS, ROUNDS];
const LOCK: &str = "lock";
const BUILDS: &str = "builds.ndjson";
const PROBES: &str = "probes.ndjson";
const ROUND_LIST: &str = "rounds.ndjson";

/// Reads the trials of all rounds.
pub(crate) fn runs(dir: &Path, rounds: &[RoundRecord]) -> anyhow::Result<Vec<RoundRun>> {
    let mut runs = Vec::new();
    for round in rounds.iter().filter_map(RoundRecord::started) {
        let path = dir.join(ROUNDS).join(round_name(round.round));
        // A round that was killed before its first trial has no run.
        if path.join("manifest.json").is_file() {
            runs.push(RoundRun { run: RunRecords::read(&path)?, round: round.clone() });
        }
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_last_line_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("builds.ndjson");
        let mut records: RecordFile<String> = RecordFile::open(&path).unwrap();
        records.add("one".to_owned()).unwrap();
        fs::write(&path, "\"one\"\n\"tw").unwrap();
        assert_eq!(read::<String>(&path).unwrap(), ["one"]);
        let mut records: RecordFile<String> = RecordFile::open(&path).unwrap();
        records.add("three".to_owned()).unwrap();
        assert_eq!(records.lines(), ["one", "three"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "\"one\"\n\"three\"\n");
    }

    #[test]
    fn damaged_line_is_an_error_with_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("builds.ndjson");
        fs::write(&path, "\"one\"\n{\n\"two\"\n").unwrap();
        let error = RecordFile::<String>::open(&path).unwrap_err().to_string();
        assert!(error.contains("builds.ndjson:2 is damaged"), "{error}");
    }
}

#[cfg(test)]
mod dir_tests {
    use super::*;
    use crate::store::SCHEMA;

    #[test]
    fn opens_a_batch_killed_at_its_start_but_no_other_directory() {
        let tmp = tempfile::tempdir().unwrap();
        let unfinished = tmp.path().join("unfinished");
        fs::create_dir_all(unfinished.join(PRODUCTS)).unwrap();
        drop(BatchDir::open(&unfinished).unwrap());
        assert!(unfinished.join(LOCK).is_file());
        for (name, file) in [("mine", "notes"), ("theirs", "builds/a/build.toml")] {
            let path = tmp.path().join(name);
            fs::create_dir_all(path.join(file).parent().unwrap()).unwrap();
            fs::write(path.join(file), "").unwrap();
            let error = BatchDir::open(&path).unwrap_err().to_string();
            assert!(error.ends_with("is not a batch; choose another --out"), "{error}");
            assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "nothing is made in {name}");
        }
    }

    #[test]
    fn each_build_attempt_gets_its_own_folder() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = BatchDir::open(&tmp.path().join("batch")).unwrap();
        let first = dir.new_product("abc", &[]).unwrap();
        assert_eq!(first, "abc");
        // After a kill, the next attempt gets another folder, and the first one is removed.
        fs::write(dir.product(&first).join("half"), "").unwrap();
        let second = dir.new_product("abc", &[]).unwrap();
        assert_eq!(second, "abc-2");
        assert!(!dir.product(&first).exists());
        let record = BuildRecord {
            schema: SCHEMA,
            key: "abc".to_owned(),
            revision: "r".to_owned(),
            ended_at: String::new(),
            duration_s: 1.0,
            outcome: BuildOutcome::Built { product: "p".to_owned(), folder: second.clone() },
        };
        let builds = [record];
        // Folders of other keys and recorded products stay.
        fs::create_dir(dir.product("abcd")).unwrap();
        fs::create_dir(dir.product("abc-d")).unwrap();
        assert_eq!(dir.new_product("abc", &builds).unwrap(), "abc");
        assert_eq!(dir.new_product("abc", &builds).unwrap(), "abc-3");
        for (name, stays) in
            [("abc", false), ("abc-2", true), ("abc-3", true), ("abcd", true), ("abc-d", true)]
        {
            assert_eq!(dir.product(name).is_dir(), stays, "{name}");
        }
    }
}
