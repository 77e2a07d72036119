//! A run's directory: the manifest, the records, the configs, the logs and the reports.
//!
//! A record is on disk before the next trial starts, so that whatever ends a run, every finished
//! trial is there.

use crate::atomic_write;
use crate::manifest::{self, Manifest};
use crate::record::{self, TrialRecord};
use crate::search_file::{self, SearchRecord};
use flate2::read::MultiGzDecoder;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;

/// The directory of a run that is under way.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    trials: File,
}

/// A run as its directory has it.
#[derive(Debug, Clone)]
pub struct RunRecords {
    /// What was to be run, and on what.
    pub manifest: Manifest,
    /// The trials that were finished.
    pub trials: Vec<TrialRecord>,
    /// Whether the last line was cut off, as when the machine or the tool was killed in the middle
    /// of writing it.
    pub cut_off: bool,
}

/// Why a run's directory cannot be used.
#[derive(Debug, Error)]
pub enum RunDirError {
    /// It is there already.
    #[error("{path} is there already and is not empty; choose another --out, or remove it")]
    Taken {
        /// The directory.
        path: PathBuf,
    },
    /// Another process writes to it.
    #[error("{path} is in use by another run; wait for its end")]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// Its name cannot stand in the config of a server.
    #[error(
        "{path:?} holds a quote, a backslash or a line break, which configs cannot hold; choose another --out"
    )]
    Unusable {
        /// The directory.
        path: PathBuf,
    },
    /// It is not there.
    #[error("there is no directory {path}")]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// It is a file.
    #[error("{path} is a file, not a directory{hint}")]
    AFile {
        /// The file.
        path: PathBuf,
        /// What to do next.
        hint: &'static str,
    },
    /// It cannot be made.
    #[error("making {path}, for which another place can be chosen with --out")]
    NotMade {
        /// The directory, or what is in it from the beginning.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A trial cannot be put on record.
    #[error("adding a trial to {path}; those before it are kept")]
    NotKept {
        /// The file of the records.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It holds a search, whose trials are at different rates.
    #[error("{path} holds a search, not a run; `tollgate report {path}` shows it")]
    ASearch {
        /// The directory.
        path: PathBuf,
    },
    /// It holds no run.
    #[error("{path} is not a run's directory: it has no {MANIFEST}")]
    NotARun {
        /// The directory.
        path: PathBuf,
    },
    /// It holds a run that was ended before it had a manifest, and so before its first trial.
    #[error(
        "{path} holds a run that ended before its first trial; remove it, and start the run anew"
    )]
    NeverBegan {
        /// The directory.
        path: PathBuf,
    },
    /// Its records are packed, and a run cannot add to them.
    #[error(
        "the trials in {path} are packed, as a run's are that has ended; to go on with it: gunzip {path}"
    )]
    Packed {
        /// The file of the records.
        path: PathBuf,
    },
    /// More comes out of a packed file than a run ever has.
    #[error(
        "{path} holds more than 1 GiB of trials, which no run has; put back a copy of the file"
    )]
    TooLarge {
        /// The file of the records.
        path: PathBuf,
    },
    /// A file cannot be written or read.
    #[error("{doing} {path}")]
    Io {
        /// Writing or reading.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error(
        "{path}:{line} is not what tollgate wrote there; put back a copy of the file, or start anew"
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
    /// A file was written by another version.
    #[error(
        "{path}:{line} has schema {found}, and this version reads {known}; use the version of tollgate that wrote it"
    )]
    Schema {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Its schema.
        found: u32,
        /// The schema that is read.
        known: u32,
    },
}

