//! The result as JSON. Field names end with their units.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use tollgate_stats::LatencyHistogram;
use tollgate_traffic::load_shape::{OpenLoop, Protocol, Spacing};

use super::report::Report;
use crate::distribution::ns_to_ms;
use crate::plan::{Arrivals, Plan, ReplayPlan, Target};
use crate::rate::{Rate, RateStage};
use crate::replay::Replay;
use crate::shard::{GeneratorResult, window_skew};
use crate::summary::{Summary, TemplateSummary, ThreadUsage};
use crate::verdict::LoadVerdict;

/// Version of the schema. Incompatible changes increment it.
const SCHEMA: u32 = 4;

/// Result of `tollgate load`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LoadResult<'a> {
    /// Version of this schema.
    schema: u32,
    /// Version of the program.
    tollgate: &'static str,
    /// URL as given, with its scheme.
    url: &'a str,
    /// Address and port, or path of the unix-domain socket.
    target: String,
    /// Configuration of the load.
    load: Load<'a>,
    /// Phase before the measurement.
    warm_up: WarmUp,
    /// True if the load was stopped before its end. The figures are those so far.
    interrupted: bool,
    /// Complete responses per second; null for a measurement without length.
    throughput_per_s: Option<f64>,
    /// Responses per second of CPU time of the generator, without idle polling; null without CPU time.
    responses_per_cpu_s: Option<f64>,
    /// Requests without a complete response: the sum of `failures`.
    failed: u64,
    /// Responses by status code.
    statuses: BTreeMap<u16, u64>,
    /// Responses 4xx to requests that expect no status.
    responses_4xx: u64,
    /// Responses 5xx to requests that expect no status.
    responses_5xx: u64,
    #[serde(flatten)]
    summary: &'a Summary,
    /// Responses to each template.
    templates: Vec<Group<'a>>,
    /// Responses to each class; empty without a mix.
    classes: Vec<Group<'a>>,
    /// Resource use of each thread of the generator.
    threads: Vec<Thread>,
    /// Results of several generators, whose sum the other figures are; empty for a load from one machine.
    generators: Vec<Generator<'a>>,
    /// Limit of the difference between the windows of several generators, by their times and the errors of their clocks,
    /// in milliseconds; null for a load from one machine.
    window_skew_ms: Option<f64>,
    /// Part whose performance the figures describe.
    verdict: LoadVerdict,
}

/// Configuration of a load.
#[derive(Debug, Serialize, JsonSchema)]
struct Load<'a> {
    /// Trigger of a request.
    r#loop: Loop,
    /// Open loop: requests per second; null if the rate changes or is recorded.
    rate_per_s: Option<f64>,
    /// Open loop: stages of a rate that changes; empty for a constant rate.
    stages: Vec<StageOutput>,
    /// Open loop: gaps between requests.
    arrivals: Option<Gaps>,
    /// Replay: `original`, the factor of the recorded rate, such as `x2`, or `rate`; null without one.
    pace: Option<String>,
    /// Seed of all random choices.
    seed: u64,
    /// Connections at the start.
    connections: usize,
    /// Limit of connections.
    connections_max: usize,
    /// Threads that send.
    threads: usize,
    /// Version of HTTP.
    protocol: ProtocolName,
    /// HTTP/1.1: requests in flight on one connection.
    pipeline: Option<usize>,
    /// HTTP/2: streams on one connection.
    streams: Option<usize>,
    /// True if a connection carries one request after another.
    keep_alive: bool,
    /// True if a request is a TLS handshake alone, and a response its end.
    handshakes: bool,
    /// True if threads poll for events instead of sleeping.
    busy_poll: bool,
    /// Planned number of requests; null if a time ends the load.
    requests: Option<u64>,
    /// Planned length of the measurement, in seconds; null if a number of requests ends it.
    duration_s: Option<f64>,
    /// Limit of the time to a complete response, in milliseconds.
    timeout_ms: f64,
    /// Limit of the time to connect, in milliseconds.
    connect_timeout_ms: f64,
    /// True if `target` is the path of a unix-domain socket.
    unix_socket: bool,
    /// Name of the mix; null for a single request.
    mix: Option<&'a str>,
}

