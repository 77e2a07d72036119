//! The human-readable table, in lines of at most 80 characters.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use tollgate_stats::number::{count, counted, percent, significant};
use tollgate_stats::text::{COLUMNS, paragraph};
use tollgate_traffic::load_shape::{OpenLoop, Protocol, Spacing};

use super::plot::{self, COLUMN_GAP, columns};
use super::report::{Report, TemplateLabel};
use crate::distribution::{Distribution, NS_PER_MS, ns_to_ms};
use crate::plan::{Arrivals, ReplayPlan, Target};
use crate::rate::Rate;
use crate::replay::Pace;
use crate::shard::{GeneratorResult, window_skew};
use crate::summary::{Progress, TemplateSummary, ThreadUsage};
use crate::verdict::{LoadVerdict, Measured};

/// Width of a label with the blanks after it.
const LABEL_COLUMNS: usize = 16;

const NAME_MIN: usize = 8;

const THREADS_MAX: usize = 8;

/// Limit of the name of a generator.
const GENERATOR_COLUMNS: usize = 24;

pub(super) fn render(report: &Report<'_>) -> io::Result<String> {
    let verdict = report.verdict();
    Ok([
        head(report),
        requests(report, verdict.measured),
        failures(report),
        unfinished(report),
        replay(report),
        connections(report),
        latencies(report)?,
        plot::render(&report.summary.latency),
        templates(report),
        generators(report),
        threads(&report.summary.threads),
        labelled("verdict", &verdict_text(report, &verdict)),
    ]
    .concat())
}

fn head(report: &Report<'_>) -> String {
    let mut text = format!("{}\n", report.url);
    if let Target::Unix(path) = &report.plan.target {
        text += &paragraph("", &format!("through the socket {}", path.display()));
    }
    text += &paragraph("", &load(report));
    if let Some(mix) = report.mix {
        text += &paragraph("", &format!("mix {mix}, seed {}", report.seed));
    }
    text + "\n"
}

fn load(report: &Report<'_>) -> String {
    let plan = report.plan;
    let mut parts = match &plan.arrivals {
        Arrivals::Closed { connections } => {
            vec!["closed loop".to_owned(), counted(*connections, "connection")]
        }
        Arrivals::Open { schedule, .. } => {
            let OpenLoop { rate, spacing, connections, connections_max } = schedule;
            let gaps = if *spacing == Spacing::Constant { "" } else { ", Poisson" };
            let connections = if connections_max > connections {
                format!("{connections} to {connections_max} connections")
            } else {
                counted(*connections, "connection")
            };
            vec![format!("open loop: {}/s{gaps}", rate.describe()), connections]
        }
        Arrivals::Replay(ReplayPlan { replay, rate, connections_max }) => {
            let times = match (rate, replay.pace()) {
                (Rate::Recorded(_), pace @ Pace::Recorded { factor }) if factor != 1.0 => {
                    format!("{pace}, {}/s on average", rate.describe())
                }
                (Rate::Recorded(_), _) => {
                    format!("as recorded, {}/s on average", rate.describe())
                }
                (Rate::Constant(_) | Rate::Stages(_), _) => format!("{}/s", rate.describe()),
            };
            vec![
                format!("replay: {times}"),
                format!("up to {}", counted(*connections_max, "connection")),
            ]
        }
    };
    if !plan.clients.protocol.keeps_connections() {
        parts.push("a new one for each request".to_owned());
    }
    match plan.clients.protocol {
        Protocol::Http1 { pipeline: 1 } | Protocol::Http1Close | Protocol::Handshakes => {}
        Protocol::Http1 { pipeline } => parts.push(format!("{pipeline} requests each")),
        Protocol::Http2 { streams } => {
            let limit = report.summary.streams_max.filter(|limit| (*limit as usize) < streams);
            parts.push(match limit {
                Some(limit) => format!("HTTP/2 with {limit} of {streams} streams each"),
                None => format!("HTTP/2 with {} each", counted(streams, "stream")),
            });
        }
    }
    parts.push(counted(plan.clients.threads, "thread"));
    if plan.clients.busy_poll {
        parts.push("busy polling".to_owned());
    }
    parts.push(format!("{:.2} s", report.summary.window.as_secs_f64()));
    parts.join(", ")
}

