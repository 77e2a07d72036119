//! One window of a trial on all hosts: warm-up, common start and end, and the measurement made of the readings.

use super::roles::{ORIGIN, SERVERS, SYSTEM};
use crate::clock::{self, ClockOffset};
use crate::connection::{Agent, AgentError, COMMAND_LIMIT, Ticket};
use crate::load::{SKEW_MAX, SharedLoad, WINDOW_LEAD, receive_all};
use crate::protocol::{Command, Reply};
use crate::shard::LoadPlan;
use anyhow::Context;
use std::time::{Duration, Instant};
use tollgate_load::{GeneratorResult, LATENESS_MAX, ThreadUsage, clock_skew, window_skew};
use tollgate_records::trial::{
    GeneratorRecord, HostRecord, HostsRecord, Measurement, Noise, WarmUpRecord,
};
use tollgate_records::validity::Invalid;
use tollgate_runner::bench::MeasureRequest;
use tollgate_runner::measurement::{Readings, assemble, generator_busy};
use tollgate_runner::process::Interrupt;
use tollgate_runner::role::window::WindowReadings;
use tollgate_traffic::load_shape::WarmUp;

/// Time between the window and the readings of a generator's host, which take a few milliseconds.
const READINGS_LEAD: Duration = Duration::from_millis(30);

/// Interval of checks of the hosts while nothing else happens.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Readings of all hosts over one window.
pub(super) struct WindowOnHosts {
    sum: tollgate_load::Summary,
    generators: Vec<GeneratorResult>,
    warm_up: WarmUpRecord,
    /// Readings with the record of each host: system, origin, generators.
    hosts: Vec<(WindowReadings, HostRecord)>,
    /// Limit of the difference between two hosts of times that are equal by their clocks.
    clock_skew: Duration,
}

