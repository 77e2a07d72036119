//! The directory of a run or a search: manifest, trial records, configuration files, logs and reports.
//!
//! Each record is on disk before the next trial starts, so that no finished trial is lost.

use crate::error::{bad_input, io_error};
use crate::files::{Log, complete_lines, write_json};
use crate::manifest::{self, Manifest};
use crate::trial::{self, TrialRecord};
use anyhow::{Context, bail};
use flate2::read::MultiGzDecoder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;

/// The directory of a running run, locked by this process.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    trials: Log,
}

#[derive(Debug, Clone)]
pub struct RunRecords {
    pub manifest: Manifest,
    pub trials: Vec<TrialRecord>,
    /// True if the last record is incomplete, because the process or the machine was killed.
    pub cut_off: bool,
}

/// Contents of `search.json`: the parameters of a search, and its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchRecord {
    pub schema: u32,
    pub goals: String,
    pub start_rate_per_s: f64,
    /// Largest width of an interval, as a share of its lower end.
    pub width: f64,
    /// Repetitions at each end of an interval.
    pub confirmations: u32,
    /// No trial starts after this time.
    pub budget_s: f64,
    /// The searched subjects. The baseline may have trials without being one of them.
    pub subjects: Vec<String>,
    /// Null while the search runs, or after it was killed.
    pub ended_by: Option<SearchEnd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SearchEnd {
    Complete,
    Budget,
    Interrupted,
}

/// Version of `search.json`; readers reject other versions.
pub const SEARCH_SCHEMA: u32 = 2;

/// Context of an error that ended a run after its start.
#[derive(Debug, Error)]
#[error("cannot append a trial to {}; earlier trials are stored", .0.display())]
pub struct NotAppended(PathBuf);

impl RunDir {
    /// Creates the directory of a new run.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        if let Some(file) = path.ancestors().find(|part| part.is_file()) {
            return Err(bad_input(format!(
                "{} is a file, not a directory; choose another --out",
                file.display()
            )));
        }
        if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(taken(path));
        }
        let not_created = |path: &Path| {
            let message = format!("cannot create {}; try another --out", path.display());
            move |error: io::Error| anyhow::Error::from(error).context(message)
        };
        // Checked before anything is created.
        check_name(&std::path::absolute(path).map_err(not_created(path))?)?;
        for folder in [CONFIGS, LOGS] {
            let folder = path.join(folder);
            fs::create_dir_all(&folder).map_err(not_created(&folder))?;
        }
        let path = path.canonicalize().map_err(io_error("resolve", path))?;
        check_name(&path)?;
        let file = path.join(TRIALS);
        let trials = Log::create(&file).map_err(|error| match error.kind() {
            // Another run created it in between.
            io::ErrorKind::AlreadyExists => taken(&path),
            _ => not_created(&file)(error),
        })?;
        lock(&path, &trials)?;
        Ok(Self { path, trials })
    }

    /// Opens the directory of a run to resume. Removes an incomplete record: its trial will be repeated.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let path = path.canonicalize().map_err(io_error("resolve", path))?;
        let file = path.join(TRIALS);
        let packed = path.join(PACKED_TRIALS);
        if !file.is_file() && packed.is_file() {
            return Err(bad_input(format!(
                "{0} is compressed, so the run cannot be resumed; to resume it, first run: gunzip {0}",
                packed.display()
            )));
        }
        let failed = io_error("open", &file);
        let mut trials = Log::open(&file).map_err(&failed)?;
        lock(&path, &trials)?;
        trials.repair().map_err(failed)?;
        Ok(Self { path, trials })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder with a folder of configuration files for each subject.
    pub fn configs(&self) -> PathBuf {
        self.path.join(CONFIGS)
    }

    pub fn logs(&self) -> PathBuf {
        self.path.join(LOGS)
    }

    pub fn write_manifest(&self, manifest: &Manifest) -> anyhow::Result<()> {
        write_json(&self.path.join(MANIFEST), manifest)
    }

    /// Writes the parameters of a search, whose file also marks the directory as one.
    pub fn write_search(&self, search: &SearchRecord) -> anyhow::Result<()> {
        write_json(&self.path.join(SEARCH), search)
    }

    /// Appends a record and syncs it to disk.
    pub fn append(&mut self, record: &TrialRecord) -> anyhow::Result<()> {
        self.trials.append(record).with_context(|| NotAppended(self.path.join(TRIALS)))
    }
}

/// Removes the empty folders that servers leave beside their configuration, such as those for temporary files.
impl Drop for RunDir {
    fn drop(&mut self) {
        subfolders(&self.configs()).flat_map(|subject| subfolders(&subject)).for_each(remove_empty);
    }
}

fn remove_empty(folder: PathBuf) {
    subfolders(&folder).for_each(remove_empty);
    // Fails if the folder has files.
    fs::remove_dir(folder).ok();
}

fn subfolders(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path())
}

impl RunRecords {
    pub fn read(dir: &Path) -> anyhow::Result<Self> {
        if is_search(dir) {
            Err(bad_input(format!(
                "{0} is the directory of a search, not of a run; `tollgate report {0}` shows it",
                dir.display()
            )))
        } else {
            read_records(dir)
        }
    }
}

pub fn is_search(dir: &Path) -> bool {
    dir.join(SEARCH).is_file()
}

pub fn read_search(dir: &Path) -> anyhow::Result<SearchRecord> {
    let path = dir.join(SEARCH);
    let text = fs::read(&path).map_err(io_error("read", &path))?;
    parse(&path, 1, &text, SEARCH_SCHEMA)
}

