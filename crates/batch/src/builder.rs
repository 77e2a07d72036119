//! Turns revisions into products. Reuses recorded builds.

use crate::build::{self, Place};
use crate::config::RevisionSource;
use crate::manifest::BatchManifest;
use crate::nodes::Nodes;
use crate::repository::{Repository, Revision};
use crate::rounds::RoundSubject;
use crate::store::{BatchDir, BatchRecords, BuildOutcome, BuildRecord, Failure, Round, SCHEMA};
use anyhow::Context;
use jiff::Timestamp;
use nix::sys::prctl::set_child_subreaper;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tollgate_experiment::experiment::Experiment;
use tollgate_net::{available_cpus, pin_current_thread};
use tollgate_records::error::{bad_input, io_error};
use tollgate_records::files::remove_folder;
use tollgate_runner::process::Interrupt;
use tollgate_runner::run;

/// The state of the process that a batch needs.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub out: &'a Path,
    /// The `tollgate` binary, to start origins.
    pub tollgate: &'a Path,
    pub interrupt: &'a Interrupt,
    /// Number of revisions to measure, evenly spread. `None`: all for `run`, for `find` as many as in the last run.
    pub steps: Option<usize>,
    /// Repeats failed builds and products that did not run.
    pub retries: bool,
    /// Where rounds run. `None`: on this machine.
    pub nodes: Option<&'a Nodes>,
}

