//! One trial: configure, start, probe, warm up, measure, stop.

mod exchange;
pub(crate) mod external;
pub mod hosts;
mod measure;
mod probe;
pub mod requests;
pub mod role;
pub mod servers;
mod start;
mod validity;
mod window;

pub use exchange::Site;
pub use measure::{Expected, Readings, assemble};
pub use validity::Utilization;
pub use window::{load_plan, steady_figures};

use crate::process::usage::ProcessTable;
use crate::process::{Interrupt, Interrupted, Ports};
use crate::system::render::{self, Place};
use anyhow::{Context, anyhow};
use exchange::SERVER_NAME;
use hosts::{MeasureRequest, RoleHosts, StartRequest, StartedOnHosts};
use jiff::Timestamp;
use procfs::ProcError;
use requests::Requests;
use servers::{Servers, Stop};
use start::{OriginLaunch, SystemLaunch};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::corpus::Corpus;
use tollgate_experiment::experiment::{Case, Subject};
use tollgate_experiment::external::External;
use tollgate_experiment::toml_file::{self, Source};
use tollgate_records::case::Protocol;
use tollgate_records::error::io_error;
use tollgate_records::machine::CpuLayout;
use tollgate_records::schedule::TrialPlan;
use tollgate_records::subject::Installed;
use tollgate_records::trial::{
    Failure, Measurement, Outcome, ProbeResponse, Refusal, SCHEMA, Step, TrialRecord,
};
use tollgate_records::validity::Limits;
use tollgate_tls::SelfSigned;
use tollgate_traffic::Mix;

#[derive(Debug)]
pub struct RunContext<'a> {
    pub catalog: &'a Catalog,
    /// The `tollgate` binary, for the origin.
    pub tollgate: &'a Path,
    /// Folder with one configuration folder per subject.
    pub configs: PathBuf,
    /// Folder for log files.
    pub logs: PathBuf,
    pub layout: &'a CpuLayout,
    pub limits: &'a Limits,
    pub corpus: &'a Corpus,
    pub interrupt: &'a Interrupt,
    /// Hosts of the roles; `None` for this machine.
    pub hosts: Option<&'a RefCell<dyn RoleHosts>>,
}

/// Runs a trial and returns its record. A failure of the subject is a record too.
pub fn run(
    context: &RunContext<'_>,
    plan: &TrialPlan,
    case: &Case,
    subject: &Subject,
    installed: &Installed,
) -> Result<TrialRecord, Interrupted> {
    let started_at = Timestamp::now().to_string();
    let start = Instant::now();
    let mut trial = Trial::new(context, plan, case, subject, installed);
    // The servers are stopped when this returns.
    let outcome = match trial.outcome() {
        Ok(outcome) => outcome,
        Err(Stop::Failed(failure)) => Outcome::Failed(failure),
        Err(Stop::Interrupted(interrupted)) => return Err(interrupted),
    };
    if let Some(hosts) = context.hosts {
        hosts.borrow_mut().stop();
    }
    Ok(TrialRecord {
        duration_s: start.elapsed().as_secs_f64(),
        startup_ms: trial.startup.map(|startup| startup.as_secs_f64() * 1e3),
        ..record(plan, case, subject, started_at, outcome)
    })
}

/// Returns the record of a trial that failed before the start of its servers.
pub(crate) fn failed_at_once(
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
    pub layout: &'a CpuLayout,
    /// The `tollgate` binary, for the origin.
    pub tollgate: &'a Path,
    /// Folder for configuration and log files.
    pub dir: &'a Path,
    pub interrupt: &'a Interrupt,
}

