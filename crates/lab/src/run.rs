//! A run: every trial of an experiment's plan, each on record before the next.

use crate::environment::Environment;
use crate::inputs::catalog::Catalog;
use crate::inputs::experiment::{Experiment, Subject};
use crate::interrupt::Interrupt;
use crate::layout::{Layout, LayoutError, available_cpus};
use crate::manifest::{Circumstances, Manifest, SubjectState};
use crate::plan::{TrialPlan, plan};
use crate::process::files;
use crate::record::{Outcome, TrialRecord};
use crate::run_dir::{RunDir, RunDirError};
use crate::system::installed::{self, Installed, Missing};
use crate::system::render::{self, Place, hash_text};
use crate::trial::requests::{self, RequestsError};
use crate::trial::servers::in_full;
use crate::trial::{self, Bench, config_dir};
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_child_subreaper;
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
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
    /// The run's directory, which must not be there yet.
    pub out: &'a Path,
    /// The wish to stop.
    pub interrupt: &'a Interrupt,
}

/// What a run tells while it is under way.
#[derive(Debug)]
pub enum Event<'a> {
    /// A subject's system is not on this machine.
    Skipped {
        /// The subject's name.
        subject: &'a str,
        /// What is missing.
        missing: &'a Missing,
    },
    /// A subject's config cannot be made.
    Broken {
        /// The subject's name.
        subject: &'a str,
        /// Why not.
        reason: &'a str,
    },
    /// The trials begin.
    Begun {
        /// How many there are.
        trials: usize,
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
    /// A trial of a subject that was given up is passed over.
    PassedOver,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// Its directory.
    pub dir: PathBuf,
    /// Whether it was asked to stop before its last trial.
    pub interrupted: bool,
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
    requests::check(experiment)?;
    let available = available_cpus().map_err(system_error("asking for the CPUs to run on"))?;
    let layout = Layout::choose(experiment.cpus.as_ref(), &available)?;
    let environment = Environment::read().map_err(system_error("reading the machine's limits"))?;
    prepare_process(&layout)?;
    let mut run_dir = RunDir::create(request.out)?;

    let states: Vec<SubjectState> = experiment
        .subjects
        .iter()
        .map(|subject| state(catalog, experiment, subject, &run_dir.configs(), tell))
        .collect();
    let present: BTreeMap<usize, Installed> = (0..)
        .zip(&states)
        .filter_map(|(index, state)| match state {
            SubjectState::Present { installed, .. } => Some((index, installed.clone())),
            SubjectState::Skipped { .. } | SubjectState::Broken { .. } => None,
        })
        .collect();
    run_dir.write_manifest(&Manifest::of(
        experiment,
        states,
        &layout,
        environment,
        circumstances,
    ))?;

    let bench = Bench {
        catalog,
        tollgate: request.tollgate,
        configs: run_dir.configs(),
        logs: run_dir.logs(),
        layout: &layout,
        interrupt,
    };
    let subjects: Vec<usize> = present.keys().copied().collect();
    let trials = plan(experiment.cases.len(), &subjects, experiment.blocks, circumstances.seed);
    tell(Event::Begun { trials: trials.len() });
    let mut patience = Patience::default();
    for trial in &trials {
        let Some(installed) = present.get(&trial.subject) else {
            continue;
        };
        if patience.is_over(trial) {
            tell(Event::PassedOver);
            continue;
        }
        match run_trial(&bench, experiment, trial, installed, tell) {
            Some(record) => {
                run_dir.append(&record)?;
                tell(Event::Recorded(&record));
                if patience.note(trial, &record.outcome) {
                    tell(Event::GivenUp { case: &record.case, subject: &record.subject });
                }
            }
            None => break,
        }
    }
    Ok(Ending { dir: run_dir.path().to_owned(), interrupted: interrupt.check().is_err() })
}

/// How often in a row a subject may fail or be refused before it is left out of the run.
const PATIENCE: u32 = 2;

/// Counts, for each case and subject, how often in a row it could not be measured.
#[derive(Debug, Default)]
struct Patience(BTreeMap<(usize, usize), u32>);

impl Patience {
    fn is_over(&self, trial: &TrialPlan) -> bool {
        self.0.get(&(trial.case, trial.subject)).is_some_and(|count| *count >= PATIENCE)
    }

    /// Whether this outcome was the last straw.
    fn note(&mut self, trial: &TrialPlan, outcome: &Outcome) -> bool {
        let count = self.0.entry((trial.case, trial.subject)).or_default();
        match outcome {
            Outcome::Measured(_) => *count = 0,
            Outcome::Refused(_) | Outcome::Failed(_) => *count += 1,
        }
        *count == PATIENCE
    }
}

