//! A load by several hosts: the part of one agent, and the coordinator's start, window and merged result.

use crate::clock::{self, ClockOffset, Drift};
use crate::connection::{Agent, AgentError, COMMAND_LIMIT, Ticket};
use crate::protocol::{Command, LoadProgress, Reply};
use crate::shard::{LoadPlan, ShardResult};
use anyhow::{Context, bail};
use std::mem;
use std::path::Path;
use std::time::{Duration, Instant};
use tollgate_load::{Generator, GeneratorResult, Plan, Progress, Summary};
use tollgate_runner::process::{self, Interrupt};

/// Time between the command to start and the start, in which the command reaches all hosts.
const START_LEAD: Duration = Duration::from_millis(500);

/// Time between a command to open or close the window and its time.
pub(crate) const WINDOW_LEAD: Duration = Duration::from_millis(200);

/// Limit of the wait for a time, so that a wrong clock cannot stop an agent.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Descriptors of an agent besides connections, and those of a thread.
const FILES: usize = 32;
const FILES_PER_THREAD: usize = 4;

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
        let files = (plan.connections_here() + FILES + FILES_PER_THREAD * plan.threads()) as u64;
        if files > files_max {
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
        Ok(LoadProgress { counts: generator.progress(), is_done: generator.is_done() })
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
        let started_at_ns = clock::from_instant(generator.starts_at());
        Ok(ShardResult { summary: generator.finish()?.into(), started_at_ns })
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

/// Result of a load by several agents.
#[derive(Debug)]
pub struct SharedResult {
    pub sum: Summary,
    pub generators: Vec<GeneratorResult>,
    pub clocks: Vec<ClockOffset>,
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
        let tickets = agents.iter_mut().zip(plans);
        let tickets: Vec<Ticket> =
            tickets.map(|(agent, plan)| agent.send(Command::PrepareLoad(Box::new(plan)))).collect();
        receive_all(agents, tickets, interrupt)?;
        let clocks = agents.iter_mut().map(|agent| agent.clock_offset(interrupt));
        let clocks: Vec<ClockOffset> = clocks.collect::<Result<_, _>>()?;
        let (interrupt, starts_at) = (interrupt.clone(), Instant::now() + START_LEAD);
        let mut load = Self { agents, clocks, interrupt, starts_at };
        let asked = load.starts_at;
        let started = load.at(asked, |at_ns| Command::StartLoad { at_ns })?;
        // Hosts with many connections need more time to open them.
        load.starts_at = started.into_iter().max().unwrap_or(asked);
        Ok(load)
    }

    /// Own time of the first request.
    pub fn starts_at(&self) -> Instant {
        self.starts_at
    }

    /// Sum of the counts of all hosts, and true if all requests have finished.
    pub fn progress(&mut self) -> Result<(Progress, bool), AgentError> {
        let tickets = self.agents.iter_mut().map(|agent| agent.send(Command::Progress)).collect();
        let replies = receive_all(self.agents, tickets, &self.interrupt)?;
        let (mut sum, mut is_done) = (Progress::default(), true);
        for (agent, reply) in self.agents.iter().zip(replies) {
            let Reply::Progress(progress) = reply else { return Err(agent.unexpected(&reply)) };
            sum.add(&progress.counts);
            is_done &= progress.is_done;
        }
        Ok((sum, is_done))
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
            drifts.push(clock.drift(&agent.clock_offset(&self.interrupt)?));
            let (name, summary) = (agent.host().to_owned(), result.summary.into());
            let clock_error = Duration::from_nanos(clock.error_ns());
            generators.push(GeneratorResult { name, summary, clock_error });
        }
        let sum = Summary::sum(generators.iter().map(|one| one.summary.clone()));
        Ok(SharedResult { sum, generators, clocks: self.clocks, drifts })
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
    /// Largest difference between the windows of two hosts that clocks and lengths allow, as a share of the window.
    pub fn skew(&self) -> f64 {
        let windows = || self.generators.iter().map(|one| one.summary.window);
        let (min, max) = (windows().min().unwrap_or_default(), windows().max().unwrap_or_default());
        let window_s = max.as_secs_f64();
        if window_s == 0.0 {
            return 0.0;
        }
        clock_skew(&self.drifts, max) + (max - min).as_secs_f64() / window_s
    }
}

/// Largest difference between the times of two hosts that their clocks allow, as a share of a window.
pub fn clock_skew(drifts: &[Drift], window: Duration) -> f64 {
    drifts.iter().map(|drift| drift.share_of(window)).fold(0.0, f64::max)
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
