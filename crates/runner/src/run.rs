//! A run: all trials of an experiment, each recorded before the next one starts.

use crate::environment;
use crate::process::{self, Interrupt};
use crate::system;
use crate::system::render::{self, Place};
use crate::trial::requests::{self, RequestsError};
use crate::trial::{self, RunContext, config_dir};
use nix::sys::prctl::set_child_subreaper;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs, io};
use thiserror::Error;
use tollgate_eventloop::{available_cpus, pin_current_thread};
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::error_chain;
use tollgate_experiment::experiment::{Case, CpusFile, Experiment, LoadFile, Subject};
use tollgate_experiment::files::hash_text;
use tollgate_experiment::machine::{CpuLayout, CpuLayoutError, Environment};
use tollgate_experiment::manifest::{CaseManifest, Difference, Invocation, Manifest, SubjectState};
use tollgate_experiment::plan::{TrialPlan, TrialStatus, ValidThroughput, rate};
use tollgate_experiment::recipe::{Installed, Missing};
use tollgate_experiment::record::{Outcome, Step, TrialRecord};
use tollgate_experiment::run_dir::{RunDir, RunDirError, RunRecords};
use tollgate_experiment::stop::{EndedBy, Replay, ending, replay, so_far};

#[derive(Debug)]
pub struct RunRequest<'a> {
    pub catalog: &'a Catalog,
    pub experiment: &'a Experiment,
    /// Seed, speed and command line.
    pub invocation: Invocation,
    /// The `tollgate` binary, for the origin.
    pub tollgate: &'a Path,
    /// Run directory. Must not exist, unless a run is resumed.
    pub out: &'a Path,
    /// Resumes the run in that directory.
    pub resumes: bool,
    pub interrupt: &'a Interrupt,
}

