//! One trial on a bench: start, probe, measure, stop.

use crate::bench::local::LocalBench;
use crate::bench::{Bench, MeasureRequest, ProbeReport, ProbeRequest, StartRequest, Started};
use crate::measurement::Expected;
use crate::probe;
use crate::probe::requests::Requests;
use crate::process::Interrupt;
use crate::role::ServerFiles;
use crate::role::servers::TrialEnd;
use crate::system::state::config_dir;
use jiff::Timestamp;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::corpus::Corpus;
use tollgate_experiment::experiment::{Case, Subject};
use tollgate_experiment::toml_file::NamedText;
use tollgate_records::error::io_error;
use tollgate_records::machine::CpuLayout;
use tollgate_records::schedule::TrialPlan;
use tollgate_records::subject::Installed;
use tollgate_records::trial::{
    ProbeResponse, Refusal, SCHEMA, TrialFailure, TrialOutcome, TrialRecord, TrialStep,
};
use tollgate_records::validity::Limits;
use tollgate_traffic::Mix;
use tollgate_traffic::load_shape::{
    CaseArrivals, Clients, LoadProgram, LoadShape, Protocol, TlsSessions, WarmUp, Window,
};

/// Context of all trials of a run.
#[derive(Debug)]
pub struct TrialContext<'a> {
    /// Folder with one configuration folder per subject.
    pub configs: PathBuf,
    /// Folder for log files.
    pub logs: PathBuf,
    pub limits: &'a Limits,
    pub corpus: &'a Corpus,
    pub interrupt: &'a Interrupt,
}

/// One trial to run.
#[derive(Debug, Clone, Copy)]
pub struct Trial<'a> {
    pub plan: &'a TrialPlan,
    pub case: &'a Case,
    pub subject: &'a Subject,
    pub installed: &'a Installed,
}

/// A failure of the lab, not of the subject, which ends a run.
#[derive(Debug, Error)]
pub enum LabFailed {
    #[error("the origin of the lab failed: {reason}{}", .log.iter().map(|line| format!("\n    | {line}")).collect::<String>())]
    Origin { reason: String, log: Vec<String> },
    #[error("the trial failed, and the lab cannot write to {}", .folder.display())]
    Disk { folder: PathBuf, source: io::Error },
}

/// Runs a trial and returns its record. A failure of the subject is a record too. The error may be
/// [`Interrupted`](crate::process::Interrupted) or [`LabFailed`].
pub fn run(
    bench: &mut dyn Bench,
    context: &TrialContext<'_>,
    trial: &Trial<'_>,
) -> anyhow::Result<TrialRecord> {
    let started_at = Timestamp::now().to_string();
    let begin = Instant::now();
    let mut steps = Steps { bench, context, trial, startup: None };
    let outcome = steps.outcome();
    let startup = steps.startup;
    bench.stop();
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(TrialEnd::Failed(TrialFailure { step: TrialStep::Origin, reason, log })) => {
            return Err(LabFailed::Origin { reason, log }.into());
        }
        Err(TrialEnd::Failed(failure)) => TrialOutcome::Failed(failure),
        Err(TrialEnd::Interrupted(interrupted)) => return Err(interrupted.into()),
    };
    if !outcome.is_valid() {
        // A server whose disk is full looks like one that fails.
        try_to_write(&context.logs)?;
    }
    Ok(TrialRecord {
        duration_s: begin.elapsed().as_secs_f64(),
        startup_ms: startup.map(|startup| startup.as_secs_f64() * 1e3),
        ..record(trial, started_at, outcome)
    })
}

/// More than a file system keeps in its inodes.
const TRIED_BYTES: usize = 64 * 1024;

/// Checks that the folder takes a file.
fn try_to_write(folder: &Path) -> Result<(), LabFailed> {
    let written = tempfile::tempfile_in(folder).and_then(|mut file| {
        file.write_all(&vec![b'x'; TRIED_BYTES])?;
        file.sync_all()
    });
    written.map_err(|source| LabFailed::Disk { folder: folder.to_owned(), source })
}

/// Returns the record of a trial that failed before the start of its servers.
pub(crate) fn failed_at_once(trial: &Trial<'_>, step: TrialStep, reason: String) -> TrialRecord {
    let outcome = TrialOutcome::Failed(TrialFailure { step, reason, log: Vec::new() });
    record(trial, Timestamp::now().to_string(), outcome)
}

