//! The load of a trial on this machine: warm-up, and the window with the clocks at both of its ends.

use super::foreign::{EndedClient, InstalledClient};
use crate::bench::MeasureRequest;
use crate::role::Role;
use crate::role::window::{ClosedWindow, PreparedWindow};
use anyhow::Context;
use std::thread;
use std::time::{Duration, Instant};
use tollgate_load::{Generator, Phases, Plan};
use tollgate_records::trial::WarmUpRecord;
use tollgate_traffic::load_shape::{WarmUp, Window};

/// Context of errors.
pub(super) const FAILED: &str = "cannot send the load";

pub(super) struct Finished {
    pub(super) window: ClosedWindow,
    pub(super) sender: Sender,
    pub(super) warm_up: WarmUpRecord,
    /// Longest delay of a wake-up of this process during the window.
    pub(super) lateness: Duration,
}

/// The sender of a load, which has stopped sending.
pub(super) enum Sender {
    Generator(Generator),
    Client(EndedClient),
}

/// Warms up and runs the window. `client`: the foreign sender, if there is one; `roles`: system and origin; `cpus`: those of
/// all roles. The error may be [`Interrupted`](crate::process::Interrupted).
pub(super) fn run(
    request: &MeasureRequest<'_>,
    plan: &Plan,
    client: Option<&InstalledClient>,
    roles: [&Role; 2],
    cpus: &[usize],
) -> anyhow::Result<Finished> {
    let trial = LoadRun { request, plan, roles, cpus };
    match (client, request.expected.load.window) {
        (Some(client), window) => trial.run_client(client, window),
        (None, Window::For(time)) => trial.run_for_time(time),
        (None, Window::Requests { requests, within: timeout }) => {
            trial.run_requests(requests.into(), timeout)
        }
    }
}

struct LoadRun<'a> {
    request: &'a MeasureRequest<'a>,
    plan: &'a Plan,
    roles: [&'a Role; 2],
    cpus: &'a [usize],
}

impl LoadRun<'_> {
    /// The window is part of a load that continues before and after it.
    fn run_for_time(&self, time: Duration) -> anyhow::Result<Finished> {
        let generator = self.start_warm_up()?;
        let warm_up = self.warm_up(&generator)?;
        let window = PreparedWindow::new(&self.roles, self.cpus)?.open(Instant::now())?;
        generator.open_window();
        let slept = self.request.interrupt.sleep(time);
        let window = window.close(Instant::now())?;
        generator.close_window();
        let sender = Sender::Generator(generator);
        Ok(Finished { window, sender, warm_up, lateness: slept? })
    }

    /// The window contains a load of exactly these requests: it begins after the last response of the warm-up and ends
    /// with its own last response, so that the servers' CPU time is the cost of these requests.
    fn run_requests(&self, requests: u64, timeout: Duration) -> anyhow::Result<Finished> {
        let warm_up = self.warm_up_and_drain()?;
        let window = PreparedWindow::new(&self.roles, self.cpus)?.open(Instant::now())?;
        let generator = start(Plan { phases: Phases::Requests(requests), ..self.plan.clone() })?;
        let lateness = self.wait(timeout, |step| Ok(generator.wait(step)))?;
        let window = window.close(Instant::now())?;
        generator.close_window();
        let sender = Sender::Generator(generator);
        Ok(Finished { window, sender, warm_up, lateness })
    }

    /// The window is the life of the process of a foreign client, after a warm-up by the own generator.
    fn run_client(&self, client: &InstalledClient, window: Window) -> anyhow::Result<Finished> {
        let warm_up = self.warm_up_and_drain()?;
        let clients = &self.request.expected.load.clients;
        let limit = match window {
            Window::For(time) => time + clients.connect_timeout + clients.response_timeout,
            Window::Requests { within, .. } => within,
        };
        let prepared = PreparedWindow::new(&self.roles, self.cpus)?;
        let window = prepared.open(Instant::now())?;
        let mut running = client.start(self.request, &self.plan.cpus)?;
        let lateness = self.wait(limit, |step| {
            thread::sleep(step);
            running.has_ended()
        })?;
        let window = window.close(Instant::now())?;
        let sender = Sender::Client(running.ended(limit)?);
        Ok(Finished { window, sender, warm_up, lateness })
    }

    /// Warms up and waits for the last responses, so that the system does not work on them in the window.
    fn warm_up_and_drain(&self) -> anyhow::Result<WarmUpRecord> {
        let load = self.request.expected.load;
        if load.warm_up == WarmUp::For(Duration::ZERO) {
            return Ok(WarmUpRecord { duration_s: 0.0, steady: None });
        }
        let generator = self.start_warm_up()?;
        let warm_up = self.warm_up(&generator)?;
        generator.drain();
        // The requests that are left then have timed out.
        let limit = load.clients.connect_timeout + load.clients.response_timeout;
        self.wait(limit, |step| Ok(generator.wait(step)))?;
        generator.finish().context(FAILED)?;
        Ok(warm_up)
    }

    fn start_warm_up(&self) -> anyhow::Result<Generator> {
        start(Plan { phases: Phases::WarmUp, ..self.plan.clone() })
    }

    /// Waits for the fixed time of the case, or until the load is steady.
    fn warm_up(&self, generator: &Generator) -> anyhow::Result<WarmUpRecord> {
        // The schedule starts after the connections are open.
        let begin = generator.starts_at();
        let lead = begin.saturating_duration_since(Instant::now());
        let steady = match self.request.expected.load.warm_up {
            WarmUp::For(time) => {
                self.request.interrupt.sleep(lead + time)?;
                None
            }
            WarmUp::Steady { .. } => {
                self.request.interrupt.sleep(lead)?;
                Some(self.wait_until_steady(generator)?)
            }
        };
        Ok(WarmUpRecord { duration_s: begin.elapsed().as_secs_f64(), steady })
    }

    fn wait_until_steady(&self, generator: &Generator) -> anyhow::Result<bool> {
        let [system, _] = self.roles;
        self.request.wait_until_steady(|due| {
            self.request.interrupt.sleep(due.saturating_duration_since(Instant::now()))?;
            let cpu_us = system.cpu_us()?;
            Ok((Instant::now(), generator.progress(), cpu_us))
        })
    }

    /// Waits until the sender ends, up to `timeout`. `has_ended` waits for that, up to a time. Returns the longest delay of
    /// a wake-up of this process.
    fn wait(
        &self,
        timeout: Duration,
        mut has_ended: impl FnMut(Duration) -> anyhow::Result<bool>,
    ) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let mut latest = Duration::ZERO;
        let mut now = start;
        loop {
            self.request.interrupt.check()?;
            let step = CHECK_INTERVAL.min(timeout.saturating_sub(now - start));
            if step.is_zero() || has_ended(step)? {
                return Ok(latest);
            }
            let woken = Instant::now();
            latest = latest.max((woken - now).saturating_sub(step));
            now = woken;
        }
    }
}

fn start(plan: Plan) -> anyhow::Result<Generator> {
    Generator::start(plan).context(FAILED)
}

/// Interval between checks of the interrupt.
const CHECK_INTERVAL: Duration = Duration::from_millis(25);
