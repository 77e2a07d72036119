//! A run on several hosts: the roles system, origin and generators, each on a host of its own.

use crate::carrier::Carrier;
use crate::clock::ClockOffset;
use crate::connection::{Agent, AgentError, COMMAND_LIMIT, Ticket};
use crate::describe::HostFacts;
use crate::hosts::{Host, Hosts};
use crate::load::{SKEW_MAX, SharedLoad, WINDOW_LEAD, clock_skew};
use crate::protocol::{Command, OriginsPlan, Reply, SubjectPlan, SystemPlan};
use crate::shard::{LoadPlan, RequestPlan};
use crate::slurm::{self, NodeChoice};
use crate::staging::Binary;
use anyhow::{Context, anyhow, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::{Case, Experiment, Subject, WarmUp, Window};
use tollgate_experiment::machine::CpuLayout;
use tollgate_experiment::manifest::{HostManifest, SubjectState};
use tollgate_experiment::record::{
    CpuRecord, CpuTime, Failure, GeneratorRecord, HostRecord, HostsRecord, Measurement, Noise,
    Step, WarmUpRecord,
};
use tollgate_experiment::validity::Invalid;
use tollgate_load::{
    GeneratorResult, LATENESS_MAX, Plan, Progress, SLICE, Slice, SteadyState, ThreadUsage,
};
use tollgate_runner::process::{Interrupt, Interrupted};
use tollgate_runner::run::FixedPlace;
use tollgate_runner::trial::hosts::{
    HostsDescription, MeasureRequest, RoleHosts, StartRequest, StartedOnHosts,
};
use tollgate_runner::trial::role::RoleReadings;
use tollgate_runner::trial::servers::Stop;
use tollgate_runner::trial::{Readings, Utilization, assemble, load_plan, steady_figures};

/// Features of nodes that name a role.
const FEATURES: [&str; 3] = ["sut", "origin", "gen"];

/// Agents before those of the generators: system and origin.
const SYSTEM: usize = 0;
const ORIGIN: usize = 1;
const SERVERS: usize = 2;

/// Time to replace lost hosts, in which Slurm notices that a node is down.
const REPLACE_LIMIT: Duration = Duration::from_secs(120);
const REPLACE_INTERVAL: Duration = Duration::from_secs(1);

/// Time between the window and the readings of a generator's host, which take a few milliseconds.
const READINGS_LEAD: Duration = Duration::from_millis(30);

/// Limit of the start of servers, beside their own time limit.
const START_MARGIN: Duration = Duration::from_secs(30);

/// Interval of checks of the hosts while nothing else happens.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Hosts of the roles of a run.
pub struct RemoteHosts {
    carrier: Carrier,
    generators: usize,
    binary: Binary,
    catalog: Catalog,
    /// Prints a line for the user.
    notify: fn(&str),
    live: Option<Live>,
    /// Names of hosts that were lost.
    lost: BTreeSet<String>,
    is_lost: bool,
}

/// Hosts with running agents. Agents are dropped before their nodes.
struct Live {
    agents: Vec<Agent>,
    roles: Vec<HostFacts>,
    addresses: Vec<IpAddr>,
    _hosts: Hosts,
}

impl fmt::Debug for RemoteHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteHosts").field("carrier", &self.carrier).finish_non_exhaustive()
    }
}

/// Checks that an experiment can run on several hosts.
pub fn check_experiment(experiment: &Experiment) -> anyhow::Result<()> {
    let refuse = |what: String| Err(anyhow!("cannot run {what} on several hosts; remove --on"));
    if experiment.ablation.is_some() {
        return refuse("an ablation".to_owned());
    }
    if let Some(subject) = experiment.subjects.iter().find(|one| one.external.is_some()) {
        return refuse(format!("subject {}, a server that runs already,", subject.name));
    }
    for Case { name, load, protocol, .. } in &experiment.cases {
        let what = match load.window() {
            _ if protocol.is_tls() => "over TLS",
            _ if load.idle_poll => "with `idle_poll`",
            Window::Requests { .. } => "with a number of requests",
            Window::For(_) => continue,
        };
        return refuse(format!("case {name} {what}"));
    }
    Ok(())
}

