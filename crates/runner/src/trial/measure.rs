//! One measurement: load, CPU time and memory of every role, noise and validity.

use super::validity::{self, Evidence, Utilization};
use super::window::{self, COUNTERS, Edge, Finished, LOAD, Pids, Subject};
use crate::environment;
use crate::process::idle_poll::IdlePoll;
use crate::process::usage::{self, ProcessTable, Reading};
use anyhow::{Context, bail};
use procfs::ProcError;
use std::collections::BTreeSet;
use std::time::Duration;
use tollgate_experiment::load_shape::{LoadFile, Window};
use tollgate_load::{Summary, TemplateSummary};
use tollgate_records::machine::CpuLayout;
use tollgate_records::trial::{
    CpuRecord, CpuTime, LatencyRecord, Measurement, Noise, OpenLoopRecord, ProbeOutcome,
    TemplateRecord, WarmUpRecord, as_f64,
};
use tollgate_records::validity::{HeavyProcess, Limits};
use tollgate_stats::EncodeError;
use tollgate_traffic::Template;

/// Warms up, measures and stops the load.
/// The error may be [`Interrupted`](crate::process::Interrupted).
pub(crate) fn measure(subject: &mut Subject<'_>) -> anyhow::Result<Measurement> {
    let idle_poll = match subject.load.idle_poll {
        true => IdlePoll::start(&sleeping_cpus(subject))?,
        false => IdlePoll::default(),
    };
    let processes_before = ProcessTable::read().context(COUNTERS)?;
    let Finished { origins_before, at_start, mut at_end, generator, warm_up, lateness } =
        window::run(subject, &idle_poll)?;
    let processes_after = ProcessTable::read().context(COUNTERS)?;
    drop(idle_poll);
    let pids = Pids::list(subject)?;
    let cpus = subject.layout.all();
    let heaviest = processes_before.heaviest_since(&processes_after, &cpus, &pids.system);
    at_end.add(&pids);
    let origins_after = window::origin_counters(subject.origins, subject.load.busy_poll)?;
    let origin_requests = window::requests_between(&origins_before, &origins_after);

    let summary = generator.finish().context(LOAD)?;
    let memory_peak_bytes = match pids.system.is_empty() {
        true => None,
        false => memory_peak(&pids.system).context(COUNTERS)?,
    };

    let servers_window = at_end.at - at_start.at;
    let system = at_start.system.until(&at_end.system);
    let cpu = CpuRecord {
        servers_window_s: servers_window.as_secs_f64(),
        system: match &system {
            Ok(spent) => (!pids.system.is_empty()).then_some(*spent),
            Err(_) => None,
        },
        system_softirq_us: system_softirq(subject, &at_start, &at_end).map(micros),
        is_unknown: false,
        origin: match pids.origin.is_empty() {
            true => None,
            false => Some(at_start.origin.until(&at_end.origin).context("the origin ended")?),
        },
        origin_polled_us: window::polled_us(&origins_before, &origins_after, servers_window),
        generator: summary.threads.iter().fold(CpuTime::default(), |sum, thread| CpuTime {
            user_us: sum.user_us + micros(thread.user),
            system_us: sum.system_us + micros(thread.system),
        }),
        generator_polled_us: summary.threads.iter().map(|thread| micros(thread.polled)).sum(),
    };
    let noise = noise(subject, &at_start, &at_end, &cpu);
    let died = subject.system.process_exit().or_else(|| system.err().map(|died| died.to_string()));
    let utilization = utilization(subject, &at_start, &at_end, summary.window, &cpu);
    let readings = Readings {
        summary,
        cpu,
        noise,
        heaviest,
        died,
        memory_peak_bytes,
        origin_requests,
        lateness,
        warm_up,
        utilization,
    };
    let expected = Expected {
        load: subject.load,
        templates: subject.templates,
        blocked_status: subject.blocked_status,
        limits: subject.limits,
    };
    assemble(&expected, readings)
}

/// What a measurement is judged by.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    pub load: &'a LoadFile,
    pub templates: &'a [Template],
    /// Status code of blocked requests.
    pub blocked_status: u16,
    pub limits: &'a Limits,
}