#[derive(Debug)]
pub enum Event<'a> {
    Revisions {
        count: usize,
        /// Number of revisions to measure now.
        tried: usize,
    },
    Building {
        revision: &'a Revision,
    },
    Built {
        revision: &'a Revision,
        record: &'a BuildRecord,
    },
    ProbeFailed {
        revision: &'a Revision,
        failure: &'a Failure,
    },
    Round {
        round: &'a Round,
        experiment: &'a Experiment,
    },
    Run(&'a run::Event<'a>),
    RoundEnded,
    /// A step of a search, in words.
    Search(&'a str),
    /// A change on the nodes of a cluster, in words.
    Nodes(&'a str),
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

pub(crate) fn copy_files(stored: &Path, sources: &Path) -> anyhow::Result<()> {
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

#[derive(Debug)]
pub(crate) struct Builder<'a> {
    pub(crate) dir: BatchDir,
    pub(crate) manifest: BatchManifest,
    pub(crate) repository: Repository<'a>,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) tollgate: &'a Path,
    pub(crate) nodes: Option<&'a Nodes>,
    /// Input folders: those of the manifest, once verified to have the same content.
    pub(crate) catalog: Vec<PathBuf>,
    /// CPUs of this process before its first round, which pins it.
    cpus: Vec<usize>,
    /// Versions of the build tools, once they were read.
    pub(crate) tools: Option<BTreeMap<String, String>>,
    /// With --retry: keys of the builds that were already repeated.
    tried: Option<BTreeSet<String>>,
    /// Products that this process has probed.
    pub(crate) probed: BTreeSet<String>,
    /// Number of failed revisions; `None` once another product than the anchor's has passed the probe.
    failed_first: Option<u32>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(
        dir: BatchDir,
        manifest: BatchManifest,
        catalog: Vec<PathBuf>,
        request: &Request<'a>,
    ) -> anyhow::Result<Self> {
        let Request { tollgate, interrupt, retries, nodes, .. } = *request;
        let cpus = available_cpus().context("cannot read the CPU affinity")?;
        // Orphans of a build become children of this process, which stops them.
        set_child_subreaper(true).context("cannot become a subreaper")?;
        let repository = Repository::at(dir.repository(), interrupt);
        let tried = retries.then(BTreeSet::new);
        Ok(Self {
            dir,
            manifest,
            repository,
            interrupt,
            tollgate,
            nodes,
            catalog,
            cpus,
            tools: None,
            tried,
            probed: BTreeSet::new(),
            failed_first: Some(0),
        })
    }

    pub(crate) fn retries(&self) -> bool {
        self.tried.is_some()
    }

    pub(crate) fn records(&self) -> anyhow::Result<BatchRecords> {
        self.dir.records(&self.manifest)
    }

    /// Builds a revision, or finds a build of the same sources. Returns the product, if there is one.
    pub(crate) fn build(
        &mut self,
        revision: &Revision,
        notify: &mut dyn FnMut(Event<'_>),
    ) -> anyhow::Result<Option<String>> {
        self.interrupt.check()?;
        self.use_all_cpus()?;
        let tools = match self.tools.take() {
            Some(tools) => tools,
            None => build::tools(&self.manifest.settings, self.interrupt)?,
        };
        let key = build::key(revision, &self.manifest.settings, &tools);
        self.tools = Some(tools);
        let is_tried_again = self.tried.as_ref().is_some_and(|tried| !tried.contains(&key));
        let of_key = |record: &&BuildRecord| {
            let stands = match &record.outcome {
                BuildOutcome::Built { folder, .. } => self.dir.product(folder).is_dir(),
                BuildOutcome::Failed(_) | BuildOutcome::TimedOut(_) => !is_tried_again,
            };
            record.key == key && stands
        };
        let known = self.dir.builds.lines().iter().rev().find(of_key).cloned();
        let record = match known {
            Some(record) if record.revision == revision.id => record,
            Some(record) => {
                self.add_record(BuildRecord { revision: revision.id.clone(), ..record })?
            }
            None => {
                notify(Event::Building { revision });
                if let Some(tried) = &mut self.tried {
                    tried.insert(key.clone());
                }
                let record = self.make(revision, key)?;
                self.check_anchor(revision, &record)?;
                notify(Event::Built { revision, record: &record });
                self.add_record(record)?
            }
        };
        Ok(product_of(&record).map(str::to_owned))
    }

    pub(crate) fn anchor_product(&self) -> anyhow::Result<String> {
        let product = self.manifest.anchor_product.clone();
        product.ok_or_else(|| bad_input("no anchor could be built".to_owned()))
    }

    /// Counts a revision with its product, if that passed the probe. Returns true for the last of the first few that all
    /// failed.
    pub(crate) fn is_last_of_failed_first(&mut self, product: Option<&str>) -> bool {
        let is_anchor = product.is_some() && product == self.manifest.anchor_product.as_deref();
        match (product, &mut self.failed_first) {
            (Some(_), failed) if !is_anchor => *failed = None,
            (None, Some(failed)) => *failed += 1,
            (Some(_), _) | (None, None) => return false,
        }
        self.failed_first == Some(FAILED_FIRST)
    }

    /// Pins the product of a revision as the anchor.
    pub(crate) fn pin_anchor(
        &mut self,
        revision: &Revision,
        product: String,
    ) -> anyhow::Result<()> {
        self.manifest.anchor = Some(revision.id.clone());
        self.manifest.anchor_product = Some(product);
        self.manifest.write(self.dir.path())
    }

    /// Removes a rebuilt product of the anchor and fails if it differs from the pinned one.
    fn check_anchor(&self, revision: &Revision, record: &BuildRecord) -> anyhow::Result<()> {
        let is_anchor = self.manifest.anchor.as_ref() == Some(&revision.id);
        let has_begun = self.manifest.inputs.is_some();
        let pinned = self.manifest.anchor_product.as_ref().filter(|_| is_anchor && has_begun);
        match (&record.outcome, pinned) {
            (BuildOutcome::Built { product, folder }, Some(pinned)) if product != pinned => {
                remove_folder(&self.dir.product(folder))?;
                Err(bad_input(format!(
                    "the anchor {} was built into another product than the one that all prices of the batch \
                     are over, and which is gone from {}; put that one back, or choose another --out for a \
                     new series",
                    revision.name,
                    self.dir.product("").display()
                )))
            }
            _ => Ok(()),
        }
    }

    /// Returns the folder of a product if it is complete and unchanged.
    pub(crate) fn folder_of(&self, product: &str) -> Option<PathBuf> {
        let mut builds = self.dir.builds.lines().iter();
        builds.find_map(|build| match &build.outcome {
            BuildOutcome::Built { product: own, folder } if own == product => {
                let folder = self.dir.product(folder);
                // An unreadable product counts as missing.
                let is_unchanged = build::hash(&folder).is_ok_and(|hash| hash == product);
                is_unchanged.then_some(folder)
            }
            _ => None,
        })
    }

    fn make(&self, revision: &Revision, key: String) -> anyhow::Result<BuildRecord> {
        let (sources, log) = (self.dir.sources(), self.dir.log(&key));
        match &self.manifest.settings.source {
            RevisionSource::Repository(_) => self.repository.check_out(&revision.id, &sources)?,
            RevisionSource::Versions(_) => copy_files(&self.dir.files(), &sources)?,
        }
        let folder = self.dir.new_product(&key)?;
        let out = self.dir.product(&folder);
        let place =
            Place { sources: &sources, out: &out, folder: &folder, log: &log, cpus: &self.cpus };
        let started = Instant::now();
        let outcome = build::make(revision, &self.manifest.settings, &place, self.interrupt)?;
        if !matches!(outcome, BuildOutcome::Built { .. }) {
            remove_folder(&out)?;
        }
        match &self.manifest.settings.source {
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

    fn add_record(&mut self, record: BuildRecord) -> anyhow::Result<BuildRecord> {
        self.dir.builds.add(record.clone())?;
        Ok(record)
    }

    pub(crate) fn subject(&self, name: &str, product: &str) -> anyhow::Result<RoundSubject> {
        let mut path = self.folder_of(product).ok_or_else(|| {
            bad_input(format!(
                "the product of {name} is gone from {}, or was changed there; remove what is left of it, and \
                 run the batch again to build it",
                self.dir.product("").display()
            ))
        })?;
        if !self.manifest.settings.path.is_empty() {
            path.push(&self.manifest.settings.path);
        }
        let builds = self.dir.builds.lines();
        let of_product = |build: &&BuildRecord| product_of(build) == Some(product);
        let revisions = builds.iter().filter(of_product);
        let mut revisions = revisions.filter_map(|build| self.manifest.revision(&build.revision));
        let first = revisions.clone().next();
        let about = revisions.find(|one| one.name == name).or(first);
        let about = about.map_or(String::new(), |revision| {
            let log: String = revision.message.chars().take(ABOUT_CHARS).collect();
            format!("{} {log}", revision.name).trim_end().to_owned()
        });
        Ok(RoundSubject { name: name.to_owned(), about, product: path.display().to_string() })
    }

    /// Undoes the pinning by a round.
    pub(crate) fn use_all_cpus(&self) -> anyhow::Result<()> {
        pin_current_thread(&self.cpus).context("cannot set the CPU affinity")
    }
}

pub(crate) fn product_of(build: &BuildRecord) -> Option<&str> {
    match &build.outcome {
        BuildOutcome::Built { product, .. } => Some(product),
        BuildOutcome::Failed(_) | BuildOutcome::TimedOut(_) => None,
    }
}

const ABOUT_CHARS: usize = 70;
/// Number of failed revisions at the start of a batch that triggers a report.
const FAILED_FIRST: u32 = 3;

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