impl RemoteHosts {
    pub fn new(
        carrier: Carrier,
        generators: usize,
        binary: Binary,
        catalog: Catalog,
        notify: fn(&str),
    ) -> Self {
        let (live, lost, is_lost) = (None, BTreeSet::new(), false);
        Self { carrier, generators, binary, catalog, notify, live, lost, is_lost }
    }

    fn take(&mut self, interrupt: &Interrupt, waiting: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
        let count = SERVERS + self.generators;
        let choice = match &self.carrier {
            Carrier::Slurm { .. } => self.choice(count, interrupt)?,
            Carrier::Ssh { .. } | Carrier::Kubectl { .. } | Carrier::Local { .. } => {
                NodeChoice::default()
            }
        };
        let mut hosts = Hosts::take(&self.carrier, Some(count), &choice, interrupt, waiting)?;
        if hosts.hosts.len() != count {
            bail!(
                "cannot run on {} hosts: {count} are needed, for system, origin and {} generators; change --generators",
                hosts.hosts.len(),
                self.generators
            );
        }
        hosts.hosts = assign(hosts.hosts);
        let files = self.catalog.files_on_disk()?;
        let mut agents =
            hosts.start_agents(&self.binary, interrupt).map_err(AgentError::into_plain)?;
        let (mut roles, mut addresses) = (Vec::new(), Vec::new());
        for (agent, host) in agents.iter_mut().zip(&hosts.hosts) {
            let facts = agent.describe(interrupt).map_err(AgentError::into_plain)?;
            let address = host.address.or_else(|| facts.address());
            let missing = || anyhow!("{} has no address on a network", agent.host());
            addresses.push(address.ok_or_else(missing)?);
            roles.push(facts);
        }
        for agent in &mut agents[..SERVERS] {
            send_catalog(agent, &files, interrupt).map_err(AgentError::into_plain)?;
        }
        let live = Live { agents, roles, addresses, _hosts: hosts };
        (self.notify)(&live.plan(&self.carrier));
        self.live = Some(live);
        self.is_lost = false;
        Ok(())
    }

    /// Chooses nodes by the features that name roles, if there are such nodes and the user chooses none, and avoids lost
    /// nodes if there are enough others.
    fn choice(&self, count: usize, interrupt: &Interrupt) -> anyhow::Result<NodeChoice> {
        let nodes = slurm::list_nodes(interrupt)?;
        let has = |feature: &str| {
            nodes.iter().any(|node| node.features.split(',').any(|one| one == feature))
        };
        let is_free = std::env::var_os("SALLOC_CONSTRAINT").is_none();
        let constraint = (is_free && FEATURES.iter().all(|feature| has(feature))).then(|| {
            let [system, origin, generators] = FEATURES;
            format!("[{system}*1&{origin}*1&{generators}*{}]", self.generators)
        });
        let others = nodes.iter().filter(|node| node.is_idle() && !self.lost.contains(&node.name));
        let without = match others.count() >= count {
            true => self.lost.iter().cloned().collect(),
            false => Vec::new(),
        };
        Ok(NodeChoice { constraint, without })
    }

    fn live(&mut self) -> anyhow::Result<&mut Live> {
        self.live.as_mut().context("the hosts are not taken")
    }

    /// Notes a lost host, and converts the error of an agent to the end of a trial.
    fn stop_at(&mut self, step: Step, error: AgentError) -> Stop {
        if let AgentError::Lost { host, .. } | AgentError::Slow { host, .. } = &error {
            self.lost.insert(host.clone());
            self.is_lost = true;
        }
        match error {
            AgentError::Interrupted(interrupted) => Stop::Interrupted(interrupted),
            error => {
                let step = if error.is_lost() { Step::Host } else { step };
                let reason = error.to_string();
                Stop::Failed(Failure { step, reason, log: Vec::new() })
            }
        }
    }
}

fn failed(step: Step, error: &anyhow::Error) -> Stop {
    match error.downcast_ref::<Interrupted>() {
        Some(interrupted) => Stop::Interrupted(*interrupted),
        None => Stop::Failed(Failure { step, reason: format!("{error:#}"), log: Vec::new() }),
    }
}

