//! The measured window: load, and what every role used over it.

mod edge;
mod warm_up;
mod window;

use super::bottleneck::{self, Busy};
use super::origin_counts::{self, CountError};
use super::servers::Servers;
use super::validity::{self, Evidence, Limits};
use crate::inputs::experiment::{LoadFile, SpacingFile, Window};
use crate::interrupt::{Interrupt, Interrupted};
use crate::layout::Layout;
use crate::noise::{self, Noise};
use crate::process::idle_poll::{IdlePoll, IdlePollError};
use crate::process::memory;
use crate::process::usage::{CpuTime, Died, Reading};
use crate::record::{
    CpuRecord, LatencyRecord, Measurement, OpenLoopRecord, TemplateRecord, as_f64,
};
use edge::{Edge, Pids};
use procfs::ProcError;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tollgate_load::{Arrivals, Outcome, Plan, Spacing, Target, TemplateTally, Workload};
use tollgate_stats::EncodeError;
use tollgate_traffic::Template;
use window::Passed;

/// A subject that answers, and what is to be sent to it.
#[derive(Debug)]
pub struct Subject<'a> {
    /// Where it answers.
    pub address: SocketAddr,
    /// The shape of the load.
    pub load: &'a LoadFile,
    /// The mix's templates.
    pub templates: &'a [Template],
    /// Everything that is sent.
    pub workload: Arc<Workload>,
    /// What the gaps of a Poisson schedule are drawn from.
    pub gaps_seed: u64,
    /// The status code that tells a blocked request.
    pub blocked_status: u16,
    /// The origin's processes.
    pub origin: &'a Servers,
    /// Where they listen.
    pub origins: &'a [SocketAddr],
    /// The system's processes.
    pub system: &'a mut Servers,
    /// Which CPUs each role runs on.
    pub layout: &'a Layout,
    /// How much the machine may disturb it.
    pub limits: &'a Limits,
    /// The wish to stop.
    pub interrupt: &'a Interrupt,
}