/// Starts a subject, sends it one request of each template of the mix, and stops it. The calling thread must live as long
/// as the program, as for a run. An interruption is an error.
pub fn check(request: &CheckRequest<'_>) -> anyhow::Result<Result<Checked, Failure>> {
    let CheckRequest { catalog, case, subject, installed, layout, tollgate, interrupt, .. } =
        *request;
    Requests::render(case, subject)?;
    let (configs, logs) = (request.dir.join("configs"), request.dir.join("logs"));
    for folder in [&config_dir(&configs, subject), &logs] {
        fs::create_dir_all(folder).map_err(io_error("create", folder))?;
    }
    let (limits, corpus) = (&Limits::default(), &Corpus::default());
    let context = RunContext {
        catalog,
        tollgate,
        configs,
        logs,
        layout,
        limits,
        corpus,
        interrupt,
        hosts: None,
    };
    let plan = TrialPlan { case: 0, block: 1, position: 1, subject: 0, attempt: 1, order_seed: 0 };
    let mut trial = Trial::new(&context, &plan, case, subject, installed);
    let checked = trial.probed().and_then(|Probed { servers, responses, refused, .. }| {
        let memory = memory_peak(&servers.system).context("cannot read the memory of the system");
        let memory_peak_bytes = memory.map_err(failed(Step::Probe))?;
        Ok(Checked { startup: trial.startup, memory_peak_bytes, responses, refused })
    });
    match checked {
        Ok(checked) => Ok(Ok(checked)),
        Err(Stop::Failed(failure)) => Ok(Err(failure)),
        Err(Stop::Interrupted(interrupted)) => Err(interrupted.into()),
    }
}

/// Returns a case of one subject with this mix. `sources`: the files of the mix, its own first.
pub fn case_for_check(mix: Mix, mut sources: Vec<Source>) -> anyhow::Result<Case> {
    let mix_included = sources.split_off(1);
    Ok(Case {
        name: "check".to_owned(),
        mix,
        mix_source: sources.remove(0),
        mix_included,
        origins: 1,
        protocol: Protocol::H1,
        load: toml_file::parse(&Source { name: "check".to_owned(), text: LOAD.to_owned() })?,
        subjects: vec![0],
        rate_of: None,
    })
}

/// Load for the configuration files of a check.
const LOAD: &str = "connections = 1\nduration = '1s'\nwarmup = '0s'\nbusy_poll = false";

fn memory_peak(system: &Servers) -> Result<Option<u64>, ProcError> {
    let pids = system.pids(&ProcessTable::read()?);
    match pids.is_empty() {
        true => Ok(None),
        false => measure::memory_peak(&pids),
    }
}

struct Trial<'a> {
    context: &'a RunContext<'a>,
    plan: &'a TrialPlan,
    case: &'a Case,
    subject: &'a Subject,
    installed: &'a Installed,
    startup: Option<Duration>,
    ports: Ports,
}

struct TrialServers {
    origin: Servers,
    origins: Vec<Site>,
    system: Servers,
    /// The subject.
    site: Site,
    /// Further ports of the system, by name.
    ports: BTreeMap<String, SocketAddr>,
    /// CPUs of each role.
    layout: CpuLayout,
}

/// A subject after the probe.
struct Probed<'a> {
    requests: Requests<'a>,
    servers: TrialServers,
    responses: Vec<ProbeResponse>,
    /// Reason that the subject is not measured.
    refused: Option<String>,
}

impl<'a> Trial<'a> {
    fn new(
        context: &'a RunContext<'a>,
        plan: &'a TrialPlan,
        case: &'a Case,
        subject: &'a Subject,
        installed: &'a Installed,
    ) -> Self {
        Self { context, plan, case, subject, installed, startup: None, ports: Ports::default() }
    }

