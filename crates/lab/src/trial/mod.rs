//! One trial: configure, start, probe, warm up, measure, stop.

pub mod bottleneck;
pub mod exchange;
pub mod measure;
pub mod notices;
pub mod origin_counts;
pub mod probe;
pub mod requests;
pub mod servers;
pub mod validity;

use crate::causes::in_full;
use crate::inputs::catalog::Catalog;
use crate::inputs::experiment::{Case, Subject};
use crate::interrupt::{Interrupt, Interrupted};
use crate::layout::Layout;
use crate::plan::TrialPlan;
use crate::process::group::Launch;
use crate::process::ports::Ports;
use crate::process::tree::ProcessTable;
use crate::record::{Failure, Outcome, ProbeAnswer, Refusal, SCHEMA, Step, TrialRecord};
use crate::system::installed::Installed;
use crate::system::render::{self, Place, Rendered};
use jiff::Timestamp;
use procfs::ProcError;
use requests::Requests;
use servers::{Ready, Servers, StartError};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tollgate_load::{Expectation, Request};
use validity::Limits;

/// What all trials of a run have in common.
#[derive(Debug)]
pub struct Bench<'a> {
    /// Where templates are found.
    pub catalog: &'a Catalog,
    /// The `tollgate` binary, which is started as the origin.
    pub tollgate: &'a Path,
    /// The folder that has a folder of configs for each subject.
    pub configs: PathBuf,
    /// The folder for what processes print.
    pub logs: PathBuf,
    /// Which CPUs each role runs on.
    pub layout: &'a Layout,
    /// How much the machine may disturb a trial.
    pub limits: &'a Limits,
    /// The wish to stop.
    pub interrupt: &'a Interrupt,
}

/// Runs a trial to its record. Whatever goes wrong with the subject is a record too.
///
/// # Errors
///
/// The run was asked to stop; the trial is then as if it had not been.
pub fn run(
    bench: &Bench<'_>,
    plan: &TrialPlan,
    case: &Case,
    subject: &Subject,
    installed: &Installed,
) -> Result<TrialRecord, Interrupted> {
    let started_at = Timestamp::now().to_string();
    let begun = Instant::now();
    let mut trial =
        Trial { bench, plan, case, subject, installed, startup: None, ports: Ports::default() };
    // When this returns, its servers are stopped.
    let outcome = match trial.outcome() {
        Ok(outcome) => outcome,
        Err(Stop::Failed(failure)) => Outcome::Failed(failure),
        Err(Stop::Interrupted(interrupted)) => return Err(interrupted),
    };
    Ok(TrialRecord {
        took_s: begun.elapsed().as_secs_f64(),
        startup_ms: trial.startup.map(|startup| startup.as_secs_f64() * 1e3),
        ..record(plan, case, subject, started_at, outcome)
    })
}

/// The record of a trial that failed before anything was started.
pub fn failed_at_once(
    plan: &TrialPlan,
    case: &Case,
    subject: &Subject,
    step: Step,
    reason: String,
) -> TrialRecord {
    let outcome = Outcome::Failed(Failure { step, reason, log: Vec::new() });
    record(plan, case, subject, Timestamp::now().to_string(), outcome)
}

fn record(
    plan: &TrialPlan,
    case: &Case,
    subject: &Subject,
    started_at: String,
    outcome: Outcome,
) -> TrialRecord {
    TrialRecord {
        schema: SCHEMA,
        case: case.name.clone(),
        subject: subject.name.clone(),
        block: plan.block,
        position: plan.position,
        attempt: plan.attempt,
        started_at,
        took_s: 0.0,
        startup_ms: None,
        outcome,
    }
}

/// What a subject answers to the probe.
#[derive(Debug)]
pub struct Checked {
    /// From starting its first process to its first right answer; none for a subject without processes, and
    /// for one that gives none.
    pub startup: Option<Duration>,
    /// Peak memory of its processes after the probe; none for a subject without processes.
    pub memory_peak_bytes: Option<u64>,
    /// Each request of the probe and its answer.
    pub answers: Vec<ProbeAnswer>,
    /// Why it would be refused, in one line; none when every answer was the one owed.
    pub refused: Option<String>,
}

/// Starts a subject and probes it, without a measurement; `Err` inside is why it could not be done.
///
/// # Errors
///
/// The check was asked to stop.
pub fn check(
    bench: &Bench<'_>,
    plan: &TrialPlan,
    case: &Case,
    subject: &Subject,
    installed: &Installed,
) -> Result<Result<Checked, Failure>, Interrupted> {
    let mut trial =
        Trial { bench, plan, case, subject, installed, startup: None, ports: Ports::default() };
    match trial.probed() {
        Ok(Probed { stand, answers, refused, .. }) => Ok(match memory_peak(&stand.system) {
            Ok(memory_peak_bytes) => {
                Ok(Checked { startup: trial.startup, memory_peak_bytes, answers, refused })
            }
            Err(error) => {
                let reason = format!("reading the memory of the system: {}", in_full(&error));
                Err(Failure { step: Step::Probe, reason, log: Vec::new() })
            }
        }),
        Err(Stop::Failed(failure)) => Ok(Err(failure)),
        Err(Stop::Interrupted(interrupted)) => Err(interrupted),
    }
}