fn requests(report: &Report<'_>, measured: Measured) -> String {
    let summary = report.summary;
    let at_least = match (&report.plan.arrivals, measured) {
        (Arrivals::Closed { .. }, Measured::Generator) => "at least ",
        _ => "",
    };
    let with_rate = |responses: u64| {
        let rate = summary.throughput_per_s().map_or(String::new(), |_| {
            let rate = responses as f64 / summary.window.as_secs_f64();
            format!(" ({at_least}{}/s)", significant(rate))
        });
        count(responses) + &rate
    };
    if report.plan.clients.protocol == Protocol::Handshakes {
        let per_cpu_s = summary.responses_per_cpu_s().map_or(String::new(), |rate| {
            format!(", {} per second of CPU of the generator", significant(rate))
        });
        return labelled("handshakes", &(with_rate(summary.responses) + &per_cpu_s));
    }
    let mut text = labelled("responses", &with_rate(summary.responses));
    if summary.unexpected > 0 {
        let expected = with_rate(summary.responses - summary.unexpected);
        text += &labelled("", &format!("of these as expected: {expected}"));
    }
    text += &labelled("status codes", &statuses(&summary.statuses()));
    let errors = summary.error_responses(&report.plan.workload);
    for (label, number) in ["  4xx", "  5xx"].into_iter().zip(errors) {
        if number > 0 {
            text += &labelled(label, &with_rate(number));
        }
    }
    let unexpected = count(summary.unexpected) + &first(summary.unexpected_example.as_ref());
    text + &labelled("unexpected", &unexpected)
}

fn failures(report: &Report<'_>) -> String {
    let failures = &report.summary.failures;
    let malformed = format!("malformed{}", first(failures.malformed_example.as_ref()));
    let other = format!("other{}", first(failures.other_example.as_ref()));
    let refused = match report.plan.target {
        Target::Unix(_) => "refused: nothing listens on that socket; is the server running?",
        Target::Tcp(_) => "refused: nothing listens there; is the server running on that port?",
    };
    let kinds = [
        (failures.refused, refused),
        (failures.reset, "reset by the server: check its log and its limits"),
        (failures.connect_timeout, "timed out connecting: the server's backlog may be full"),
        (failures.response_timeout, "timed out waiting for the response (--timeout)"),
        (failures.closed_early, "closed before the response: check the server's log"),
        (failures.malformed, malformed.as_str()),
        (failures.no_port, "without a local port: keep connections alive, or open fewer"),
        (failures.other, other.as_str()),
    ];
    let mut text = labelled("failed", &count(failures.total()));
    for (number, what) in kinds.into_iter().filter(|(number, _)| *number > 0) {
        text += &labelled("", &format!("{} {what}", count(number)));
    }
    text
}

/// Balance of the requests sent, and those without response or failure.
fn unfinished(report: &Report<'_>) -> String {
    let summary = report.summary;
    let mut parts = vec![
        format!("{} responses", count(summary.responses)),
        format!("{} failed", count(summary.failures.total())),
        format!("{} in flight", count(summary.in_flight)),
    ];
    let Progress { responses, failed, .. } = summary.warm_up;
    if responses + failed > 0 {
        parts.push(format!("{} finished in the warm-up", count(responses + failed)));
    }
    let sent = count(summary.sent);
    let mut text = labelled("sent", &format!("{sent} = {}", parts.join(" + ")));
    let oldest = |age: Option<Duration>| {
        age.map_or(String::new(), |age| {
            format!(", the oldest for {} ms", significant(age.as_secs_f64() * 1e3))
        })
    };
    let oldest_in_flight = oldest(summary.oldest_in_flight);
    let oldest_unsent = oldest(summary.oldest_unsent);
    let lines = [
        ("in flight", summary.in_flight, format!("at the end{oldest_in_flight}")),
        ("unsent", summary.unsent, format!("were due at the end{oldest_unsent}")),
        ("queued", summary.queued, "were due while no connection was free".to_owned()),
        ("resent", summary.resent, "were sent again on a new connection".to_owned()),
        (
            "folded",
            summary.folded_heads,
            "responses have header lines over several lines".to_owned(),
        ),
        (
            "two framings",
            summary.double_framings,
            "responses have Content-Length beside Transfer-Encoding, which counts".to_owned(),
        ),
    ];
    for (label, number, what) in lines.into_iter().filter(|(_, number, _)| *number > 0) {
        text += &labelled(label, &format!("{} {what}", count(number)));
    }
    text + &labelled("received", &bytes(summary.bytes_received))
}