fn record(trial: &Trial<'_>, started_at: String, outcome: TrialOutcome) -> TrialRecord {
    let Trial { plan, case, subject, .. } = trial;
    TrialRecord {
        schema: SCHEMA,
        case: case.name.clone(),
        subject: subject.name.clone(),
        block: plan.block,
        position: plan.position,
        attempt: plan.attempt,
        started_at,
        duration_s: 0.0,
        startup_ms: None,
        outcome,
    }
}

#[derive(Debug)]
pub struct Checked {
    /// Time from the start of the first process to the first expected response, if there was one.
    pub startup: Option<Duration>,
    /// Peak memory after the probe. `None` for a subject without processes.
    pub memory_peak_bytes: Option<u64>,
    pub responses: Vec<ProbeResponse>,
    /// Reason that a run would refuse the subject.
    pub refused: Option<String>,
}

/// A check of one installed subject.
#[derive(Debug)]
pub struct CheckRequest<'a> {
    pub catalog: &'a Catalog,
    /// Only its probe is sent.
    pub case: &'a Case,
    pub subject: &'a Subject,
    pub installed: &'a Installed,
    pub cpus: Option<&'a CpuLayout>,
    /// The `tollgate` binary, for the origin.
    pub tollgate: &'a Path,
    /// Folder for configuration and log files.
    pub dir: &'a Path,
    pub interrupt: &'a Interrupt,
}

/// Starts a subject on this machine, sends it one request of each template of the mix, and stops it. The calling thread
/// must live as long as the program, as for a run. An interruption is an error.
pub fn check(request: &CheckRequest<'_>) -> anyhow::Result<Result<Checked, TrialFailure>> {
    let CheckRequest { case, subject, installed, interrupt, .. } = *request;
    Requests::render(case, subject)?;
    let (configs, logs) = (request.dir.join("configs"), request.dir.join("logs"));
    for folder in [&config_dir(&configs, subject), &logs] {
        fs::create_dir_all(folder).map_err(io_error("create", folder))?;
    }
    let mut bench = LocalBench::new(request.catalog, request.tollgate, request.cpus)?;
    let (limits, corpus) = (&Limits::default(), &Corpus::default());
    let context = TrialContext { configs, logs, limits, corpus, interrupt };
    let plan = &TrialPlan { case: 0, block: 1, position: 1, subject: 0, attempt: 1, order_seed: 0 };
    let trial = &Trial { plan, case, subject, installed };
    let mut steps = Steps { bench: &mut bench, context: &context, trial, startup: None };
    let probed = steps.probed();
    let startup = steps.startup;
    let checked = probed.and_then(|Probed { responses, refused, .. }| {
        let memory = bench.memory_peak_bytes().map_err(TrialEnd::failed(TrialStep::Probe))?;
        Ok(Checked { startup, memory_peak_bytes: memory, responses, refused })
    });
    match checked {
        Ok(checked) => Ok(Ok(checked)),
        Err(TrialEnd::Failed(failure)) => Ok(Err(failure)),
        Err(TrialEnd::Interrupted(interrupted)) => Err(interrupted.into()),
    }
}

/// Returns a case of one subject with this mix. `sources`: the files of the mix, its own first.
pub fn case_for_check(mix: Mix, mut sources: Vec<NamedText>) -> anyhow::Result<Case> {
    let mix_included = sources.split_off(1);
    Ok(Case {
        name: "check".to_owned(),
        mix,
        mix_source: sources.remove(0),
        mix_included,
        origins: 1,
        load: LoadShape {
            program: LoadProgram::Tollgate,
            arrivals: CaseArrivals::Closed { connections: 1 },
            clients: Clients {
                protocol: Protocol::Http1 { pipeline: 1 },
                threads: 1,
                busy_poll: false,
                connect_timeout: Duration::from_secs(5),
                response_timeout: Duration::from_secs(10),
            },
            tls: TlsSessions::Off,
            warm_up: WarmUp::For(Duration::ZERO),
            window: Window::For(Duration::from_secs(1)),
            idle_poll: false,
        },
        subjects: vec![0],
    })
}

/// The steps of a trial, in their order.
struct Steps<'b, 'a> {
    bench: &'b mut dyn Bench,
    context: &'a TrialContext<'a>,
    trial: &'a Trial<'a>,
    startup: Option<Duration>,
}

/// A subject after the probe.
struct Probed<'a> {
    requests: Requests<'a>,
    started: Started,
    responses: Vec<ProbeResponse>,
    /// Reason that the subject is not measured.
    refused: Option<String>,
}

