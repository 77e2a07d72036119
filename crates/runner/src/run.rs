//! A run: all trials of an experiment, each recorded before the next one starts.

use crate::environment::{self, Counters};
use crate::process::machine_lock::MachineLock;
use crate::process::{self, Interrupt, Interrupted};
use crate::system;
use crate::system::render::{self, Place};
use crate::trial::hosts::{HostsDescription, RoleHosts};
use crate::trial::{self, RunContext, config_dir, external, requests};
use anyhow::Context;
use nix::sys::prctl::set_child_subreaper;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::{Case, Experiment, Subject};
use tollgate_experiment::load_shape::{LoadFile, ValidThroughput, rate};
use tollgate_experiment::manifest::Invocation;
use tollgate_net::{available_cpus, pin_current_thread};
use tollgate_records::case::{CaseManifest, Protocol};
use tollgate_records::difference::Difference;
use tollgate_records::error::bad_input;
use tollgate_records::files::hash_text;
use tollgate_records::machine::{CpuLayout, Environment};
use tollgate_records::manifest::Manifest;
use tollgate_records::replay::{Replay, check, ending, replay, so_far};
use tollgate_records::run_dir::{RunDir, RunRecords};
use tollgate_records::schedule::{TrialPlan, TrialStatus};
use tollgate_records::stop::EndedBy;
use tollgate_records::subject::{Installed, Missing, SubjectState};
use tollgate_records::trial::{Noise, Step, TrialRecord};
use tollgate_records::validity::{Invalid, Limits};

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
    /// Hosts of the roles; `None` for this machine.
    pub hosts: Option<&'a RefCell<dyn RoleHosts>>,
}

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
    /// The run waits for something outside of it.
    Waiting(&'a str),
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

/// Context of an error that prevents the resumption of a run.
#[derive(Debug, Error)]
#[error("cannot resume the run")]
pub struct CannotResume;

/// The run cannot give prices.
#[derive(Debug, Error)]
pub enum NoPrices {
    #[error("the baseline {baseline} is not installed: {missing}")]
    NoBaseline { baseline: String, missing: Missing },
    #[error(
        "no trial of the first block is valid: {reason}; stop what disturbs the machine, or raise the limit with \
         `--limit`, such as `--limit background_cpu=50%`"
    )]
    NeverQuiet { reason: String },
}