/// Sessions of a replay, with counts of their cookies and variables.
fn replay(report: &Report<'_>) -> String {
    let Some(replay) = &report.summary.replay else { return String::new() };
    let planned = format!("{} planned", count(replay.planned));
    let mut text = labelled("replay", &format!("{planned}, {} sent", count(report.summary.sent)));
    let cookies = match replay.cookies {
        0 => String::new(),
        cookies => format!(", with {} from responses", counted(cookies as usize, "cookie")),
    };
    text += &labelled("sessions", &(count(replay.sessions) + &cookies));
    let first = first(replay.failed_extraction_example.as_ref());
    let failed = replay.failed_extractions;
    if replay.extractions + failed > 0 {
        let extractions = count(replay.extractions);
        text += &labelled(
            "extracted",
            &format!("{extractions} values, {} failed{first}", count(failed)),
        );
    }
    let lines = [
        ("rejected", replay.rejected_cookies, "cookies: invalid, or for another domain"),
        ("awaited", replay.awaited, "requests waited for a response with a variable"),
        ("no value", replay.without_value, "requests were sent without a value of a variable"),
    ];
    for (label, number, what) in lines.into_iter().filter(|(_, number, _)| *number > 0) {
        text += &labelled(label, &format!("{} {what}", count(number)));
    }
    text
}

fn connections(report: &Report<'_>) -> String {
    let summary = report.summary;
    let connect_time = &summary.connect_time;
    let in_ms = |ns: f64| significant(ns / NS_PER_MS);
    let took = match (connect_time.quantile_ns(0.5), connect_time.mean_ns()) {
        (Some(p50_ns), _) => format!(", half of them within {} ms", in_ms(p50_ns as f64)),
        (None, Some(mean_ns)) => format!(", in {} ms on average", in_ms(mean_ns)),
        (None, None) => String::new(),
    };
    let mut text = labelled("connects", &format!("{}{took}", count(summary.connects)));
    if let Some(handshakes) = &summary.handshake_time {
        let resumed = match summary.resumed_handshakes {
            0 => String::new(),
            resumed => {
                let rate = percent(resumed as f64 / handshakes.count().max(1) as f64);
                format!(", {} of them resumed ({rate})", count(resumed))
            }
        };
        let quantile = |name, q| {
            let ns = handshakes.quantile_ns(q)?;
            Some(format!(", {name} {} ms", in_ms(ns as f64)))
        };
        let mean = handshakes
            .mean_ns()
            .map_or(String::new(), |ns| format!(", in {} ms on average", in_ms(ns)));
        let quantiles = [("p50", 0.5), ("p99", 0.99)].map(|(name, q)| quantile(name, q));
        let mean = quantiles.into_iter().flatten().fold(mean, |text, part| text + &part);
        let cipher = summary.tls.as_deref().unwrap_or_default();
        let text_of = format!("{}{resumed}{mean}: {cipher}", count(handshakes.count()));
        text += &labelled("TLS", &text_of);
    }
    if let (Some(received), Some(sent)) = (summary.tls_bytes_received, summary.tls_bytes_sent) {
        let what =
            format!("{} received, {} sent over TLS, with handshakes", bytes(received), bytes(sent));
        text += &labelled("on the wire", &what);
    }
    if summary.force_closed > 0 {
        let number = count(summary.force_closed);
        let what = "that the server left open after `Connection: close`";
        text += &labelled("force-closed", &format!("{number} connections {what}"));
    }
    let warm_up = report.warm_up;
    if !warm_up.duration.is_zero() {
        let result = match warm_up.steady {
            Some(true) => ", until the figures were steady",
            Some(false) => ", but the figures were not steady",
            None => "",
        };
        let seconds = warm_up.duration.as_secs_f64();
        text += &labelled("warm-up", &format!("{seconds:.1} s{result}"));
    }
    if report.is_interrupted {
        text += &labelled("interrupted", "stopped before its end: these are the figures so far");
    }
    text
}

/// Latency distributions, side by side in an open loop.
fn latencies(report: &Report<'_>) -> io::Result<String> {
    let summary = report.summary;
    if summary.latency.count() == 0 {
        return Ok(String::new());
    }
    let sides = [
        ("latency", Some(&summary.latency)),
        ("uncorrected", summary.uncorrected_latency.as_ref()),
        ("lateness", summary.lateness.as_ref()),
    ];
    let sides: Vec<(&str, Distribution)> = sides
        .into_iter()
        .filter_map(|(name, histogram)| Some((name, histogram?)))
        .map(|(name, histogram)| {
            Ok((name, Distribution::new(histogram).map_err(io::Error::other)?))
        })
        .collect::<io::Result<_>>()?;
    let mut rows = Vec::new();
    if sides.len() > 1 {
        let names = sides.iter().map(|(name, _)| (*name).to_owned());
        rows.push(std::iter::once(String::new()).chain(names).collect());
    }
    for (index, (name, _)) in sides[0].1.figures_ms().into_iter().enumerate() {
        let is_lower_bound = quantile(name).is_some_and(|q| summary.is_lower_bound(q));
        let cells = sides.iter().enumerate().map(|(side, (_, distribution))| {
            let cell = ms(distribution.figures_ms()[index].1);
            if side == 0 && is_lower_bound { format!(">={cell}") } else { cell }
        });
        rows.push(std::iter::once(format!("  {name}")).chain(cells).collect());
    }
    Ok(format!("\n{}{}", paragraph("", &latency_title(report)), columns(&rows)))
}