/// Why there is no measurement.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// The run was asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// The load cannot be sent.
    #[error("sending the load")]
    Load(#[from] tollgate_load::Error),
    /// The counters of processes or machine cannot be read.
    #[error("reading the counters of the machine")]
    Counters(#[from] ProcError),
    /// The CPUs halt.
    #[error(transparent)]
    IdlePoll(#[from] IdlePollError),
    /// The time that this takes cannot be read.
    #[error("reading the CPU time of `idle_poll`")]
    IdlePollTime(#[source] io::Error),
    /// The origin ended.
    #[error("the origin was lost")]
    Origin(#[source] Died),
    /// What each of several origins was asked is not known.
    #[error(transparent)]
    OriginCounts(#[from] CountError),
    /// Every thread of the generator ended during the warm-up.
    #[error("the generator ended before the window opened")]
    NoWindow,
    /// The histogram cannot be encoded.
    #[error("encoding the latency histogram")]
    Histogram(#[from] EncodeError),
}

/// Warms up, measures, and stops the load.
///
/// # Errors
///
/// The load cannot be sent, or what it costs cannot be read.
pub fn measure(subject: &mut Subject<'_>) -> Result<Measurement, MeasureError> {
    let awake = match subject.load.idle_poll {
        true => IdlePoll::start(&subject.layout.all())?,
        false => IdlePoll::default(),
    };
    let Passed { origins_before, at_start, mut at_end, generator, warm_up, lateness } =
        window::run(subject, &awake)?;
    drop(awake);
    let pids = Pids::list(subject)?;
    at_end.add(&pids);
    let origin_requests =
        origin_counts::between(&origins_before, &origin_counts::read(subject.origins)?);

    let outcome = generator.finish()?;
    let memory_peak_bytes = match pids.system.is_empty() {
        true => None,
        false => memory_peak(&pids.system)?,
    };

    let window = outcome.window;
    if window.is_zero() {
        return Err(MeasureError::NoWindow);
    }
    let servers_window = at_end.at - at_start.at;
    let system = at_start.system.until(&at_end.system);
    let cpu = CpuRecord {
        servers_window_s: servers_window.as_secs_f64(),
        system: match &system {
            Ok(spent) => (!pids.system.is_empty()).then_some(*spent),
            Err(_) => None,
        },
        origin: match pids.origin.is_empty() {
            true => None,
            false => Some(at_start.origin.until(&at_end.origin).map_err(MeasureError::Origin)?),
        },
        generator: outcome.threads.iter().fold(CpuTime::default(), |sum, thread| CpuTime {
            user_us: sum.user_us + micros(thread.user),
            system_us: sum.system_us + micros(thread.system),
        }),
        generator_polled_us: outcome.threads.iter().map(|thread| micros(thread.polled)).sum(),
    };
    let templates: Vec<TemplateRecord> = subject
        .templates
        .iter()
        .zip(&outcome.templates)
        .map(|(template, tally)| template_record(template, tally, subject.blocked_status))
        .collect();
    let open_loop = open_loop(subject.load, &outcome)?;
    let late = open_loop.as_ref().is_some_and(OpenLoopRecord::is_late);
    let noise = noise(subject.layout, &at_start, &at_end, &cpu);
    let died = subject.system.ended().or_else(|| system.err().map(|died| died.to_string()));
    let evidence = Evidence {
        steal_percent: noise.steal_percent,
        foreign_cpu_percent: noise.foreign_cpu_percent,
        tick: noise::tick(),
        died,
        answered: outcome.answered,
        origin_requests: origin_requests.clone(),
        unexpected: outcome.unexpected,
        unexpected_example: templates.iter().find_map(unexpected_example),
        failed: outcome.failures.total(),
        failed_kinds: outcome.failures.in_words(),
        window,
        servers_window,
        planned: subject.load.window(),
        lateness,
        // A system that fell behind its schedule has old requests by nature, and is told of.
        oldest_unanswered: match open_loop.as_ref().is_some_and(OpenLoopRecord::fell_behind) {
            true => None,
            false => outcome.oldest_unanswered,
        },
    };
    Ok(Measurement {
        window_s: window.as_secs_f64(),
        answered: outcome.answered,
        throughput_per_s: as_f64(outcome.answered - outcome.unexpected) / window.as_secs_f64(),
        received_bytes_per_s: Some(as_f64(outcome.bytes_received) / window.as_secs_f64()),
        sent_bytes_per_s: Some(as_f64(outcome.bytes_sent) / window.as_secs_f64()),
        latency: LatencyRecord::of(&outcome.latency)?,
        blocked_in_probe: None,
        bottleneck: bottleneck::name(&Busy {
            late,
            ..busy(subject, &at_start, &at_end, window, &cpu)
        }),
        open_loop,
        cpu,
        memory_peak_bytes,
        templates,
        origin_requests,
        unexpected: outcome.unexpected,
        failures: outcome.failures,
        unanswered: outcome.unanswered,
        oldest_unanswered_ms: outcome.oldest_unanswered.map(|age| age.as_secs_f64() * 1e3),
        noise,
        warm_up: Some(warm_up),
        invalid: validity::judge(&evidence, subject.limits),
    })
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

fn plan(subject: &Subject<'_>) -> Plan {
    Plan {
        target: Target::Tcp(subject.address),
        arrivals: arrivals(subject.load, subject.gaps_seed),
        connections_max: subject.load.connections_most() as usize,
        timer_slack: Duration::ZERO,
        pipeline: 1,
        first_byte: false,
        workload: Arc::clone(&subject.workload),
        connections: subject.load.connections as usize,
        threads: subject.load.threads as usize,
        keep_alive: subject.load.keepalive,
        busy_poll: subject.load.busy_poll,
        connect_timeout: CONNECT_TIMEOUT,
        answer_timeout: subject.load.timeout.0,
        requests: None,
        warm_up: false,
        cpus: subject.layout.generator.clone(),
    }
}

fn arrivals(load: &LoadFile, seed: u64) -> Arrivals {
    let spacing = match load.spacing() {
        Some(SpacingFile::Poisson) => Spacing::Poisson { seed },
        Some(SpacingFile::Constant) | None => Spacing::Constant,
    };
    load.rate.map_or(Arrivals::Closed, |per_second| Arrivals::Open { per_second, spacing })
}

/// How the schedule was kept; none in a closed loop.
fn open_loop(load: &LoadFile, outcome: &Outcome) -> Result<Option<OpenLoopRecord>, EncodeError> {
    let (Some(rate_per_s), Some(spacing)) = (load.rate, load.spacing()) else {
        return Ok(None);
    };
    let (Some(from_send), Some(lateness)) = (&outcome.latency_from_send, &outcome.lateness) else {
        return Ok(None);
    };
    Ok(Some(OpenLoopRecord {
        rate_per_s,
        spacing,
        latency_from_send: LatencyRecord::of(from_send)?,
        lateness_p99_ms: lateness.value_at(0.99).map(|ns| as_f64(ns) / 1e6),
        due: lateness.count(),
        held: outcome.held,
        overdue: outcome.overdue,
        oldest_overdue_ms: outcome.oldest_overdue.map(|age| age.as_secs_f64() * 1e3),
    }))
}

fn template_record(template: &Template, tally: &TemplateTally, blocked: u16) -> TemplateRecord {
    let of_status = |status: u16| tally.statuses.get(&status).copied().unwrap_or(0);
    TemplateRecord {
        name: template.name.clone(),
        class: template.class,
        family: template.family.clone(),
        statuses: tally.statuses.clone(),
        blocked: of_status(blocked),
        let_through: Some(if template.status == blocked { 0 } else { of_status(template.status) }),
        unexpected: tally.unexpected,
        unexpected_example: tally.unexpected_example.clone(),
    }
}

/// What the template was answered instead of what it is owed.
fn unexpected_example(template: &TemplateRecord) -> Option<String> {
    let example = template.unexpected_example.as_ref()?;
    Some(format!("`{}`: {example}", template.name))
}

/// The peak memory of processes; none where one of them has just ended, which is judged elsewhere, or may
/// not be read.
pub(super) fn memory_peak(pids: &BTreeSet<i32>) -> Result<Option<u64>, ProcError> {
    match memory::peak_bytes(pids) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(ProcError::NotFound(_) | ProcError::PermissionDenied(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn noise(layout: &Layout, start: &Edge, end: &Edge, cpu: &CpuRecord) -> Noise {
    let roles = [cpu.system, cpu.origin, Some(cpu.generator)];
    let of_roles = roles.iter().flatten().copied().map(CpuTime::total_us).sum();
    let awake = end.awake - start.awake;
    let ours = Duration::from_micros(of_roles) + awake;
    let cpus = layout.all().len();
    let noise = start.counters.until(&end.counters, end.at - start.at, cpus, ours);
    // A thread that gives way to all others waits all the time, which is no pressure.
    let is_pressure_told = awake.is_zero();
    Noise { cpu_pressure_percent: noise.cpu_pressure_percent.filter(|_| is_pressure_told), ..noise }
}

/// How much of the CPUs that it could use each role used.
fn busy(
    subject: &Subject<'_>,
    start: &Edge,
    end: &Edge,
    window: Duration,
    cpu: &CpuRecord,
) -> Busy {
    let layout = subject.layout;
    let share = |spent_us: u64, window_s: f64, cpus: &[usize], threads: u64| {
        let usable = threads.clamp(1, cpus.len() as u64);
        as_f64(spent_us) / 1e6 / window_s / as_f64(usable)
    };
    // All that the servers do for a number of requests is done while these are under way.
    let servers_s = match subject.load.window() {
        Window::For(_) => cpu.servers_window_s,
        Window::Requests { .. } => window.as_secs_f64(),
    };
    let servers = |spent: CpuTime, cpus: &[usize], start: &Reading, end| {
        share(spent.total_us(), servers_s, cpus, start.working_threads(end))
    };
    let threads = u64::from(subject.load.threads);
    let generator_us = cpu.generator.total_us().saturating_sub(cpu.generator_polled_us);
    Busy {
        system: cpu.system.map(|spent| servers(spent, &layout.system, &start.system, &end.system)),
        generator: share(generator_us, window.as_secs_f64(), &layout.generator, threads),
        origin: cpu
            .origin
            .map_or(0.0, |spent| servers(spent, &layout.origin, &start.origin, &end.origin)),
        shared: layout.shared(),
        late: false,
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
