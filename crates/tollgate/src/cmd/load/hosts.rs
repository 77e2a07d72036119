//! A load from several hosts: the printed plan, agents, one window, and the merged result.

use super::args::{Args, Tls};
use super::progress::{self, ProgressLine, Running};
use super::{Load, exit, tls};
use crate::console::{self, Exit, Failure, eprint_line};
use crate::signals;
use anyhow::{Context, Result, bail};
use std::env::current_exe;
use std::fs::File;
use std::time::{Duration, Instant};
use tollgate_cluster::carrier::Carrier;
use tollgate_cluster::connection::{Agent, AgentError};
use tollgate_cluster::hosts::Hosts;
use tollgate_cluster::load::{SKEW_MAX, SharedLoad, SharedProgress, SharedResult};
use tollgate_cluster::shard::{LoadPlan, TlsPlan};
use tollgate_cluster::slurm::NodeChoice;
use tollgate_cluster::staging::Binary;
use tollgate_load::{Arrivals, Plan, Progress, ReplayPlan, Target as Address};
use tollgate_runner::process::Interrupt;
use tollgate_stats::LatencyHistogram;
use tollgate_stats::number::{count, counted, percent, significant};
use tollgate_traffic::load_shape::OpenLoop;

/// Names of staged files.
const AUTHORITIES: &str = "authorities.pem";
const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";

/// Interval of the questions to the agents for their counts.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

pub(super) fn run(args: &Args, mut load: Load, carrier: &Carrier) -> Result<Exit, Failure> {
    tls::negotiate(args, &load.target, &mut load.plan)?;
    check_permission(args, &load, carrier).map_err(Failure::bad_input)?;
    let tls_plan = load.target.server.is_tls.then(|| tls_plan(args, &load));
    // A second signal ends the process; the pipes to the agents then end, which stops them.
    let kill_now = || std::process::exit(Exit::Interrupted as i32);
    let interrupt = signals::interrupt(kill_now).context("cannot handle signals")?;
    let binary = Binary::read(&current_exe().context("cannot find the running program")?)?;
    let hosts = Hosts::take(carrier, None, &NodeChoice::default(), &interrupt, &mut eprint_line)?;
    let plans = LoadPlan::divide(&load.plan, tls_plan.as_ref(), hosts.hosts.len());
    let plans = plans.map_err(Failure::bad_input)?;
    eprint_line(&describe(&load, &hosts, &binary));
    let mut agents = hosts.start_agents(&binary, &interrupt)?;
    for agent in &mut agents {
        store_files(args, agent, &interrupt)?;
    }
    let shared = SharedLoad::start(&mut agents, plans, &interrupt)?;
    let mut running = RunningAgents { load: shared, window_start: None, last: None };
    let mut line = ProgressLine::new();
    let end = progress::run(&load, &mut running, &mut line, &interrupt);
    line.clear();
    let end = end?;
    let result = running.load.finish()?;
    drop(agents);
    drop(hosts);
    // An interrupted load ends on each host when it gets the command.
    if !end.is_interrupted {
        warn_of_skew(&load, &result);
    }
    console::print(&load.render(end, &result.sum, &result.generators)?)?;
    Ok(if end.is_interrupted {
        Exit::Interrupted
    } else {
        exit(&result.sum, args.threshold.as_ref())
    })
}

/// Checks that a loopback address may be loaded, which is another server on each host.
fn check_permission(args: &Args, load: &Load, carrier: &Carrier) -> Result<()> {
    let Address::Tcp(address) = load.plan.target else { return Ok(()) };
    let is_loopback = address.ip().is_loopback() || address.ip().is_unspecified();
    let hostname = &load.target.server.hostname;
    let is_allowed = args.allow_host.iter().any(|host| host.trim_matches(['[', ']']) == hostname);
    if is_loopback && !is_allowed && !matches!(carrier, Carrier::Local { .. }) {
        bail!(
            "cannot load {hostname}: it is another server on each host; to load them all, add --allow-host {hostname}"
        );
    }
    Ok(())
}

