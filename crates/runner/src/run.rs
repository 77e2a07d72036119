//! A run: all trials of an experiment, each recorded before the next one starts.

#[cfg(test)]
mod tests;

use crate::bench::{Bench, BenchDescription};
use crate::probe::requests;
use crate::process::{Interrupt, Interrupted};
use crate::role::external;
use crate::system::state::{NotInstalled, report_state};
use crate::trial::{self, Trial, TrialContext};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;
use tollgate_experiment::experiment::{Case, Experiment, Subject};
use tollgate_experiment::load_file::{ValidThroughput, rate};
use tollgate_experiment::manifest::Invocation;
use tollgate_load::STEADY_AFTER;
use tollgate_records::case::CaseManifest;
use tollgate_records::difference::Difference;
use tollgate_records::error::bad_input;
use tollgate_records::manifest::Manifest;
use tollgate_records::replay::{Replay, check, ending, replay, so_far};
use tollgate_records::run_dir::{RunDir, RunRecords};
use tollgate_records::schedule::{TrialPlan, TrialStatus};
use tollgate_records::stop::EndedBy;
use tollgate_records::subject::{Installed, Missing, SubjectState};
use tollgate_records::trial::{Noise, TrialRecord, TrialStep};
use tollgate_records::validity::{Invalid, Limits};
use tollgate_traffic::load_shape::WarmUp;

#[derive(Debug)]
pub struct RunRequest<'a> {
    pub experiment: &'a Experiment,
    /// Seed, speed and command line.
    pub invocation: Invocation,
    /// Run directory. Must not exist, unless a run is resumed.
    pub out: &'a Path,
    /// Resumes the run in that directory.
    pub resumes: bool,
    pub interrupt: &'a Interrupt,
}

#[derive(Debug)]
pub enum RunEvent<'a> {
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
        "no trial of the first block is valid: {reason}; stop what disturbs the machine{}",
        .limits.as_ref().map_or(String::new(), |limits| format!(", or try `{limits}`"))
    )]
    NeverQuiet { reason: String, limits: Option<String> },
    #[error("only the baseline {baseline} can run; see above why {others} cannot")]
    Alone { baseline: String, others: String },
}