/// Part of a schedule in which the rate changes linearly.
#[derive(Debug, Serialize, JsonSchema)]
struct StageOutput {
    /// Requests per second at its start.
    from_per_s: f64,
    /// Requests per second at its end.
    to_per_s: f64,
    /// Length in seconds.
    seconds: f64,
}

/// Trigger of a request.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Loop {
    /// The response to the one before.
    Closed,
    /// A schedule.
    Open,
}

/// Version of HTTP.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
enum ProtocolName {
    /// HTTP/1.1.
    #[serde(rename = "1.1")]
    Http1,
    /// HTTP/2.
    #[serde(rename = "2")]
    Http2,
}

/// Gaps between the requests of a schedule.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Gaps {
    /// Constant gaps.
    Constant,
    /// Exponential gaps.
    Poisson,
    /// Gaps of a recording.
    Recorded,
}

/// Phase before the measurement.
#[derive(Debug, Serialize, JsonSchema)]
struct WarmUp {
    /// Length in seconds.
    seconds: f64,
    /// True if the figures were steady at its end; null if it had a fixed length.
    steady: Option<bool>,
    /// Complete responses.
    responses: u64,
    /// Requests without a complete response.
    failed: u64,
}

/// Responses to the requests of a template or a class.
#[derive(Debug, Serialize, JsonSchema)]
struct Group<'a> {
    /// Name in the mix; method and path of a single request.
    name: &'a str,
    /// Class, `benign` or `malicious`; null for a single request.
    class: Option<&'a str>,
    /// Complete responses.
    responses: u64,
    #[serde(flatten)]
    summary: TemplateSummary,
}

/// Result of one of several generators.
#[derive(Debug, Serialize, JsonSchema)]
struct Generator<'a> {
    /// Host of the generator.
    name: &'a str,
    /// Complete responses.
    responses: u64,
    /// Requests without a complete response.
    failed: u64,
    /// Length of its measurement, in seconds.
    window_s: f64,
    /// Complete responses per second; null for a measurement without length.
    throughput_per_s: Option<f64>,
    /// Median latency; null if fewer than ten times lie beyond.
    p50_ms: Option<f64>,
    /// 99th percentile of the latency; null if fewer than ten times lie beyond.
    p99_ms: Option<f64>,
    /// Open loop: 99th percentile of the lateness; null if fewer than ten times lie beyond.
    lateness_p99_ms: Option<f64>,
    /// Limit of the error of its clock, and so of the times of its window, in microseconds.
    clock_error_us: f64,
    /// Verdict on this generator alone.
    verdict: LoadVerdict,
}

impl<'a> Generator<'a> {
    fn new(
        plan: &Plan,
        count: usize,
        GeneratorResult { name, summary, clock_error }: &'a GeneratorResult,
    ) -> Self {
        let in_ms = |histogram: &LatencyHistogram, q| histogram.quantile_ns(q).map(ns_to_ms);
        Self {
            name,
            responses: summary.responses,
            failed: summary.failures.total(),
            window_s: summary.window.as_secs_f64(),
            throughput_per_s: summary.throughput_per_s(),
            p50_ms: in_ms(&summary.latency, 0.5),
            p99_ms: in_ms(&summary.latency, 0.99),
            lateness_p99_ms: summary.lateness.as_ref().and_then(|lateness| in_ms(lateness, 0.99)),
            clock_error_us: clock_error.as_secs_f64() * 1e6,
            verdict: LoadVerdict::of_part(plan, count, summary),
        }
    }
}

/// Resource use of one thread.
#[derive(Debug, Serialize, JsonSchema)]
struct Thread {
    #[serde(flatten)]
    usage: ThreadUsage,
    /// Share of the window in which the thread had work and ran or waited for a CPU.
    busy: f64,
}

pub(super) fn render(report: &Report<'_>) -> io::Result<String> {
    Ok(serde_json::to_string_pretty(&LoadResult::new(report))? + "\n")
}