    fn outcome(&mut self) -> Result<Outcome, Stop> {
        let Probed { requests, mut servers, responses, refused } = self.probed()?;
        if let Some(reason) = refused {
            return Ok(Outcome::Refused(Refusal { reason, responses }));
        }
        let workload = requests.workload(self.plan.order_seed).map_err(failed(Step::Configure))?;
        let corpus = self.corpus(&requests, &mut servers)?;
        if let Some(hosts) = self.context.hosts {
            let request = MeasureRequest {
                site: &servers.site,
                expected: Expected {
                    load: &self.case.load,
                    templates: self.case.mix.templates(),
                    blocked_status: requests.blocked_status,
                    limits: self.context.limits,
                },
                workload: Arc::new(workload),
                gaps_seed: self.plan.order_seed,
                interrupt: self.context.interrupt,
            };
            let mut measurement = hosts.borrow_mut().measure(&request)?;
            add_probe(&mut measurement, &responses, corpus);
            return Ok(Outcome::Measured(Box::new(measurement)));
        }
        let TrialServers { origin, origins, system, site, layout, .. } = &mut servers;
        let measured = measure::measure(&mut window::Subject {
            site,
            load: &self.case.load,
            templates: self.case.mix.templates(),
            workload: Arc::new(workload),
            gaps_seed: self.plan.order_seed,
            blocked_status: requests.blocked_status,
            origin,
            origins,
            system,
            layout,
            limits: self.context.limits,
            interrupt: self.context.interrupt,
        });
        check_origin(origin)?;
        match measured {
            Ok(mut measurement) => {
                add_probe(&mut measurement, &responses, corpus);
                if let Some(external) = &self.subject.external {
                    measurement.cpu.is_unknown = external.attach.is_none();
                    measurement.attached_cpus.clone_from(&layout.system);
                }
                Ok(Outcome::Measured(Box::new(measurement)))
            }
            Err(error) => Err(Stop::at(Step::Load, &error, system.log_tail())),
        }
    }

    /// Returns the verdicts on the requests of the corpus.
    fn corpus(&self, requests: &Requests<'_>, servers: &mut TrialServers) -> Result<String, Stop> {
        let corpus = requests.corpus(self.context.corpus).map_err(failed(Step::Configure))?;
        let (site, interrupt) = (&servers.site, self.context.interrupt);
        let verdicts = probe::verdicts(site, &corpus, requests.blocked_status, interrupt);
        check_origin(&mut servers.origin)?;
        self.check_hosts()?;
        let system = &mut servers.system;
        match (verdicts, system.process_exit()) {
            (Ok(verdicts), None) => Ok(verdicts),
            (Ok(_), Some(_)) => Err(not_probed(anyhow!("cannot send the corpus"), system)),
            (Err(error), _) => Err(not_probed(error, system)),
        }
    }

