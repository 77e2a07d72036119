//! Where a batch is worked on: its directory, its clone, and what turns revisions into products. What is on
//! record already is not done again.

use super::dir::{BatchDir, BatchRecords};
use super::making::{self, Place};
use super::manifest::BatchManifest;
use super::records::{BuildOutcome, BuildRecord, SCHEMA};
use super::repository::Repository;
use super::revision::Revision;
use super::rounds::RoundSubject;
use super::run::{Event, Request};
use super::settings::Origin;
use super::{BatchError, files, io_error, product, system_error};
use crate::interrupt::Interrupt;
use crate::layout::available_cpus;
use jiff::Timestamp;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_child_subreaper;
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Where a batch is worked on.
#[derive(Debug)]
pub(super) struct Workshop<'a> {
    pub(super) dir: BatchDir,
    pub(super) manifest: BatchManifest,
    pub(super) repository: Repository<'a>,
    pub(super) interrupt: &'a Interrupt,
    pub(super) tollgate: &'a Path,
    /// The folders in which inputs are looked for now: those of the manifest, once they are known to hold the same.
    pub(super) catalog: Vec<PathBuf>,
    /// The CPUs that this process had before its first round, which pins it.
    cpus: Vec<usize>,
    /// What the tools of the build say of themselves, once they were asked.
    pub(super) tools: Option<BTreeMap<String, String>>,
    /// The builds that are not tried again although they failed: none, where nothing is.
    tried: Option<BTreeSet<String>>,
}

impl<'a> Workshop<'a> {
    /// Takes up a batch whose directory is open.
    pub(super) fn new(
        dir: BatchDir,
        manifest: BatchManifest,
        catalog: Vec<PathBuf>,
        request: &Request<'a>,
    ) -> Result<Self, BatchError> {
        let Request { tollgate, interrupt, retries, .. } = *request;
        let cpus = available_cpus().map_err(system_error("asking for the CPUs to run on"))?;
        // What a build leaves behind becomes a child of this process, which stops it.
        set_child_subreaper(true).map_err(system_error("becoming the parent of orphans"))?;
        let repository = Repository::at(dir.repository(), interrupt);
        let tried = retries.then(BTreeSet::new);
        let tools = None;
        Ok(Self { dir, manifest, repository, interrupt, tollgate, catalog, cpus, tools, tried })
    }

    /// Whether what failed is tried again.
    pub(super) fn retries(&self) -> bool {
        self.tried.is_some()
    }

    /// All that is on record.
    pub(super) fn records(&self) -> Result<BatchRecords, BatchError> {
        self.dir.records(&self.manifest)
    }

    /// Builds a revision, or finds what was built of the same sources; its product, where there is one.
    pub(super) fn build(
        &mut self,
        revision: &Revision,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<Option<String>, BatchError> {
        self.interrupt.check()?;
        self.use_all_cpus()?;
        let tools = match self.tools.take() {
            Some(tools) => tools,
            None => making::tools(&self.manifest.settings, self.interrupt)?,
        };
        let key = making::key(revision, &self.manifest.settings, &tools);
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
            // The same sources under another name.
            Some(record) => self.keep(BuildRecord { revision: revision.id.clone(), ..record })?,
            None => {
                tell(Event::Building { revision });
                if let Some(tried) = &mut self.tried {
                    tried.insert(key.clone());
                }
                let record = self.make(revision, key)?;
                self.keeps_anchor(revision, &record)?;
                tell(Event::Built { revision, record: &record });
                self.keep(record)?
            }
        };
        Ok(product_of(&record).map(str::to_owned))
    }

    /// The product that every block runs too.
    pub(super) fn anchor_product(&self) -> Result<String, BatchError> {
        let product = self.manifest.anchor_product.clone();
        product
            .ok_or_else(|| BatchError::Asked("the batch has no anchor that was built".to_owned()))
    }

    /// Makes a revision's product the one that prices are over.
    pub(super) fn pin_anchor(
        &mut self,
        revision: &Revision,
        product: String,
    ) -> Result<(), BatchError> {
        self.manifest.anchor = Some(revision.id.clone());
        self.manifest.anchor_product = Some(product);
        self.manifest.write(self.dir.path())
    }