/// Returns the quantile of a figure by its name.
fn quantile(name: &str) -> Option<f64> {
    let percent = name.strip_prefix('p').and_then(|digits| digits.parse::<f64>().ok());
    if name == "max" { Some(1.0) } else { percent.map(|percent| percent / 100.0) }
}

fn latency_title(report: &Report<'_>) -> String {
    let plan = report.plan;
    let title = match plan.arrivals {
        Arrivals::Closed { connections } => {
            let streams_max = report.summary.streams_max.map_or(usize::MAX, |limit| limit as usize);
            let in_flight = connections * plan.clients.protocol.concurrency().min(streams_max);
            let in_flight = counted(in_flight, "request");
            format!("Latency in ms, with at most {in_flight} in flight")
        }
        Arrivals::Open { .. } | Arrivals::Replay(_) => {
            "Latency in ms since the request was due, uncorrected since its send; lateness is the delay by the generator".to_owned()
        }
    };
    match report.summary.failures.timeouts() {
        0 => title,
        1 => format!("{title}; includes 1 timeout as a lower bound"),
        timeouts => format!("{title}; includes {} timeouts as lower bounds", count(timeouts)),
    }
}

/// A row for each class and each template; empty without a mix.
fn templates(report: &Report<'_>) -> String {
    if report.mix.is_none() {
        return "\n".to_owned();
    }
    let mut names = vec![String::new()];
    let heads = ["responses", "unexpected", "p50 ms", "p99 ms", "max ms"];
    let mut figures = vec![heads.map(str::to_owned)];
    for (class, sum) in report.classes() {
        names.push(class.to_owned());
        figures.push(template_figures(&sum));
        let is_in_class = |label: &TemplateLabel| label.class.as_deref() == Some(class);
        for (label, template) in report.templates().filter(|(label, _)| is_in_class(label)) {
            names.push(format!("  {}", label.name));
            figures.push(template_figures(template));
        }
    }
    let widths = (0..heads.len()).filter_map(|column| {
        figures.iter().map(|row| row[column].chars().count() + COLUMN_GAP).max()
    });
    let name_columns = COLUMNS.saturating_sub(widths.sum()).max(NAME_MIN);
    let rows: Vec<Vec<String>> = names
        .iter()
        .zip(figures)
        .map(|(name, figures)| {
            std::iter::once(truncate(name, name_columns)).chain(figures).collect()
        })
        .collect();
    format!("\n{}\n", columns(&rows))
}

fn template_figures(template: &TemplateSummary) -> [String; 5] {
    let latency = &template.latency;
    let in_ms = |ns: Option<u64>| ms(ns.map(ns_to_ms));
    [
        count(template.responses()),
        count(template.unexpected),
        in_ms(latency.quantile_ns(0.5)),
        in_ms(latency.quantile_ns(0.99)),
        in_ms(latency.max_ns()),
    ]
}

/// A row for each of several generators, and the skew between their windows.
fn generators(report: &Report<'_>) -> String {
    let Report { generators, summary, .. } = report;
    if generators.is_empty() {
        return String::new();
    }
    let heads = ["generator", "responses", "failed", "/s", "p50 ms", "p99 ms", "busiest"];
    let in_ms = |ns: Option<u64>| ms(ns.map(ns_to_ms));
    let row = |GeneratorResult { name, summary, .. }: &GeneratorResult| {
        let busiest = summary.threads.iter().map(ThreadUsage::busy).fold(0.0, f64::max);
        vec![
            truncate(name, GENERATOR_COLUMNS),
            count(summary.responses),
            count(summary.failures.total()),
            summary.throughput_per_s().map_or("-".to_owned(), significant),
            in_ms(summary.latency.quantile_ns(0.5)),
            in_ms(summary.latency.quantile_ns(0.99)),
            percent(busiest),
        ]
    };
    let rows: Vec<Vec<String>> = std::iter::once(heads.map(str::to_owned).into())
        .chain(generators.iter().map(row))
        .collect();
    let skew = window_skew(generators).map_or(String::new(), |skew| {
        let skew_ms = ms(Some(skew.as_secs_f64() * 1e3));
        let share = percent(skew.as_secs_f64() / summary.window.as_secs_f64().max(1e-9));
        labelled(
            "skew",
            &format!("the windows differ by up to {skew_ms} ms, {share} of their length"),
        )
    });
    columns(&rows) + &skew + "\n"
}

