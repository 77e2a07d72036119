//! Products of revisions: built, or found among the recorded builds.

use crate::build::{self, BuildPlace};
use crate::config::RevisionSource;
use crate::manifest::BatchManifest;
use crate::repository::{Repository, Revision};
use crate::request::BatchEvent;
use crate::store::{BatchDir, BuildOutcome, BuildRecord, RecordFile, SCHEMA};
use anyhow::Context;
use jiff::Timestamp;
use nix::sys::prctl::set_child_subreaper;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tollgate_net::{available_cpus, pin_current_thread};
use tollgate_records::error::{bad_input, io_error};
use tollgate_records::files::remove_folder;
use tollgate_runner::process::Interrupt;

/// The builds of a batch.
#[derive(Debug)]
pub(crate) struct Builds<'a> {
    file: RecordFile<BuildRecord>,
    pub(crate) repository: Repository<'a>,
    interrupt: &'a Interrupt,
    /// CPUs of this process before its first round, which pins it.
    cpus: Vec<usize>,
    /// Versions of the build tools, once they were read.
    tools: Option<BTreeMap<String, String>>,
    /// With --retry: keys of the builds that were already repeated.
    repeated: Option<BTreeSet<String>>,
}

impl<'a> Builds<'a> {
    pub(crate) fn open(
        dir: &BatchDir,
        interrupt: &'a Interrupt,
        retries: bool,
    ) -> anyhow::Result<Self> {
        let cpus = available_cpus().context("cannot read the CPU affinity")?;
        // Orphans of a build become children of this process, which stops them.
        set_child_subreaper(true).context("cannot become a subreaper")?;
        Ok(Self {
            file: RecordFile::open(&dir.builds())?,
            repository: Repository::at(dir.repository(), interrupt),
            interrupt,
            cpus,
            tools: None,
            repeated: retries.then(BTreeSet::new),
        })
    }

    pub(crate) fn records(&self) -> &[BuildRecord] {
        self.file.lines()
    }

    pub(crate) fn retries(&self) -> bool {
        self.repeated.is_some()
    }

