//! The bench of this machine: origin, system and generator as its processes and threads.

mod foreign;
mod load;

use super::{Bench, BenchDescription, MeasureRequest, StartRequest, Started};
use crate::environment::{self, Counters};
use crate::measurement::{self, Readings};
use crate::probe::exchange::{SERVER_NAME, Site};
use crate::process::attach::listens;
use crate::process::idle_poll::IdlePoll;
use crate::process::machine_lock::MachineLock;
use crate::process::{self, Interrupt, Interrupted};
use crate::role::external;
use crate::role::servers::TrialEnd;
use crate::role::{OriginStart, Role, SystemStart};
use crate::system::render;
use crate::system::state::{self, FixedPlace};
use crate::system::{self, Versions};
use anyhow::Context;
use foreign::InstalledClient;
use load::Sender;
use nix::sys::prctl::set_child_subreaper;
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::{Experiment, Subject};
use tollgate_experiment::external::External;
use tollgate_load::open_files;
use tollgate_net::{available_cpus, pin_current_thread};
use tollgate_records::error::{bad_input, io_error};
use tollgate_records::machine::CpuLayout;
use tollgate_records::subject::SubjectState;
use tollgate_records::trial::{Measurement, Noise, TrialFailure, TrialStep};
use tollgate_records::validity::HeavyProcess;
use tollgate_tls::SelfSigned;
use tollgate_traffic::load_shape::{CaseProtocol, LoadProgram};

/// This machine. The thread that calls it must live as long as the program: the kernel stops the servers of a trial when
/// the thread that started them ends.
#[derive(Debug)]
pub struct LocalBench<'a> {
    catalog: &'a Catalog,
    /// The `tollgate` binary, for origins.
    tollgate: &'a Path,
    layout: CpuLayout,
    origin: Role,
    system: Role,
    /// Foreign clients of the loads so far.
    clients: BTreeMap<LoadProgram, InstalledClient>,
    /// One run at a time measures on a machine.
    lock: Option<MachineLock>,
}

impl<'a> LocalBench<'a> {
    /// Chooses the CPUs of each role, and prepares this process: keeps it off the CPUs of the system, raises its file limit,
    /// and makes it the parent of orphaned descendants.
    pub fn new(
        catalog: &'a Catalog,
        tollgate: &'a Path,
        cpus: Option<&CpuLayout>,
    ) -> anyhow::Result<Self> {
        let available = available_cpus().context("cannot read the available CPUs")?;
        let layout =
            CpuLayout::choose(cpus, &available, &environment::shared_cores().unwrap_or_default())?;
        let own = [&layout.generator[..], &layout.origin].concat();
        pin_current_thread(&own).context("cannot pin the process to CPUs")?;
        process::raise_file_limit().context("cannot raise the limit on open files")?;
        set_child_subreaper(true).context("cannot become a subreaper")?;
        let (origin, system) = (Role::new(layout.origin.clone()), Role::new(layout.system.clone()));
        let clients = BTreeMap::new();
        Ok(Self { catalog, tollgate, layout, origin, system, clients, lock: None })
    }

    /// Peak memory of the started system; `None` without processes.
    pub(crate) fn memory_peak_bytes(&self) -> anyhow::Result<Option<u64>> {
        self.system.memory_peak_bytes().context("cannot read the memory of the system")
    }

    /// Waits for a server that runs already, which the origins of the run are not behind.
    fn reach(
        &mut self,
        external: &External,
        request: &StartRequest<'_>,
    ) -> Result<Started, TrialEnd> {
        let site = external::site(external, request.case.load.protocol());
        let site = site.map_err(TrialEnd::failed(TrialStep::Reach))?;
        let within = request.subject.recipe.file.ready.timeout.0;
        self.system.reach(external, &site, request.ready, within, request.interrupt)?;
        Ok(Started { site, ports: BTreeMap::new(), startup: None })
    }

