//! The bench of a run on several hosts: the roles system, origin and generators, each on a host of its own. An agent on
//! each executes the code of [`Role`](tollgate_runner::role::Role).

mod roles;
mod window;

use crate::agent_role::CATALOG;
use crate::carrier::Carrier;
use crate::connection::{Agent, AgentError, COMMAND_LIMIT};
use crate::describe::HostFacts;
use crate::hosts::Hosts;
use crate::protocol::{Command, OriginsPlan, Reply, SubjectPlan, SystemPlan};
use crate::shard::LoadPlan;
use crate::slurm::NodeChoice;
use crate::staging::Binary;
use anyhow::{Context, anyhow, bail};
use roles::{ORIGIN, SERVERS, SYSTEM, role_name};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::{Case, Experiment, Subject};
use tollgate_load::{Phases, Plan};
use tollgate_records::machine::CpuLayout;
use tollgate_records::manifest::HostManifest;
use tollgate_records::subject::SubjectState;
use tollgate_records::trial::{Measurement, Noise, TrialFailure, TrialStep};
use tollgate_runner::bench::{Bench, BenchDescription, MeasureRequest, StartRequest, Started};
use tollgate_runner::probe::exchange::Site;
use tollgate_runner::process::{Interrupt, Interrupted};
use tollgate_runner::role::servers::TrialEnd;
use tollgate_runner::system::state::FixedPlace;
use tollgate_stats::number::counted;
use tollgate_traffic::load_shape::Window;
use window::WindowOnHosts;

/// Time to replace lost hosts, in which Slurm notices that a node is down.
const REPLACE_LIMIT: Duration = Duration::from_secs(120);
const REPLACE_INTERVAL: Duration = Duration::from_secs(1);

/// Limit of the start of servers, beside their own time limit.
const START_MARGIN: Duration = Duration::from_secs(30);

/// Hosts of the roles of a run, taken when it is described.
pub struct RemoteBench {
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

impl fmt::Debug for RemoteBench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteBench").field("carrier", &self.carrier).finish_non_exhaustive()
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
    if !experiment.is_sent_by_tollgate() {
        return refuse("a foreign client".to_owned());
    }
    for Case { name, load, .. } in &experiment.cases {
        let what = match load.window {
            _ if load.protocol().is_tls() => "over TLS",
            _ if load.idle_poll => "with `idle_poll`",
            Window::Requests { .. } => "with a number of requests",
            Window::For(_) => continue,
        };
        return refuse(format!("case {name} {what}"));
    }
    Ok(())
}