fn run_trial(
    bench: &Bench<'_>,
    experiment: &Experiment,
    trial: &TrialPlan,
    installed: &Installed,
    tell: &mut dyn FnMut(Event<'_>),
) -> Option<TrialRecord> {
    bench.interrupt.check().ok()?;
    let case = &experiment.cases[trial.case];
    let subject = &experiment.subjects[trial.subject];
    tell(Event::Trial { block: trial.block, case: &case.name, subject: &subject.name });
    trial::run(bench, trial, case, subject, installed).ok()
}

/// What of a subject is on this machine; its configs are rendered once, with fixed ports, so that
/// their hashes can be compared between runs and a broken template is known before the first trial.
pub(crate) fn state(
    catalog: &Catalog,
    experiment: &Experiment,
    subject: &Subject,
    configs: &Path,
    tell: &mut dyn FnMut(Event<'_>),
) -> SubjectState {
    let mut broken = |reason: String| {
        tell(Event::Broken { subject: &subject.name, reason: &reason });
        SubjectState::Broken { reason }
    };
    let installed = match installed::check(subject) {
        Ok(Ok(installed)) => installed,
        Ok(Err(missing)) => {
            tell(Event::Skipped { subject: &subject.name, missing: &missing });
            return SubjectState::Skipped { missing };
        }
        Err(error) => return broken(in_full(&error)),
    };
    let dir = config_dir(configs, subject);
    if let Err(error) = fs::create_dir_all(&dir) {
        return broken(format!("making {}: {error}", dir.display()));
    }
    let connections = experiment.cases.iter().map(|case| case.load.connections_most()).max();
    let place = Place {
        dir: &dir,
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        origin: SocketAddr::from((Ipv4Addr::LOCALHOST, 2)),
        connections: connections.unwrap_or(1),
        programs: &installed.programs,
    };
    let rendered = match render::render(catalog, subject, &place) {
        Ok(rendered) => rendered,
        Err(error) => return broken(in_full(&error)),
    };
    let mut hashes = BTreeMap::new();
    for file in &subject.recipe.file.templates {
        match fs::read_to_string(dir.join(file)) {
            Ok(text) => {
                // The folder is another in each run, and no part of what is configured.
                let text = text.replace(&dir.display().to_string(), "RUN");
                hashes.insert(file.clone(), hash_text(&text))
            }
            Err(error) => return broken(format!("reading {file}: {error}")),
        };
    }
    SubjectState::Present { installed, configs: hashes, referenced: rendered.referenced }
}

/// Keeps the lab off the system's CPUs, lets it open as many files as it may, and makes it the
/// parent of every orphan below it, so that none escapes.
pub(crate) fn prepare_process(layout: &Layout) -> Result<(), RunError> {
    let mut cpus = CpuSet::new();
    for cpu in layout.generator.iter().chain(&layout.origin) {
        cpus.set(*cpu).map_err(system_error("choosing CPUs"))?;
    }
    sched_setaffinity(Pid::from_raw(0), &cpus).map_err(system_error("choosing CPUs"))?;
    files::raise_limit().map_err(system_error("raising the limit of open files"))?;
    set_child_subreaper(true).map_err(system_error("becoming the parent of orphans"))
}

pub(crate) fn system_error(doing: &'static str) -> impl Fn(Errno) -> RunError {
    move |source| RunError::System { doing, source }
}

/// How long a run takes at the least: its warm-ups and windows.
pub fn shortest_time(experiment: &Experiment) -> Duration {
    let a_block: Duration =
        experiment.cases.iter().map(|case| case.load.warmup.0 + case.load.duration.0).sum();
    let subjects = u32::try_from(experiment.subjects.len()).unwrap_or(u32::MAX);
    a_block * experiment.blocks * subjects
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Failure, Step};

    #[test]
    fn a_subject_that_fails_twice_in_a_row_is_given_up() {
        let failed =
            Outcome::Failed(Failure { step: Step::Start, reason: String::new(), log: vec![] });
        let mut patience = Patience::default();
        let trial = plan(1, &[3], 1, 0)[0];
        let other_case = TrialPlan { case: 1, ..trial };
        assert!(!patience.note(&trial, &failed));
        assert!(!patience.is_over(&trial));
        assert!(patience.note(&trial, &failed));
        assert!(patience.is_over(&trial) && !patience.is_over(&other_case));
    }
}
