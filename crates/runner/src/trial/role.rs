//! The servers of one role on their own host, and the readings of that host over a window.

use super::exchange::Site;
use super::measure::memory_peak;
use super::servers::{Servers, Stop};
use super::start::{OriginLaunch, SystemLaunch, origin_name};
use super::window::{self, COUNTERS, OriginCounters};
use crate::environment::Counters;
use crate::process::usage::{ProcessTable, Reading};
use crate::process::{Interrupt, Ports};
use crate::system::render::Place;
use anyhow::Context;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::Subject;
use tollgate_load::Request;
use tollgate_records::case::Protocol;
use tollgate_records::error::io_error;
use tollgate_records::subject::Installed;
use tollgate_records::trial::{CpuTime, Noise, Step};
use tollgate_records::validity::HeavyProcess;

/// The processes of one role on this host. Dropping stops them.
#[derive(Debug)]
pub struct Role {
    /// Folder for configurations and logs.
    folder: PathBuf,
    cpus: Vec<usize>,
    servers: Servers,
    origins: Vec<Site>,
    /// True if the origins poll.
    polls: bool,
    ports: Ports,
    window: Option<OpenWindow>,
}

#[derive(Debug)]
struct OpenWindow {
    table: ProcessTable,
    pids: BTreeSet<i32>,
    at: Instant,
    counters: Counters,
    servers: Reading,
    own: Duration,
    origins: Vec<OriginCounters>,
    lateness: Duration,
}

/// Readings of a host over a window.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoleReadings {
    pub window_s: f64,
    /// CPU time of the servers. `None` without processes, or if one ended.
    pub cpu: Option<CpuTime>,
    /// CPU time of the agent itself.
    pub agent_us: u64,
    /// CPU time of the whole host, with its interrupts.
    pub busy_us: u64,
    pub noise: Noise,
    pub heaviest: Option<HeavyProcess>,
    /// Description of a process that ended.
    pub died: Option<String>,
    pub memory_peak_bytes: Option<u64>,
    /// CPUs that the working threads of the servers can use.
    pub usable_cpus: u64,
    /// Requests to each of several origins.
    pub origin_requests: Vec<u64>,
    /// CPU time of polling by the origins.
    pub polled_us: u64,
    /// Longest delay of a wake-up at an end of the window.
    pub lateness_s: f64,
}

/// A system to start on this host.
#[derive(Debug)]
pub struct SystemStart<'a> {
    pub catalog: &'a Catalog,
    pub subject: &'a Subject,
    pub installed: &'a Installed,
    /// Address to listen on.
    pub ip: IpAddr,
    pub origins: &'a [SocketAddr],
    pub connections: u32,
    pub protocol: Protocol,
    pub ready: &'a Request,
}

/// Address, further ports and start-up time of a started system.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StartedSystem {
    pub address: SocketAddr,
    pub ports: BTreeMap<String, SocketAddr>,
    pub startup: Option<Duration>,
}

impl Role {
    pub fn new(folder: &Path, cpus: Vec<usize>) -> Self {
        Self {
            folder: folder.to_owned(),
            cpus,
            servers: Servers::default(),
            origins: Vec::new(),
            polls: false,
            ports: Ports::default(),
            window: None,
        }
    }

    /// Stops the servers.
    pub fn stop(&mut self) {
        self.window = None;
        self.servers = Servers::default();
        self.origins.clear();
        self.ports = Ports::default();
    }

    /// Starts origins, one after the other.
    pub fn start_origins(
        &mut self,
        tollgate: &Path,
        ip: IpAddr,
        count: u16,
        busy_poll: bool,
        ready: &Request,
        interrupt: &Interrupt,
    ) -> Result<Vec<SocketAddr>, Stop> {
        self.stop();
        self.ports = Ports::on(ip);
        self.polls = busy_poll;
        for number in 1..=count {
            let address = self.ports.free().map_err(not_started)?;
            let launch = OriginLaunch {
                tollgate,
                number,
                site: Site::plain(address),
                certificate: Path::new(""),
                busy_poll,
                dir: &self.folder,
                log: &self.folder.join(format!("{}.log", origin_name(number))),
                cpus: &self.cpus,
                ready,
                interrupt,
            };
            let site = launch.start(&mut self.servers)?;
            self.origins.push(site);
        }
        Ok(self.origins.iter().map(|site| site.address).collect())
    }