impl<'a> LoadResult<'a> {
    fn new(report: &'a Report<'a>) -> Self {
        let summary = report.summary;
        let [responses_4xx, responses_5xx] = summary.error_responses(&report.plan.workload);
        let group = |name: &'a str, class: Option<&'a str>, summary: TemplateSummary| Group {
            name,
            class,
            responses: summary.responses(),
            summary,
        };
        Self {
            schema: SCHEMA,
            tollgate: env!("CARGO_PKG_VERSION"),
            url: report.url,
            target: report.plan.target.to_string(),
            load: Load::new(report),
            warm_up: WarmUp {
                seconds: report.warm_up.duration.as_secs_f64(),
                steady: report.warm_up.steady,
                responses: summary.warm_up.responses,
                failed: summary.warm_up.failed,
            },
            interrupted: report.is_interrupted,
            throughput_per_s: summary.throughput_per_s(),
            responses_per_cpu_s: summary.responses_per_cpu_s(),
            failed: summary.failures.total(),
            statuses: summary.statuses(),
            responses_4xx,
            responses_5xx,
            summary,
            templates: report
                .templates()
                .map(|(label, template)| {
                    group(&label.name, label.class.as_deref(), template.clone())
                })
                .collect(),
            classes: report
                .classes()
                .into_iter()
                .map(|(class, sum)| group(class, Some(class), sum))
                .collect(),
            threads: summary
                .threads
                .iter()
                .map(|usage| Thread { usage: *usage, busy: usage.busy() })
                .collect(),
            generators: report
                .generators
                .iter()
                .map(|one| Generator::new(report.plan, report.generators.len(), one))
                .collect(),
            window_skew_ms: window_skew(report.generators).map(|skew| skew.as_secs_f64() * 1e3),
            verdict: report.verdict(),
        }
    }
}

impl<'a> Load<'a> {
    fn new(report: &Report<'a>) -> Self {
        let plan = report.plan;
        let (r#loop, arrivals) = match &plan.arrivals {
            Arrivals::Closed { .. } => (Loop::Closed, None),
            Arrivals::Open { schedule: OpenLoop { rate: Rate::Recorded(_), .. }, .. }
            | Arrivals::Replay(ReplayPlan { rate: Rate::Recorded(_), .. }) => {
                (Loop::Open, Some(Gaps::Recorded))
            }
            Arrivals::Open { schedule: OpenLoop { spacing: Spacing::Poisson, .. }, .. } => {
                (Loop::Open, Some(Gaps::Poisson))
            }
            Arrivals::Open { .. } | Arrivals::Replay(_) => (Loop::Open, Some(Gaps::Constant)),
        };
        let clients = &plan.clients;
        let (protocol, pipeline, streams) = match clients.protocol {
            Protocol::Http1 { pipeline } => (ProtocolName::Http1, Some(pipeline), None),
            Protocol::Http1Close | Protocol::Handshakes => (ProtocolName::Http1, Some(1), None),
            Protocol::Http2 { streams } => (ProtocolName::Http2, None, Some(streams)),
        };
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let stage = |stage: &RateStage| StageOutput {
            from_per_s: stage.from_per_s,
            to_per_s: stage.to_per_s,
            seconds: stage.length.as_secs_f64(),
        };
        let (rate_per_s, stages) = match plan.rate() {
            None | Some(Rate::Recorded(_)) => (None, Vec::new()),
            Some(Rate::Constant(rate)) => (Some(*rate), Vec::new()),
            Some(Rate::Stages(stages)) => (None, stages.iter().map(stage).collect()),
        };
        Self {
            r#loop,
            rate_per_s,
            stages,
            arrivals,
            pace: plan.replay().map(Replay::pace).map(|pace| pace.to_string()),
            seed: report.seed,
            connections: plan.connections(),
            connections_max: plan.connections_max(),
            threads: clients.threads,
            protocol,
            pipeline,
            streams,
            keep_alive: clients.protocol.keeps_connections(),
            handshakes: clients.protocol == Protocol::Handshakes,
            busy_poll: clients.busy_poll,
            requests: plan.requests(),
            duration_s: report.duration.map(|duration| duration.as_secs_f64()),
            timeout_ms: ms(clients.response_timeout),
            connect_timeout_ms: ms(clients.connect_timeout),
            unix_socket: matches!(plan.target, Target::Unix(_)),
            mix: report.mix,
        }
    }
}