    fn start_servers(&mut self, request: &StartRequest<'_>) -> Result<Started, TrialEnd> {
        let StartRequest { case, subject, installed, files, responses, ready, interrupt } =
            *request;
        let recipe = &subject.recipe.file;
        let certificate = render::certificate_file(&files.dir);
        if case.load.protocol().is_tls() {
            write_certificate(&certificate).map_err(TrialEnd::failed(TrialStep::Configure))?;
        }
        // An origin behind a system gets HTTP/1.1 in the clear.
        let is_direct = recipe.process.is_empty();
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let origins = OriginStart {
            tollgate: self.tollgate,
            ip,
            count: if recipe.origin { case.origins } else { 0 },
            protocol: if is_direct { case.load.protocol() } else { CaseProtocol::H1 },
            certificate: &certificate,
            busy_poll: case.load.clients.busy_poll,
            files,
            responses,
            ready,
        };
        let origins = self.origin.start_origins(&origins, interrupt)?;
        if let (true, Some(first)) = (is_direct, origins.first()) {
            let site = first.clone();
            return Ok(Started { site, ports: BTreeMap::new(), startup: None });
        }
        let origins: Vec<SocketAddr> = origins.iter().map(|origin| origin.address).collect();
        let start = SystemStart {
            catalog: self.catalog,
            subject,
            installed,
            ip,
            origins: &origins,
            concurrency: case.load.concurrency(),
            protocol: case.load.protocol(),
            certificate: &certificate,
            files,
            ready,
        };
        let started = self.system.start_system(&start, interrupt)?;
        let site = Site::own(started.address, case.load.protocol(), certificate);
        Ok(Started { site, ports: started.ports, startup: started.startup })
    }

    /// CPUs of the trial, with those of an attached server.
    fn trial_layout(&self) -> CpuLayout {
        CpuLayout { system: self.system.cpus().to_vec(), ..self.layout.clone() }
    }

    /// Finds the program of a load, unless it is tollgate itself.
    fn find_client(&mut self, client: LoadProgram) -> anyhow::Result<()> {
        if !client.is_own() && !self.clients.contains_key(&client) {
            self.clients.insert(client, InstalledClient::find(client)?);
        }
        Ok(())
    }

    fn window(&mut self, request: &MeasureRequest<'_>) -> anyhow::Result<Measurement> {
        let layout = self.trial_layout();
        let load = request.expected.load;
        let idle_poll = if load.idle_poll {
            // CPUs that may halt.
            let cpus = if load.clients.busy_poll { layout.system.clone() } else { layout.all() };
            IdlePoll::start(&cpus)?
        } else {
            IdlePoll::default()
        };
        let plan = request.plan(layout.generator.clone())?;
        self.find_client(load.program)?;
        let client = self.clients.get(&load.program);
        let roles = [&self.system, &self.origin];
        let finished = load::run(request, &plan, client, roles, &layout.all())?;
        drop(idle_poll);
        let mut readings = finished.window.read(&mut [&mut self.system, &mut self.origin])?;
        let [system, origin] =
            <[_; 2]>::try_from(std::mem::take(&mut readings.roles)).expect("readings of two roles");
        let (summary, printed) = match finished.sender {
            Sender::Generator(generator) => (generator.finish().context(load::FAILED)?, None),
            Sender::Client(ended) => {
                let printed = ended.read()?;
                let first = request.workload.order()[0] as usize;
                let summary = printed.summary(
                    load.program,
                    request.expected.templates.len(),
                    request.workload.requests()[first].template,
                    readings.children,
                    load.clients.threads,
                    Duration::from_secs_f64(system.window_s),
                );
                (summary, Some((printed, ended.record)))
            }
        };
        let shares = |cpus: &[usize]| layout.system.iter().any(|cpu| cpus.contains(cpu));
        let is_alone = !shares(&layout.generator) && !shares(&layout.origin);
        let is_shared = layout.shared_cpu().is_some();
        let readings = Readings {
            system_softirq_us: system.softirq_us.filter(|_| is_alone),
            generator_busy: measurement::generator_busy(
                &summary,
                layout.generator.len(),
                is_shared,
            ),
            is_shared,
            is_late: false,
            summary,
            warm_up: finished.warm_up,
            system,
            origin,
            noise: readings.noise,
            heaviest: readings.heaviest.map(|heaviest| HeavyProcess {
                is_subject: request.subject.external.is_some()
                    && listens(heaviest.pid, request.site.address.port()),
                ..heaviest
            }),
            lateness: finished.lateness,
        };
        let mut measurement = measurement::assemble(&request.expected, readings)?;
        if let Some((printed, record)) = printed {
            printed.complete(&mut measurement, record);
        }
        if let Some(external) = &request.subject.external {
            measurement.cpu.is_unknown = external.attach.is_none();
            measurement.attached_cpus = layout.system;
        }
        Ok(measurement)
    }
}

