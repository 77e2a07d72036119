//! The servers of one role, origin or system, on this machine: starts them, tells if one has ended, and stops them.

pub(crate) mod external;
pub mod servers;
pub mod window;

use crate::probe::exchange::{Site, get_with};
use crate::process::group::Launch;
use crate::process::usage::{self, ProcessTable, Reading};
use crate::process::{Interrupt, Ports};
use crate::system::render::{self, Awaited, RenderPlace, Rendered};
use anyhow::Context;
use procfs::ProcError;
use serde::{Deserialize, Serialize};
use servers::{Ready, Servers, TrialEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::Subject;
use tollgate_experiment::external::External;
use tollgate_load::{Expectation, Request};
use tollgate_records::error::io_error;
use tollgate_records::subject::Installed;
use tollgate_records::trial::{CpuTime, TrialStep};
use tollgate_traffic::RecordedResponses;
use tollgate_traffic::load_shape::{CaseProtocol, Concurrency};

/// Context of errors.
const COUNTERS: &str = "cannot read the counters of the machine";

/// The processes of one role on this machine. Dropping stops them.
#[derive(Debug)]
pub struct Role {
    cpus: Vec<usize>,
    servers: Servers,
    origins: Vec<Site>,
    /// True if the origins poll.
    polls: bool,
    ports: Ports,
}

/// Folders of the servers of a trial.
#[derive(Debug, Clone)]
pub struct ServerFiles {
    /// Configuration files, and the working directory.
    pub dir: PathBuf,
    pub logs: PathBuf,
    /// Begin of the name of each log file.
    pub log_prefix: String,
}

/// Origins to start.
#[derive(Debug)]
pub struct OriginStart<'a> {
    /// The `tollgate` binary.
    pub tollgate: &'a Path,
    /// Address to listen on.
    pub ip: IpAddr,
    pub count: u16,
    pub protocol: CaseProtocol,
    /// Certificate and key, if the protocol has TLS.
    pub certificate: &'a Path,
    pub busy_poll: bool,
    pub files: &'a ServerFiles,
    /// Responses in place of the benchmark site.
    pub responses: Option<&'a RecordedResponses>,
    /// Request of the readiness check.
    pub ready: &'a Request,
}

/// A system to start.
#[derive(Debug)]
pub struct SystemStart<'a> {
    pub catalog: &'a Catalog,
    pub subject: &'a Subject,
    pub installed: &'a Installed,
    /// Address to listen on.
    pub ip: IpAddr,
    pub origins: &'a [SocketAddr],
    pub concurrency: Concurrency,
    pub protocol: CaseProtocol,
    /// Certificate and key, if the protocol has TLS.
    pub certificate: &'a Path,
    pub files: &'a ServerFiles,
    /// Request of the readiness check.
    pub ready: &'a Request,
}

/// Address, further ports and start-up time of a started system.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StartedSystem {
    pub address: SocketAddr,
    pub ports: BTreeMap<String, SocketAddr>,
    /// Time from the start of the first process to the first expected response, if there was one.
    pub startup: Option<Duration>,
}

const ORIGIN_READY: Duration = Duration::from_secs(10);

impl ServerFiles {
    pub(crate) fn log(&self, process: &str) -> PathBuf {
        self.logs.join(format!("{}{process}.log", self.log_prefix))
    }

    /// Responses of the origins.
    fn responses(&self) -> PathBuf {
        self.dir.join("origin-responses.ndjson")
    }
}

fn write_responses(path: &Path, responses: &RecordedResponses) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    responses.write(&mut out)?;
    out.flush()
}

impl Role {
    /// Creates a role without servers.
    pub fn new(cpus: Vec<usize>) -> Self {
        Self {
            cpus,
            servers: Servers::default(),
            origins: Vec::new(),
            polls: false,
            ports: Ports::default(),
        }
    }

    /// Stops the servers.
    pub fn stop(&mut self) {
        let cpus = std::mem::take(&mut self.cpus);
        *self = Self::new(cpus);
    }

