//! From products to rounds: each is a run as any other, with the anchor and some products.

use super::inputs::Inputs;
use super::plan::Share;
use super::records::{Purpose, Round, RoundRecord, SCHEMA};
use super::rounds::{ANCHOR, RoundSubject, experiment};
use super::run::Event;
use super::workshop::Workshop;
use super::{BatchError, io_error, making};
use crate::causes::in_full;
use crate::inputs::catalog::Catalog;
use crate::inputs::experiment::{Adjustments, Experiment};
use crate::interrupt::Interrupted;
use crate::manifest::Circumstances;
use crate::plan::stop::EndedBy;
use crate::report;
use crate::run::{self, RunError, RunRequest};
use crate::run_dir::RunRecords;
use crate::whole_file;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

impl Workshop<'_> {
    /// Checks that all that is measured with is what the batch was begun with; before its first round, that is
    /// what there is now.
    pub(super) fn hold_inputs(&mut self) -> Result<(), BatchError> {
        let anchor = self.subject(ANCHOR, &self.anchor_product()?)?;
        let settings = &self.manifest.settings;
        let text = experiment(&settings.base, &settings.title, &settings.option, &[anchor], 1)?;
        let folder = self.dir.inputs();
        fs::create_dir_all(&folder).map_err(io_error("making", &folder))?;
        let path = folder.join("anchor.toml");
        whole_file::write(&path, &text).map_err(io_error("writing", &path))?;
        let (catalog, experiment) = self.experiment(&path)?;
        // Asked anew, as a batch may last for days.
        let tools = making::tools(&self.manifest.settings, self.interrupt)?;
        self.tools = Some(tools.clone());
        let now = Inputs::of(&catalog, &experiment, tools, self.dir.path(), &folder)?;
        if let Some(begun) = &self.manifest.inputs {
            now.hold(begun, self.manifest.other_catalog(&self.catalog).as_deref())?;
            if self.manifest.catalog == self.catalog {
                return Ok(());
            }
        }
        // Those of another catalog that are the same by their hashes are the same inputs.
        self.manifest.inputs = Some(now);
        self.manifest.catalog.clone_from(&self.catalog);
        self.manifest.write(self.dir.path())
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
        self.hold_inputs()?;
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

    fn run_round(
        &mut self,
        round: &Round,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), BatchError> {
        self.interrupt.check()?;
        self.use_all_cpus()?;
        let (file, out) = (self.dir.experiment(round.round), self.dir.round(round.round));
        let quick = self.manifest.settings.quick;
        let (catalog, experiment) = self.experiment(&file)?;
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
                quick,
                command: command(&file, seed, quick, &self.manifest.catalog),
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

    /// An experiment of the batch, read as a run reads it.
    fn experiment(&self, path: &Path) -> Result<(Catalog, Experiment), BatchError> {
        let catalog = Catalog::new(self.catalog.clone());
        let quick = self.manifest.settings.quick;
        let adjustments = Adjustments { quick, ..Adjustments::default() };
        let experiment = Experiment::load(&catalog, &path.display().to_string(), &adjustments)?;
        Ok((catalog, experiment))
    }
}

/// The command that repeats a round.
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