fn send_catalog(
    agent: &mut Agent,
    files: &BTreeMap<PathBuf, String>,
    interrupt: &Interrupt,
) -> Result<(), AgentError> {
    let command = Command::Catalog { files: files.clone() };
    agent.call(command, COMMAND_LIMIT, interrupt).map(drop)
}

/// Orders hosts as system, origin and generators: by their features, and otherwise as they are.
fn assign(hosts: Vec<Host>) -> Vec<Host> {
    let mut left = hosts;
    let mut take = |feature: &str| {
        let has = |host: &Host| host.features.iter().any(|one| one == feature);
        let is_other =
            |host: &Host| !host.features.iter().any(|one| FEATURES.contains(&one.as_str()));
        let position = left.iter().position(has).or_else(|| left.iter().position(is_other));
        left.remove(position.unwrap_or(0))
    };
    let mut ordered = vec![take(FEATURES[0]), take(FEATURES[1])];
    ordered.append(&mut left);
    ordered
}

impl Live {
    /// The plan that is printed before anything starts.
    fn plan(&self, carrier: &Carrier) -> String {
        let mut text = format!("plan: {} hosts on {carrier}", self.agents.len());
        for (index, (agent, address)) in self.agents.iter().zip(&self.addresses).enumerate() {
            let role = role_name(index);
            let what = match index {
                SYSTEM => "listens there and gets the load",
                ORIGIN => "listens there",
                _ => "sends to the system",
            };
            text += &format!("\n  {role}: {} ({address}), {what}", agent.host());
        }
        text
    }

    fn manifest(&self) -> Vec<HostManifest> {
        let hosts = self.agents.iter().zip(&self.roles).enumerate();
        hosts
            .map(|(index, (agent, facts))| HostManifest {
                name: role_name(index),
                host: agent.host().to_owned(),
                environment: facts.environment.clone(),
            })
            .collect()
    }

    fn check(&mut self) -> Result<(), AgentError> {
        self.agents.iter_mut().try_for_each(Agent::check)
    }
}

fn role_name(index: usize) -> String {
    match index {
        SYSTEM => "system".to_owned(),
        ORIGIN => "origin".to_owned(),
        index => format!("generator-{}", index - ORIGIN),
    }
}

fn subject_plan(subject: &Subject) -> SubjectPlan {
    SubjectPlan {
        name: subject.name.clone(),
        system: subject.recipe.name.clone(),
        options: subject.options.clone(),
        prefix: subject.prefix.clone(),
    }
}

impl RoleHosts for RemoteHosts {
    fn describe(&mut self, interrupt: &Interrupt) -> anyhow::Result<HostsDescription> {
        let notify = self.notify;
        self.take(interrupt, &mut |text| notify(text))?;
        let live = self.live()?;
        Ok(HostsDescription {
            layout: CpuLayout {
                generator: live.roles[SERVERS].cpus.clone(),
                origin: live.roles[ORIGIN].cpus.clone(),
                system: live.roles[SYSTEM].cpus.clone(),
            },
            environment: live.roles[SYSTEM].environment.clone(),
            hosts: live.manifest(),
        })
    }

    fn state(
        &mut self,
        _: &Catalog,
        experiment: &Experiment,
        subject: &Subject,
        interrupt: &Interrupt,
    ) -> anyhow::Result<SubjectState> {
        let command = Command::State {
            subject: subject_plan(subject),
            fixed: FixedPlace::of(experiment, subject),
        };
        let agent = &mut self.live()?.agents[SYSTEM];
        // Programs of a hundred megabytes are hashed.
        match agent.call(command, 2 * COMMAND_LIMIT, interrupt).map_err(AgentError::into_plain)? {
            Reply::State(state) => Ok(*state),
            other => Err(agent.unexpected(&other).into()),
        }
    }

    fn replace_lost(
        &mut self,
        interrupt: &Interrupt,
        waiting: &mut dyn FnMut(&str),
    ) -> anyhow::Result<()> {
        if self.live.is_some() && !self.is_lost {
            return Ok(());
        }
        let deadline = Instant::now() + REPLACE_LIMIT;
        let names: Vec<&str> = self.lost.iter().map(String::as_str).collect();
        waiting(&format!("lost {}; taking hosts again", names.join(", ")));
        // Gives all nodes back, which stops everything on them.
        self.live = None;
        loop {
            match self.take(interrupt, waiting) {
                Err(error) if error.is::<Interrupted>() => return Err(error),
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(_) => interrupt.sleep(REPLACE_INTERVAL).map(drop)?,
                Ok(()) => return Ok(()),
            }
        }
    }