impl RemoteBench {
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
            Carrier::Slurm { .. } => roles::choose(self.generators, &self.lost, interrupt)?,
            Carrier::Ssh { .. } | Carrier::Kubectl { .. } | Carrier::Local { .. } => {
                NodeChoice::default()
            }
        };
        let mut hosts = Hosts::take(&self.carrier, Some(count), &choice, interrupt, waiting)?;
        if hosts.hosts.len() != count {
            bail!(
                "cannot run on {}: {count} are needed, for system, origin and {}; change --on or --generators",
                counted(hosts.hosts.len(), "host"),
                counted(self.generators, "generator")
            );
        }
        hosts.hosts = roles::assign(hosts.hosts);
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
            for (path, text) in &files {
                let path = format!("{CATALOG}/{}", path.display());
                agent.write_file(&path, text.as_bytes(), false, interrupt)?;
            }
        }
        let live = Live { agents, roles, addresses, _hosts: hosts };
        (self.notify)(&live.plan(&self.carrier));
        self.live = Some(live);
        self.is_lost = false;
        Ok(())
    }

    /// Takes all hosts again, which stops everything on them.
    fn replace_lost(
        &mut self,
        interrupt: &Interrupt,
        waiting: &mut dyn FnMut(&str),
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + REPLACE_LIMIT;
        if self.lost.is_empty() {
            waiting("taking hosts again");
        } else {
            let names: Vec<&str> = self.lost.iter().map(String::as_str).collect();
            waiting(&format!("lost {}; taking hosts again", names.join(", ")));
        }
        // Gives all nodes back, which stops everything on them.
        self.live = None;
        loop {
            match self.take(interrupt, waiting) {
                Err(error) if error.is::<Interrupted>() => return Err(error),
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(error) => {
                    match error.downcast_ref().and_then(AgentError::host) {
                        Some(host) => drop(self.lost.insert(host)),
                        // Too few nodes may be left because lost ones are avoided.
                        None => self.lost.clear(),
                    }
                    interrupt.sleep(REPLACE_INTERVAL)?;
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    fn live(&mut self) -> anyhow::Result<&mut Live> {
        self.live.as_mut().context("the hosts are not taken")
    }

    fn note_lost(&mut self, error: &AgentError) {
        if let AgentError::Lost { host, .. } | AgentError::Slow { host, .. } = error {
            self.lost.insert(host.clone());
            self.is_lost = true;
        }
    }

    /// Notes a lost host, and converts the error of an agent to the end of a trial.
    fn end(&mut self, step: TrialStep, error: AgentError) -> TrialEnd {
        self.note_lost(&error);
        match error {
            AgentError::Interrupted(interrupted) => TrialEnd::Interrupted(interrupted),
            error => {
                let step = if error.is_lost() { TrialStep::Host } else { step };
                let reason = error.to_string();
                TrialEnd::Failed(TrialFailure { step, reason, log: Vec::new() })
            }
        }
    }

    /// Sends a command to the agent of a role, and converts its reply. Servers that do not start are a failure of the
    /// subject; an agent that refuses fails in `step`.
    fn call<T>(
        &mut self,
        role: usize,
        command: Command,
        (step, limit): (TrialStep, Duration),
        interrupt: &Interrupt,
        expected: impl FnOnce(Reply) -> Result<T, Reply>,
    ) -> Result<T, TrialEnd> {
        let agent = &mut self.live().map_err(TrialEnd::failed(step))?.agents[role];
        let error = match agent.call(command, limit, interrupt) {
            Ok(Reply::Failed(failure)) => return Err(TrialEnd::Failed(failure)),
            Ok(reply) => match expected(reply) {
                Ok(value) => return Ok(value),
                Err(other) => agent.unexpected(&other),
            },
            Err(error) => error,
        };
        Err(self.end(step, error))
    }

    fn start_origins(
        &mut self,
        request: &StartRequest<'_>,
        limit: Duration,
    ) -> Result<Vec<SocketAddr>, TrialEnd> {
        let live = self.live().map_err(TrialEnd::failed(TrialStep::Start))?;
        let command = Command::StartOrigins(Box::new(OriginsPlan {
            ip: live.addresses[ORIGIN],
            count: request.case.origins,
            busy_poll: request.case.load.clients.busy_poll,
            responses: request.responses.cloned(),
            ready: request.ready.clone(),
        }));
        let expected = |reply| match reply {
            Reply::Origins { addresses } => Ok(addresses),
            other => Err(other),
        };
        self.call(ORIGIN, command, (TrialStep::Start, limit), request.interrupt, expected)
    }
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
}

fn subject_plan(subject: &Subject) -> SubjectPlan {
    SubjectPlan {
        name: subject.name.clone(),
        system: subject.recipe.name.clone(),
        options: subject.options.clone(),
        prefix: subject.prefix.clone(),
    }
}

impl Bench for RemoteBench {
    fn describe(
        &mut self,
        _: &Experiment,
        interrupt: &Interrupt,
    ) -> anyhow::Result<BenchDescription> {
        let notify = self.notify;
        self.take(interrupt, &mut |text| notify(text))?;
        let live = self.live()?;
        Ok(BenchDescription {
            layout: CpuLayout {
                generator: live.roles[SERVERS].cpus.clone(),
                origin: live.roles[ORIGIN].cpus.clone(),
                system: live.roles[SYSTEM].cpus.clone(),
            },
            environment: live.roles[SYSTEM].environment.clone(),
            hosts: live.manifest(),
            missing: None,
        })
    }

    fn state(
        &mut self,
        experiment: &Experiment,
        subject: &Subject,
        _: &Path,
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

    fn ready(
        &mut self,
        interrupt: &Interrupt,
        waiting: &mut dyn FnMut(&str),
    ) -> anyhow::Result<()> {
        if self.live.is_some() && !self.is_lost {
            return Ok(());
        }
        self.replace_lost(interrupt, waiting).context("cannot replace the lost hosts")
    }

    /// Nodes are exclusive, and this machine measures nothing.
    fn noise(&mut self, _: Duration, _: &Interrupt) -> Result<Option<Noise>, Interrupted> {
        Ok(None)
    }

    fn start(&mut self, request: &StartRequest<'_>) -> Result<Started, TrialEnd> {
        let StartRequest { case, subject, ready, interrupt, .. } = *request;
        let recipe = &subject.recipe.file;
        let limit = recipe.ready.timeout.0 * 2 + START_MARGIN;
        let origins = if recipe.origin { self.start_origins(request, limit)? } else { Vec::new() };
        let site = |address| Site { protocol: case.load.protocol(), ..Site::plain(address) };
        if let (true, Some(first)) = (recipe.process.is_empty(), origins.first()) {
            return Ok(Started { site: site(*first), ports: BTreeMap::new(), startup: None });
        }
        let live = self.live().map_err(TrialEnd::failed(TrialStep::Start))?;
        let command = Command::StartSystem(Box::new(SystemPlan {
            subject: subject_plan(subject),
            ip: live.addresses[SYSTEM],
            origins,
            concurrency: case.load.concurrency(),
            protocol: case.load.protocol(),
            ready: ready.clone(),
        }));
        let expected = |reply| match reply {
            Reply::System(started) => Ok(started),
            other => Err(other),
        };
        let started = self.call(SYSTEM, command, (TrialStep::Start, limit), interrupt, expected)?;
        Ok(Started { site: site(started.address), ports: started.ports, startup: started.startup })
    }

    fn check(&mut self) -> Result<(), TrialEnd> {
        let live = self.live().map_err(TrialEnd::failed(TrialStep::Host))?;
        if let Err(error) = live.agents.iter_mut().try_for_each(Agent::check) {
            return Err(self.end(TrialStep::Host, error));
        }
        for (role, step) in [(ORIGIN, TrialStep::Origin), (SYSTEM, TrialStep::Probe)] {
            let expected = |reply| match reply {
                Reply::Exit(exit) => Ok(exit),
                other => Err(other),
            };
            let limits = (step, COMMAND_LIMIT);
            let interrupt = Interrupt::default();
            let exit = self.call(role, Command::ServersExit, limits, &interrupt, expected)?;
            if let Some((reason, log)) = exit {
                return Err(TrialEnd::Failed(TrialFailure { step, reason, log }));
            }
        }
        Ok(())
    }

    fn system_log(&mut self) -> Vec<String> {
        let expected = |reply| match reply {
            Reply::Log(lines) => Ok(lines),
            other => Err(other),
        };
        let limits = (TrialStep::Probe, COMMAND_LIMIT);
        let interrupt = Interrupt::default();
        match self.call(SYSTEM, Command::ServersLog, limits, &interrupt, expected) {
            Ok(lines) => lines,
            Err(TrialEnd::Failed(failure)) => {
                vec![format!("(cannot read the logs: {})", failure.reason)]
            }
            Err(TrialEnd::Interrupted(interrupted)) => vec![format!("({interrupted})")],
        }
    }

    fn measure(&mut self, request: &MeasureRequest<'_>) -> Result<Measurement, TrialEnd> {
        let configured = TrialEnd::failed(TrialStep::Configure);
        let plan = Plan { phases: Phases::WarmUp, ..request.plan(Vec::new()).map_err(configured)? };
        let plans = LoadPlan::divide(&plan, None, self.generators)
            .map_err(TrialEnd::failed(TrialStep::Configure))?;
        let live = self.live().map_err(TrialEnd::failed(TrialStep::Load))?;
        let cpus: Vec<usize> = live.roles[SERVERS..].iter().map(|facts| facts.cpus.len()).collect();
        let window = match WindowOnHosts::run(&mut live.agents, plans, request) {
            Ok(window) => window,
            Err(error) => return Err(self.end(TrialStep::Load, error)),
        };
        if window.origin_died() {
            self.check()?;
        }
        window.measurement(request, &cpus).map_err(TrialEnd::failed(TrialStep::Load))
    }

    fn stop(&mut self) {
        let Some(live) = &mut self.live else { return };
        let (interrupt, mut errors) = (Interrupt::default(), Vec::new());
        for index in 0..SERVERS {
            // A lost host is replaced before the next trial.
            let stopped = live.agents[index].call(Command::StopServers, COMMAND_LIMIT, &interrupt);
            errors.extend(stopped.err());
        }
        for error in errors {
            (self.notify)(&error.to_string());
            self.note_lost(&error);
        }
    }
}
