//! Readings of a machine and of its servers over a window: CPU time, memory, noise.
//!
//! Lists of processes and counters of origins take tens of milliseconds on busy CPUs: they are read before the window and
//! after it. At its two ends only clocks are read.

use super::{COUNTERS, Role, memory_peak_bytes};
use crate::environment::Counters;
use crate::probe::exchange::{Site, exchange_with_body, get};
use crate::process::Interrupt;
use crate::process::usage::{ProcessTable, Reading, ThreadReading};
use anyhow::Context;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tollgate_records::trial::{CpuTime, Noise, as_f64};
use tollgate_records::validity::HeavyProcess;

/// A machine before a window.
#[derive(Debug)]
pub struct PreparedWindow {
    table: ProcessTable,
    /// All CPUs of the trial on this machine.
    cpus: Vec<usize>,
    roles: Vec<PreparedRole>,
}

#[derive(Debug)]
struct PreparedRole {
    pids: BTreeSet<i32>,
    threads: ThreadReading,
    origins: Vec<OriginCounters>,
}

/// Clocks at one end of a window.
#[derive(Debug)]
struct Edge {
    at: Instant,
    counters: Counters,
    /// CPU time of this process.
    own: Duration,
    /// CPU time of its children that have ended.
    children: CpuTime,
    /// Clocks of the servers of each role.
    servers: Vec<Reading>,
    /// Delay against the time at which the window was to open or close.
    late: Duration,
}

#[derive(Debug)]
pub struct OpenWindow {
    prepared: PreparedWindow,
    start: Edge,
}

#[derive(Debug)]
pub struct ClosedWindow {
    prepared: PreparedWindow,
    start: Edge,
    end: Edge,
}

/// Readings of a machine over a window.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WindowReadings {
    /// Servers by role.
    pub roles: Vec<RoleReadings>,
    /// CPU time of this process.
    pub own_us: u64,
    /// CPU time of the children of this process that ended in the window, since their start: of a foreign client.
    pub children: CpuTime,
    /// CPU time of the whole machine, with its interrupts.
    pub busy_us: u64,
    pub noise: Noise,
    /// The process outside of the trial that used most CPU time.
    pub heaviest: Option<HeavyProcess>,
    /// Longest delay of a wake-up at an end of the window.
    pub lateness_s: f64,
}

/// Servers of a role over a window.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoleReadings {
    pub window_s: f64,
    /// CPU time of the servers. `None` without processes, or if one ended.
    pub cpu: Option<CpuTime>,
    /// Share of the window in which the busiest thread used a CPU.
    pub busiest_thread: f64,
    /// Time in softirqs on the CPUs of the role. `None` if the kernel accounts them apart from processes.
    pub softirq_us: Option<u64>,
    /// CPUs that the working threads of the servers can use.
    pub usable_cpus: u64,
    /// Description of a process that ended.
    pub died: Option<String>,
    pub memory_peak_bytes: Option<u64>,
    /// Requests to each of several origins.
    pub origin_requests: Vec<u64>,
    /// CPU time of polling by the origins.
    pub polled_us: u64,
}

impl PreparedWindow {
    /// Reads what takes long. `cpus` are those of the trial on this machine.
    pub fn new(roles: &[&Role], cpus: &[usize]) -> anyhow::Result<Self> {
        let origins = roles.iter().map(|role| origin_counters(role));
        let origins: Vec<_> = origins.collect::<anyhow::Result<_>>()?;
        let table = ProcessTable::read().context(COUNTERS)?;
        let prepared = roles.iter().zip(origins).map(|(role, origins)| {
            let pids = role.servers.pids(&table);
            PreparedRole { threads: ThreadReading::take(&pids), pids, origins }
        });
        Ok(Self { roles: prepared.collect(), cpus: cpus.to_vec(), table })
    }

    /// Opens the window. `due`: when it was to open.
    pub fn open(self, due: Instant) -> anyhow::Result<OpenWindow> {
        let start = self.edge(due)?;
        Ok(OpenWindow { start, prepared: self })
    }

    fn edge(&self, due: Instant) -> anyhow::Result<Edge> {
        let counters = Counters::read(&self.cpus).context(COUNTERS)?;
        let at = Instant::now();
        Ok(Edge {
            at,
            counters,
            servers: self.roles.iter().map(|role| Reading::take(&role.pids)).collect(),
            own: Duration::from_micros(cpu_time(UsageWho::RUSAGE_SELF)?.total_us()),
            children: cpu_time(UsageWho::RUSAGE_CHILDREN)?,
            late: at.saturating_duration_since(due),
        })
    }
}

impl OpenWindow {
    /// Closes the window. `due`: when it was to close.
    pub fn close(self, due: Instant) -> anyhow::Result<ClosedWindow> {
        let Self { prepared, start } = self;
        Ok(ClosedWindow { end: prepared.edge(due)?, start, prepared })
    }
}