impl RunDir {
    /// Makes the directory of a new run, with its manifest.
    ///
    /// # Errors
    ///
    /// It is there already and not empty, or it cannot be written.
    pub fn create(path: &Path) -> Result<Self, RunDirError> {
        if let Some(file) = path.ancestors().find(|part| part.is_file()) {
            let hint = "; choose another --out";
            return Err(RunDirError::AFile { path: file.to_owned(), hint });
        }
        if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(RunDirError::Taken { path: path.to_owned() });
        }
        let not_made = |path: &Path| {
            let path = path.to_owned();
            move |source| RunDirError::NotMade { path, source }
        };
        // Before anything is made, so that nothing of it is left when it cannot be used.
        let place = std::path::absolute(path).map_err(not_made(path))?;
        usable(&place)?;
        for folder in [CONFIGS, LOGS] {
            let folder = path.join(folder);
            fs::create_dir_all(&folder).map_err(not_made(&folder))?;
        }
        let path = path.canonicalize().map_err(io_error("finding", path))?;
        usable(&path)?;
        let trials = path.join(TRIALS);
        let made = OpenOptions::new().create_new(true).append(true).open(&trials);
        let trials = made.map_err(|error| match error.kind() {
            // Another run was faster.
            io::ErrorKind::AlreadyExists => RunDirError::Taken { path: path.clone() },
            _ => not_made(&trials)(error),
        })?;
        lock(&path, &trials)?;
        Ok(Self { path, trials })
    }

    /// Opens the directory of a run that is to go on. A record that was cut off is removed: its trial
    /// will be run again.
    ///
    /// # Errors
    ///
    /// Another process writes to it, or it cannot be written.
    pub fn open(path: &Path) -> Result<Self, RunDirError> {
        let path = path.canonicalize().map_err(io_error("finding", path))?;
        let file = path.join(TRIALS);
        let packed = path.join(PACKED_TRIALS);
        if !file.is_file() && packed.is_file() {
            return Err(RunDirError::Packed { path: packed });
        }
        let failed = io_error("opening", &file);
        let trials = OpenOptions::new().read(true).append(true).open(&file).map_err(&failed)?;
        lock(&path, &trials)?;
        let text = fs::read(&file).map_err(&failed)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        trials.set_len(whole as u64).map_err(&failed)?;
        trials.sync_all().map_err(failed)?;
        Ok(Self { path, trials })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder that has a folder of configs for each subject.
    pub fn configs(&self) -> PathBuf {
        self.path.join(CONFIGS)
    }

    /// The folder for what processes print.
    pub fn logs(&self) -> PathBuf {
        self.path.join(LOGS)
    }

    /// Writes the manifest.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write_manifest(&self, manifest: &Manifest) -> Result<(), RunDirError> {
        self.write_json(MANIFEST, manifest)
    }

    /// Writes what a search is to find, which also says that this is one.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write_search(&self, terms: &SearchRecord) -> Result<(), RunDirError> {
        self.write_json(SEARCH, terms)
    }

    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), RunDirError> {
        let path = self.path.join(name);
        let failed = io_error("writing", &path);
        let text = serde_json::to_string_pretty(value).map_err(|error| failed(error.into()))?;
        atomic_write::write(&path, &text).map_err(failed)
    }

    /// Adds a record; when this returns, it is on disk.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn append(&mut self, record: &TrialRecord) -> Result<(), RunDirError> {
        let path = self.path.join(TRIALS);
        let failed = |source| RunDirError::NotKept { path: path.clone(), source };
        let mut line = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        // One write, so that a record is there whole or cut off at the end of the file.
        self.trials.write_all(&line).map_err(failed)?;
        self.trials.sync_data().map_err(failed)
    }
}

impl RunRecords {
    /// Reads a run's directory.
    ///
    /// # Errors
    ///
    /// It is not one, or a file of it cannot be read or was written by another version.
    pub fn read(dir: &Path) -> Result<Self, RunDirError> {
        match is_search(dir) {
            true => Err(RunDirError::ASearch { path: dir.to_owned() }),
            false => read_records(dir),
        }
    }
}

/// Whether a directory is a search's and not a run's.
pub fn is_search(dir: &Path) -> bool {
    dir.join(SEARCH).is_file()
}

/// Reads what the search in a directory was to find.
///
/// # Errors
///
/// It is not there, cannot be read, or was written by another version.
pub fn read_search(dir: &Path) -> Result<SearchRecord, RunDirError> {
    let path = dir.join(SEARCH);
    let text = fs::read(&path).map_err(io_error("reading", &path))?;
    parse(&path, 1, &text, search_file::SCHEMA)
}

/// Reads the manifest and the records of a run or a search.
///
/// # Errors
///
/// There are none, or a file cannot be read or was written by another version.
pub fn read_records(dir: &Path) -> Result<RunRecords, RunDirError> {
    let path = dir.join(MANIFEST);
    if dir.is_file() {
        let hint = "; name the directory of a run";
        return Err(RunDirError::AFile { path: dir.to_owned(), hint });
    }
    if !dir.is_dir() {
        return Err(RunDirError::Missing { path: dir.to_owned() });
    }
    if !path.is_file() {
        let path = dir.to_owned();
        return Err(match dir.join(TRIALS).is_file() {
            true => RunDirError::NeverBegan { path },
            false => RunDirError::NotARun { path },
        });
    }
    let text = fs::read(&path).map_err(io_error("reading", &path))?;
    let manifest = parse(&path, 1, &text, manifest::SCHEMA)?;
    let (path, text) = read_trials(dir)?;
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let cut_off = lines.pop().is_some_and(|rest| !rest.is_empty());
    let trials = (1..)
        .zip(lines)
        .map(|(number, line)| parse(&path, number, line, record::SCHEMA))
        .collect::<Result<_, _>>()?;
    Ok(RunRecords { manifest, trials, cut_off })
}

