//! A run: every trial of an experiment's plan, each on record before the next.

pub(crate) mod prepare;
mod replay;

use crate::inputs::catalog::Catalog;
use crate::inputs::experiment::{Case, Experiment, LoadFile};
use crate::interrupt::Interrupt;
use crate::layout::LayoutError;
use crate::manifest::difference::Difference;
use crate::manifest::{CaseManifest, Circumstances, Manifest, SubjectManifest, SubjectState};
use crate::plan::rate::{Held, rate};
use crate::plan::stop::EndedBy;
use crate::plan::{Fate, TrialPlan};
use crate::record::{Outcome, Step, TrialRecord};
use crate::run_dir::{RunDir, RunDirError, RunRecords};
use crate::system::installed::Installed;
use crate::trial::requests::RequestsError;
use crate::trial::{self, Bench};
pub use prepare::Absent;
use prepare::Machine;
pub use replay::ended_by;
use replay::{Replay, ending, replay, so_far};

use nix::errno::Errno;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// What is to be run, and where its results go.
#[derive(Debug)]
pub struct RunRequest<'a> {
    /// Where inputs are found.
    pub catalog: &'a Catalog,
    /// The experiment.
    pub experiment: &'a Experiment,
    /// Seed, speed and the command that repeats the run.
    pub circumstances: Circumstances,
    /// The `tollgate` binary, which is started as the origin.
    pub tollgate: &'a Path,
    /// The run's directory, which must not be there yet unless a run is resumed.
    pub out: &'a Path,
    /// Whether the run in that directory is to go on.
    pub resumes: bool,
    /// The wish to stop.
    pub interrupt: &'a Interrupt,
}

/// What a run tells while it is under way.
#[derive(Debug)]
pub enum Event<'a> {
    /// A subject cannot be run.
    Absent(Absent<'a>),
    /// Something of the machine is not as it was when the run began.
    Changed(&'a Difference),
    /// The trials begin.
    Begun {
        /// How many there are, repeats left out; none where it is not blocks that end the run.
        trials: Option<usize>,
        /// Those that are on record already.
        done: &'a [TrialRecord],
    },
    /// A block begins.
    Block {
        /// Which, from 1.
        block: u32,
        /// The widest half-width of a price so far, as a share, where that may end the run.
        half_width: Option<f64>,
    },
    /// One trial begins.
    Trial {
        /// Its block.
        block: u32,
        /// Its case.
        case: &'a str,
        /// Its subject.
        subject: &'a str,
    },
    /// One trial is on record.
    Recorded(&'a TrialRecord),
    /// A subject is left out of the rest of a case.
    GivenUp {
        /// The case's name.
        case: &'a str,
        /// The subject's name.
        subject: &'a str,
    },
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// Its directory.
    pub dir: PathBuf,
    /// What ended it.
    pub ended_by: EndedBy,
}

/// Why a run cannot go on.
#[derive(Debug, Error)]
pub enum RunError {
    /// This machine cannot give the layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A request of the experiment cannot be sent.
    #[error(transparent)]
    Requests(#[from] RequestsError),
    /// The run's directory cannot be used.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// The run was of something else than what is there now.
    #[error("the run cannot go on, because this is not what it was begun with:{}", listed(.0))]
    Different(Vec<Difference>),
    /// Its records are not those of its plan.
    #[error(
        "the run cannot go on: {0} of its records are not of its plan, so they were changed, or are \
         those of another run; start anew"
    )]
    Strangers(usize),
    /// The operating system refuses something.
    #[error("{doing}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// Why not.
        source: Errno,
    },
}

/// Runs an experiment. Call it from a thread that lives as long as the program: the servers of a
/// trial are stopped by the kernel when the thread that started them ends.
///
/// # Errors
///
/// The machine cannot give the layout, or the run's directory cannot be written.
pub fn run(request: &RunRequest<'_>, tell: &mut dyn FnMut(Event<'_>)) -> Result<Ending, RunError> {
    let RunRequest { catalog, experiment, circumstances, interrupt, .. } = request;
    let Machine { layout, environment } = prepare::machine(experiment)?;
    let mut run_dir = match request.resumes {
        false => RunDir::create(request.out)?,
        true => RunDir::open(request.out)?,
    };

    let mut tell_absent = |absent: Absent<'_>| tell(Event::Absent(absent));
    let states = prepare::states(catalog, experiment, &run_dir.configs(), &mut tell_absent);
    let present: BTreeMap<usize, Installed> = (0..)
        .zip(&states)
        .filter_map(|(index, state)| match state {
            SubjectState::Present { installed, .. } => Some((index, installed.clone())),
            SubjectState::Skipped { .. } | SubjectState::Broken { .. } => None,
        })
        .collect();
    let manifest = Manifest::of(experiment, states, &layout, environment, circumstances);
    let mut run = match request.resumes {
        false => {
            run_dir.write_manifest(&manifest)?;
            RunRecords { manifest, trials: Vec::new(), cut_off: false }
        }
        // Only now that no other process writes to it.
        true => resume(RunRecords::read(run_dir.path())?, &manifest, tell)?,
    };

    let bench = Bench {
        catalog,
        tollgate: request.tollgate,
        configs: run_dir.configs(),
        logs: run_dir.logs(),
        layout: &layout,
        limits: &experiment.limits,
        interrupt,
    };
    let Replay { mut schedule, mut pending, .. } = replay(&run);
    tell(Event::Begun { trials: trials(&run), done: &run.trials });
    let ended_by = loop {
        let Some(trial) = pending.take().or_else(|| schedule.next_trial()) else {
            let so_far = so_far(&run, &schedule);
            if let Some(ended_by) = ending(&run, &schedule, &so_far) {
                break ended_by;
            }
            schedule.begin_block();
            let half_width = so_far.precision.map(|(half_width, _)| half_width);
            tell(Event::Block { block: schedule.block(), half_width });
            continue;
        };
        let Some(installed) = present.get(&trial.subject) else {
            continue;
        };
        let Some(record) = run_trial(&bench, &run, experiment, &trial, installed, tell) else {
            break EndedBy::Interrupted;
        };
        run_dir.append(&record)?;
        tell(Event::Recorded(&record));
        if schedule.note(&trial, Fate::of(&record.outcome)) {
            tell(Event::GivenUp { case: &record.case, subject: &record.subject });
        }
        run.trials.push(record);
    };
    Ok(Ending { dir: run_dir.path().to_owned(), ended_by })
}