    fn start(&mut self, request: &StartRequest<'_>) -> Result<StartedOnHosts, Stop> {
        let StartRequest { case, subject, ready, interrupt } = *request;
        let recipe = &subject.recipe.file;
        let limit = recipe.ready.timeout.0 * 2 + START_MARGIN;
        let live = self.live().map_err(|error| failed(Step::Start, &error))?;
        let mut origins = Vec::new();
        if recipe.origin {
            let command = Command::StartOrigins(Box::new(OriginsPlan {
                ip: live.addresses[ORIGIN],
                count: case.origins,
                busy_poll: case.load.busy_poll,
                ready: RequestPlan::of(ready),
            }));
            match live.agents[ORIGIN].call(command, limit, interrupt) {
                Ok(Reply::Origins { addresses }) => origins = addresses,
                Ok(Reply::Failed(failure)) => return Err(Stop::Failed(failure)),
                Ok(other) => {
                    let error = live.agents[ORIGIN].unexpected(&other);
                    return Err(self.stop_at(Step::Start, error));
                }
                Err(error) => return Err(self.stop_at(Step::Start, error)),
            }
        }
        if let (true, Some(address)) = (recipe.process.is_empty(), origins.first()) {
            let (address, ports) = (*address, BTreeMap::new());
            return Ok(StartedOnHosts { address, ports, startup: None });
        }
        let command = Command::StartSystem(Box::new(SystemPlan {
            subject: subject_plan(subject),
            ip: live.addresses[SYSTEM],
            origins,
            connections: case.load.connections_most(),
            protocol: case.protocol,
            ready: RequestPlan::of(ready),
        }));
        match live.agents[SYSTEM].call(command, limit, interrupt) {
            Ok(Reply::System(started)) => {
                let (address, ports, startup) = (started.address, started.ports, started.startup);
                Ok(StartedOnHosts { address, ports, startup })
            }
            Ok(Reply::Failed(failure)) => Err(Stop::Failed(failure)),
            Ok(other) => {
                let error = live.agents[SYSTEM].unexpected(&other);
                Err(self.stop_at(Step::Start, error))
            }
            Err(error) => Err(self.stop_at(Step::Start, error)),
        }
    }

    fn check(&mut self) -> Result<(), Stop> {
        let live = self.live().map_err(|error| failed(Step::Host, &error))?;
        if let Err(error) = live.check() {
            return Err(self.stop_at(Step::Host, error));
        }
        for (index, step) in [(ORIGIN, Step::Origin), (SYSTEM, Step::Probe)] {
            let agent = &mut self.live().map_err(|error| failed(Step::Host, &error))?.agents[index];
            match agent.call(Command::ServersExit, COMMAND_LIMIT, &Interrupt::default()) {
                Ok(Reply::Exit(None)) => {}
                Ok(Reply::Exit(Some((reason, log)))) => {
                    return Err(Stop::Failed(Failure { step, reason, log }));
                }
                Ok(other) => {
                    let error = agent.unexpected(&other);
                    return Err(self.stop_at(step, error));
                }
                Err(error) => return Err(self.stop_at(step, error)),
            }
        }
        Ok(())
    }

    fn measure(&mut self, request: &MeasureRequest<'_>) -> Result<Measurement, Stop> {
        let MeasureRequest { site, expected, workload, gaps_seed, .. } = request;
        let plan = load_plan(site, expected.load, workload, *gaps_seed, Vec::new())
            .map_err(|error| failed(Step::Configure, &error))?;
        let plan = Plan { warm_up: true, ..plan };
        let plans = LoadPlan::divide(&plan, None, self.generators)
            .map_err(|error| failed(Step::Configure, &error.into()))?;
        let live = self.live().map_err(|error| failed(Step::Load, &error))?;
        let window = match WindowOnHosts::run(live, plans, request) {
            Ok(window) => window,
            Err(error) => return Err(self.stop_at(Step::Load, error)),
        };
        window.measurement(request).map_err(|error| failed(Step::Load, &error))
    }