/// A line for each thread, or for the busiest of many.
fn threads(threads: &[ThreadUsage]) -> String {
    let mut busiest: Vec<(usize, &ThreadUsage)> = threads.iter().enumerate().collect();
    busiest.sort_by(|(_, a), (_, b)| b.busy().total_cmp(&a.busy()));
    busiest.truncate(THREADS_MAX);
    busiest.sort_by_key(|(index, _)| *index);
    let mut text = String::new();
    for (index, thread) in busiest {
        let window_s = thread.window.as_secs_f64().max(1e-6);
        let of_window = |time: Duration| percent(time.as_secs_f64() / window_s);
        let polled = if thread.polled.is_zero() {
            String::new()
        } else {
            format!(", without {} of idle polling", of_window(thread.polled))
        };
        let used = format!(
            "{} of a CPU (user {}, system {}, waited {}{polled})",
            percent(thread.busy()),
            of_window(thread.user),
            of_window(thread.system),
            of_window(thread.waited)
        );
        text += &labelled(&format!("thread {}", index + 1), &used);
    }
    if threads.len() > THREADS_MAX {
        let others = threads.len() - THREADS_MAX;
        text += &labelled("", &format!("and {others} that used no more than these"));
    }
    text
}

fn verdict_text(report: &Report<'_>, verdict: &LoadVerdict) -> String {
    let reason = &verdict.reason;
    let text = match (verdict.measured, &report.plan.arrivals) {
        (Measured::Server, _) => format!("these are the figures of the server: {reason}"),
        (Measured::Generator, Arrivals::Closed { .. }) => format!(
            "the load generator was the bottleneck, so the throughput is a lower bound: {reason}"
        ),
        (Measured::Generator, Arrivals::Open { .. } | Arrivals::Replay(_)) => {
            format!("the load generator was behind schedule: {reason}")
        }
        (Measured::Connections, _) => format!("too few connections for this rate: {reason}"),
        (Measured::Nothing, _) => reason.clone(),
    };
    match &verdict.warning {
        Some(warning) => format!("{warning}. Apart from that, {text}"),
        None => text,
    }
}

fn statuses(statuses: &BTreeMap<u16, u64>) -> String {
    let statuses: Vec<String> =
        statuses.iter().map(|(code, number)| format!("{code}: {}", count(*number))).collect();
    if statuses.is_empty() { "none".to_owned() } else { statuses.join(", ") }
}

fn first(example: Option<&String>) -> String {
    example.map_or(String::new(), |example| format!(", first: {example}"))
}

fn labelled(label: &str, value: &str) -> String {
    paragraph(&format!("{label:<LABEL_COLUMNS$}"), value)
}

/// Formats bytes in the largest unit that gives at least 1.
fn bytes(bytes: u64) -> String {
    let in_units = |bits: u32| significant(bytes as f64 / f64::from(1 << bits));
    match bytes {
        0..0x400 => format!("{bytes} bytes"),
        0x400..0x10_0000 => format!("{} KiB", in_units(10)),
        0x10_0000..0x4000_0000 => format!("{} MiB", in_units(20)),
        _ => format!("{} GiB", in_units(30)),
    }
}

/// Formats milliseconds with three significant digits, down to a microsecond.
fn ms(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value > 0.0 && value < 0.001 => "<0.001".to_owned(),
        Some(value) => significant(value),
    }
}

/// Truncates a text to a number of characters, the last of which is then an ellipsis.
fn truncate(text: &str, columns: usize) -> String {
    if text.chars().count() > columns {
        text.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_units_and_limits() {
        assert_eq!(labelled("failed", "0"), "failed          0\n");
        assert_eq!((bytes(0), bytes(1_023)), ("0 bytes".into(), "1023 bytes".into()));
        assert_eq!((bytes(1_024), bytes(3 << 19)), ("1.00 KiB".into(), "1.50 MiB".into()));
        assert_eq!(bytes(5 << 30), "5.00 GiB");
        assert_eq!((ms(None), ms(Some(0.0))), ("-".into(), "0".into()));
        assert_eq!((ms(Some(0.000_9)), ms(Some(0.001_234))), ("<0.001".into(), "0.00123".into()));
        assert_eq!(truncate("template", 8), "template");
        assert_eq!(truncate("templates", 8), "templat…");
    }
}