fn memory_peak(system: &Servers) -> Result<Option<u64>, ProcError> {
    let pids = system.pids(&ProcessTable::read()?);
    match pids.is_empty() {
        true => Ok(None),
        false => measure::memory_peak(&pids),
    }
}

struct Trial<'a> {
    bench: &'a Bench<'a>,
    plan: &'a TrialPlan,
    case: &'a Case,
    subject: &'a Subject,
    installed: &'a Installed,
    startup: Option<Duration>,
    /// Those of its servers.
    ports: Ports,
}

/// The servers of a trial.
struct Stand {
    origin: Servers,
    /// Where the origins listen.
    origins: Vec<SocketAddr>,
    system: Servers,
    /// Where the subject answers.
    address: SocketAddr,
    /// The further ports of the system, by name.
    ports: BTreeMap<String, SocketAddr>,
}

/// A subject that answered the probe, rightly or not.
struct Probed<'a> {
    requests: Requests<'a>,
    stand: Stand,
    answers: Vec<ProbeAnswer>,
    /// Why it is not measured, in one line.
    refused: Option<String>,
}

/// Why a trial has no measurement.
#[derive(Debug)]
enum Stop {
    Failed(Failure),
    Interrupted(Interrupted),
}

impl<'a> Trial<'a> {
    fn outcome(&mut self) -> Result<Outcome, Stop> {
        let Probed { requests, mut stand, answers, refused } = self.probed()?;
        if let Some(reason) = refused {
            return Ok(Outcome::Refused(Refusal { reason, answers }));
        }
        let workload = requests.workload(self.plan.order_seed).map_err(failed(Step::Configure))?;
        let Stand { origin, origins, system, address, .. } = &mut stand;
        let measured = measure::measure(&mut measure::Subject {
            address: *address,
            load: &self.case.load,
            templates: self.case.mix.templates(),
            workload: Arc::new(workload),
            gaps_seed: self.plan.order_seed,
            blocked_status: requests.blocked_status,
            origin,
            origins,
            system,
            layout: self.bench.layout,
            limits: self.bench.limits,
            interrupt: self.bench.interrupt,
        });
        still_there(origin)?;
        match measured {
            Ok(mut measurement) => {
                if self.subject.tells_probe {
                    let blocked = answers.iter().filter(|answer| !answer.let_through);
                    let names = blocked.map(|answer| answer.template.clone());
                    measurement.blocked_in_probe = Some(names.collect());
                }
                Ok(Outcome::Measured(Box::new(measurement)))
            }
            Err(measure::MeasureError::Interrupted(interrupted)) => {
                Err(Stop::Interrupted(interrupted))
            }
            Err(error) => Err(failed_with(Step::Load, in_full(&error), system)),
        }
    }

