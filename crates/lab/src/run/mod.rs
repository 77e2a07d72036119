//! A run: every trial of an experiment's plan, each on record before the next.

mod replay;

use crate::environment::Environment;
use crate::inputs::catalog::Catalog;
use crate::inputs::experiment::{Experiment, Subject};
use crate::interrupt::Interrupt;
use crate::layout::{Layout, LayoutError, available_cpus};
use crate::manifest::difference::Difference;
use crate::manifest::{Circumstances, Manifest, SubjectManifest, SubjectState};
use crate::plan::stop::EndedBy;
use crate::plan::{Fate, TrialPlan};
use crate::process::files;
use crate::record::TrialRecord;
use crate::run_dir::{RunDir, RunDirError, RunRecords};
use crate::system::installed::{self, Installed, Missing};
use crate::system::render::{self, Place, hash_text};
use crate::trial::requests::{self, RequestsError};
use crate::trial::servers::in_full;
use crate::trial::{self, Bench, config_dir};
pub use replay::ended_by;
use replay::{Replay, ending, replay, so_far};

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
    #[error("the run cannot go on: {0} of its records are not of its plan")]
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
    requests::check(experiment)?;
    let available = available_cpus().map_err(system_error("asking for the CPUs to run on"))?;
    let layout = Layout::choose(experiment.cpus.as_ref(), &available)?;
    let environment = Environment::read().map_err(system_error("reading the machine's limits"))?;
    prepare_process(&layout)?;
    let mut run_dir = match request.resumes {
        false => RunDir::create(request.out)?,
        true => RunDir::open(request.out)?,
    };

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
        let Some(record) = run_trial(&bench, experiment, &trial, installed, tell) else {
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
    let present =
        |subject: &&SubjectManifest| matches!(subject.state, SubjectState::Present { .. });
    let a_block = experiment.cases.len() * experiment.subjects.iter().filter(present).count();
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
        origin: subject.recipe.file.origin.then_some(SocketAddr::from((Ipv4Addr::LOCALHOST, 2))),
        connections: connections.unwrap_or(1),
        programs: &installed.programs,
    };
    let rendered = match render::render(catalog, subject, &place) {
        Ok(rendered) => rendered,
        Err(error) => return broken(in_full(&error)),
    };
    let mut hashes = BTreeMap::new();
    let recipe = &subject.recipe.file;
    for file in recipe.templates.iter().chain(&recipe.files) {
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

/// How long a run takes at the least: its warm-ups and windows, or what it may take where that ends it.
pub fn shortest_time(experiment: &Experiment) -> Duration {
    if let Some(budget_s) = experiment.stop.budget_s {
        return Duration::from_secs_f64(budget_s);
    }
    let a_block: Duration =
        experiment.cases.iter().map(|case| case.load.warmup.0 + case.load.duration.0).sum();
    let subjects = u32::try_from(experiment.subjects.len()).unwrap_or(u32::MAX);
    a_block * experiment.stop.blocks * subjects
}