/// Runs an experiment on a bench.
pub fn run(
    bench: &mut dyn Bench,
    request: &RunRequest<'_>,
    report: &mut dyn FnMut(RunEvent<'_>),
) -> anyhow::Result<Ending> {
    let RunRequest { experiment, invocation, interrupt, .. } = request;
    let BenchDescription { layout, environment, hosts, missing } =
        describe(bench, experiment, interrupt)?;
    let no_baseline = |missing: Missing| NoPrices::NoBaseline {
        baseline: experiment.subjects[experiment.baseline].name.clone(),
        missing,
    };
    if let Some(missing) = missing {
        return Err(no_baseline(missing).into());
    }
    let run_dir =
        if request.resumes { RunDir::open(request.out)? } else { RunDir::create(request.out)? };
    let mut not_installed = |subject: NotInstalled<'_>| report(RunEvent::NotInstalled(subject));
    let states = states(bench, experiment, &run_dir.configs(), interrupt, &mut not_installed)?;
    if let SubjectState::Skipped { missing } = &states[experiment.baseline] {
        return Err(no_baseline(missing.clone()).into());
    }
    let present: BTreeMap<usize, Installed> = (0..)
        .zip(&states)
        .filter_map(|(index, state)| match state {
            SubjectState::Present { installed, .. } => Some((index, installed.clone())),
            SubjectState::Skipped { .. } | SubjectState::Broken { .. } => None,
        })
        .collect();
    if let Some(others) = alone(experiment, &states) {
        let baseline = experiment.subjects[experiment.baseline].name.clone();
        return Err(NoPrices::Alone { baseline, others }.into());
    }
    let manifest = experiment.manifest(states, &layout, environment, hosts, invocation);
    let records = if request.resumes {
        // After `open` has locked the directory.
        resume(RunRecords::read(run_dir.path())?, &manifest, report)?
    } else {
        run_dir.write_manifest(&manifest)?;
        RunRecords { manifest, trials: Vec::new(), cut_off: false }
    };
    let context = TrialContext {
        configs: run_dir.configs(),
        logs: run_dir.logs(),
        limits: &experiment.limits,
        corpus: &experiment.corpus,
        interrupt,
    };
    let dir = run_dir.path().to_owned();
    let resumed_trials = records.trials.len();
    let mut blocks =
        Blocks { bench, experiment, context, present, run_dir, records, resumed_trials };
    match blocks.run(report) {
        Ok(ended_by) => Ok(Ending { dir, ended_by }),
        Err(error) if error.is::<Interrupted>() => {
            Ok(Ending { dir, ended_by: EndedBy::Interrupted })
        }
        Err(error) => Err(error),
    }
}

/// Returns the subjects whose configurations cannot be used, if no subject can run beside the baseline.
fn alone(experiment: &Experiment, states: &[SubjectState]) -> Option<String> {
    let others = || {
        let all = experiment.subjects.iter().zip(states).enumerate();
        all.filter(|(index, _)| *index != experiment.baseline).map(|(_, other)| other)
    };
    let is_present = |(_, state): (_, &SubjectState)| matches!(state, SubjectState::Present { .. });
    if others().any(is_present) {
        return None;
    }
    let broken = |(subject, state): (&Subject, &SubjectState)| match state {
        SubjectState::Broken { .. } => Some(subject.name.clone()),
        SubjectState::Present { .. } | SubjectState::Skipped { .. } => None,
    };
    let broken: Vec<String> = others().filter_map(broken).collect();
    (!broken.is_empty()).then(|| broken.join(", "))
}

/// Checks the requests of an experiment, and the servers that run already.
pub fn check_inputs(experiment: &Experiment) -> anyhow::Result<()> {
    requests::check(experiment).map_err(|error| bad_input(format!("{error:#}")))?;
    external::check(experiment)
}

/// Checks an experiment, and takes the machines for it.
pub fn describe(
    bench: &mut dyn Bench,
    experiment: &Experiment,
    interrupt: &Interrupt,
) -> anyhow::Result<BenchDescription> {
    check_inputs(experiment)?;
    bench.describe(experiment, interrupt)
}

/// Finds the systems of all subjects.
pub fn states(
    bench: &mut dyn Bench,
    experiment: &Experiment,
    configs: &Path,
    interrupt: &Interrupt,
    report: &mut dyn FnMut(NotInstalled<'_>),
) -> anyhow::Result<Vec<SubjectState>> {
    let state = |subject: &Subject| {
        let state = bench.state(experiment, subject, configs, interrupt)?;
        report_state(&state, &subject.name, report);
        Ok(state)
    };
    experiment.subjects.iter().map(state).collect()
}

/// The blocks of a run.
struct Blocks<'a> {
    bench: &'a mut dyn Bench,
    experiment: &'a Experiment,
    context: TrialContext<'a>,
    /// Installed subjects, by index.
    present: BTreeMap<usize, Installed>,
    run_dir: RunDir,
    records: RunRecords,
    resumed_trials: usize,
}

impl Blocks<'_> {
    /// Runs trials until the run ends. The error may be [`Interrupted`].
    fn run(&mut self, report: &mut dyn FnMut(RunEvent<'_>)) -> anyhow::Result<EndedBy> {
        let Replay { mut schedule, mut pending, .. } = replay(&self.records);
        self.ready(report)?;
        report(RunEvent::Begun { trials: trials(&self.records), done: &self.records.trials });
        loop {
            let Some(trial) = pending.take().or_else(|| schedule.next_trial()) else {
                let so_far = so_far(&self.records, &schedule);
                if let Some(ended_by) = ending(&self.records, &schedule, &so_far) {
                    return Ok(ended_by);
                }
                self.wait_if_nothing_counts(report)?;
                schedule.begin_block();
                let half_width = so_far.half_width;
                report(RunEvent::Block { block: schedule.block(), half_width });
                continue;
            };
            let Some(installed) = self.present.get(&trial.subject).cloned() else { continue };
            self.ready(report)?;
            let record = self.trial(&trial, &installed, report)?;
            self.run_dir.append(&record)?;
            report(RunEvent::Recorded(&record));
            if schedule.note(&trial, TrialStatus::of(&record.outcome)) {
                report(RunEvent::GivenUp { case: &record.case, subject: &record.subject });
            }
            self.records.trials.push(record);
        }
    }

    fn ready(&mut self, report: &mut dyn FnMut(RunEvent<'_>)) -> anyhow::Result<()> {
        self.bench.ready(self.context.interrupt, &mut |text| report(RunEvent::Waiting(text)))
    }

    fn trial(
        &mut self,
        plan: &TrialPlan,
        installed: &Installed,
        report: &mut dyn FnMut(RunEvent<'_>),
    ) -> anyhow::Result<TrialRecord> {
        self.context.interrupt.check()?;
        let case = &self.experiment.cases[plan.case];
        let subject = &self.experiment.subjects[plan.subject];
        report(RunEvent::Trial { block: plan.block, case: &case.name, subject: &subject.name });
        let trial = Trial { plan, case, subject, installed };
        let Some((other, share)) = case.load.rate_of() else {
            return trial::run(self.bench, &self.context, &trial);
        };
        let Some(rate) = rate(share.0, &valid_throughputs(&self.records, other)) else {
            let reason = format!(
                "its rate is {share} of the throughput of the slowest subject in case {other}, which has no valid \
                 trial yet"
            );
            return Ok(trial::failed_at_once(&trial, TrialStep::Configure, reason));
        };
        let mut case = case.clone();
        case.load.set_derived_rate(Some(rate));
        trial::run(self.bench, &self.context, &Trial { case: &case, ..trial })
    }

    /// Waits for a quiet machine if all trials so far were disturbed, and fails if it does not become quiet.
    fn wait_if_nothing_counts(
        &mut self,
        report: &mut dyn FnMut(RunEvent<'_>),
    ) -> anyhow::Result<()> {
        // A budget ends the run anyway.
        if self.resumed_trials > 0 || self.experiment.stop.budget_s.is_some() {
            return Ok(());
        }
        let trials = self.records.trials.iter();
        let measured = trials.filter_map(|trial| trial.outcome.measurement());
        let Some(reason) = why_nothing_counts(measured.map(|one| &one.invalid)) else {
            return Ok(());
        };
        let mut is_reported = false;
        for _ in 0..QUIET_WAIT_S {
            let noise = self.bench.noise(Duration::from_secs(1), self.context.interrupt)?;
            if noise.is_none_or(|noise| is_quiet(&noise, self.context.limits)) {
                return Ok(());
            }
            if !is_reported {
                is_reported = true;
                report(RunEvent::Waiting(&format!(
                    "no trial of the first block is valid; waiting up to {QUIET_WAIT_S} s for a quiet machine"
                )));
            }
        }
        let trials = self.records.trials.iter();
        let measured = trials.filter_map(|trial| trial.outcome.measurement());
        let limits = limits_to_try(measured.flat_map(|one| &one.invalid));
        Err(NoPrices::NeverQuiet { reason, limits }.into())
    }
}

/// Returns the last disturbance if no measured trial was valid and one was disturbed. `invalid` are the violated rules of
/// each measured trial.
fn why_nothing_counts<'a>(mut invalid: impl Iterator<Item = &'a Vec<Invalid>>) -> Option<String> {
    invalid
        .try_fold(None, |last: Option<&Invalid>, rules| {
            let disturbance = || rules.iter().find(|rule| rule.is_disturbance()).or(last);
            (!rules.is_empty()).then(disturbance)
        })?
        .map(ToString::to_string)
}

/// Returns the options with which the disturbances would have been allowed, in steps of ten percent.
fn limits_to_try<'a>(invalid: impl Iterator<Item = &'a Invalid>) -> Option<String> {
    let mut limits: BTreeMap<&str, f64> = BTreeMap::new();
    for (key, percent) in invalid.filter(|rule| rule.is_disturbance()).filter_map(Invalid::exceeded)
    {
        let limit = ((percent / 10.0).floor() + 1.0) * 10.0;
        limits.entry(key).and_modify(|known| *known = known.max(limit)).or_insert(limit);
    }
    let options = limits.iter().map(|(key, limit)| format!("--limit {key}={limit}%"));
    let options: Vec<String> = options.collect();
    (!options.is_empty()).then(|| options.join(" "))
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
    report: &mut dyn FnMut(RunEvent<'_>),
) -> anyhow::Result<RunRecords> {
    let differences = records.manifest.differences(now);
    let (machine, rest): (Vec<_>, Vec<_>) =
        differences.into_iter().partition(Difference::is_of_the_machine);
    if !rest.is_empty() {
        let lines: String = rest.iter().map(|difference| format!("\n    {difference}")).collect();
        return Err(bad_input(format!("its inputs have changed:{lines}")).context(CannotResume));
    }
    for difference in &machine {
        report(RunEvent::Changed(difference));
    }
    check(&records).map_err(|error| {
        bad_input(format!("{error}; restore the file, or start a new run")).context(CannotResume)
    })?;
    Ok(records)
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
        let warm_up = match case.load.warm_up {
            WarmUp::For(time) => time,
            WarmUp::Steady { .. } => STEADY_AFTER,
        };
        (warm_up + case.load.window.shortest()) * subjects
    };
    let a_block: Duration = experiment.cases.iter().map(of_case).sum();
    a_block * experiment.stop.blocks
}
