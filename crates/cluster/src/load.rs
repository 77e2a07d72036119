//! A load by several hosts: the part of one agent, and the coordinator's start, window and merged result.

use crate::clock::{self, ClockOffset, Drift};
use crate::connection::{Agent, AgentError, COMMAND_LIMIT, Ticket};
use crate::protocol::{Command, LoadProgress, Reply};
use crate::shard::{LoadPlan, ShardResult};
use anyhow::{Context, bail};
use std::mem;
use std::path::Path;
use std::time::{Duration, Instant};
use tollgate_load::{Generator, GeneratorResult, Plan, Progress, Summary, window_skew};
use tollgate_runner::process::{self, Interrupt};

/// Time in which the command to start reaches all hosts.
const START_LEAD: Duration = Duration::from_millis(500);

/// Time between a command to open or close the window and its time.
pub(crate) const WINDOW_LEAD: Duration = Duration::from_millis(200);

/// Limit of the wait for a time, so that a wrong clock cannot stop an agent.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Limit of the skew between the windows of two hosts, as a share of the window.
pub const SKEW_MAX: f64 = 0.005;

/// The load of one agent.
#[derive(Debug, Default)]
pub(crate) enum AgentLoad {
    #[default]
    None,
    Prepared(Box<Plan>),
    Running(Generator),
}

impl AgentLoad {
    /// Checks a plan against this host and keeps it. Ends a load that runs.
    pub(crate) fn prepare(&mut self, plan: &LoadPlan, folder: &Path) -> anyhow::Result<()> {
        *self = Self::None;
        let files_max =
            process::raise_file_limit().context("cannot raise the limit of open files")?;
        let files = plan.open_files();
        if files as u64 > files_max {
            bail!(
                "{} connections need {files} open files, but the limit is {files_max}: raise it with `ulimit -n`, or use more hosts",
                plan.connections_here()
            );
        }
        *self = Self::Prepared(Box::new(plan.to_plan(folder)?));
        Ok(())
    }

    /// Starts the prepared load at a time. Returns the time of the first request, or at which it is due.
    pub(crate) fn start(&mut self, at_ns: u64, interrupt: &Interrupt) -> anyhow::Result<u64> {
        let Self::Prepared(plan) = mem::take(self) else { bail!("no load is prepared") };
        check_wait(at_ns)?;
        let at = clock::to_instant(at_ns);
        // A closed loop starts its threads at that time, so a stop is still possible.
        if plan.rate().is_none() {
            interrupt.sleep(at.saturating_duration_since(Instant::now()))?;
        }
        let generator = Generator::start_at(*plan, at)?;
        let started_at_ns = clock::from_instant(generator.starts_at());
        *self = Self::Running(generator);
        Ok(started_at_ns)
    }

    pub(crate) fn progress(&self) -> anyhow::Result<LoadProgress> {
        let generator = self.running()?;
        Ok(LoadProgress {
            counts: generator.progress(),
            is_done: generator.is_done(),
            opened_at_ns: generator.window_start().map(clock::from_instant),
        })
    }

    pub(crate) fn open_window(&self, at_ns: u64, interrupt: &Interrupt) -> anyhow::Result<u64> {
        let generator = self.running()?;
        wait_until(at_ns, interrupt)?;
        generator.open_window();
        Ok(clock::now_ns())
    }

    pub(crate) fn close_window(&self, at_ns: u64, interrupt: &Interrupt) -> anyhow::Result<u64> {
        let generator = self.running()?;
        wait_until(at_ns, interrupt)?;
        generator.close_window();
        Ok(clock::now_ns())
    }

    pub(crate) fn finish(&mut self) -> anyhow::Result<ShardResult> {
        let Self::Running(generator) = mem::take(self) else { bail!("no load is running") };
        let summary = generator.finish()?;
        let opened_at_ns = summary.opened_at.map(clock::from_instant);
        Ok(ShardResult { summary: summary.into(), opened_at_ns })
    }

    fn running(&self) -> anyhow::Result<&Generator> {
        match self {
            Self::Running(generator) => Ok(generator),
            Self::None | Self::Prepared(_) => bail!("no load is running"),
        }
    }
}

fn check_wait(at_ns: u64) -> anyhow::Result<()> {
    let wait = Duration::from_nanos(at_ns.saturating_sub(clock::now_ns()));
    if wait > WAIT_MAX {
        let (seconds, max) = (wait.as_secs(), WAIT_MAX.as_secs());
        bail!("cannot wait {seconds} s for a time: at most {max} s");
    }
    Ok(())
}