/// The file of the trials and what it holds: bytes, because a record may have been cut off in the middle
/// of a character. Where records are kept for years, as in the project's own `records/`, they are packed.
fn read_trials(dir: &Path) -> Result<(PathBuf, Vec<u8>), RunDirError> {
    let path = dir.join(TRIALS);
    let packed = dir.join(PACKED_TRIALS);
    if path.is_file() || !packed.is_file() {
        let text = fs::read(&path).map_err(io_error("reading", &path))?;
        return Ok((path, text));
    }
    let failed = io_error("unpacking", &packed);
    let mut text = Vec::new();
    let file = File::open(&packed).map_err(&failed)?;
    MultiGzDecoder::new(file)
        .take(UNPACKED_BYTES_MAX + 1)
        .read_to_end(&mut text)
        .map_err(&failed)?;
    if text.len() as u64 > UNPACKED_BYTES_MAX {
        return Err(RunDirError::TooLarge { path: packed });
    }
    Ok((packed, text))
}

/// Whether the name of a directory can stand in the config of a server.
fn usable(path: &Path) -> Result<(), RunDirError> {
    match path.to_str().is_none_or(|name| name.contains(['"', '\\', '\n', '\r'])) {
        true => Err(RunDirError::Unusable { path: path.to_owned() }),
        false => Ok(()),
    }
}

/// Takes the records for this process alone, until it ends. Another that has them gets a moment, since
/// one that was told to stop stops its servers first.
fn lock(path: &Path, trials: &File) -> Result<(), RunDirError> {
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match trials.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_POLL);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(RunDirError::InUse { path: path.to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(io_error("locking", path)(error)),
        }
    }
}

/// How long a server may take to stop after TERM, and a little more.
const LOCK_WAIT: Duration = Duration::from_secs(6);
const LOCK_POLL: Duration = Duration::from_millis(20);

const MANIFEST: &str = "manifest.json";
const TRIALS: &str = "trials.ndjson";
const PACKED_TRIALS: &str = "trials.ndjson.gz";
/// A run of many hours is some tens of MiB.
const UNPACKED_BYTES_MAX: u64 = 1 << 30;
const SEARCH: &str = "search.json";
pub const CONFIGS: &str = "configs";
const LOGS: &str = "logs";

#[derive(Deserialize)]
struct Versioned {
    schema: u32,
}

fn parse<T: for<'de> Deserialize<'de>>(
    path: &Path,
    line: usize,
    text: &[u8],
    known: u32,
) -> Result<T, RunDirError> {
    let malformed = |source| RunDirError::Malformed { path: path.to_owned(), line, source };
    let Versioned { schema } = serde_json::from_slice(text).map_err(malformed)?;
    if schema != known {
        return Err(RunDirError::Schema { path: path.to_owned(), line, found: schema, known });
    }
    serde_json::from_slice(text).map_err(malformed)
}

fn io_error(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> RunDirError + use<> {
    let path = path.to_owned();
    move |source| RunDirError::Io { doing, path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn of_runs_that_begin_in_one_directory_at_once_one_gets_it() {
        const RUNS: usize = 8;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let start = Barrier::new(RUNS);
        let create = || {
            start.wait();
            RunDir::create(&path)
        };
        let created: Vec<_> = std::thread::scope(|scope| {
            let runs: Vec<_> = (0..RUNS).map(|_| scope.spawn(create)).collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        });
        assert_eq!(created.iter().filter(|run| run.is_ok()).count(), 1, "{created:?}");
        for refused in created.iter().filter_map(|run| run.as_ref().err()) {
            assert!(matches!(refused, RunDirError::Taken { .. }), "{refused}");
        }
    }

    #[test]
    fn packed_trials_are_read_like_others_and_a_run_does_not_add_to_them() {
        let dir = tempfile::tempdir().unwrap();
        let lines = b"{\"schema\":1}\nhalf a line";
        let packed = File::create(dir.path().join(PACKED_TRIALS)).unwrap();
        let mut packed = flate2::write::GzEncoder::new(packed, flate2::Compression::best());
        packed.write_all(lines).unwrap();
        packed.finish().unwrap();
        let (path, text) = read_trials(dir.path()).unwrap();
        assert_eq!(
            (path.file_name().unwrap(), text.as_slice()),
            (PACKED_TRIALS.as_ref(), &lines[..])
        );
        let error = RunDir::open(dir.path()).unwrap_err();
        assert!(matches!(error, RunDirError::Packed { .. }), "{error}");

        // Those that are not packed come first: a run goes on after `gunzip --keep`.
        fs::write(dir.path().join(TRIALS), "later\n").unwrap();
        assert_eq!(read_trials(dir.path()).unwrap().1, b"later\n");

        fs::remove_file(dir.path().join(TRIALS)).unwrap();
        fs::write(dir.path().join(PACKED_TRIALS), "no gzip").unwrap();
        let error = read_trials(dir.path()).unwrap_err();
        assert!(error.to_string().starts_with("unpacking "), "{error}");
    }

    #[test]
    fn a_directory_whose_name_no_config_can_hold_is_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let error = RunDir::create(&dir.path().join("a\nb")).unwrap_err();
        assert!(matches!(error, RunDirError::Unusable { .. }), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
