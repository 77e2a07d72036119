//! The measured window: warm-up, the load of the window, and the counters at both of its ends.

use super::exchange::{Site, exchange_with_body, get};
use super::servers::Servers;
use crate::environment::Counters;
use crate::process::idle_poll::IdlePoll;
use crate::process::usage::{ProcessTable, Reading};
use crate::process::{Interrupt, Interrupted};
use anyhow::Context;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tollgate_experiment::load_shape::{LoadFile, WarmUp, Window};
use tollgate_load::{
    Arrivals, Generator, Plan, Protocol, Rate, Shard, Slice, Spacing, Target, Workload,
    becomes_steady,
};
use tollgate_records::case::SpacingFile;
use tollgate_records::machine::CpuLayout;
use tollgate_records::trial::{CpuTime, WarmUpRecord, as_f64};
use tollgate_records::validity::Limits;
use tollgate_traffic::Template;

/// A started subject and its load.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) site: &'a Site,
    pub(crate) load: &'a LoadFile,
    pub(crate) templates: &'a [Template],
    pub(crate) workload: Arc<Workload>,
    /// Seed of a Poisson schedule.
    pub(crate) gaps_seed: u64,
    /// Status code of blocked requests.
    pub(crate) blocked_status: u16,
    pub(crate) origin: &'a Servers,
    pub(crate) origins: &'a [Site],
    pub(crate) system: &'a mut Servers,
    pub(crate) layout: &'a CpuLayout,
    pub(crate) limits: &'a Limits,
    pub(crate) interrupt: &'a Interrupt,
}

/// Contexts of errors.
pub(super) const LOAD: &str = "cannot send the load";
pub(super) const COUNTERS: &str = "cannot read the counters of the machine";

pub(super) struct Finished {
    pub(super) origins_before: Vec<OriginCounters>,
    pub(super) at_start: Edge,
    pub(super) at_end: Edge,
    /// The generator, which has stopped sending.
    pub(super) generator: Generator,
    pub(super) warm_up: WarmUpRecord,
    /// Longest delay of a wake-up of this process during the window.
    pub(super) lateness: Duration,
}

/// Warms up and runs the window. The error may be [`Interrupted`].
pub(super) fn run(subject: &Subject<'_>, idle_poll: &IdlePoll) -> anyhow::Result<Finished> {
    match subject.load.window() {
        Window::For(time) => run_for_time(subject, time, idle_poll),
        Window::Requests { requests, within: timeout } => {
            run_requests(subject, requests.into(), timeout, idle_poll)
        }
    }
}

/// The window is part of a load that continues before and after it.
fn run_for_time(
    subject: &Subject<'_>,
    time: Duration,
    idle_poll: &IdlePoll,
) -> anyhow::Result<Finished> {
    let generator = start(Plan { warm_up: true, ..plan(subject)? })?;
    let warm_up = warm_up(subject, &generator)?;
    let origins_before = origin_counters(subject.origins, subject.load.busy_poll)?;
    let pids = Pids::list(subject)?;
    let at_start = Edge::read(subject, &pids, idle_poll)?;
    generator.open_window();
    let slept = subject.interrupt.sleep(time);
    let at_end = Edge::read(subject, &pids, idle_poll)?;
    generator.close_window();
    Ok(Finished { origins_before, at_start, at_end, generator, warm_up, lateness: slept? })
}

/// The window contains a load of exactly these requests: it begins after the last response of the warm-up and ends with
/// its own last response, so that the servers' CPU time is the cost of these requests.
fn run_requests(
    subject: &Subject<'_>,
    requests: u64,
    timeout: Duration,
    idle_poll: &IdlePoll,
) -> anyhow::Result<Finished> {
    let warm_up = warm_up_and_drain(subject)?;
    let origins_before = origin_counters(subject.origins, subject.load.busy_poll)?;
    let pids = Pids::list(subject)?;
    let at_start = Edge::read(subject, &pids, idle_poll)?;
    let generator = start(Plan { requests: Some(requests), warm_up: false, ..plan(subject)? })?;
    let lateness = wait(&generator, timeout, subject.interrupt)?;
    let at_end = Edge::read(subject, &pids, idle_poll)?;
    generator.close_window();
    Ok(Finished { origins_before, at_start, at_end, generator, warm_up, lateness })
}