/// Runs an experiment. The calling thread must live as long as the program: the kernel stops the servers of a trial when
/// the thread that started them ends.
pub fn run(request: &RunRequest<'_>, report: &mut dyn FnMut(Event<'_>)) -> anyhow::Result<Ending> {
    let RunRequest { catalog, experiment, invocation, interrupt, .. } = request;
    let HostsDescription { layout, environment, hosts } = match request.hosts {
        Some(hosts) => {
            check_inputs(experiment)?;
            hosts.borrow_mut().describe(interrupt)?
        }
        None => {
            let Machine { layout, environment } = prepare(experiment)?;
            HostsDescription { layout, environment, hosts: Vec::new() }
        }
    };
    let baseline = &experiment.subjects[experiment.baseline];
    // Its other errors are reported with those of the other subjects.
    if request.hosts.is_none()
        && let Ok(Err(missing)) = system::check(catalog, baseline)
    {
        return Err(NoPrices::NoBaseline { baseline: baseline.name.clone(), missing }.into());
    }
    let mut run_dir = match request.resumes {
        false => RunDir::create(request.out)?,
        true => RunDir::open(request.out)?,
    };

    let mut report_not_installed = |subject: NotInstalled<'_>| report(Event::NotInstalled(subject));
    let states = match request.hosts {
        None => states(catalog, experiment, &run_dir.configs(), &mut report_not_installed),
        Some(hosts) => {
            let mut hosts = hosts.borrow_mut();
            let subjects = experiment.subjects.iter();
            let states = subjects.map(|subject| {
                let state = hosts.state(catalog, experiment, subject, interrupt)?;
                report_state(&state, &subject.name, &mut report_not_installed);
                Ok(state)
            });
            states.collect::<anyhow::Result<_>>()?
        }
    };
    if let SubjectState::Skipped { missing } = &states[experiment.baseline] {
        let (baseline, missing) = (baseline.name.clone(), missing.clone());
        return Err(NoPrices::NoBaseline { baseline, missing }.into());
    }
    let present: BTreeMap<usize, Installed> = (0..)
        .zip(&states)
        .filter_map(|(index, state)| match state {
            SubjectState::Present { installed, .. } => Some((index, installed.clone())),
            SubjectState::Skipped { .. } | SubjectState::Broken { .. } => None,
        })
        .collect();
    let manifest = experiment.manifest(states, &layout, environment, hosts, invocation);
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
        corpus: &experiment.corpus,
        interrupt,
        hosts: request.hosts,
    };
    let Replay { mut schedule, mut pending, .. } = replay(&run);
    // Other hosts are exclusive, and this machine measures nothing.
    let _lock = match request.hosts {
        Some(_) => None,
        None => {
            let lock = MachineLock::wait(interrupt, &mut |text| report(Event::Waiting(text)));
            match lock.context("cannot lock the machine for measuring")? {
                Ok(lock) => Some(lock),
                Err(Interrupted) => {
                    let dir = run_dir.path().to_owned();
                    return Ok(Ending { dir, ended_by: EndedBy::Interrupted });
                }
            }
        }
    };
    report(Event::Begun { trials: trials(&run), done: &run.trials });
    let resumed_trials = run.trials.len();
    let ended_by = loop {
        let Some(trial) = pending.take().or_else(|| schedule.next_trial()) else {
            let so_far = so_far(&run, &schedule);
            if let Some(ended_by) = ending(&run, &schedule, &so_far) {
                break ended_by;
            }
            let measured = run.trials.iter().filter_map(|trial| trial.outcome.measurement());
            let invalid = measured.map(|measurement| &measurement.invalid);
            // A budget ends the run anyway.
            let may_stop = resumed_trials == 0
                && experiment.stop.budget_s.is_none()
                && request.hosts.is_none();
            if let (true, Some(reason)) = (may_stop, why_nothing_counts(invalid)) {
                match wait_until_quiet(&layout, &experiment.limits, interrupt, report) {
                    Ok(true) => {}
                    Ok(false) => return Err(NoPrices::NeverQuiet { reason }.into()),
                    Err(Interrupted) => break EndedBy::Interrupted,
                }
            }
            schedule.begin_block();
            report(Event::Block { block: schedule.block(), half_width: so_far.half_width });
            continue;
        };
        let Some(installed) = present.get(&trial.subject) else {
            continue;
        };
        if let Some(hosts) = request.hosts {
            let mut waiting = |text: &str| report(Event::Waiting(text));
            match hosts.borrow_mut().replace_lost(interrupt, &mut waiting) {
                Ok(()) => {}
                Err(error) if error.is::<Interrupted>() => break EndedBy::Interrupted,
                Err(error) => return Err(error.context("cannot replace the lost hosts")),
            }
        }
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

/// Returns the last disturbance if no measured trial was valid and one was disturbed. `invalid` are the violated rules of
/// each measured trial.
fn why_nothing_counts<'a>(mut invalid: impl Iterator<Item = &'a Vec<Invalid>>) -> Option<String> {
    invalid
        .try_fold(None, |last: Option<&Invalid>, rules| match rules.is_empty() {
            true => None,
            false => Some(rules.iter().find(|rule| rule.is_disturbance()).or(last)),
        })?
        .map(ToString::to_string)
}