/// Readings of all roles over one window.
#[derive(Debug)]
pub struct Readings {
    pub summary: Summary,
    pub cpu: CpuRecord,
    pub noise: Noise,
    /// The process outside of the trial that used most CPU time.
    pub heaviest: Option<HeavyProcess>,
    /// Description of a system process that ended.
    pub died: Option<String>,
    pub memory_peak_bytes: Option<u64>,
    /// Requests to each of several origins.
    pub origin_requests: Vec<u64>,
    /// Longest delay of a wake-up of the process that opened and closed the window.
    pub lateness: Duration,
    pub warm_up: WarmUpRecord,
    pub utilization: Utilization,
}

/// Makes the record of a window, and applies the rules of validity.
pub fn assemble(expected: &Expected<'_>, readings: Readings) -> anyhow::Result<Measurement> {
    let Expected { load, templates, blocked_status, limits } = *expected;
    let Readings {
        summary,
        cpu,
        mut noise,
        heaviest,
        died,
        memory_peak_bytes,
        origin_requests,
        lateness,
        warm_up,
        utilization,
    } = readings;
    // Threads that poll on a shared CPU, or have idle priority, wait all the time, which would count as pressure.
    if load.busy_poll || load.idle_poll {
        noise.cpu_pressure_percent = None;
    }
    let window = summary.window;
    if window.is_zero() {
        bail!("the generator ended before the window");
    }
    let servers_window = Duration::from_secs_f64(cpu.servers_window_s);
    let templates: Vec<TemplateRecord> = templates
        .iter()
        .zip(&summary.templates)
        .map(|(template, summary)| template_record(template, summary, blocked_status))
        .collect();
    let open_loop = open_loop(load, &summary).context(HISTOGRAM)?;
    let late = utilization.late || open_loop.as_ref().is_some_and(OpenLoopRecord::is_late);
    let evidence = Evidence {
        steal_percent: noise.steal_percent,
        background_cpu_percent: noise.background_cpu_percent,
        heaviest,
        tick: environment::tick(),
        died,
        responses: summary.responses,
        origin_requests: origin_requests.clone(),
        unexpected: summary.unexpected,
        unexpected_example: templates.iter().find_map(unexpected_example),
        failed: summary.failures.total(),
        failed_kinds: summary.failures.describe(),
        window,
        servers_window,
        planned: load.window(),
        lateness,
        // Expected if the system fell behind its schedule, which is reported separately.
        oldest_in_flight: match open_loop.as_ref().is_some_and(OpenLoopRecord::fell_behind) {
            true => None,
            false => summary.oldest_in_flight,
        },
    };
    Ok(Measurement {
        window_s: window.as_secs_f64(),
        responses: summary.responses,
        throughput_per_s: as_f64(summary.responses - summary.unexpected) / window.as_secs_f64(),
        received_bytes_per_s: Some(as_f64(summary.bytes_received) / window.as_secs_f64()),
        sent_bytes_per_s: Some(as_f64(summary.bytes_sent) / window.as_secs_f64()),
        latency: LatencyRecord::of(&summary.latency).context(HISTOGRAM)?,
        bottleneck: validity::bottleneck(&Utilization { late, ..utilization }),
        open_loop,
        cpu,
        memory_peak_bytes,
        attached_cpus: Vec::new(),
        templates,
        corpus: String::new(),
        origin_requests,
        unexpected: summary.unexpected,
        failures: summary.failures,
        in_flight: summary.in_flight,
        oldest_in_flight_ms: summary.oldest_in_flight.map(|age| age.as_secs_f64() * 1e3),
        noise,
        warm_up: Some(warm_up),
        invalid: validity::judge(&evidence, limits),
        hosts: None,
    })
}

/// Context of an error.
const HISTOGRAM: &str = "cannot encode the latency histogram";

/// Returns `None` in a closed loop.
fn open_loop(load: &LoadFile, summary: &Summary) -> Result<Option<OpenLoopRecord>, EncodeError> {
    let (Some(rate_per_s), Some(spacing)) = (load.rate, load.spacing()) else {
        return Ok(None);
    };
    let (Some(from_send), Some(lateness)) = (&summary.uncorrected_latency, &summary.lateness)
    else {
        return Ok(None);
    };
    Ok(Some(OpenLoopRecord {
        rate_per_s,
        spacing,
        uncorrected_latency: LatencyRecord::of(from_send)?,
        lateness_p99_ms: lateness.value_at(0.99).map(|ns| as_f64(ns) / 1e6),
        due: lateness.count(),
        queued: summary.queued,
        unsent: summary.unsent,
        oldest_unsent_ms: summary.oldest_unsent.map(|age| age.as_secs_f64() * 1e3),
    }))
}

