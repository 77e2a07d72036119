//! Measures products in rounds.

use crate::builder::{Builder, Event};
use crate::inputs::Inputs;
use crate::rounds::{ANCHOR, RoundSubject, Share, experiment};
use crate::store::{Purpose, Round, RoundRecord, SCHEMA};
use crate::{BatchError, build, io_error};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::error_chain;
use tollgate_experiment::experiment::{Adjustments, Experiment};
use tollgate_experiment::files::write_atomic;
use tollgate_experiment::manifest::Invocation;
use tollgate_experiment::run_dir::RunRecords;
use tollgate_experiment::stop::EndedBy;
use tollgate_report::output as report;
use tollgate_report::source::Source;
use tollgate_runner::process::Interrupted;
use tollgate_runner::run::{self, RunError, RunRequest};

impl Builder<'_> {
    /// Checks that the inputs are those of the start of the batch; before the first round, records them.
    pub(crate) fn hold_inputs(&mut self) -> Result<(), BatchError> {
        let anchor = self.subject(ANCHOR, &self.anchor_product()?)?;
        let settings = &self.manifest.settings;
        let text = experiment(&settings.base, &settings.title, &settings.option, &[anchor], 1)?;
        let folder = self.dir.inputs();
        fs::create_dir_all(&folder).map_err(io_error("create", &folder))?;
        let path = folder.join("anchor.toml");
        write_atomic(&path, &text).map_err(io_error("write", &path))?;
        let (catalog, experiment) = self.experiment(&path)?;
        // Read again, as a batch may last for days.
        let tools = build::tools(&self.manifest.settings, self.interrupt)?;
        self.tools = Some(tools.clone());
        let now = Inputs::of(&catalog, &experiment, tools, self.dir.path(), &folder)?;
        if let Some(original) = &self.manifest.inputs {
            now.hold(original, self.manifest.other_catalog(&self.catalog).as_deref())?;
            if self.manifest.catalog == self.catalog {
                return Ok(());
            }
        }
        // Inputs of another catalog with the same hashes are accepted.
        self.manifest.inputs = Some(now);
        self.manifest.catalog.clone_from(&self.catalog);
        self.manifest.write(self.dir.path())
    }

    /// Completes unfinished rounds.
    pub(crate) fn end_rounds(
        &mut self,
        notify: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), BatchError> {
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
    ) -> Result<(), BatchError> {
        self.hold_inputs()?;
        let anchor = self.anchor_product()?;
        let number = self.dir.started().map(|round| round.round).max().unwrap_or(0) + 1;
        let mut products: BTreeMap<_, _> = share.subjects.iter().cloned().collect();
        products.insert(ANCHOR.to_owned(), anchor.clone());
        let round = Round {
            schema: SCHEMA,
            round: number,
            purpose,
            products,
            duplicates: share.again,
            blocks,
        };
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
        write_atomic(&path, &text).map_err(io_error("write", &path))?;
        // From here on, a batch that continues will run it.
        self.dir.rounds.add(RoundRecord::Started(round.clone()))?;
        self.run_round(&round, notify)
    }

    fn run_round(
        &mut self,
        round: &Round,
        notify: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), BatchError> {
        self.interrupt.check()?;
        self.use_all_cpus()?;
        let (file, out) = (self.dir.experiment(round.round), self.dir.round(round.round));
        let quick = self.manifest.settings.quick;
        let (catalog, experiment) = self.experiment(&file)?;
        notify(Event::Round { round, experiment: &experiment });
        let resumes = out.join("trials.ndjson").is_file() && out.join("manifest.json").is_file();
        if out.exists() && !resumes {
            fs::remove_dir_all(&out).map_err(io_error("remove", &out))?;
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
        let because = match run::run(&request, &mut |event| notify(Event::Run(&event))) {
            Ok(ending) if ending.ended_by == EndedBy::Interrupted => return Err(Interrupted.into()),
            Ok(ending) => ending.ended_by.to_string(),
            // Existing trials stay; missing ones will be measured in a new round.
            Err(error @ (RunError::Different(_) | RunError::ForeignRecords(_))) => {
                error_chain(&error)
            }
            Err(error) => return Err(error.into()),
        };
        report::write_all(&Source::read(&out)?, &out)?;
        self.dir.rounds.add(RoundRecord::Ended { round: round.round, reason: because })?;
        notify(Event::RoundEnded);
        self.anchor_ran(&out)
    }

    /// Fails if the anchor cannot be measured, as there are no prices without it.
    fn anchor_ran(&self, out: &Path) -> Result<(), BatchError> {
        let run = RunRecords::read(out)?;
        let Some(case) = run.manifest.experiment.cases.first() else { return Ok(()) };
        if tollgate_experiment::metric::measured(&run, &case.name, ANCHOR).next().is_some() {
            return Ok(());
        }
        let anchor = self.manifest.anchor.as_deref().unwrap_or_default();
        let name = self.manifest.revision(anchor).map_or(anchor, |revision| &revision.name);
        Err(BatchError::Asked(format!(
            "cannot measure the anchor {name} (see {}); choose another --anchor and --out",
            out.join("report.md").display()
        )))
    }

    fn experiment(&self, path: &Path) -> Result<(Catalog, Experiment), BatchError> {
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