    pub fn start_system(
        &mut self,
        start: &SystemStart<'_>,
        interrupt: &Interrupt,
    ) -> Result<StartedSystem, Stop> {
        self.stop();
        self.ports = Ports::on(start.ip);
        let dir = self.folder.join("system");
        fs::create_dir_all(&dir)
            .map_err(io_error("create", &dir))
            .map_err(|error| Stop::at(Step::Configure, &error, Vec::new()))?;
        let names = start.subject.recipe.file.ports.iter();
        let ports = names.map(|name| Ok((name.clone(), self.ports.free()?)));
        let ports: BTreeMap<_, _> = ports.collect::<io::Result<_>>().map_err(not_started)?;
        let address = self.ports.free().map_err(not_started)?;
        let site = Site { protocol: start.protocol, ..Site::plain(address) };
        let launch = SystemLaunch {
            catalog: start.catalog,
            subject: start.subject,
            place: Place {
                dir: &dir,
                listen: address,
                origins: start.origins,
                connections: start.connections,
                protocol: start.protocol,
                ports: &ports,
                installed: start.installed,
            },
            site: &site,
            log: &|process| self.folder.join(format!("{process}.log")),
            cpus: &self.cpus,
            ready: start.ready,
            interrupt,
        };
        let (servers, startup) = launch.start()?;
        self.servers = servers;
        Ok(StartedSystem { address, ports, startup })
    }

    /// Describes the first process that has ended, with the end of its log.
    pub fn exit(&mut self) -> Option<(String, Vec<String>)> {
        let reason = self.servers.process_exit()?;
        Some((reason, self.servers.log_tail()))
    }

    /// CPU time of the servers so far; `None` without processes.
    pub fn cpu_us(&self) -> anyhow::Result<Option<u64>> {
        let pids = self.servers.pids(&ProcessTable::read().context(COUNTERS)?);
        let spent = Reading::take(&BTreeSet::new()).until(&Reading::take(&pids));
        Ok((!pids.is_empty()).then(|| spent.map_or(0, CpuTime::total_us)))
    }

    /// Opens the window at a time.
    pub fn open_window(&mut self, at: Instant, interrupt: &Interrupt) -> anyhow::Result<()> {
        let origins = self.origin_counters()?;
        let table = ProcessTable::read().context(COUNTERS)?;
        let pids = self.servers.pids(&table);
        interrupt.sleep(at.saturating_duration_since(Instant::now()))?;
        let counters = Counters::read(&self.cpus).context(COUNTERS)?;
        let at_start = Instant::now();
        self.window = Some(OpenWindow {
            table,
            at: at_start,
            counters,
            servers: Reading::take(&pids),
            own: own_cpu_time()?,
            pids,
            origins,
            lateness: at_start.saturating_duration_since(at),
        });
        Ok(())
    }

    /// Closes the window at a time.
    pub fn close_window(
        &mut self,
        at: Instant,
        interrupt: &Interrupt,
    ) -> anyhow::Result<RoleReadings> {
        let start = self.window.take().context("no window is open")?;
        interrupt.sleep(at.saturating_duration_since(Instant::now()))?;
        let counters = Counters::read(&self.cpus).context(COUNTERS)?;
        let at_end = Instant::now();
        let mut servers = Reading::take(&start.pids);
        let own = own_cpu_time()?.saturating_sub(start.own);
        let table = ProcessTable::read().context(COUNTERS)?;
        let pids = self.servers.pids(&table);
        servers.add(&pids);
        let window = at_end - start.at;
        let cpu = start.servers.until(&servers);
        let of_servers = cpu.as_ref().map_or(0, |cpu| cpu.total_us());
        let known = Duration::from_micros(of_servers) + own;
        let origins_after = self.origin_counters()?;
        let died = self.servers.process_exit().or(match &cpu {
            Ok(_) => None,
            Err(died) => Some(died.to_string()),
        });
        Ok(RoleReadings {
            window_s: window.as_secs_f64(),
            cpu: cpu.ok().filter(|_| !pids.is_empty()),
            agent_us: u64::try_from(own.as_micros()).unwrap_or(u64::MAX),
            busy_us: start.counters.busy_us_until(&counters),
            noise: start.counters.until(&counters, window, self.cpus.len(), known),
            heaviest: start.table.heaviest_since(&table, &self.cpus, &pids),
            died,
            memory_peak_bytes: match pids.is_empty() {
                true => None,
                false => memory_peak(&pids).context(COUNTERS)?,
            },
            usable_cpus: start.servers.working_threads(&servers).clamp(1, self.cpus.len() as u64),
            origin_requests: window::requests_between(&start.origins, &origins_after),
            polled_us: window::polled_us(&start.origins, &origins_after, window),
            lateness_s: start.lateness.max(at_end.saturating_duration_since(at)).as_secs_f64(),
        })
    }

    fn origin_counters(&self) -> anyhow::Result<Vec<OriginCounters>> {
        window::origin_counters(&self.origins, self.polls)
    }
}

/// CPU time of this process.
fn own_cpu_time() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).context(COUNTERS)?;
    let us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(us.unsigned_abs()))
}

fn not_started(error: io::Error) -> Stop {
    Stop::at(Step::Start, &error.into(), Vec::new())
}
