//! The record of a measurement, made of the readings of all roles, near or far.

pub(crate) mod validity;

use crate::environment;
use crate::role::window::RoleReadings;
use anyhow::{Context, bail};
use std::time::Duration;
use tollgate_load::{Summary, TemplateSummary, ThreadUsage};
use tollgate_records::trial::{
    CpuRecord, CpuTime, LatencyRecord, Measurement, Noise, OpenLoopRecord, ProbeOutcome,
    TemplateRecord, WarmUpRecord, as_f64,
};
use tollgate_records::validity::{HeavyProcess, Limits};
use tollgate_stats::EncodeError;
use tollgate_traffic::Template;
use tollgate_traffic::load_shape::{LoadShape, Window};
use validity::{Evidence, Utilization};

/// Criteria of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    pub load: &'a LoadShape,
    pub templates: &'a [Template],
    /// Status code of blocked requests.
    pub blocked_status: u16,
    pub limits: &'a Limits,
}

/// Readings of all roles over one window.
#[derive(Debug)]
pub struct Readings {
    /// Sum of all generators.
    pub summary: Summary,
    pub warm_up: WarmUpRecord,
    pub system: RoleReadings,
    pub origin: RoleReadings,
    /// Time in softirqs on the CPUs of the system, if it is all its own.
    pub system_softirq_us: Option<u64>,
    /// See [`generator_busy`]; of several generators, the largest one.
    pub generator_busy: f64,
    /// True if generator and origin share CPUs.
    pub is_shared: bool,
    /// True if one of several generators was late.
    pub is_late: bool,
    pub noise: Noise,
    /// The process outside of the trial that used most CPU time.
    pub heaviest: Option<HeavyProcess>,
    /// Longest delay of a wake-up of a process that opened or closed the window.
    pub lateness: Duration,
}

/// Returns the share of the CPUs of a generator that it needs: of all its CPUs or, if that is more, of one by its busiest
/// thread. Waits for a CPU count as need unless an origin shares it.
pub fn generator_busy(summary: &Summary, cpus: usize, is_shared: bool) -> f64 {
    let window_s = summary.window.as_secs_f64();
    if window_s == 0.0 {
        return 0.0;
    }
    let worked = |thread: &ThreadUsage| {
        (thread.user + thread.system).saturating_sub(thread.polled).as_secs_f64() / window_s
    };
    let threads = || summary.threads.iter();
    let of_one = |thread: &ThreadUsage| if is_shared { worked(thread) } else { thread.busy() };
    let usable = threads().len().clamp(1, cpus.max(1));
    let of_all = threads().map(worked).sum::<f64>() / as_f64(usable as u64);
    threads().map(of_one).fold(of_all, f64::max)
}

/// Makes the record of a window, and applies the rules of validity.
pub fn assemble(expected: &Expected<'_>, readings: Readings) -> anyhow::Result<Measurement> {
    let Expected { load, templates, blocked_status, limits } = *expected;
    let utilization = utilization(load, &readings);
    let Readings { summary, system, origin, mut noise, heaviest, lateness, warm_up, .. } = readings;
    // Threads that poll on a shared CPU, or have idle priority, wait all the time, which would count as pressure.
    if load.clients.busy_poll || load.idle_poll {
        noise.cpu_pressure_percent = None;
    }
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let cpu = CpuRecord {
        servers_window_s: system.window_s,
        system: system.cpu,
        system_softirq_us: readings.system_softirq_us,
        is_unknown: false,
        origin: origin.cpu,
        origin_polled_us: origin.polled_us,
        generator: summary.threads.iter().fold(CpuTime::default(), |sum, thread| CpuTime {
            user_us: sum.user_us + micros(thread.user),
            system_us: sum.system_us + micros(thread.system),
        }),
        generator_polled_us: summary.threads.iter().map(|thread| micros(thread.polled)).sum(),
    };
    let RoleReadings { died, memory_peak_bytes, .. } = system;
    let origin_requests = origin.origin_requests;
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
        planned: load.window,
        is_whole_load: load.is_in_one_window(),
        lateness,
        // Expected if the system fell behind its schedule, which is reported separately.
        oldest_in_flight: if open_loop.as_ref().is_some_and(OpenLoopRecord::fell_behind) {
            None
        } else {
            summary.oldest_in_flight
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
        client: None,
    })
}

/// Context of an error.
const HISTOGRAM: &str = "cannot encode the latency histogram";

/// Returns `None` in a closed loop.
fn open_loop(load: &LoadShape, summary: &Summary) -> Result<Option<OpenLoopRecord>, EncodeError> {
    let Some(schedule) = load.open_loop() else { return Ok(None) };
    let Some(rate_per_s) = schedule.rate.per_s() else { return Ok(None) };
    let (Some(from_send), Some(lateness)) = (&summary.uncorrected_latency, &summary.lateness)
    else {
        return Ok(None);
    };
    Ok(Some(OpenLoopRecord {
        rate_per_s,
        spacing: schedule.spacing,
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

/// Returns the CPU utilization of each role.
fn utilization(load: &LoadShape, readings: &Readings) -> Utilization {
    let share = |role: &RoleReadings, cpu: CpuTime| {
        // With fixed requests, servers work only while requests are in flight.
        let window_s = match load.window {
            Window::For(_) => role.window_s,
            Window::Requests { .. } => readings.summary.window.as_secs_f64(),
        };
        let us_max = window_s * 1e6;
        let polled = as_f64(role.polled_us) / us_max;
        let of_all = as_f64(cpu.total_us().saturating_sub(role.polled_us))
            / us_max
            / as_f64(role.usable_cpus);
        // A thread that polls is not told from one that works; of several, each may be the one that polls.
        let of_one = role.busiest_thread * role.window_s / window_s - polled;
        of_all.max(of_one)
    };
    Utilization {
        system: readings.system.cpu.map(|cpu| share(&readings.system, cpu)),
        generator: readings.generator_busy,
        origin: readings.origin.cpu.map_or(0.0, |cpu| share(&readings.origin, cpu)),
        shared: readings.is_shared,
        late: readings.is_late,
    }
}