    /// Builds a revision, or finds a build of the same sources. Returns the product, if there is one.
    pub(crate) fn build(
        &mut self,
        dir: &BatchDir,
        manifest: &BatchManifest,
        revision: &Revision,
        notify: &mut dyn FnMut(BatchEvent<'_>),
    ) -> anyhow::Result<Option<String>> {
        self.interrupt.check()?;
        self.use_all_cpus()?;
        let tools = match self.tools.take() {
            Some(tools) => tools,
            None => build::tools(&manifest.settings, self.interrupt)?,
        };
        let key = build::key(revision, &manifest.settings, &tools);
        self.tools = Some(tools);
        let is_repeated = self.repeated.as_ref().is_some_and(|repeated| !repeated.contains(&key));
        let of_key = |record: &&BuildRecord| {
            let stands = match &record.outcome {
                BuildOutcome::Built { folder, .. } => dir.product(folder).is_dir(),
                BuildOutcome::Failed(_) | BuildOutcome::TimedOut(_) => !is_repeated,
            };
            record.key == key && stands
        };
        let known = self.records().iter().rev().find(of_key).cloned();
        let record = match known {
            Some(record) if record.revision == revision.id => record,
            Some(record) => self.add(BuildRecord { revision: revision.id.clone(), ..record })?,
            None => {
                notify(BatchEvent::Building { revision });
                if let Some(repeated) = &mut self.repeated {
                    repeated.insert(key.clone());
                }
                let record = self.make(dir, manifest, revision, key)?;
                check_anchor(dir, manifest, revision, &record)?;
                notify(BatchEvent::Built { revision, record: &record });
                self.add(record)?
            }
        };
        Ok(product_of(&record).map(str::to_owned))
    }

    /// Reads the versions of the build tools again, as a batch may last for days.
    pub(crate) fn read_tools(
        &mut self,
        manifest: &BatchManifest,
    ) -> anyhow::Result<BTreeMap<String, String>> {
        let tools = build::tools(&manifest.settings, self.interrupt)?;
        self.tools = Some(tools.clone());
        Ok(tools)
    }

    /// Returns the folder of a product if it is complete and unchanged.
    pub(crate) fn folder_of(&self, dir: &BatchDir, product: &str) -> Option<PathBuf> {
        let mut builds = self.records().iter();
        builds.find_map(|build| match &build.outcome {
            BuildOutcome::Built { product: own, folder } if own == product => {
                let folder = dir.product(folder);
                // An unreadable product counts as missing.
                let is_unchanged = build::hash(&folder).is_ok_and(|hash| hash == product);
                is_unchanged.then_some(folder)
            }
            _ => None,
        })
    }

    /// Undoes the pinning by a round.
    pub(crate) fn use_all_cpus(&self) -> anyhow::Result<()> {
        pin_current_thread(&self.cpus).context("cannot set the CPU affinity")
    }

    fn make(
        &self,
        dir: &BatchDir,
        manifest: &BatchManifest,
        revision: &Revision,
        key: String,
    ) -> anyhow::Result<BuildRecord> {
        let (sources, log) = (dir.sources(), dir.log(&key));
        match &manifest.settings.source {
            RevisionSource::Repository(_) => self.repository.check_out(&revision.id, &sources)?,
            RevisionSource::Versions(_) => copy_files(&dir.files(), &sources)?,
        }
        let folder = dir.new_product(&key, self.records())?;
        let out = dir.product(&folder);
        let place = BuildPlace {
            sources: &sources,
            out: &out,
            folder: &folder,
            log: &log,
            cpus: &self.cpus,
        };
        let started = Instant::now();
        let outcome = build::make(revision, &manifest.settings, &place, self.interrupt)?;
        if !matches!(outcome, BuildOutcome::Built { .. }) {
            remove_folder(&out)?;
        }
        match &manifest.settings.source {
            RevisionSource::Repository(_) => self.repository.remove_checkout(&sources)?,
            RevisionSource::Versions(_) => remove_folder(&sources)?,
        }
        Ok(BuildRecord {
            schema: SCHEMA,
            key,
            revision: revision.id.clone(),
            ended_at: Timestamp::now().to_string(),
            duration_s: started.elapsed().as_secs_f64(),
            outcome,
        })
    }

    fn add(&mut self, record: BuildRecord) -> anyhow::Result<BuildRecord> {
        self.file.add(record.clone())?;
        Ok(record)
    }
}

pub(crate) fn product_of(build: &BuildRecord) -> Option<&str> {
    match &build.outcome {
        BuildOutcome::Built { product, .. } => Some(product),
        BuildOutcome::Failed(_) | BuildOutcome::TimedOut(_) => None,
    }
}

/// Removes a rebuilt product of the anchor and fails if it differs from the pinned one.
fn check_anchor(
    dir: &BatchDir,
    manifest: &BatchManifest,
    revision: &Revision,
    record: &BuildRecord,
) -> anyhow::Result<()> {
    let is_anchor = manifest.anchor.as_ref() == Some(&revision.id);
    let has_begun = manifest.inputs.is_some();
    let pinned = manifest.anchor_product.as_ref().filter(|_| is_anchor && has_begun);
    match (&record.outcome, pinned) {
        (BuildOutcome::Built { product, folder }, Some(pinned)) if product != pinned => {
            remove_folder(&dir.product(folder))?;
            Err(bad_input(format!(
                "the anchor {} was built into another product than the one that all prices of the batch \
                 are over, and which is gone from {}; put that one back, or choose another --out for a \
                 new series",
                revision.name,
                dir.product("").display()
            )))
        }
        _ => Ok(()),
    }
}

/// Copies the files of a list of versions into the batch, to `stored`, so that every build gets the files that were hashed.
/// Returns their hash.
pub(crate) fn store_files(
    from: Option<&Path>,
    stored: &Path,
    known: Option<&str>,
) -> anyhow::Result<String> {
    let draft = stored.with_extension("new");
    remove_folder(&draft)?;
    fs::create_dir_all(&draft).map_err(io_error("create", &draft))?;
    if let Some(from) = from {
        let whole = from.canonicalize().map_err(io_error("resolve", from))?;
        if stored.starts_with(&whole) {
            return Err(bad_input(format!(
                "`files` is {}, which contains the batch itself; choose an --out outside of it",
                from.display()
            )));
        }
        copy(&whole, &draft)?;
    }
    // Hashes the copy, as the original may change.
    let hash = build::hash(&draft).map_err(io_error("read", &draft))?;
    if known.is_some_and(|known| known != hash) {
        remove_folder(&draft)?;
        let from = from.map_or(String::new(), |from| from.display().to_string());
        return Err(bad_input(format!(
            "the files in {from} have changed since the batch was started, and figures of both would \
             be mixed up; put them back, or choose another --out"
        )));
    }
    if known.is_some() && build::hash(stored).is_ok_and(|known| known == hash) {
        // Not replaced, as a kill between the next two steps would lose the files.
        remove_folder(&draft)?;
        return Ok(hash);
    }
    remove_folder(stored)?;
    fs::rename(&draft, stored).map_err(io_error("move the files to", stored))?;
    Ok(hash)
}

fn copy_files(stored: &Path, sources: &Path) -> anyhow::Result<()> {
    remove_folder(sources)?;
    fs::create_dir_all(sources).map_err(io_error("create", sources))?;
    copy(stored, sources)
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let entries = fs::read_dir(from).map_err(io_error("read", from))?;
    for entry in entries {
        let entry = entry.map_err(io_error("read", from))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            fs::create_dir_all(&target).map_err(io_error("create", &target))?;
            copy(&path, &target)?;
        } else {
            fs::copy(&path, &target).map_err(io_error("copy", &path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn builds_get_the_files_that_were_hashed() {
        let dir = tempfile::tempdir().unwrap();
        let [mine, kept, sources] = ["mine", "batch.files", "source"].map(|n| dir.path().join(n));
        fs::create_dir_all(mine.join("sub")).unwrap();
        fs::write(mine.join("sub/make.sh"), "one").unwrap();
        let hash = store_files(Some(&mine), &kept, None).unwrap();
        fs::write(mine.join("sub/make.sh"), "two").unwrap();
        copy_files(&kept, &sources).unwrap();
        assert_eq!(fs::read_to_string(sources.join("sub/make.sh")).unwrap(), "one");
        assert_eq!(build::hash(&sources).unwrap(), hash);
        // If the batch continues, they must be the same; the kept files stay.
        let error = store_files(Some(&mine), &kept, Some(&hash)).unwrap_err().to_string();
        assert!(error.contains("have changed since the batch was started"), "{error}");
        assert_eq!(fs::read_to_string(kept.join("sub/make.sh")).unwrap(), "one");
        fs::write(mine.join("sub/make.sh"), "one").unwrap();
        let place = fs::metadata(&kept).unwrap().ino();
        assert_eq!(store_files(Some(&mine), &kept, Some(&hash)).unwrap(), hash);
        assert_eq!(fs::metadata(&kept).unwrap().ino(), place, "it stays where it is");
        // Replaces an incomplete copy.
        fs::remove_file(kept.join("sub/make.sh")).unwrap();
        assert_eq!(store_files(Some(&mine), &kept, Some(&hash)).unwrap(), hash);
        assert_eq!(build::hash(&kept).unwrap(), hash);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "no draft is left");
    }

    #[test]
    fn folder_is_not_copied_into_itself() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let error =
            store_files(Some(&dir), &dir.join("batch/files"), None).unwrap_err().to_string();
        assert!(error.contains("contains the batch itself"), "{error}");
    }
}
