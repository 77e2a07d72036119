//! A run on several hosts: the roles system, origin and generators, each on a host of its own. Takes the hosts, and starts
//! and stops the servers.

use crate::agent_role::CATALOG;
use crate::carrier::Carrier;
use crate::connection::{Agent, AgentError, COMMAND_LIMIT};
use crate::describe::HostFacts;
use crate::hosts::{Host, Hosts};
use crate::protocol::{Command, OriginsPlan, Reply, SubjectPlan, SystemPlan};
use crate::role_window::WindowOnHosts;
use crate::shard::LoadPlan;
use crate::slurm::{self, ListedNode, NodeChoice};
use crate::staging::Binary;
use anyhow::{Context, anyhow, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::{Case, Experiment, Subject};
use tollgate_experiment::load_shape::Window;
use tollgate_load::Plan;
use tollgate_records::machine::CpuLayout;
use tollgate_records::manifest::HostManifest;
use tollgate_records::subject::SubjectState;
use tollgate_records::trial::{Failure, Measurement, Step};
use tollgate_runner::process::{Interrupt, Interrupted};
use tollgate_runner::run::FixedPlace;
use tollgate_runner::trial::hosts::{
    HostsDescription, MeasureRequest, RoleHosts, StartRequest, StartedOnHosts,
};
use tollgate_runner::trial::load_plan;
use tollgate_runner::trial::servers::Stop;
use tollgate_stats::number::counted;

/// Features of nodes that name a role.
const FEATURES: [&str; 3] = ["sut", "origin", "gen"];

/// Agents before those of the generators: system and origin.
pub(crate) const SYSTEM: usize = 0;
const ORIGIN: usize = 1;
pub(crate) const SERVERS: usize = 2;

/// Time to replace lost hosts, in which Slurm notices that a node is down.
const REPLACE_LIMIT: Duration = Duration::from_secs(120);
const REPLACE_INTERVAL: Duration = Duration::from_secs(1);

/// Limit of the start of servers, beside their own time limit.
const START_MARGIN: Duration = Duration::from_secs(30);

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
            Carrier::Slurm { .. } => self.choice(interrupt)?,
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

    /// Chooses nodes by the features that name roles, if there are such nodes and the user chooses none, and avoids lost
    /// nodes if there are enough others.
    fn choice(&self, interrupt: &Interrupt) -> anyhow::Result<NodeChoice> {
        let nodes = slurm::list_nodes(interrupt)?;
        let counts = [1, 1, self.generators];
        let is_free = std::env::var_os("SALLOC_CONSTRAINT").is_none();
        let has_all = FEATURES.iter().all(|feature| nodes.iter().any(|node| node.has(feature)));
        if !is_free || !has_all {
            let without = avoidable(&nodes, &self.lost, None, counts.iter().sum());
            return Ok(NodeChoice { without, ..NodeChoice::default() });
        }
        let roles = FEATURES.iter().zip(counts);
        let parts: Vec<String> =
            roles.clone().map(|(feature, count)| format!("{feature}*{count}")).collect();
        let constraint = Some(format!("[{}]", parts.join("&")));
        let avoidable =
            |(feature, count): (&&str, usize)| avoidable(&nodes, &self.lost, Some(feature), count);
        let without = roles.flat_map(avoidable).collect();
        Ok(NodeChoice { constraint, without, is_immediate: false })
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
    fn stop_at(&mut self, step: Step, error: AgentError) -> Stop {
        self.note_lost(&error);
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

/// Lost nodes with a feature, if enough others have it.
fn avoidable(
    nodes: &[ListedNode],
    lost: &BTreeSet<String>,
    feature: Option<&str>,
    count: usize,
) -> Vec<String> {
    let of_role = nodes.iter().filter(|node| feature.is_none_or(|feature| node.has(feature)));
    let (lost, others): (Vec<&ListedNode>, Vec<_>) =
        of_role.partition(|node| lost.contains(&node.name));
    // A node that is up may still be busy with the end of the last trial.
    match others.iter().filter(|node| node.is_up()).count() >= count {
        true => lost.iter().map(|node| node.name.clone()).collect(),
        false => Vec::new(),
    }
}

fn failed(step: Step, error: &anyhow::Error) -> Stop {
    match error.downcast_ref::<Interrupted>() {
        Some(interrupted) => Stop::Interrupted(*interrupted),
        None => Stop::Failed(Failure { step, reason: format!("{error:#}"), log: Vec::new() }),
    }
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
                ready: ready.clone(),
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
            ready: ready.clone(),
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
        let window = match WindowOnHosts::run(&mut live.agents, plans, request) {
            Ok(window) => window,
            Err(error) => return Err(self.stop_at(Step::Load, error)),
        };
        window.measurement(request).map_err(|error| failed(Step::Load, &error))
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
    fn lost_nodes_are_avoided_if_their_role_has_others() {
        let node = |name: &str, state: &str| ListedNode {
            name: name.to_owned(),
            state: state.to_owned(),
            features: format!("{},fast", name.trim_end_matches(char::is_numeric)),
        };
        let nodes = [
            node("sut1", "idle"),
            node("gen1", "idle"),
            node("gen2", "completing"),
            node("gen3", "idle"),
            node("gen4", "down*"),
        ];
        let lost = ["sut1", "gen1"].map(str::to_owned).into();
        let avoided = |feature, count| avoidable(&nodes, &lost, feature, count);
        assert_eq!(avoided(Some("gen"), 2), ["gen1"]);
        assert_eq!(avoided(Some("gen"), 3), [""; 0]);
        // Only one node can be the system.
        assert_eq!(avoided(Some("sut"), 1), [""; 0]);
        assert_eq!(avoided(None, 2), ["sut1", "gen1"]);
    }
}