    /// Starts the servers and probes the subject.
    fn probed(&mut self) -> Result<Probed<'a>, Stop> {
        let requests =
            Requests::render(self.case, self.subject).map_err(failed(Step::Configure))?;
        let mut servers = self.start_servers(&requests)?;
        let TrialServers { origin, system, site, ports, .. } = &mut servers;
        let templates = self.case.mix.templates();
        let interrupt = self.context.interrupt;
        let target = probe::Target { site, ports, interrupt };
        let undetected = probe::undetected_attacks(self.subject, &target);
        check_origin(origin)?;
        self.check_hosts()?;
        let undetected = undetected.map_err(|error| not_probed(error, system))?;
        let probed = probe::probe(site, templates, &requests, interrupt);
        check_origin(origin)?;
        self.check_hosts()?;
        let responses = probed.map_err(|error| not_probed(error, system))?;
        let blocked_status = requests.blocked_status;
        let hint = probe::expectation_hint(templates, &responses, blocked_status);
        let refusal = probe::refusal_reason(&responses, &requests.samples, blocked_status);
        let hints = hint.into_iter().chain(match self.subject.external {
            Some(_) => None,
            None => probe::origin_hint(templates, &responses),
        });
        let reasons: Vec<String> = refusal.into_iter().chain(undetected).chain(hints).collect();
        let refused = (!reasons.is_empty()).then(|| reasons.join("; "));
        Ok(Probed { requests, servers, responses, refused })
    }

    fn start_servers(&mut self, requests: &Requests<'_>) -> Result<TrialServers, Stop> {
        if let Some(external) = &self.subject.external {
            return self.reach(external, requests);
        }
        if let Some(hosts) = self.context.hosts {
            return self.start_on_hosts(hosts, requests);
        }
        let recipe = &self.subject.recipe.file;
        let mut origin = Servers::default();
        let count = if recipe.origin { self.case.origins } else { 0 };
        let certificate =
            render::certificate_file(&config_dir(&self.context.configs, self.subject));
        if self.case.protocol.is_tls() {
            write_certificate(&certificate).map_err(failed(Step::Configure))?;
        }
        // An origin behind a system gets HTTP/1.1 in the clear.
        let is_direct = recipe.process.is_empty();
        let protocol = if is_direct { self.case.protocol } else { Protocol::H1 };
        let site = Site::own(SocketAddr::from(([0; 4], 0)), protocol, certificate.clone());
        let origins: Vec<Site> = (1..=count)
            .map(|number| self.start_origin(number, &site, &certificate, requests, &mut origin))
            .collect::<Result<_, _>>()?;
        let ports = self.further_ports().map_err(failed(Step::Start))?;
        let (system, site) = match origins.first() {
            Some(first) if is_direct => (Servers::default(), first.clone()),
            _ => {
                let site = Site { protocol: self.case.protocol, ..site };
                self.start_system(requests, site, &origins, &ports)?
            }
        };
        let layout = self.context.layout.clone();
        Ok(TrialServers { origin, origins, system, site, ports, layout })
    }

    /// Waits for a server that runs already, which the origins of the run are not behind.
    fn reach(&self, external: &External, requests: &Requests<'_>) -> Result<TrialServers, Stop> {
        let interrupt = self.context.interrupt;
        let reached = failed(Step::Reach);
        let site = external::site(external, self.case.protocol).map_err(&reached)?;
        let mut system = external::servers(external, interrupt).map_err(&reached)?;
        let within = self.subject.recipe.file.ready.timeout.0;
        match system.wait_until_ready(&site, requests.ready(), within, interrupt) {
            Ok(_) => {}
            Err(Stop::Failed(failure)) => {
                return Err(Stop::Failed(Failure { step: Step::Reach, ..failure }));
            }
            Err(interrupted) => return Err(interrupted),
        }
        let layout = external::layout(self.context.layout, &system).map_err(&reached)?;
        let (origin, origins, ports) = (Servers::default(), Vec::new(), BTreeMap::new());
        Ok(TrialServers { origin, origins, system, site, ports, layout })
    }

    /// Starts the servers on the hosts of their roles.
    fn start_on_hosts(
        &mut self,
        hosts: &RefCell<dyn RoleHosts>,
        requests: &Requests<'_>,
    ) -> Result<TrialServers, Stop> {
        let request = StartRequest {
            case: self.case,
            subject: self.subject,
            ready: requests.ready(),
            interrupt: self.context.interrupt,
        };
        let StartedOnHosts { address, ports, startup } = hosts.borrow_mut().start(&request)?;
        self.startup = startup;
        let site = Site { protocol: self.case.protocol, ..Site::plain(address) };
        let (origin, origins, system) = (Servers::default(), Vec::new(), Servers::default());
        let layout = self.context.layout.clone();
        Ok(TrialServers { origin, origins, system, site, ports, layout })
    }

    /// Fails if a host is lost, or if a server on one has ended.
    fn check_hosts(&self) -> Result<(), Stop> {
        self.context.hosts.map_or(Ok(()), |hosts| hosts.borrow_mut().check())
    }

    /// Starts an origin with the protocol of `site`, at another address.
    fn start_origin(
        &mut self,
        number: u16,
        site: &Site,
        certificate: &Path,
        requests: &Requests<'_>,
        origin: &mut Servers,
    ) -> Result<Site, Stop> {
        let address = self.ports.free().map_err(failed(Step::Start))?;
        let log = self.log_file(&start::origin_name(number));
        let launch = OriginLaunch {
            tollgate: self.context.tollgate,
            number,
            site: Site { address, ..site.clone() },
            certificate,
            busy_poll: self.case.load.busy_poll,
            dir: &self.context.configs,
            log: &log,
            cpus: &self.context.layout.origin,
            ready: requests.ready(),
            interrupt: self.context.interrupt,
        };
        launch.start(origin)
    }

    fn start_system(
        &mut self,
        requests: &Requests<'_>,
        site: Site,
        origins: &[Site],
        ports: &BTreeMap<String, SocketAddr>,
    ) -> Result<(Servers, Site), Stop> {
        let address = self.ports.free().map_err(failed(Step::Start))?;
        let site = Site { address, ..site };
        let origins: Vec<SocketAddr> = origins.iter().map(|origin| origin.address).collect();
        let dir = config_dir(&self.context.configs, self.subject);
        let launch = SystemLaunch {
            catalog: self.context.catalog,
            subject: self.subject,
            place: Place {
                dir: &dir,
                listen: address,
                origins: &origins,
                protocol: site.protocol,
                connections: self.case.load.connections_most(),
                ports,
                installed: self.installed,
            },
            site: &site,
            log: &|process| self.log_file(process),
            cpus: &self.context.layout.system,
            ready: requests.ready(),
            interrupt: self.context.interrupt,
        };
        let (system, startup) = launch.start()?;
        self.startup = startup;
        Ok((system, site))
    }

    fn further_ports(&mut self) -> io::Result<BTreeMap<String, SocketAddr>> {
        let names = self.subject.recipe.file.ports.iter();
        names.map(|name| Ok((name.clone(), self.ports.free()?))).collect()
    }

    fn log_file(&self, process: &str) -> PathBuf {
        let Self { plan, case, subject, .. } = self;
        let attempt = match plan.attempt {
            1 => String::new(),
            attempt => format!("-{attempt}"),
        };
        let name =
            format!("{:03}{attempt}-{}-{}-{process}.log", plan.block, case.name, subject.name);
        self.context.logs.join(name)
    }
}