    /// CPUs that the servers may use.
    pub(crate) fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    /// Starts origins, one after the other.
    pub fn start_origins(
        &mut self,
        start: &OriginStart<'_>,
        interrupt: &Interrupt,
    ) -> Result<&[Site], TrialEnd> {
        self.stop();
        self.ports = Ports::on(start.ip);
        self.polls = start.busy_poll;
        if let Some(responses) = start.responses {
            let path = start.files.responses();
            write_responses(&path, responses)
                .map_err(io_error("write", &path))
                .map_err(|error| TrialEnd::at(TrialStep::Origin, &error, Vec::new()))?;
        }
        for number in 1..=start.count {
            self.start_origin(number, start, interrupt)?;
        }
        Ok(&self.origins)
    }

    fn start_origin(
        &mut self,
        number: u16,
        start: &OriginStart<'_>,
        interrupt: &Interrupt,
    ) -> Result<(), TrialEnd> {
        let address = self.ports.free().map_err(TrialEnd::not_started)?;
        let site = Site::own(address, start.protocol, start.certificate.to_owned());
        let mut command = vec![
            start.tollgate.display().to_string(),
            "origin".to_owned(),
            "--listen".to_owned(),
            address.to_string(),
        ];
        command.extend(start.busy_poll.then(|| "--busy-poll".to_owned()));
        if start.responses.is_some() {
            command
                .extend(["--responses".to_owned(), start.files.responses().display().to_string()]);
        }
        if start.protocol.is_tls() {
            let certificate = start.certificate.display().to_string();
            command.extend(["--cert", &certificate, "--key", &certificate].map(str::to_owned));
        }
        let name = if number == 1 { "origin".to_owned() } else { format!("origin-{number}") };
        self.servers.start(&Launch {
            name: &name,
            command: &command,
            env: &BTreeMap::new(),
            dir: &start.files.dir,
            log: &start.files.log(&name),
            cpus: &self.cpus,
        })?;
        // Expectations apply to the subject; the origin may respond with anything.
        let request = Request { expect: Expectation::default(), ..start.ready.clone() };
        self.servers.wait_until_ready(&site, &request, ORIGIN_READY, interrupt)?;
        self.origins.push(site);
        Ok(())
    }

    /// Renders the configuration of a system, starts its processes and waits for a response.
    pub fn start_system(
        &mut self,
        start: &SystemStart<'_>,
        interrupt: &Interrupt,
    ) -> Result<StartedSystem, TrialEnd> {
        self.stop();
        self.ports = Ports::on(start.ip);
        let recipe = &start.subject.recipe.file;
        let names = recipe.ports.iter();
        let ports = names.map(|name| Ok((name.clone(), self.ports.free()?)));
        let ports: BTreeMap<_, _> =
            ports.collect::<io::Result<_>>().map_err(TrialEnd::not_started)?;
        let address = self.ports.free().map_err(TrialEnd::not_started)?;
        let place = RenderPlace {
            dir: &start.files.dir,
            listen: address,
            origins: start.origins,
            concurrency: start.concurrency,
            protocol: start.protocol,
            ports: &ports,
            installed: start.installed,
        };
        let Rendered { prepare, processes, .. } =
            render::render(start.catalog, start.subject, &place)
                .map_err(|error| TrialEnd::at(TrialStep::Configure, &error, Vec::new()))?;
        let within = recipe.ready.timeout.0;
        let no_variables = BTreeMap::new();
        for (number, command) in (1..).zip(&prepare) {
            let name = format!("prepare-{number}");
            let log = start.files.log(&name);
            let launch = self.launch(&name, command, &no_variables, start.files, &log);
            servers::run_to_end(&launch, within, interrupt)?;
        }
        let mut system = Servers::of_system();
        let begin = Instant::now();
        for process in &processes {
            let log = start.files.log(&process.name);
            system.start(&self.launch(
                &process.name,
                &process.command,
                &process.env,
                start.files,
                &log,
            ))?;
            match &process.awaited {
                Awaited::Nothing => {}
                Awaited::Listens(at) => system.wait_until_listening(*at, within, interrupt)?,
                Awaited::Answers(at, headers) => {
                    let request =
                        get_with("/", *at, headers).map_err(TrialEnd::failed(TrialStep::Start))?;
                    system.wait_until_answering(*at, &request, within, interrupt)?;
                }
            }
        }
        let site = Site::own(address, start.protocol, start.certificate.to_owned());
        let ready = system.wait_until_ready(&site, start.ready, within, interrupt)?;
        for (number, process) in processes.iter().enumerate() {
            if let Some(library) = &process.loads {
                system.check_loaded(number, library)?;
            }
        }
        self.servers = system;
        let startup = (ready == Ready::AsExpected).then(|| begin.elapsed());
        Ok(StartedSystem { address, ports, startup })
    }

