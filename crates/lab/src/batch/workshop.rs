//! Where a batch is worked on: its directory, its clone, and what turns revisions into products and
//! products into rounds. What is on record already is not done again.

use super::dir::{BatchDir, BatchRecords};
use super::making::{self, Place};
use super::manifest::BatchManifest;
use super::plan::Share;
use super::records::{BuildOutcome, BuildRecord, Purpose, Round, RoundRecord, SCHEMA};
use super::repository::Repository;
use super::revision::Revision;
use super::rounds::{ANCHOR, RoundSubject, experiment};
use super::run::{Event, Request};
use super::settings::Origin;
use super::{BatchError, io_error, system_error};
use crate::causes::in_full;
use crate::inputs::catalog::Catalog;
use crate::inputs::experiment::{Adjustments, Experiment};
use crate::interrupt::{Interrupt, Interrupted};
use crate::layout::available_cpus;
use crate::manifest::Circumstances;
use crate::plan::stop::EndedBy;
use crate::report;
use crate::run::{self, RunError, RunRequest};
use crate::run_dir::RunRecords;
use crate::whole_file;
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
    tollgate: &'a Path,
    /// The CPUs that this process had before its first round, which pins it.
    cpus: Vec<usize>,
    /// What the tools of the build say of themselves, once they were asked.
    tools: Option<String>,
    /// The builds that are not tried again although they failed: none, where nothing is.
    tried: Option<BTreeSet<String>>,
}

impl<'a> Workshop<'a> {
    /// Takes up a batch whose directory is open.
    pub(super) fn new(
        dir: BatchDir,
        manifest: BatchManifest,
        request: &Request<'a>,
    ) -> Result<Self, BatchError> {
        let Request { tollgate, interrupt, retries, .. } = *request;
        let cpus = available_cpus().map_err(system_error("asking for the CPUs to run on"))?;
        // What a build leaves behind becomes a child of this process, which stops it.
        set_child_subreaper(true).map_err(system_error("becoming the parent of orphans"))?;
        let repository = Repository::at(dir.repository(), interrupt);
        let tried = retries.then(BTreeSet::new);
        Ok(Self { dir, manifest, repository, interrupt, tollgate, cpus, tools: None, tried })
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
        let settings = &self.manifest.settings;
        let tools = match self.tools.take() {
            Some(tools) => tools,
            None => making::tools(settings, self.interrupt)?,
        };
        let key = making::key(revision, settings, &tools);
        self.tools = Some(tools);
        let is_tried_again = self.tried.as_ref().is_some_and(|tried| !tried.contains(&key));
        let of_key = |record: &&BuildRecord| {
            let stands = match product_of(record) {
                Some(_) => self.dir.product(&key).is_dir(),
                None => !is_tried_again,
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
                tell(Event::Built { revision, record: &record });
                self.keep(record)?
            }
        };
        Ok(product_of(&record).map(str::to_owned))
    }