fn template_record(template: &Template, summary: &TemplateSummary, blocked: u16) -> TemplateRecord {
    let is_passed = |(status, _): &(&u16, &u64)| {
        ProbeOutcome::of(**status, blocked, template.status) == ProbeOutcome::Passed
    };
    TemplateRecord {
        name: template.name.clone(),
        class: template.class,
        family: template.family.clone(),
        weight: template.weight,
        probe: None,
        statuses: summary.statuses.clone(),
        blocked: summary.statuses.get(&blocked).copied().unwrap_or(0),
        passed: summary.statuses.iter().filter(is_passed).map(|(_, count)| count).sum(),
        unexpected: summary.unexpected,
        unexpected_example: summary.unexpected_example.clone(),
    }
}

/// Describes the first unexpected response of a template.
fn unexpected_example(template: &TemplateRecord) -> Option<String> {
    let example = template.unexpected_example.as_ref()?;
    Some(format!("`{}`: {example}", template.name))
}

/// Returns the peak memory of processes, or `None` if one of them has ended, which is checked elsewhere, or is not
/// readable.
pub(super) fn memory_peak(pids: &BTreeSet<i32>) -> Result<Option<u64>, ProcError> {
    match usage::memory_peak_bytes(pids) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(ProcError::NotFound(_) | ProcError::PermissionDenied(_)) => Ok(None),
        // It ended after its file was opened, or waits for its parent.
        Err(ProcError::Io(error, _)) if error.raw_os_error() == Some(nix::libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// CPUs that may halt.
fn sleeping_cpus(subject: &Subject<'_>) -> Vec<usize> {
    match subject.load.busy_poll {
        true => subject.layout.system.clone(),
        false => subject.layout.all(),
    }
}

/// Returns the time in softirqs on the CPUs of the system if no other role uses them.
fn system_softirq(subject: &Subject<'_>, start: &Edge, end: &Edge) -> Option<Duration> {
    let CpuLayout { generator, origin, system } = subject.layout;
    let is_alone = !system.iter().any(|cpu| generator.contains(cpu) || origin.contains(cpu));
    is_alone.then(|| start.counters.softirq_until(&end.counters, system)).flatten()
}

fn noise(subject: &Subject<'_>, start: &Edge, end: &Edge, cpu: &CpuRecord) -> Noise {
    let roles = [cpu.system, cpu.origin, Some(cpu.generator)];
    let of_roles = roles.iter().flatten().copied().map(CpuTime::total_us).sum();
    let idle_poll = end.idle_poll - start.idle_poll;
    let own = Duration::from_micros(of_roles) + idle_poll;
    let cpus = subject.layout.all().len();
    start.counters.until(&end.counters, end.at - start.at, cpus, own)
}

/// Returns the CPU utilization of each role.
fn utilization(
    subject: &Subject<'_>,
    start: &Edge,
    end: &Edge,
    window: Duration,
    cpu: &CpuRecord,
) -> Utilization {
    let layout = subject.layout;
    let share = |spent_us: u64, window_s: f64, cpus: &[usize], threads: u64| {
        let usable = threads.clamp(1, cpus.len() as u64);
        as_f64(spent_us) / 1e6 / window_s / as_f64(usable)
    };
    // With fixed requests, servers work only while requests are in flight.
    let servers_s = match subject.load.window() {
        Window::For(_) => cpu.servers_window_s,
        Window::Requests { .. } => window.as_secs_f64(),
    };
    let servers = |spent_us: u64, cpus: &[usize], start: &Reading, end| {
        share(spent_us, servers_s, cpus, start.working_threads(end))
    };
    let threads = u64::from(subject.load.threads);
    let generator_us = cpu.generator.total_us().saturating_sub(cpu.generator_polled_us);
    Utilization {
        system: cpu
            .system
            .map(|spent| servers(spent.total_us(), &layout.system, &start.system, &end.system)),
        generator: share(generator_us, window.as_secs_f64(), &layout.generator, threads),
        origin: cpu.origin.map_or(0.0, |spent| {
            let worked_us = spent.total_us().saturating_sub(cpu.origin_polled_us);
            servers(worked_us, &layout.origin, &start.origin, &end.origin)
        }),
        shared: layout.shared_cpu().is_some(),
        late: false,
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