/// Progress of a run.
#[derive(Debug)]
pub enum Event<'a> {
    NotInstalled(NotInstalled<'a>),
    /// The machine has changed since the start of a resumed run.
    Changed(&'a Difference),
    Begun {
        /// Planned trials without repetitions. `None` if a time limit ends the run.
        trials: Option<usize>,
        /// Recorded trials of a resumed run.
        done: &'a [TrialRecord],
    },
    Block {
        /// From 1.
        block: u32,
        /// Largest relative half-width of a price so far, if it may end the run.
        half_width: Option<f64>,
    },
    Trial {
        block: u32,
        case: &'a str,
        subject: &'a str,
    },
    Recorded(&'a TrialRecord),
    /// A subject is skipped in the rest of a case.
    GivenUp {
        case: &'a str,
        subject: &'a str,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub dir: PathBuf,
    pub ended_by: EndedBy,
}

#[derive(Debug, Error)]
pub enum RunError {
    #[error(transparent)]
    Layout(#[from] CpuLayoutError),
    #[error(transparent)]
    Requests(#[from] RequestsError),
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    #[error("cannot resume the run, because its inputs have changed:{}", listed(.0))]
    Different(Vec<Difference>),
    #[error(
        "cannot resume the run: {0} of its records do not match its plan (modified, or of another run); start a \
         new run"
    )]
    ForeignRecords(usize),
    #[error("cannot {action}")]
    System { action: &'static str, source: io::Error },
}

/// Runs an experiment. The calling thread must live as long as the program: the kernel stops the servers of a trial when
/// the thread that started them ends.
pub fn run(
    request: &RunRequest<'_>,
    report: &mut dyn FnMut(Event<'_>),
) -> Result<Ending, RunError> {
    let RunRequest { catalog, experiment, invocation, interrupt, .. } = request;
    let Machine { layout, environment } = prepare(experiment)?;
    let mut run_dir = match request.resumes {
        false => RunDir::create(request.out)?,
        true => RunDir::open(request.out)?,
    };

    let mut report_not_installed = |subject: NotInstalled<'_>| report(Event::NotInstalled(subject));
    let states = states(catalog, experiment, &run_dir.configs(), &mut report_not_installed);
    let present: BTreeMap<usize, Installed> = (0..)
        .zip(&states)
        .filter_map(|(index, state)| match state {
            SubjectState::Present { installed, .. } => Some((index, installed.clone())),
            SubjectState::Skipped { .. } | SubjectState::Broken { .. } => None,
        })
        .collect();
    let manifest = Manifest::of(experiment, states, &layout, environment, invocation);
    let mut run = match request.resumes {
        false => {
            run_dir.write_manifest(&manifest)?;
            RunRecords { manifest, trials: Vec::new(), cut_off: false }
        }
        // After `open` has locked the directory.
        true => resume(RunRecords::read(run_dir.path())?, &manifest, report)?,
    };

    let context = RunContext {
        catalog,
        tollgate: request.tollgate,
        configs: run_dir.configs(),
        logs: run_dir.logs(),
        layout: &layout,
        limits: &experiment.limits,
        interrupt,
    };
    let Replay { mut schedule, mut pending, .. } = replay(&run);
    report(Event::Begun { trials: trials(&run), done: &run.trials });
    let ended_by = loop {
        let Some(trial) = pending.take().or_else(|| schedule.next_trial()) else {
            let so_far = so_far(&run, &schedule);
            if let Some(ended_by) = ending(&run, &schedule, &so_far) {
                break ended_by;
            }
            schedule.begin_block();
            report(Event::Block { block: schedule.block(), half_width: so_far.half_width });
            continue;
        };
        let Some(installed) = present.get(&trial.subject) else {
            continue;
        };
        let Some(record) = run_trial(&context, &run, experiment, &trial, installed, report) else {
            break EndedBy::Interrupted;
        };
        run_dir.append(&record)?;
        report(Event::Recorded(&record));
        if schedule.note(&trial, TrialStatus::of(&record.outcome)) {
            report(Event::GivenUp { case: &record.case, subject: &record.subject });
        }
        run.trials.push(record);
    };
    Ok(Ending { dir: run_dir.path().to_owned(), ended_by })
}

/// Minimum number of trials. `None` if a time limit ends the run.
fn trials(run: &RunRecords) -> Option<usize> {
    let experiment = &run.manifest.experiment;
    let of_case = |case: &CaseManifest| {
        experiment.subjects.iter().filter(|subject| case.runs(subject)).count()
    };
    let a_block: usize = experiment.cases.iter().map(of_case).sum();
    experiment.stop.budget_s.is_none().then(|| a_block * experiment.stop.blocks as usize)
}

/// Returns the records of a resumed run if its inputs have not changed.
fn resume(
    records: RunRecords,
    now: &Manifest,
    report: &mut dyn FnMut(Event<'_>),
) -> Result<RunRecords, RunError> {
    let differences = records.manifest.differences(now);
    let (machine, rest): (Vec<_>, Vec<_>) =
        differences.into_iter().partition(Difference::is_of_the_machine);
    if !rest.is_empty() {
        return Err(RunError::Different(rest));
    }
    for difference in &machine {
        report(Event::Changed(difference));
    }
    match replay(&records).foreign_records {
        0 => Ok(records),
        foreign_records => Err(RunError::ForeignRecords(foreign_records)),
    }
}

fn listed(differences: &[Difference]) -> String {
    differences.iter().map(|difference| format!("\n  {difference}")).collect()
}

fn run_trial(
    context: &RunContext<'_>,
    run: &RunRecords,
    experiment: &Experiment,
    trial: &TrialPlan,
    installed: &Installed,
    report: &mut dyn FnMut(Event<'_>),
) -> Option<TrialRecord> {
    context.interrupt.check().ok()?;
    let case = &experiment.cases[trial.case];
    let subject = &experiment.subjects[trial.subject];
    report(Event::Trial { block: trial.block, case: &case.name, subject: &subject.name });
    let Some(rate_of) = &case.rate_of else {
        return trial::run(context, trial, case, subject, installed).ok();
    };
    match rate(rate_of.share.0, &valid_throughputs(run, &rate_of.case)) {
        Some(rate) => {
            let load = LoadFile { rate: Some(rate), ..case.load };
            trial::run(context, trial, &Case { load, ..case.clone() }, subject, installed).ok()
        }
        None => {
            let reason = format!(
                "its rate is {} of the throughput of the slowest subject in case {}, which has no valid \
                 trial yet",
                rate_of.share, rate_of.case
            );
            Some(trial::failed_at_once(trial, case, subject, Step::Configure, reason))
        }
    }
}

/// Returns the throughput of the valid trials of a case.
fn valid_throughputs<'a>(run: &'a RunRecords, case: &str) -> Vec<ValidThroughput<'a>> {
    let of_case = run.trials.iter().filter(|trial| trial.case == case);
    let measured = of_case.filter_map(|trial| match &trial.outcome {
        Outcome::Measured(measurement) if measurement.invalid.is_empty() => Some(ValidThroughput {
            subject: &trial.subject,
            block: trial.block,
            throughput_per_s: measurement.throughput_per_s,
        }),
        Outcome::Measured(_) | Outcome::Refused(_) | Outcome::Failed(_) => None,
    });
    measured.collect()
}

/// Minimum duration of a run: its warm-ups and windows, or its time limit.
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

#[derive(Debug)]
pub struct Machine {
    pub layout: CpuLayout,
    pub environment: Environment,
}

#[derive(Debug, Clone, Copy)]
pub enum NotInstalled<'a> {
    Skipped {
        subject: &'a str,
        missing: &'a Missing,
    },
    /// Its configuration cannot be rendered.
    Broken {
        subject: &'a str,
        reason: &'a str,
    },
}

/// Checks the requests of the experiment, and prepares this process.
pub fn prepare(experiment: &Experiment) -> Result<Machine, RunError> {
    requests::check(experiment)?;
    let layout = layout(experiment.cpus.as_ref())?;
    check_busy_poll(experiment, &layout)?;
    let environment =
        environment::read().map_err(system_error("read the limits of the machine"))?;
    Ok(Machine { layout, environment })
}

/// Chooses the CPUs of each role, and prepares this process.
pub fn layout(cpus: Option<&CpusFile>) -> Result<CpuLayout, RunError> {
    let available = available_cpus().map_err(system_error("read the available CPUs"))?;
    let layout = CpuLayout::choose(cpus, &available)?;
    prepare_process(&layout)?;
    Ok(layout)
}

/// A generator with `busy_poll` needs a CPU without an origin.
fn check_busy_poll(experiment: &Experiment, layout: &CpuLayout) -> Result<(), CpuLayoutError> {
    let busy = experiment.cases.iter().find(|case| case.load.busy_poll);
    let has_origin = experiment.subjects.iter().any(|subject| subject.recipe.file.origin);
    match (busy, layout.shared_cpu()) {
        (Some(case), Some(cpu)) if has_origin => {
            Err(CpuLayoutError::BusyPoll { case: case.name.clone(), cpu })
        }
        _ => Ok(()),
    }
}

/// Finds the systems of all subjects.
pub fn states(
    catalog: &Catalog,
    experiment: &Experiment,
    configs: &Path,
    report: &mut dyn FnMut(NotInstalled<'_>),
) -> Vec<SubjectState> {
    let subjects = experiment.subjects.iter();
    subjects.map(|subject| state(catalog, experiment, subject, configs, report)).collect()
}

/// Finds the system of a subject and renders its configuration with fixed ports: hashes can be compared between runs, and
/// template errors are found before the first trial.
fn state(
    catalog: &Catalog,
    experiment: &Experiment,
    subject: &Subject,
    configs: &Path,
    report: &mut dyn FnMut(NotInstalled<'_>),
) -> SubjectState {
    let mut broken = |reason: String| {
        report(NotInstalled::Broken { subject: &subject.name, reason: &reason });
        SubjectState::Broken { reason }
    };
    let installed = match system::check(catalog, subject) {
        Ok(Ok(installed)) => installed,
        Ok(Err(missing)) => {
            report(NotInstalled::Skipped { subject: &subject.name, missing: &missing });
            return SubjectState::Skipped { missing };
        }
        Err(error) => return broken(error_chain(&error)),
    };
    let dir = config_dir(configs, subject);
    if let Err(error) = fs::create_dir_all(&dir) {
        return broken(format!("cannot create {}: {error}", dir.display()));
    }
    let ports = subject.recipe.file.ports.iter().zip(3..);
    let ports = ports
        .map(|(name, port)| (name.clone(), SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
        .collect();
    let connections = experiment.cases.iter().map(|case| case.load.connections_most()).max();
    let origins = match subject.recipe.file.origin {
        true => experiment.cases.iter().map(|case| case.origins).max().unwrap_or(1),
        false => 0,
    };
    let origins: Vec<SocketAddr> = (0..origins)
        .map(|number| SocketAddr::from((Ipv4Addr::LOCALHOST, 2 + 1_000 * number)))
        .collect();
    let place = Place {
        dir: &dir,
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        origins: &origins,
        connections: connections.unwrap_or(1),
        ports: &ports,
        installed: &installed,
    };
    let rendered = match render::render(catalog, subject, &place) {
        Ok(rendered) => rendered,
        Err(error) => return broken(error_chain(&error)),
    };
    let mut hashes = BTreeMap::new();
    let recipe = &subject.recipe.file;
    for file in recipe.templates.iter().chain(&recipe.files) {
        match fs::read_to_string(dir.join(file)) {
            Ok(text) => {
                // The folder differs between runs.
                let text = text.replace(&dir.display().to_string(), "RUN");
                hashes.insert(file.clone(), hash_text(&text))
            }
            Err(error) => return broken(format!("cannot read {file}: {error}")),
        };
    }
    SubjectState::Present { installed, configs: hashes, referenced: rendered.referenced }
}

/// Keeps this process off the CPUs of the system, raises its file limit, and makes it the parent of orphaned descendants.
fn prepare_process(layout: &CpuLayout) -> Result<(), RunError> {
    let cpus = [&layout.generator[..], &layout.origin].concat();
    pin_current_thread(&cpus).map_err(system_error("pin the process to CPUs"))?;
    process::raise_file_limit().map_err(system_error("raise the limit on open files"))?;
    set_child_subreaper(true).map_err(system_error("become a subreaper"))
}

fn system_error<E: Into<io::Error>>(action: &'static str) -> impl Fn(E) -> RunError {
    move |source| RunError::System { action, source: source.into() }
}

impl fmt::Display for NotInstalled<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skipped { subject, missing } => {
                write!(formatter, "{subject} is skipped: {missing}")
            }
            Self::Broken { subject, reason } => {
                write!(formatter, "{subject} cannot run: {reason}")
            }
        }
    }
}