/// The plan that is printed before anything is sent.
fn describe(load: &Load, hosts: &Hosts, binary: &Binary) -> String {
    let Plan { arrivals, clients, target, .. } = &load.plan;
    let hosts_count = hosts.hosts.len();
    let names: Vec<String> = hosts.hosts.iter().map(|host| host.place.name()).collect();
    let what = match arrivals {
        Arrivals::Closed { .. } => "a closed loop".to_owned(),
        Arrivals::Open { schedule: OpenLoop { rate, .. }, .. }
        | Arrivals::Replay(ReplayPlan { rate, .. }) => format!("{} requests/s", rate.describe()),
    };
    let until = match (load.plan.requests(), load.duration) {
        (Some(requests), _) => format!("{} requests", count(requests)),
        (None, Some(time)) => format!("{} s", significant(time.as_secs_f64())),
        (None, None) => "the end of its schedule".to_owned(),
    };
    let mib = significant(binary.bytes as f64 / f64::from(1 << 20));
    let mut text = format!(
        "plan: {} on {} ({})\n  to {target} ({})\n  {what} over {} in all, {} each, for {until}\n  \
         tollgate is copied to hosts that lack it ({mib} MiB)",
        counted(hosts_count, "generator"),
        hosts.carrier,
        names.join(", "),
        load.target.server.url,
        counted(load.plan.connections(), "connection"),
        counted(clients.threads, "thread"),
    );
    let Address::Tcp(address) = target else { return text };
    if let Some(host) = hosts.hosts.iter().find(|host| host.address == Some(address.ip())) {
        let name = host.place.name();
        text += &format!("\n  warning: {name} is also the target, which shares its CPUs");
    }
    text
}

/// Options of TLS after the negotiation. Files go by the names under which they are stored.
fn tls_plan(args: &Args, load: &Load) -> TlsPlan {
    let Load { target, plan, .. } = load;
    TlsPlan {
        trust: tls::trust(args.cacert.as_ref().map(|_| AUTHORITIES.into()), args.insecure),
        name: target.server.hostname.clone(),
        identity: args.cert.as_ref().map(|_| (CERTIFICATE.to_owned(), KEY.to_owned())),
        minor_version: args.tls.map(|version| match version {
            Tls::Tls12 => 2,
            Tls::Tls13 => 3,
        }),
        resume: args.tls_resume,
        protocols: vec![tls::alpn(plan.clients.protocol).to_owned()],
    }
}

fn store_files(args: &Args, agent: &mut Agent, interrupt: &Interrupt) -> Result<()> {
    let files = [(AUTHORITIES, &args.cacert), (CERTIFICATE, &args.cert), (KEY, &args.key)];
    for (name, path) in files {
        if let Some(path) = path {
            let file =
                File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
            agent.write_file(name, file, false, interrupt)?;
        }
    }
    Ok(())
}

/// The windows of a load that ends after a number of requests have different lengths.
fn warn_of_skew(load: &Load, result: &SharedResult) {
    if load.duration.is_none() {
        return;
    }
    if let Some(skew) = result.skew().filter(|skew| *skew > SKEW_MAX) {
        eprint_line(&format!(
            "warning: the windows of the hosts differ by up to {} of their length, so their sum is not one measurement; \
             measure longer, or look at the clocks with `tollgate doctor --on`",
            percent(skew)
        ));
    }
}

/// A load of agents, whose counts are asked for at an interval.
struct RunningAgents<'a> {
    load: SharedLoad<'a>,
    /// Not before the first request of each host.
    window_start: Option<Instant>,
    last: Option<(Instant, Progress, bool)>,
}

impl Running for RunningAgents<'_> {
    fn starts_at(&self) -> Instant {
        self.load.starts_at()
    }

    fn window_start(&self) -> Option<Instant> {
        self.window_start
    }

    fn progress(&mut self) -> Result<(Progress, bool)> {
        if let Some((at, progress, is_done)) = self.last
            && at.elapsed() < PROGRESS_INTERVAL
        {
            return Ok((progress, is_done));
        }
        let SharedProgress { counts, is_done, opened_at } =
            self.load.progress().map_err(AgentError::into_plain)?;
        self.last = Some((Instant::now(), counts, is_done));
        self.window_start = self.window_start.or(opened_at);
        Ok((counts, is_done))
    }

    fn wait(&mut self, time: Duration, interrupt: &Interrupt) -> Result<()> {
        interrupt.sleep(time.min(PROGRESS_INTERVAL))?;
        Ok(())
    }

    fn latency(&mut self) -> Option<LatencyHistogram> {
        None
    }

    fn open_window(&mut self) -> Result<()> {
        self.window_start = Some(self.load.open_window().map_err(AgentError::into_plain)?);
        Ok(())
    }

    fn close_window(&mut self, at: Option<Instant>) -> Result<()> {
        Ok(self.load.close_window(at.unwrap_or_else(Instant::now))?)
    }

    fn close_lead(&self) -> Duration {
        SharedLoad::close_lead()
    }
}
