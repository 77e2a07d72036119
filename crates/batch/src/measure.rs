//! Measures products in rounds.

use crate::batch::Batch;
use crate::division::{ANCHOR, RoundSubject, Share, experiment, movable};
use crate::inputs::Inputs;
use crate::nodes::{self, Job, Nodes};
use crate::request::BatchEvent;
use crate::store::{Purpose, Round, SCHEMA};
use anyhow::Context;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use thiserror::Error;
use tollgate_experiment::adjust::Adjustments;
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::Experiment;
use tollgate_experiment::manifest::Invocation;
use tollgate_records::error::io_error;
use tollgate_records::files::{remove_folder, write_atomic, write_json};
use tollgate_records::replay::ended_by;
use tollgate_records::run_dir::RunRecords;
use tollgate_records::stop::EndedBy;
use tollgate_report as report;
use tollgate_report::source::ReportSource;
use tollgate_runner::bench::local::LocalBench;
use tollgate_runner::process::Interrupted;
use tollgate_runner::run::{self, CannotResume, RunRequest};

/// The batch has no anchor that can be measured, so no revision has a price.
#[derive(Debug, Error)]
pub enum NoAnchor {
    #[error("cannot build the anchor {0}; choose another --anchor and --out")]
    NotBuilt(String),
    #[error("no revision can be built; output of the last build: {0}")]
    NoneBuilt(String),
    #[error(
        "cannot measure the anchor {name}: {reason}; correct the experiment, the recipe or the build, or choose \
         another --anchor (finished builds are kept)"
    )]
    ProbeFailed { name: String, reason: String },
    #[error("cannot measure the anchor {name} (see {report}); choose another --anchor and --out", report = report.display())]
    NotMeasured { name: String, report: PathBuf },
}