impl Bench for LocalBench<'_> {
    fn describe(
        &mut self,
        experiment: &Experiment,
        _: &Interrupt,
    ) -> anyhow::Result<BenchDescription> {
        for case in &experiment.cases {
            for subject in &case.subjects {
                self.find_client(case.load_of(&experiment.subjects[*subject]).program)?;
            }
        }
        let environment = environment::read().context("cannot read the limits of the machine")?;
        check_open_files(experiment, environment.open_files.1)?;
        let baseline = &experiment.subjects[experiment.baseline];
        Ok(BenchDescription {
            layout: self.layout.clone(),
            environment,
            hosts: Vec::new(),
            // Its other errors are reported with those of the other subjects.
            missing: system::find(self.catalog, baseline, &Versions::default())
                .ok()
                .and_then(Result::err),
        })
    }

    fn state(
        &mut self,
        experiment: &Experiment,
        subject: &Subject,
        configs: &Path,
        _: &Interrupt,
    ) -> anyhow::Result<SubjectState> {
        let fixed = FixedPlace::of(experiment, subject);
        Ok(state::state(self.catalog, subject, &fixed, configs))
    }

    fn ready(
        &mut self,
        interrupt: &Interrupt,
        waiting: &mut dyn FnMut(&str),
    ) -> anyhow::Result<()> {
        if self.lock.is_none() {
            let lock = MachineLock::wait(interrupt, waiting);
            self.lock = Some(lock.context("cannot lock the machine for measuring")??);
        }
        Ok(())
    }

    fn noise(
        &mut self,
        time: Duration,
        interrupt: &Interrupt,
    ) -> Result<Option<Noise>, Interrupted> {
        let cpus = self.layout.all();
        let (before, start) = (Counters::read(&cpus), Instant::now());
        interrupt.sleep(time)?;
        // If the counters cannot be read, the next trial reports the error.
        let (Ok(before), Ok(after)) = (before, Counters::read(&cpus)) else { return Ok(None) };
        Ok(Some(before.until(&after, start.elapsed(), cpus.len(), Duration::ZERO)))
    }

    fn start(&mut self, request: &StartRequest<'_>) -> Result<Started, TrialEnd> {
        self.stop();
        match &request.subject.external {
            Some(external) => self.reach(external, request),
            None => self.start_servers(request),
        }
    }

    fn check(&mut self) -> Result<(), TrialEnd> {
        // Without its origin, responses of the system mean nothing.
        for (role, step) in
            [(&mut self.origin, TrialStep::Origin), (&mut self.system, TrialStep::Probe)]
        {
            if let Some((reason, log)) = role.exit() {
                return Err(TrialEnd::Failed(TrialFailure { step, reason, log }));
            }
        }
        Ok(())
    }

    fn system_log(&mut self) -> Vec<String> {
        self.system.log_tail()
    }

    fn measure(&mut self, request: &MeasureRequest<'_>) -> Result<Measurement, TrialEnd> {
        let measured = self.window(request);
        if let Some((reason, log)) = self.origin.exit() {
            return Err(TrialEnd::Failed(TrialFailure { step: TrialStep::Origin, reason, log }));
        }
        measured.map_err(|error| TrialEnd::at(TrialStep::Load, &error, self.system.log_tail()))
    }

    fn stop(&mut self) {
        // The system first: it may report a lost origin.
        self.system = Role::new(self.layout.system.clone());
        self.origin = Role::new(self.layout.origin.clone());
    }
}

/// Checks that the generator can open the connections of each case: otherwise its subjects would seem to refuse them.
fn check_open_files(experiment: &Experiment, files_max: u64) -> anyhow::Result<()> {
    for case in &experiment.cases {
        let connections = case.load.connections_max();
        let files = open_files(connections, case.load.clients.threads);
        if files as u64 > files_max {
            return Err(bad_input(format!(
                "case {}: {connections} connections need {files} open files, but the limit is {files_max}: raise it with \
                 `ulimit -n`, or use fewer connections",
                case.name
            )));
        }
    }
    Ok(())
}

/// Writes a self-signed certificate and its key.
fn write_certificate(path: &Path) -> anyhow::Result<()> {
    let SelfSigned { certificate, key } = SelfSigned::new(&[SERVER_NAME, "127.0.0.1"])?;
    fs::write(path, certificate + &key).map_err(io_error("write", path))
}