    /// Checks that what was built now is not another product of the anchor than the one that prices are over,
    /// once there may be some. Of one that is, nothing stays.
    fn keeps_anchor(&self, revision: &Revision, record: &BuildRecord) -> Result<(), BatchError> {
        let is_anchor = self.manifest.anchor.as_ref() == Some(&revision.id);
        let has_begun = self.manifest.inputs.is_some();
        let pinned = self.manifest.anchor_product.as_ref().filter(|_| is_anchor && has_begun);
        match (&record.outcome, pinned) {
            (BuildOutcome::Built { product, folder }, Some(pinned)) if product != pinned => {
                let path = self.dir.product(folder);
                fs::remove_dir_all(&path).map_err(io_error("removing", &path))?;
                Err(BatchError::Asked(format!(
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

    /// The folder that a product lies in, where it is there and as it was built.
    pub(super) fn folder_of(&self, product: &str) -> Option<PathBuf> {
        let mut builds = self.dir.builds.lines().iter();
        builds.find_map(|build| match &build.outcome {
            BuildOutcome::Built { product: own, folder } if own == product => {
                let folder = self.dir.product(folder);
                // One that cannot be read is none.
                let is_it = product::hash(&folder).is_ok_and(|hash| hash == product);
                is_it.then_some(folder)
            }
            _ => None,
        })
    }

    fn make(&self, revision: &Revision, key: String) -> Result<BuildRecord, BatchError> {
        let (sources, log) = (self.dir.sources(), self.dir.log(&key));
        match &self.manifest.settings.origin {
            Origin::Repository(_) => self.repository.check_out(&revision.id, &sources)?,
            Origin::Versions(_) => files::give(&self.dir.files(), &sources)?,
        }
        let folder = self.dir.new_product(&key)?;
        let out = self.dir.product(&folder);
        let place =
            Place { sources: &sources, out: &out, folder: &folder, log: &log, cpus: &self.cpus };
        let begun = Instant::now();
        let outcome = making::make(revision, &self.manifest.settings, &place, self.interrupt)?;
        if !matches!(outcome, BuildOutcome::Built { .. }) {
            fs::remove_dir_all(&out).map_err(io_error("removing", &out))?;
        }
        match &self.manifest.settings.origin {
            Origin::Repository(_) => self.repository.forget(&sources)?,
            Origin::Versions(_) => {
                fs::remove_dir_all(&sources).map_err(io_error("removing", &sources))?;
            }
        }
        Ok(BuildRecord {
            schema: SCHEMA,
            key,
            revision: revision.id.clone(),
            ended_at: Timestamp::now().to_string(),
            took_s: begun.elapsed().as_secs_f64(),
            outcome,
        })
    }

    fn keep(&mut self, record: BuildRecord) -> Result<BuildRecord, BatchError> {
        self.dir.builds.add(record.clone())?;
        Ok(record)
    }

    /// A product as a subject of a round.
    pub(super) fn subject(&self, name: &str, product: &str) -> Result<RoundSubject, BatchError> {
        let mut path = self.folder_of(product).ok_or_else(|| {
            BatchError::Asked(format!(
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
            let log: String = revision.log.chars().take(ABOUT_CHARS).collect();
            format!("{} {log}", revision.name).trim_end().to_owned()
        });
        Ok(RoundSubject { name: name.to_owned(), about, product: path.display().to_string() })
    }

    /// A round pins this process; builds and the next round have all CPUs to choose from.
    pub(super) fn use_all_cpus(&self) -> Result<(), BatchError> {
        let mut set = CpuSet::new();
        for cpu in &self.cpus {
            set.set(*cpu).map_err(system_error("choosing CPUs"))?;
        }
        sched_setaffinity(Pid::from_raw(0), &set).map_err(system_error("choosing CPUs"))
    }
}

/// The product of a build, where there is one.
pub(super) fn product_of(build: &BuildRecord) -> Option<&str> {
    match &build.outcome {
        BuildOutcome::Built { product, .. } => Some(product),
        BuildOutcome::Failed(_) | BuildOutcome::TimedOut(_) => None,
    }
}

const ABOUT_CHARS: usize = 70;