    fn stop(&mut self) {
        let Some(live) = &mut self.live else { return };
        let interrupt = Interrupt::default();
        for index in 0..SERVERS {
            // A lost host is replaced before the next trial.
            let stopped = live.agents[index].call(Command::StopServers, COMMAND_LIMIT, &interrupt);
            if let Err(AgentError::Lost { host, .. } | AgentError::Slow { host, .. }) = stopped {
                self.lost.insert(host);
                self.is_lost = true;
            }
        }
    }
}

/// Readings of all hosts over one window.
struct WindowOnHosts {
    sum: tollgate_load::Summary,
    generators: Vec<GeneratorResult>,
    warm_up: WarmUpRecord,
    /// Readings with the record of each host: system, origin, generators.
    hosts: Vec<(RoleReadings, HostRecord)>,
    clock_skew: f64,
}

impl WindowOnHosts {
    fn run(
        live: &mut Live,
        plans: Vec<LoadPlan>,
        request: &MeasureRequest<'_>,
    ) -> Result<Self, AgentError> {
        let MeasureRequest { expected, interrupt, .. } = request;
        let (servers, generators) = live.agents.split_at_mut(SERVERS);
        let clocks = servers.iter_mut().map(|agent| agent.clock_offset(interrupt));
        let clocks: Vec<ClockOffset> = clocks.collect::<Result<_, _>>()?;
        let mut load = SharedLoad::start(generators, plans, interrupt)?;
        let begin = load.starts_at();
        watch(servers, &mut load, begin, interrupt)?;
        let steady = match expected.load.warmup {
            WarmUp::For(time) => {
                watch(servers, &mut load, begin + time, interrupt)?;
                None
            }
            WarmUp::Steady => Some(becomes_steady(servers, &mut load, request)?),
        };
        let duration_s = begin.elapsed().as_secs_f64();
        let warm_up = WarmUpRecord { duration_s, steady };

        let send = |servers: &mut [Agent], at: Instant, command: fn(u64) -> Command| {
            let at_ns = crate::clock::from_instant(at);
            let servers = servers.iter_mut().zip(&clocks);
            servers
                .map(|(agent, clock)| agent.send(command(clock.to_remote(at_ns))))
                .collect::<Vec<Ticket>>()
        };
        let start = Instant::now() + WINDOW_LEAD;
        let of_servers = send(servers, start, |at_ns| Command::OpenReadings { at_ns });
        let readings = load.send_at(start - READINGS_LEAD, |at_ns| Command::OpenReadings { at_ns });
        let windows = load.send_at(start, |at_ns| Command::OpenWindow { at_ns });
        load.receive(readings)?;
        load.receive(windows)?;
        crate::load::receive_all(servers, of_servers, interrupt)?;

        let end = start + expected.load.window().longest();
        watch(servers, &mut load, end - WINDOW_LEAD, interrupt)?;
        let of_servers = send(servers, end, |at_ns| Command::CloseReadings { at_ns });
        let windows = load.send_at(end, |at_ns| Command::CloseWindow { at_ns });
        let readings = load.send_at(end + READINGS_LEAD, |at_ns| Command::CloseReadings { at_ns });
        load.receive(windows)?;
        let mut replies = crate::load::receive_all(servers, of_servers, interrupt)?;
        replies.extend(load.receive(readings)?);
        let result = load.finish()?;

        let mut drifts = Vec::new();
        for (agent, clock) in servers.iter_mut().zip(&clocks) {
            drifts.push(clock.drift(&agent.clock_offset(interrupt)?));
        }
        drifts.extend(&result.drifts);
        let clocks = clocks.iter().chain(&result.clocks);
        let mut hosts = Vec::new();
        for (((agent, reply), clock), drift) in
            live.agents.iter().zip(replies).zip(clocks).zip(&drifts)
        {
            let Reply::Readings(readings) = reply else { return Err(agent.unexpected(&reply)) };
            let record = HostRecord {
                host: agent.host().to_owned(),
                busy_us: readings.busy_us,
                clock_error_us: clock.error_ns() as f64 / 1e3,
                clock_drift_us: drift.change_ns as f64 / 1e3,
            };
            hosts.push((*readings, record));
        }
        let clock_skew = clock_skew(&drifts, expected.load.window().longest());
        Ok(Self { sum: result.sum, generators: result.generators, warm_up, hosts, clock_skew })
    }