/// How many trials are planned at the least; none where it is not blocks that end the run.
fn trials(run: &RunRecords) -> Option<usize> {
    let experiment = &run.manifest.experiment;
    let of_case = |case: &CaseManifest| {
        let is_there = |subject: &&SubjectManifest| {
            matches!(subject.state, SubjectState::Present { .. }) && case.is_for(&subject.name)
        };
        experiment.subjects.iter().filter(is_there).count()
    };
    let a_block: usize = experiment.cases.iter().map(of_case).sum();
    experiment.stop.budget_s.is_none().then(|| a_block * experiment.stop.blocks as usize)
}

/// The records of a run that is to go on, if what is there now is what it was begun with.
fn resume(
    records: RunRecords,
    now: &Manifest,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<RunRecords, RunError> {
    let differences = records.manifest.differences(now);
    let (machine, rest): (Vec<_>, Vec<_>) =
        differences.into_iter().partition(Difference::is_of_the_machine);
    if !rest.is_empty() {
        return Err(RunError::Different(rest));
    }
    for difference in &machine {
        tell(Event::Changed(difference));
    }
    match replay(&records).strangers {
        0 => Ok(records),
        strangers => Err(RunError::Strangers(strangers)),
    }
}

fn listed(differences: &[Difference]) -> String {
    differences.iter().map(|difference| format!("\n  {difference}")).collect()
}

fn run_trial(
    bench: &Bench<'_>,
    run: &RunRecords,
    experiment: &Experiment,
    trial: &TrialPlan,
    installed: &Installed,
    tell: &mut dyn FnMut(Event<'_>),
) -> Option<TrialRecord> {
    bench.interrupt.check().ok()?;
    let case = &experiment.cases[trial.case];
    let subject = &experiment.subjects[trial.subject];
    tell(Event::Trial { block: trial.block, case: &case.name, subject: &subject.name });
    let Some(rate_of) = &case.rate_of else {
        return trial::run(bench, trial, case, subject, installed).ok();
    };
    match rate(rate_of.share.0, &held(run, &rate_of.case)) {
        Some(rate) => {
            let load = LoadFile { rate: Some(rate), ..case.load };
            trial::run(bench, trial, &Case { load, ..case.clone() }, subject, installed).ok()
        }
        None => {
            let reason = format!(
                "its rate is {} of what the slowest subject holds in the case {}, and no trial of that \
                 counts yet",
                rate_of.share, rate_of.case
            );
            Some(trial::failed_at_once(trial, case, subject, Step::Configure, reason))
        }
    }
}

/// What the trials of a case held that count.
fn held<'a>(run: &'a RunRecords, case: &str) -> Vec<Held<'a>> {
    let of_case = run.trials.iter().filter(|trial| trial.case == case);
    let measured = of_case.filter_map(|trial| match &trial.outcome {
        Outcome::Measured(measurement) if measurement.invalid.is_empty() => Some(Held {
            subject: &trial.subject,
            block: trial.block,
            throughput_per_s: measurement.throughput_per_s,
        }),
        Outcome::Measured(_) | Outcome::Refused(_) | Outcome::Failed(_) => None,
    });
    measured.collect()
}

/// How long a run takes at the least: its warm-ups and windows, or what it may take where that ends it.
pub fn shortest_time(experiment: &Experiment) -> Duration {
    if let Some(budget_s) = experiment.stop.budget_s {
        return Duration::from_secs_f64(budget_s);
    }
    let of_case = |case: &Case| {
        let subjects = u32::try_from(case.subjects.len()).unwrap_or(u32::MAX);
        (case.load.warmup_shortest() + case.load.window().shortest()) * subjects
    };
    let a_block: Duration = experiment.cases.iter().map(of_case).sum();
    a_block * experiment.stop.blocks
}