fn add_probe(measurement: &mut Measurement, responses: &[ProbeResponse], corpus: String) {
    for (template, response) in measurement.templates.iter_mut().zip(responses) {
        template.probe = Some(response.outcome);
    }
    measurement.corpus = corpus;
}

/// Folder of the configuration files of a subject, and working directory of its processes.
pub fn config_dir(configs: &Path, subject: &Subject) -> PathBuf {
    configs.join(&subject.name)
}

/// Writes a self-signed certificate and its key.
fn write_certificate(path: &Path) -> anyhow::Result<()> {
    let SelfSigned { certificate, key } = SelfSigned::new(&[SERVER_NAME, "127.0.0.1"])?;
    fs::write(path, certificate + &key).map_err(io_error("write", path))
}

/// Fails if the origin has ended: responses of the system then mean nothing.
fn check_origin(origin: &mut Servers) -> Result<(), Stop> {
    match origin.process_exit() {
        Some(reason) => {
            Err(Stop::Failed(Failure { step: Step::Origin, reason, log: origin.log_tail() }))
        }
        None => Ok(()),
    }
}

fn failed<E: Into<anyhow::Error>>(step: Step) -> impl Fn(E) -> Stop {
    move |error| Stop::at(step, &error.into(), Vec::new())
}

/// Reason for an incomplete probe: interruption, a process that ended, or a failed request.
fn not_probed(error: anyhow::Error, system: &mut Servers) -> Stop {
    let error = match system.process_exit() {
        Some(what) => error.context(what),
        None => error,
    };
    Stop::at(Step::Probe, &error, system.log_tail())
}