/// Warms up and waits for the last responses, so that the system does not work on them in the window.
fn warm_up_and_drain(subject: &Subject<'_>) -> anyhow::Result<WarmUpRecord> {
    if subject.load.warmup == WarmUp::For(Duration::ZERO) {
        return Ok(WarmUpRecord { duration_s: 0.0, steady: None });
    }
    let generator = start(Plan { warm_up: true, ..plan(subject)? })?;
    let warm_up = warm_up(subject, &generator)?;
    generator.drain();
    // The requests that are left then have timed out.
    wait(&generator, CONNECT_TIMEOUT + subject.load.timeout.0, subject.interrupt)?;
    generator.finish().context(LOAD)?;
    Ok(warm_up)
}

fn start(plan: Plan) -> anyhow::Result<Generator> {
    Generator::start(plan).context(LOAD)
}

/// Waits until a generator ends, up to `timeout`. Returns the longest delay of a wake-up of this process.
fn wait(
    generator: &Generator,
    timeout: Duration,
    interrupt: &Interrupt,
) -> Result<Duration, Interrupted> {
    let start = Instant::now();
    let mut latest = Duration::ZERO;
    let mut now = start;
    loop {
        interrupt.check()?;
        let step = CHECK_INTERVAL.min(timeout.saturating_sub(now - start));
        if step.is_zero() || generator.wait(step) {
            return Ok(latest);
        }
        let woken = Instant::now();
        latest = latest.max((woken - now).saturating_sub(step));
        now = woken;
    }
}

/// Interval between checks of the interrupt.
const CHECK_INTERVAL: Duration = Duration::from_millis(25);

/// Waits for the fixed time of the case, or until the load is steady.
fn warm_up(subject: &Subject<'_>, generator: &Generator) -> anyhow::Result<WarmUpRecord> {
    // The schedule starts after the connections are open.
    let begin = generator.starts_at();
    let lead = begin.saturating_duration_since(Instant::now());
    let steady = match subject.load.warmup {
        WarmUp::For(time) => {
            subject.interrupt.sleep(lead + time)?;
            None
        }
        WarmUp::Steady => {
            subject.interrupt.sleep(lead)?;
            Some(wait_until_steady(subject, generator)?)
        }
    };
    Ok(WarmUpRecord { duration_s: begin.elapsed().as_secs_f64(), steady })
}

/// Returns true if the figures became steady within the time limit.
fn wait_until_steady(subject: &Subject<'_>, generator: &Generator) -> anyhow::Result<bool> {
    let sample = |due: Instant| {
        subject.interrupt.sleep(due.saturating_duration_since(Instant::now()))?;
        // Slow on busy CPUs, so it precedes the clock read.
        let pids = subject.system.pids(&ProcessTable::read().context(COUNTERS)?);
        // `None` for a subject without processes.
        let system = (!pids.is_empty()).then(|| Reading::take(&pids));
        anyhow::Ok((Instant::now(), generator.progress(), system))
    };
    becomes_steady(subject.load.warmup_longest(), sample, |slice, before, now| {
        let cpu = before.as_ref().zip(now.as_ref()).map(|(before, now)| before.until(now));
        // `None` if a process ended.
        let cpu_us = cpu.and_then(Result::ok).map(CpuTime::total_us);
        steady_figures(slice, cpu_us, subject.load.rate.is_some())
    })
}