    fn measurement(self, request: &MeasureRequest<'_>) -> anyhow::Result<Measurement> {
        let Self { sum, generators, warm_up, mut hosts, clock_skew } = self;
        let of_generators = hosts.split_off(SERVERS);
        let [(system, system_host), (origin, origin_host)] =
            <[_; SERVERS]>::try_from(hosts).ok().context("readings are missing")?;
        let all = || [&system, &origin].into_iter().chain(of_generators.iter().map(|one| &one.0));
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let cpu = CpuRecord {
            servers_window_s: system.window_s,
            system: system.cpu,
            // Packets come from other hosts.
            system_softirq_us: None,
            is_unknown: false,
            origin: origin.cpu,
            origin_polled_us: origin.polled_us,
            generator: sum.threads.iter().fold(CpuTime::default(), |total, thread| CpuTime {
                user_us: total.user_us + micros(thread.user),
                system_us: total.system_us + micros(thread.system),
            }),
            generator_polled_us: sum.threads.iter().map(|thread| micros(thread.polled)).sum(),
        };
        let share = |readings: &RoleReadings, cpu: CpuTime, polled_us: u64| {
            let worked_us = cpu.total_us().saturating_sub(polled_us);
            worked_us as f64 / 1e6 / readings.window_s / readings.usable_cpus as f64
        };
        let busiest = |result: &GeneratorResult| {
            result.summary.threads.iter().map(ThreadUsage::busy).fold(0.0, f64::max)
        };
        let is_late = |result: &GeneratorResult| {
            let lateness = result.summary.lateness.as_ref();
            lateness.and_then(|lateness| lateness.value_at(0.99)).map(Duration::from_nanos)
                > Some(LATENESS_MAX)
        };
        let utilization = Utilization {
            system: system.cpu.map(|cpu| share(&system, cpu, 0)),
            generator: generators.iter().map(busiest).fold(0.0, f64::max),
            origin: origin.cpu.map_or(0.0, |cpu| share(&origin, cpu, origin.polled_us)),
            shared: false,
            late: generators.iter().any(is_late),
        };
        let noisiest = all().max_by(|a, b| {
            a.noise.background_cpu_percent.total_cmp(&b.noise.background_cpu_percent)
        });
        let readings = Readings {
            noise: worst(all().map(|readings| &readings.noise)),
            heaviest: noisiest.and_then(|readings| readings.heaviest.clone()),
            died: system.died.clone().or_else(|| origin.died.clone()),
            memory_peak_bytes: system.memory_peak_bytes,
            origin_requests: origin.origin_requests.clone(),
            lateness: Duration::from_secs_f64(
                all().map(|readings| readings.lateness_s).fold(0.0, f64::max),
            ),
            cpu,
            warm_up,
            utilization,
            summary: sum,
        };
        let mut measurement = assemble(&request.expected, readings)?;
        if clock_skew > SKEW_MAX {
            let (percent, limit_percent) = (100.0 * clock_skew, 100.0 * SKEW_MAX);
            measurement.invalid.push(Invalid::WindowSkew { percent, limit_percent });
        }
        let ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e6);
        let record = |((_, host), result): ((RoleReadings, HostRecord), &GeneratorResult)| {
            let GeneratorResult { summary, .. } = result;
            GeneratorRecord {
                host,
                responses: summary.responses,
                window_s: summary.window.as_secs_f64(),
                p50_ms: ms(summary.latency.quantile_ns(0.5)),
                p99_ms: ms(summary.latency.quantile_ns(0.99)),
                busy: busiest(result),
            }
        };
        measurement.hosts = Some(HostsRecord {
            system: system_host,
            origin: measurement.cpu.origin.map(|_| origin_host),
            generators: of_generators.into_iter().zip(&generators).map(record).collect(),
        });
        Ok(measurement)
    }
}