    /// The servers, started, and what they answer to the probe.
    fn probed(&mut self) -> Result<Probed<'a>, Stop> {
        let requests =
            Requests::render(self.case, self.subject).map_err(failed(Step::Configure))?;
        let mut stand = self.stand(&requests)?;
        let Stand { origin, system, address, ports, .. } = &mut stand;
        let templates = self.case.mix.templates();
        let interrupt = self.bench.interrupt;
        let asked = notices::Asked { address: *address, ports, interrupt };
        let noticed = notices::reason(self.subject, &asked);
        still_there(origin)?;
        let unnoticed = noticed.map_err(|error| not_probed(error.interrupted(), &error, system))?;
        let probed = probe::probe(*address, templates, &requests.samples, interrupt);
        still_there(origin)?;
        let answers = probed.map_err(|error| not_probed(error.interrupted(), &error, system))?;
        let reasons: Vec<String> = probe::reason(&answers).into_iter().chain(unnoticed).collect();
        let refused = (!reasons.is_empty()).then(|| reasons.join("; "));
        Ok(Probed { requests, stand, answers, refused })
    }

    fn stand(&mut self, requests: &Requests<'_>) -> Result<Stand, Stop> {
        let recipe = &self.subject.recipe.file;
        let mut origin = Servers::default();
        let count = if recipe.origin { self.case.origins } else { 0 };
        let origins: Vec<SocketAddr> = (1..=count)
            .map(|number| self.start_origin(number, requests, &mut origin))
            .collect::<Result<_, _>>()?;
        let ports = self.further_ports().map_err(failed(Step::Start))?;
        let (system, address) = match origins.first() {
            Some(first) if recipe.process.is_empty() => (Servers::default(), *first),
            _ => self.start_system(requests, &origins, &ports)?,
        };
        Ok(Stand { origin, origins, system, address, ports })
    }

    /// Starts one more origin, and says where it listens.
    fn start_origin(
        &mut self,
        number: u16,
        requests: &Requests<'_>,
        origin: &mut Servers,
    ) -> Result<SocketAddr, Stop> {
        let address = self.ports.free().map_err(failed(Step::Start))?;
        let name = match number {
            1 => "origin".to_owned(),
            number => format!("origin-{number}"),
        };
        let command = [
            self.bench.tollgate.display().to_string(),
            "origin".to_owned(),
            "--listen".to_owned(),
            address.to_string(),
        ];
        let log = self.log_file(&name);
        let launch = Launch {
            name: &name,
            command: &command,
            env: &BTreeMap::new(),
            dir: &self.bench.configs,
            log: &log,
            cpus: &self.bench.layout.origin,
        };
        let ready = origin.start(&launch).map_err(StartError::from).and_then(|()| {
            // What a subject owes is not what its origin does: any answer of this one is right.
            let request = Request { expect: Expectation::default(), ..requests.ready().clone() };
            origin.wait_until_ready(address, &request, ORIGIN_READY, self.bench.interrupt)
        });
        ready.map_err(not_started)?;
        Ok(address)
    }

    fn start_system(
        &mut self,
        requests: &Requests<'_>,
        origins: &[SocketAddr],
        ports: &BTreeMap<String, SocketAddr>,
    ) -> Result<(Servers, SocketAddr), Stop> {
        let address = self.ports.free().map_err(failed(Step::Start))?;
        let dir = config_dir(&self.bench.configs, self.subject);
        let place = Place {
            dir: &dir,
            listen: address,
            origins,
            connections: self.case.load.connections_most(),
            ports,
            installed: self.installed,
        };
        let Rendered { prepare, processes, .. } =
            render::render(self.bench.catalog, self.subject, &place)
                .map_err(failed(Step::Configure))?;
        let within = self.subject.recipe.file.ready.within.0;
        for (number, command) in (1..).zip(&prepare) {
            let name = format!("prepare-{number}");
            let log = self.log_file(&name);
            let launch = Launch {
                name: &name,
                command,
                env: &BTreeMap::new(),
                dir: &dir,
                log: &log,
                cpus: &self.bench.layout.system,
            };
            servers::run_to_end(&launch, within, self.bench.interrupt).map_err(not_started)?;
        }
        let mut system = Servers::of_system();
        let begun = Instant::now();
        for process in &processes {
            let log = self.log_file(&process.name);
            let launch = Launch {
                name: &process.name,
                command: &process.command,
                env: &process.env,
                dir: &dir,
                log: &log,
                cpus: &self.bench.layout.system,
            };
            let started = system.start(&launch).map_err(StartError::from);
            let listens = started.and_then(|()| match process.listens {
                Some(at) => system.wait_until_listening(at, within, self.bench.interrupt),
                None => Ok(()),
            });
            listens.map_err(not_started)?;
        }
        let ready = system
            .wait_until_ready(address, requests.ready(), within, self.bench.interrupt)
            .map_err(not_started)?;
        // One that never answers rightly has no time until it does.
        self.startup = (ready == Ready::Right).then(|| begun.elapsed());
        Ok((system, address))
    }

    fn further_ports(&mut self) -> io::Result<BTreeMap<String, SocketAddr>> {
        let names = self.subject.recipe.file.ports.iter();
        names.map(|name| Ok((name.clone(), self.ports.free()?))).collect()
    }

    fn log_file(&self, process: &str) -> PathBuf {
        let Self { plan, case, subject, .. } = self;
        // Each attempt has logs of its own.
        let attempt = match plan.attempt {
            1 => String::new(),
            attempt => format!("-{attempt}"),
        };
        let name =
            format!("{:03}{attempt}-{}-{}-{process}.log", plan.block, case.name, subject.name);
        self.bench.logs.join(name)
    }
}

/// The folder that a subject's configs are rendered into, and that its processes start in.
pub fn config_dir(configs: &Path, subject: &Subject) -> PathBuf {
    configs.join(&subject.name)
}

const ORIGIN_READY: Duration = Duration::from_secs(10);

/// Without its origin, a system answers what is no fault of its own.
fn still_there(origin: &mut Servers) -> Result<(), Stop> {
    match origin.ended() {
        Some(what) => Err(failed_with(Step::Origin, what, origin)),
        None => Ok(()),
    }
}

fn failed<E: std::error::Error>(step: Step) -> impl Fn(E) -> Stop {
    move |error| Stop::Failed(Failure { step, reason: in_full(&error), log: Vec::new() })
}

fn failed_with(step: Step, reason: String, system: &Servers) -> Stop {
    Stop::Failed(Failure { step, reason, log: system.log_tail() })
}

/// Why there is no whole probe: the run was asked to stop, a process ended, or it does not answer.
fn not_probed(
    interrupted: Option<Interrupted>,
    error: &dyn std::error::Error,
    system: &mut Servers,
) -> Stop {
    match (interrupted, system.ended()) {
        (Some(interrupted), _) => Stop::Interrupted(interrupted),
        (None, Some(what)) => {
            failed_with(Step::Probe, format!("{what}: {}", in_full(error)), system)
        }
        (None, None) => failed_with(Step::Probe, in_full(error), system),
    }
}

fn not_started(error: StartError) -> Stop {
    match error.into_failure() {
        Ok(failure) => Stop::Failed(failure),
        Err(interrupted) => Stop::Interrupted(interrupted),
    }
}
