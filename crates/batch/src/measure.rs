//! Measures products in rounds.

use crate::build;
use crate::builder::{Builder, Event};
use crate::config::Settings;
use crate::inputs::Inputs;
use crate::repository::Revision;
use crate::rounds::{ANCHOR, RoundSubject, Share, experiment};
use crate::series::{not_started, refused};
use crate::store::{Failure, ProbeRecord, Purpose, Round, RoundRecord, SCHEMA};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use thiserror::Error;
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::error::io_error;
use tollgate_experiment::experiment::{Adjustments, Experiment};
use tollgate_experiment::files::{remove_folder, write_atomic};
use tollgate_experiment::manifest::Invocation;
use tollgate_experiment::run_dir::RunRecords;
use tollgate_experiment::stop::EndedBy;
use tollgate_report as report;
use tollgate_report::source::Source;
use tollgate_runner::process::Interrupted;
use tollgate_runner::run::{self, CannotResume, RunRequest};
use tollgate_runner::system;
use tollgate_runner::trial::{self, CheckRequest};

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

const NONE_RUNS: &str = "none of the first 3 revisions beside the anchor can be measured, for the reasons above; the \
                         batch continues; stop it if they share a cause, such as the experiment or the build";

impl Builder<'_> {
    /// Checks that the inputs equal those at the start of the batch; before the first round, records them.
    pub(crate) fn check_inputs(&mut self) -> anyhow::Result<()> {
        let folder = self.dir.inputs();
        fs::create_dir_all(&folder).map_err(io_error("create", &folder))?;
        let path = folder.join("anchor.toml");
        let anchor = (ANCHOR.to_owned(), self.anchor_product()?);
        self.write_experiment(&path, &self.manifest.settings.title, &[anchor], 1)?;
        let (catalog, experiment) = self.experiment(&path)?;
        // Read again, as a batch may last for days.
        let tools = build::tools(&self.manifest.settings, self.interrupt)?;
        self.tools = Some(tools.clone());
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

    pub(crate) fn end_rounds(&mut self, notify: &mut dyn FnMut(Event<'_>)) -> anyhow::Result<()> {
        let open: Vec<Round> =
            self.dir.started().filter(|one| !self.dir.has_ended(one.round)).cloned().collect();
        open.iter().try_for_each(|round| self.run_round(round, notify))
    }

    pub(crate) fn measure(
        &mut self,
        purpose: Purpose,
        share: Share,
        blocks: u32,
        notify: &mut dyn FnMut(Event<'_>),
    ) -> anyhow::Result<()> {
        self.check_inputs()?;
        let anchor = self.anchor_product()?;
        let number = self.dir.started().map(|round| round.round).max().unwrap_or(0) + 1;
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
        self.dir.rounds.add(RoundRecord::Started(round.clone()))?;
        self.run_round(&round, notify)
    }

    fn run_round(
        &mut self,
        round: &Round,
        notify: &mut dyn FnMut(Event<'_>),
    ) -> anyhow::Result<()> {
        self.interrupt.check()?;
        self.use_all_cpus()?;
        let (file, out) = (self.dir.experiment(round.round), self.dir.round(round.round));
        let quick = self.manifest.settings.quick;
        let (catalog, experiment) = self.experiment(&file)?;
        notify(Event::Round { round, experiment: &experiment });
        let resumes = out.join("trials.ndjson").is_file() && out.join("manifest.json").is_file();
        if !resumes {
            remove_folder(&out)?;
        }
        let seed = self.manifest.seed.wrapping_add(u64::from(round.round));
        let request = RunRequest {
            catalog: &catalog,
            experiment: &experiment,
            invocation: Invocation {
                seed,
                quick,
                command: command(&file, seed, quick, &self.manifest.catalog),
                directory: PathBuf::from("/"),
            },
            tollgate: self.tollgate,
            out: &out,
            interrupt: self.interrupt,
            resumes,
        };
        let reason = match run::run(&request, &mut |event| notify(Event::Run(&event))) {
            Ok(ending) if ending.ended_by == EndedBy::Interrupted => return Err(Interrupted.into()),
            Ok(ending) => ending.ended_by.to_string(),
            // Existing trials stay; missing ones will be measured in a new round.
            Err(error) if error.is::<CannotResume>() => format!("{error:#}"),
            Err(error) => return Err(error),
        };
        report::write_all(&Source::read(&out)?, &out)?;
        self.dir.rounds.add(RoundRecord::Ended { round: round.round, reason })?;
        notify(Event::RoundEnded);
        self.anchor_ran(&out)
    }

    /// Fails if the anchor cannot be measured, because prices depend on it.
    fn anchor_ran(&self, out: &Path) -> anyhow::Result<()> {
        let run = RunRecords::read(out)?;
        let Some(case) = run.manifest.experiment.cases.first() else { return Ok(()) };
        if tollgate_experiment::metric::measured(&run, &case.name, ANCHOR).next().is_some() {
            return Ok(());
        }
        let anchor = self.manifest.anchor.as_deref().unwrap_or_default();
        let name = self.manifest.revision(anchor).map_or(anchor, |revision| &revision.name);
        Err(NoAnchor::NotMeasured { name: name.to_owned(), report: out.join("report.md") }.into())
    }

    /// Writes the experiment of these subjects, given by name and product.
    fn write_experiment(
        &self,
        path: &Path,
        title: &str,
        subjects: &[(String, String)],
        blocks: u32,
    ) -> anyhow::Result<()> {
        let subjects = subjects.iter().map(|(name, product)| self.subject(name, product));
        let subjects: Vec<RoundSubject> = subjects.collect::<Result<_, _>>()?;
        let Settings { base, option, .. } = &self.manifest.settings;
        write_atomic(path, &experiment(base, title, option, &subjects, blocks)?)
    }

    /// Builds a revision and probes its product. Returns the product if it can be measured.
    pub(crate) fn product(
        &mut self,
        revision: &Revision,
        notify: &mut dyn FnMut(Event<'_>),
    ) -> anyhow::Result<Option<String>> {
        let mut product = self.build(revision, notify)?;
        if let Some(built) = &product
            && self.probe(revision, built, notify)?.is_some()
        {
            product = None;
        }
        if self.is_last_of_failed_first(product.as_deref()) {
            notify(Event::Search(NONE_RUNS));
        }
        Ok(product)
    }

    /// Starts a product and sends it the requests of the probe, as before a trial, unless it has passed before. Returns
    /// and records the failure. Failures are repeated for the anchor, and with --retry.
    pub(crate) fn probe(
        &mut self,
        revision: &Revision,
        product: &str,
        notify: &mut dyn FnMut(Event<'_>),
    ) -> anyhow::Result<Option<Failure>> {
        let anchor = self.anchor_product()?;
        let known = self.dir.probes.lines().iter().rev().find(|one| one.product == product);
        match known.map(|known| &known.failure) {
            Some(Some(failure))
                if product != anchor && (!self.retries() || self.probed.contains(product)) =>
            {
                return Ok(Some(failure.clone()));
            }
            Some(None) => return Ok(None),
            Some(Some(_)) | None => {}
        }
        if self.dir.started().any(|round| round.products.values().any(|one| one == product)) {
            return Ok(None);
        }
        let failure = self.start_and_probe(revision, product, &anchor)?;
        if let Some(failure) = &failure {
            notify(Event::ProbeFailed { revision, failure });
        }
        self.probed.insert(product.to_owned());
        let record =
            ProbeRecord { schema: SCHEMA, product: product.to_owned(), failure: failure.clone() };
        self.dir.probes.add(record)?;
        Ok(failure)
    }

    fn start_and_probe(
        &self,
        revision: &Revision,
        product: &str,
        anchor: &str,
    ) -> anyhow::Result<Option<Failure>> {
        self.use_all_cpus()?;
        let folder = self.dir.probe();
        fs::create_dir_all(&folder).map_err(io_error("create", &folder))?;
        let path = folder.join("probe.toml");
        let mut subjects = vec![(ANCHOR.to_owned(), anchor.to_owned())];
        if product != anchor {
            subjects.push((revision.name.clone(), product.to_owned()));
        }
        self.write_experiment(&path, &self.manifest.settings.title, &subjects, 1)?;
        let (catalog, experiment) = self.experiment(&path)?;
        let (Some(case), Some(subject)) = (experiment.cases.first(), experiment.subjects.last())
        else {
            return Ok(None);
        };
        let machine = run::prepare(&experiment)?;
        // As in a run, a version command that fails is a failure of the product.
        let installed = match system::check(&catalog, subject) {
            Ok(Ok(installed)) => installed,
            Ok(Err(missing)) => return Ok(Some(Failure::of_text(&missing.to_string()))),
            Err(error) => return Ok(Some(Failure::of_text(&format!("{error:#}")))),
        };
        let checked = trial::check(&CheckRequest {
            catalog: &catalog,
            case,
            subject,
            installed: &installed,
            layout: &machine.layout,
            tollgate: self.tollgate,
            dir: &folder,
            interrupt: self.interrupt,
        })?;
        Ok(match checked {
            Ok(checked) => checked.refused.map(|reason| refused(&reason)),
            Err(failure) => Some(not_started(&failure)),
        })
    }

    fn experiment(&self, path: &Path) -> anyhow::Result<(Catalog, Experiment)> {
        let catalog = Catalog::new(self.catalog.clone());
        let quick = self.manifest.settings.quick;
        let adjustments = Adjustments { quick, ..Adjustments::default() };
        let experiment = Experiment::load(&catalog, &path.display().to_string(), &adjustments)?;
        Ok((catalog, experiment))
    }
}

fn command(experiment: &Path, seed: u64, quick: bool, catalog: &[PathBuf]) -> String {
    let experiment = experiment.display().to_string();
    let mut words = vec!["tollgate".to_owned(), "run".to_owned(), experiment];
    words.extend(["--seed".to_owned(), seed.to_string()]);
    if quick {
        words.push("--quick".to_owned());
    }
    for folder in catalog {
        words.extend(["--catalog".to_owned(), folder.display().to_string()]);
    }
    shell_words::join(words)
}