/// The largest disturbance of any host.
fn worst<'a>(all: impl Iterator<Item = &'a Noise>) -> Noise {
    let none = Noise {
        steal_percent: 0.0,
        background_cpu_percent: 0.0,
        cpu_pressure_percent: None,
        context_switches: 0,
    };
    all.fold(none, |worst, noise| Noise {
        steal_percent: worst.steal_percent.max(noise.steal_percent),
        background_cpu_percent: worst.background_cpu_percent.max(noise.background_cpu_percent),
        cpu_pressure_percent: match (worst.cpu_pressure_percent, noise.cpu_pressure_percent) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        },
        context_switches: worst.context_switches.max(noise.context_switches),
    })
}

/// Waits for a time, and fails if a host is lost.
fn watch(
    servers: &mut [Agent],
    load: &mut SharedLoad<'_>,
    until: Instant,
    interrupt: &Interrupt,
) -> Result<(), AgentError> {
    loop {
        servers.iter_mut().try_for_each(Agent::check)?;
        load.check()?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        interrupt.sleep(left.min(CHECK_INTERVAL))?;
    }
}

/// Waits until the figures are steady or the time limit is reached.
fn becomes_steady(
    servers: &mut [Agent],
    load: &mut SharedLoad<'_>,
    request: &MeasureRequest<'_>,
) -> Result<bool, AgentError> {
    let MeasureRequest { expected, interrupt, .. } = request;
    let limit = expected.load.warmup_longest();
    let mut steady_state = SteadyState::default();
    let start = Instant::now();
    let mut before = sample(servers, load, interrupt)?;
    while start.elapsed() < limit && !steady_state.is_steady() && !steady_state.is_silent() {
        watch(servers, load, before.0 + SLICE, interrupt)?;
        let now = sample(servers, load, interrupt)?;
        let slice = Slice::between(now.0 - before.0, &before.1, &now.1);
        let cpu_us = now.2.zip(before.2).map(|(now, before)| now.saturating_sub(before));
        let figures = steady_figures(&slice, cpu_us, expected.load.rate.is_some());
        steady_state.add(&slice, &figures);
        before = now;
    }
    Ok(steady_state.is_steady())
}

/// Time, counts of the load, and CPU time of the system.
fn sample(
    servers: &mut [Agent],
    load: &mut SharedLoad<'_>,
    interrupt: &Interrupt,
) -> Result<(Instant, Progress, Option<u64>), AgentError> {
    let system = &mut servers[SYSTEM];
    let cpu_us = match system.call(Command::ServersCpu, COMMAND_LIMIT, interrupt)? {
        Reply::Cpu { us } => us,
        other => return Err(system.unexpected(&other)),
    };
    let (progress, _) = load.progress()?;
    Ok((Instant::now(), progress, cpu_us))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::Place;

    fn hosts(all: &[(&str, &str)]) -> Vec<Host> {
        let host = |(name, feature): &(&str, &str)| Host {
            place: Place::Ssh { host: (*name).to_owned() },
            address: None,
            features: feature.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect(),
        };
        all.iter().map(host).collect()
    }

    fn names(hosts: Vec<Host>) -> Vec<String> {
        assign(hosts).iter().map(|host| host.place.name()).collect()
    }

    #[test]
    fn roles_go_to_their_features_and_otherwise_in_order() {
        let all = [("a", "gen"), ("b", "gen,fast"), ("c", "origin"), ("d", "sut")];
        assert_eq!(names(hosts(&all)), ["d", "c", "a", "b"]);
        assert_eq!(names(hosts(&[("a", ""), ("b", ""), ("c", "")])), ["a", "b", "c"]);
        // Nodes without a role before those of another one.
        assert_eq!(names(hosts(&[("a", "gen"), ("b", ""), ("c", "sut")])), ["c", "b", "a"]);
    }

    #[test]
    fn largest_disturbance_counts() {
        let noise = |steal_percent, background_cpu_percent, cpu_pressure_percent| Noise {
            steal_percent,
            background_cpu_percent,
            cpu_pressure_percent,
            context_switches: 3,
        };
        let all = [noise(1.0, 9.0, None), noise(2.0, 3.0, Some(5.0))];
        assert_eq!(worst(all.iter()), noise(2.0, 9.0, Some(5.0)));
    }
}