/// Reads the manifest and the records of a run or a search.
pub fn read_records(dir: &Path) -> anyhow::Result<RunRecords> {
    let path = dir.join(MANIFEST);
    let text = fs::read(&path).map_err(|error| {
        let shown = dir.display();
        bad_input(match error.kind() {
            io::ErrorKind::NotADirectory if dir.is_file() => {
                format!("{shown} is a file, not a directory; name the directory of a run")
            }
            io::ErrorKind::NotFound if !dir.is_dir() => format!("no directory {shown}"),
            io::ErrorKind::NotFound if dir.join(TRIALS).is_file() => format!(
                "{shown} is the directory of a run that ended before its first trial; remove it and start again"
            ),
            io::ErrorKind::NotFound => {
                format!("{shown} is not the directory of a run: it has no {MANIFEST}")
            }
            _ => format!("cannot read {}: {error}", path.display()),
        })
    })?;
    let manifest = parse(&path, 1, &text, manifest::SCHEMA)?;
    let (path, text) = read_trials(dir)?;
    let (lines, cut_off) = complete_lines(&text);
    let trials = lines
        .map(|(number, line)| parse(&path, number, line, trial::SCHEMA))
        .collect::<Result<_, _>>()?;
    Ok(RunRecords { manifest, trials, cut_off })
}

/// Returns the file of the trials and its contents. Stored runs, such as the project's own `records/`, are compressed.
fn read_trials(dir: &Path) -> anyhow::Result<(PathBuf, Vec<u8>)> {
    let path = dir.join(TRIALS);
    let packed = dir.join(PACKED_TRIALS);
    if path.is_file() || !packed.is_file() {
        let text = fs::read(&path).map_err(io_error("read", &path))?;
        return Ok((path, text));
    }
    let failed = io_error("decompress", &packed);
    let mut text = Vec::new();
    let file = File::open(&packed).map_err(&failed)?;
    MultiGzDecoder::new(file)
        .take(UNPACKED_BYTES_MAX + 1)
        .read_to_end(&mut text)
        .map_err(&failed)?;
    if text.len() as u64 > UNPACKED_BYTES_MAX {
        let path = packed.display();
        bail!("{path} has more than 1 GiB of trials and must be damaged; restore the file");
    }
    Ok((packed, text))
}

/// Checks that configuration files can contain the name of a directory.
fn check_name(path: &Path) -> anyhow::Result<()> {
    if path.to_str().is_none_or(|name| name.contains(['"', '\\', '\n', '\r'])) {
        Err(bad_input(format!(
            "the name {path:?} has a quote, a backslash or a line break, which configuration files cannot contain; \
             choose another --out"
        )))
    } else {
        Ok(())
    }
}

/// Locks the records until this process ends. Waits a moment for another process, which may be stopping its servers.
fn lock(path: &Path, trials: &Log) -> anyhow::Result<()> {
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match trials.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_POLL);
            }
            Err(TryLockError::WouldBlock) => {
                let path = path.display();
                let message = "is in use by another run; wait until it has finished";
                return Err(bad_input(format!("{path} {message}")));
            }
            Err(TryLockError::Error(error)) => return Err(io_error("lock", path)(error)),
        }
    }
}

/// A little longer than servers may take to stop after TERM.
const LOCK_WAIT: Duration = Duration::from_secs(6);
const LOCK_POLL: Duration = Duration::from_millis(20);

const MANIFEST: &str = "manifest.json";
const TRIALS: &str = "trials.ndjson";
const PACKED_TRIALS: &str = "trials.ndjson.gz";
/// A run of many hours has some tens of MiB.
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
) -> anyhow::Result<T> {
    let place = || format!("{}:{line}", path.display());
    let damaged = || format!("{} is damaged; restore the file, or start a new run", place());
    let Versioned { schema } = serde_json::from_slice(text).with_context(damaged)?;
    if schema != known {
        let place = place();
        bail!(
            "{place} has schema {schema}; this version reads {known}; use the version that wrote it"
        );
    }
    serde_json::from_slice(text).with_context(damaged)
}

fn taken(path: &Path) -> anyhow::Error {
    bad_input(format!(
        "{} exists and is not empty; choose another --out, or remove it",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::Barrier;

    #[test]
    fn one_of_several_concurrent_runs_gets_the_directory() {
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
            assert!(refused.to_string().contains("exists and is not empty"), "{refused}");
        }
    }

    #[test]
    fn empty_folders_of_servers_are_removed_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(&dir.path().join("out")).unwrap();
        let subject = run.configs().join("nginx");
        for folder in ["tmp-body", "tmp-proxy/1/00", "rules/empty"] {
            fs::create_dir_all(subject.join(folder)).unwrap();
        }
        fs::write(subject.join("rules/own.conf"), "").unwrap();
        drop(run);
        let left: Vec<PathBuf> = subfolders(&subject).collect();
        assert_eq!(left, [subject.join("rules")]);
        assert!(subject.join("rules/own.conf").is_file() && !subject.join("rules/empty").exists());
    }

    #[test]
    fn compressed_trials_are_read_but_cannot_be_resumed() {
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
        assert!(error.to_string().contains("is compressed"), "{error}");

        // The file that is not compressed comes first, as after `gunzip --keep`.
        fs::write(dir.path().join(TRIALS), "later\n").unwrap();
        assert_eq!(read_trials(dir.path()).unwrap().1, b"later\n");

        fs::remove_file(dir.path().join(TRIALS)).unwrap();
        fs::write(dir.path().join(PACKED_TRIALS), "no gzip").unwrap();
        let error = read_trials(dir.path()).unwrap_err();
        assert!(error.to_string().starts_with("cannot decompress "), "{error}");
    }

    #[test]
    fn directory_with_an_unusable_name_is_not_created() {
        let dir = tempfile::tempdir().unwrap();
        let error = RunDir::create(&dir.path().join("a\nb")).unwrap_err();
        assert!(error.to_string().contains("choose another --out"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