impl<'a> Steps<'_, 'a> {
    fn outcome(&mut self) -> Result<TrialOutcome, TrialEnd> {
        let Probed { requests, started, responses, refused } = self.probed()?;
        if let Some(reason) = refused {
            return Ok(TrialOutcome::Refused(Refusal { reason, responses }));
        }
        let Trial { plan, case, subject, .. } = *self.trial;
        let configured = TrialEnd::failed(TrialStep::Configure);
        let workload = requests.workload(plan.order_seed).map_err(&configured)?;
        let corpus = requests.corpus(self.context.corpus).map_err(&configured)?;
        let interrupt = self.context.interrupt;
        let probe =
            ProbeRequest { case, subject, requests: &requests, started: &started, interrupt };
        let verdicts = self.bench.verdicts(&corpus, &probe);
        let verdicts = self.checked(verdicts)?;
        let load = &case.load_of(subject);
        let request = MeasureRequest {
            site: &started.site,
            subject,
            files: &self.files(),
            expected: Expected {
                load,
                templates: case.mix.templates(),
                blocked_status: requests.blocked_status,
                limits: self.context.limits,
            },
            workload: Arc::new(workload),
            gaps_seed: plan.order_seed,
            interrupt,
        };
        let mut measurement = self.bench.measure(&request)?;
        for (template, response) in measurement.templates.iter_mut().zip(&responses) {
            template.probe = Some(response.outcome);
        }
        measurement.corpus = verdicts;
        Ok(TrialOutcome::Measured(Box::new(measurement)))
    }

    /// Starts the servers and probes the subject.
    fn probed(&mut self) -> Result<Probed<'a>, TrialEnd> {
        let Trial { case, subject, installed, .. } = *self.trial;
        let requests =
            Requests::render(case, subject).map_err(TrialEnd::failed(TrialStep::Configure))?;
        let interrupt = self.context.interrupt;
        let responses = requests.responses.clone().map(|one| one.with_prefix(&subject.prefix));
        let started = self.bench.start(&StartRequest {
            case,
            subject,
            installed,
            files: &self.files(),
            responses: responses.as_ref(),
            ready: requests.ready(),
            interrupt,
        })?;
        self.startup = started.startup;
        let request =
            ProbeRequest { case, subject, requests: &requests, started: &started, interrupt };
        let report = self.bench.probe(&request);
        let ProbeReport { undetected, responses } = self.checked(report)?;
        let templates = case.mix.templates();
        let blocked_status = requests.blocked_status;
        let hint = probe::expectation_hint(templates, &responses, blocked_status);
        let refusal = probe::refusal_reason(&responses, &requests.samples, blocked_status);
        let forwards_nothing = subject
            .has_own_config()
            .then(|| probe::blocks_everything(&responses, blocked_status))
            .flatten();
        let hints = forwards_nothing.into_iter().chain(hint).chain(match subject.external {
            Some(_) => None,
            None => probe::origin_hint(templates, &responses),
        });
        let reasons: Vec<String> = refusal.into_iter().chain(undetected).chain(hints).collect();
        let refused = (!reasons.is_empty()).then(|| reasons.join("; "));
        Ok(Probed { requests, started, responses, refused })
    }

    /// Returns the result of a step for which all servers must run. A reason names the system's process that ended.
    fn checked<T>(&mut self, result: anyhow::Result<T>) -> Result<T, TrialEnd> {
        match (self.bench.check(), result) {
            (Ok(()), Ok(value)) => Ok(value),
            (Ok(()), Err(error)) => {
                Err(TrialEnd::at(TrialStep::Probe, &error, self.bench.system_log()))
            }
            (Err(TrialEnd::Failed(failure)), Err(error)) if failure.step == TrialStep::Probe => {
                Err(TrialEnd::at(TrialStep::Probe, &error.context(failure.reason), failure.log))
            }
            (Err(end), _) => Err(end),
        }
    }

    fn files(&self) -> ServerFiles {
        let Trial { plan, case, subject, .. } = self.trial;
        let attempt = if plan.attempt == 1 { String::new() } else { format!("-{}", plan.attempt) };
        ServerFiles {
            dir: config_dir(&self.context.configs, subject),
            logs: self.context.logs.clone(),
            log_prefix: format!("{:03}{attempt}-{}-{}-", plan.block, case.name, subject.name),
        }
    }
}