fn wait_until(at_ns: u64, interrupt: &Interrupt) -> anyhow::Result<()> {
    check_wait(at_ns)?;
    interrupt.sleep(clock::to_instant(at_ns).saturating_duration_since(Instant::now()))?;
    Ok(())
}

/// A load by several agents. Each sends one part of the plan.
#[derive(Debug)]
pub struct SharedLoad<'a> {
    agents: &'a mut [Agent],
    clocks: Vec<ClockOffset>,
    /// Not set any more once the window is closed: an interrupted load has a result.
    interrupt: Interrupt,
    /// Own time at which the load starts.
    starts_at: Instant,
}

/// State of a load by several agents.
#[derive(Debug, Clone, Copy)]
pub struct SharedProgress {
    pub counts: Progress,
    /// True if all requests have finished.
    pub is_done: bool,
    /// Own time at which the last host opened its window; `None` until all have.
    pub opened_at: Option<Instant>,
}

/// Result of a load by several agents.
#[derive(Debug)]
pub struct SharedResult {
    pub sum: Summary,
    pub generators: Vec<GeneratorResult>,
    /// Change of each clock until the end.
    pub drifts: Vec<Drift>,
}

impl<'a> SharedLoad<'a> {
    /// Checks the plans on all hosts and starts the load everywhere at the same time.
    pub fn start(
        agents: &'a mut [Agent],
        plans: Vec<LoadPlan>,
        interrupt: &Interrupt,
    ) -> Result<Self, AgentError> {
        let lead = start_lead(&plans);
        let tickets = agents.iter_mut().zip(plans);
        let tickets: Vec<Ticket> =
            tickets.map(|(agent, plan)| agent.send(Command::PrepareLoad(Box::new(plan)))).collect();
        receive_all(agents, tickets, interrupt)?;
        let clocks = agents.iter_mut().map(|agent| agent.clock_offset(interrupt));
        let clocks: Vec<ClockOffset> = clocks.collect::<Result<_, _>>()?;
        let (interrupt, starts_at) = (interrupt.clone(), Instant::now() + lead);
        let mut load = Self { agents, clocks, interrupt, starts_at };
        let asked = load.starts_at;
        let started = load.at(asked, |at_ns| Command::StartLoad { at_ns })?;
        // A host may have got the command too late.
        load.starts_at = started.into_iter().max().unwrap_or(asked);
        Ok(load)
    }

    /// Own time of the first request.
    pub fn starts_at(&self) -> Instant {
        self.starts_at
    }

    /// Returns the state of the load on all hosts.
    pub fn progress(&mut self) -> Result<SharedProgress, AgentError> {
        let tickets = self.agents.iter_mut().map(|agent| agent.send(Command::Progress)).collect();
        let replies = receive_all(self.agents, tickets, &self.interrupt)?;
        let (mut counts, mut is_done, mut opened_at) =
            (Progress::default(), true, Some(self.starts_at));
        for ((agent, clock), reply) in self.agents.iter().zip(&self.clocks).zip(replies) {
            let Reply::Progress(progress) = reply else { return Err(agent.unexpected(&reply)) };
            counts.add(&progress.counts);
            is_done &= progress.is_done;
            let here = progress.opened_at_ns.map(|ns| clock::to_instant(clock.to_own(ns)));
            opened_at = opened_at.zip(here).map(|(all, here)| all.max(here));
        }
        Ok(SharedProgress { counts, is_done, opened_at })
    }

    /// Opens the windows of all hosts at the same time. Returns that time.
    pub fn open_window(&mut self) -> Result<Instant, AgentError> {
        let at = Instant::now() + WINDOW_LEAD;
        self.at(at, |at_ns| Command::OpenWindow { at_ns })?;
        Ok(at)
    }

    /// Sends a command with a time to all hosts. [`SharedLoad::receive`] takes the replies.
    pub fn send_at(&mut self, at: Instant, command: impl Fn(u64) -> Command) -> Vec<Ticket> {
        let at_ns = clock::from_instant(at);
        let send = |(agent, clock): (&mut Agent, &ClockOffset)| {
            agent.send(command(clock.to_remote(at_ns)))
        };
        self.agents.iter_mut().zip(&self.clocks).map(send).collect()
    }