/// Waits for one second with noise within the limits, for at most [`QUIET_WAIT_S`]. Returns false if there was none.
fn wait_until_quiet(
    layout: &CpuLayout,
    limits: &Limits,
    interrupt: &Interrupt,
    report: &mut dyn FnMut(Event<'_>),
) -> Result<bool, Interrupted> {
    report(Event::Waiting(&format!(
        "no trial of the first block is valid; waiting up to {QUIET_WAIT_S} s for a quiet machine"
    )));
    let cpus = layout.all();
    for _ in 0..QUIET_WAIT_S {
        let (before, start) = (Counters::read(&cpus), Instant::now());
        interrupt.sleep(Duration::from_secs(1))?;
        // If the counters cannot be read, the next trial reports the error.
        let (Ok(before), Ok(after)) = (before, Counters::read(&cpus)) else { return Ok(true) };
        let noise = before.until(&after, start.elapsed(), cpus.len(), Duration::ZERO);
        if is_quiet(&noise, limits) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_quiet(noise: &Noise, limits: &Limits) -> bool {
    noise.steal_percent <= limits.steal.in_percent()
        && noise.background_cpu_percent <= limits.background_cpu.in_percent()
}

/// Longer than a package update or a build that has just begun to end, and shorter than a run.
const QUIET_WAIT_S: u32 = 60;

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
) -> anyhow::Result<RunRecords> {
    let differences = records.manifest.differences(now);
    let (machine, rest): (Vec<_>, Vec<_>) =
        differences.into_iter().partition(Difference::is_of_the_machine);
    if !rest.is_empty() {
        let lines: String = rest.iter().map(|difference| format!("\n    {difference}")).collect();
        return Err(bad_input(format!("its inputs have changed:{lines}")).context(CannotResume));
    }
    for difference in &machine {
        report(Event::Changed(difference));
    }
    check(&records).map_err(|error| {
        bad_input(format!("{error}; restore the file, or start a new run")).context(CannotResume)
    })?;
    Ok(records)
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

fn valid_throughputs<'a>(run: &'a RunRecords, case: &str) -> Vec<ValidThroughput<'a>> {
    let of_case = run.trials.iter().filter(|trial| trial.case == case);
    let valid = of_case.filter(|trial| trial.outcome.is_valid()).filter_map(|trial| {
        let throughput_per_s = trial.outcome.measurement()?.throughput_per_s;
        Some(ValidThroughput { subject: &trial.subject, block: trial.block, throughput_per_s })
    });
    valid.collect()
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

#[derive(Debug, Clone, Copy, Error)]
pub enum NotInstalled<'a> {
    #[error("{subject} is skipped: {missing}")]
    Skipped { subject: &'a str, missing: &'a Missing },
    /// Its configuration cannot be rendered.
    #[error("{subject} cannot run: {reason}")]
    Broken { subject: &'a str, reason: &'a str },
}

fn check_inputs(experiment: &Experiment) -> anyhow::Result<()> {
    requests::check(experiment).map_err(|error| bad_input(format!("{error:#}")))?;
    external::check(experiment)
}

/// Checks the requests of the experiment, and prepares this process.
pub fn prepare(experiment: &Experiment) -> anyhow::Result<Machine> {
    check_inputs(experiment)?;
    let layout = layout(experiment.cpus.as_ref())?;
    let environment = environment::read().context("cannot read the limits of the machine")?;
    Ok(Machine { layout, environment })
}

/// Chooses the CPUs of each role, and prepares this process.
pub fn layout(cpus: Option<&CpuLayout>) -> anyhow::Result<CpuLayout> {
    let available = available_cpus().context("cannot read the available CPUs")?;
    let layout = CpuLayout::choose(cpus, &available)?;
    prepare_process(&layout)?;
    Ok(layout)
}

/// Finds the systems of all subjects.
pub fn states(
    catalog: &Catalog,
    experiment: &Experiment,
    configs: &Path,
    report: &mut dyn FnMut(NotInstalled<'_>),
) -> Vec<SubjectState> {
    let subjects = experiment.subjects.iter();
    let state = |subject: &Subject| {
        let state = state(catalog, subject, &FixedPlace::of(experiment, subject), configs);
        report_state(&state, &subject.name, report);
        state
    };
    subjects.map(state).collect()
}

fn report_state(state: &SubjectState, subject: &str, report: &mut dyn FnMut(NotInstalled<'_>)) {
    match state {
        SubjectState::Present { .. } => {}
        SubjectState::Skipped { missing } => report(NotInstalled::Skipped { subject, missing }),
        SubjectState::Broken { reason } => report(NotInstalled::Broken { subject, reason }),
    }
}

/// Variables of a configuration that is rendered to be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedPlace {
    pub connections: u32,
    pub origins: u16,
    pub protocol: Protocol,
}

impl FixedPlace {
    /// Returns the variables of a subject for all cases of an experiment.
    pub fn of(experiment: &Experiment, subject: &Subject) -> Self {
        let connections = experiment.cases.iter().map(|case| case.load.connections_most()).max();
        let origins = match subject.recipe.file.origin {
            true => experiment.cases.iter().map(|case| case.origins).max().unwrap_or(1),
            false => 0,
        };
        let of_subject = |case: &&Case| {
            case.subjects.iter().any(|at| experiment.subjects[*at].name == subject.name)
        };
        let first = experiment.cases.iter().find(of_subject);
        let protocol = first.map_or(Protocol::H1, |case| case.protocol);
        Self { connections: connections.unwrap_or(1), origins, protocol }
    }
}

/// Finds the system of a subject and renders its configuration with fixed ports: hashes can be compared between runs, and
/// template errors are found before the first trial.
pub fn state(
    catalog: &Catalog,
    subject: &Subject,
    fixed: &FixedPlace,
    configs: &Path,
) -> SubjectState {
    let broken = |reason: String| SubjectState::Broken { reason };
    let installed = match system::check(catalog, subject) {
        Ok(Ok(installed)) => installed,
        Ok(Err(missing)) => return SubjectState::Skipped { missing },
        Err(error) => return broken(format!("{error:#}")),
    };
    let dir = config_dir(configs, subject);
    if let Err(error) = fs::create_dir_all(&dir) {
        return broken(format!("cannot create {}: {error}", dir.display()));
    }
    let ports = subject.recipe.file.ports.iter().zip(3..);
    let ports = ports
        .map(|(name, port)| (name.clone(), SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
        .collect();
    let origins: Vec<SocketAddr> = (0..fixed.origins)
        .map(|number| SocketAddr::from((Ipv4Addr::LOCALHOST, 2 + 1_000 * number)))
        .collect();
    let place = Place {
        dir: &dir,
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        origins: &origins,
        connections: fixed.connections,
        protocol: fixed.protocol,
        ports: &ports,
        installed: &installed,
    };
    let rendered = match render::render(catalog, subject, &place) {
        Ok(rendered) => rendered,
        Err(error) => return broken(format!("{error:#}")),
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
fn prepare_process(layout: &CpuLayout) -> anyhow::Result<()> {
    let cpus = [&layout.generator[..], &layout.origin].concat();
    pin_current_thread(&cpus).context("cannot pin the process to CPUs")?;
    process::raise_file_limit().context("cannot raise the limit on open files")?;
    set_child_subreaper(true).context("cannot become a subreaper")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_records::units::Percent;

    #[test]
    fn nothing_counts_if_every_measured_trial_is_disturbed() {
        let steal = vec![Invalid::Steal { percent: 7.0, limit_percent: 5.0 }];
        let own = vec![Invalid::NoResponse];
        let why = |trials: &[&Vec<Invalid>]| why_nothing_counts(trials.iter().copied());
        let text = "the hypervisor took 7.0 % of the CPUs (limit `steal`: 5 %)";
        assert_eq!(why(&[&steal, &own]).as_deref(), Some(text));
        assert_eq!(why(&[&own, &steal]).as_deref(), Some(text));
        // A valid trial, a fault of the subjects alone, and no trial.
        assert_eq!(why(&[&steal, &vec![], &steal]), None);
        assert_eq!(why(&[&own, &own]), None);
        assert_eq!(why(&[]), None);
    }

    #[test]
    fn machine_is_quiet_within_the_limits() {
        let noise = |steal_percent, background_cpu_percent| Noise {
            steal_percent,
            background_cpu_percent,
            cpu_pressure_percent: None,
            context_switches: 0,
        };
        let limits = Limits::default();
        assert!(is_quiet(&noise(5.0, 10.0), &limits));
        assert!(!is_quiet(&noise(5.1, 0.0), &limits));
        assert!(!is_quiet(&noise(0.0, 10.1), &limits));
        let open = Limits { background_cpu: Percent(0.5), ..limits };
        assert!(is_quiet(&noise(0.0, 49.0), &open));
    }
}