impl WindowOnHosts {
    /// Loads from the agents of the generators, which come after those of the servers.
    pub(super) fn run(
        agents: &mut [Agent],
        plans: Vec<LoadPlan>,
        request: &MeasureRequest<'_>,
    ) -> Result<Self, AgentError> {
        let MeasureRequest { expected, interrupt, .. } = request;
        let (servers, generators) = agents.split_at_mut(SERVERS);
        let clocks = servers.iter_mut().map(|agent| agent.clock_offset(interrupt));
        let clocks: Vec<ClockOffset> = clocks.collect::<Result<_, _>>()?;
        let mut load = SharedLoad::start(generators, plans, interrupt)?;
        let begin = load.starts_at();
        watch(servers, &mut load, begin, interrupt)?;
        let steady = match expected.load.warm_up {
            WarmUp::For(time) => {
                watch(servers, &mut load, begin + time, interrupt)?;
                None
            }
            WarmUp::Steady { .. } => Some(wait_until_steady(servers, &mut load, request)?),
        };
        let duration_s = begin.elapsed().as_secs_f64();
        let warm_up = WarmUpRecord { duration_s, steady };

        let send = |servers: &mut [Agent], at: Instant, command: fn(u64) -> Command| {
            let at_ns = clock::from_instant(at);
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
        receive_all(servers, of_servers, interrupt)?;

        let end = start + expected.load.window.longest();
        watch(servers, &mut load, end - WINDOW_LEAD, interrupt)?;
        let of_servers = send(servers, end, |at_ns| Command::CloseReadings { at_ns });
        let windows = load.send_at(end, |at_ns| Command::CloseWindow { at_ns });
        let readings = load.send_at(end + READINGS_LEAD, |at_ns| Command::CloseReadings { at_ns });
        load.receive(windows)?;
        let mut replies = receive_all(servers, of_servers, interrupt)?;
        replies.extend(load.receive(readings)?);
        let result = load.finish()?;

        let mut of_clocks = Vec::new();
        for (agent, clock) in servers.iter_mut().zip(&clocks) {
            let later = agent.clock_offset(interrupt)?;
            of_clocks.push((clock.error_until(&later), clock.drift(&later)));
        }
        let errors = result.generators.iter().map(|generator| generator.clock_error);
        of_clocks.extend(errors.zip(result.drifts));
        let mut hosts = Vec::new();
        for ((agent, reply), (error, drift)) in agents.iter().zip(replies).zip(&of_clocks) {
            let Reply::Readings(readings) = reply else { return Err(agent.unexpected(&reply)) };
            let record = HostRecord {
                host: agent.host().to_owned(),
                busy_us: readings.busy_us,
                agent_us: readings.own_us,
                clock_error_us: error.as_secs_f64() * 1e6,
                clock_drift_us: drift.change_ns as f64 / 1e3,
            };
            hosts.push((*readings, record));
        }
        let clock_skew = clock_skew(of_clocks.iter().map(|(error, _)| *error));
        Ok(Self { sum: result.sum, generators: result.generators, warm_up, hosts, clock_skew })
    }

    /// True if the origin ended within the window.
    pub(super) fn origin_died(&self) -> bool {
        self.hosts[ORIGIN].0.roles.iter().any(|role| role.died.is_some())
    }

    /// `cpus`: number of CPUs of the host of each generator.
    pub(super) fn measurement(
        self,
        request: &MeasureRequest<'_>,
        cpus: &[usize],
    ) -> anyhow::Result<Measurement> {
        let Self { sum, generators, warm_up, mut hosts, clock_skew } = self;
        let noise = worst(hosts.iter().map(|(readings, _)| &readings.noise));
        let noisiest = hosts.iter().map(|(readings, _)| readings).max_by(|a, b| {
            a.noise.background_cpu_percent.total_cmp(&b.noise.background_cpu_percent)
        });
        let heaviest = noisiest.and_then(|readings| readings.heaviest.clone());
        let late_s = hosts.iter().map(|(readings, _)| readings.lateness_s).fold(0.0, f64::max);
        let of_generators = hosts.split_off(SERVERS);
        let mut servers =
            hosts.into_iter().map(|(mut readings, host)| Some((readings.roles.pop()?, host)));
        let mut next = || servers.next().flatten().context("readings are missing");
        let ((system, system_host), (origin, origin_host)) = (next()?, next()?);
        let is_late = |result: &GeneratorResult| {
            let lateness = result.summary.lateness.as_ref();
            lateness.and_then(|lateness| lateness.value_at(0.99)).map(Duration::from_nanos)
                > Some(LATENESS_MAX)
        };
        let busy = generators.iter().zip(cpus);
        let busy = busy.map(|(result, cpus)| generator_busy(&result.summary, *cpus, false));
        let readings = Readings {
            // Packets come from other hosts.
            system_softirq_us: None,
            generator_busy: busy.fold(0.0, f64::max),
            is_shared: false,
            is_late: generators.iter().any(is_late),
            noise,
            heaviest,
            lateness: Duration::from_secs_f64(late_s),
            summary: sum,
            warm_up,
            system,
            origin,
        };
        let mut measurement = assemble(&request.expected, readings)?;
        let length_s = request.expected.load.window.longest().as_secs_f64();
        let windows = window_skew(&generators).context("a generator has no window")?;
        let limits = request.expected.limits;
        let [by_clocks, percent] =
            [clock_skew, windows].map(|skew| 100.0 * skew.as_secs_f64() / length_s);
        let [clocks_max, limit_percent] = [100.0 * SKEW_MAX, limits.window_skew.in_percent()];
        if by_clocks > clocks_max {
            let skew = Invalid::ClockSkew { percent: by_clocks, limit_percent: clocks_max };
            measurement.invalid.push(skew);
        } else if percent > limit_percent {
            measurement.invalid.push(Invalid::WindowSkew { percent, limit_percent });
        }
        let ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e6);
        let busiest = |result: &GeneratorResult| {
            result.summary.threads.iter().map(ThreadUsage::busy).fold(0.0, f64::max)
        };
        let record = |((_, host), result): ((WindowReadings, HostRecord), &GeneratorResult)| {
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

/// Returns true if the figures became steady within the time limit.
fn wait_until_steady(
    servers: &mut [Agent],
    load: &mut SharedLoad<'_>,
    request: &MeasureRequest<'_>,
) -> Result<bool, AgentError> {
    let interrupt = request.interrupt;
    request.wait_until_steady(|due| {
        watch(servers, load, due, interrupt)?;
        let system = &mut servers[SYSTEM];
        let cpu_us = match system.call(Command::ServersCpu, COMMAND_LIMIT, interrupt)? {
            Reply::Cpu { us } => us,
            other => return Err(system.unexpected(&other)),
        };
        let progress = load.progress()?.counts;
        Ok((Instant::now(), progress, cpu_us))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