    /// Receives the replies of all hosts.
    pub fn receive(&mut self, tickets: Vec<Ticket>) -> Result<Vec<Reply>, AgentError> {
        receive_all(self.agents, tickets, &self.interrupt)
    }

    /// Fails if a host is lost.
    pub fn check(&mut self) -> Result<(), AgentError> {
        self.agents.iter_mut().try_for_each(Agent::check)
    }

    /// Time before the end of the window at which [`SharedLoad::close_window`] has to be called.
    pub fn close_lead() -> Duration {
        WINDOW_LEAD
    }

    /// Closes the windows of all hosts at a time, also after an interruption. Every reply has a time limit.
    pub fn close_window(&mut self, at: Instant) -> Result<(), AgentError> {
        self.interrupt = Interrupt::default();
        self.at(at, |at_ns| Command::CloseWindow { at_ns }).map(drop)
    }

    /// Collects and merges the results.
    pub fn finish(self) -> Result<SharedResult, AgentError> {
        let tickets = self.agents.iter_mut().map(|agent| agent.send(Command::FinishLoad)).collect();
        let replies = receive_all(self.agents, tickets, &self.interrupt)?;
        let mut generators = Vec::new();
        let mut drifts = Vec::new();
        for ((agent, reply), clock) in self.agents.iter_mut().zip(replies).zip(&self.clocks) {
            let Reply::Load(result) = reply else { return Err(agent.unexpected(&reply)) };
            let later = agent.clock_offset(&self.interrupt)?;
            drifts.push(clock.drift(&later));
            let opened_at = result.opened_at_ns.map(|at_ns| clock::to_instant(clock.to_own(at_ns)));
            generators.push(GeneratorResult {
                name: agent.host().to_owned(),
                summary: Summary { opened_at, ..result.summary.into() },
                clock_error: clock.error_until(&later),
            });
        }
        let sum = Summary::sum(generators.iter().map(|one| one.summary.clone()));
        Ok(SharedResult { sum, generators, drifts })
    }

    /// Sends a command with a time, converted to each host's clock. Returns the times at which it took effect.
    fn at(
        &mut self,
        at: Instant,
        command: impl Fn(u64) -> Command,
    ) -> Result<Vec<Instant>, AgentError> {
        let tickets = self.send_at(at, command);
        let replies = self.receive(tickets)?;
        let times = self.agents.iter().zip(replies).zip(&self.clocks);
        times
            .map(|((agent, reply), clock)| match reply {
                Reply::DoneAt { at_ns } => Ok(clock::to_instant(clock.to_own(at_ns))),
                other => Err(agent.unexpected(&other)),
            })
            .collect()
    }
}

impl SharedResult {
    /// Limit of the difference between the windows of two hosts, as a share of the longest window. `None` if one never
    /// opened.
    pub fn skew(&self) -> Option<f64> {
        let skew = window_skew(&self.generators)?;
        let is_open = !self.sum.window.is_zero();
        is_open.then(|| skew.as_secs_f64() / self.sum.window.as_secs_f64())
    }
}

/// Time from the command to start until the start: the command reaches all hosts, and they open their connections.
fn start_lead(plans: &[LoadPlan]) -> Duration {
    START_LEAD + plans.iter().map(|plan| plan.lead_time).max().unwrap_or_default()
}

/// Receives the replies of all agents. All are awaited, so that an error leaves no reply behind.
pub(crate) fn receive_all(
    agents: &mut [Agent],
    tickets: Vec<Ticket>,
    interrupt: &Interrupt,
) -> Result<Vec<Reply>, AgentError> {
    let replies: Vec<_> = agents
        .iter_mut()
        .zip(tickets)
        .map(|(agent, ticket)| agent.receive(ticket, COMMAND_LIMIT, interrupt))
        .collect();
    replies.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::tests::{open_loop, plan};
    use tollgate_load::Rate;
    use tollgate_traffic::load_shape::Spacing;

    #[test]
    fn start_waits_for_the_connections_of_an_open_loop() {
        let closed = plan("10.0.0.1:80".parse().unwrap());
        let arrivals = open_loop(Rate::Constant(9.0), Spacing::Constant, 20_000);
        let open = Plan { arrivals, ..closed.clone() };
        let lead = |plan| start_lead(&LoadPlan::divide(plan, None, 2).unwrap());
        assert_eq!(lead(&closed), START_LEAD);
        assert_eq!(lead(&open), START_LEAD + Duration::from_millis(510));
    }
}