impl ClosedWindow {
    /// Returns the readings of the roles for which the window was prepared.
    pub fn read(mut self, roles: &mut [&mut Role]) -> anyhow::Result<WindowReadings> {
        let table = ProcessTable::read().context(COUNTERS)?;
        let mut readings = Vec::new();
        let mut pids = BTreeSet::new();
        for (index, role) in roles.iter_mut().enumerate() {
            let now = role.servers.pids(&table);
            // CPU time of new processes between the end of the window and now counts too.
            self.end.servers[index].add(&now);
            readings.push(self.role(index, role, &now)?);
            pids.extend(now);
        }
        let Self { prepared, start, end } = self;
        let own = end.own.saturating_sub(start.own);
        let children = CpuTime {
            user_us: end.children.user_us - start.children.user_us,
            system_us: end.children.system_us - start.children.system_us,
        };
        let of_servers: u64 =
            readings.iter().filter_map(|one| one.cpu).map(CpuTime::total_us).sum();
        let known = Duration::from_micros(of_servers + children.total_us()) + own;
        let (window, cpus) = (end.at - start.at, &prepared.cpus);
        Ok(WindowReadings {
            roles: readings,
            own_us: micros(own),
            children,
            busy_us: start.counters.busy_us_until(&end.counters),
            noise: start.counters.until(&end.counters, window, cpus.len(), known),
            heaviest: prepared.table.heaviest_since(&table, cpus, &pids),
            lateness_s: start.late.max(end.late).as_secs_f64(),
        })
    }

    fn role(
        &self,
        index: usize,
        role: &mut Role,
        now: &BTreeSet<i32>,
    ) -> anyhow::Result<RoleReadings> {
        let (start, end, before) = (&self.start, &self.end, &self.prepared.roles[index]);
        let window = end.at - start.at;
        let (first, last) = (&start.servers[index], &end.servers[index]);
        let cpu = first.until(last);
        let ended = cpu.as_ref().err().map(ToString::to_string);
        let softirq = start.counters.softirq_until(&end.counters, role.cpus());
        let origins = origin_counters(role)?;
        Ok(RoleReadings {
            window_s: window.as_secs_f64(),
            cpu: cpu.ok().filter(|_| !now.is_empty()),
            busiest_thread: before.threads.busiest_until(&ThreadReading::take(now), end.at),
            softirq_us: softirq.map(micros),
            usable_cpus: first.working_threads(last).clamp(1, role.cpus().len().max(1) as u64),
            died: role.servers.process_exit().or(ended),
            memory_peak_bytes: memory_peak_bytes(now)?,
            origin_requests: requests_between(&before.origins, &origins),
            polled_us: polled_us(&before.origins, &origins, window),
        })
    }
}

/// CPU time of this process, or of its children that have ended.
fn cpu_time(who: UsageWho) -> anyhow::Result<CpuTime> {
    let usage = getrusage(who).context(COUNTERS)?;
    let us = |time: TimeVal| time.num_microseconds().unsigned_abs();
    Ok(CpuTime { user_us: us(usage.user_time()), system_us: us(usage.system_time()) })
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the counters of several origins, which show if a system balances the load, or of polling origins. Otherwise
/// empty, because the request would affect the figures.
fn origin_counters(role: &Role) -> anyhow::Result<Vec<OriginCounters>> {
    let is_needed = role.origins.len() > 1 || role.polls;
    let origins = if is_needed { &role.origins[..] } else { &[] };
    origins.iter().map(counters_of).collect()
}

/// Requests to each of several origins between two readings.
fn requests_between(before: &[OriginCounters], after: &[OriginCounters]) -> Vec<u64> {
    if before.len() < 2 {
        return Vec::new();
    }
    let pairs = before.iter().zip(after);
    pairs.map(|(before, after)| after.requests().saturating_sub(before.requests())).collect()
}

/// CPU time of polling by the origins in a window. The readings are slightly further apart than its ends.
fn polled_us(before: &[OriginCounters], after: &[OriginCounters], window: Duration) -> u64 {
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
/// The query is that of no recorded request.
const COUNTER_TARGET: &str = "/counters?of=origin";

fn counters_of(site: &Site) -> anyhow::Result<OriginCounters> {
    let address = site.address;
    let (request, interrupt) = (get(COUNTER_TARGET, address)?, Interrupt::default());
    let (_, body) =
        exchange_with_body(site, &request, COUNTER_TIMEOUT, &interrupt, MAX_COUNTER_BYTES)
            .context("cannot get /counters from the origin")?;
    serde_json::from_slice(&body)
        .with_context(|| format!("malformed {COUNTER_TARGET} from the origin at {address}"))
}

/// Counters of an origin since its start.
#[derive(Debug, Deserialize)]
struct OriginCounters {
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