    fn launch<'a>(
        &'a self,
        name: &'a str,
        command: &'a [String],
        env: &'a BTreeMap<String, String>,
        files: &'a ServerFiles,
        log: &'a Path,
    ) -> Launch<'a> {
        Launch { name, command, env, dir: &files.dir, log, cpus: &self.cpus }
    }

    /// Waits for a server that runs already, and takes its CPUs as those of the role; none if its processes are not
    /// known.
    pub(crate) fn reach(
        &mut self,
        external: &External,
        site: &Site,
        ready: &Request,
        within: Duration,
        interrupt: &Interrupt,
    ) -> Result<(), TrialEnd> {
        let reached = |error: anyhow::Error| TrialEnd::at(TrialStep::Reach, &error, Vec::new());
        self.servers = external::servers(external, interrupt).map_err(reached)?;
        self.servers
            .wait_until_ready(site, ready, within, interrupt)
            .map_err(|end| end.in_step(TrialStep::Reach))?;
        self.cpus = external::cpus(&self.servers).map_err(reached)?;
        Ok(())
    }

    /// Describes the first process that has ended, with the end of the logs.
    pub fn exit(&mut self) -> Option<(String, Vec<String>)> {
        let reason = self.servers.process_exit()?;
        Some((reason, self.servers.log_tail()))
    }

    /// Last lines of all log files.
    pub fn log_tail(&self) -> Vec<String> {
        self.servers.log_tail()
    }

    /// CPU time of the servers so far; `None` without processes.
    pub fn cpu_us(&self) -> anyhow::Result<Option<u64>> {
        let pids = self.pids()?;
        // Slow on busy CPUs, so it precedes the clock read.
        let spent = Reading::take(&BTreeSet::new()).until(&Reading::take(&pids));
        Ok((!pids.is_empty()).then(|| spent.map_or(0, CpuTime::total_us)))
    }

    /// Peak memory of the servers; `None` without processes.
    pub(crate) fn memory_peak_bytes(&self) -> anyhow::Result<Option<u64>> {
        memory_peak_bytes(&self.pids()?)
    }

    fn pids(&self) -> anyhow::Result<BTreeSet<i32>> {
        let table: Result<_, ProcError> = ProcessTable::read();
        Ok(self.servers.pids(&table.context("cannot list processes")?))
    }
}

/// Returns the peak memory of processes. `None` without processes, if one of them has ended, which is checked elsewhere,
/// or if one is not readable.
fn memory_peak_bytes(pids: &BTreeSet<i32>) -> anyhow::Result<Option<u64>> {
    if pids.is_empty() {
        return Ok(None);
    }
    match usage::memory_peak_bytes(pids) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(ProcError::NotFound(_) | ProcError::PermissionDenied(_)) => Ok(None),
        // It ended after its file was opened, or waits for its parent.
        Err(ProcError::Io(error, _)) if error.raw_os_error() == Some(nix::libc::ESRCH) => Ok(None),
        Err(error) => Err(error).context(COUNTERS),
    }
}