    /// Runs rounds that were begun and not ended to their end.
    pub(super) fn end_rounds(&mut self, tell: &mut dyn FnMut(Event<'_>)) -> Result<(), BatchError> {
        let open: Vec<Round> =
            self.dir.begun().filter(|one| !self.dir.has_ended(one.round)).cloned().collect();
        open.iter().try_for_each(|round| self.run_round(round, tell))
    }

    /// Measures products in a round of their own.
    pub(super) fn measure(
        &mut self,
        purpose: Purpose,
        share: Share,
        blocks: u32,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), BatchError> {
        let anchor = self.anchor_product()?;
        let number = self.dir.begun().map(|round| round.round).max().unwrap_or(0) + 1;
        let mut products: BTreeMap<_, _> = share.subjects.iter().cloned().collect();
        products.insert(ANCHOR.to_owned(), anchor.clone());
        let round =
            Round { schema: SCHEMA, round: number, purpose, products, again: share.again, blocks };
        let mut subjects = vec![(ANCHOR.to_owned(), anchor)];
        subjects.extend(share.subjects);
        let subjects: Vec<RoundSubject> = subjects
            .iter()
            .map(|(name, hash)| self.subject(name, hash))
            .collect::<Result<_, _>>()?;
        let settings = &self.manifest.settings;
        let title = format!("{} (round {number})", settings.title);
        let text = experiment(&settings.base, &title, &settings.option, &subjects, blocks)?;
        let path = self.dir.experiment(number);
        whole_file::write(&path, &text).map_err(io_error("writing", &path))?;
        // From here on, a batch that is taken up runs it.
        self.dir.rounds.add(RoundRecord::Begun(round.clone()))?;
        self.run_round(&round, tell)
    }

    /// The product that every block runs too.
    pub(super) fn anchor_product(&self) -> Result<String, BatchError> {
        let anchor = self.manifest.anchor.as_deref().unwrap_or_default();
        let mut builds = self.dir.builds.lines().iter().rev();
        let build = builds.find(|build| build.revision == anchor);
        let product = build.and_then(product_of).map(str::to_owned);
        product
            .ok_or_else(|| BatchError::Asked("the batch has no anchor that was built".to_owned()))
    }

    fn make(&self, revision: &Revision, key: String) -> Result<BuildRecord, BatchError> {
        let (sources, out, log) = (self.dir.sources(), self.dir.product(&key), self.dir.log(&key));
        match &self.manifest.settings.origin {
            Origin::Repository(_) => self.repository.check_out(&revision.id, &sources)?,
            Origin::Versions(files) => making::copy_files(files.as_deref(), &sources)?,
        }
        // What a build that was killed left there is no product.
        if out.exists() {
            fs::remove_dir_all(&out).map_err(io_error("removing", &out))?;
        }
        fs::create_dir_all(&out).map_err(io_error("making", &out))?;
        let place = Place { sources: &sources, out: &out, log: &log, cpus: &self.cpus };
        let begun = Instant::now();
        let outcome = making::make(revision, &self.manifest.settings, &place, self.interrupt)?;
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

    fn subject(&self, name: &str, product: &str) -> Result<RoundSubject, BatchError> {
        let builds = self.dir.builds.lines();
        let is_there = |build: &&BuildRecord| {
            product_of(build) == Some(product) && self.dir.product(&build.key).is_dir()
        };
        let build = builds.iter().find(is_there).ok_or_else(|| {
            BatchError::Asked(format!(
                "the product of {name} is gone; run the batch again to build it"
            ))
        })?;
        let own = |build: &BuildRecord| {
            product_of(build) == Some(product)
                && self.manifest.revision(&build.revision).is_some_and(|one| one.name == name)
        };
        let revision = builds.iter().find(|build| own(build)).unwrap_or(build);
        let about = self.manifest.revision(&revision.revision).map_or(String::new(), |revision| {
            let log: String = revision.log.chars().take(ABOUT_CHARS).collect();
            format!("{} {log}", revision.name).trim_end().to_owned()
        });
        let mut path = self.dir.product(&build.key);
        if !self.manifest.settings.path.is_empty() {
            path.push(&self.manifest.settings.path);
        }
        Ok(RoundSubject { name: name.to_owned(), about, product: path.display().to_string() })
    }

    fn run_round(
        &mut self,
        round: &Round,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), BatchError> {
        self.interrupt.check()?;
        self.use_all_cpus()?;
        let (file, out) = (self.dir.experiment(round.round), self.dir.round(round.round));
        let settings = &self.manifest.settings;
        let catalog = Catalog::new(self.manifest.catalog.clone());
        let adjustments = Adjustments { quick: settings.quick, ..Adjustments::default() };
        let name = file.display().to_string();
        let experiment = Experiment::load(&catalog, &name, &adjustments)?;
        tell(Event::Round { round, experiment: &experiment });
        let resumes = out.join("trials.ndjson").is_file() && out.join("manifest.json").is_file();
        if out.exists() && !resumes {
            // It was killed before its first trial.
            fs::remove_dir_all(&out).map_err(io_error("removing", &out))?;
        }
        let seed = self.manifest.seed.wrapping_add(u64::from(round.round));
        let request = RunRequest {
            catalog: &catalog,
            experiment: &experiment,
            circumstances: Circumstances {
                seed,
                quick: settings.quick,
                command: command(&name, seed, settings.quick, &self.manifest.catalog),
                directory: PathBuf::from("/"),
            },
            tollgate: self.tollgate,
            out: &out,
            interrupt: self.interrupt,
            resumes,
        };
        let because = match run::run(&request, &mut |event| tell(Event::Run(&event))) {
            Ok(ending) if ending.ended_by == EndedBy::Interrupted => return Err(Interrupted.into()),
            Ok(ending) => ending.ended_by.to_string(),
            // What was measured before stays; what is missing will be measured in a new round.
            Err(error @ (RunError::Different(_) | RunError::Strangers(_))) => in_full(&error),
            Err(error) => return Err(error.into()),
        };
        report::write_all(&report::of_run(&out)?, &out)?;
        self.dir.rounds.add(RoundRecord::Ended { round: round.round, because })?;
        tell(Event::RoundEnded);
        self.anchor_ran(&out)
    }

    /// Without the anchor nothing has a price, and nothing more should be run.
    fn anchor_ran(&self, out: &Path) -> Result<(), BatchError> {
        let run = RunRecords::read(out)?;
        let Some(case) = run.manifest.experiment.cases.first() else { return Ok(()) };
        if crate::blocks::measured(&run, &case.name, ANCHOR).next().is_some() {
            return Ok(());
        }
        let anchor = self.manifest.anchor.as_deref().unwrap_or_default();
        let name = self.manifest.revision(anchor).map_or(anchor, |revision| &revision.name);
        Err(BatchError::Asked(format!(
            "the anchor {name} cannot be measured ({} says why); choose another --anchor, and another --out",
            out.join("report.md").display()
        )))
    }

    /// A round pins this process; builds and the next round have all CPUs to choose from.
    fn use_all_cpus(&self) -> Result<(), BatchError> {
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
        BuildOutcome::Built { product } => Some(product),
        BuildOutcome::Failed(_) | BuildOutcome::TimedOut(_) => None,
    }
}

const ABOUT_CHARS: usize = 70;

/// The command that repeats a round.
fn command(experiment: &str, seed: u64, quick: bool, catalog: &[PathBuf]) -> String {
    let mut words = vec!["tollgate".to_owned(), "run".to_owned(), experiment.to_owned()];
    words.extend(["--seed".to_owned(), seed.to_string()]);
    if quick {
        words.push("--quick".to_owned());
    }
    for folder in catalog {
        words.extend(["--catalog".to_owned(), folder.display().to_string()]);
    }
    shell_words::join(words)
}