/// Returns the figures that must be steady: throughput in a closed loop, and the CPU time per request of the system.
/// Without either: the mean latency.
pub fn steady_figures(slice: &Slice, cpu_us: Option<u64>, is_open_loop: bool) -> Vec<f64> {
    let throughput_per_s = (!is_open_loop).then(|| slice.throughput_per_s());
    let cpu_us_per_request = cpu_us.map(|us| as_f64(us) / as_f64(slice.responses.max(1)));
    let figures: Vec<f64> = throughput_per_s.into_iter().chain(cpu_us_per_request).collect();
    match figures.is_empty() {
        true => slice.latency_ns_mean().into_iter().collect(),
        false => figures,
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

fn plan(subject: &Subject<'_>) -> anyhow::Result<Plan> {
    let cpus = subject.layout.generator.clone();
    load_plan(subject.site, subject.load, &subject.workload, subject.gaps_seed, cpus)
}

/// Returns the plan of a case against a server. `gaps_seed`: of a Poisson schedule.
pub fn load_plan(
    site: &Site,
    load: &LoadFile,
    workload: &Arc<Workload>,
    gaps_seed: u64,
    cpus: Vec<usize>,
) -> anyhow::Result<Plan> {
    Ok(Plan {
        target: Target::Tcp(site.address),
        arrivals: arrivals(load, gaps_seed),
        connections_max: load.connections_most() as usize,
        tls: site.tls(load.tls_resume)?,
        protocol: match site.protocol.is_http2() {
            true => Protocol::Http2 { streams: load.streams as usize },
            false => Protocol::Http1 { pipeline: 1 },
        },
        series: None,
        handshakes: false,
        replay: None,
        first_byte: false,
        workload: Arc::clone(workload),
        connections: load.connections as usize,
        threads: load.threads as usize,
        keep_alive: load.keepalive,
        busy_poll: load.busy_poll,
        connect_timeout: CONNECT_TIMEOUT,
        response_timeout: load.timeout.0,
        requests: None,
        warm_up: false,
        cpus,
        shard: Shard::WHOLE,
    })
}

fn arrivals(load: &LoadFile, seed: u64) -> Arrivals {
    let spacing = match load.spacing() {
        Some(SpacingFile::Poisson) => Spacing::Poisson { seed },
        Some(SpacingFile::Constant) | None => Spacing::Constant,
    };
    load.rate
        .map_or(Arrivals::Closed, |rate| Arrivals::Open { rate: Rate::Constant(rate), spacing })
}

pub(super) struct Pids {
    pub(super) system: BTreeSet<i32>,
    pub(super) origin: BTreeSet<i32>,
}

impl Pids {
    /// Lists live processes. Takes tens of milliseconds on busy CPUs: called before and after the window.
    pub(super) fn list(subject: &Subject<'_>) -> anyhow::Result<Self> {
        let table = ProcessTable::read().context(COUNTERS)?;
        Ok(Self { system: subject.system.pids(&table), origin: subject.origin.pids(&table) })
    }
}

/// Counters at one end of the window.
pub(super) struct Edge {
    pub(super) at: Instant,
    pub(super) counters: Counters,
    pub(super) system: Reading,
    pub(super) origin: Reading,
    /// CPU time used by [`IdlePoll`].
    pub(super) idle_poll: Duration,
}

impl Edge {
    pub(super) fn read(
        subject: &Subject<'_>,
        pids: &Pids,
        idle_poll: &IdlePoll,
    ) -> anyhow::Result<Self> {
        let counters = Counters::read(&subject.layout.all()).context(COUNTERS)?;
        Ok(Self {
            counters,
            at: Instant::now(),
            system: Reading::take(&pids.system),
            origin: Reading::take(&pids.origin),
            idle_poll: idle_poll.cpu_time().context("cannot read the CPU time of `idle_poll`")?,
        })
    }

    /// Adds processes that started within the window. Their CPU time between its end and now counts too: listing them
    /// earlier would delay the end.
    pub(super) fn add(&mut self, pids: &Pids) {
        self.system.add(&pids.system);
        self.origin.add(&pids.origin);
    }
}

/// Returns the counters of several origins, which show if a system balances the load, or of polling origins. Otherwise
/// empty, because the request would affect the figures.
pub(super) fn origin_counters(
    origins: &[Site],
    polls: bool,
) -> anyhow::Result<Vec<OriginCounters>> {
    let needed = origins.len() > 1 || polls;
    let origins = if needed { origins } else { &[] };
    origins.iter().map(counters_of).collect()
}

/// Requests to each of several origins between two readings.
pub(super) fn requests_between(before: &[OriginCounters], after: &[OriginCounters]) -> Vec<u64> {
    if before.len() < 2 {
        return Vec::new();
    }
    let pairs = before.iter().zip(after);
    pairs.map(|(before, after)| after.requests().saturating_sub(before.requests())).collect()
}

/// CPU time of polling by the origins in a window. The readings are slightly further apart than its ends.
pub(super) fn polled_us(
    before: &[OriginCounters],
    after: &[OriginCounters],
    window: Duration,
) -> u64 {
    let polled = |(before, after): (&OriginCounters, &OriginCounters)| {
        let share = as_f64(after.polled_us - before.polled_us) / (after.seconds - before.seconds);
        (share * window.as_secs_f64()) as u64
    };
    before.iter().zip(after).map(polled).sum()
}

/// Origins may share busy CPUs.
const COUNTER_TIMEOUT: Duration = Duration::from_secs(5);
/// Counters have about a kilobyte.
const MAX_COUNTER_BYTES: usize = 64 * 1024;
const COUNTER_PATH: &str = "/counters";

fn counters_of(site: &Site) -> anyhow::Result<OriginCounters> {
    let address = site.address;
    let (request, interrupt) = (get(COUNTER_PATH, address)?, Interrupt::default());
    let (_, body) =
        exchange_with_body(site, &request, COUNTER_TIMEOUT, &interrupt, MAX_COUNTER_BYTES)
            .context("cannot get /counters from the origin")?;
    serde_json::from_slice(&body)
        .with_context(|| format!("malformed {COUNTER_PATH} from the origin at {address}"))
}

/// Counters of an origin since its start.
#[derive(Debug, Deserialize)]
pub(super) struct OriginCounters {
    seconds: f64,
    requests: u64,
    polled_us: u64,
    paths: BTreeMap<String, u64>,
}

impl OriginCounters {
    /// Requests, excluding those for the counters.
    fn requests(&self) -> u64 {
        let own = self.paths.get(COUNTER_PATH).copied().unwrap_or(0);
        self.requests.saturating_sub(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_figures_depend_on_loop_and_system() {
        // 100 responses in 200 ms, of 7 ns each.
        let slice =
            Slice { length: Duration::from_millis(200), responses: 100, latency_ns_sum: 700 };
        assert_eq!(steady_figures(&slice, Some(1_200), false), [500.0, 12.0]);
        assert_eq!(steady_figures(&slice, None, false), [500.0]);
        assert_eq!(steady_figures(&slice, Some(1_200), true), [12.0]);
        assert_eq!(steady_figures(&slice, None, true), [7.0]);
    }

    fn counters(seconds: f64, requests: u64, polled_us: u64) -> OriginCounters {
        let json = format!(
            r#"{{"seconds":{seconds},"requests":{requests},"refused":1,"polled_us":{polled_us},"paths":{{"/":9,"/counters":2}}}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn requests_for_the_counters_do_not_count() {
        let (before, after) = (counters(1.0, 12, 0), counters(2.0, 20, 0));
        assert_eq!(before.requests(), 10);
        assert_eq!(requests_between(&[before], &[after]), [0_u64; 0]);
        let before = [counters(1.0, 12, 0), counters(1.0, 5, 0)];
        let after = [counters(2.0, 20, 0), counters(2.0, 5, 0)];
        assert_eq!(requests_between(&before, &after), [8, 0]);
    }

    #[test]
    fn polled_time_is_scaled_to_the_window() {
        // Half of the CPU in the 1.1 s between the readings.
        let (before, after) = (counters(4.0, 0, 100_000), counters(5.1, 0, 650_000));
        assert_eq!(polled_us(&[before], &[after], Duration::from_secs(1)), 500_000);
        assert_eq!(polled_us(&[], &[], Duration::from_secs(1)), 0);
    }
}