impl Batch<'_> {
    /// Checks that the inputs equal those at the start of the batch; before the first round, records them.
    pub(crate) fn check_inputs(&mut self) -> anyhow::Result<()> {
        let folder = self.dir.inputs();
        fs::create_dir_all(&folder).map_err(io_error("create", &folder))?;
        let path = folder.join("anchor.toml");
        let anchor = (ANCHOR.to_owned(), self.anchor_product()?);
        self.write_experiment(&path, &self.manifest.settings.title, &[anchor], 1)?;
        let (catalog, experiment) = self.experiment(&path)?;
        let tools = self.builds.read_tools(&self.manifest)?;
        let now = Inputs::of(&catalog, &experiment, tools, self.dir.path(), &folder)?;
        if let Some(original) = &self.manifest.inputs {
            now.check_unchanged(original, self.manifest.other_catalog(&self.catalog).as_deref())?;
            if self.manifest.catalog == self.catalog {
                return Ok(());
            }
        }
        // Inputs of another catalog with the same hashes are accepted.
        self.manifest.inputs = Some(now);
        self.manifest.catalog.clone_from(&self.catalog);
        self.manifest.write(self.dir.path())
    }

    /// Measures rounds that were started but have not ended.
    pub(crate) fn end_rounds(
        &mut self,
        notify: &mut dyn FnMut(BatchEvent<'_>),
    ) -> anyhow::Result<()> {
        let open = self.rounds.open_rounds();
        match self.request.nodes {
            None => open.iter().try_for_each(|round| self.run_round(round, notify)),
            Some(nodes) => self.run_on(nodes, &open, notify),
        }
    }

    /// Measures one round after the other, or all on the nodes of a cluster.
    pub(crate) fn measure_all(
        &mut self,
        purpose: &Purpose,
        shares: Vec<Share>,
        blocks: u32,
        notify: &mut dyn FnMut(BatchEvent<'_>),
    ) -> anyhow::Result<()> {
        let Some(nodes) = self.request.nodes else {
            return shares.into_iter().try_for_each(|share| {
                let round = self.start_round(purpose.clone(), share, blocks)?;
                self.run_round(&round, notify)
            });
        };
        let start = |share| self.start_round(purpose.clone(), share, blocks);
        let rounds: Vec<Round> = shares.into_iter().map(start).collect::<Result<_, _>>()?;
        self.run_on(nodes, &rounds, notify)
    }

    fn start_round(
        &mut self,
        purpose: Purpose,
        share: Share,
        blocks: u32,
    ) -> anyhow::Result<Round> {
        self.check_inputs()?;
        let anchor = self.anchor_product()?;
        let number = self.rounds.next_number();
        let mut products: BTreeMap<_, _> = share.subjects.iter().cloned().collect();
        products.insert(ANCHOR.to_owned(), anchor.clone());
        let round = Round {
            schema: SCHEMA,
            round: number,
            purpose,
            products,
            duplicates: share.duplicates,
            blocks,
        };
        let mut subjects = vec![(ANCHOR.to_owned(), anchor)];
        subjects.extend(share.subjects);
        let title = format!("{} (round {number})", self.manifest.settings.title);
        self.write_experiment(&self.dir.experiment(number), &title, &subjects, blocks)?;
        // From here on, a batch that continues will run it.
        self.rounds.start(round.clone())?;
        Ok(round)
    }

    fn run_round(
        &mut self,
        round: &Round,
        notify: &mut dyn FnMut(BatchEvent<'_>),
    ) -> anyhow::Result<()> {
        self.request.interrupt.check()?;
        self.builds.use_all_cpus()?;
        if self.end_complete(round)? {
            return Ok(());
        }
        let (file, out) = (self.dir.experiment(round.round), self.dir.round(round.round));
        let (catalog, experiment) = self.experiment(&file)?;
        notify(BatchEvent::Round { round, experiment: &experiment });
        let resumes = out.join("trials.ndjson").is_file() && out.join("manifest.json").is_file();
        if !resumes {
            remove_folder(&out)?;
        }
        let (tollgate, cpus) = (self.request.tollgate, experiment.cpus.as_ref());
        let mut bench = LocalBench::new(&catalog, tollgate, cpus)?;
        let request = RunRequest {
            experiment: &experiment,
            invocation: self.invocation(round),
            out: &out,
            interrupt: self.request.interrupt,
            resumes,
        };
        let mut notify_run = |event: run::RunEvent<'_>| notify(BatchEvent::Run(&event));
        let reason = match run::run(&mut bench, &request, &mut notify_run) {
            Ok(ending) if ending.ended_by == EndedBy::Interrupted => return Err(Interrupted.into()),
            Ok(ending) => ending.ended_by.to_string(),
            // Existing trials stay; missing ones will be measured in a new round.
            Err(error) if error.is::<CannotResume>() => format!("{error:#}"),
            Err(error) => return Err(error),
        };
        notify(BatchEvent::RoundEnded);
        self.end_round(round, reason, None)
    }

    fn invocation(&self, round: &Round) -> Invocation {
        let quick = self.manifest.settings.quick;
        let seed = self.manifest.seed.wrapping_add(u64::from(round.round));
        let file = self.dir.experiment(round.round);
        Invocation {
            seed,
            quick,
            command: command(&file, seed, quick, &self.manifest.catalog),
            directory: PathBuf::from("/"),
        }
    }

    /// Writes the reports and the end of a round.
    fn end_round(
        &mut self,
        round: &Round,
        reason: String,
        node: Option<String>,
    ) -> anyhow::Result<()> {
        let out = self.dir.round(round.round);
        let source = ReportSource::read(&out)?;
        report::write_all(&source, &out)?;
        let ran = self.anchor_ran(&source.records, &out);
        self.rounds.end(round, reason, node, source.records)?;
        ran
    }

    /// Ends a round whose records are complete, as after a kill before its end was recorded.
    fn end_complete(&mut self, round: &Round) -> anyhow::Result<bool> {
        let out = self.dir.round(round.round);
        if !out.join("trials.ndjson").is_file() || !out.join("manifest.json").is_file() {
            return Ok(false);
        }
        match ended_by(&RunRecords::read(&out)?) {
            EndedBy::Interrupted => Ok(false),
            reason => self.end_round(round, reason.to_string(), None).map(|()| true),
        }
    }

    /// Measures rounds on the nodes of a cluster. An unfinished round is repeated from its start.
    fn run_on(
        &mut self,
        nodes: &Nodes,
        rounds: &[Round],
        notify: &mut dyn FnMut(BatchEvent<'_>),
    ) -> anyhow::Result<()> {
        let mut jobs = Vec::new();
        for round in rounds {
            self.request.interrupt.check()?;
            if !self.end_complete(round)? {
                jobs.push(self.job(round)?);
            }
        }
        let Some(first) = jobs.first() else { return Ok(()) };
        let (_, experiment) = self.experiment(&self.dir.experiment(first.round))?;
        let (base, beside) = movable(self.manifest.settings.base()?, &experiment)?;
        let (batch, catalog) = (self.dir.path().to_owned(), self.catalog.clone());
        let (settings, system) = (self.manifest.settings.clone(), self.manifest.inputs.clone());
        let inputs = nodes::Inputs {
            batch: &batch,
            base: &base,
            option: &settings.option,
            quick: settings.quick,
            tollgate: self.request.tollgate,
            catalog: &catalog,
            beside: &beside,
            system: system.as_ref().map(|inputs| &inputs.system),
        };
        let interrupt = self.request.interrupt;
        let notify = RefCell::new(notify);
        let mut say = |text: &str| notify.borrow_mut()(BatchEvent::Nodes(text));
        let mut ended = |job: &Job, node: &str| {
            let round = rounds.iter().find(|round| round.round == job.round);
            let round = round.context("a round that was not started")?;
            let reason = self.store_fetched(round, &job.to)?;
            notify.borrow_mut()(BatchEvent::Nodes(&format!(
                "round {} has ended on {node}",
                job.round
            )));
            self.end_round(round, reason, Some(node.to_owned()))
        };
        nodes::measure(nodes, &inputs, &jobs, interrupt, &mut ended, &mut say)
    }

    /// Moves the records of a round to their place, with the command that repeats it on this machine. Returns what
    /// ended the run.
    fn store_fetched(&self, round: &Round, fetched: &Path) -> anyhow::Result<String> {
        let RunRecords { mut manifest, .. } = RunRecords::read(fetched)?;
        let Invocation { command, directory, .. } = self.invocation(round);
        manifest.command = command;
        manifest.directory = directory.display().to_string();
        write_json(&fetched.join("manifest.json"), &manifest)?;
        let out = self.dir.round(round.round);
        remove_folder(&out)?;
        fs::rename(fetched, &out).map_err(io_error("move the records to", &out))?;
        Ok(ended_by(&RunRecords::read(&out)?).to_string())
    }

    fn job(&self, round: &Round) -> anyhow::Result<Job> {
        let (_, experiment) = self.experiment(&self.dir.experiment(round.round))?;
        let mut job = Job {
            round: round.round,
            title: experiment.title.clone(),
            subjects: Vec::new(),
            products: BTreeSet::new(),
            blocks: round.blocks,
            seed: self.invocation(round).seed,
            planned: run::shortest_time(&experiment),
            to: self.dir.fetched_round(round.round),
        };
        let relative = |path: &Path| {
            let relative = path.strip_prefix(self.dir.path()).map(Path::to_owned);
            relative.context("a product is outside of the batch")
        };
        for subject in &experiment.subjects {
            let product = round.products.get(&subject.name);
            let product = product.context("a round has a subject without a product")?;
            let mut subject = self.subject(&subject.name, product)?;
            subject.product = relative(Path::new(&subject.product))?.display().to_string();
            job.subjects.push(subject);
            let folder = self.builds.folder_of(&self.dir, product).context("a product is gone")?;
            job.products.insert(relative(&folder)?);
        }
        Ok(job)
    }

    /// Fails if the anchor cannot be measured, because prices depend on it.
    fn anchor_ran(&self, run: &RunRecords, out: &Path) -> anyhow::Result<()> {
        let Some(case) = run.manifest.experiment.cases.first() else { return Ok(()) };
        if tollgate_records::metric::measured(run, &case.name, ANCHOR).next().is_some() {
            return Ok(());
        }
        let anchor = self.manifest.anchor.as_deref().unwrap_or_default();
        let name = self.manifest.revision(anchor).map_or(anchor, |revision| &revision.name);
        Err(NoAnchor::NotMeasured { name: name.to_owned(), report: out.join("report.md") }.into())
    }

    /// Writes the experiment of these subjects, given by name and product.
    pub(crate) fn write_experiment(
        &self,
        path: &Path,
        title: &str,
        subjects: &[(String, String)],
        blocks: u32,
    ) -> anyhow::Result<()> {
        let subjects = subjects.iter().map(|(name, product)| self.subject(name, product));
        let subjects: Vec<RoundSubject> = subjects.collect::<Result<_, _>>()?;
        let settings = &self.manifest.settings;
        let file = experiment(&settings.base()?, title, &settings.option, &subjects, blocks)?;
        write_atomic(path, &file.to_toml()?)
    }

    pub(crate) fn experiment(&self, path: &Path) -> anyhow::Result<(Catalog, Experiment)> {
        let catalog = Catalog::new(self.catalog.clone());
        let quick = self.manifest.settings.quick;
        let adjustments = Adjustments { quick, ..Adjustments::default() };
        let experiment = Experiment::load(&catalog, &path.display().to_string(), &adjustments)?;
        Ok((catalog, experiment))
    }
}

fn command(experiment: &Path, seed: u64, quick: bool, catalog: &[PathBuf]) -> Vec<String> {
    let experiment = experiment.display().to_string();
    let mut words = vec!["tollgate".to_owned(), "run".to_owned(), experiment];
    words.extend(["--seed".to_owned(), seed.to_string()]);
    if quick {
        words.push("--quick".to_owned());
    }
    for folder in catalog {
        words.extend(["--catalog".to_owned(), folder.display().to_string()]);
    }
    words
}
